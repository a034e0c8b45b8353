"""Comparing the partitions of a graph with each other and with random rows; whole studies."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partition.backends.catalogue import AUTO
from partition.errors import UserError
from partition.graph import store
from partition.graph.metrics import Metrics, measure
from partition.pipeline.adding import add_partition, make_parts
from partition.pipeline.balance import name_of_numbers
from partition.pipeline.portfolio import add_best
from partition.records import atomic_file
from partition.refinement.objective import Objective

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
    stored = store.open_graph(path)
    direction = stored.direction(direction)
    existing = [
        store.read_partition(path, name, parts=False) for name in store.list_partitions(path)
    ]
    named = [each for name in names for each in store.members(path, name)]
    wanted = [store.read_partition(path, name, parts=False) for name in named] or existing
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
    stored = {row["name"]: store.read_partition(path, row["name"], parts=False) for row in rows}
    return {row["name"]: stored[row["name"]].metrics[row["direction"]] for row in rows}


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; 0 if one is; None if there are none."""
    known = [value for value in values if value is not None]
    if not known or min(known) <= 0:
        return 0.0 if known else None
    return math.exp(sum(map(math.log, known)) / len(known))


def _summary(
    partition: store.Partition, direction: str, figures: str = "metrics"
) -> dict[str, float]:
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


REFINED = "+refined"
# The columns of table 2 of Demirci et al. (2022), as keys of a summary.
TABLE = {
    "volume_avg": "volume avg",
    "max_send": "volume max",
    "messages_avg": "messages avg",
    "max_send_messages": "messages max",
}


@dataclass(frozen=True)
class StudyRecipe:
    """How a partition of a study is made: a model, its options, and whether it is refined.

    Labels are such as ``gp``, ``gp:objective=vol+refined``, ``auto``.
    """

    label: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    refined: bool = False


def parse_recipe(text: str) -> StudyRecipe:
    """A recipe from ``MODEL[:OPTION=VALUE,…][+refined]``; names are checked when it is made."""
    body = text.removesuffix(REFINED)
    model, colon, rest = body.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
    if not model.isalnum() or any(not key.isidentifier() or not value for key, _, value in pairs):
        form = f"MODEL, MODEL:OPTION=VALUE,…, with or without {REFINED}"
        raise UserError(f"{text!r} is not a recipe", form)
    options = {key: value for key, _, value in pairs}
    if len(options) < len(pairs):
        raise UserError(f"{text!r} is not a recipe: an option is given twice")
    return StudyRecipe(text, model, options, body != text)


def study(
    graphs: Iterable[str | os.PathLike[str]],
    recipes: Sequence[StudyRecipe],
    ks: Sequence[int],
    *,
    direction: str | None = None,
    imbalance: float = 0.01,
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Partition every graph by every recipe into every number of parts, and compare.

    Partitions are stored in the graph folders and taken from there when they are there already,
    so a study that was interrupted goes on where it stopped. Random rows are always among them.
    The direction is by default each graph's own; ``report`` is told what is being done. A stored
    partition that was made with another seed or imbalance is refused.

    Returns
    -------
    list of dict
        The rows of :func:`compare` with ``graph`` and ``label``, by graph, k and recipe.
    """
    labels = [recipe.label for recipe in recipes]
    if BASELINE not in labels:
        recipes = [StudyRecipe(BASELINE, BASELINE), *recipes]
    rows = []
    for path in graphs:
        stored = store.open_graph(path)
        towards = stored.direction(direction)
        for k in ks:
            names = {}
            for recipe in recipes:
                name = f"{re.sub('[:,]', '.', recipe.label)}-{k}{name_of_numbers(imbalance, seed)}"
                if towards != stored.manifest.direction:
                    name += f"-{towards}"
                names[name] = recipe.label
                if store.has_partition(path, name):
                    there = store.read_partition(path, name, parts=False)
                    _check_made_so(there, imbalance=imbalance, seed=seed)
                    continue
                report(f"{stored.manifest.name}: {name}")
                common = {"imbalance": imbalance, "seed": seed, "direction": towards}
                _make(path, recipe, k, name, common)
            found = {row["name"]: row for row in compare(path, names, towards)}
            for name, label in names.items():
                rows.append({"graph": stored.manifest.name, "label": label} | found[name])
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of a study in the form of table 2 of Demirci et al. (2022), as Markdown.

    Averages and maxima over the parts of what one sends in an expand, over those of random rows;
    the first recipe over each other one; at the end the geometric means over graphs and k.
    """
    lines = [["graph", "k", "model", *TABLE.values(), "imbalance", "seconds"]]
    rows = [row for row in rows if row["label"] != BASELINE]
    for graph, k in dict.fromkeys((row["graph"], row["k"]) for row in rows):
        case = {row["label"]: row for row in rows if (row["graph"], row["k"]) == (graph, k)}
        ratios = {label: row["relative"] for label, row in case.items()}
        ends = [[f"{row['imbalance']:.3f}", f"{row['seconds']:.1f}"] for row in case.values()]
        lines += _lines([graph, str(k)], ratios, ends)
    means = {
        label: {
            key: geometric_mean(row["relative"][key] for row in rows if row["label"] == label)
            for key in TABLE
        }
        for label in dict.fromkeys(row["label"] for row in rows)
    }
    lines += _lines(["mean", ""], means, [["", ""]] * len(means))
    # Columns are padded, so that the source reads well too.
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = 3  # columns of texts
    padded = [
        [cell.ljust(width) for cell, width in zip(line[:left], widths, strict=False)]
        + [cell.rjust(width) for cell, width in zip(line[left:], widths[left:], strict=True)]
        for line in lines
    ]
    padded.insert(
        1, ["-" * w for w in widths[:left]] + ["-" * (w - 1) + ":" for w in widths[left:]]
    )
    return "".join(f"| {' | '.join(line)} |\n" for line in padded)


def write_csv(rows: Sequence[Mapping[str, Any]], file: str | os.PathLike[str]) -> None:
    """One line per partition of a study: its figures, and ``relative_…`` to random rows."""
    flat = [
        {key: value for key, value in row.items() if key not in ("relative", "nodes")}
        | {f"relative_{key}": value for key, value in row["relative"].items()}
        for row in rows
    ]
    with atomic_file(file, "w") as out:
        writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def _make(
    path: str | os.PathLike[str], recipe: StudyRecipe, k: int, name: str, common: dict[str, Any]
) -> store.Partition:
    options = dict(recipe.options)
    if "time_limit" in options:
        with contextlib.suppress(ValueError):
            common["time_limit"] = float(options.pop("time_limit"))
        if common.get("time_limit", 0) <= 0:
            raise UserError(f"{recipe.label!r}: time_limit=SECONDS, a positive number")
    if recipe.model == AUTO:
        if options or recipe.refined:
            raise UserError(f"{recipe.label!r}: the one option of auto here is time_limit=SECONDS")
        return add_best(path, k, name=name, exchange="rows", **common)[0]
    refine = Objective() if recipe.refined else None
    return add_partition(path, recipe.model, k, name=name, refine=refine, **common, **options)


def _check_made_so(partition: store.Partition, **wanted: float) -> None:
    for what, asked in wanted.items():
        had = getattr(partition, what)
        if had is not None and had != asked:
            raise UserError(
                f"partition {partition.name!r} is there already, made with {what} {had}",
                f"gcn-partition remove it, or ask for {what} {had}",
            )


def _lines(
    case: list[str], ratios: Mapping[str, Mapping[str, float | None]], ends: Sequence[list[str]]
) -> Iterator[list[str]]:
    """A line for each recipe, and one for the first recipe's figures over those of each other."""
    for (label, of), end in zip(ratios.items(), ends, strict=True):
        yield [*case, label, *(_cell(of[key]) for key in TABLE), *end]
    first, *others = ratios
    for other in others:
        pairs = [(ratios[first][key], ratios[other][key]) for key in TABLE]
        cells = [
            _cell(above / below if above is not None and below else None) for above, below in pairs
        ]
        yield [*case, f"{first} / {other}", *cells, "", ""]


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.4f}"
