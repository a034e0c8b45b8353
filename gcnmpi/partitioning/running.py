"""A partition that the ranks make together, from what is asked for to its files in the folder."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from gcnmpi.core.resident import peak_bytes
from gcnmpi.layout.arcs import check_content
from gcnmpi.mpi.comm import (
    MAX,
    Comm,
    agreed,
    by_rank_0,
    check_same,
    from_root,
    maximum,
    reduce_in_place,
)
from gcnmpi.partitioning.annealing import Wanted, value_of
from gcnmpi.partitioning.cycles import Effort, partitioned
from gcnmpi.partitioning.levels import Level, finest, on_root, total
from gcnmpi.partitioning.measuring import figures_of
from partition.errors import UserError, check_name
from partition.graph.manifest import ARC_FILES
from partition.graph.metrics import measure
from partition.graph.store import Partition, StoredGraph, open_graph
from partition.pipeline.adding import (
    imbalance_fault,
    make_parts,
    new_partition,
    put_partition,
    refined,
)
from partition.pipeline.balance import (
    ROW_WORK,
    Recipe,
    check_imbalance,
    check_parts_wanted,
    check_seed,
    name_of_numbers,
    recipe_of,
)
from partition.pipeline.memory import Sizes, refinement_bytes
from partition.refinement.objective import Objective

MODEL, TOOL = "job", "gcnmpi"
BALANCES = ("nnz", "rows", "work")
PIN_BYTES = 400  # of memory that a pin of the quotient takes, tool included
FEWEST_PINS = 1 << 12


@dataclass(frozen=True)
class Made:
    """A partition as it was stored, without its parts, and what the user should know of it."""

    partition: Partition
    memory: int  # the most bytes that a rank has had
    warnings: tuple[str, ...]


def default_name(k: int, imbalance: float, seed: int) -> str:
    """The name of a partition that is given none."""
    return f"{MODEL}-{k}{name_of_numbers(imbalance, seed)}"


def effort_within(memory: float | None, effort: float) -> Effort:
    """The effort of a job in which a rank takes so many bytes, at most, for what it does alone."""
    if not 0 < effort < math.inf:
        raise UserError(f"effort = {effort}: it multiplies the work, 1 is the default")
    if memory is None:
        return Effort(effort=effort)
    if memory < FEWEST_PINS * PIN_BYTES:
        raise UserError(
            f"--memory: {memory / 1e6:.3g} MB is too little for a first partition",
            f"give {FEWEST_PINS * PIN_BYTES / 1e6:.3g} MB or more",
        )
    return Effort(min(Effort.quotient, int(memory // PIN_BYTES)), memory, effort)


def make_partition(
    comm: Comm,
    claims: contextlib.ExitStack,
    path: str | os.PathLike[str],
    k: int,
    name: str,
    demands: dict[str, object],
    effort: Effort,
    max_bytes: float,
    tell: Callable[[str], None] = lambda line: None,
    overwrite: bool = False,
) -> Made:
    """Partition a graph folder on all ranks, and store the result in it.

    The parts are the same for any number of ranks.

    Parameters
    ----------
    claims : ExitStack
        Gets the lock of the name, which rank 0 takes.
    demands : mapping
        Fields of :class:`partition.pipeline.balance.Recipe`; the direction is the graph's own by
        default. The balance is one of ``BALANCES``.
    max_bytes : float
        Bound of what a rank sends at a time.

    Raises
    ------
    UserError
        On all ranks, for a bad argument or a damaged graph; nothing is written then.
    """
    stored, recipe = _opened(comm, path, k, demands)

    def claim() -> None:
        claims.enter_context(new_partition(stored.path, (name,), "gcnmpi partition", overwrite))

    from_root(comm, claim)
    tell("reading")
    check_content(comm, stored, ARC_FILES)
    began = time.perf_counter()
    level = _weighted(finest(comm, stored, recipe.direction, max_bytes), recipe.balance)
    heaviest, weight, limit = _limit(level, k, recipe.imbalance)
    tell(
        f"{level.vertices.total:,} vertices, {level.pin_count:,} entries; most on a rank: "
        f"{int(maximum(comm, len(level.pins))):,}"
    )
    if k == 1:
        own = np.zeros(level.vertices.count, np.int32)
    else:
        wanted = Wanted(k, Objective(), limit, recipe.seed, recipe.imbalance)
        own = partitioned(level, wanted, effort, tell)
        own = _refined(level, stored, own, wanted, effort, recipe, tell)
    seconds = maximum(comm, time.perf_counter() - began)
    found = figures_of(level, stored, recipe.direction, own, k, tell)
    memory = int(maximum(comm, peak_bytes()))

    def store() -> Made:
        assert found is not None
        parts, figures = found
        metrics = figures.metrics[recipe.direction]
        fault = imbalance_fault(metrics, recipe.balance, recipe.imbalance, heaviest, weight)
        stored_as = put_partition(
            stored, figures, overwrite, name=name, parts=parts, k=k, model=MODEL, tool=TOOL,
            direction=recipe.direction, seed=recipe.seed, imbalance=recipe.imbalance,
            options=asdict(effort) | recipe.record(), seconds=seconds,
        )  # fmt: skip
        return Made(replace(stored_as, parts=parts[:0]), memory, () if fault is None else (fault,))

    return from_root(comm, store)


def _refined(
    level: Level, stored: StoredGraph, own: np.ndarray, wanted: Wanted, effort: Effort,
    recipe: Recipe, tell: Callable[[str], None],
) -> np.ndarray:  # fmt: skip
    """The own parts, refined by rank 0 vertex by vertex, if it can have the graph.

    So are those that METIS makes of the graph, and the better ones are taken.
    """
    comm, space, manifest = level.comm, level.vertices, stored.manifest

    def fits(nets: np.ndarray) -> bool:
        item = stored.graph.indices.itemsize
        sizes = Sizes(manifest.n, manifest.nnz, nets, item, wanted.k)
        return refinement_bytes(sizes) <= effort.alone

    if not fits(np.empty(0, np.int64)):  # nor with them
        return own
    nets = on_root(comm, level.sizes[: level.nets.count])
    if not from_root(comm, lambda: fits(nets)):
        return own
    tell("refining on one rank")
    parts = on_root(comm, own)

    def work() -> np.ndarray:
        graph, starts = stored.merged, [parts]
        with contextlib.suppress(UserError):  # of the tool, which may be missing
            starts.append(make_parts(graph, "gp", wanted.k, recipe, tool="metis"))
        found = [
            refined(graph, start, wanted.k, wanted.objective, recipe, effort=effort.effort)
            for start in starts
        ]
        return min(found, key=value)

    def value(parts: np.ndarray) -> float:
        metrics = measure(stored.merged, parts, wanted.k, recipe.direction)
        return value_of(wanted.objective, np.array(metrics.send_rows))

    return by_rank_0(comm, work)[space.first : space.first + space.count]


def _opened(
    comm: Comm, path: str | os.PathLike[str], k: int, demands: dict[str, object]
) -> tuple[StoredGraph, Recipe]:
    """The graph folder, which all ranks map, and the demands, checked."""

    def check() -> None:
        stored = open_graph(path, check=False)
        recipe = recipe_of(stored, dict(demands))
        check_parts_wanted(k, stored.manifest)
        check_name("constraint of the balance of a job", recipe.balance, BALANCES)
        check_imbalance(recipe.imbalance, stored.graph, k, recipe.direction)
        check_seed(recipe.seed)

    from_root(comm, check)
    with agreed(comm):
        stored = open_graph(path, check=False)
    check_same(comm, {"graph": stored.manifest.id}, "give a folder that all hosts see the same way")
    return stored, recipe_of(stored, dict(demands))


def _weighted(level: Level, balance: str) -> Level:
    """A level with the weights that are balanced; it has the entries of the rows of M."""
    if balance == "rows":
        return replace(level, weights=np.ones_like(level.weights))
    return replace(level, weights=level.weights + ROW_WORK) if balance == "work" else level


def _limit(level: Level, k: int, imbalance: float) -> tuple[int, int, int]:
    """The heaviest vertex, what it weighs, and the most that a part may weigh.

    As :func:`partition.pipeline.balance.limits`.
    """
    comm, weights = level.comm, level.weights
    place = int(weights.argmax()) if len(weights) else 0
    mine = int(weights[place]) if len(weights) else 0
    both = np.array([mine, 0], np.int64)
    reduce_in_place(comm, both, MAX)
    most = int(both[0])
    # The first of several: the largest complement of its number.
    both[1] = -(level.vertices.first + place) if mine == most and len(weights) else -(1 << 62)
    reduce_in_place(comm, both, MAX)
    (weight,) = total(comm, int(weights.sum()))
    limit = max(int((1 + imbalance) * weight / k), -(-weight // k), most)
    return -int(both[1]), most, limit
