"""Figures that compare runs: their curves, and what an epoch of each takes and sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.options.task import is_better
from gcnmpi.report.groups import as_text, different_keys, groups, spread
from gcnmpi.report.pairs import heading_of, label_of, learns_pairs
from gcnmpi.report.run_facts import PHASE_COLOURS, PHASE_NAMES, RunFacts, total
from partition.charts.figures import COLUMNS, Bars, Binned, Figure, Lines, Series, binned, look
from partition.charts.numbers import BYTES, SECONDS, number, unit_of
from partition.errors import shown
from partition.graph.vertex_pairs import HELD_OUT

APART = 12  # curves that are told apart in one figure
GREY = 7  # of the palette


@dataclass(frozen=True)
class Entry:
    """A run, or runs that differ in seed and split only, as all figures of several name it."""

    place: int  # from 0; its colour follows from it
    name: str  # with its number, if there are several
    runs: Sequence[RunFacts]

    @property
    def colour(self) -> int:
        """Of its curves and bars."""
        return look(self.place)["colour"]


def entries_of(runs: Sequence[RunFacts]) -> list[Entry]:
    """The entries of a comparison: runs that differ by chance only are one."""
    found = groups([run.start for run in runs])
    if len(found) == 1:
        name = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
        return [Entry(0, name, runs)]
    keys = different_keys([runs[places[0]].start for places in found], chance=False)
    entries = []
    for place, places in enumerate(found):
        name = runs[places[0]].name
        if len(places) > 1:
            told = ", ".join(f"{key}={as_text(of[place])}" for key, of in keys.items())
            name = f"{shown(told) or name} ({len(places)} runs)"
        entries.append(Entry(place, f"{place + 1}. {name}", [runs[i] for i in places]))
    return entries


@dataclass(frozen=True)
class Curve:
    """A curve over epochs or leads, its span over several runs, and the best epoch of its run."""

    name: str
    x: Sequence[int]
    y: Sequence[float | None]
    place: int
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    best: int | None = None


def curves(runs: Sequence[RunFacts], prefix: str = "") -> list[Figure]:
    """Loss, metrics and seconds over the epochs, then metrics by lead; of several runs the
    validation metric over the epochs, and the test metric by lead.
    """
    entries, whose = entries_of(runs), "of the run" if len(runs) == 1 else "of each run"
    metrics = list(dict.fromkeys(metric for run in runs for metric in run.metrics))
    parts = {"pairs to train on" if learns_pairs(run.start) else "training vertices"
             for run in runs}  # fmt: skip
    what = f"The loss of the {' or '.join(sorted(parts))} {whose}, in each epoch before its update"
    loss = _of_entries(entries, lambda run: run.curve("loss"), "loss")
    found = _curves(prefix + "loss", "Training loss", what, "loss", loss, log=True)
    for metric in metrics:
        title = heading_of(metric) if len(runs) == 1 else f"Validation {label_of(metric)}"
        what = (
            f"{title}, after each epoch" if len(runs) == 1 else f"{title} {whose}, after each epoch"
        )
        lines = _of_metric(entries, metric, ("val", "test", "train"), _over_epochs)
        slug = "".join(c if c.isalnum() and c.isascii() else "-" for c in metric)
        found += _curves(prefix + slug, title, what, label_of(metric), lines, from_zero=False)
    size, unit = unit_of(max(epoch.seconds for run in runs for epoch in run.epochs), SECONDS)
    spent = _of_entries(entries, lambda run: run.curve("seconds"), "epoch", size=size, ring=False)
    what = f"Forward pass, backward pass and update {whose}, on the slowest rank"
    label = f"time of an epoch ({unit})"
    found += _curves(prefix + "seconds", "Time of an epoch", what, label, spent)
    for metric in metrics:
        title, whose = (
            heading_of(metric),
            "" if len(runs) == 1 else ", of the test part of each run",
        )
        what = f"{title} by how many states ahead is predicted{whose}, after the last epoch"
        lines = _of_metric(entries, metric, ("test",) if whose else HELD_OUT, _by_lead, ring=False)
        found += _curves(f"{prefix}leads-{metric}", f"{title} by lead", what, label_of(metric),
                         lines, over="states ahead")  # fmt: skip
    return found


_Values = tuple[Sequence[int], Sequence[float | None]]
_NAMES = {"val": "validation", "test": "test", "train": "training"}


def _over_epochs(run: RunFacts, mask: str, metric: str) -> _Values:
    return run.curve(f"{mask}_{metric}")


def _by_lead(run: RunFacts, mask: str, metric: str) -> _Values:
    values = run.leads(mask, metric)
    return range(1, len(values) + 1), values


def _of_metric(
    entries: Sequence[Entry],
    metric: str,
    masks: Sequence[str],
    values: Callable[[RunFacts, str, str], _Values],
    ring: bool = True,
) -> list[Curve]:
    """A curve of each mask of a single run; of several runs, one of the first mask of each."""
    if [len(entry.runs) for entry in entries] != [1]:
        scored = [entry for entry in entries if metric in entry.runs[0].metrics]
        first = masks[0]
        return _of_entries(scored, lambda run: values(run, first, metric), _NAMES[first],
                           chosen_by=metric, ring=ring)  # fmt: skip
    (run,) = entries[0].runs
    best = run.best_epoch if ring else None
    return [
        Curve(_NAMES[mask], *values(run, mask, metric), place, best=best if mask == "val" else None)
        for place, mask in enumerate(masks)
    ]


def _of_entries(
    entries: Sequence[Entry],
    values_of: Callable[[RunFacts], _Values],
    name: str,
    *,
    chosen_by: str | None = None,
    size: float = 1.0,
    ring: bool = True,
) -> list[Curve]:
    """A curve for each entry; of more than can be told apart, one of all runs and the best."""
    few = len(entries) <= APART
    chosen = entries if few else [Entry(GREY, "all runs", [r for e in entries for r in e.runs])]
    if not few and chosen_by is not None:
        best, highest = None, None
        for entry in entries:
            mean, _ = spread([run.of_best("val", chosen_by) for run in entry.runs])
            if is_better(chosen_by, mean, highest):
                best, highest = entry, mean
        chosen = [*chosen, *([best] if best else [])]
    found = []
    for entry in chosen:
        called = name if len(entries) == 1 and len(entry.runs) == 1 else entry.name
        known: dict[int, list[float]] = {}
        for run in entry.runs:
            for x, value in zip(*values_of(run), strict=True):
                if value is not None and np.isfinite(value):
                    known.setdefault(x, []).append(value / size)
        xs = sorted(known)
        median = [float(np.median(known[x])) for x in xs]
        if len(entry.runs) == 1:
            best_epoch = entry.runs[0].best_epoch if ring else None
            found.append(Curve(called, xs, median, entry.place, best=best_epoch))
        else:
            low, high = ([f(known[x]) for x in xs] for f in (min, max))
            found.append(Curve(called, xs, median, entry.place, low, high))
    return found


def by_run(runs: Sequence[RunFacts]) -> list[Figure]:
    """Time and bytes of an epoch of each run; means of runs that are one entry."""
    entries = entries_of(runs)[:COLUMNS]
    names = [entry.name for entry in entries]
    ticks = [str(place + 1) for place in range(len(entries))]
    figures: list[Figure] = []
    if all(run.phases for run in runs):
        means = {
            phase: np.array([
                np.mean([total(run.phases, [phase]).mean() for run in entry.runs])
                for entry in entries
            ])
            for phase in EPOCH_PHASES
        }  # fmt: skip
        size, unit = unit_of(float(np.sum(list(means.values()), axis=0).max()), SECONDS)
        stacks = {
            PHASE_NAMES[phase]: (values / size).tolist()
            for phase, values in means.items()
            if values.any()
        }
        figures.append(Bars(
            "time-by-run", "Where the time goes, by run",
            "Time per epoch in each phase, mean over ranks. Runs are numbered as in the table.",
            "run", f"time per epoch ({unit})", names, ticks, stacks,
            [PHASE_COLOURS[phase] for phase, values in means.items() if values.any()],
        ))  # fmt: skip
    sent = {id(run): run.sent for run in runs if run.sent is not None}
    if len(sent) == len({id(run) for run in runs}):
        for key, title, of, about in (
            ("bytes-by-run", "Bytes sent, by run", np.sum,
             "What all ranks together send in the exchanges of an epoch of training."),
            ("busiest-by-run", "Bytes of the busiest rank", np.max,
             "What the rank that sends most sends in an epoch of training."),
        ):  # fmt: skip
            values = [
                float(np.mean([of(sent[id(run)]) for run in entry.runs])) for entry in entries
            ]
            if not any(values):
                continue
            size, unit = unit_of(max(values), BYTES)
            figures.append(Bars(
                key, title, about, "run", f"sent per epoch ({unit})", names, ticks,
                {"sent": [value / size for value in values]}, [0],
                own_colours=[entry.colour for entry in entries] if len(entries) > 1 else (),
            ))  # fmt: skip
    return figures


def _curves(
    key: str,
    title: str,
    about: str,
    label: str,
    lines: Sequence[Curve],
    *,
    log: bool = False,
    from_zero: bool = True,
    over: str = "epoch",
) -> list[Figure]:
    """One figure of curves, of which long ones are thinned; none where nothing is known."""
    series, longest, least, most, bins = [], None, np.inf, -np.inf, 1
    for line in lines:
        points = binned(line.x, line.y)
        if not len(points.mean):
            continue
        thinned = bool((points.last > points.first).any())
        low, high = (points.low, points.high) if thinned else (points.low[:0], points.high[:0])
        if len(line.low):
            low, high = binned(line.x, line.low).low, binned(line.x, line.high).high
        value = dict(zip(line.x, line.y, strict=True)).get(line.best) if line.best else None
        series.append(Series(
            line.name, points.x.tolist(), points.mean.tolist(), low.tolist(), high.tolist(),
            **look(line.place),
            marked=None if value is None else (float(line.best or 0), float(value)),
        ))  # fmt: skip
        least = min([least, points.low.min(), *low])
        most = max([most, points.high.max(), *high])
        longest = points if longest is None else longest
        bins = max(bins, int(points.last[0] - points.first[0]) + 1 if thinned else 1)
    if longest is None:
        return []
    if any(len(line.low) for line in lines):
        about += ". Of several runs, the line is the median, the band from the least to the most"
    if bins > 1:
        about += f". Thinned to bins of {bins} epochs (line: mean, band: range)"
    if len(series) == 1 and log:
        first, last = longest.mean[0], longest.mean[-1]
        about += f". From {number(first, 3)} to {number(last, 3)}"
    leads = 0 if over == "epoch" else max(len(one.x) for one in series)
    return [Lines(
        key, title, f"{about}.", over, label, series, () if leads else _columns(longest),
        log_y=log and least > 0 and most / least > 20, from_zero=from_zero,
        marks=0 < leads < 20, x_ticks=range(1, leads + 1) if leads < 10 else (),
        ring="epoch of the best validation",
    )]  # fmt: skip


def _columns(points: Binned) -> list[str]:
    return [
        f"epoch {int(first)}" if first == last else f"epochs {int(first)} to {int(last)}"
        for first, last in zip(points.first, points.last, strict=True)
    ]
