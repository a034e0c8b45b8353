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
BEST = {
    "volume": "least volume", "max_send": "least busiest part", "messages": "fewest messages",
    "imbalance": "least imbalance",
}  # fmt: skip
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
    ks = _ks(rows)
    overview = Section(
        "overview", "Overview", facts=list(_facts(rows)), figures=list(_overall(rows)),
        tables=[_table(rows)],
    )  # fmt: skip
    text = f"Shown are the first {SHOWN_K} numbers of parts." if len(ks) > SHOWN_K else ""
    of_ks = [
        Section(
            f"k{k}", f"{k} parts", text if k == ks[0] else "", figures=list(_of_k(rows, parts, k))
        )
        for k in ks[:SHOWN_K]
    ]
    write_page(path, title, subtitle, [overview, *of_ks], made_by)


def comparison_figures(rows: Rows, parts: Mapping[str, Metrics]) -> Iterator[Figure]:
    """Every figure of such a page."""
    yield from _overall(rows)
    for k in _ks(rows)[:SHOWN_K]:
        yield from _of_k(rows, parts, k)


def _facts(rows: Rows) -> Iterator[Fact]:
    """How many there are, and the best of the largest number of parts."""
    k = _ks(rows)[-1]
    of_k = [row for row in rows if row["k"] == k]
    yield Fact("partitions", number(len(rows)), f"k = {', '.join(map(str, _ks(rows)))}")
    for key, name in BEST.items():
        best = min(of_k, key=lambda row, key=key: row[key])  # type: ignore[misc]
        ratio = best["relative"].get(key)
        beside = "" if ratio is None or key == "imbalance" else f", {ratio:.2f} of random rows"
        value = f"{best[key]:.3f}" if key == "imbalance" else number(best[key])
        yield Fact(f"{name}, k = {k}", value, f"{shown(best['name'])}, exchange of rows{beside}")
    mixed = {row["name"]: row["mixed"] for row in of_k if row["mixed"]}
    for key in ("volume", "max_send") if mixed else ():
        name = min(mixed, key=lambda name, key=key: mixed[name][key])  # type: ignore[misc]
        note = f"{shown(name)}, mixed exchange: rows and partial sums"
        yield Fact(f"{BEST[key]}, k = {k}", number(mixed[name][key]), note)


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


def _overall(rows: Rows) -> Iterator[Figure]:
    """Total against maximum, both over random rows; and figures over k, where there are several."""
    kinds = list(_by_kind(rows).items())
    ratios = {
        place: [(row, row["relative"]["volume"], row["relative"]["max_send"]) for row in of]
        for place, (_, of) in enumerate(kinds)
    }
    known = {place: [one for one in of if None not in one] for place, of in ratios.items()}
    known = {place: of for place, of in known.items() if of}
    if sum(map(len, known.values())) > 1:
        yield Points(
            "volume-and-busiest", "Volume against busiest part",
            "Both relative to random rows with as many parts. Left: fewer bytes in all; below: the "
            "busiest part, for which the others wait, sends less.",
            "volume / volume of random rows", "busiest part / that of random rows",
            [
                Series(shown(kinds[place][0]), [x for _, x, _ in of], [y for *_, y in of],
                       colour=place % COLOURS)
                for place, of in known.items()
            ],
            [[shown(row["name"]) for row, *_ in of] for of in known.values()],
        )  # fmt: skip
    for key, file, title, label in SWEEPS if len(_ks(rows)) > 1 else ():
        yield Lines(
            file, f"{title} over k",
            f"{label.capitalize()}, by the number of parts k. Partitions whose names differ only "
            "in k are one curve.",
            "parts k", label,
            [
                Series(shown(name), [row["k"] for row in of], [row[key] for row in of],
                       **_look(place))
                for place, (name, of) in enumerate(kinds[:LISTED])
            ],
            log_x=True, log_y=key != "imbalance", marks=True, x_ticks=_ks(rows),
        )  # fmt: skip


def _of_k(every: Rows, parts: Mapping[str, Metrics], k: int) -> Iterator[Figure]:
    """Partitions into as many parts, side by side; in the colours of their kinds."""
    kinds = list(_by_kind(every))
    rows = [row for row in every if row["k"] == k][:COLUMNS]
    places = [kinds.index(_kind(row["name"], k)) for row in rows]
    names = [shown(row["name"]) for row in rows]
    short = len(names) <= 4 and max(map(len, names)) < 12
    ticks = names if short else [str(place + 1) for place in range(len(names))]
    names = names if short else [f"{place}. {name}" for place, name in enumerate(names, 1)]
    for key, file, title, label in SWEEPS[:3]:
        random = [row[key] / row["relative"][key] for row in rows if row["relative"].get(key)]
        yield Bars(
            f"k{k}-{file.removeprefix('sweep-')}", title,
            f"{label.capitalize()}, for each partition into {k} parts"
            + ("." if short else ", numbered as in the legend."),
            "partition", label, names, ticks, {label: [row[key] for row in rows]}, [0],
            ("random rows", random[0]) if random else None, [place % COLOURS for place in places],
        )  # fmt: skip
    for key, title, label, about in (
        ("sends", "Rows sent by each part", "rows sent",
         "Parts sorted by the rows they send. A steep left end: a few parts send much more."),
        ("work", "Work of each part", "entries multiplied / average",
         "Parts sorted by the entries that they multiply, relative to the average part."),
    ):  # fmt: skip
        chosen = np.unique(np.linspace(0, k - 1, min(k, 200)).astype(int))
        series = []
        for place, name, row in list(zip(places, names, rows, strict=True))[:LISTED]:
            found = parts[row["name"]]
            values = np.sort(np.array(found.send_rows if key == "sends" else found.work, float))
            values = values[::-1][chosen] / (1 if key == "sends" else values.mean() or 1)
            series.append(Series(name, (chosen + 1).tolist(), values.tolist(), **_look(place)))
        words = f"k{k}-{key}", title, about, "part, by what it has", label
        yield Lines(*words, series, marks=k < 20, x_ticks=range(1, k + 1) if k < 10 else ())


def _look(place: int) -> dict[str, Any]:
    """The colour and the dashes of the curve of a kind."""
    return {"colour": place % COLOURS, "dash": place // COLOURS % 3}


def _kind(name: str, k: int) -> str:
    """The name of a partition without its number of parts.

    >>> _kind("hp-16-s1", 16), _kind("mine", 16)
    ('hp-s1', 'mine')
    """
    return re.sub(rf"-{k}(?=-|$)", "", name, count=1)


def _by_kind(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each kind, in order: the places of kinds say their colours."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(_kind(row["name"], row["k"]), []).append(row)
    return found


def _ks(rows: Rows) -> list[int]:
    return sorted({row["k"] for row in rows})
