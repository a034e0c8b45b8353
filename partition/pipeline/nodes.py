"""Process mapping: which parts share a node, so that little travels between nodes.

A hierarchical partition is made of nodes first, and then of each node's ranks.

``mpirun`` puts ranks 0 … R−1 on the first node, R … 2R−1 on the next one, and so on. The parts
are therefore renumbered: those that exchange most get numbers of one node. Nothing else of the
partition changes, neither its volume nor its balance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from partition.graph.sampling import pointers
from partition.models import Description
from partition.models.graph import GraphModel, RowModel
from partition.models.hypergraph import HypergraphModel

_RANDOM_STARTS = 8
_SMALL = 256  # parts: more of them start from two groupings only
_MAX_SWEEPS = 50


def map_to_nodes(exchange: sp.csr_array, ranks_per_node: int, seed: int = 0) -> np.ndarray:
    """New numbers for the parts, such that the rows sent between nodes are few.

    The parts are grouped from several starts (as they are numbered, grown greedily, at random),
    each improved by swaps of two parts until none helps (Kernighan and Lin 1970, without their
    hill climbing), and the best is taken. A sweep takes O(k²) time, the memory is
    O(k·nodes + messages).

    ``exchange``, (k, k), has the rows from part to part, as
    :func:`partition.graph.metrics.exchange_matrix` counts them. An expand and a fold count alike: M
    and its transpose get the same mapping. A node has R ≥ 1 parts, the last one what is left.
    Returns a permutation of 0..k−1, (k,) int32: the new number of each part. Ties go to the numbers
    there are.
    """
    if ranks_per_node < 1:
        raise ValueError(f"{ranks_per_node} ranks per node")
    k = exchange.shape[0]
    if ranks_per_node == 1 or ranks_per_node >= k:
        return np.arange(k, dtype=np.int32)
    weights = (exchange + exchange.T).tocsr()
    full, rng = np.arange(k) // ranks_per_node, np.random.default_rng(seed)
    starts = [full, _grown(weights, ranks_per_node)]
    starts += [full[rng.permutation(k)] for _ in range(_RANDOM_STARTS if k <= _SMALL else 0)]
    found = [_swap(weights, start) for start in starts]
    (sender, receiver), rows = weights.tocoo().coords, weights.tocoo().data
    between = [int(rows[nodes[sender] != nodes[receiver]].sum()) for nodes in found]
    return _numbers(found[int(np.argmin(between))], ranks_per_node)


def join_parts(exchange: sp.csr_array, k: int, seed: int = 0) -> np.ndarray:
    """Parts put together into k of as many each, such that the rows between these are few.

    Parts of one node of :func:`map_to_nodes` are one part then. ``exchange`` is (c·k, c·k).
    Returns (c·k,) int32 numbers of 0..k−1.
    """
    each, rest = divmod(exchange.shape[0], k)
    if rest:
        raise ValueError(f"{exchange.shape[0]} parts into {k} of as many each")
    return map_to_nodes(exchange, each, seed) // np.int32(each)


def _grown(weights: sp.csr_array, size: int) -> np.ndarray:
    """Nodes filled one after the other: the busiest part left, then what it talks to most."""
    k = weights.shape[0]
    traffic = weights.sum(axis=1).astype(np.float64)
    nodes = np.full(k, -1)
    for part in range(k):
        node, first = divmod(part, size)
        if first == 0:
            pull = traffic.copy()
        pull[nodes >= 0] = -1
        chosen = int(pull.argmax())
        nodes[chosen] = node
        if first == 0:
            pull = np.zeros(k)
        row = slice(weights.indptr[chosen], weights.indptr[chosen + 1])
        pull[weights.indices[row]] += weights.data[row]
    return nodes


def _swap(weights: sp.csr_array, start: np.ndarray) -> np.ndarray:
    """Swap pairs of parts of different nodes, the best partner for each, until none gains."""
    k = weights.shape[0]
    nodes = start.copy()
    everyone = np.arange(k)
    membership = sp.csr_array((np.ones(k, np.int64), (everyone, nodes)))
    toward = (weights @ membership).toarray()  # rows exchanged by a part with each node
    for _ in range(_MAX_SWEEPS):
        swapped = False
        for part in range(k):
            here = nodes[part]
            row = _dense_row(weights, part)
            gain = toward[part, nodes] - toward[part, here] + toward[:, here]
            gain -= toward[everyone, nodes] + 2 * row
            gain[nodes == here] = 0
            other = int(gain.argmax())
            if gain[other] <= 0:
                continue
            there = nodes[other]
            change = _dense_row(weights, other) - row
            toward[:, here] += change
            toward[:, there] -= change
            nodes[part], nodes[other] = there, here
            swapped = True
        if not swapped:
            break
    return nodes


def _dense_row(weights: sp.csr_array, part: int) -> np.ndarray:
    dense = np.zeros(weights.shape[0], dtype=np.int64)
    row = slice(weights.indptr[part], weights.indptr[part + 1])
    dense[weights.indices[row]] = weights.data[row]
    return dense


def _numbers(nodes: np.ndarray, size: int) -> np.ndarray:
    """Part numbers: nodes by their least member, one that is not full last; order kept inside."""
    k = len(nodes)
    least = np.full(nodes.max() + 1, k)
    np.minimum.at(least, nodes, np.arange(k))
    least[np.bincount(nodes) < size] = k
    numbers = np.empty(k, dtype=np.int32)
    numbers[np.lexsort((np.arange(k), least[nodes]))] = np.arange(k, dtype=np.int32)
    return numbers


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
        row = np.repeat(number, np.diff(model.indptr))
        neighbours = number[np.asarray(model.indices)]
        kept = (row >= 0) & (neighbours >= 0)
        degree = np.bincount(row[kept], minlength=len(weights))
        return GraphModel(weights, pointers(degree), neighbours[kept])
    net = np.repeat(np.arange(model.nets), np.diff(model.indptr))
    pins = number[np.asarray(model.pins)]
    sizes = np.bincount(net[pins >= 0], minlength=model.nets)
    nets = np.flatnonzero(sizes >= 2)
    indptr, pins = pointers(sizes[nets]), pins[(pins >= 0) & (sizes >= 2)[net]]
    costs, owners, folds = model.facts_of(nets)
    owners = number[owners]
    owners = np.where(owners >= 0, owners, pins[indptr[:-1]])
    return HypergraphModel(weights, indptr, pins, costs, owners, folds)
