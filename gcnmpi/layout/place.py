"""Where a dense matrix lives, and which piece of it a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Place(NamedTuple):
    """Where a dense matrix lives: that of Hᵏ (0: input); or of M·Hᵏ⁻¹, on the way to Hᵏ."""

    layer: int
    aggregated: bool = False


@dataclass(frozen=True)
class Block:
    """A rank's piece of a dense matrix: global ids of its rows, and its columns, start to stop.

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
