"""The coarsest hypergraph on one rank: its first partition, by a serial tool."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gcnmpi.mpi.comm import from_root
from gcnmpi.partitioning.annealing import Wanted, value_of
from gcnmpi.partitioning.levels import Level, on_root
from partition.backends import TOOLS
from partition.backends.process import run_each
from partition.errors import UserError
from partition.graph.hashing import key, mixed
from partition.graph.sampling import pointers
from partition.models.descriptions import Description, GraphModel, HypergraphModel
from partition.pipeline.adding import checked
from partition.pipeline.balance import SEED_LIMIT
from partition.registry import Settings

METIS, KAHYPAR = "metis", "mtkahypar"
OF_METIS: Settings = {"objective": "cut", "passes": 10}
OF_KAHYPAR: Settings = {"preset": "fast", "threads": 0, "max_net": 0}
SEEDS = 8  # of METIS: they differ by a fifth, and take a second each


def gathered(level: Level, most: int, seed: int) -> HypergraphModel | None:
    """The hypergraph on rank 0, of at most so many pins, about: else a sample of its nets.

    Nets are drawn by hashes of their owners and pins, and stand for those that are not: so the rows
    that a partition sends are estimated without bias. Elsewhere, None.
    """
    comm, space, count = level.comm, level.vertices, level.nets.count
    numbers = np.concatenate([level.numbers, space.ghosts])
    every = max(1, -(-level.pin_count // most))
    costs, sizes = level.costs[:count] * every, level.sizes[:count]
    owners = level.numbers[level.owners]
    kept = np.ones(count, bool)
    if every > 1 and count:
        pins = np.add.reduceat(mixed(numbers, key(seed, 4))[level.pins], level.net_ptr[:-1])
        kept = mixed(pins + owners.astype(np.uint64), key(seed, 3)) % np.uint64(every) == 0
    pins = numbers[level.pins[np.repeat(kept, sizes)]].astype(np.int32)
    of_nets = (each[kept] for each in (sizes, costs, owners))
    found = [on_root(comm, each) for each in (level.weights, pins, *of_nets)]
    if comm.rank:
        return None
    weights, pins, sizes, costs, owners = found
    return HypergraphModel(weights, pointers(sizes), pins, costs, owners)


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


def first_parts(level: Level, wanted: Wanted, most: int) -> np.ndarray:
    """Parts of the own vertices, (own vertices,) int32: the best of several that rank 0 makes."""
    model = gathered(level, most, wanted.seed)

    def solve() -> np.ndarray:
        assert model is not None
        found = candidates(model, wanted)
        return min(found, key=lambda parts: _value(model, parts, wanted))

    parts = from_root(level.comm, solve)
    first = level.vertices.first
    return parts[first : first + level.vertices.count]


def candidates(model: HypergraphModel, wanted: Wanted) -> list[np.ndarray]:
    """Partitions of a hypergraph by METIS, with several seeds, and by Mt-KaHyPar if that can."""
    k, seed = wanted.k, wanted.seed
    graph = star_graph(model)
    tasks: list[tuple[str, Description, int, Settings]]
    tasks = [(METIS, graph, SEEDS, OF_METIS), (KAHYPAR, model, 1, OF_KAHYPAR)]
    found, failed = [], []
    for tool, description, seeds, options in tasks:
        common: Settings = {"imbalance": wanted.imbalance, **options}
        tries = [{**common, "seed": (seed + i) % SEED_LIMIT} for i in range(seeds)]
        try:
            made = run_each(TOOLS.entries[tool], description, k, tries)
        except UserError as error:  # numbers of more than 32 bits
            failed.append(error)
            continue
        for parts in made:
            try:
                found.append(checked(tool, parts, k, model.weights))
            except UserError as error:  # most parts are empty
                failed.append(error)
    if not found:
        raise failed[0]
    return found


def _value(model: HypergraphModel, parts: np.ndarray, wanted: Wanted) -> float:
    """The objective of a partition."""
    k, sizes = wanted.k, np.diff(model.indptr)
    touched = np.unique(np.repeat(np.arange(model.nets) * k, sizes) + parts[model.pins]) // k
    others = np.bincount(touched, minlength=model.nets) - 1
    assert model.owners is not None
    send = np.zeros(k, np.int64)
    np.add.at(send, parts[model.owners], model.net_costs() * others)
    return value_of(wanted.objective, send)
