"""Pages: one HTML file with everything in it, which asks no network for anything.

All text that comes from files is escaped by the template engine, and the page's own policy lets
no other script run than the one that is in it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeGuard

import jinja2
import numpy as np
from markupsafe import Markup

from partition.charts.figures import Bars, Figure, HeatMap, Lines, Points
from partition.charts.svg import column, draw, number, spread
from partition.records import atomic_file

SHOWN_ROWS = 16  # of a curve's table
SHOWN_CELLS = 10  # of a heat map's


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
    script, style = _file("page.js"), _file("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    engine.filters |= {"draw": draw, "cell": _cell, "numeric": _is_number}
    functions = (legend_of, table_of, _marked, _columns)
    engine.globals |= {function.__name__.strip("_"): function for function in functions}
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
        largest = np.argsort(-values, kind="stable")[:SHOWN_CELLS]
        width = max(1, figure.values.shape[1])
        cells = [
            (figure.rows[place // width], figure.columns[place % width], float(values[place]))
            for place in largest.tolist()
            if values[place] > 0
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
    for one in figure.series:
        chosen = spread(len(one.x), max(2, SHOWN_ROWS // len(figure.series)))
        last = len(one.x) - 1
        for i in [*chosen, *([last] if last >= 0 and last not in chosen else [])]:
            spans = (one.low[i], one.high[i]) if len(one.low) else ()
            rows.append((one.name, one.x[i], one.y[i], *spans))
    width = max(map(len, rows), default=3)
    head = ["curve", figure.x_label, figure.y_label, "least", "most"][:width]
    return Table(figure.y_label, head, [(*row, *[None] * (width - len(row))) for row in rows])


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
    for place in range(max(map(len, table.rows), default=0)):
        cells = [row[place] for row in table.rows]
        numeric = [cell for cell in cells if _is_number(cell)]
        whole = bool(numeric) and all(cell is None or _is_number(cell) for cell in cells)
        form = table.formats.get(place, column(numeric) if whole else None)
        found.append((whole, form))
    return found


def _cell(value: object, form: str | None = None) -> str:
    if form is not None and _is_number(value) and math.isfinite(value):
        return f"{value:{form}}"
    return number(value) if value is None or _is_number(value) else str(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _file(name: str) -> str:
    return files("partition.charts").joinpath(name).read_text(encoding="utf-8")
