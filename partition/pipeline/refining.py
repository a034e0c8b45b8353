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
from partition.pipeline.adding import (
    MIXED,
    REFINED,
    USUAL_IMBALANCE,
    check_direction,
    check_imbalance,
    check_seed,
    name_of_numbers,
    new_partition,
    step,
    warn_of_imbalance,
)
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.balance import parse_balance
from partition.pipeline.measuring import measure_both, measure_nodes, measured, measuring_share
from partition.pipeline.solving import mapped, refined
from partition.refinement.objective import Objective


def refine_partition(
    path: str | os.PathLike,
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

    What it was balanced by, and for how many ranks per node, stays.

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
    seed : int
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

    Raises
    ------
    UserError
        For a bad argument, or a name that is taken. Nothing is written then.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached.
    """
    objective, deadline = objective or Objective(), deadline_for(time_limit)
    start = member(path, start, objective.exchange)
    stored, before = open_graph(path), read_partition(path, start)
    graph, k = stored.graph, before.k
    direction = check_direction(direction or before.direction)
    usual = USUAL_IMBALANCE if before.imbalance is None else before.imbalance
    imbalance = usual if imbalance is None else imbalance
    check_imbalance(imbalance, graph, k, direction)
    check_seed(seed)
    check_effort(effort)
    if name is None:
        differs = USUAL_IMBALANCE if imbalance == usual else imbalance
        name = (
            start
            + (MIXED if objective.exchange == "mixed" else REFINED)
            + name_of_numbers(differs, seed)
        )
    with new_partition(stored.path, (name,), "gcn-partition refine", overwrite):
        balance = before.options.get("balance", DEFAULT_BALANCE)

        begun = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        parts = refined(
            graph, before.parts, k, objective, imbalance=imbalance, seed=seed, direction=direction,
            balance=balance, effort=effort, deadline=deadline,
        )  # fmt: skip
        record = {
            "start": {key: getattr(before, key) for key in STARTED_FROM},
            "refine": asdict(objective) | {"effort": effort, "time_limit": time_limit},
        } | {key: before.options[key] for key in KEPT if key in before.options}
        per_node = record.get("ranks_per_node")
        if per_node is not None:
            parts = mapped(graph, parts, k, per_node, direction, seed)
        seconds = time.perf_counter() - begun

        metrics = measure_both(graph, stored.manifest, parts, k)
        mixed = measure_both(graph, stored.manifest, parts, k, mixed=True)
        reached = (mixed if objective.exchange == "mixed" else metrics)[direction]
        was = measured(objective)(graph, before.parts, k, direction)
        partition = Partition(
            name=name,
            parts=parts,
            k=k,
            graph_id=stored.manifest.id,
            model=before.model,
            tool="refine",
            tool_version=version("gcnmpi"),
            direction=direction,
            seed=seed,
            imbalance=imbalance,
            options=record,
            metrics={key: asdict(value) for key, value in metrics.items()},
            mixed={key: asdict(value) for key, value in mixed.items()},
            nodes=measure_nodes(graph, stored.manifest, parts, k, per_node),
            history=[
                step(start, before.seconds, was),
                step("refine", seconds, reached),
            ],
            seconds=seconds,
            deterministic=before.deterministic and not deadline.decided,
        )
        warn_of_imbalance(graph, reached, imbalance, parse_balance(balance))
        return write_partition(stored.path, partition, overwrite=overwrite)


# What is recorded of the partition that another one was refined from, and what of its options
# holds for the result.
STARTED_FROM = ("name", "id", "model", "tool", "tool_version", "direction", "seed", "options")
KEPT = ("balance", "ranks_per_node")


def check_effort(effort: float) -> None:
    """A UserError unless it is positive."""
    if not 0 < effort < math.inf:
        raise UserError(f"effort = {effort}: it multiplies the work, 1 is the default")
