"""Where a dense matrix lives, and which piece of it a rank has."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
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
    GROUPS = "groups"
    """The groups of these of one row and relation, by rows, in a row by relation.

    Where there are groups, the entries of a row are in the order of groups first.
    """
    OF_TYPE = "of_type"
    """The vertices of the rank that are of the one type whose results a network gives."""
    TURNED = "turned"
    """All vertices, one rank's after the other's; a rank has some of the columns of all of them."""

    @property
    def of_arcs(self) -> bool:
        """Whether its rows are arcs, or some of those into a vertex together."""
        return self in (Space.ENTRIES, Space.GROUPS)


class Incidence(StrEnum):
    """Which rows are cut into which, by a pattern: each row of one space has some of another."""

    ARCS = "arcs"
    """Own rows, and the entries of each; its columns are the rows of the whole space."""
    GROUPED = "grouped"
    """Groups, and the entries of each, likewise."""
    GROUPS = "groups"
    """Own rows, and the groups of each, which are its columns."""

    @classmethod
    def between(cls, spaces: Collection[Space]) -> Incidence:
        """That of an operation on matrices of some spaces."""
        if Space.GROUPS not in spaces:
            return cls.ARCS
        return cls.GROUPS if {Space.ENTRIES, Space.WHOLE}.isdisjoint(spaces) else cls.GROUPED


class Place(NamedTuple):
    """Where a dense matrix lives: that of Hᵏ (0: input); or of M·Hᵏ⁻¹, on the way to Hᵏ.

    Of its space ``space``: layouts that cut rows and columns have the own one only.
    """

    layer: int
    aggregated: bool = False
    space: Space = Space.OWN


@dataclass(frozen=True)
class Block:
    """A rank's piece of a dense matrix: some rows, which have keys, and columns, start to stop.

    The key of a vertex is its global id; that of an entry is a hash of both of its ends.

    Attributes
    ----------
    count : int
        How many rows.
    keys : callable
        Makes their keys, (count,) integers: few programs ask for those of entries.
    part : int
        Which of the pieces that share these rows it is.
    copy : int
        Which of the copies of this piece.
    """

    count: int
    keys: Callable[[], np.ndarray]
    columns: slice
    part: int = 0
    copy: int = 0

    @classmethod
    def of(cls, rows: np.ndarray, columns: slice, part: int = 0, copy: int = 0) -> Block:
        """That of rows whose keys are there."""
        return cls(len(rows), lambda: rows, columns, part, copy)

    @property
    def rows(self) -> np.ndarray:
        """The keys of the rows."""
        return self.keys()

    def of_rows(self, rows: np.ndarray) -> Block:
        """The same columns of other rows, by their keys."""
        return replace(self, count=len(rows), keys=lambda: rows)

    def some(self, rows: slice) -> Block:
        """Some of the rows."""
        count = len(range(*rows.indices(self.count)))
        return replace(self, count=count, keys=lambda: self.keys()[rows])

    @property
    def counts_entries(self) -> bool:
        """Whether a sum over entries takes this piece: one copy of each does."""
        return self.copy == 0

    @property
    def counts_rows(self) -> bool:
        """Whether a sum over whole rows takes these: one of all that share them does."""
        return self.part == 0 and self.copy == 0
