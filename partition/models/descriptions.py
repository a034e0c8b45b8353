"""The column-net hypergraph of M."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partition.errors import require
from partition.graph.aggregation import arrivals, column_pieces, columns, loops, symmetrised
from partition.graph.cover import summed_entries
from partition.graph.graph import REVERSED, Graph, row_sizes
from partition.graph.sampling import pointers


@dataclass(frozen=True)
class HypergraphModel:
    """A hypergraph: vertices are rows of M, nets are rows of H that travel.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (nets + 1,) integers
    pins : integers
        ``pins[indptr[j]:indptr[j+1]]`` are the vertices that net j connects, its owner among them.
    costs : (nets,) int64, optional
        What net j costs in each part but one that it touches; 1 where None.
    owners : (nets,) integers, optional
        The vertex whose row net j stands for; where None there are n nets, and it is j.
    folds : (nets,) bool, optional
        Whether partial sums go from the other parts to the owner's along net j, rather than a row
        from the owner's to the others; rows on all nets where None.
    """

    weights: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    costs: np.ndarray | None = None
    owners: np.ndarray | None = None
    folds: np.ndarray | None = None

    @property
    def nets(self) -> int:
        """How many nets it has."""
        return len(self.indptr) - 1

    def net_costs(self) -> np.ndarray:
        """The cost of each net, (nets,) int64."""
        return np.ones(self.nets, np.int64) if self.costs is None else np.asarray(self.costs)

    def facts_of(self, nets: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray | None]:
        """Costs, owners and folds of some nets: all that follows the pins in this class."""
        costs, folds = (
            None if facts is None else np.asarray(facts)[nets] for facts in (self.costs, self.folds)
        )
        return costs, nets if self.owners is None else np.asarray(self.owners)[nets], folds


def hypergraph_model(graph: Graph, direction: str = "in") -> HypergraphModel:
    """The column-net hypergraph of M: net j pins j and every i with an entry (i, j).

    The parts that net j touches, less one, is what its row is sent to: connectivity−1, summed
    over the nets, **is** the volume of one exchange (Çatalyürek and Aykanat 1999).
    """
    ends = np.asarray(graph.indptr) if direction == "in" else arrivals(graph)
    # The diagonal where it is missing, at the end of its net.
    missing = ~loops(graph)
    full = pointers(np.diff(ends) + missing)
    pins = np.empty(full[-1], dtype=graph.indices.dtype)
    own = np.flatnonzero(missing)
    pins[full[own + 1] - 1] = own
    del own
    for first, last, some, rows in column_pieces(graph, direction):
        shift = np.repeat(full[first:last] - some[:-1], np.diff(some))
        shift += np.arange(len(rows))
        pins[shift] = rows
    return HypergraphModel(row_sizes(graph, direction), full, pins)


def connectivity(model: HypergraphModel, parts: np.ndarray, k: int) -> int:
    """Σ cost·(λ − 1) over the nets, for k parts: what a partitioner makes small."""
    net = np.repeat(np.arange(model.nets, dtype=np.int64), np.diff(model.indptr))
    touched = np.unique(net * k + parts[model.pins]) // k
    others = np.maximum(np.bincount(touched, minlength=model.nets) - 1, 0)
    return int(others @ model.net_costs())


def without_large_nets(model: HypergraphModel, limit: int) -> HypergraphModel:
    """The hypergraph without its nets of more than ``limit`` pins; its vertices stay."""
    sizes = np.diff(model.indptr)
    kept = np.flatnonzero(sizes <= limit)
    if len(kept) == model.nets:
        return model
    pins = np.asarray(model.pins)[np.repeat(sizes <= limit, sizes)]
    return HypergraphModel(model.weights, pointers(sizes[kept]), pins, *model.facts_of(kept))


@dataclass(frozen=True)
class GraphModel:
    """An undirected graph without loops; each edge is stored at both of its ends.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (n + 1,) integers
    indices : integers
        ``indices[indptr[i]:indptr[i+1]]`` are the neighbours of vertex i.
    costs : integers, optional
        Of each stored edge, what cutting it costs; 1 where None. METIS alone looks at them.
    """

    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    costs: np.ndarray | None = None


def graph_model(graph: Graph, direction: str = "in", *, max_net: int = 0) -> GraphModel:
    """The symmetrised graph: i and j are neighbours where M or its transpose has (i, j).

    Its edge cut only resembles the volume. Columns of M with more than ``max_net`` entries, the
    diagonal among them, are left out, unless it is 0: rows of H that most parts need whatever is
    done. The direction matters to the weights, and to these columns.
    """
    require(max_net >= 0, f"max_net = {max_net}: it is a number of entries, 0 for no limit")
    left_out, arcs = None, graph.nnz
    if max_net:
        sizes = row_sizes(graph, REVERSED[direction])
        left_out, arcs = (sizes > max_net, direction), int(sizes[sizes <= max_net].sum())
    degree = np.zeros(graph.n, np.int64)
    # As many as there can be: what is never written takes no memory.
    indices, found = np.empty(2 * arcs, graph.indices.dtype), 0
    for first, last, some, neighbours in symmetrised(graph, left_out=left_out):
        degree[first:last] = some
        indices[found : found + len(neighbours)] = neighbours
        found += len(neighbours)
    return GraphModel(row_sizes(graph, direction), pointers(degree), indices[:found])


@dataclass(frozen=True)
class RowModel:
    """Rows and nothing between them, for tools that do not look at the arcs.

    Attributes
    ----------
    weights : (n,) int64
    """

    weights: np.ndarray


def row_model(graph: Graph, direction: str = "in") -> RowModel:
    """The rows of M with their weights alone."""
    return RowModel(row_sizes(graph, direction))


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
    return _grains(row, column, summed, graph.n)


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


def _grains(row: np.ndarray, column: np.ndarray, summed: np.ndarray, n: int) -> HypergraphModel:
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


Description = RowModel | GraphModel | HypergraphModel
"""The symmetrised graph of M; and its rows alone, for tools that do not look at the arcs."""
