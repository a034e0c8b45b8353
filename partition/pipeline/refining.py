"""Refining a partition that is in a graph folder."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict
from importlib.metadata import version

from partition.deadline import deadline_for
from partition.errors import UserError
from partition.graph.pairs import member
from partition.graph.store import Partition, open_graph, read_partition, write_partition
from partition.pipeline.adding import MIXED, REFINED, new_partition, step, warn_of_imbalance
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.measuring import figures_of, measured, measuring_share
from partition.pipeline.recipe import USUAL_IMBALANCE, Recipe, name_of_numbers
from partition.pipeline.solving import mapped, refined
from partition.refinement.objective import Objective


def refine_partition(
    path: str | os.PathLike[str],
    start: str,
    *,
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
    name : str, optional
        Default: ``START+refined``, or ``START+mixed`` for a mixed exchange; ``-s1`` and
        ``-e0.03`` follow for another seed than 0 and another imbalance than that of ``start``.
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
    objective, deadline = objective or Objective(), deadline_for(time_limit)
    start = member(path, start, objective.exchange)
    stored, before = open_graph(path), read_partition(path, start)
    graph, k = stored.merged, before.k
    usual = USUAL_IMBALANCE if before.imbalance is None else before.imbalance
    recipe = Recipe(
        usual if imbalance is None else imbalance,
        seed,
        stored.direction(direction or before.direction),
        before.options.get("balance", DEFAULT_BALANCE),
        before.options.get("ranks_per_node"),
    )
    recipe.check(stored, k)
    check_effort(effort)
    if name is None:
        differs = USUAL_IMBALANCE if recipe.imbalance == usual else recipe.imbalance
        ending = MIXED if objective.exchange == "mixed" else REFINED
        name = start + ending + name_of_numbers(differs, seed)
    with new_partition(stored.path, (name,), "gcn-partition refine", overwrite):
        begun = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        parts = refined(graph, before.parts, k, objective, recipe, effort=effort, deadline=deadline)
        parts = mapped(graph, parts, k, recipe)
        seconds = time.perf_counter() - begun

        found = figures_of(stored, parts, k, recipe.ranks_per_node)
        reached = found.of(objective.exchange, recipe.direction)
        was = measured(objective)(graph, before.parts, k, recipe.direction)
        partition = Partition(
            name=name,
            parts=parts,
            k=k,
            graph_id=stored.manifest.id,
            model=before.model,
            tool="refine",
            tool_version=version("gcnmpi"),
            direction=recipe.direction,
            seed=seed,
            imbalance=recipe.imbalance,
            options={
                "start": {key: getattr(before, key) for key in STARTED_FROM},
                "refine": asdict(objective) | {"effort": effort, "time_limit": time_limit},
            }
            | {key: before.options[key] for key in KEPT if key in before.options},
            history=[step(start, before.seconds, was), step("refine", seconds, reached)],
            seconds=seconds,
            deterministic=before.deterministic and not deadline.decided,
            **vars(found),
        )
        warn_of_imbalance(graph, reached, recipe)
        return write_partition(stored.path, partition, overwrite=overwrite)


# Facts that are recorded of the partition that another one was refined from, and those of its
# options that hold for the result.
STARTED_FROM = ("name", "id", "model", "tool", "tool_version", "direction", "seed", "options")
KEPT = ("balance", "ranks_per_node")


def check_effort(effort: float) -> None:
    """A UserError unless it is positive."""
    if not 0 < effort < math.inf:
        raise UserError(f"effort = {effort}: it multiplies the work, 1 is the default")
