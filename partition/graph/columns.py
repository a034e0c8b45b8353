"""The pattern of M by columns: whole, or in pieces for graphs that barely fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy  # .sparse takes 0.3 s, when it is first used: tools need none of it

from partition.graph.graph import READ, Graph, arc_pieces, chunks

PIECE = 1 << 24  # entries of a piece


def columns(graph: Graph, direction: str = "in") -> tuple[np.ndarray, np.ndarray]:
    """The pattern of M by columns, as A has it: the diagonal only where A stores a loop.

    Returns
    -------
    indptr : (n + 1,) int64
    rows : (nnz,) integers
        ``rows[indptr[j]:indptr[j+1]]`` are the rows with an entry in column j. For "in" both
        are the arrays of the graph itself; for "out" they are made, in O(nnz) memory.
    """
    if direction == "in":
        return np.asarray(graph.indptr), np.asarray(graph.indices)
    indptr, rows = np.zeros(graph.n + 1, np.int64), np.empty(graph.nnz, graph.indices.dtype)
    for first, last, some, sources in column_pieces(graph, direction):
        indptr[first + 1 : last + 1] = indptr[first] + some[1:]
        rows[indptr[first] : indptr[last]] = sources
    return indptr, rows


def column_pieces(
    graph: Graph, direction: str = "in", at_once: int = PIECE
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """The arrays of :func:`columns`, a range of columns at a time: (first, last, indptr, rows).

    ``indptr`` begins with 0. A piece has ``at_once`` entries, or those of one column, if it has
    more. For "out" the arcs are read once for each piece, and the memory is that of a piece and of
    n numbers.
    """
    ends = np.asarray(graph.indptr) if direction == "in" else arrivals(graph)
    for first, last in chunks(ends, at_once):
        begin, end = int(ends[first]), int(ends[last])
        rows = graph.indices[begin:end] if direction == "in" else sources(graph, first, last)
        yield first, last, ends[first : last + 1] - begin, np.asarray(rows)


def sources(graph: Graph, first: int, last: int) -> np.ndarray:
    """The sources of the arcs into the vertices first..last−1: target by target, increasing."""
    if (first, last) == (0, graph.n):
        return _pattern(np.asarray(graph.indptr), graph.indices, graph.n).tocsc().indices
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for _, _, source, target in arc_pieces(graph):
        inside = np.flatnonzero((target >= first) & (target < last))
        found.append((target[inside] - first, source[inside]))
    ends = tuple(np.concatenate(some) for some in zip(*found, strict=True))
    found.clear()
    ones = np.ones(len(ends[0]), np.int8)
    return scipy.sparse.coo_array((ones, ends), shape=(last - first, graph.n)).tocsr().indices


def arrivals(graph: Graph) -> np.ndarray:
    """Where the arcs into each vertex would begin and end, sorted by target: (n + 1,) int64."""
    counts = np.zeros(graph.n + 1, np.int64)
    at_once = max(graph.n, READ)
    for start in range(0, graph.nnz, at_once):
        target = np.asarray(graph.indices[start : start + at_once])
        counts[1:] += np.bincount(target, minlength=graph.n)
    return np.cumsum(counts, out=counts)


def loops(graph: Graph) -> np.ndarray:
    """Which vertices have an arc to themselves: (n,) bool."""
    found = np.zeros(graph.n, bool)
    for _, _, source, target in arc_pieces(graph):
        found[target[target == source]] = True
    return found


def symmetrised(
    graph: Graph, at_once: int = PIECE, left_out: tuple[np.ndarray, str] | None = None
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """The neighbours of each vertex along arcs and against them, but itself, in pieces.

    Each is (first, last, degree, indices): of the vertices first..last−1 their (last − first,)
    degrees and the neighbours of one vertex after the other, increasing, each once. A piece has
    ``at_once`` ends of arcs, or those at one vertex, if it has more. Entries in the columns of M
    that are ``left_out``, an (n,) bool and a direction of M, do not count.
    """
    leaving, entering = np.asarray(graph.indptr), arrivals(graph)
    for first, last in chunks(leaving + entering, at_once):
        here = slice(first, last)
        along = _pattern(
            leaving[first : last + 1] - leaving[first],
            graph.indices[leaving[first] : leaving[last]],
            graph.n,
        )
        against = _pattern(
            entering[first : last + 1] - entering[first], sources(graph, first, last), graph.n
        )
        if left_out is not None:
            large, direction = left_out
            # An arc is an entry in the column of its source, or of its target.
            by_far, by_own = (against, along) if direction == "in" else (along, against)
            by_far.data[large[by_far.indices]] = 0
            by_own.data[np.repeat(large[here], np.diff(by_own.indptr))] = 0
            along.eliminate_zeros()
            against.eliminate_zeros()
        both = along + against
        del along, against
        degree = np.diff(both.indptr)
        itself = both.indices == np.repeat(np.arange(first, last, dtype=both.indices.dtype), degree)
        degree[both.indices[itself] - first] -= 1
        yield first, last, degree, both.indices[~itself]


def _pattern(indptr: np.ndarray, indices: np.ndarray, n: int) -> scipy.sparse.csr_array:
    ones = np.ones(len(indices), np.int8)
    return scipy.sparse.csr_array((ones, np.asarray(indices), indptr), shape=(len(indptr) - 1, n))
