"""The matrix M of a graph, serially, and its steps, which a distributed M shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import scipy  # .sparse takes 0.3 s, when it is first used: tools need none of it
from numpy.typing import DTypeLike

from partition.errors import UserError
from partition.graph.graph import Graph, arcs, merged

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
        for start in range(0, len(rows), _STEP):
            some = slice(start, start + _STEP)
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
    row: np.ndarray,
    column: np.ndarray,
    weights: np.ndarray | None,
    degree: np.ndarray,
    normalize: str,
    dtype: DTypeLike = np.float64,
) -> np.ndarray:
    """The entries of M from the entries of Ã: :func:`normalised`, rounded once.

    ``row`` and ``column`` are places in ``degree``, the row sums of Ã by :func:`row_sums`; weights
    are 1 where None. For the entries of Mᵀ, from rows of Ãᵀ, give row and column in each other's
    place.
    """
    values = np.empty(len(row), dtype)
    for start in range(0, len(row), _VALUES):
        piece = slice(start, start + _VALUES)
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
        return _divided(weights, row_degree)
    if (row_degree < 0).any() or (column_degree < 0).any():
        raise UserError(
            "graph.normalize = 'sym' needs row sums of the weights that are not negative",
            "use graph.normalize = 'row' or 'none' for graphs with negative weights",
        )
    return _divided(weights, np.sqrt(row_degree) * np.sqrt(column_degree))


def _divided(weights: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    return np.divide(weights, degrees, out=np.zeros(len(weights)), where=degrees != 0)
