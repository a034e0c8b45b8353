"""Comparing the partitions of a graph with each other and with random rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from partition.errors import UserError
from partition.graph.metrics import Metrics, measure
from partition.graph.store import Partition, list_partitions, members, open_graph, read_partition
from partition.pipeline.solving import make_parts

BASELINE = "rp"


def compare(
    path: str | os.PathLike[str], names: Iterable[str] = (), direction: str | None = None
) -> list[dict[str, object]]:
    """The figures of partitions of one graph, beside those of random rows with as many parts.

    All partitions there are, if none is named; the direction is by default the graph's own.

    Returns
    -------
    list of dict
        One per partition, by k and then by volume: ``name``, ``model``, ``tool``, ``k``,
        ``direction``, ``seconds``, the figures of :meth:`partition.graph.metrics.Metrics.summary`;
        ``relative``: each of these over that of the ``baseline`` (None over 0), which is the
        first stored partition of model rp with that k, or one made on the fly with seed 0;
        ``mixed``: the same figures of the mixed exchange, None where they are not known, and
        ``mixed_relative``: these over those of an exchange of random rows, as rows;
        ``nodes``: the figures of :meth:`partition.graph.metrics.NodeTraffic.summary`, or None.
    """
    stored = open_graph(path)
    direction = stored.direction(direction)
    existing = [read_partition(path, name, parts=False) for name in list_partitions(path)]
    named = [each for name in names for each in members(path, name)]
    wanted = [read_partition(path, name, parts=False) for name in named] or existing
    baselines: dict[int, tuple[str, dict[str, float]]] = {}
    for partition in existing:
        if partition.model == BASELINE and partition.tool == "random":
            summary = _summary(partition, direction)
            baselines.setdefault(partition.k, (partition.name, summary))
    for k in {partition.k for partition in wanted} - baselines.keys():
        parts = make_parts(stored.merged, BASELINE, k)
        summary = measure(stored.merged, parts, k, direction).summary()
        baselines[k] = "rp, seed 0, computed", summary

    rows = []
    for partition in wanted:
        label, yardstick = baselines[partition.k]
        summary = _summary(partition, direction)
        facts = {key: getattr(partition, key) for key in ("name", "model", "tool", "k", "seconds")}
        relative = _relative(summary, yardstick)
        mixed = _summary(partition, direction, "mixed") if partition.mixed else None
        facts |= {"mixed": mixed, "mixed_relative": _relative(mixed or {}, yardstick)}
        traffic = partition.nodes.get(direction)
        facts |= {"direction": direction} | summary
        facts |= {"nodes": None if traffic is None else traffic.summary()}
        rows.append(facts | {"baseline": label, "relative": relative})
    return sorted(rows, key=lambda row: (row["k"], row["volume"], row["name"]))


def metrics_of_parts(
    path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]
) -> dict[str, Metrics]:
    """By name, what each part of the compared partitions has and sends."""
    stored = {row["name"]: read_partition(path, row["name"], parts=False) for row in rows}
    return {row["name"]: stored[row["name"]].metrics[row["direction"]] for row in rows}


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; 0 if one is; None if there are none."""
    known = [value for value in values if value is not None]
    if not known or min(known) <= 0:
        return 0.0 if known else None
    return math.exp(sum(map(math.log, known)) / len(known))


def _summary(partition: Partition, direction: str, figures: str = "metrics") -> dict[str, float]:
    by_direction: Mapping[str, Metrics] = getattr(partition, figures)
    if direction not in by_direction:
        raise UserError(f"partition {partition.name!r} was stored without metrics")
    return by_direction[direction].summary()


def _relative(
    summary: Mapping[str, float], yardstick: Mapping[str, float]
) -> dict[str, float | None]:
    return {
        key: value / yardstick[key] if yardstick.get(key) else None
        for key, value in summary.items()
    }
