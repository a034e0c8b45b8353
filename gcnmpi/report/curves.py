"""Loss and metrics of runs over their epochs, as a plot."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gcnmpi.report.groups import Record
from partition.charts.paper import COLOURS, new_figure, save_figure
from partition.errors import shown


def plot_curves(
    runs: Sequence[tuple[str, Sequence[Record]]],
    file: str | os.PathLike,
    metrics: Sequence[str] = ("accuracy",),
) -> None:
    """Draw a line for each run, (name, epochs of its record), in a panel for loss and each metric.

    A panel of which no run has a value is left out. The ending of the file says the format:
    ``.png``, ``.pdf``, ``.svg``.
    """
    panels = {"loss": "training loss"}
    panels |= {f"val_{metric}": f"validation {metric.replace('_', ' ')}" for metric in metrics}
    curves = {
        key: [
            [(e["epoch"], e[key]) for e in epochs if e.get(key) is not None] for _, epochs in runs
        ]
        for key in panels
    }
    curves = {key: lines for key, lines in curves.items() if any(lines)}
    figure = new_figure(5.5 * len(curves), 4)
    for axis, (key, lines) in zip(
        figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True
    ):
        for number, ((name, _), points) in enumerate(zip(runs, lines, strict=True)):
            axis.plot(
                [epoch for epoch, _ in points],
                [value for _, value in points],
                color=COLOURS[number % len(COLOURS)],
                linestyle=("-", "--", ":")[number // len(COLOURS) % 3],
                linewidth=1.4,
                marker="" if len(points) > 1 else "o",
                label=shown(name).replace("$", r"\$"),
            )
        axis.set_xlabel("epoch")
        axis.set_ylabel(panels[key])
        axis.grid(color="0.9", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)), fontsize=8)
    save_figure(figure, file)
