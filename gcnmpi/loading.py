"""Reading a graph folder in parallel: each rank maps 1/P of the rows, then one redistribution.

No rank ever holds the whole graph. The partition vector is kept once a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.comm import Comm, agreed, node_array, redistribute, slice_of
from partition.errors import UserError
from partition.graph import Graph, index_dtype
from partition.store import Partition, StoredGraph, read_partition


@dataclass(frozen=True)
class Entries:
    """Arcs of the graph as entries of M, before normalisation, in (row, column) order of source.

    Attributes
    ----------
    row, column : (m,) integers
        Global ids.
    weight : (m,) float64
    """

    row: np.ndarray
    column: np.ndarray
    weight: np.ndarray


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
    step = 1 << 20
    pieces = [
        start + np.flatnonzero(parts[start : start + step] == rank)
        for start in range(0, len(parts), step)
    ]
    return np.concatenate(pieces).astype(index_dtype(len(parts)))


def load_entries(
    comm: Comm, graph: Graph, parts: np.ndarray, direction: str, max_bytes: float
) -> Entries:
    """The entries of Ã's rows that this rank owns (without added self-loops).

    Parameters
    ----------
    direction : {"in", "out"}
        "in": the arc s→t is the entry (t, s); "out": (s, t).
    max_bytes : float
        Bound of the send buffer.
    """
    mine = slice_of(graph.n, comm.rank, comm.size)
    with agreed(comm):
        indptr = np.asarray(graph.indptr[mine.start : mine.stop + 1])
        if (np.diff(indptr) < 0).any() or indptr[0] < 0 or indptr[-1] > graph.nnz:
            raise UserError("the graph folder is damaged: indptr.npy does not increase")
        target = np.asarray(graph.indices[indptr[0] : indptr[-1]])
        if len(target) and not 0 <= target.min() <= target.max() < graph.n:
            raise UserError(f"the graph folder is damaged: a vertex outside 0..{graph.n - 1}")
    source = np.repeat(np.arange(mine.start, mine.stop, dtype=target.dtype), np.diff(indptr))
    row, column = (target, source) if direction == "in" else (source, target)
    arrays = [row, column]
    if graph.weights is not None:
        arrays.append(graph.weights[indptr[0] : indptr[-1]])
    received, _ = redistribute(comm, parts[row], arrays, max_bytes)
    weight = received[2] if len(received) > 2 else np.ones(len(received[0]))
    return Entries(received[0], received[1], weight)


def load_rows(comm: Comm, array: np.ndarray, parts: np.ndarray, max_bytes: float) -> np.ndarray:
    """Rows of an (n, …) array on disk, brought to their owners: own rows in increasing id."""
    mine = slice_of(len(array), comm.rank, comm.size)
    received, _ = redistribute(comm, parts[mine], [array[mine]], max_bytes)
    return received[0]


def original_rows(comm: Comm, own: np.ndarray, rows: np.ndarray, n: int, max_bytes: float):
    """The inverse of :func:`load_rows`: this rank's contiguous 1/P of all rows, original order.

    Parameters
    ----------
    own : (nown,) integers
        Global ids of the rows held here.
    rows : (nown, …) array
    n : int
        Number of rows in all.

    Returns
    -------
    array of ``slice_of(n, rank, size)`` rows
    """
    bounds = np.array([slice_of(n, rank, comm.size).stop for rank in range(comm.size)])
    destination = np.searchsorted(bounds, own, side="right")
    (ids, received), _ = redistribute(comm, destination, [own, rows], max_bytes)
    mine = slice_of(n, comm.rank, comm.size)
    out = np.empty((mine.stop - mine.start, *rows.shape[1:]), rows.dtype)
    out[ids - mine.start] = received
    return out
