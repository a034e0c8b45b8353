"""The medium-grain hypergraph: rows of H and partial sums that travel (Pelt and Bisseling 2014).

Every entry (i, j) of M belongs to the group of its row or to that of its column. Entries of
row groups are multiplied where row i lives, which needs row j of H there; entries of column groups
where row j of H lives, which sends a partial sum of row i. A vertex is a row group, the column
group of the same number and the diagonal entry between them: all that will be on one part.
"""

from __future__ import annotations

import numpy as np

from partition.graph.aggregation import columns
from partition.graph.cover import summed_entries
from partition.graph.graph import Graph
from partition.graph.sampling import pointers
from partition.models.hypergraph import HypergraphModel


def medium_grain_model(
    graph: Graph, direction: str = "in", parts: np.ndarray | None = None
) -> HypergraphModel:
    """The hypergraph whose connectivity−1 is the volume of an exchange of rows and partial sums.

    Column net j pins j and the rows i whose groups have an entry (i, j); it is there if row j may
    be sent. Row net i pins i and the columns j whose groups have an entry (i, j); ``folds`` marks
    it: along it, partial sums go to its owner. A vertex weighs the entries of its groups, so the
    work is counted where it will be done.

    With ``parts``, (n,) integers, it is made for improving them: connectivity−1 is then, at these
    parts, the volume of the mixed exchange. Without them, an entry belongs to the shorter one of
    its row and its column, since a long one will be cut in any case.
    """
    indptr, rows = columns(graph, direction)
    column = np.repeat(np.arange(graph.n, dtype=rows.dtype), np.diff(indptr))
    proper = rows != column  # entries beside the diagonal
    row, column = rows[proper], column[proper]
    lengths = [np.bincount(ends, minlength=graph.n) for ends in (row, column)]
    summed = lengths[1][column] < lengths[0][row]
    if parts is not None:
        summed = _by_cover(row, column, np.asarray(parts), summed)
    return _hypergraph(row, column, summed, graph.n)


def _by_cover(
    row: np.ndarray, column: np.ndarray, parts: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """Which entries belong to their column in the best assignment for these parts: (m,) bool.

    For entries that are cut there is no choice: it is the cover. The others cost nothing as they
    are, and should cost little once one of their ends moves away: an entry belongs to its column
    if its row gets sums from more parts than its column's row of H is sent to, and to its row
    if it is the other way round; where both are equal, as ``otherwise`` says.
    """
    row_part, column_part = parts[row], parts[column]
    cut = row_part != column_part
    summed = summed_entries(row, column, row_part, column_part)
    sums = _partners(row[summed], column_part[summed], len(parts))
    sent = _partners(column[cut & ~summed], row_part[cut & ~summed], len(parts))
    by_row, by_column = sent[column], sums[row]
    free = np.where(by_column == by_row, otherwise, by_column > by_row)
    return np.where(cut, summed, free)


def _partners(vertices: np.ndarray, partners: np.ndarray, n: int) -> np.ndarray:
    """The different partners of each vertex: (n,) integers."""
    k = int(partners.max(initial=0)) + 1
    return np.bincount(np.unique(vertices.astype(np.int64) * k + partners) // k, minlength=n)


def _hypergraph(row: np.ndarray, column: np.ndarray, summed: np.ndarray, n: int) -> HypergraphModel:
    worker = np.where(summed, column, row)
    net = np.where(summed, row.astype(np.int64) + n, column)
    sizes = np.bincount(net, minlength=2 * n)
    # Every net pins its owner first; those that pin nothing else are left out.
    kept = np.flatnonzero(sizes)
    number = np.full(2 * n, -1, np.int64)
    number[kept] = np.arange(len(kept))
    order = np.argsort(net, kind="stable")
    indptr = pointers(sizes[kept] + 1)
    pins = np.empty(indptr[-1], np.int32 if n < 2**31 else np.int64)
    pins[indptr[:-1]] = kept % n
    pins[np.arange(len(net)) + number[net[order]] + 1] = worker[order]
    return HypergraphModel(
        weights=1 + np.bincount(worker, minlength=n),
        indptr=indptr,
        pins=pins,
        owners=kept % n,
        folds=kept >= n,
    )
