"""Hierarchical partitions: first into nodes, then each node into its ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partition.graph.sampling import pointers
from partition.models import Description
from partition.models.graph import GraphModel
from partition.models.hypergraph import HypergraphModel
from partition.models.rows import RowModel


def partition_nodes_first(
    model: Description,
    k: int,
    ranks_per_node: int,
    solve: Callable[[Description, int, float], np.ndarray],
    imbalance: float,
) -> np.ndarray | None:
    """Partition into k / R nodes, then each node into R parts; node b gets b·R … b·R+R−1.

    A flat partition cuts k ways at once, this one k / R ways first, so that less is cut between
    nodes. Nodes get half of the imbalance, their parts what then is left. ``solve(model, k,
    imbalance)`` gives (n,) part numbers. None where it cannot be done: nodes of unequal numbers of
    parts, or a node with fewer vertices than parts.
    """
    nodes, rest = divmod(k, ranks_per_node)
    if rest or nodes < 2 or ranks_per_node < 2:
        return None
    home = solve(model, nodes, imbalance / 2)
    parts = np.empty(len(model.weights), dtype=np.int32)
    allowed = (1 + imbalance) * model.weights.sum() / k
    for node in range(nodes):
        members = np.flatnonzero(home == node)
        if len(members) < ranks_per_node:
            return None
        piece = induced(model, members)
        left = max(0.0, float(allowed * ranks_per_node / piece.weights.sum()) - 1)
        parts[members] = node * ranks_per_node + solve(piece, ranks_per_node, left)
    return parts


def induced(model: Description, members: np.ndarray) -> Description:
    """The model of some vertices (increasing numbers), renumbered 0..m−1.

    Of a hypergraph, nets keep their pins among the members, and go where fewer than two are left;
    an owner that is no member gives its place to a pin that is.
    """
    weights = np.asarray(model.weights)[members]
    if isinstance(model, RowModel):
        return replace(model, weights=weights)
    number = np.full(len(model.weights), -1, dtype=np.int64)
    number[members] = np.arange(len(members))
    if isinstance(model, GraphModel):
        return _graph(model, weights, number)
    return _hypergraph(model, weights, number)


def _graph(model: GraphModel, weights: np.ndarray, number: np.ndarray) -> GraphModel:
    row = np.repeat(number, np.diff(model.indptr))
    neighbours = number[np.asarray(model.indices)]
    kept = (row >= 0) & (neighbours >= 0)
    degree = np.bincount(row[kept], minlength=len(weights))
    return GraphModel(weights, pointers(degree), neighbours[kept])


def _hypergraph(model: HypergraphModel, weights: np.ndarray, number: np.ndarray) -> HypergraphModel:
    net = np.repeat(np.arange(model.nets), np.diff(model.indptr))
    pins = number[np.asarray(model.pins)]
    sizes = np.bincount(net[pins >= 0], minlength=model.nets)
    nets = np.flatnonzero(sizes >= 2)
    kept = (pins >= 0) & (sizes >= 2)[net]
    indptr, pins = pointers(sizes[nets]), pins[kept]
    costs, owners, folds = model.facts_of(nets)
    owners = number[owners]
    owners = np.where(owners >= 0, owners, pins[indptr[:-1]])
    return HypergraphModel(weights, indptr, pins, costs, owners, folds)
