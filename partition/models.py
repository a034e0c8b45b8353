"""Input of partitioning tools: a graph or a hypergraph made from the pattern of M.

Every model has ``weights``: the entries of each row of M, the arithmetic that a vertex brings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition.graph import Graph, columns, row_sizes


@dataclass(frozen=True)
class RowModel:
    """Rows and nothing between them, for tools that do not look at the arcs.

    Attributes
    ----------
    weights : (n,) int64
    """

    weights: np.ndarray


@dataclass(frozen=True)
class GraphModel:
    """An undirected graph without loops; each edge is stored at both of its ends.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (n + 1,) integers
    indices : integers
        ``indices[indptr[i]:indptr[i+1]]`` are the neighbours of vertex i.
    """

    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray


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
    """

    weights: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    costs: np.ndarray | None = None
    owners: np.ndarray | None = None

    @property
    def nets(self) -> int:
        """Number of nets."""
        return len(self.indptr) - 1

    def net_costs(self) -> np.ndarray:
        """The cost of each net, (nets,) int64."""
        return np.ones(self.nets, np.int64) if self.costs is None else np.asarray(self.costs)


def row_model(graph: Graph, direction: str = "in") -> RowModel:
    """The rows of M with their weights alone."""
    return RowModel(row_sizes(graph, direction))


def graph_model(graph: Graph, direction: str = "in") -> GraphModel:
    """The symmetrised graph: i and j are neighbours where M or its transpose has (i, j).

    Its edge cut only resembles the volume; the direction matters to the weights alone.
    """
    shape = (graph.n, graph.n)
    ones = np.ones(graph.nnz, dtype=np.int8)
    pattern = sp.csr_array((ones, np.asarray(graph.indices), np.asarray(graph.indptr)), shape=shape)
    both = (pattern + pattern.T).tocsr()
    row = np.repeat(np.arange(graph.n, dtype=both.indices.dtype), np.diff(both.indptr))
    proper = both.indices != row
    degree = np.bincount(row[proper], minlength=graph.n)
    return GraphModel(row_sizes(graph, direction), _pointers(degree), both.indices[proper])


def hypergraph_model(graph: Graph, direction: str = "in") -> HypergraphModel:
    """The column-net hypergraph of M: net j pins j and every i with an entry (i, j).

    The parts that net j touches, less one, is what its row is sent to: connectivity−1, summed
    over the nets, **is** the volume of one exchange (Çatalyürek and Aykanat 1999).
    """
    indptr, rows = columns(graph, direction)
    column = np.repeat(np.arange(graph.n, dtype=rows.dtype), np.diff(indptr))
    # The diagonal where it is missing, at the end of its net.
    missing = np.ones(graph.n, dtype=bool)
    missing[column[rows == column]] = False
    own = np.flatnonzero(missing)
    full = _pointers(np.diff(indptr) + missing)
    pins = np.empty(full[-1], dtype=rows.dtype)
    pins[full[own + 1] - 1] = own
    pins[np.arange(len(rows)) + (full[:-1] - indptr[:-1])[column]] = rows
    return HypergraphModel(row_sizes(graph, direction), full, pins)


def without_large_nets(model: HypergraphModel, limit: int) -> HypergraphModel:
    """The hypergraph without its nets of more than ``limit`` pins; its vertices stay."""
    sizes = np.diff(model.indptr)
    kept = np.flatnonzero(sizes <= limit)
    if len(kept) == model.nets:
        return model
    pins = np.asarray(model.pins)[np.repeat(sizes <= limit, sizes)]
    owners = kept if model.owners is None else np.asarray(model.owners)[kept]
    costs = None if model.costs is None else np.asarray(model.costs)[kept]
    return HypergraphModel(model.weights, _pointers(sizes[kept]), pins, costs, owners)


def _pointers(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
