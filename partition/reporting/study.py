"""Studies: graphs × models × numbers of parts, as a paper prints them."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partition.backends.catalogue import AUTO
from partition.errors import UserError
from partition.graph.store import Partition, has_partition, open_graph, read_partition
from partition.pipeline.adding import add_partition
from partition.pipeline.portfolio import add_best
from partition.pipeline.recipe import name_of_numbers
from partition.records import atomic_file
from partition.refinement.objective import Objective
from partition.reporting.comparison import BASELINE, compare, geometric_mean

REFINED = "+refined"
# The columns of table 2 of Demirci et al. (2022), as keys of a summary.
TABLE = {
    "volume_avg": "volume avg",
    "max_send": "volume max",
    "messages_avg": "messages avg",
    "max_send_messages": "messages max",
}


@dataclass(frozen=True)
class Recipe:
    """How a partition of a study is made: a model, its options, and whether it is refined.

    Labels are such as ``gp``, ``gp:objective=vol+refined``, ``auto``.
    """

    label: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    refined: bool = False


def parse_recipe(text: str) -> Recipe:
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
    return Recipe(text, model, options, body != text)


def study(
    graphs: Iterable[str | os.PathLike[str]],
    recipes: Sequence[Recipe],
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
        recipes = [Recipe(BASELINE, BASELINE), *recipes]
    rows = []
    for path in graphs:
        stored = open_graph(path)
        towards = stored.direction(direction)
        for k in ks:
            names = {}
            for recipe in recipes:
                name = f"{re.sub('[:,]', '.', recipe.label)}-{k}{name_of_numbers(imbalance, seed)}"
                if towards != stored.manifest.direction:
                    name += f"-{towards}"
                names[name] = recipe.label
                if has_partition(path, name):
                    there = read_partition(path, name, parts=False)
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
    path: str | os.PathLike[str], recipe: Recipe, k: int, name: str, common: dict[str, Any]
) -> Partition:
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


def _check_made_so(partition: Partition, **wanted: float) -> None:
    for what, asked in wanted.items():
        had = getattr(partition, what)
        if had is not None and had != asked:
            raise UserError(
                f"partition {partition.name!r} is there already, made with {what} {had}",
                f"gcn-partition remove it, or ask for {what} {had}",
            )


def _lines(
    case: list[str],
    ratios: Mapping[str, Mapping[str, float | None]],
    ends: Sequence[list[str]],
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
