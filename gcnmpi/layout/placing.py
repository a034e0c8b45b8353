"""A rank's own rows of Ã, made of the arcs that all ranks read: counted, placed, done.

The arcs pass by twice, a piece at a time, so that beside what remains a rank has no more than the
buffers of a piece: first each row's entries are counted, and the rows of others that they refer to
are noted; then each entry goes to its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from gcnmpi.mpi.comm import Comm, agreed, redistribute
from partition.errors import UserError
from partition.graph.graph import AGAIN, distinct
from partition.resident import forget_pages

Owners = Callable[[np.ndarray], Sequence[np.ndarray]]
"""From rows of M, global ids, to the ranks that have them: an array for each copy of the rows."""


@dataclass(frozen=True)
class Arriving:
    """Arcs on their way to the ranks that have their row of M, in the same order each time.

    Attributes
    ----------
    comm : Comm
    source : Source
    owners : callable
        See :data:`Owners`.
    max_bytes : float
        Bound of the buffers of a piece.
    one_loop : bool
        Whether parallel arcs that come one by one are without repeated self-loops.
    """

    comm: Comm
    source: Source
    owners: Owners
    max_bytes: float
    one_loop: bool = False

    @classmethod
    def to_owners(cls, comm: Comm, source: Source, parts: np.ndarray, max_bytes: float) -> Arriving:
        """Arcs to the one rank that each row is on; ``parts``, (n,) integers, are all owners."""
        return cls(comm, source, lambda rows: [looked_up(parts, rows)], max_bytes)

    def pieces(
        self,
        wanted: Callable[[Entries], Sequence[np.ndarray]],
        direction: str | None = None,
        *,
        check: bool = False,
        parallel: bool = False,
    ) -> Iterator[Sequence[np.ndarray]]:
        """Some arrays of the arcs that come here; all ranks call it together.

        ``wanted`` gives them, with a row for each arc of a piece that this rank has read, in the
        direction of M or another. ``check`` and ``parallel`` are those of ``arc_pieces``.
        """
        stored, way = self.source.stored, direction or self.source.direction
        one_loop = parallel and self.one_loop
        facts = self.comm, stored, way, self.max_bytes, check
        for piece in arc_pieces(*facts, parallel=parallel, one_loop=one_loop):
            arrays = wanted(piece)
            # Other arrays are computed only when their rows are picked to be sent.
            if self.comm.size == 1 and all(isinstance(array, np.ndarray) for array in arrays):
                yield arrays
                for array in arrays:
                    forget_pages(array)
                continue
            for to in self.owners(piece.row):
                yield redistribute(self.comm, to, arrays, self.max_bytes)[0]


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


def survey(arriving: Arriving, parts: np.ndarray, self_loops: bool) -> Survey:
    """Count the entries of own rows, and note the rows of others; the folder is checked.

    ``parts``, (n,) integers, are the owners of all vertices.
    """
    own = own_rows(parts, arriving.comm.rank)
    places, count = Places(own), len(own)
    lengths, column_lengths = np.zeros((2, count), np.int64)
    lonely = np.full(count, self_loops)
    distance = FAR * count
    far = inside = 0
    others = Distinct(own.dtype)
    for ids, of in arriving.pieces(lambda piece: (piece.row, piece.column), check=True):
        row, column = places.all_of(ids), places.of(of)
        found = note_entries(row, column, lengths, column_lengths, lonely, distance)
        inside, far = inside + found[0], far + found[1]
        if found[0] < len(row):
            others.add(of[column < 0])
    halo = by_owner(others.numbers(), parts)
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
    arriving: Arriving,
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
    weighted = arriving.source.stored.manifest.valued and not by_id

    def wanted(piece: Entries) -> list[np.ndarray]:
        ends = [piece.row, piece.column]
        return ends if by_id or piece.weight is None else [*ends, piece.weight]

    def pieces() -> Iterator[Piece]:
        loops = np.flatnonzero(lonely).astype(np.int32)
        yield loops, column_places.all_of(own[loops]), np.ones(len(loops))
        for row, column, *weight in arriving.pieces(wanted, direction):
            ends = row_places.all_of(row), column_places.all_of(column)
            yield *ends, weight[0] if weight else None

    starts, columns, weights = put(arriving.comm, lengths, pieces(), weighted, threads)
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
