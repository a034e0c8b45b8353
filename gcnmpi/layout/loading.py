"""Reading a graph folder in parallel: each rank maps 1/P of the rows, then one redistribution.

No rank ever holds the whole graph. The partition vector is kept once a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.rows import Places, permute_rows
from gcnmpi.mpi.comm import (
    Comm,
    agreed,
    maximum,
    node_array,
    once_a_node,
    redistribute,
    slice_of,
)
from partition.errors import UserError
from partition.graph.graph import SparseRows, check_rows, chunks, index_dtype
from partition.graph.store import Partition, StoredGraph, read_partition
from partition.resident import forget_pages

STEP = 1 << 20  # vertices that are looked at at once
ENTRY_ON_ITS_WAY = 56  # bytes that an entry of a sparse matrix takes until it is in its place


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


def readers(comm: Comm, rows: np.ndarray, n: int) -> np.ndarray:
    """The rank that reads each of these rows from disk, int32: see :func:`slice_of`."""
    bounds = np.array([slice_of(n, rank, comm.size).stop for rank in range(comm.size)])
    return np.searchsorted(bounds, rows, side="right").astype(np.int32)


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
            permute_rows(rows, Places(np.sort(own)).of(own).astype(np.int64))
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
