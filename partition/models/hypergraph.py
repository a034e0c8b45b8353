"""The column-net hypergraph of M."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partition.graph.aggregation import arrivals, column_pieces, loops
from partition.graph.graph import Graph, row_sizes
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
