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
    """Bars of each model's figures over those of random rows: a panel per figure.

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

    height = 1.1 + 0.16 * len(cases) * (len(labels) + 1.4)
    figure = Figure(figsize=(10.5, max(2.6, height)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(PANELS), sharey=True, squeeze=False)[0]
    thickness = 1 / (len(labels) + 1.4)
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for i, label in enumerate(labels):
            found = [
                (at + (i + 0.7) * thickness, ratio)
                for at, case in enumerate(cases)
                if (ratio := ratios.get((*case, label), {}).get(key)) is not None
            ]
            positions, lengths = zip(*found, strict=True) if found else ((), ())
            axis.barh(
                positions, lengths, thickness, align="edge", color=COLOURS[i % len(COLOURS)],
                label=label,
            )  # fmt: skip
            for position, length in found:
                axis.text(
                    length, position + thickness / 2, f" {_short(length)}", va="center", fontsize=6
                )
        axis.axvline(1, color="black", linewidth=0.8, linestyle=":")
        longest = max((r[key] for r in ratios.values() if r[key] is not None), default=1)
        axis.set_xlim(0, 1.18 * max(1, longest))
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks([at + 0.5 for at in range(len(cases))], [f"{g}\nk = {k}" for g, k in cases])
    axes[0].set_ylim(len(cases), 0)
    axes[0].tick_params(axis="y", length=0)
    for axis in axes[1:]:
        axis.tick_params(axis="y", length=0)
    figure.supxlabel("relative to random rows (dotted line); less is better", fontsize=9)
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
    if ratio == 0 or ratio >= 0.1:
        return f"{ratio:.2f}"
    digits = 1 - math.floor(math.log10(ratio))
    return f"{ratio:.{min(digits, 4)}f}"
