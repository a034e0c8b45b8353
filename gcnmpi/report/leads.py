"""Errors of runs on samples by lead: how many states after the last known one is predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcnmpi.report.groups import Record
from gcnmpi.report.pairs import heading_of, label_of
from gcnmpi.report.run_curves import APART, entries_of
from gcnmpi.report.run_facts import RunFacts, leads_of
from gcnmpi.run.record import metric_of
from partition.charts.figures import Figure, Lines, Series, look
from partition.errors import shown
from partition.graph.vertex_pairs import HELD_OUT
from partition.terminal import print_wide, table_of

PRINTED = 12  # leads of a printed table; of more, some that are as far apart


def lead_figures(runs: Sequence[RunFacts], prefix: str = "") -> list[Figure]:
    """Each metric by lead after the last epoch; of several runs, on the test part only."""
    figures: list[Figure] = []
    for metric in dict.fromkeys(metric for run in runs for metric in run.metrics):
        if len(runs) == 1:
            masks = zip(("validation", "test"), HELD_OUT, strict=True)
            lines = [(name, place, [_values(runs[0], mask, metric)])
                     for place, (name, mask) in enumerate(masks)]  # fmt: skip
            whose = ""
        else:
            lines = [(entry.name, entry.place, [_values(run, "test", metric) for run in entry.runs])
                     for entry in entries_of(runs)[:APART]]  # fmt: skip
            whose = ", of the test part of each run"
        series = [one for line in lines if (one := _series(*line)) is not None]
        if series:
            most = max(len(one.x) for one in series)
            about = f"{heading_of(metric)} by how many states ahead is predicted{whose}, after the "
            about += "last epoch."
            if any(one.low for one in series):
                about += " Of several runs, the line is the median, the band from least to most."
            figures.append(Lines(
                f"{prefix}leads-{metric}", f"{heading_of(metric)} by lead", about,
                "states ahead", label_of(metric), series,
                marks=most < 20, x_ticks=range(1, most + 1) if most < 10 else (),
            ))  # fmt: skip
    return figures


def print_leads(names: Sequence[str], starts: Sequence[Record], ends: Sequence[Record]) -> None:
    """A table of the metric of the test part by lead, if any run has one."""
    found = [
        (name, leads_of(end, "test").get(metric_of(start), ()))
        for name, start, end in zip(names, starts, ends, strict=True)
    ]
    most = max(len(values) for _, values in found)
    if not most:
        return
    numbers = np.unique(np.linspace(1, most, min(most, PRINTED)).round().astype(int)).tolist()
    table = table_of(("run",), map(str, numbers))
    for name, values in found:
        if values:
            of = [values[number - 1] if number <= len(values) else None for number in numbers]
            table.add_row(shown(name), *("-" if v is None else f"{v:.3f}" for v in of))
    told = ", ".join(dict.fromkeys(label_of(metric_of(start)) for start in starts))
    print(f"\ntest {shown(told)} after the last epoch, by how many states ahead is predicted:")
    print_wide(table)


def _values(run: RunFacts, mask: str, metric: str) -> Sequence[float | None]:
    return run.leads.get(mask, {}).get(metric, ())


def _series(name: str, place: int, of: Sequence[Sequence[float | None]]) -> Series | None:
    """A curve over leads, the median of some runs; None where no run has a value."""
    known: dict[int, list[float]] = {}
    for values in of:
        for lead, value in enumerate(values, 1):
            if value is not None and np.isfinite(value):
                known.setdefault(lead, []).append(value)
    if not known:
        return None
    xs = sorted(known)
    low, high = ([f(known[x]) for x in xs] if len(of) > 1 else [] for f in (min, max))
    middle = [float(np.median(known[x])) for x in xs]
    return Series(name, xs, middle, low, high, **look(place))
