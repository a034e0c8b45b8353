"""Losses of single numbers, which kernels may have: what they are called and what they take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ENTRY_LOSSES = ("sigmoid", "squared", "absolute", "huber")


@dataclass(frozen=True)
class EntryLoss:
    r"""A loss of each number of the output, z, and its label y.

    Attributes
    ----------
    kind : str
        ``sigmoid``: −w·y·log σ(z) − (1 − y)·log(1 − σ(z)), where w is the weight of the column. Of
        the error r = z − y: ``squared`` r², ``absolute`` \|r\|, ``huber`` r²/2 up to \|r\| = δ and
        δ·(\|r\| − δ/2) beyond (Huber 1964).
    weights : (columns,) array
        Of the columns that a rank has; used by ``sigmoid``.
    delta : float
        Used by ``huber``.
    """

    kind: str
    weights: np.ndarray
    delta: float = 1.0
