"""Studies: graphs × models × numbers of parts, as a paper prints them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partition.backends.catalogue import AUTO
from partition.errors import UserError
from partition.graph.store import Partition, has_partition, open_graph, read_partition
from partition.pipeline.adding import add_partition
from partition.pipeline.balance import name_of_numbers
from partition.pipeline.portfolio import add_best
from partition.records import atomic_file
from partition.refinement.objective import Objective
from partition.reporting.comparison import BASELINE, TABLE, compare, means

REFINED = "+refined"


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
    head = ["graph", "k", "model", *TABLE.values(), "imbalance", "seconds"]
    lines = []
    cases = dict.fromkeys((row["graph"], row["k"]) for row in rows)
    for graph, k in cases:
        case = [r for r in rows if (r["graph"], r["k"]) == (graph, k) and r["label"] != BASELINE]
        for row in case:
            figures = [_cell(row["relative"][key]) for key in TABLE]
            ends = [f"{row['imbalance']:.3f}", f"{row['seconds']:.1f}"]
            lines.append([graph, str(k), row["label"], *figures, *ends])
        lines += _ratios({row["label"]: row["relative"] for row in case}, [graph, str(k)], ["", ""])
    averages = means([row for row in rows if row["label"] != BASELINE], "label")
    for label, ratios in averages.items():
        lines.append(["mean", "", label, *(_cell(ratios[key]) for key in TABLE), "", ""])
    lines += _ratios(averages, ["mean", ""], ["", ""])
    return _markdown(head, lines)


def write_csv(rows: Sequence[Mapping[str, Any]], file: str | os.PathLike[str]) -> None:
    """One line per partition of a study: its figures, and ``relative_…`` to random rows."""
    flat = [
        {key: value for key, value in row.items() if key not in ("relative", "nodes")}
        | {f"relative_{key}": value for key, value in row["relative"].items()}
        for row in rows
    ]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    with atomic_file(file, "w") as out:
        out.write(text.getvalue())


def _make(
    path: str | os.PathLike[str], recipe: Recipe, k: int, name: str, common: dict[str, Any]
) -> Partition:
    options = dict(recipe.options)
    if "time_limit" in options:
        if not _is_number(options["time_limit"]):
            raise UserError(f"{recipe.label!r}: time_limit=SECONDS, a positive number")
        common["time_limit"] = float(options.pop("time_limit"))
    if recipe.model == AUTO:
        if options or recipe.refined:
            raise UserError(f"{recipe.label!r}: the one option of auto here is time_limit=SECONDS")
        return add_best(path, k, name=name, exchange="rows", **common)[0]
    refine = Objective() if recipe.refined else None
    return add_partition(path, recipe.model, k, name=name, refine=refine, **common, **options)


def _is_number(text: str | float) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _check_made_so(partition: Partition, **wanted: float) -> None:
    for what, asked in wanted.items():
        had = getattr(partition, what)
        if had is not None and had != asked:
            raise UserError(
                f"partition {partition.name!r} is there already, made with {what} {had}",
                f"gcn-partition remove it, or ask for {what} {had}",
            )


def _ratios(
    figures: Mapping[str, Mapping[str, float | None]], before: list[str], after: list[str]
) -> list[list[str]]:
    """Lines with the first recipe's figures over those of each other one."""
    if not figures:
        return []
    first, *others = figures
    lines = []
    for other in others:
        cells = []
        for key in TABLE:
            above, below = figures[first][key], figures[other][key]
            cells.append(_cell(above / below if above is not None and below else None))
        lines.append([*before, f"{first} / {other}", *cells, *after])
    return lines


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.4f}"


def _markdown(head: list[str], lines: list[list[str]]) -> str:
    """Columns padded, so that the source reads well too."""
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    left = head.index("model") + 1

    def row(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([row(head), row(rule), *map(row, lines)]) + "\n"
