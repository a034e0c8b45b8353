"""Axes: ticks at round numbers, numbers as people read them, and units."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from partition.charts.figures import Bars, Figure, HeatMap, Lines, Points

BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def unit_of(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which ``most`` has at least one, and its size; else the smallest.

    >>> unit_of(2500, BYTES)
    (1000.0, 'kB')
    """
    return next((unit for unit in units if most >= unit[0]), units[-1])


def with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """A number with its unit.

    >>> with_unit(2.5e6, BYTES), with_unit(0.0314, SECONDS)
    ('2.5 MB', '31.4 ms')
    """
    size, name = unit_of(abs(value), units)
    return f"{number(value / size)} {name}"


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits; powers of ten where it is very small or large.

    >>> [number(v) for v in (0, 1234567, 0.12345, 2.0, 1.5e-7, None)]
    ['0', '1,234,567', '0.1235', '2', '1.5e-07', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e9:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits - 1}g}"


def column(values: Sequence[float | None]) -> str | None:
    """The format in which all numbers of a column have as many decimals, so that their digits are
    below each other: three digits of the smallest, no more than six of the largest. None where
    they are too far apart for that.

    >>> [f"{value:{column([0.5, 12.25, 9.0])}}" for value in (0.5, 12.25, 9.0)]
    ['0.500', '12.250', '9.000']
    >>> column([1, 20_000]), column([1e-7, 1.0]), column([None])
    (',.0f', None, None)
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    if not known or max(known) >= 1e9:
        return None
    if all(value == int(value) for value in known):
        return ",.0f"
    least, most = (math.floor(math.log10(f(value for value in known if value))) for f in (min, max))
    if most - least > 5 or least < -5:
        return None
    return f",.{max(0, min(2 - least, 5 - most))}f"


def ticks(least: float, most: float, count: int = 5) -> list[float]:
    """Round numbers from below ``least`` to above ``most``: steps of 1, 2 or 5 times a power of 10.

    >>> ticks(0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if most <= least:
        most = least + (abs(least) or 1.0)
    rough = (most - least) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [
        round(place * step, 12 - math.floor(math.log10(step))) for place in range(first, last + 1)
    ]


def log_ticks(least: float, most: float) -> list[float]:
    """Powers of ten around positive numbers; 1, 2 and 5 times those where they are few.

    >>> log_ticks(0.3, 40)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(1e-4, 1)
    [0.0001, 0.001, 0.01, 0.1, 1.0]
    """
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    decades = range(low, high + 1)
    if high - low >= 4:
        every = math.ceil((high - low) / 6)
        return [10.0**power for power in range(low, high + every, every)]
    found = [float(f"{factor}e{power}") for power in decades for factor in (1, 2, 5)]
    start = max((place for place, value in enumerate(found) if value <= least * 1.0001), default=0)
    end = next((place for place, value in enumerate(found) if value >= most * 0.9999), len(found))
    return found[start : end + 1]


def spread(count: int, most: int) -> list[int]:
    """At most so many of 0 … count − 1, at equal distances, from 0 on.

    >>> spread(10, 4)
    [0, 4, 8]
    """
    step = 1
    for step in (factor * 10**power for power in range(9) for factor in (1, 2, 4, 5)):
        if math.ceil(count / step) <= most:
            break
    return list(range(0, count, step))


WIDTH, HEIGHT = 400, 248
LEVELS = 10  # colours of a heat map
WIDEST = 72  # bar or cell: a few of them need not fill a figure
TOP, BOTTOM, RIGHT = 22, 40, 10
CHARACTER = 6.1  # width of a digit


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


@dataclass(frozen=True)
class _Frame:
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
            around = f"{_curve(frame, one.x, one.high)}{back}Z"
            pieces.append(_tag("path", kind=f"band f{one.colour}", d=around))
    for one in figure.series:
        curve = _curve(frame, one.x, one.y)
        pieces.append(_tag("path", kind=f"line s{one.colour} d{one.dash}", d=curve))
        if figure.marks or len(one.x) == 1:
            pieces += [_dot(frame, one.colour, x, y) for x, y in zip(one.x, one.y, strict=True)]
        if one.marked is not None:
            pieces.append(_dot(frame, one.colour, *one.marked, "ring"))
    tip = None
    if figure.series:
        # Curves of other points than the first are shown at those nearest to it.
        places = figure.series[0].x
        names = figure.columns or [f"{figure.x_label} {number(x)}" for x in places]
        cells = [[_nearest(one.x, one.y, x) for x in places] for one in figure.series]
        rows = [one.name for one in figure.series]
        at = [_rounded(frame.x(x)) for x in places]
        tip = _tip(frame, names, rows, cells, figure.y_label, places=at)
    return _svg(figure, pieces, HEIGHT, tip)


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
    return _svg(figure, pieces, HEIGHT, None)


def _bars(figure: Bars) -> Markup:
    count = len(figure.columns)
    parts = np.array(list(figure.stacks.values()), np.float64).reshape(len(figure.stacks), count)
    heights = np.nan_to_num(parts).cumsum(axis=0)
    most = max(float(heights.max(initial=0)), figure.mark[1] if figure.mark else 0.0)
    frame = _frame([0, count], [0, most or 1])
    slot = frame.x(1) - frame.x(0)
    gap = max(0.16 if count <= 64 else 0.0, 1 - WIDEST / slot)
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
        pieces += [_tag("path", kind=f"f{own}", d=path) for own, path in paths.items()]
        below = top
    if figure.mark is not None:
        line = _steps("M", frame.x.start, frame.y(figure.mark[1]), "H", frame.x.end)
        pieces.append(_tag("path", kind="mark", d=line))
    middles = [frame.x(place + 0.5) for place in range(count)]
    pieces.append(_few_names(frame, middles, figure.ticks))
    tip = _tip(frame, figure.columns, list(figure.stacks), parts.tolist(), figure.y_label)
    return _svg(figure, pieces, HEIGHT, tip)


def _heat_map(figure: HeatMap) -> Markup:
    rows, columns = figure.values.shape
    left = 14 + CHARACTER * max(map(len, figure.row_ticks), default=1)
    edges = np.array(figure.edges or range(columns + 1), np.float64)
    square = not len(figure.edges)
    side = min(WIDTH - left - RIGHT, WIDEST * columns if square and columns else math.inf)
    height = side * min(1.0, rows / max(1, columns)) if square else min(230, max(60, 15 * rows))
    foot = TOP + height + BOTTOM
    x = _Axis(edges[0], edges[-1], left, left + side)
    y = _Axis(0, rows, TOP, TOP + height)
    known = figure.values[np.isfinite(figure.values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    low = min(0.0, low)
    scaled = (figure.values - low) / ((high - low) or 1) * LEVELS
    levels = np.where(np.isfinite(scaled), np.minimum(LEVELS - 1, scaled), -1).astype(int)
    pieces = [_labels(*figure.titles, foot)]
    for level in range(LEVELS):
        # Each colour lies over the paler ones: where cells are thinner than a pixel, none shows
        # what is behind all of them.
        path = "".join(_runs(levels >= level, [x(edge) for edge in edges], y))
        pieces += [_tag("path", kind=f"q{level}", d=path)] if path else []
    outline = _steps("M", left, TOP, "H", x.end, "V", y.end, "H", left, "Z")
    pieces.append(_tag("path", kind="axis", d=outline))
    for row in spread(rows, int(height // 14) or 1):
        pieces.append(_text(left - 5, y(row + 0.5) + 4, figure.row_ticks[row], "end"))
    below = _Frame(x, _Axis(0, 1, TOP + height, TOP))
    if square:
        middles = [x(edge) for edge in (edges[:-1] + edges[1:]) / 2]
        pieces.append(_few_names(below, middles, figure.column_ticks))
    else:
        inside = [tick for tick in ticks(edges[0], edges[-1]) if edges[0] <= tick <= edges[-1]]
        pieces.append(_x_names(below, {x(tick): number(tick) for tick in inside}))
    # The colours, from the least to the most.
    across = max(side, WIDTH / 2) / 2
    pieces.append(_text(left, foot + 9, figure.colour_label))
    for level in range(LEVELS):
        box = {"x": left + across / LEVELS * level, "y": foot + 15, "width": across / LEVELS + 0.2}
        pieces.append(_tag("rect", kind=f"q{level}", height=9, **box))
    pieces.append(_text(left, foot + 36, number(low, 3)))
    pieces.append(_text(left + across, foot + 36, number(high, 3), "end"))
    values = [[None if math.isnan(v) else v for v in row] for row in figure.values.tolist()]
    more: dict[str, object] = {"grid": True}
    more |= {} if square else {"edges": [_rounded(x(edge)) for edge in edges]}
    tip = _tip(below, figure.columns, figure.rows, values, figure.colour_label, **more)
    return _svg(figure, pieces, foot + 44, tip)


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
    left = 14 + CHARACTER * max(len(number(tick)) for tick in y_ticks)
    least, most = min(xs), max(xs)
    if most == least:
        least, most = (least / 2, most * 2) if log_x else (least - 0.5, most + 0.5)
    x_ticks = x_ticks or (log_ticks(least, most) if log_x else ticks(least, most, 5))
    inside = [t for t in x_ticks if least <= t <= most * (1 + 1e-9)]
    return _Frame(
        _Axis(least, most, left, WIDTH - RIGHT, log_x, inside),
        _Axis(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, log_y, y_ticks),
    )


def _grid(frame: _Frame, x: bool = True) -> Markup:
    """Lines at the ticks and what they are."""
    pieces, ends = [], (frame.x.start, frame.x.end)
    for tick in frame.y.ticks:
        y = frame.y(tick)
        pieces.append(_tag("path", kind="grid", d=_steps("M", ends[0], y, "H", ends[1])))
        pieces.append(_text(ends[0] - 5, y + 4, number(tick), "end"))
    pieces.append(_tag("path", kind="axis", d=_steps("M", ends[0], frame.y.start, "H", ends[1])))
    if x:
        pieces.append(_x_names(frame, {frame.x(tick): number(tick) for tick in frame.x.ticks}))
    return Markup("").join(pieces)


def _text(x: float, y: float, text: str, anchor: str = "start", **more: str | float) -> Markup:
    return _tag("text", text, x=x, y=y, text_anchor=anchor, **more)


def _x_names(frame: _Frame, names: dict[float, str]) -> Markup:
    """The names below the horizontal axis; the last one stays within the figure."""
    y = frame.y.start + 14
    return Markup("").join(
        _text(x, y, name, "end" if x + len(name) * 3 > WIDTH else "middle")
        for x, name in names.items()
    )


def _few_names(frame: _Frame, places: Sequence[float], names: Sequence[str]) -> Markup:
    """As many of the names of places as there is room for."""
    every = spread(len(places), 9 if max(map(len, names), default=0) < 4 else 5)
    return _x_names(frame, {places[i]: names[i] for i in every})


def _labels(across: str, up: str, bottom: float = HEIGHT) -> Markup:
    """The titles of the axes: that of the vertical one above it, so that it can be read."""
    right = _text(WIDTH - RIGHT, bottom - 8, across, "end", kind="label")
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
) -> str:
    """The values that the script shows under the pointer, at ``places`` or between ``edges``."""
    x, y = frame.x, frame.y
    facts = {
        "box": [_rounded(v) for v in (x.start, y.end, x.end - x.start, y.start - y.end)],
        "columns": list(columns), "rows": list(rows), "unit": unit, "grid": False,
        "cells": [[None if v is None else float(f"{v:.4g}") for v in row] for row in cells],
    }  # fmt: skip
    return json.dumps(facts | more, separators=(",", ":"))


def _svg(figure: Figure, pieces: Iterable[Markup], height: float, tip: str | None) -> Markup:
    facts = {"viewBox": f"0 0 {WIDTH} {_rounded(height)}", "role": "img"}
    facts |= {"aria_label": f"{figure.title}. {figure.about}"}
    facts |= {} if tip is None else {"tabindex": "0", "data_tip": tip}
    return _tag("svg", Markup("").join(pieces), kind="chart", **facts)


_DRAW: dict[type, Callable[..., Markup]] = {
    Lines: _lines, Points: _points, Bars: _bars, HeatMap: _heat_map,
}  # fmt: skip
