"""Plots, for people who compare partitions; needs matplotlib."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from partition.charts.paper import COLOURS, logarithmic, new_figure, save_figure
from partition.errors import UserError
from partition.graph.store import Partition
from partition.reporting.comparison import BASELINE

PANELS = {
    "volume_avg": "volume",
    "max_send": "rows sent by the busiest rank",
    "messages_avg": "messages",
    "max_send_messages": "messages of the busiest rank",
}


def plot_comparison(rows: Sequence[Mapping[str, Any]], file: str | os.PathLike[str]) -> None:
    """Figures of partitions over those of random rows, on logarithmic axes: a panel per figure.

    Each row of :func:`partition.reporting.study.study` is a line of the plot, under its graph and
    k. The ending of the file says the format: ``.png``, ``.pdf``, ``.svg``.
    """
    rows = [row for row in rows if row["model"] != BASELINE]
    if not rows:
        raise UserError("there is nothing to plot: random rows are what others are compared with")
    places, ticks = _places(rows)
    kinds = list(dict.fromkeys(row["label"] for row in rows))
    if len(kinds) > len(COLOURS):
        kinds = list(dict.fromkeys(row["model"] for row in rows))
    colours = [
        COLOURS[kinds.index(row["label" if row["label"] in kinds else "model"]) % len(COLOURS)]
        for row in rows
    ]

    figure = new_figure(11, max(2.2, 1.0 + 0.19 * len(ticks)))
    axes = figure.subplots(1, len(PANELS), sharey=True, squeeze=False)[0]
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        # A ratio of 0 has no place on a logarithmic axis.
        found = [
            (row["relative"][key], place, colour)
            for row, place, colour in zip(rows, places, colours, strict=True)
            if row["relative"].get(key)
        ]
        for value, place, colour in found:
            above = value > 1
            axis.hlines(place, value, 1, color=colour, linewidth=2, alpha=0.45)
            axis.plot(value, place, "o", color=colour, markersize=4.5)
            axis.annotate(
                _short(value), (value, place), (6 if above else -6, 0), fontsize=6.5,
                textcoords="offset points", ha="left" if above else "right", va="center",
            )  # fmt: skip
        axis.axvline(1, color="black", linewidth=0.8)
        logarithmic(axis, *_limits([value for value, _, _ in found]))
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("relative to random rows, log scale", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_ylabel("partition", fontsize=8)
    axes[0].set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    for place, label in enumerate(axes[0].get_yticklabels()):
        label.set_fontweight("normal" if place in places else "bold")
    axes[0].set_ylim(len(ticks) - 0.4, -0.6)
    save_figure(figure, file)


def plot_choices(partitions: Sequence[Partition], file: str | os.PathLike[str]) -> None:
    """Draw all that ``--model auto`` tried: seconds against the predicted time of an exchange.

    A panel for each partition, a point for each candidate, in the colour of its tool; filled once
    it was refined, with a ring around the one that was kept.
    """
    tried = [[row for row in each.history if "predicted" in row] for each in partitions]
    if not all(tried):
        raise UserError(
            f"{partitions[0].name!r} was not chosen among several partitions",
            "--plot draws what --model auto tried, or types and relations of a graph without NAME",
        )
    kinds = list(dict.fromkeys(_tool(row) for rows in tried for row in rows))
    figure = new_figure(5.2 * len(partitions), 3.8)
    panels = figure.subplots(1, len(partitions), squeeze=False)[0]
    for axis, partition, rows in zip(panels, partitions, tried, strict=True):
        for row in rows:
            colour = COLOURS[kinds.index(_tool(row)) % len(COLOURS)]
            place = row["seconds"], 1e6 * row["predicted"]
            inside = colour if row.get("effort") else "none"
            axis.plot(*place, "o", color=colour, markerfacecolor=inside, markersize=5)
            if row["chosen"]:
                axis.plot(*place, "o", color="black", markerfacecolor="none", markersize=10)
            axis.annotate(row["step"], place, xytext=(5, 4), textcoords="offset points", fontsize=6)
        axis.set_title(f"{partition.name}: filled points are refined", fontsize=8)
        axis.set_xlabel("seconds of tool and refinement", fontsize=8)
        axis.set_ylabel("predicted µs of an exchange", fontsize=8)
        axis.margins(x=0.15)
        axis.tick_params(labelsize=8)
        axis.grid(color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, file)


def _tool(row: Mapping[str, Any]) -> str:
    """The tool of a candidate, whatever the seed and the exchange: ``hp`` of ``hp+1-mixed``."""
    return re.split(r"[+]|-mixed", row["step"])[0]


def _places(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[int, str]]]:
    """The line of each row, and what is written beside each line: headings of cases too."""
    places: list[int] = []
    ticks: list[tuple[int, str]] = []
    case = None
    for row in rows:
        if (row["graph"], row["k"]) != case:
            case = (row["graph"], row["k"])
            ticks.append((len(ticks), f"{row['graph']}, k = {row['k']}"))
        places.append(len(ticks))
        ticks.append((len(ticks), row["label"]))
    return places, ticks


def _limits(values: list[float]) -> tuple[float, float]:
    """From the least to the most, the line at 1 among them, with room for the figures beside."""
    least, most = min([1.0, *values]), max([1.0, *values])
    room = max(most / least, 1.2) ** 0.35
    left = least / room if least < 1 else 1 / room**0.2
    return left, most * room if most > 1 else room**0.2


def _short(ratio: float) -> str:
    if ratio >= 0.1:
        return f"{ratio:.2f}"
    digits = 1 - math.floor(math.log10(ratio))
    return f"{ratio:.{min(digits, 4)}f}"
