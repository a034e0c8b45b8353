"""``gcnmpi bench-schemes``: every variant that fits the ranks, measured beside its prediction."""

from __future__ import annotations

import dataclasses
import gc
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gcnmpi.core.resident import forget_peak, peak_bytes
from gcnmpi.mpi.comm import Comm, from_root, maximum
from gcnmpi.mpi.hosts import most_ranks_a_node
from gcnmpi.options.config import Config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting, Skipped, candidates, skip
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train
from partition.errors import UserError
from partition.graph.store import open_graph

Line = dict[str, Any]
_WARM_UP = 1  # epochs that are not counted
PREDICTED = ("seconds", "sent", "received", "messages", "memory", "phases")


def bench(
    comm: Comm,
    graph: str | os.PathLike,
    config: Config,
    machine: Machine,
    *,
    schemes: Iterable[str] | None = None,
    partitions: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    epochs: int = 5,
    on_line: Callable[[Line], None] = lambda line: None,
) -> list[Line]:
    """Train a few epochs under each variant, one after the other; one epoch more is not counted.

    Without ``schemes`` and ``partitions`` all schemes are tried, and all partitions that fit.
    ``given`` are keys that the user gave, by full names: variants with other values are left
    out. ``on_line`` is called with each line when it is there, on every rank.

    The lines are the same on every rank, one a variant: ``scheme``, ``options``, ``partition``,
    ``ranks``, and either ``skipped`` (why) or, measured and predicted, ``seconds``, ``received``,
    ``sent``, ``messages`` and ``memory``, of the rank that has most; ``ratio`` is measured over
    predicted seconds, and ``warnings`` are the run's.
    """
    per_node = most_ranks_a_node(comm)

    def prepare() -> tuple[list[tuple[Candidate, Line]], list[Skipped]]:
        setting = Setting(open_graph(graph), config, machine, per_node, given=given)
        return _prepare(setting, comm.size, schemes, partitions)

    found, missing = from_root(comm, prepare)
    lines = []
    for skipped in missing:
        lines.append({**_name(skipped, comm.size), "skipped": skipped.reason})
        on_line(lines[-1])
    for candidate, expected in found:
        line = _name(candidate, comm.size)
        try:
            line |= _measure(comm, graph, config, candidate, epochs)
            line |= expected | {"ratio": line["seconds"] / expected["predicted_seconds"]}
        except UserError as error:
            if not getattr(error, "agreed", False):
                raise
            line["skipped"] = error.message
        lines.append(line)
        on_line(line)
        # Buffers and requests go with the variant, before the next one takes its place.
        gc.collect()
    return lines


def _prepare(
    setting: Setting, size: int, schemes: Iterable[str] | None, partitions: Sequence[str]
) -> tuple[list[tuple[Candidate, Line]], list[Skipped]]:
    """The variants with what is predicted of each, and those that cannot be."""
    found, skipped = candidates(
        setting, size, schemes=schemes, partitions=partitions, estimate="never"
    )
    expected = []
    for candidate in found:
        try:
            cost = asdict(setting.cost(candidate, size))
        except UserError as error:
            skip(skipped, candidate, error)
            continue
        expected.append((candidate, {f"predicted_{name}": cost[name] for name in PREDICTED}))
    return expected, skipped


def _measure(
    comm: Comm, graph: str | os.PathLike, config: Config, candidate: Candidate, epochs: int
) -> Line:
    """Train a few epochs under a variant; each number is that of the rank that has most."""
    short = dataclasses.replace(config.train, epochs=epochs + _WARM_UP, eval_every=0)
    config = dataclasses.replace(config, scheme=candidate.scheme, train=short)
    forget_peak()
    name = candidate.partition.name if candidate.partition else None
    problem = open_problem(comm, graph, name, config)
    result = train(problem)
    end = result.end.record()
    return {
        "seconds": statistics.median(epoch.seconds for epoch in result.epochs[_WARM_UP:]),
        "sent": max(end["bytes_sent"]) // short.epochs,
        "received": max(end["bytes_received"]) // short.epochs,
        "messages": max(end["messages_sent"]) // short.epochs,
        "memory": int(maximum(comm, peak_bytes())),
        "epochs": epochs,
        "threads": problem.runtime.kernel.threads,
        "phases": {
            name: times["max"] / short.epochs
            for name, times in end["phases"].items()
            if name != "load"
        },
        "warnings": list(problem.told),
    }


def _name(variant: Candidate | Skipped, ranks: int) -> Line:
    """The names and numbers by which a line differs from the others."""
    scheme, partition = variant.scheme, None
    if isinstance(variant, Candidate):
        scheme, partition = variant.scheme.name, variant.partition and variant.partition.name
    options = variant.options
    return {"scheme": scheme, "options": options, "partition": partition, "ranks": ranks}
