"""The coarsest hypergraph on one rank: its first partition, by a serial tool."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gcnmpi.mpi.comm import from_root, redistribute
from gcnmpi.partitioning import loops
from gcnmpi.partitioning.annealing import Wanted
from gcnmpi.partitioning.levels import Level, total
from partition.backends import TOOLS
from partition.backends.process import run_apart
from partition.graph.hashing import key, mixed
from partition.graph.sampling import pointers
from partition.models.graph import GraphModel
from partition.models.hypergraph import HypergraphModel

ENTRY, PASSES = "partition.backends.metis:TOOL", 10
SEEDS = 4


def gathered(level: Level, most: int, seed: int) -> HypergraphModel | None:
    """The hypergraph on rank 0, of at most so many pins, about: else a sample of its nets.

    Nets are drawn by hashes of their owners and clusters, and stand for those that are not: so the
    rows that a partition sends are estimated without bias.
    """
    comm, nets = level.comm, level.nets
    space = level.vertices
    numbers = np.concatenate([level.numbers, space.ghosts])
    every = max(1, -(-level.pin_count // most))
    costs, sizes = level.costs[: nets.count], level.sizes[: nets.count]
    pins, owners = numbers[level.pins], level.numbers[level.owners]
    if every > 1:
        drawn = mixed(owners, key(seed, 3))
        marks = loops_digests(level, numbers)
        some = np.flatnonzero((drawn ^ marks) % np.uint64(every) == 0)
        kept = np.zeros(nets.count, bool)
        kept[some] = True
        pins = pins[np.repeat(kept, sizes)]
        costs, sizes, owners = costs[some] * every, sizes[some], owners[some]
    found = []
    for array in (level.weights, pins.astype(np.int32), sizes, costs, owners):
        (received,), _ = redistribute(
            comm, np.zeros(len(array), np.int32), [array], space.max_bytes
        )
        found.append(received)
    if comm.rank:
        return None
    weights, pins, sizes, costs, owners = found
    return HypergraphModel(weights, pointers(sizes), pins, costs, owners)


def loops_digests(level: Level, numbers: np.ndarray) -> np.ndarray:
    """A hash of the pins of each net."""
    hashes = mixed(numbers, 1)[level.pins]
    starts = level.net_ptr[:-1]
    return np.add.reduceat(hashes, starts) if len(starts) else hashes


def star_graph(model: HypergraphModel) -> GraphModel:
    """Owners of nets joined with the pins: an edge costs what the nets cost that it stands for."""
    n = len(model.weights)
    assert model.owners is not None
    owner = np.repeat(model.owners, np.diff(model.indptr))
    cost = np.repeat(model.net_costs(), np.diff(model.indptr))
    away = owner != model.pins
    one = sp.coo_array((cost[away], (owner[away], model.pins[away])), shape=(n, n)).tocsr()
    both = (one + one.T).tocsr()
    both.sort_indices()
    return GraphModel(model.weights, both.indptr, both.indices, both.data)


def first_parts(level: Level, wanted: Wanted, most: int, imbalance: float) -> np.ndarray:
    """Parts of the own vertices: those of a serial tool on rank 0."""
    model = gathered(level, most, wanted.seed)

    def solve() -> np.ndarray:
        assert model is not None
        return run_apart(
            ENTRY, star_graph(model), wanted.k,
            imbalance=imbalance, seed=wanted.seed, objective="cut", passes=PASSES,
        ).astype(np.int32)  # fmt: skip

    parts = from_root(level.comm, solve)
    first = level.vertices.first
    return parts[first : first + level.vertices.count]
