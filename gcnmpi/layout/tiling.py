"""Matrices cut into blocks: who holds which, and how rows and arcs on disk get there.

An :class:`Ordering` renumbers the vertices so that a block is a range of positions. A
:class:`Tiling` cuts rows and columns and says who holds which tile of a dense matrix. Tiles of M
are made by :func:`sparse_tile`. Every rank reads a contiguous 1/P of the rows on disk, whatever
the layout, so memory shrinks with P; only positions are kept for all vertices, once a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.kernels.rows import count_entries, note_entries, permute_rows
from gcnmpi.layout import row_order
from gcnmpi.layout.arcs import EntriesOfM, arc_pieces
from gcnmpi.layout.loading import Readable, original_rows, readers
from gcnmpi.layout.place import Block
from gcnmpi.layout.placing import Piece, put
from gcnmpi.mpi.comm import (
    Comm,
    agreed,
    from_root,
    maximum,
    node_array,
    once_a_node,
    redistribute,
    slice_of,
)
from gcnmpi.options.config import LoadingConfig
from gcnmpi.options.scheme import ROW_ORDERS, GridOptions
from partition.errors import UserError
from partition.graph.graph import Graph, index_dtype
from partition.graph.store import Partition, StoredGraph, read_partition

STEP = 1 << 20  # positions looked at at once
ROWS_SEED, COLUMNS_SEED = 1, 2


@dataclass(frozen=True)
class Ordering:
    """A numbering of the n vertices in which blocks are contiguous.

    ``position``, (n,), says where each vertex is, in memory that the ranks of a node share; None:
    at its own number. ``bounds``, (k + 1,) int64, are the beginnings of the parts of the partition
    that it was made from.
    """

    n: int
    position: np.ndarray | None = None
    bounds: np.ndarray | None = None

    def positions(self, vertices: np.ndarray) -> np.ndarray:
        """The positions of vertices, in their order."""
        return vertices if self.position is None else self.position[vertices]

    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Ids of the vertices at positions start … stop − 1, in that order."""
        dtype = index_dtype(self.n)
        if self.position is None:
            return np.arange(start, stop, dtype=dtype)
        found = np.empty(stop - start, dtype)
        for first in range(0, self.n, STEP):
            piece = self.position[first : first + STEP]
            inside = np.flatnonzero((piece >= start) & (piece < stop))
            found[piece[inside] - start] = first + inside
        return found

    def cuts(self, count: int) -> np.ndarray:
        """Positions at which ``count`` blocks begin, (count + 1,) int64.

        Between parts where each block is as many of them as any other, else of equal size.
        """
        if self.bounds is not None and (len(self.bounds) - 1) % count == 0:
            return self.bounds[:: (len(self.bounds) - 1) // count]
        return np.array([slice_of(self.n, i, count).start for i in range(count)] + [self.n])


def random_ordering(comm: Comm, n: int, seed: int) -> Ordering:
    """A random permutation, the same on every node."""

    def make() -> np.ndarray:
        return np.random.default_rng(seed).permutation(n)

    return Ordering(n, node_array(comm, (n,), index_dtype(n), make).array)


def partition_ordering(comm: Comm, stored: StoredGraph, partition: Partition) -> Ordering:
    """Part after part, by id in each."""
    n = stored.graph.n

    def read() -> np.ndarray:
        return read_partition(stored.path, partition.name).parts

    def make() -> np.ndarray:
        position = np.empty(n, index_dtype(n))
        position[np.argsort(read(), kind="stable")] = np.arange(n, dtype=position.dtype)
        return position

    sizes = from_root(comm, lambda: np.bincount(read(), minlength=partition.k))
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    return Ordering(n, node_array(comm, (n,), index_dtype(n), make).array, bounds)


def ordered_blocks(
    comm: Comm,
    stored: StoredGraph,
    ordering: Ordering,
    cuts: np.ndarray,
    owners: np.ndarray,
    loading: LoadingConfig,
    visits: float,
) -> Ordering:
    """The same blocks, with the rows of each in the order that ``loading.order`` asks for.

    ``cuts``, (k + 1,) int64, are positions at which blocks begin; ``owners``, (k,), the ranks that
    order them: none orders two. ``visits``: how often there will be products with M.
    """
    if loading.order == "none":
        return ordering
    mine = np.flatnonzero(owners == comm.rank)
    start, stop = cuts[[mine[0], mine[0] + 1]] if len(mine) else (0, 0)
    limit = loading.max_bytes

    def pieces(check: bool = False) -> Iterator[Piece]:
        """The arcs inside of this rank's block."""
        for piece in arc_pieces(comm, stored, "out", limit, check):
            block, row = _placed(piece.row, ordering, cuts)
            other, column = _placed(piece.column, ordering, cuts)
            inside = block == other
            arrays = [ends[inside].astype(np.int32) for ends in (row, column)]
            (row, column), _ = redistribute(comm, owners[block[inside]], arrays, limit)
            yield row, column, None

    count = int(stop - start)
    lengths, column_lengths = np.zeros((2, count), np.int64)
    lonely = np.zeros(count, bool)
    inside = far = 0
    for row, column, _ in pieces(check=True):
        found = note_entries(row, column, lengths, column_lengths, lonely, row_order.FAR * count)
        inside, far = inside + found[0], far + found[1]
    many_far, symmetric = 2 * far >= max(inside, 1), stored.manifest.symmetric_pattern
    block = row_order.Block(lengths, column_lengths, many_far, visits, symmetric)

    def entries() -> tuple[np.ndarray, np.ndarray]:
        starts, columns, _ = put(comm, lengths, pieces(), valued=False)
        return starts, columns

    first = row_order.chosen_order(comm, ROW_ORDERS.get(loading.order), block, entries)
    if not maximum(comm, first is not None):
        return ordering
    vertices = ordering.vertices(start, stop)
    if first is not None:
        vertices = vertices[first]
    places = np.arange(start, stop, dtype=vertices.dtype)
    piece = original_rows(comm, vertices, places, ordering.n, limit)
    return Ordering(ordering.n, once_a_node(comm, piece).array, ordering.bounds)


def choose_orderings(
    comm: Comm,
    stored: StoredGraph,
    partition: Partition | None,
    options: GridOptions,
    auto: str = "single",
) -> tuple[Ordering, Ordering]:
    """How a grid numbers the rows of M and how the columns; one object unless they differ.

    ``auto``: the meaning of ``scheme.permutation = "auto"``, none, single or double.
    """
    kind = permutation_kind(options, partition is not None, auto)
    if partition is not None:
        rows = partition_ordering(comm, stored, partition)
    elif kind == "none":
        rows = Ordering(stored.graph.n)
    else:
        rows = random_ordering(comm, stored.graph.n, ROWS_SEED)
    if kind != "double":
        return rows, rows
    return rows, random_ordering(comm, stored.graph.n, COLUMNS_SEED)


def permutation_kind(options: GridOptions, partitioned: bool, auto: str = "single") -> str:
    """``scheme.permutation`` resolved: none, single, double, or partition where there is one."""
    if partitioned:
        return "partition"
    return auto if options.permutation == "auto" else options.permutation


def block_balance(
    graph: Graph,
    rows_ordering: Ordering,
    columns_ordering: Ordering,
    rows: int,
    columns: int,
    self_loops: bool = True,
) -> float:
    """Entries of M in the fullest of rows × columns blocks, relative to the average.

    The slowest rank of a grid makes the others wait for it: Ranjan et al. 2025, table 3. The
    diagonal is part of it: under one random ordering of rows and columns all of it falls into the
    blocks on the diagonal, and that alone gives the 3.24 of that table (n = 50.9 million, 159.0
    million entries, 8 × 8 blocks); under two it is spread like the rest.

    Parameters
    ----------
    graph : Graph
        Arcs as stored, source → target: rows are sources, as in M where the direction is "out";
        for "in" give the orderings and numbers the other way round.
    rows, columns : int
        Blocks that either side is cut into.
    self_loops : bool
        Whether M has a full diagonal.
    """
    row_cuts, column_cuts = rows_ordering.cuts(rows), columns_ordering.cuts(columns)
    counts = np.zeros(rows * columns, np.int64)
    for start in range(0, graph.n, STEP):
        indptr = np.asarray(graph.indptr[start : start + STEP + 1])
        vertices = np.arange(start, start + len(indptr) - 1)
        source = np.repeat(vertices, np.diff(indptr))
        target = np.asarray(graph.indices[indptr[0] : indptr[-1]])
        if self_loops:
            missing = np.setdiff1d(vertices, source[source == target])
            source, target = np.append(source, missing), np.append(target, missing)
        i = _block_of(rows_ordering.positions(source), row_cuts)
        j = _block_of(columns_ordering.positions(target), column_cuts)
        counts += np.bincount(i * columns + j, minlength=len(counts))
    return float(counts.max() / counts.mean()) if counts.any() else 1.0


@dataclass(frozen=True)
class Tiling:
    """How matrices of n rows are cut into tiles, and who holds them.

    Attributes
    ----------
    cuts : (R + 1,) int64
        Positions at which the row blocks begin.
    holders : (R, C, copies) integers
        The ranks that hold tile (i, j). Every rank holds one.
    row, column, copy : int
        This rank's place in ``holders``.
    """

    ordering: Ordering
    cuts: np.ndarray
    holders: np.ndarray
    row: int
    column: int
    copy: int

    @property
    def rows(self) -> int:
        """Rows of this rank's tile."""
        return int(self.cuts[self.row + 1] - self.cuts[self.row])

    @cached_property
    def vertices(self) -> np.ndarray:
        """Ids of the vertices of this rank's rows: looked for once."""
        return self.ordering.vertices(self.cuts[self.row], self.cuts[self.row + 1])

    def columns(self, width: int, column: int | None = None) -> slice:
        """Columns of a matrix of that width in this rank's tile, or in another column's."""
        return slice_of(width, self.column if column is None else column, self.holders.shape[1])

    def block(self, width: int) -> Block:
        """This rank's tile, for the layers."""
        return Block.of(self.vertices, self.columns(width), self.column, self.copy)

    def load(self, comm: Comm, array: Readable, max_bytes: float) -> np.ndarray:
        """This rank's tile of an (n, width) array on disk, or its rows of an (n,) one."""
        mine = slice_of(len(array), comm.rank, comm.size)
        place = self.ordering.positions(np.arange(mine.start, mine.stop))
        row = _block_of(place, self.cuts)
        offset = place - self.cuts[row]
        whole = array.ndim == 1
        width = 1 if whole else array.shape[1]
        tile = np.empty((0, *([] if whole else [_length(self.columns(width))])), array.dtype)
        for column in range(self.holders.shape[1]):
            piece = array[mine] if whole else array[mine, self.columns(width, column)]
            for holders in self.holders[:, column].T:
                arrays = [offset, piece]
                (where, values), _ = redistribute(comm, holders[row], arrays, max_bytes)
                if len(where):  # all rows of this rank's tile
                    permute_rows(values, np.argsort(where))
                    tile = values
        return tile

    def original(self, comm: Comm, tile: np.ndarray, width: int, max_bytes: float) -> np.ndarray:
        """The inverse of ``load``: this rank's contiguous 1/P of all rows, original order.

        The whole matrix has ``width`` columns. Of a tile of one number a row, (rows,), the first
        column's holders give theirs.
        """
        n, ids = self.ordering.n, self.vertices
        mine = slice_of(n, comm.rank, comm.size)
        destination, whole = readers(comm, ids, n), tile.ndim == 1
        out = np.empty((mine.stop - mine.start, *([] if whole else [width])), tile.dtype)
        for column in range(1 if whole else self.holders.shape[1]):
            columns = self.columns(width, column)
            sends = self.copy == 0 and self.column == column
            some = slice(None) if sends else slice(0)
            shape = (0,) if whole else (0, _length(columns))
            rows = tile if sends else np.empty(shape, tile.dtype)
            to, arrays = destination[some], [ids[some], rows]
            (where, values), _ = redistribute(comm, to, arrays, max_bytes)
            out[(where - mine.start,) if whole else (where - mine.start, columns)] = values
        return out


def sparse_tile(
    entries: EntriesOfM,
    rows: tuple[Ordering, np.ndarray],
    columns: tuple[Ordering, np.ndarray],
    holders: np.ndarray,
    mine: tuple[int, int],
    dtype: DTypeLike,
) -> sp.csr_array:
    """This rank's tile of the matrix whose entries are spread over all ranks.

    They pass by twice: first each row's are counted, then each goes to its place.

    Parameters
    ----------
    entries : EntriesOfM
    rows, columns : Ordering and cuts
        How either side is numbered and cut.
    holders : (R, C, copies) integers
        The ranks that hold tile (i, j).
    mine : (int, int)
        Numbers of this rank's tile.
    dtype : dtype
        Of its values, which are made in float64.

    Returns
    -------
    csr_array
        Local numbers count from the beginning of the block; columns rise in each row.
    """
    comm = entries.comm
    height, width = (
        int(cuts[at + 1] - cuts[at]) for (_, cuts), at in zip((rows, columns), mine, strict=True)
    )
    with agreed(comm):
        if max(height, width) > np.iinfo(np.int32).max:
            raise UserError("a block has more vertices than 32 bits can count", "use more ranks")

    def arriving(values: bool) -> Iterator[list[np.ndarray]]:
        """The rows of the entries of this rank's tile, or all of these, piece by piece."""
        for piece in entries.pieces(values):
            i, row = _placed(piece.row, *rows)
            j, column = _placed(piece.column, *columns)
            arrays = [row.astype(np.int32)]
            if values:
                arrays += [column.astype(np.int32)]
                arrays += [] if piece.weight is None else [piece.weight]
            for copy in range(holders.shape[2]):
                to = holders[i, j, copy].astype(np.int32)
                found, _ = redistribute(comm, to, arrays, entries.max_bytes)
                if comm.rank == holders[(*mine, copy)]:
                    yield found

    lengths = np.zeros(height, np.int64)
    for (row,) in arriving(values=False):
        count_entries(row, lengths)

    def pieces() -> Iterator[Piece]:
        for row, column, *value in arriving(values=True):
            yield row, column, value[0] if value else None

    starts, places, values = put(comm, lengths, pieces(), valued=True)
    assert values is not None
    values = values.astype(dtype, copy=False)
    return sp.csr_array((values, places, starts), shape=(height, width))


def _placed(
    vertices: np.ndarray, ordering: Ordering, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The block of each vertex, and its place in it."""
    blocks, places = np.empty(len(vertices), np.int32), np.empty_like(vertices)
    for start in range(0, len(vertices), STEP):
        piece = slice(start, start + STEP)
        positions = ordering.positions(vertices[piece])
        blocks[piece] = _block_of(positions, cuts) if len(cuts) > 2 else 0
        places[piece] = positions - cuts[blocks[piece]] if cuts[-2] else positions
    return blocks, places


def _block_of(positions: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The block that each position is in; empty blocks hold none."""
    return np.searchsorted(cuts, positions, side="right") - 1


def _length(columns: slice) -> int:
    return int(columns.stop - columns.start)
