"""The hypergraphs of the refinement: the model's own, and coarser ones made of clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition.graph.graph import chunks
from partition.models.hypergraph import HypergraphModel
from partition.refinement.core import NET, State, below, compiled, fill
from partition.refinement.objective import TABLE_SHARE, cells


@dataclass(frozen=True)
class Level:
    """A hypergraph whose vertices are those of the model, or clusters of them.

    Attributes
    ----------
    weights : (n, m) int64
    indptr, pins : (nets + 1,) int64, (pins,) int32
        The vertices of each net.
    vertex_ptr, nets : (n + 1,) int64, (pins,) int32
        The nets of each vertex.
    costs, owners, folds : (nets,) int64, (nets,) int32, (nets,) bool
    """

    weights: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    vertex_ptr: np.ndarray
    nets: np.ndarray
    costs: np.ndarray
    owners: np.ndarray
    folds: np.ndarray


def finest_level(model: HypergraphModel, extra_weights: np.ndarray | None) -> Level:
    """The model itself, less the nets of one pin, which cost nothing; each net pins its owner."""
    n, nnets = len(model.weights), len(model.indptr) - 1
    weights = np.array(model.weights, np.int64).reshape(n, 1)
    if extra_weights is not None:
        weights = np.hstack((weights, np.asarray(extra_weights, np.int64).reshape(n, -1)))
    folds = np.zeros(nnets, bool) if model.folds is None else np.asarray(model.folds, bool)
    costs = np.asarray(model.net_costs(), np.int64)
    owners = np.asarray(np.arange(nnets) if model.owners is None else model.owners, np.int32)
    pins = np.asarray(model.pins, np.int32)
    indptr = np.asarray(model.indptr, np.int64)
    sizes = np.diff(indptr)
    pinned = np.zeros(nnets, bool)
    for first, last in chunks(indptr):
        net = np.repeat(np.arange(first, last, dtype=np.int32), sizes[first:last])
        pinned[net[owners[net] == pins[indptr[first] : indptr[last]]]] = True
    if not pinned[sizes > 0].all():
        raise ValueError("a net does not pin its owner")
    nets = np.flatnonzero(sizes > 1)
    indptr, pins = _pins_of(indptr, pins, nets)
    return _level(indptr, pins, weights, costs[nets], owners[nets], folds[nets])


def contract(level: Level, labels: np.ndarray, clusters: int) -> Level:
    """The hypergraph of the clusters: nets of one pin vanish, equal nets of one owner merge.

    Nets are taken for equal by a digest of 64 bits, their size, their owner and their kind.
    """
    nets = len(level.owners)
    indptr = np.zeros(nets + 1, np.int64)
    pins = np.empty(len(level.pins), np.int32)
    digest = np.empty(nets, np.uint64)
    squeeze(level.indptr, level.pins, labels, clusters, indptr, pins, digest)
    sizes, owners = np.diff(indptr), labels[level.owners]

    kept = np.flatnonzero(sizes > 1)
    kept = kept[np.lexsort((level.folds[kept], owners[kept], digest[kept]))]
    first = np.ones(len(kept), bool)
    keys = (digest, owners, sizes, level.folds)
    first[1:] = np.any([key[kept[1:]] != key[kept[:-1]] for key in keys], axis=0)
    costs = np.zeros(nets, np.int64)
    leaders = kept[first]
    np.add.at(costs, leaders[np.cumsum(first) - 1], level.costs[kept])

    weights = np.zeros((clusters, level.weights.shape[1]), np.int64)
    np.add.at(weights, labels, level.weights)
    chosen = np.sort(leaders)
    indptr, pins = _pins_of(indptr, pins, chosen)
    return _level(indptr, pins, weights, costs[chosen], owners[chosen], level.folds[chosen])


def new_state(
    level: Level,
    parts: np.ndarray,
    k: int,
    limits: np.ndarray,
    *,
    messages: bool,
    stop: np.ndarray | None = None,
) -> State:
    """The tables of :class:`partition.refinement.core.State` for a partition of a level."""
    sizes = np.diff(level.indptr)
    facts = np.zeros(len(sizes), NET)
    facts["cost"], facts["owner"], facts["fold"] = level.costs, level.owners, level.folds
    facts["table"] = sizes * TABLE_SHARE >= k
    where = np.concatenate(([0], np.cumsum(cells(sizes, k))))
    facts["where"] = where[:-1]
    state = State(
        net_ptr=level.indptr,
        pins=level.pins,
        vertex_ptr=level.vertex_ptr,
        nets=level.nets,
        facts=facts,
        parts=parts.astype(np.int32),
        cells=np.zeros(where[-1], np.int32),
        weights=level.weights,
        loads=np.zeros((k, level.weights.shape[1]), np.int64),
        limits=limits,
        sizes=np.zeros(k, np.int64),
        send=np.zeros(k, np.int64),
        recv=np.zeros(k, np.int64),
        pairs=np.zeros((k, k) if messages else (0, 0), np.int64),
        messages=np.zeros(1, np.int64),
        send_price=np.zeros(k),
        recv_price=np.zeros(k),
        stop=np.zeros(1, np.bool_) if stop is None else stop,
    )
    fill(state)
    return state


def _pins_of(
    indptr: np.ndarray, pins: np.ndarray, nets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pins of some nets, which increase, and where each one's begin and end."""
    sizes = np.diff(indptr)
    kept = np.zeros(len(sizes), bool)
    kept[nets] = True
    pins = pins[: indptr[-1]]
    if not kept.all():
        pins = pins[np.repeat(kept, sizes)]
    return np.concatenate(([0], np.cumsum(sizes[nets]))), pins


def _level(indptr: np.ndarray, pins: np.ndarray, weights: np.ndarray, *facts: np.ndarray) -> Level:
    """A level with the nets of each vertex, too; the facts are costs, owners and folds."""
    shape = (len(indptr) - 1, len(weights))
    incidence = sp.csr_array((np.ones(len(pins), np.int8), pins, indptr), shape=shape).tocsc()
    vertex_ptr = incidence.indptr.astype(np.int64)
    nets = incidence.indices.astype(np.int32, copy=False)
    return Level(weights, indptr, pins, vertex_ptr, nets, *facts)


@compiled
def cluster(state, labels, heaviest, largest, random):
    """Join each vertex to the cluster, in its own part, that its small nets tie it to most.

    ``labels``, (n,) int32, receives the cluster of each vertex, numbered without gaps. A cluster
    weighs at most ``heaviest``, (m,) int64; nets of more than ``largest`` pins are not looked at.
    Returns the number of clusters.
    """
    n = len(state.parts)
    weight = state.weights.copy()
    alone = np.ones(n, np.bool_)
    score = np.zeros(n)
    met = np.empty(n, np.int32)
    order = np.arange(n, dtype=np.int32)
    for v in range(n):
        labels[v] = v
    for position in range(n):
        other = position + below(random, n - position)
        v = order[other]
        order[other] = order[position]
        if not alone[v]:
            continue
        nmet = 0
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            net = state.nets[i]
            first, last = state.net_ptr[net], state.net_ptr[net + 1]
            if last - first > largest or last - first < 2:
                continue
            tie = state.facts[net].cost / (last - first - 1.0)
            for j in range(first, last):
                u = state.pins[j]
                if u != v and state.parts[u] == state.parts[v]:
                    c = labels[u]
                    if score[c] == 0.0:
                        met[nmet] = c
                        nmet += 1
                    score[c] += tie
        best, rating = -1, 0.0
        for i in range(nmet):
            c = met[i]
            fits = True
            for m in range(len(state.limits)):
                if weight[c, m] + weight[v, m] > heaviest[m]:
                    fits = False
            if fits and score[c] > rating:
                best, rating = c, score[c]
            score[c] = 0.0
        if best >= 0:
            labels[v] = best
            alone[v] = alone[best] = False
            for m in range(len(state.limits)):
                weight[best, m] += weight[v, m]
    # The label of a cluster is its first member; number them.
    number = np.full(n, -1, np.int32)
    clusters = 0
    for v in range(n):
        if number[labels[v]] < 0:
            number[labels[v]] = clusters
            clusters += 1
        labels[v] = number[labels[v]]
    return clusters


@compiled
def squeeze(net_ptr, pins, labels, clusters, new_ptr, new_pins, digest):
    """The nets with clusters for vertices, each once, and digests that no order of them changes."""
    mark = np.full(clusters, -1, np.int32)
    end = 0
    for net in range(len(net_ptr) - 1):
        value = np.uint64(0)
        for i in range(net_ptr[net], net_ptr[net + 1]):
            c = labels[pins[i]]
            if mark[c] != net:
                mark[c] = net
                new_pins[end] = c
                end += 1
                mixed = (np.uint64(c) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                value += mixed ^ (mixed >> np.uint64(27))
        new_ptr[net + 1] = end
        digest[net] = value
