"""Pages: one HTML file with everything in it, which asks no network for anything.

All text that comes from files is escaped by the template engine, and the page's own policy lets
no other script run than the one that is in it.
"""

import base64
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from markupsafe import Markup

from partition.charts.figures import Bars, Figure, HeatMap, Lines, Points
from partition.charts.numbers import log_ticks, number, spread, ticks
from partition.records import atomic_file

_SHOWN_ROWS, _SHOWN_CELLS = 16, 10  # of the table of a curve, and of a heat map
_WIDTH, _HEIGHT = 400, 248
_TOP, _BOTTOM, _RIGHT = 22, 40, 10
_LEVELS = 10  # colours of a heat map
_WIDEST = 72  # bar or cell: a few of them need not fill a figure
_CHARACTER = 6.1  # width of a digit


@dataclass(frozen=True)
class Fact:
    """A figure that is shown large: what it is, its value, and what there is to say of it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column says what a row is.

    Attributes
    ----------
    rows : sequence of sequences
        Texts, and numbers, which are aligned to the right and can be sorted; None: there is none.
    best : mapping of int to {"low", "high"}
        Columns whose lowest or highest number is marked; for each row where scopes differ in it.
    scopes : sequence
        For each row what it may be compared within, such as its graph; empty: all rows are.
    formats : mapping of int to str
        Of the numbers of a column, such as ".2f"; those of others have as many digits as they need.
    sorts : bool
        Whether its rows can be sorted; on a phone, they stand one below the other.
    folded : bool
        Whether only the title is shown at first.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""
    best: Mapping[int, str | Sequence[str]] = field(default_factory=dict)
    scopes: Sequence[object] = ()
    formats: Mapping[int, str] = field(default_factory=dict)
    sorts: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes
    ----------
    key : str
        Of its address.
    group : str
        Sections of one group are shown under its name; those of other groups but the first are
        folded.
    """

    key: str
    title: str
    text: str = ""
    facts: Sequence[Fact] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    group: str = ""


def write_page(path: str | os.PathLike[str], *page: Any) -> None:
    """Write a page, whole or not at all: parameters as for :func:`as_page`."""
    with atomic_file(path, "w") as file:
        file.write(as_page(*page))


def as_page(title: str, subtitle: str, sections: Sequence[Section], made_by: str) -> str:
    """The text of a page; ``made_by`` is for its foot."""
    import jinja2  # which a program that only makes figures does not wait for

    script, style = _file("page.js"), _file("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    engine.filters |= {"draw": draw, "cell": _cell, "numeric": _is_number}
    engine.globals |= {"legend_of": legend_of, "table_of": table_of}
    engine.globals |= {"marked": _marked, "columns": _columns}
    groups: dict[str, list[Section]] = {}
    for section in sections:
        groups.setdefault(section.group, []).append(section)
    return engine.get_template("page.html").render(
        title=title, subtitle=subtitle, groups=groups, made_by=made_by, digest=digest,
        script=Markup(script), style=Markup(style),
    )  # fmt: skip


def legend_of(figure: Figure) -> list[tuple[str, str]]:
    """(class of the swatch, name) of what a figure shows, where there are several."""
    found, more = [], []
    if isinstance(figure, Lines):
        found = [(f"f{one.colour} d{one.dash}", one.name) for one in figure.series]
        more = [("ring", figure.ring)] if any(one.marked for one in figure.series) else []
    elif isinstance(figure, Points):
        found = [(f"f{one.colour}", one.name) for one in figure.series]
    elif isinstance(figure, Bars):
        colours, names = figure.colours, list(figure.stacks)
        if len(figure.own_colours):
            colours, names = figure.own_colours, list(figure.columns)
        found = [(f"f{colour}", name) for colour, name in zip(colours, names, strict=True)]
        found += [("mark", figure.mark[0])] if figure.mark else []
    return (found if len(found) > 1 else []) + more


def table_of(figure: Figure) -> Table:
    """The numbers of a figure, for those who do not see it; of many, some."""
    if isinstance(figure, Bars):
        rows = list(zip(figure.columns, *figure.stacks.values(), strict=True))
        return Table(figure.y_label, [figure.x_label, *figure.stacks], rows)
    if isinstance(figure, HeatMap):
        values = np.nan_to_num(figure.values, nan=-np.inf).ravel()
        largest = np.argsort(-values, kind="stable")[:_SHOWN_CELLS]
        rows, columns = np.unravel_index(largest[values[largest] > 0], figure.values.shape)
        cells = [
            (figure.rows[row], figure.columns[column], float(figure.values[row, column]))
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        head = [figure.y_label, figure.x_label, figure.colour_label]
        return Table(f"The largest of {figure.values.size:,} values", head, cells)
    if isinstance(figure, Points):
        rows = [
            (name, x, y)
            for one, names in zip(figure.series, figure.labels, strict=True)
            for name, x, y in zip(names, one.x, one.y, strict=True)
        ]
        return Table(figure.title, ["", figure.x_label, figure.y_label], rows)
    rows = []
    spans = any(len(one.low) for one in figure.series)
    for one in figure.series:
        chosen = spread(len(one.x), max(2, _SHOWN_ROWS // len(figure.series)))
        for i in dict.fromkeys([*chosen, len(one.x) - 1] if chosen else []):
            span = ((one.low[i], one.high[i]) if len(one.low) else (None, None)) if spans else ()
            rows.append((one.name, one.x[i], one.y[i], *span))
    head = ["curve", figure.x_label, figure.y_label, *["least", "most"] * spans]
    return Table(figure.y_label, head, rows)


def _marked(table: Table) -> set[tuple[int, int]]:
    """(row, column) of what is best in its column, where not all are as good."""
    found = set()
    scopes: dict[object, list[int]] = {}
    for place, scope in enumerate(table.scopes or [None] * len(table.rows)):
        scopes.setdefault(scope, []).append(place)
    for (place_of, which), places in itertools.product(table.best.items(), scopes.values()):
        values = {place: table.rows[place][place_of] for place in places}
        known = [v for v in values.values() if _is_number(v) and math.isfinite(v)]
        if len(set(known)) > 1:
            wanted = which if isinstance(which, str) else which[places[0]]
            best = min(known) if wanted == "low" else max(known)
            found |= {(place, place_of) for place, value in values.items() if value == best}
    return found


def _columns(table: Table) -> list[tuple[bool, str | None]]:
    """For each column whether it has numbers, and their format."""
    found = []
    for place, cells in enumerate(zip(*table.rows, strict=True)):
        numeric = [cell for cell in cells if _is_number(cell)]
        whole = bool(numeric) and len(numeric) + cells.count(None) == len(cells)
        found.append((whole, table.formats.get(place, _decimals(numeric) if whole else None)))
    return found


def _cell(value: object, form: str | None = None) -> str:
    if form is not None and _is_number(value) and math.isfinite(value):
        return f"{value:{form}}"
    return number(value) if value is None or _is_number(value) else str(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _file(name: str) -> str:
    return files("partition.charts").joinpath(name).read_text(encoding="utf-8")


def _decimals(values: Sequence[float]) -> str | None:
    """The format in which all numbers of a column have as many decimals, so that their digits are
    below each other: three digits of the smallest, no more than six of the largest. None where
    they are too far apart for that.

    >>> [f"{value:{_decimals([0.5, 12.25, 9.0])}}" for value in (0.5, 12.25, 9.0)]
    ['0.500', '12.250', '9.000']
    >>> _decimals([1, 20_000]), _decimals([1e-7, 1.0]), _decimals([])
    (',.0f', None, None)
    """
    known = [abs(value) for value in values if math.isfinite(value)]
    if not known or max(known) >= 1e9:
        return None
    if all(value == int(value) for value in known):
        return ",.0f"
    least, most = (math.floor(math.log10(f(value for value in known if value))) for f in (min, max))
    if most - least > 5 or least < -5:
        return None
    return f",.{max(0, min(2 - least, 5 - most))}f"


def draw(figure: Figure) -> Markup:
    """The SVG element of a figure."""
    return _DRAW[type(figure)](figure)


@dataclass(frozen=True)
class _Axis:
    """Numbers → places on the page, from ``start`` to ``end``."""

    least: float
    most: float
    start: float
    end: float
    log: bool = False
    ticks: Sequence[float] = ()

    def __call__(self, value: float) -> float:
        a, b, v = self.least, self.most, value
        if self.log:
            a, b, v = math.log(a), math.log(b), math.log(max(v, a))
        return self.start + (v - a) / ((b - a) or 1) * (self.end - self.start)


class _Frame(NamedTuple):
    """The box of the data, and its axes."""

    x: _Axis
    y: _Axis


def _tag(name: str, content: str = "", **attributes: str | float) -> Markup:
    """An element, whose texts are escaped and whose numbers are rounded; ``kind`` is its class."""
    text = Markup("")
    for key, value in attributes.items():
        value = value if isinstance(value, str) else _rounded(value)
        name_of = "class" if key == "kind" else key.replace("_", "-")
        text += Markup(' {}="{}"').format(name_of, value)
    return Markup("<{0}{1}>{2}</{0}>").format(name, text, content)


def _steps(*steps: str | float) -> str:
    """The steps of a path, whose numbers are rounded: "M", 1, 2, "H", 3 …"""
    text = ""
    for step in steps:
        between = " " if text[-1:].isdigit() else ""
        text += step if isinstance(step, str) else f"{between}{_rounded(step)}"
    return text


def _path(kind: str, *steps: str | float) -> Markup:
    return _tag("path", kind=kind, d=_steps(*steps))


def _rounded(value: float) -> float | int:
    """A tenth of a pixel is enough."""
    rounded = round(float(value), 1)
    return int(rounded) if rounded == int(rounded) else rounded


def _lines(figure: Lines) -> Markup:
    xs = [v for one in figure.series for v in one.x]
    ys = [v for one in figure.series for v in (*one.y, *one.low, *one.high)]
    frame = _frame(xs, ys, figure.logarithmic, figure.x_ticks, figure.from_zero)
    pieces = [_grid(frame), _labels(*figure.titles)]
    for one in figure.series:
        if len(one.low):
            back = _curve(frame, one.x[::-1], one.low[::-1]).replace("M", "L", 1)
            there = _curve(frame, one.x, one.high)
            pieces.append(_path(f"band f{one.colour}", there, back, "Z"))
    for one in figure.series:
        pieces.append(_path(f"line s{one.colour} d{one.dash}", _curve(frame, one.x, one.y)))
        if figure.marks or len(one.x) == 1:
            pieces += [_dot(frame, one.colour, x, y) for x, y in zip(one.x, one.y, strict=True)]
        if one.marked is not None:
            pieces.append(_dot(frame, one.colour, *one.marked, "ring"))
    if not figure.series:
        return _svg(figure, pieces)
    # Curves of other points than the first are shown at those nearest to it.
    places = figure.series[0].x
    names = figure.columns or [f"{figure.x_label} {number(x)}" for x in places]
    rows = [one.name for one in figure.series]
    cells = [[_nearest(one.x, one.y, x) for x in places] for one in figure.series]
    at = [_rounded(frame.x(x)) for x in places]
    return _svg(figure, pieces, _tip(frame, names, rows, cells, figure.y_label, places=at))


def _points(figure: Points) -> Markup:
    xs = [v for one in figure.series for v in one.x]
    ys = [v for one in figure.series for v in one.y]
    frame = _frame(ticks(0.0, max(xs, default=1.0)), [0.0, *ys])
    pieces = [_grid(frame), _labels(*figure.titles)]
    for one, names in zip(figure.series, figure.labels, strict=True):
        for x, y, name in zip(one.x, one.y, names, strict=True):
            text = f"{name}: {figure.x_label} {number(x)}, {figure.y_label} {number(y)}"
            title, kind = _tag("title", text), f"dot f{one.colour}"
            pieces.append(_tag("circle", title, kind=kind, cx=frame.x(x), cy=frame.y(y), r=4.5))
    return _svg(figure, pieces)


def _bars(figure: Bars) -> Markup:
    count = len(figure.columns)
    parts = np.array(list(figure.stacks.values()), np.float64).reshape(len(figure.stacks), count)
    heights = np.nan_to_num(parts).cumsum(axis=0)
    most = max(float(heights.max(initial=0)), figure.mark[1] if figure.mark else 0.0)
    frame = _frame([0, count], [0, most or 1])
    slot = frame.x(1) - frame.x(0)
    gap = max(0.16 if count <= 64 else 0.0, 1 - _WIDEST / slot)
    width = slot * (1 - gap)
    pieces = [_grid(frame, x=False), _labels(*figure.titles)]
    below = np.zeros(count)
    for colour, top in zip(figure.colours, heights, strict=True):
        paths: dict[int, str] = {}
        for place, (low, high) in enumerate(zip(below, top, strict=True)):
            own = figure.own_colours[place] if len(figure.own_colours) else colour
            corner = frame.x(place + gap / 2), frame.y(low)
            bar = _steps("M", *corner, "h", width, "V", frame.y(high), "h", -width, "z")
            paths[own] = paths.get(own, "") + (bar if high > low else "")
        pieces += [_path(f"f{own}", path) for own, path in paths.items()]
        below = top
    if figure.mark is not None:
        y = frame.y(figure.mark[1])
        pieces.append(_path("mark", "M", frame.x.start, y, "H", frame.x.end))
    middles = [frame.x(place + 0.5) for place in range(count)]
    pieces.append(_few_names(frame, middles, figure.ticks))
    tip = _tip(frame, figure.columns, list(figure.stacks), parts.tolist(), figure.y_label)
    return _svg(figure, pieces, tip)


def _heat_map(figure: HeatMap) -> Markup:
    rows, columns = figure.values.shape
    left = 14 + _CHARACTER * max(map(len, figure.row_ticks), default=1)
    edges = np.array(figure.edges or range(columns + 1), np.float64)
    square = not len(figure.edges)
    side = min(_WIDTH - left - _RIGHT, _WIDEST * columns if square and columns else math.inf)
    height = side * min(1.0, rows / max(1, columns)) if square else min(230, max(60, 15 * rows))
    foot = _TOP + height + _BOTTOM
    x = _Axis(edges[0], edges[-1], left, left + side)
    y = _Axis(0, rows, _TOP, _TOP + height)
    known = figure.values[np.isfinite(figure.values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    low = min(0.0, low)
    scaled = (figure.values - low) / ((high - low) or 1) * _LEVELS
    levels = np.where(np.isfinite(scaled), np.minimum(_LEVELS - 1, scaled), -1).astype(int)
    pieces = [_labels(*figure.titles, foot)]
    for level in range(_LEVELS):
        # Each colour lies over the paler ones: where cells are thinner than a pixel, none shows
        # what is behind all of them.
        path = "".join(_runs(levels >= level, [x(edge) for edge in edges], y))
        pieces += [_path(f"q{level}", path)] if path else []
    pieces.append(_path("axis", "M", left, _TOP, "H", x.end, "V", y.end, "H", left, "Z"))
    for row in spread(rows, int(height // 14) or 1):
        pieces.append(_text(left - 5, y(row + 0.5) + 4, figure.row_ticks[row], "end"))
    below = _Frame(x, _Axis(0, 1, _TOP + height, _TOP))
    if square:
        middles = [x(edge) for edge in (edges[:-1] + edges[1:]) / 2]
        pieces.append(_few_names(below, middles, figure.column_ticks))
    else:
        inside = [tick for tick in ticks(edges[0], edges[-1]) if edges[0] <= tick <= edges[-1]]
        pieces.append(_x_names(below, {x(tick): number(tick) for tick in inside}))
    # The colours, from the least to the most.
    across = max(side, _WIDTH / 2) / 2
    wide = across / _LEVELS
    pieces.append(_text(left, foot + 9, figure.colour_label))
    for level in range(_LEVELS):
        box = {"x": left + wide * level, "y": foot + 15, "width": wide + 0.2, "height": 9}
        pieces.append(_tag("rect", kind=f"q{level}", **box))
    pieces.append(_text(left, foot + 36, number(low, 3)))
    pieces.append(_text(left + across, foot + 36, number(high, 3), "end"))
    more = {} if square else {"edges": [_rounded(x(edge)) for edge in edges]}
    cells, unit = figure.values.tolist(), figure.colour_label
    tip = _tip(below, figure.columns, figure.rows, cells, unit, grid=True, **more)
    return _svg(figure, pieces, tip, foot + 44)


def _runs(chosen: np.ndarray, edges: Sequence[float], y: _Axis) -> Iterable[str]:
    """The cells that are chosen, those beside each other as one rectangle."""
    for row, line in enumerate(chosen):
        top, height = _rounded(y(row)), _rounded(y(row + 1) - y(row))
        changes = np.flatnonzero(np.diff(line, prepend=False, append=False))
        for start, stop in changes.reshape(-1, 2).tolist():
            width = _rounded(edges[stop] - edges[start])
            yield f"M{_rounded(edges[start])} {top}h{width}v{height}h{-width}z"


def _frame(
    xs: Sequence[float],
    ys: Sequence[float],
    log: tuple[bool, bool] = (False, False),
    x_ticks: Sequence[float] = (),
    from_zero: bool = True,
) -> _Frame:
    """Axes around numbers; those of x end with the numbers, those of y at ticks.

    That of y begins at 0 if it is to, unless all numbers are near each other.
    """
    log_x, log_y = log
    xs, ys = [float(v) for v in xs] or [0.0, 1.0], [float(v) for v in ys] or [0.0, 1.0]
    ys = ys if log_y or not from_zero or min(ys) > 0.75 * max(ys) else [0.0, *ys]
    y_ticks = log_ticks(min(ys), max(ys)) if log_y else ticks(min(ys), max(ys))
    left = 14 + _CHARACTER * max(len(number(tick)) for tick in y_ticks)
    least, most = min(xs), max(xs)
    if most == least:
        least, most = (least / 2, most * 2) if log_x else (least - 0.5, most + 0.5)
    x_ticks = x_ticks or (log_ticks(least, most) if log_x else ticks(least, most, 5))
    inside = [t for t in x_ticks if least <= t <= most * (1 + 1e-9)]
    return _Frame(
        _Axis(least, most, left, _WIDTH - _RIGHT, log_x, inside),
        _Axis(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP, log_y, y_ticks),
    )


def _grid(frame: _Frame, x: bool = True) -> Markup:
    """Lines at the ticks and what they are."""
    pieces, ends = [], (frame.x.start, frame.x.end)
    for tick in frame.y.ticks:
        y = frame.y(tick)
        pieces.append(_path("grid", "M", ends[0], y, "H", ends[1]))
        pieces.append(_text(ends[0] - 5, y + 4, number(tick), "end"))
    pieces.append(_path("axis", "M", ends[0], frame.y.start, "H", ends[1]))
    if x:
        pieces.append(_x_names(frame, {frame.x(tick): number(tick) for tick in frame.x.ticks}))
    return Markup("").join(pieces)


def _text(x: float, y: float, text: str, anchor: str = "start", **more: str | float) -> Markup:
    return _tag("text", text, x=x, y=y, text_anchor=anchor, **more)


def _x_names(frame: _Frame, names: dict[float, str]) -> Markup:
    """The names below the horizontal axis; the last one stays within the figure."""
    y = frame.y.start + 14
    return Markup("").join(
        _text(x, y, name, "end" if x + len(name) * 3 > _WIDTH else "middle")
        for x, name in names.items()
    )


def _few_names(frame: _Frame, places: Sequence[float], names: Sequence[str]) -> Markup:
    """As many of the names of places as there is room for."""
    every = spread(len(places), 9 if max(map(len, names), default=0) < 4 else 5)
    return _x_names(frame, {places[i]: names[i] for i in every})


def _labels(across: str, up: str, bottom: float = _HEIGHT) -> Markup:
    """The titles of the axes: that of the vertical one above it, so that it can be read."""
    right = _text(_WIDTH - _RIGHT, bottom - 8, across, "end", kind="label")
    return _text(2, 11, up, kind="label") + right


def _curve(frame: _Frame, xs: Sequence[float], ys: Sequence[float]) -> str:
    points = (_steps("L", frame.x(x), frame.y(y)) for x, y in zip(xs, ys, strict=True))
    return "".join(points).replace("L", "M", 1)


def _dot(frame: _Frame, colour: int, x: float, y: float, kind: str = "point") -> Markup:
    """A point of a curve, or a larger one with a ring around it."""
    size = 3 if kind == "point" else 4.5
    return _tag("circle", kind=f"{kind} f{colour}", cx=frame.x(x), cy=frame.y(y), r=size)


def _nearest(xs: Sequence[float], ys: Sequence[float], x: float) -> float | None:
    """The value of a curve near a place; None beyond its ends."""
    if not len(xs) or x < xs[0] or x > xs[-1]:
        return None
    return float(ys[int(np.abs(np.asarray(xs) - x).argmin())])


def _tip(
    frame: _Frame,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    unit: str,
    **more: object,
) -> dict[str, str]:
    """The values that the script shows under the pointer, at ``places`` or between ``edges``."""
    x, y = frame
    shown = [[None if v is None or v != v else float(f"{v:.4g}") for v in row] for row in cells]
    facts = {
        "box": [_rounded(v) for v in (x.start, y.end, x.end - x.start, y.start - y.end)],
        "columns": list(columns), "rows": list(rows), "unit": unit, "grid": False, "cells": shown,
    }  # fmt: skip
    return {"tabindex": "0", "data_tip": json.dumps(facts | more, separators=(",", ":"))}


def _svg(
    figure: Figure, pieces: Iterable[Markup], tip: Mapping[str, str] = {}, height: float = _HEIGHT
) -> Markup:
    facts = {"viewBox": f"0 0 {_WIDTH} {_rounded(height)}", "role": "img"}
    facts |= {"aria_label": f"{figure.title}. {figure.about}"}
    return _tag("svg", Markup("").join(pieces), kind="chart", **facts, **tip)


_DRAW: dict[type, Callable[..., Markup]] = {
    Lines: _lines, Points: _points, Bars: _bars, HeatMap: _heat_map,
}  # fmt: skip
