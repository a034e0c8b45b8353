"""A metric looks at the output of the network and the labels, of some vertices of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scored:
    """Output and labels of this rank's vertices in one mask; each vertex is on one rank.

    Attributes
    ----------
    logits : (m, c) floating-point numbers
    labels : (m,) int32, or (m, c) floating-point numbers
        Classes, all of them known; or numbers, NaN where unknown.
    """

    logits: np.ndarray
    labels: np.ndarray

    @property
    def of_classes(self) -> bool:
        """Whether a vertex has one label, a class."""
        return self.labels.ndim == 1

    @property
    def known(self) -> np.ndarray:
        """Which numbers are known, (m, c) bool; not for classes."""
        return ~np.isnan(self.labels)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """The mean over the columns in which a metric is defined; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
