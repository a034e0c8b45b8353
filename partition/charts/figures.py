"""The content of figures, whoever draws them: a page (:mod:`.svg`) or a paper (:mod:`.paper`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

BINS = 240  # points of a curve; more are hard to tell apart, and make pages large
COLUMNS = 128  # bars, and rows or columns of a heat map
# Colours, which figures name by their number: those of Okabe and Ito, for people who cannot tell
# red from green too, and some more. The style sheet has the same for pages, lighter on dark ones.
PAPER = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A500", "#555555",
    "#7A5195", "#A3ADB8", "#8C5A2B",
)  # fmt: skip
COLOURS = len(PAPER)


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
        labels = zip((self.x_label, self.y_label), self.logarithmic, strict=True)
        x, y = (f"{label}, log scale" if log else label for label, log in labels)
        return x, y


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
