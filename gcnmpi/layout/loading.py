"""Reading a graph folder in parallel: each rank maps 1/P of the rows, then one redistribution.

No rank ever holds the whole graph. The partition vector is kept once a node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.resident import forget_pages
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import (
    Comm,
    agreed,
    maximum,
    node_array,
    once_a_node,
    redistribute,
    reduce_in_place,
    slice_of,
)
from gcnmpi.options.config import GraphConfig
from partition.errors import UserError
from partition.graph import content
from partition.graph.graph import (
    added_up,
    check_arcs,
    chunks,
    entry_values,
    index_dtype,
    row_sums,
    with_loops,
)
from partition.graph.hashing import MASK64
from partition.graph.links import left_out
from partition.graph.sparse_rows import SparseRows, check_rows
from partition.graph.store import Partition, StoredGraph, read_partition
from partition.records import NUMBERS, TEXTS, map_npy

STEP = 1 << 20  # vertices that are looked at at once
SUMMED_AT_ONCE = 1 << 22  # numbers whose pages are kept until they are in a checksum
PERMUTED_AT_ONCE = 16  # the share of the columns that change places
ENTRY_ON_ITS_WAY = 56  # bytes that an entry of sparse features takes until it is in its place


class Readable(Protocol):
    """An array on disk, or what is computed from one as it is read: rows, or rows and columns."""

    @property
    def dtype(self) -> np.dtype:
        """The dtype of rows that are read."""

    @property
    def ndim(self) -> int:
        """Dimensions: 1, or 2 with columns."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The n rows, and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Any: ...


class RowNormalised:
    """An (n, width) array on disk, read with each row divided by its sum, as numbers of a dtype.

    As of an array, a slice is another view: nothing is read before rows are picked by numbers.
    """

    def __init__(self, features: np.ndarray, dtype: np.dtype, columns: slice = slice(None)) -> None:
        self._columns, self.dtype, self.ndim = columns, dtype, 2
        self.shape = (len(features), len(range(*columns.indices(features.shape[1]))))
        self.base, self.flags = features, features.flags

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, key: Any) -> Any:
        rows, columns = key if isinstance(key, tuple) else (key, self._columns)
        if isinstance(rows, slice):
            return RowNormalised(self.base[rows], self.dtype, columns)
        return row_normalised(self.base[rows])[:, columns].astype(self.dtype)


def row_normalised(features: np.ndarray) -> np.ndarray:
    """Each row divided by its sum in float64; a row that sums to 0 becomes 0."""
    rows = features.astype(np.float64)
    sums = rows.sum(axis=1, keepdims=True)
    np.divide(rows, sums, out=rows, where=sums != 0)
    rows[sums[:, 0] == 0] = 0
    return rows


@dataclass(frozen=True)
class Entries:
    """Arcs of the graph as entries of Ã or M, in (row, column) order of source.

    Rows and columns are global ids, (m,) integers; weights are float64, or all 1 where None.
    Numbers, (m,) int64, are those of arcs in the folder, where each entry is one of them.
    """

    row: np.ndarray
    column: np.ndarray
    weight: np.ndarray | None
    number: np.ndarray | None = None

    def sent(self, comm: Comm, to: np.ndarray, max_bytes: float) -> Entries:
        """Send each entry to a rank, (m,) integers; the entries that come here."""
        arrays = [self.row, self.column] + ([] if self.weight is None else [self.weight])
        (row, column, *weight), _ = redistribute(comm, to, arrays, max_bytes)
        return Entries(row, column, weight[0] if weight else None)


def load_parts(comm: Comm, stored: StoredGraph, partition: Partition | None) -> np.ndarray:
    """The owner of every vertex, (n,) int32, in memory that the ranks of a node share."""
    n = stored.graph.n
    if partition is None:
        return np.zeros(n, np.int32)

    def make() -> np.ndarray:
        return read_partition(stored.path, partition.name).parts

    return node_array(comm, (n,), np.int32, make).array


def own_rows(parts: np.ndarray, rank: int) -> np.ndarray:
    """Vertices of a rank, increasing; in steps, so that no mask of size n is made."""
    pieces = [
        start + np.flatnonzero(parts[start : start + STEP] == rank)
        for start in range(0, len(parts), STEP)
    ]
    return np.concatenate(pieces).astype(index_dtype(len(parts)))


def load_entries(
    comm: Comm, stored: StoredGraph, parts: np.ndarray, direction: str, max_bytes: float
) -> Entries:
    """The entries of Ã's rows that this rank owns (without added self-loops).

    With direction "in" the arc s→t is the entry (t, s), with "out" (s, t).
    """
    mine = own_arcs(comm, stored, direction)
    return mine.sent(comm, parts[mine.row], max_bytes)


def load_m(comm: Comm, source: Source, options: GraphConfig, max_bytes: float) -> Entries:
    """The entries of M that come of the arcs that this rank reads: each entry on one rank only.

    For layouts in which a row of M is on several ranks. The degrees of all vertices are held
    once a node meanwhile.
    """
    graph = source.stored.graph
    entries = own_arcs(comm, source.stored, source.direction)
    mine = slice_of(graph.n, comm.rank, comm.size)
    row, column, weight = entries.row, entries.column, entries.weight
    del entries
    if options.self_loops:
        # An arc v→v is read where v is: its rank knows whether it is missing.
        row, column, weight = with_loops(row, column, weight, range(mine.start, mine.stop))
    if options.normalize == "none":
        return Entries(row, column, weight)
    sums = sums_on_disk(comm, row, weight, graph.n, max_bytes)
    degree = once_a_node(comm, sums)
    with agreed(comm):
        values = entry_values(row, column, weight, degree.array, options.normalize)
    degree.free()
    return Entries(row, column, values)


def sums_on_disk(
    comm: Comm, lines: np.ndarray, weight: np.ndarray | None, n: int, max_bytes: float
) -> np.ndarray:
    """Sums of entries that are spread over the ranks, by the row or column that each is in.

    Each rank gets them for its contiguous 1/P of all n, float64.
    """
    arrays = [lines] if weight is None else [lines, weight]
    (own, *weights), _ = redistribute(comm, readers(comm, lines, n), arrays, max_bytes)
    mine = slice_of(n, comm.rank, comm.size)
    return row_sums(own - mine.start, weights[0] if weights else None, mine.stop - mine.start)


def readers(comm: Comm, rows: np.ndarray, n: int) -> np.ndarray:
    """The rank that reads each of these rows from disk, int32: see :func:`slice_of`."""
    bounds = np.array([slice_of(n, rank, comm.size).stop for rank in range(comm.size)])
    return np.searchsorted(bounds, rows, side="right").astype(np.int32)


def own_arcs(comm: Comm, stored: StoredGraph, direction: str, *, parallel: bool = False) -> Entries:
    """The arcs of this rank's contiguous 1/P of the rows on disk.

    Parallel ones are added up, but with ``parallel``, which gives them one by one. Arcs that a task
    on links holds out are left out. A UserError is
    raised on all ranks if no graph has such arcs, or the manifest is not theirs.
    """
    graph, manifest = stored.graph, stored.manifest
    source, target, first, last = read_ends(comm, stored)
    weight = None
    if graph.weights is not None:
        weight = np.asarray(graph.weights[first:last], np.float64)
    excess = 0
    if manifest.symmetric_pattern:
        excess = content.reverse_excess(
            source, target, weight if manifest.symmetric_values else None
        )
    check_content(comm, stored, content.ARC_FILES, excess)
    number = np.arange(first, last) if parallel else None
    if stored.pairs is not None:
        relation = None if graph.arc_type is None else np.asarray(graph.arc_type[first:last])
        facts = graph.n, relation, manifest.schema.reverses
        stay = ~left_out(stored.pairs, source, target, *facts)
        source, target = source[stay], target[stay]
        weight, number = (None if x is None else x[stay] for x in (weight, number))
    if manifest.parallel and not parallel:
        source, target, weight = added_up(source, target, weight)
    row, column = (target, source) if direction == "in" else (source, target)
    return Entries(row, column, weight, number)


def read_ends(comm: Comm, stored: StoredGraph) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Sources and targets of this rank's contiguous 1/P of the rows on disk; which arcs these are.

    Of the arcs, the number of the first and that after the last. A UserError is raised on all ranks
    if no graph has such arcs.
    """
    graph = stored.graph
    mine = slice_of(graph.n, comm.rank, comm.size)
    with agreed(comm):
        try:
            check_arcs(graph, mine.start, mine.stop)
        except UserError as error:
            raise UserError(f"the graph folder is damaged: {error.message}", error.hint) from None
        indptr = np.asarray(graph.indptr[mine.start : mine.stop + 1])
        target = np.asarray(graph.indices[indptr[0] : indptr[-1]])
    source = np.repeat(np.arange(mine.start, mine.stop, dtype=target.dtype), np.diff(indptr))
    return source, target, int(indptr[0]), int(indptr[-1])


def check_content(comm: Comm, stored: StoredGraph, names: Collection[str], excess: int = 0) -> None:
    """Refuse files that do not hold what the manifest says: each rank reads 1/P, one reduction.

    Files are named without ``.npy``; only those are read that the folder has, and has a checksum
    of. ``excess`` is this rank's share of a sum that is 0 for symmetric arcs.
    """
    path, expected = stored.path, stored.manifest.sums
    with agreed(comm):
        arrays = {
            name: map_npy(path / f"{name}.npy", kinds=NUMBERS + TEXTS)
            for name in sorted(expected)
            if name in names
        }
    totals = [
        _own_sum(array, slice_of(len(array), comm.rank, comm.size)) for array in arrays.values()
    ]
    sums = np.array([*totals, excess], np.uint64)
    reduce_in_place(comm, sums)
    with agreed(comm):
        *totals, excess = sums.tolist()
        content.check_symmetry(path, excess)
        found = {
            name: content.described_sum(array, total)
            for (name, array), total in zip(arrays.items(), totals, strict=True)
        }
        content.check_sums(path, found, expected)


def _own_sum(array: np.ndarray, mine: slice) -> int:
    """The share of some rows in the checksum of a mapped array; their pages are not kept."""
    step, total = max(1, SUMMED_AT_ONCE * len(array) // max(1, array.size)), 0
    for start in range(mine.start, mine.stop, step):
        total += content.part_of_sum(array, start, min(start + step, mine.stop))
        forget_pages(array)
    return total & MASK64


@dataclass(frozen=True)
class OwnRows:
    """The rows of a rank's part; each row is on one rank.

    ``parts``, (n,), are the owners of all vertices; ``vertices``, (nown,), the rank's own, in the
    order in which it keeps their rows.
    """

    parts: np.ndarray
    vertices: np.ndarray
    copy: int = 0

    def load(self, comm: Comm, array: Readable, max_bytes: float) -> np.ndarray:
        """Own rows of an (n, …) array on disk, brought to their owners."""
        return self.bring(comm, array[slice_of(len(array), comm.rank, comm.size)], max_bytes)

    def bring(self, comm: Comm, some: np.ndarray, max_bytes: float) -> np.ndarray:
        """Own rows of an (n, …) array of which this rank has its contiguous 1/P."""
        mine = slice_of(len(self.parts), comm.rank, comm.size)
        (rows,), _ = redistribute(comm, self.parts[mine], [some], max_bytes)
        own = self.vertices
        if not (own[1:] > own[:-1]).all():
            permute(rows, np.searchsorted(np.sort(own), own))
        return rows

    def original(self, comm: Comm, tile: np.ndarray, width: int, max_bytes: float) -> np.ndarray:
        """The inverse: this rank's contiguous 1/P of all rows, original order."""
        return original_rows(comm, self.vertices, tile, len(self.parts), max_bytes)


def places_of(comm: Comm, rows: OwnRows, max_bytes: float) -> np.ndarray:
    """The local number that every vertex has where it is owned, (n,) int32.

    In memory that the ranks of a node share; all ranks call it together.
    """
    numbers = np.arange(len(rows.vertices), dtype=np.int32)[:, np.newaxis]
    mine = rows.original(comm, numbers, 1, max_bytes)[:, 0]
    return once_a_node(comm, np.ascontiguousarray(mine)).array


def load_sparse(
    comm: Comm,
    rows: SparseRows,
    own: np.ndarray,
    max_bytes: float,
    normalised: bool,
    dtype: np.dtype,
) -> sp.csr_array:
    """Own rows of a sparse matrix on disk, (own, width): each rank asks those that map them.

    ``own`` are global ids, in the order of the result; a row may go to several ranks. ``max_bytes``
    bounds what is read, sent and received beside the result at a time. Normalised rows are divided
    by their sums in float64; one that sums to 0 becomes 0. A UserError is raised on all ranks if
    the matrix is damaged.
    """
    n = len(rows)
    mine = slice_of(n, comm.rank, comm.size)
    with agreed(comm):
        wrong = check_rows(rows, mine.start, mine.stop)
        if wrong is not None:
            raise UserError(f"the graph folder is damaged: {wrong}")
    forget_pages(rows.indices)
    reader = readers(comm, own, n)
    asks = [own, np.full(len(own), comm.rank, np.int32), np.arange(len(own))]
    # Rows that this rank maps, the rank that each goes to, and its number there.
    (asked, who, where), _ = redistribute(comm, reader, asks, max_bytes)
    sizes = np.asarray(rows.indptr[1:])[asked] - np.asarray(rows.indptr[:-1])[asked]
    (place, counts), _ = redistribute(comm, who, [where, sizes], max_bytes)
    starts = np.zeros(len(own) + 1, np.int64)
    starts[1 + place] = counts
    np.cumsum(starts, out=starts)
    indices, data = np.empty(starts[-1], np.int32), np.empty(starts[-1], dtype)

    ends = np.concatenate(([0], np.cumsum(sizes)))
    pieces = list(chunks(ends, max(1, int(max_bytes // ENTRY_ON_ITS_WAY))))
    rounds = int(maximum(comm, len(pieces)))
    for first, last in pieces + [(0, 0)] * (rounds - len(pieces)):
        some = slice(first, last)
        counts, columns, values = rows.picked(asked[some])
        for array in (rows.indices, rows.data):
            forget_pages(array)
        if normalised:
            number = np.repeat(np.arange(len(counts)), counts)
            sums = np.bincount(number, values, len(counts))[number]
            values = np.divide(values, sums, out=np.zeros(len(sums)), where=sums != 0)
            del number, sums
        sent = [np.repeat(where[some], counts), columns, values]
        to = np.repeat(who[some], counts)
        (place, column, value), _ = redistribute(comm, to, sent, max_bytes)
        del counts, columns, values, sent, to
        # A row comes whole and from one rank, in its order: its entries follow the first of them.
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        within = np.arange(len(place))
        within -= np.repeat(begins, np.diff(begins, append=len(place)))
        within += starts[place]
        indices[within], data[within] = column, value
    return sp.csr_array((data, indices, starts), shape=(len(own), rows.width))


def permute(rows: np.ndarray, first: np.ndarray) -> None:
    """rows = rows[first], in place: a sixteenth of the columns at a time are copied.

    >>> rows = np.array([10, 11, 12, 13])
    >>> permute(rows, np.array([1, 0, 3, 2]))
    >>> rows.tolist()
    [11, 10, 13, 12]
    """
    columns = rows.reshape(len(rows), -1) if rows.size else rows[:, np.newaxis]
    step = max(1, columns.shape[1] // PERMUTED_AT_ONCE)
    for start in range(0, columns.shape[1], step):
        some = slice(start, start + step)
        columns[:, some] = columns[first, some]


def original_rows(
    comm: Comm, own: np.ndarray, rows: np.ndarray, n: int, max_bytes: float
) -> np.ndarray:
    """Rows that ranks hold: this rank's contiguous 1/P of all n, in the original order.

    ``own``, (nown,), are the global ids of the rows that this rank holds, (nown, …).
    """
    (ids, received), _ = redistribute(comm, readers(comm, own, n), [own, rows], max_bytes)
    mine = slice_of(n, comm.rank, comm.size)
    out = np.empty((mine.stop - mine.start, *rows.shape[1:]), rows.dtype)
    out[ids - mine.start] = received
    return out
