"""Figures as files, by matplotlib, which is imported only where one is asked for.

Figures for papers are PDF and PNG, with labelled axes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from partition.charts.figures import PAPER, Bars, Figure, HeatMap, Lines, Points
from partition.charts.svg import log_ticks, number
from partition.errors import UserError, installing, shown
from partition.records import atomic_file, make_room_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

FORMATS = (".png", ".pdf", ".svg")
# Colours that people who cannot tell red from green can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555")
ENDINGS = (".pdf", ".png")  # of figures for papers
SIZE = 4.4, 3.2  # inches: a column and a half


def check_figures(folder: str | os.PathLike[str]) -> None:
    """See that figures can be written to a folder, before the work that they show."""
    check_figure(Path(folder) / "figure.pdf")


def save_figures(figures: Iterable[Figure], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each figure as ``KEY.pdf`` and ``KEY.png``; nothing to draw is an error."""
    written = []
    for figure in figures:
        drawn = new_figure(*SIZE)
        axis = drawn.add_subplot()
        x_title, y_title = map(_text, figure.titles)
        axis.set(xlabel=x_title, ylabel=y_title, axisbelow=True)
        axis.spines[["top", "right"]].set_visible(False)
        _DRAW[type(figure)](axis, figure)
        handles, names = axis.get_legend_handles_labels()
        if len(names) > 1:
            place = {"loc": "outside upper center", "ncols": min(3, len(names))}
            drawn.legend(handles, names, fontsize=7, **place)
        for ending in ENDINGS:
            path = Path(folder) / f"{figure.key}{ending}"
            save_figure(drawn, path)
            written.append(path)
    if not written:
        raise UserError("there is nothing to draw")
    return written


def _lines(axis: Axes, figure: Lines) -> None:
    for one in figure.series:
        colour = PAPER[one.colour]
        if len(one.low):
            axis.fill_between(one.x, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
        axis.plot(
            one.x, one.y, color=colour, linestyle=("-", "--", ":")[one.dash], linewidth=1.4,
            marker="o" if figure.marks or len(one.x) == 1 else "", markersize=4,
            label=_text(one.name),
        )  # fmt: skip
        if one.marked is not None:
            axis.plot(*one.marked, "o", color=colour, markersize=6, markeredgecolor="black")
    log_x, log_y = figure.logarithmic
    if log_x:
        axis.set_xscale("log")
    if len(figure.x_ticks):
        axis.set_xticks(figure.x_ticks, [f"{tick:g}" for tick in figure.x_ticks])
        axis.minorticks_off()
    if log_y:
        axis.set_yscale("log")
        known = [v for one in figure.series for v in (*one.y, *one.low, *one.high) if v > 0]
        marks = log_ticks(min(known), max(known))
        axis.set_yticks(marks, [number(mark) for mark in marks])
        axis.minorticks_off()
    axis.grid(color="0.9", linewidth=0.6)


def _points(axis: Axes, figure: Points) -> None:
    for one in figure.series:
        axis.scatter(one.x, one.y, color=PAPER[one.colour], s=24, label=_text(one.name))
    axis.set(xlim=(0, None), ylim=(0, None))
    axis.grid(color="0.9", linewidth=0.6)


def _bars(axis: Axes, figure: Bars) -> None:
    places, below = np.arange(len(figure.columns)), np.zeros(len(figure.columns))
    for colour, (name, values) in zip(figure.colours, figure.stacks.items(), strict=True):
        heights = np.nan_to_num(np.asarray(values, np.float64))
        own = [PAPER[each] for each in figure.own_colours] or PAPER[colour]
        axis.bar(places, heights, 0.86, below, color=own, label=_text(name))
        below = below + heights
    if figure.mark is not None:
        axis.axhline(figure.mark[1], color="0.2", linestyle="--", linewidth=1, label=figure.mark[0])
    _ticks(axis.set_xticks, figure.ticks)
    axis.grid(axis="y", color="0.9", linewidth=0.6)


def _heat_map(axis: Axes, figure: HeatMap) -> None:
    rows, columns = figure.values.shape
    edges = np.asarray(figure.edges or np.arange(columns + 1), np.float64)
    values = np.ma.masked_invalid(figure.values)
    image = axis.pcolormesh(
        edges, np.arange(rows + 1), values, cmap="Blues", vmin=min(0.0, float(values.min())),
        rasterized=True,
    )  # fmt: skip
    axis.invert_yaxis()
    _ticks(axis.set_yticks, figure.row_ticks, 0.5)
    if not len(figure.edges):
        _ticks(axis.set_xticks, figure.column_ticks, 0.5)
    axis.figure.colorbar(image, label=_text(figure.colour_label))


def _ticks(put: Callable[..., object], names: Sequence[str], middle: float = 0.0) -> None:
    step = max(1, -(-len(names) // 12))
    put(np.arange(0, len(names), step) + middle, [_text(name) for name in names[::step]])


def _text(text: str) -> str:
    return shown(text).replace("$", r"\$")


_DRAW: dict[type, Callable[..., None]] = {
    Lines: _lines, Points: _points, Bars: _bars, HeatMap: _heat_map,
}  # fmt: skip


def check_figure(file: str | os.PathLike[str]) -> None:
    """See that a figure can be written to ``file``, before the work that it shows.

    Its ending is one of ``FORMATS``, matplotlib is installed, and the folder can be written to.
    """
    if Path(file).suffix.lower() not in FORMATS:
        raise UserError(f"{file} is not a name for a figure", f"it ends in {', '.join(FORMATS)}")
    _matplotlib()
    make_room_for(file)


def new_figure(width: float, height: float) -> Canvas:
    """An empty matplotlib figure of so many inches, which needs no screen."""
    figure_class, canvas = _matplotlib()
    figure = figure_class(figsize=(width, height), layout="constrained")
    canvas(figure)
    return figure


def save_figure(figure: Canvas, file: str | os.PathLike[str]) -> None:
    """Write a figure in the format that the ending of ``file`` says, whole or not at all."""
    check_figure(file)
    with atomic_file(file) as out:
        figure.savefig(out, dpi=160, format=Path(file).suffix[1:].lower())


def _matplotlib() -> tuple[Callable[..., Canvas], Callable[[Canvas], object]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError("figures need matplotlib", installing("plots")) from error
    return Figure, FigureCanvasAgg
