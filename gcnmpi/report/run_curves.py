"""Figures that compare runs: their curves, and what an epoch of each takes and sends."""

from __future__ import annotations

from collections.abc import Sequence
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


def curves(runs: Sequence[RunFacts], prefix: str = "") -> list[Figure]:
    """Loss, metrics and seconds over the epochs; of several runs the validation metric only."""
    entries, whose = entries_of(runs), "of the run" if len(runs) == 1 else "of each run"
    figures: list[Figure] = []
    learned = {
        "pairs to train on" if learns_pairs(run.start) else "training vertices" for run in runs
    }
    what = (
        f"The loss of the {' or '.join(sorted(learned))} {whose}, in each epoch before its update"
    )
    loss = _of_entries(entries, "loss", "loss")
    figures += _curve(prefix + "loss", "Training loss", what, "loss", loss, log=True)
    for metric in dict.fromkeys(metric for run in runs for metric in run.metrics):
        label = label_of(metric)
        if len(runs) == 1:
            masks = (("val", "validation"), ("test", "test"), ("train", "training"))
            best = runs[0].best.get("epoch")
            lines = [
                Curve(
                    name,
                    *runs[0].curve(f"{mask}_{metric}"),
                    place,
                    best=best if mask == "val" else None,
                )
                for place, (mask, name) in enumerate(masks)
            ]
            title = heading_of(metric)
            what = f"{title} after each epoch"
        else:
            title = f"Validation {label}"
            what = f"{title} {whose}, after each epoch"
            scored = [entry for entry in entries if metric in entry.runs[0].metrics]
            lines = _of_entries(scored, f"val_{metric}", "validation", metric)
        figures += _curve(prefix + _slug(metric), title, what, label, lines, from_zero=False)
    most = max(epoch["seconds"] or 0.0 for run in runs for epoch in run.epochs)
    size, unit = unit_of(most, SECONDS)
    spent = _of_entries(entries, "seconds", "epoch", size=size)
    what = f"Forward pass, backward pass and update {whose}, on the slowest rank"
    figures += _curve(
        prefix + "seconds", "Time of an epoch", what, f"time of an epoch ({unit})", spent
    )
    return figures


def _of_entries(
    entries: Sequence[Entry], key: str, name: str, metric: str | None = None, size: float = 1.0
) -> list[Curve]:
    """A curve for each entry; of more than can be told apart, one of all runs and the best."""
    few = len(entries) <= APART
    chosen = entries if few else [Entry(GREY, "all runs", [r for e in entries for r in e.runs])]
    if not few and metric is not None:
        best, highest = None, None
        for entry in entries:
            mean, _ = spread([run.best.get(key) for run in entry.runs])
            if is_better(metric, mean, highest):
                best, highest = entry, mean
        chosen = [*chosen, *([best] if best else [])]
    found = []
    for entry in chosen:
        called = name if len(entries) == 1 and len(entry.runs) == 1 else entry.name
        values: dict[int, list[float]] = {}
        for run in entry.runs:
            for epoch, value in zip(*run.curve(key), strict=True):
                if value is not None and np.isfinite(value):
                    values.setdefault(epoch, []).append(value / size)
        xs = sorted(values)
        median = [float(np.median(values[x])) for x in xs]
        if len(entry.runs) == 1:
            best_epoch = None if key == "seconds" else entry.runs[0].best.get("epoch")
            found.append(Curve(called, xs, median, entry.place, best=best_epoch))
        else:
            low, high = ([f(values[x]) for x in xs] for f in (min, max))
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


@dataclass(frozen=True)
class Curve:
    """A curve over the epochs, with the span that it stands for, and the best epoch of its run."""

    name: str
    x: Sequence[int]
    y: Sequence[float | None]
    place: int
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    best: int | None = None


def _curve(
    key: str,
    title: str,
    about: str,
    label: str,
    lines: Sequence[Curve],
    log: bool = False,
    from_zero: bool = True,
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
    return [Lines(
        key, title, f"{about}.", "epoch", label, series, _columns(longest),
        log_y=log and least > 0 and most / least > 20, from_zero=from_zero,
        ring="epoch of the best validation",
    )]  # fmt: skip


def _columns(points: Binned) -> list[str]:
    return [
        f"epoch {int(first)}" if first == last else f"epochs {int(first)} to {int(last)}"
        for first, last in zip(points.first, points.last, strict=True)
    ]


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)
