"""A rank's own rows of Ã, made of the arcs that all ranks read: counted, placed, done.

The arcs pass by twice, a piece at a time, so that beside what remains a rank has no more than the
buffers of a piece: first each row's entries are counted, and the rows of others that they refer to
are noted; then each entry goes to its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gcnmpi.kernels.rows import (
    STEP,
    Distinct,
    Places,
    entry_rows,
    look_up_in_place,
    looked_up,
    note_entries,
    place_entries,
    sort_rows,
)
from gcnmpi.layout.arcs import Entries, arc_pieces
from gcnmpi.layout.loading import own_rows
from gcnmpi.layout.row_order import FAR, Block
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, agreed
from partition.errors import UserError
from partition.graph.graph import AGAIN, distinct


@dataclass(frozen=True)
class Reading:
    """The arcs that come to the ranks that own their row of M, piece by piece.

    Attributes
    ----------
    comm : Comm
    source : Source
    parts : (n,) integers
        The owners of all vertices.
    max_bytes : float
        Bound of the buffers of a piece.
    """

    comm: Comm
    source: Source
    parts: np.ndarray
    max_bytes: float

    def pieces(self, direction: str, check: bool = False) -> Iterator[Entries]:
        """Entries of own rows; ``check`` that the folder holds what its manifest says."""
        stored = self.source.stored
        for piece in arc_pieces(self.comm, stored, direction, self.max_bytes, check):
            if self.comm.size > 1:
                owners = looked_up(self.parts, piece.row)
                piece = piece.sent(self.comm, owners, self.max_bytes)
            yield piece


@dataclass(frozen=True)
class Survey:
    """The own rows of Ã before their entries are placed; they are in the order of ids.

    Attributes
    ----------
    own : (own,) integers
        Global ids, increasing.
    halo : (halo,) integers
        Rows of others that the entries refer to, in (owner, id) order.
    lengths : (own,) int64
        Entries of each row, with the self-loops that it is given.
    lonely : (own,) bool
        Which rows are given a self-loop.
    column_lengths : (own,) int64
        Entries of own rows in the column of each own vertex.
    far : bool
        Whether half of these are far from the diagonal.
    """

    own: np.ndarray
    halo: np.ndarray
    lengths: np.ndarray
    lonely: np.ndarray
    column_lengths: np.ndarray
    far: bool

    def block(self, products: float, symmetric: bool) -> Block:
        """The block of own rows and columns, for an order of rows: see ``layout.row_order``."""
        return Block(self.lengths, self.column_lengths, self.far, products, symmetric)


def survey(reading: Reading, self_loops: bool) -> Survey:
    """Count the entries of own rows, and note the rows of others; the folder is checked."""
    own = own_rows(reading.parts, reading.comm.rank)
    places, count = Places(own), len(own)
    lengths, column_lengths = np.zeros((2, count), np.int64)
    lonely = np.full(count, self_loops)
    distance = FAR * count
    far = inside = 0
    others = Distinct(own.dtype)
    for piece in reading.pieces(reading.source.direction, check=True):
        row, column = places.all_of(piece.row), places.of(piece.column)
        found = note_entries(row, column, lengths, column_lengths, lonely, distance)
        inside, far = inside + found[0], far + found[1]
        if found[0] < len(row):
            others.add(piece.column[column < 0])
    halo = by_owner(others.numbers(), reading.parts)
    lengths += lonely
    column_lengths += lonely
    return Survey(own, halo, lengths, lonely, column_lengths, 2 * far >= max(inside, 1))


def halo_of(own: np.ndarray, columns: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The rows of others among ``columns``, each once, in (owner, id) order.

    Columns are those that the rank's own rows of M touch, in any order, repeated or not; ``parts``,
    (n,) integers, are the owners of all vertices.
    """
    return by_owner(np.setdiff1d(distinct(columns), own, assume_unique=True), parts)


def by_owner(halo: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Increasing ids in the order of the ranks that own them."""
    return halo[np.argsort(parts[halo], kind="stable")]


@dataclass(frozen=True)
class PlacedRows:
    """Own rows of Ã over local columns, own ones first, then the halo; columns rise in each row.

    Or they come in another order that :func:`placed` was asked for.

    ``starts``, (own + 1,) int64; ``columns``, (entries,) int32; ``weights``, (entries,) float64, or
    None: all are 1.
    """

    starts: np.ndarray
    columns: np.ndarray
    weights: np.ndarray | None

    def pieces(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some entries at a time, and the row of each, int32."""
        for start in range(0, len(self.columns), STEP):
            some = slice(start, start + STEP)
            yield some, entry_rows(self.starts, some)


def placed(
    reading: Reading,
    rows: Survey,
    first: np.ndarray | None,
    direction: str,
    threads: int,
    by_id: bool = False,
) -> PlacedRows:
    """Put the entries of own rows to their places; rows are in the order that ``first`` says.

    ``direction`` may be the other one, where each arc has a reverse. With ``by_id`` there are no
    weights, and the columns of a row come by their global ids.
    """
    own, lengths, lonely = (
        a if first is None else a[first] for a in (rows.own, rows.lengths, rows.lonely)
    )
    ids = np.concatenate((own, rows.halo))
    row_places = column_places = Places(ids)
    if by_id:
        local = np.argsort(ids, kind="stable").astype(np.int32)
        row_places, column_places = Places(own), Places(ids[local])
    weighted = reading.source.stored.manifest.valued and not by_id

    def pieces() -> Iterator[Piece]:
        loops = np.flatnonzero(lonely).astype(np.int32)
        yield loops, column_places.all_of(own[loops]), np.ones(len(loops))
        for piece in reading.pieces(direction):
            ends = row_places.all_of(piece.row), column_places.all_of(piece.column)
            yield *ends, piece.weight

    starts, columns, weights = put(reading.comm, lengths, pieces(), weighted, threads)
    if by_id:
        look_up_in_place(local, columns)
    return PlacedRows(starts, columns, weights)


Piece = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Rows and columns of some entries, (m,) int32, and their values; None: all are 1."""


def put(
    comm: Comm, lengths: np.ndarray, pieces: Iterable[Piece], valued: bool, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of entries that come a piece at a time; all ranks call it together.

    Parameters
    ----------
    lengths : (rows,) int64
        How many entries of each row will come.
    valued : bool
        Whether entries have values of 8 bytes, which go with them.

    Returns
    -------
    starts : (rows + 1,) int64
    columns : (entries,) int32
        Rising in each row; equal ones in the order in which they came.
    values : (entries,) float64, or None
    """
    starts = np.append(0, np.cumsum(lengths))
    columns = np.empty(starts[-1], np.int32)
    values = np.ones(starts[-1]) if valued else None
    following, ends = starts[:-1].copy(), starts[1:]
    for row, column, some in pieces:
        here = None if some is None else values
        some = None if here is None else some
        place_entries(row, column, some, following, ends, columns, here)
    with agreed(comm):
        if not np.array_equal(following, ends):
            raise UserError("the graph folder changed while it was read", AGAIN)
    sort_rows(starts, columns, values, threads)
    return starts, columns, values
