"""The content of figures; and figures as files for papers.

Pages have them as SVG (:mod:`.page`). Files are drawn by matplotlib, which is imported only where
one is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partition.charts.numbers import log_ticks, number
from partition.errors import UserError, installing, shown
from partition.records import atomic_file, make_room_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

BINS = 240  # points of a curve; more are hard to tell apart, and make pages large
COLUMNS = 128  # bars, and rows or columns of a heat map
# Colours, which figures name by their number: those of Okabe and Ito, for people who cannot tell
# red from green too, and some more. The style sheet has the same for pages, lighter on dark ones.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A500", "#555555",
    "#7A5195", "#A3ADB8", "#8C5A2B",
)  # fmt: skip
_FORMATS = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Series:
    """A curve, or a set of points.

    Attributes
    ----------
    x, y : sequences of float
    low, high : sequences of float
        The smallest and largest value that each point stands for; empty: the point is one value.
    colour : int
        Of the palette.
    dash : int
        0: solid, 1: dashed, 2: dotted.
    marked : (x, y), optional
        A point with a ring around it: see ``Lines.ring``.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    dash: int = 0
    marked: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Common:
    """The words of every figure.

    Attributes
    ----------
    key : str
        Short name: of a file, of a place on a page.
    title : str
    about : str
        What is to be seen, in a sentence or two; also for those who do not see it.
    x_label, y_label : str
        With units.
    """

    key: str
    title: str
    about: str
    x_label: str
    y_label: str

    @property
    def titles(self) -> tuple[str, str]:
        """The titles of the axes; logarithmic ones say so."""
        return self.x_label, self.y_label


@dataclass(frozen=True)
class Lines(_Common):
    """Curves over a common axis.

    Attributes
    ----------
    columns : sequence of str
        What the points of the first series are called, such as "epochs 26 to 50"; empty: their x.
    marks : bool
        Whether points are marked.
    x_ticks : sequence of float
        Where the horizontal axis has ticks; empty: at round numbers.
    from_zero : bool
        Whether the vertical axis begins at 0, unless all values are near each other.
    ring : str
        What the marked points of its series are.
    """

    series: Sequence[Series] = ()
    columns: Sequence[str] = ()
    log_x: bool = False
    log_y: bool = False
    marks: bool = False
    x_ticks: Sequence[float] = ()
    from_zero: bool = True
    ring: str = ""

    @property
    def logarithmic(self) -> tuple[bool, bool]:
        """Which axes are: of those that are to be, those that have positive values only."""
        xs = (v for one in self.series for v in one.x)
        ys = (v for one in self.series for v in (*one.y, *one.low, *one.high))
        return self.log_x and all(v > 0 for v in xs), self.log_y and all(v > 0 for v in ys)

    @property
    def titles(self) -> tuple[str, str]:
        """The titles of the axes; logarithmic ones say so."""
        log_x, log_y = (", log scale" if log else "" for log in self.logarithmic)
        return self.x_label + log_x, self.y_label + log_y


@dataclass(frozen=True)
class Points(_Common):
    """A scatter plot: a series has points of one colour; ``labels`` are those of its points."""

    series: Sequence[Series] = ()
    labels: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Bars(_Common):
    """Bars of parts that are stacked.

    Attributes
    ----------
    columns : sequence of str
        Names of the bars: "rank 3".
    ticks : sequence of str
        The same, as short as they stand below the axis.
    stacks : mapping of str to sequence of float
        Parts of the bars, from below.
    colours : sequence of int
        Of the parts.
    mark : (str, float), optional
        A line across all bars, and what it is.
    own_colours : sequence of int
        Of the bars, where each has one of its own, as its curve has in other figures.
    """

    columns: Sequence[str] = ()
    ticks: Sequence[str] = ()
    stacks: dict[str, Sequence[float]] = field(default_factory=dict)
    colours: Sequence[int] = ()
    mark: tuple[str, float] | None = None
    own_colours: Sequence[int] = ()


@dataclass(frozen=True)
class HeatMap(_Common):
    """A matrix of values.

    Attributes
    ----------
    values : (rows, columns) array
        NaN: there is none.
    rows, columns : sequence of str
        Names of the rows and columns.
    row_ticks, column_ticks : sequence of str
        The same, as short as they stand beside the axes.
    edges : sequence of float
        Where columns of unequal width begin and end, one more than columns; empty: equal ones.
    colour_label : str
        What the colour is, with its unit.
    """

    values: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    row_ticks: Sequence[str] = ()
    column_ticks: Sequence[str] = ()
    edges: Sequence[float] = ()
    colour_label: str = ""


Figure = Lines | Points | Bars | HeatMap


def look(place: int) -> dict[str, Any]:
    """The colour and the dashes of one of many curves."""
    return {"colour": place % len(COLOURS), "dash": place // len(COLOURS) % 3}


@dataclass(frozen=True)
class Binned:
    """A curve of few points: ``first`` and ``last`` x of each bin, and its values."""

    first: np.ndarray
    last: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def x(self) -> np.ndarray:
        """The middle of each bin."""
        return (self.first + self.last) / 2


def binned(x: Sequence[float], y: Sequence[float | None], most: int = BINS) -> Binned:
    """A curve in at most so many bins of as many points each; points without a value are left out.

    >>> binned(range(1, 7), [1, 2, None, 4, 5, 6], most=3).mean.tolist()
    [1.5, 4.5, 6.0]
    """
    values = np.array([np.nan if value is None else value for value in y], np.float64)
    known = np.isfinite(values)
    places, values = np.asarray(x, np.float64)[known], values[known]
    size = max(1, math.ceil(len(values) / most))
    starts = np.arange(0, len(values), size)
    if not len(starts):
        return Binned(*([values] * 5))
    counts = np.diff(np.append(starts, len(values)))
    return Binned(
        places[starts],
        places[np.append(starts[1:], len(values)) - 1],
        np.add.reduceat(values, starts) / counts,
        np.minimum.reduceat(values, starts),
        np.maximum.reduceat(values, starts),
    )


def groups_of(count: int, most: int = COLUMNS) -> list[range]:
    """0 … count − 1 in at most so many ranges, all but the last of one size.

    >>> groups_of(5, most=2)
    [range(0, 3), range(3, 5)]
    """
    size = max(1, math.ceil(count / most))
    return [range(start, min(count, start + size)) for start in range(0, count, size)]


def named(kind: str, group: range) -> str:
    """The name of a group: "rank 3", or "ranks 4 to 7"."""
    if len(group) == 1:
        return f"{kind} {group[0]}"
    return f"{kind}s {group[0]} to {group[-1]}"


def save_figures(figures: Iterable[Figure], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each figure as ``KEY.pdf`` and ``KEY.png``; nothing to draw is an error."""
    written = []
    for figure in figures:
        drawn = new_figure(4.4, 3.2)  # a column and a half
        axis = drawn.add_subplot()
        x_title, y_title = map(_text, figure.titles)
        axis.set(xlabel=x_title, ylabel=y_title, axisbelow=True)
        axis.spines[["top", "right"]].set_visible(False)
        _DRAW[type(figure)](axis, figure)
        handles, names = axis.get_legend_handles_labels()
        if len(names) > 1:
            place = {"loc": "outside upper center", "ncols": min(3, len(names))}
            drawn.legend(handles, names, fontsize=7, **place)
        for ending in (".pdf", ".png"):
            path = Path(folder) / f"{figure.key}{ending}"
            save_figure(drawn, path)
            written.append(path)
    if not written:
        raise UserError("there is nothing to draw")
    return written


def _lines(axis: Axes, figure: Lines) -> None:
    for one in figure.series:
        colour = COLOURS[one.colour]
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
        axis.scatter(one.x, one.y, color=COLOURS[one.colour], s=24, label=_text(one.name))
    axis.set(xlim=(0, None), ylim=(0, None))
    axis.grid(color="0.9", linewidth=0.6)


def _bars(axis: Axes, figure: Bars) -> None:
    places, below = np.arange(len(figure.columns)), np.zeros(len(figure.columns))
    for colour, (name, values) in zip(figure.colours, figure.stacks.items(), strict=True):
        heights = np.nan_to_num(np.asarray(values, np.float64))
        own = [COLOURS[each] for each in figure.own_colours] or COLOURS[colour]
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

    Its ending is one of ``_FORMATS``, matplotlib is installed, and the folder can be written to.
    """
    if Path(file).suffix.lower() not in _FORMATS:
        raise UserError(f"{file} is not a name for a figure", f"it ends in {', '.join(_FORMATS)}")
    new_figure(1, 1)  # refused without matplotlib
    make_room_for(file)


def new_figure(width: float, height: float) -> Canvas:
    """An empty matplotlib figure of so many inches, which needs no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError("figures need matplotlib", installing("plots")) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Canvas, file: str | os.PathLike[str]) -> None:
    """Write a figure in the format that the ending of ``file`` says, whole or not at all."""
    check_figure(file)
    with atomic_file(file) as out:
        figure.savefig(out, dpi=160, format=Path(file).suffix[1:].lower())
