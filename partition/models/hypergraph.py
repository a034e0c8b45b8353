"""The column-net hypergraph of M."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partition.graph.graph import Graph, columns, row_sizes
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
        """Number of nets."""
        return len(self.indptr) - 1

    def net_costs(self) -> np.ndarray:
        """The cost of each net, (nets,) int64."""
        return np.ones(self.nets, np.int64) if self.costs is None else np.asarray(self.costs)


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
    full = pointers(np.diff(indptr) + missing)
    pins = np.empty(full[-1], dtype=rows.dtype)
    pins[full[own + 1] - 1] = own
    pins[np.arange(len(rows)) + (full[:-1] - indptr[:-1])[column]] = rows
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
    owners = kept if model.owners is None else np.asarray(model.owners)[kept]
    costs = None if model.costs is None else np.asarray(model.costs)[kept]
    folds = None if model.folds is None else np.asarray(model.folds)[kept]
    return HypergraphModel(model.weights, pointers(sizes[kept]), pins, costs, owners, folds)
