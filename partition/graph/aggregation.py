"""The matrix M of a graph, serially, and its steps, which a distributed M shares; its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import scipy  # .sparse takes 0.3 s, when it is first used: tools need none of it
from numpy.typing import DTypeLike

from partition.errors import UserError
from partition.graph.graph import READ, Graph, arc_pieces, arcs, chunks, merged, slices

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
        rows = graph.indices[begin:end] if direction == "in" else _sources(graph, first, last)
        yield first, last, ends[first : last + 1] - begin, np.asarray(rows)


def _sources(graph: Graph, first: int, last: int) -> np.ndarray:
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
        targets = graph.indices[leaving[first] : leaving[last]]
        along = _pattern(leaving[first : last + 1] - leaving[first], targets, graph.n)
        begins = entering[first : last + 1] - entering[first]
        against = _pattern(begins, _sources(graph, first, last), graph.n)
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


NORMALIZATIONS = ("sym", "row", "none")
_STEP = 1 << 20  # entries that are looked at at once
_VALUES = 1 << 16  # whose values are computed at once: five numbers each meanwhile


def aggregation_matrix(
    graph: Graph, direction: str = "in", self_loops: bool = True, normalize: str = "sym"
) -> scipy.sparse.csr_array:
    """M, serially and in float64: the reference that every distributed M must equal.

    Parameters
    ----------
    direction : {"in", "out"}
        "in": an arc j→i puts its weight in row i, column j. "out": in row j, column i.
    self_loops : bool
        Put a 1 on the diagonal where it is missing; an existing loop keeps its weight.
    normalize : {"sym", "row", "none"}
        See :func:`normalised`.

    Returns
    -------
    (n, n) csr_array of float64, indices sorted
    """
    graph = merged(graph)
    source, target = arcs(graph), np.asarray(graph.indices)
    row, column = (target, source) if direction == "in" else (source, target)
    weights = None if graph.weights is None else np.asarray(graph.weights, np.float64)
    if self_loops:
        row, column, weights = with_loops(row, column, weights, range(graph.n))
    degree = row_sums(row, weights, graph.n)
    values = entry_values(row, column, weights, degree, normalize)
    return from_coordinates(row, column, values, (graph.n, graph.n))


def with_loops(
    row: np.ndarray, column: np.ndarray, weights: np.ndarray | None, vertices: range
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The entries of Ã from those of A, (m,) integers: 1 on the diagonal where it is missing.

    ``vertices`` are those whose loops are all among these entries, and to which loops are given.
    Weights are 1 where None, which stays None.
    """
    lonely = np.ones(len(vertices), dtype=bool)
    lonely[row[row == column] - vertices.start] = False
    missing = (vertices.start + np.flatnonzero(lonely)).astype(row.dtype)
    row, column = np.append(row, missing), np.append(column, missing)
    if weights is not None:
        weights = np.append(weights, np.ones(len(missing)))
    return row, column, weights


def row_sums(rows: np.ndarray, weights: np.ndarray | None, n: int) -> np.ndarray:
    """The sum of the weights of each row of Ã: that of :func:`summed`, of entries in memory.

    ``rows`` is the row of each entry, (m,) integers below n; weights are 1 where None.
    """

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for some in slices(len(rows), _STEP):
            yield rows[some], None if weights is None else weights[some]

    return summed(pieces, n)


def summed(
    pieces: Callable[[], Iterable[tuple[np.ndarray, np.ndarray | None]]], n: int
) -> np.ndarray:
    """The sum of the weights of each row, (n,) float64, the same bits for every order of entries.

    So M does not depend on who adds up which. ``pieces`` gives the rows of some entries, integers
    below n, and their weights, which are 1 where None: twice where there are weights.

    The weights of a row are rounded to multiples of 2⁻⁵³ times its largest one, in two halves of
    which float64 adds 2²⁷ exactly. A sum that cancels up to the rounding errors of the weights
    themselves is 0: 0.1 + 0.2 − 0.3 must not become a divisor.
    """
    valued, counts = False, np.zeros(n)
    largest, high, low, sizes = np.zeros((4, n))
    for row, weight in pieces():
        _add(counts, row, None)
        if weight is not None:
            valued = True
            np.maximum.at(largest, row, np.abs(weight))
    if not valued:
        return counts
    exponents = np.frexp(largest)[1] - 26
    for row, weight in pieces():
        assert weight is not None, "entries have weights, or none has one"
        scaled = np.ldexp(weight, -exponents[row])
        halves = np.rint(scaled)
        _add(high, row, halves)
        _add(low, row, np.rint((scaled - halves) * 2.0**27))
        _add(sizes, row, np.abs(halves))
    sums = high + low / 2.0**27
    sums[np.abs(sums) <= counts * sizes * 2.0**-53] = 0
    return np.ldexp(sums, exponents)


def _add(sums: np.ndarray, rows: np.ndarray, values: np.ndarray | None) -> None:
    """Add values, or ones, to the sums of their rows: whole numbers that add exactly."""
    if len(rows) * 4 > len(sums):
        sums += np.bincount(rows, values, len(sums))
    else:  # sums are more than are worth a walk
        np.add.at(sums, rows, np.ones(len(rows)) if values is None else values)


def entry_values(
    row: np.ndarray, column: np.ndarray, weights: np.ndarray | None, degree: np.ndarray,
    normalize: str, dtype: DTypeLike = np.float64,
) -> np.ndarray:  # fmt: skip
    """The entries of M from the entries of Ã: :func:`normalised`, rounded once.

    ``row`` and ``column`` are places in ``degree``, the row sums of Ã by :func:`row_sums`; weights
    are 1 where None. For the entries of Mᵀ, from rows of Ãᵀ, give row and column in each other's
    place.
    """
    values = np.empty(len(row), dtype)
    for piece in slices(len(row), _VALUES):
        some = np.ones(len(values[piece])) if weights is None else weights[piece]
        of_row, of_column = degree[row[piece]], degree[column[piece]]
        values[piece] = normalised(some, of_row, of_column, normalize)
    return values


def from_coordinates(
    row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """A CSR matrix of these entries, each of which occurs once; zeros among them stay entries.

    Indices are sorted.
    """
    matrix = scipy.sparse.coo_array((values, (row, column)), shape=shape).tocsr()
    matrix.sort_indices()
    return matrix


def normalised(
    weights: np.ndarray, row_degree: np.ndarray, column_degree: np.ndarray, normalize: str
) -> np.ndarray:
    """The entries of M from the entries of Ã and the row sums of Ã.

    ``"sym"``: w / (√d_row · √d_column), which is PyTorch Geometric's ``gcn_norm``; ``"row"``: w /
    d_row; ``"none"``: w. The row sums are those of Ã, oriented as M, of the vertex of each entry's
    row, and of the vertex of its column. A degree of 0 makes the entry 0. Symmetric weights give
    symmetric entries, to the bit. A UserError if a symmetric normalisation meets a negative row
    sum.
    """
    if normalize == "none":
        return weights
    if normalize == "row":
        return np.divide(weights, row_degree, out=np.zeros(len(weights)), where=row_degree != 0)
    if (row_degree < 0).any() or (column_degree < 0).any():
        what = "graph.normalize = 'sym' needs row sums of the weights that are not negative"
        hint = "use graph.normalize = 'row' or 'none' for graphs with negative weights"
        raise UserError(what, hint)
    degrees = np.sqrt(row_degree) * np.sqrt(column_degree)
    return np.divide(weights, degrees, out=np.zeros(len(weights)), where=degrees != 0)
