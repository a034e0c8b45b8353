"""The hypergraphs of the refinement: the model's own, and coarser ones made of clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition import refine_core as core
from partition.models import HypergraphModel


@dataclass(frozen=True)
class Level:
    """A hypergraph whose vertices are those of the model, or clusters of them.

    Attributes
    ----------
    weights : (n, m) int64
    indptr, pins : (nets + 1,) int64, (pins,) int32
    costs, owners : (nets,) int64, (nets,) int32
    """

    weights: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    costs: np.ndarray
    owners: np.ndarray


def finest_level(model: HypergraphModel, extra_weights: np.ndarray | None) -> Level:
    """The model itself, less the nets of one pin, which cost nothing.

    Raises
    ------
    ValueError
        If a net does not pin its owner.
    """
    n, nnets = len(model.weights), len(model.indptr) - 1
    weights = np.asarray(model.weights, np.int64).reshape(n, 1)
    if extra_weights is not None:
        weights = np.hstack((weights, np.asarray(extra_weights, np.int64).reshape(n, -1)))
    costs, owners = getattr(model, "costs", None), getattr(model, "owners", None)
    costs = np.ones(nnets, np.int64) if costs is None else np.asarray(costs, np.int64)
    owners = np.arange(nnets) if owners is None else np.asarray(owners)
    pins = np.asarray(model.pins, np.int32)
    indptr = np.asarray(model.indptr, np.int64)
    sizes = np.diff(indptr)
    owned = np.repeat(owners.astype(np.int32), sizes) == pins
    if (
        len(pins)
        and (np.add.reduceat(owned, np.minimum(indptr[:-1], len(pins) - 1)) < 1)[sizes > 0].any()
    ):
        raise ValueError("a net does not pin its owner")
    return _selected(indptr, pins, np.flatnonzero(sizes > 1), weights, costs, owners)


def contract(level: Level, labels: np.ndarray, clusters: int) -> Level:
    """The hypergraph of the clusters: nets of one pin vanish, equal nets of one owner merge.

    Nets are taken for equal by a digest of 64 bits, their size and their owner.
    """
    nets = len(level.owners)
    indptr = np.zeros(nets + 1, np.int64)
    pins = np.empty(len(level.pins), np.int32)
    digest = np.empty(nets, np.uint64)
    core.squeeze(level.indptr, level.pins, labels, clusters, indptr, pins, digest)
    sizes, owners = np.diff(indptr), labels[level.owners]

    kept = np.flatnonzero(sizes > 1)
    kept = kept[np.lexsort((owners[kept], digest[kept]))]
    first = np.ones(len(kept), bool)
    for key in (digest, owners, sizes):
        same = key[kept[1:]] == key[kept[:-1]]
        first[1:] = ~same if key is digest else first[1:] | ~same
    costs = np.zeros(nets, np.int64)
    leaders = kept[first]
    np.add.at(costs, leaders[np.cumsum(first) - 1], level.costs[kept])

    weights = np.zeros((clusters, level.weights.shape[1]), np.int64)
    np.add.at(weights, labels, level.weights)
    return _selected(indptr, pins, np.sort(leaders), weights, costs, owners)


def new_state(
    level: Level, parts: np.ndarray, k: int, limits: np.ndarray, *, messages: bool
) -> core.State:
    """The tables of :class:`core.State` for a partition of a level."""
    n, nets = len(level.weights), len(level.owners)
    sizes = np.diff(level.indptr)
    incidence = sp.csr_array(
        (np.ones(len(level.pins), np.int8), level.pins, level.indptr), shape=(nets, n)
    ).tocsc()
    table = sizes * core.TABLE_SHARE >= k
    where = np.concatenate(([0], np.cumsum(np.where(table, k, 2 * sizes))))
    state = core.State(
        net_ptr=level.indptr,
        pins=level.pins,
        vertex_ptr=incidence.indptr.astype(np.int64),
        nets=incidence.indices.astype(np.int32, copy=False),
        cost=level.costs,
        owner=level.owners,
        parts=parts.astype(np.int32),
        cells=np.zeros(where[-1], np.int32),
        where=where[:-1],
        table=table,
        touched=np.zeros(nets, np.int32),
        home=np.zeros(nets, np.int32),
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
    )
    core.fill(state)
    return state


def _selected(
    indptr: np.ndarray,
    pins: np.ndarray,
    nets: np.ndarray,
    weights: np.ndarray,
    costs: np.ndarray,
    owners: np.ndarray,
) -> Level:
    """A level of some of the nets."""
    sizes = np.diff(indptr)[nets]
    new = np.concatenate(([0], np.cumsum(sizes)))
    index = np.repeat(indptr[nets] - new[:-1], sizes) + np.arange(new[-1])
    return Level(weights, new, pins[index], costs[nets], owners[nets].astype(np.int32))
