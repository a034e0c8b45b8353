"""The page and the figures that compare partitions of one graph."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from partition.charts.figures import COLOURS, COLUMNS, Bars, Figure, Lines, Points, Series
from partition.charts.page import Fact, Section, Table, write_page
from partition.charts.svg import number
from partition.errors import shown
from partition.graph.metrics import Metrics
from partition.graph.store import Manifest

LISTED = 3 * COLOURS  # curves that are told apart
SHOWN_K = 12  # numbers of parts with figures of their own
# Sums and maxima over the number of parts: key of a row, file, title, axis.
SWEEPS = (
    ("volume", "sweep-volume", "Volume", "rows sent in one exchange"),
    ("max_send", "sweep-max-send", "Busiest part", "rows sent by the busiest part"),
    ("messages", "sweep-messages", "Messages", "messages in one exchange"),
    ("imbalance", "sweep-imbalance", "Imbalance", "imbalance of work"),
)
Rows = Sequence[Mapping[str, Any]]


def write_comparison(
    path: str | os.PathLike[str], manifest: Manifest, rows: Rows, parts: Mapping[str, Metrics]
) -> None:
    """Write a page about partitions.

    The rows are those of :func:`partition.reporting.comparison.compare`; ``parts`` has the figures
    of the parts of each of these partitions, in the direction of the rows.
    """
    title = f"Partitions of {shown(manifest.name)}"
    kind = "directed" if manifest.directed else "undirected"
    subtitle = (
        f"{manifest.n:,} vertices, {manifest.nnz:,} arcs, {kind}; rows of M aggregate in direction "
        f"{rows[0]['direction']!r}. Figures are of one exchange."
    )
    made_by = f"Written by gcn-partition compare, version {version('gcnmpi')}."
    write_page(path, title, subtitle, list(_sections(rows, parts)), made_by)


def comparison_figures(rows: Rows, parts: Mapping[str, Metrics]) -> Iterator[Figure]:
    """Every figure of such a page."""
    yield from _trade(rows)
    yield from _sweeps(rows)
    for k in _ks(rows)[:SHOWN_K]:
        yield from _of_k([row for row in rows if row["k"] == k], parts, k, _kinds(rows))


def _sections(rows: Rows, parts: Mapping[str, Metrics]) -> Iterator[Section]:
    figures = [*_trade(rows), *_sweeps(rows)]
    facts, tables, ks = _facts(rows), [_table(rows)], _ks(rows)
    yield Section("overview", "Overview", facts=facts, figures=figures, tables=tables)
    for k in ks[:SHOWN_K]:
        of_k = [row for row in rows if row["k"] == k]
        text = "" if len(ks) <= SHOWN_K else f"Shown are the first {SHOWN_K} numbers of parts."
        drawn = list(_of_k(of_k, parts, k, _kinds(rows)))
        yield Section(f"k{k}", f"{k} parts", text if k == ks[0] else "", figures=drawn)


def _facts(rows: Rows) -> list[Fact]:
    """How many there are, and the best of the largest number of parts."""
    k = _ks(rows)[-1]
    of_k = [row for row in rows if row["k"] == k]
    facts = [Fact("partitions", number(len(rows)), f"k = {', '.join(map(str, _ks(rows)))}")]
    for key, name in (
        ("volume", "least volume"), ("max_send", "least busiest part"),
        ("messages", "fewest messages"), ("imbalance", "least imbalance"),
    ):  # fmt: skip
        best = min(of_k, key=lambda row, key=key: row[key])  # type: ignore[misc]
        ratio = best["relative"].get(key)
        beside = "" if ratio is None or key == "imbalance" else f", {ratio:.2f} of random rows"
        value = f"{best[key]:.3f}" if key == "imbalance" else number(best[key])
        told = f"{shown(best['name'])}, exchange of rows{beside}"
        facts.append(Fact(f"{name}, k = {k}", value, told))
    mixed = [row for row in of_k if row["mixed"]]
    for key, name in (("volume", "least volume"), ("max_send", "least busiest part")):
        if mixed:
            best = min(mixed, key=lambda row, key=key: row["mixed"][key])  # type: ignore[misc]
            told = f"{shown(best['name'])}, mixed exchange: rows and partial sums"
            facts.append(Fact(f"{name}, k = {k}", number(best["mixed"][key]), told))
    return facts


def _table(rows: Rows) -> Table:
    head = [
        "partition", "k", "made by", "volume", "of random", "busiest sends", "of random ",
        "messages", "imbalance", "imbalance of rows", "mixed volume", "mixed busiest", "seconds",
    ]  # fmt: skip
    cells = []
    for row in rows:
        mixed = row["mixed"] or {}
        cells.append([
            shown(row["name"]), row["k"], shown(f"{row['model']}, {row['tool']}"),
            row["volume"], row["relative"]["volume"], row["max_send"], row["relative"]["max_send"],
            row["messages"], row["imbalance"], row["row_imbalance"],
            mixed.get("volume"), mixed.get("max_send"), row["seconds"],
        ])  # fmt: skip
    formats = {4: ".2f", 6: ".2f", 8: ".3f", 9: ".3f", 12: ".1f"}
    # Within one number of parts.
    best = dict.fromkeys((3, 5, 7, 10, 11), "low")
    scopes = [row["k"] for row in rows]
    note = (
        "Volume: rows sent by all parts in one exchange; busiest: by the part that sends most. Of "
        "random: over the same number of random rows with as many parts. Mixed: rows and partial "
        "sums of the mixed exchange; all else is of the exchange of rows. Imbalance: heaviest part "
        "over the average part, less 1. ✓: the least of as many parts."
    )
    return Table("Partitions", head, cells, note, best, scopes, formats, sorts=True)


def _trade(rows: Rows) -> Iterator[Figure]:
    """Total against maximum, both over random rows."""
    known = [row for row in rows if None not in (_both(row))]
    kinds = _kinds(rows)
    groups = [[row for row in known if _kind(row["name"], row["k"]) == kind] for kind in kinds]
    if len(known) > 1:
        yield Points(
            "volume-and-busiest", "Volume against busiest part",
            "Both relative to random rows with as many parts. Left: fewer bytes in all; below: the "
            "busiest part, for which the others wait, sends less.",
            "volume / volume of random rows", "busiest part / that of random rows",
            [
                Series(shown(kind), [_both(row)[0] for row in group],
                       [_both(row)[1] for row in group], colour=place % COLOURS)
                for place, (kind, group) in enumerate(zip(kinds, groups, strict=True)) if group
            ],
            [[shown(row["name"]) for row in group] for group in groups if group],
        )  # fmt: skip


def _both(row: Mapping[str, Any]) -> tuple[float, float]:
    return row["relative"]["volume"], row["relative"]["max_send"]


def _sweeps(rows: Rows) -> Iterator[Figure]:
    """Figures over the number of parts, where there are several."""
    if len(_ks(rows)) < 2:
        return
    kinds = {
        kind: [row for row in rows if _kind(row["name"], row["k"]) == kind] for kind in _kinds(rows)
    }
    shown_kinds = list(kinds.items())[:LISTED]
    for key, file, title, label in SWEEPS:
        yield Lines(
            file, f"{title} over k",
            f"{label.capitalize()}, by the number of parts k. Partitions whose names differ only "
            "in k are one curve.",
            "parts k", label,
            [
                Series(shown(name), [row["k"] for row in of], [row[key] for row in of],
                       colour=place % COLOURS, dash=place // COLOURS % 3)
                for place, (name, of) in enumerate(shown_kinds)
            ],
            log_x=True, log_y=key != "imbalance", marks=True, x_ticks=_ks(rows),
        )  # fmt: skip


def _of_k(
    rows: Rows, parts: Mapping[str, Metrics], k: int, kinds: Sequence[str]
) -> Iterator[Figure]:
    """Partitions into as many parts, side by side; in the colours of their kinds."""
    rows = rows[:COLUMNS]
    places = [kinds.index(_kind(row["name"], row["k"])) for row in rows]
    names = [shown(row["name"]) for row in rows]
    short = len(names) <= 4 and max(map(len, names)) < 12
    ticks = names if short else [str(place + 1) for place in range(len(names))]
    names = names if short else [f"{place}. {name}" for place, name in enumerate(names, 1)]
    for key, file, title, label in SWEEPS[:3]:
        yield Bars(
            f"k{k}-{file.removeprefix('sweep-')}", title,
            f"{label.capitalize()}, for each partition into {k} parts"
            + ("." if short else ", numbered as in the legend."),
            "partition", label, names, ticks, {label: [row[key] for row in rows]}, [0],
            _random(rows, key), [place % COLOURS for place in places],
        )  # fmt: skip
    for key, title, label, about in (
        ("sends", "Rows sent by each part", "rows sent",
         "Parts sorted by the rows they send. A steep left end: a few parts send much more."),
        ("work", "Work of each part", "entries multiplied / average",
         "Parts sorted by the entries that they multiply, relative to the average part."),
    ):  # fmt: skip
        series = []
        for place, name, row in list(zip(places, names, rows, strict=True))[:LISTED]:
            found = parts[row["name"]]
            values = np.sort(np.array(found.send_rows if key == "sends" else found.work, float))
            if key == "work":
                values = values / (values.mean() or 1)
            chosen = np.unique(np.linspace(0, k - 1, min(k, 200)).astype(int))
            series.append(Series(
                name, (chosen + 1).tolist(), values[::-1][chosen].tolist(),
                colour=place % COLOURS, dash=place // COLOURS % 3,
            ))  # fmt: skip
        words = f"k{k}-{key}", title, about, "part, by what it has", label
        yield Lines(*words, series, marks=k < 20, x_ticks=range(1, k + 1) if k < 10 else ())


def _random(rows: Rows, key: str) -> tuple[str, float] | None:
    """The figure of random rows with as many parts."""
    for row in rows:
        if row["relative"].get(key):
            return "random rows", row[key] / row["relative"][key]
    return None


def _kind(name: str, k: int) -> str:
    """The name of a partition without its number of parts.

    >>> _kind("hp-16-s1", 16), _kind("mine", 16)
    ('hp-s1', 'mine')
    """
    return re.sub(rf"-{k}(?=-|$)", "", name, count=1)


def _kinds(rows: Rows) -> list[str]:
    """All of them, in order: their places say their colours."""
    return list(dict.fromkeys(_kind(row["name"], row["k"]) for row in rows))


def _ks(rows: Rows) -> list[int]:
    return sorted({row["k"] for row in rows})
