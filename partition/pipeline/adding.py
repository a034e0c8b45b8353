"""From a graph folder to a named partition in it: graph → model → parts → metrics → folder.

Or from a partition that is in it to a refined one.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends import TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options, settled
from partition.deadline import at_once
from partition.errors import UserError, require
from partition.graph import metrics as measuring
from partition.graph import store
from partition.graph.graph import DIRECTIONS, Graph
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.store import Manifest, Partition, StoredGraph
from partition.importing.partfile import read_parts
from partition.pipeline import balance, solving
from partition.pipeline.memory import within
from partition.pipeline.solving import check_balance, choose_tool, deadline_with_refinement
from partition.refinement.objective import Objective
from partition.registry import Settings
from partition.resident import taken

_MEASURES = {"rows": measuring.measure, "mixed": measuring.measure_mixed}  # of an exchange
# The time that measuring takes, of rows and mixed, in both directions; and the most of a time
# limit that is kept for it.
_SECONDS_PER_ARC, _MOST_SHARE = 0.8e-6, 0.3
# Endings of default names of refined partitions, and of those refined for a mixed exchange.
REFINED, _MIXED = "+refined", "+mixed"
# Facts that are recorded of the partition that another one was refined from, and those of its
# options that hold for the result.
_STARTED_FROM = (
    "name", "id", "k", "model", "tool", "tool_version", "direction", "seed", "options",
)  # fmt: skip
_KEPT = ("balance", "ranks_per_node")


class PartitionWarning(UserWarning):
    """A partition was made, but is not all that was asked for."""


def add_partition(
    path: str | os.PathLike[str],
    model: str,
    k: int,
    *,
    name: str | None = None,
    tool: str | None = None,
    refine: Objective | None = None,
    overwrite: bool = False,
    memory: float | None = None,
    time_limit: float | None = None,
    report: Callable[[str], None] = lambda line: None,
    working: Callable[[str], None] = lambda stage: None,
    **options: Any,
) -> Partition:
    """Partition the graph folder ``path`` and store the result in it.

    Parameters
    ----------
    model : str
        A name in ``MODELS``.
    k : int
        Number of parts, 1 ≤ k ≤ n.
    name : str, optional
        Default: ``MODEL-K``, or ``MODEL-OBJECTIVE-K`` for an objective that is not the default;
        ``-s1`` and ``-e0.03`` follow for another seed than 0 and another imbalance than 0.01.
    tool : str, optional
        One of the model's tools; default: its first.
    refine : Objective, optional
        Move vertices afterwards so that this falls: see :func:`partition.refinement.search.refine`.
    overwrite : bool
        Replace a partition of that name.
    memory : float, optional
        Bytes that this process and the tool may take together: what is left open is chosen so that
        it fits, see :func:`partition.pipeline.memory.within`.
    time_limit : float, optional
        Seconds, about: tools are stopped, and searches end with what they have. If that changed
        anything, the result is not recorded as deterministic.
    report : callable
        Told how much memory will be taken, and was, where ``memory`` is given.
    working : callable
        Told what is being done.
    options
        Fields of :class:`Recipe`, whose direction is the graph's own by default; and options of the
        model and of the tool, such as ``objective="vol"``.

    Returns
    -------
    Partition
        As stored, with its metrics in both directions.

    Raises
    ------
    UserError
        For a bad argument, before anything is computed; if it does not fit into ``memory``; if a
        library is not installed; or if the tool fails, or is stopped. Nothing is written then.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached, with the reason where a row is too heavy.
    """
    deadline = deadline_with_refinement(time_limit, [] if refine is None else [refine.exchange])
    # Everything the user may have got wrong, before minutes of work.
    stored = store.open_graph(path)
    graph, recipe = stored.merged, balance.recipe_of(stored, options)
    chosen, backend = choose_tool(model, tool)
    settings = all_options(graph, model, chosen, backend, options)
    check_balance(recipe, chosen, backend)
    recipe.check(stored, k)
    if memory is not None:
        way = within(graph, model, k, memory, recipe, tool=tool, refine=refine, options=options)
        report(f"memory: {way}")
        chosen, backend, settings = way.tool, TOOLS.get(way.tool), dict(way.options)
        check_balance(recipe, chosen, backend)
    balanced = backend.balanced or refine is not None
    seeded = backend.seeded or refine is not None
    if name is None:
        imbalance, seed = (
            recipe.imbalance if balanced else balance.USUAL_IMBALANCE,
            recipe.seed * seeded,
        )
        name = _default_name(model, k, backend, settings)
        name += replace(recipe, imbalance=imbalance, seed=seed).ending
        name += "" if refine is None else REFINED
    with new_partition(stored.path, (name,), "gcn-partition add", overwrite):
        start = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        settings = settled(graph, model, k, recipe.seed, recipe.direction, settings)
        parts = solving.make_parts(
            graph, model, k, recipe, tool=chosen, working=working,
            reassign=refine is None or refine.exchange == "rows",
            deadline=deadline if refine is None else deadline.part(solving.BEFORE_REFINING),
            options=settings,
        )  # fmt: skip
        made, history = time.perf_counter(), []
        if refine is not None:
            before = _MEASURES[refine.exchange](graph, parts, k, recipe.direction)
            history.append(step(chosen, made - start, before))
            working("refining")
            parts = solving.refined(graph, parts, k, refine, recipe, deadline=deadline)
            refining = time.perf_counter() - made
        parts = solving.mapped(graph, parts, k, recipe)
        seconds = time.perf_counter() - start

        found = figures_of(stored, parts, k, recipe.ranks_per_node, working)
        aim = MODELS[model].exchange if refine is None else refine.exchange
        reached = found.of(aim, recipe.direction)
        record = settings | recipe.record()
        if refine is not None:  # mapping only renumbers the parts
            history.append(step("refine", refining, reached))
            record |= {"refine": asdict(refine)}
        record |= {} if time_limit is None else {"time_limit": time_limit}
        if balanced:
            warn_of_imbalance(graph, reached, recipe)
        if memory is not None:
            own, other = taken()
            report(f"memory: taken {own / 1e9:.2f} GB, by the tool {other / 1e9:.2f} GB")
        return put_partition(
            stored, found, overwrite, name=name, parts=parts, k=k, model=model, tool=chosen,
            direction=recipe.direction, options=record, history=history, seconds=seconds,
            seed=recipe.seed if seeded or MODELS[model].random else None,
            imbalance=recipe.imbalance if balanced else None,
            deterministic=backend.deterministic(settings) and not deadline.decided,
        )  # fmt: skip


def refine_partition(
    path: str | os.PathLike[str],
    start: str,
    *,
    k: int | None = None,
    name: str | None = None,
    objective: Objective | None = None,
    imbalance: float | None = None,
    seed: int = 0,
    effort: float = 1.0,
    time_limit: float | None = None,
    direction: str | None = None,
    overwrite: bool = False,
) -> Partition:
    """Refine the partition ``start`` of a graph folder and store the result beside it.

    The weights that it was balanced by stay, and the ranks per node.

    Parameters
    ----------
    start : str
        Name of any partition, imported ones too. Of a pair, the one for the exchange that is
        refined for.
    k : int, optional
        Join its parts into so many first, the same number into each, so that the work that made it
        serves a run on fewer ranks.
    name : str, optional
        Default: ``START+refined``, or ``START+mixed`` for a mixed exchange, with ``-in-K`` between
        where parts are joined; ``-s1`` and ``-e0.03`` follow for another seed than 0 and another
        imbalance than that of ``start``.
    objective : Objective, optional
        What is to be small: see :class:`partition.refinement.search.Objective`.
    imbalance : float, optional
        Default: what ``start`` was asked for; 0.01 where it was not.
    effort : float
        Multiplies the work.
    time_limit : float, optional
        Seconds after which it ends with what it has. The result is then not recorded as
        deterministic.
    direction : {"in", "out"}, optional
        Default: that of ``start``.

    Returns
    -------
    Partition
        As stored; its ``history`` has the figures before and after.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached.
    """
    objective = objective or Objective()
    deadline = deadline_with_refinement(time_limit, [objective.exchange])
    start = store.member(path, start, objective.exchange)
    stored, before = store.open_graph(path), store.read_partition(path, start)
    graph, k = stored.merged, before.k if k is None else k
    usual = balance.USUAL_IMBALANCE if before.imbalance is None else before.imbalance
    recipe = balance.Recipe(
        usual if imbalance is None else imbalance,
        seed,
        stored.direction(direction or before.direction),
        before.options.get("balance", balance.DEFAULT_BALANCE),
        before.options.get("ranks_per_node"),
    )
    recipe.check(stored, k)
    if before.k % k:
        what = f"k = {k}: the {before.k} parts of {start!r} cannot be joined by as many each"
        hint = f"choose a divisor of {before.k}, or make a partition by gcn-partition add"
        raise UserError(what, hint)
    require(0 < effort < math.inf, f"effort = {effort}: it multiplies the work, 1 is the default")
    if name is None:
        differs = balance.USUAL_IMBALANCE if recipe.imbalance == usual else recipe.imbalance
        ending = _MIXED if objective.exchange == "mixed" else REFINED
        ending = ending if k == before.k else f"-in-{k}{ending}"
        name = start + ending + balance.name_of_numbers(differs, seed)
    with new_partition(stored.path, (name,), "gcn-partition refine", overwrite):
        begun = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        first = solving.joined(graph, before.parts, before.k, k, recipe)
        parts = solving.refined(
            graph, first, k, objective, recipe, effort=effort, deadline=deadline
        )
        parts = solving.mapped(graph, parts, k, recipe)
        seconds = time.perf_counter() - begun

        found = figures_of(stored, parts, k, recipe.ranks_per_node)
        reached = found.of(objective.exchange, recipe.direction)
        was = _MEASURES[objective.exchange](graph, first, k, recipe.direction)
        kept = {key: before.options[key] for key in _KEPT if key in before.options}
        record = {
            "start": {key: getattr(before, key) for key in _STARTED_FROM},
            "refine": asdict(objective) | {"effort": effort, "time_limit": time_limit},
        }
        told = start if k == before.k else f"{start} joined"
        warn_of_imbalance(graph, reached, recipe)
        return put_partition(
            stored, found, overwrite, name=name, parts=parts, k=k, model=before.model,
            tool="refine", direction=recipe.direction, seed=seed, imbalance=recipe.imbalance,
            options=record | kept, seconds=seconds,
            history=[step(told, before.seconds, was), step("refine", seconds, reached)],
            deterministic=before.deterministic and not deadline.decided,
        )  # fmt: skip


def import_parts(
    path: str | os.PathLike[str], file: str | os.PathLike[str], name: str, k: int | None = None,
    *, first: int = 0, direction: str | None = None, overwrite: bool = False,
) -> Partition:  # fmt: skip
    """Store a partition that another program made: one part number per line, vertex by vertex.

    The number of parts is by default the largest part number + 1; parts may be empty. The first
    part has the number ``first`` in the file, 0 or 1.
    """
    stored = store.open_graph(path)
    direction = stored.direction(direction)
    with new_partition(stored.path, (name,), "gcn-partition import-parts", overwrite):
        parts = read_parts(file, stored.manifest.n, k, first)
        if k is None:
            k = int(parts.max(initial=0)) + 1
        balance.check_parts_wanted(k, stored.manifest)
        return put_partition(
            stored, figures_of(stored, parts, k), overwrite, name=name, parts=parts, k=k,
            model="imported", tool="import-parts", direction=direction,
            options={"file": Path(file).name},
        )  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Figures of a stored partition: metrics of both exchanges and traffic of nodes, by direction.

    ``nodes`` is empty where parts are not mapped to nodes, ``by_relation`` where there are no
    relations.
    """

    metrics: dict[str, Metrics]
    mixed: dict[str, Metrics]
    by_relation: dict[str, Metrics]
    nodes: dict[str, NodeTraffic]

    def of(self, exchange: str, direction: str) -> Metrics:
        """The metrics of an exchange."""
        return (self.mixed if exchange == "mixed" else self.metrics)[direction]


def figures_of(
    stored: StoredGraph, parts: np.ndarray, k: int, ranks_per_node: int | None = None,
    working: Callable[[str], None] = lambda stage: None,
) -> Figures:  # fmt: skip
    """Measure a partition that is to be stored."""
    working("measuring rows")
    metrics = measure_field("metrics", stored, parts, k)
    working("measuring the mixed exchange")
    mixed, by_relation = (measure_field(of, stored, parts, k) for of in ("mixed", "by_relation"))
    nodes = measure_field("nodes", stored, parts, k, ranks_per_node)
    return Figures(metrics, mixed, by_relation, nodes)


@at_once()
def measure_field(
    of: str, stored: StoredGraph, parts: np.ndarray, k: int, ranks_per_node: int | None = None
) -> dict[str, Any]:
    """Figures of a partition by direction: a field of :class:`Figures`.

    There is one measurement where the pattern is symmetric.
    """
    graph, symmetric = stored.merged, stored.manifest.symmetric_pattern
    ways = DIRECTIONS[:1] if symmetric else DIRECTIONS
    if of == "by_relation" and stored.manifest.relations:
        return measuring.measure_mixed_both(stored.graph, parts, k, by_relation=True)
    found: dict[str, Any] = {}
    if of == "nodes" and ranks_per_node is not None:
        sent = {way: measuring.exchange_matrix(graph, parts, k, way) for way in ways}
        found = {way: measuring.node_traffic(sent[way], ranks_per_node) for way in ways}
        return found | ({"out": found["in"]} if symmetric else {})
    if of == "metrics":
        found = {way: measuring.measure(graph, parts, k, way) for way in ways}
    elif of == "mixed":
        found |= measuring.measure_mixed_both(graph, parts, k, ways)
    return found | ({"out": replace(found["in"], direction="out")} if found and symmetric else {})


def measuring_share(manifest: Manifest, time_limit: float | None) -> float:
    """The share of a time limit that is kept for measuring what was made."""
    if time_limit is None:
        return 0.0
    return min(_MOST_SHARE, _SECONDS_PER_ARC * manifest.nnz / time_limit)


def put_partition(
    stored: StoredGraph, found: Figures, overwrite: bool, *, tool: str, **facts: Any
) -> Partition:
    """Store a partition with its figures; ``facts`` are other fields of :class:`Partition`."""
    behind = TOOLS.get(tool).distribution if tool in TOOLS else None
    try:
        tool_version = version(behind or "gcnmpi")
    except PackageNotFoundError:
        tool_version = "unknown"
    facts |= {"graph_id": stored.manifest.id, "tool": tool, "tool_version": tool_version}
    made = Partition(**facts, **vars(found))
    return store.write_partition(stored.path, made, overwrite=overwrite)


def existing_partitions(path: Path, name: str | None, k: int, overwrite: bool) -> list[Partition]:
    """The partition of that name and of this graph, or those of a pair, which have k parts."""
    if name is None or overwrite:
        raise UserError("--if-missing needs --name, and excludes --force")
    names = [each for each in store.members(path, name) if store.has_partition(path, each)]
    found = [store.read_partition(path, each) for each in names]
    for partition in found:
        if partition.k != k:
            what = f"{path} has a partition {partition.name!r} into {partition.k} parts, not {k}"
            raise UserError(what, "give another --name, or remove it first")
    return found


def _default_name(model: str, k: int, tool: Tool, options: Settings) -> str:
    """``MODEL-K``, with the objective between where it is not the tool's default."""
    objective, chosen = tool.options.get("objective"), options.get("objective")
    usual = objective is None or chosen == objective.default
    return f"{model}-{k}" if usual else f"{model}-{chosen}-{k}"


def step(name: str, seconds: float, metrics: Metrics) -> dict[str, object]:
    """A row of a partition's history: the figures that partitions are compared by."""
    facts: dict[str, object] = {"step": name, "seconds": seconds, "direction": metrics.direction}
    return facts | {"exchange": metrics.exchange} | metrics.summary()


@contextlib.contextmanager
def new_partition(
    path: Path, names: Sequence[str], purpose: str, overwrite: bool
) -> Iterator[None]:
    """Keep names for the partitions that are being made: free ones, or to be overwritten."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(store.partition_lock(path, name, purpose))
            store.check_free(path, name, overwrite)
        yield


def warn_of_imbalance(graph: Graph, metrics: Metrics, recipe: balance.Recipe) -> None:
    """Warn where the balance asked for was not reached, by name of constraint."""
    for name in balance.single_constraints(graph, recipe.constraints):
        (weights,) = balance.constraint_weights(graph, metrics.direction, (name,))
        heaviest = int(weights.argmax())
        message = imbalance_fault(metrics, name, recipe.imbalance, heaviest, int(weights[heaviest]))
        if message is not None:
            warnings.warn(message, PartitionWarning, stacklevel=3)


def imbalance_fault(
    metrics: Metrics, name: str, asked: float, heaviest: int, weight: int
) -> str | None:
    """How the balance of a constraint was missed, if it was, and whether one row is the reason.

    ``heaviest`` is the vertex of most weight.
    """
    loads = balance.part_loads(metrics, name) or [0]
    average = sum(loads) / metrics.k
    reached = max(loads) / average - 1 if average else 0.0
    # Units cannot be cut: one more than the average is no imbalance.
    if reached <= asked + 5e-4 or max(loads) <= math.ceil(average):
        return None
    what = "" if name == balance.DEFAULT_BALANCE else f" of {name}"
    message = f"imbalance {reached:.4f}{what} was reached, not {asked:g}"
    if name == "nnz" and weight > (1 + asked) * average:
        parts = f"{weight / average:.2f} average parts"
        message += f": the row of vertex {heaviest} alone has {weight} entries, {parts}"
    return message
