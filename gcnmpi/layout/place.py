"""Where a dense matrix lives, and which piece of it a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np


class Space(StrEnum):
    """The index space of a dense matrix: what its rows are."""

    OWN = "own"
    """The vertices of the rank."""
    WHOLE = "whole"
    """These, and behind them the vertices of other ranks that entries of its rows of M refer to."""
    ENTRIES = "entries"
    """The entries of the rank's rows of M, by rows, in a row by the global id of the column."""


class Place(NamedTuple):
    """Where a dense matrix lives: that of Hᵏ (0: input); or of M·Hᵏ⁻¹, on the way to Hᵏ.

    Of its space ``space``: layouts that cut rows and columns have the own one only.
    """

    layer: int
    aggregated: bool = False
    space: Space = Space.OWN


@dataclass(frozen=True)
class Block:
    """A rank's piece of a dense matrix: keys of its rows, and its columns, start to stop.

    The key of a vertex is its global id; that of an entry is a hash of both of its ends.

    ``part`` says which of the pieces that share these rows it is, ``copy`` which of the copies of
    this piece.
    """

    rows: np.ndarray
    columns: slice
    part: int = 0
    copy: int = 0

    @property
    def counts_entries(self) -> bool:
        """Whether a sum over entries takes this piece: one copy of each does."""
        return self.copy == 0

    @property
    def counts_rows(self) -> bool:
        """Whether a sum over whole rows takes these: one of all that share them does."""
        return self.part == 0 and self.copy == 0
