"""Plots, for people who compare partitions; needs matplotlib."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from partition.errors import UserError

PANELS = {
    "volume_avg": "volume",
    "max_send": "busiest rank",
    "messages_avg": "messages",
    "max_send_messages": "messages of the busiest rank",
}
# Colours that people who cannot tell red from green can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555")


def plot_comparison(rows: Sequence[Mapping[str, Any]], file: str | os.PathLike) -> None:
    """Each model's figures over those of random rows, on logarithmic axes: a panel per figure.

    Parameters
    ----------
    rows : sequence of mapping
        From :func:`partition.comparison.study`.
    file : path
        Its ending says the format: ``.png``, ``.pdf``, ``.svg``.

    Raises
    ------
    UserError
        If matplotlib is not installed, the format is unknown, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError("plots need matplotlib", "pip install 'gcnmpi[plots]'") from error

    cases = list(dict.fromkeys((row["graph"], row["k"]) for row in rows))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    labels = [label for label in labels if label != "rp"]
    ratios = {(r["graph"], r["k"], r["label"]): r["relative"] for r in rows}

    spacing = 1 / (len(labels) + 1.2)
    height = 1.2 + 0.17 * len(cases) * (len(labels) + 1.2)
    figure = Figure(figsize=(11, max(2.6, height)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(PANELS), sharey=True, squeeze=False)[0]
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        shown = [r[key] for r in ratios.values() if r.get(key)]  # a logarithm of 0 there is not
        least, most = min(shown, default=1.0), max(shown, default=1.0)
        for i, label in enumerate(labels):
            found = [
                (at + (i + 1.1) * spacing, ratio)
                for at, case in enumerate(cases)
                if (ratio := ratios.get((*case, label), {}).get(key))
            ]
            places, values = ([x for x, _ in found], [y for _, y in found])
            colour = COLOURS[i % len(COLOURS)]
            axis.hlines(places, values, 1, color=colour, linewidth=2, alpha=0.45)
            axis.plot(values, places, "o", color=colour, markersize=4.5, label=label)
            for place, value in found:
                above = value > 1
                axis.annotate(
                    _short(value), (value, place), (6 if above else -6, 0), fontsize=6.5,
                    textcoords="offset points", ha="left" if above else "right", va="center",
                )  # fmt: skip
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xscale("log")
        # Room for the figures beside the dots: a third of the panel.
        room = (max(most, 1) / min(least, 0.5)) ** 0.33
        axis.set_xlim(min(least, 0.5) / room, max(most, 1) * (room if most > 1.02 else 1.1))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.xaxis.set_minor_formatter(lambda x, _: "")
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        for edge in range(1, len(cases)):
            axis.axhline(edge, color="0.9", linewidth=0.6)
    axes[0].set_yticks([at + 0.5 for at in range(len(cases))], [f"{g}\nk = {k}" for g, k in cases])
    axes[0].set_ylim(len(cases), 0)
    figure.supxlabel(
        "relative to random rows (the line at 1), logarithmic; left is better", fontsize=9
    )
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside upper center", ncols=max(1, len(names)), fontsize=8,
        frameon=False,
    )  # fmt: skip
    try:
        figure.savefig(file, dpi=160)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {file}: {error}") from error


def _short(ratio: float) -> str:
    if ratio >= 0.1:
        return f"{ratio:.2f}"
    digits = 1 - math.floor(math.log10(ratio))
    return f"{ratio:.{min(digits, 4)}f}"
