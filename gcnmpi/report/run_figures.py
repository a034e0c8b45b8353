"""Figures of runs: curves, time and bytes of several; where time, bytes and memory of one go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.options.task import is_better
from gcnmpi.report.comparison import (
    as_text,
    different_keys,
    groups,
    heading_of,
    label_of,
    learns_pairs,
    spread,
)
from gcnmpi.report.run_facts import COMPUTING, PHASE_COLOURS, PHASE_NAMES, WAITING, RunFacts, total
from partition.charts.figures import (
    COLUMNS,
    Bars,
    Binned,
    Figure,
    HeatMap,
    Lines,
    Points,
    Series,
    binned,
    groups_of,
    look,
    named,
)
from partition.charts.numbers import BYTES, SECONDS, number, unit_of, with_unit
from partition.errors import shown
from partition.graph.vertex_pairs import HELD_OUT

APART = 12  # curves that are told apart in one figure
_GREY = 7  # of the palette


@dataclass(frozen=True)
class Entry:
    """A run, or runs that differ in seed and split only, as all figures of several name it."""

    place: int  # from 0; its colour follows from it
    name: str  # with its number, if there are several
    runs: Sequence[RunFacts]


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
class _Curve:
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
            f"{title} after each epoch" if len(runs) == 1 else f"{title} {whose}, after each epoch"
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
) -> list[_Curve]:
    """A curve of each mask of a single run; of several runs, one of the first mask of each."""
    if [len(entry.runs) for entry in entries] != [1]:
        scored = [entry for entry in entries if metric in entry.runs[0].metrics]
        first = masks[0]
        return _of_entries(scored, lambda run: values(run, first, metric), _NAMES[first],
                           chosen_by=metric, ring=ring)  # fmt: skip
    (run,) = entries[0].runs
    best = run.best_epoch if ring else None
    return [
        _Curve(
            _NAMES[mask], *values(run, mask, metric), place, best=best if mask == "val" else None
        )
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
) -> list[_Curve]:
    """A curve for each entry; of more than can be told apart, one of all runs and the best."""
    few = len(entries) <= APART
    chosen = entries if few else [Entry(_GREY, "all runs", [r for e in entries for r in e.runs])]
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
            found.append(_Curve(called, xs, median, entry.place, best=best_epoch))
        else:
            low, high = ([f(known[x]) for x in xs] for f in (min, max))
            found.append(_Curve(called, xs, median, entry.place, low, high))
    return found


def by_run(runs: Sequence[RunFacts]) -> list[Figure]:
    """Time and bytes of an epoch of each run; means of runs that are one entry."""
    entries = entries_of(runs)[:COLUMNS]
    axis = [entry.name for entry in entries], [str(entry.place + 1) for entry in entries]
    figures: list[Figure] = []

    def means(of: Callable[[RunFacts], float]) -> np.ndarray:
        return np.array([np.mean([of(run) for run in entry.runs]) for entry in entries])

    def mean_of_phase(phase: str) -> np.ndarray:
        return means(lambda run: float(total(run.phases, [phase]).mean()))

    if all(run.phases for run in runs):
        stacks, colours, unit = _stacked({name: mean_of_phase(name) for name in EPOCH_PHASES})
        figures.append(Bars(
            "time-by-run", "Where the time goes, by run",
            "Time per epoch in each phase, mean over ranks. Runs are numbered as in the table.",
            "run", f"time per epoch ({unit})", *axis, stacks, colours,
        ))  # fmt: skip
    if any(run.sent is None for run in runs):
        return figures
    own = [look(entry.place)["colour"] for entry in entries] if len(entries) > 1 else ()
    for key, title, of, about in (
        ("bytes-by-run", "Bytes sent, by run", np.sum,
         "What all ranks together send in the exchanges of an epoch of training."),
        ("busiest-by-run", "Bytes of the busiest rank", np.max,
         "What the rank that sends most sends in an epoch of training."),
    ):  # fmt: skip
        values = means(partial(_sent, of))
        if values.any():
            size, unit = unit_of(float(values.max()), BYTES)
            figures.append(Bars(
                key, title, about, "run", f"sent per epoch ({unit})", *axis,
                {"sent": (values / size).tolist()}, [0], own_colours=own,
            ))  # fmt: skip
    return figures


def _sent(of: Callable[[np.ndarray], float], run: RunFacts) -> float:
    assert run.sent is not None
    return float(of(run.sent))


def _stacked(spent: Mapping[str, np.ndarray]) -> tuple[dict[str, Sequence[float]], list[int], str]:
    """Phases as stacks of bars: their heights by name, colours, and the unit of time."""
    there = {name: spent[name] for name in EPOCH_PHASES if name in spent and spent[name].any()}
    size, unit = unit_of(float(np.sum(list(there.values()), axis=0).max(initial=0)), SECONDS)
    heights: dict[str, Sequence[float]] = {
        PHASE_NAMES[name]: (values / size).tolist() for name, values in there.items()
    }
    return heights, [PHASE_COLOURS[name] for name in there], unit


def _curves(
    key: str,
    title: str,
    about: str,
    label: str,
    lines: Sequence[_Curve],
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


CELLS = 64  # rows and columns of the bytes between ranks
# Of one number a rank: title, what it is in a sentence and at the axis, units, colour.
_OF_RANKS = {
    "sent": ("Bytes sent by each rank", "What each rank sends in the exchanges of an epoch of "
             "training, counted where it is handed to MPI", "sent per epoch", BYTES, 0),
    "received": ("Bytes received by each rank", "What each rank receives in the exchanges of an "
                 "epoch of training, counted where it is handed to MPI", "received per epoch",
                 BYTES, 2),
    "entries": ("Entries of M of each rank", "Entries multiplied", "entries multiplied", (), 0),
    "rows": ("Vertices of each rank", "Vertices owned", "vertices owned", (), 2),
}  # fmt: skip


def figures_of_run(run: RunFacts, prefix: str = "") -> dict[str, list[Figure]]:
    """Where the time of a run goes, who sends what to whom, the balance of work, memory."""
    return {
        "time": _phases(run, prefix) + _over_time(run, prefix),
        "bytes": [*_bytes(run, prefix), *_of_ranks(run, prefix, "sent"),
                  *_of_ranks(run, prefix, "received")],
        "balance": [*_of_ranks(run, prefix, "entries"), *_of_ranks(run, prefix, "rows"),
                    *_entries_and_time(run, prefix)],
        "memory": _memory(run, prefix),
    }  # fmt: skip


def _phases(run: RunFacts, prefix: str) -> list[Figure]:
    """The phases of every rank."""
    if not run.phases:
        return []
    stacks, colours, unit = _stacked(run.phases)
    return [_rank_bars(
        run, prefix + "phases", "Phases of each rank",
        f"Mean time of an epoch on each rank, {_who_waits(run)}", f"time per epoch ({unit})",
        {name: np.array(values) for name, values in stacks.items()}, colours,
    )]  # fmt: skip


def _bytes(run: RunFacts, prefix: str) -> list[Figure]:
    """Who sends how much to whom."""
    if run.pairs is None or not run.pairs.any():
        return []
    groups = groups_of(run.ranks, CELLS)
    starts = [group.start for group in groups]
    grouped = np.add.reduceat(np.add.reduceat(run.pairs, starts, 0), starts, 1)
    size, unit = unit_of(float(grouped.max()), BYTES)
    cell = f" A cell is {len(groups[0])} × {len(groups[0])} ranks." if len(groups[0]) > 1 else ""
    peers = (run.pairs > 0).sum(axis=1)
    place = np.unravel_index(int(run.pairs.argmax()), run.pairs.shape)
    ticks = [str(start) for start in starts]
    return [HeatMap(
        prefix + "bytes", "Bytes between ranks",
        "What each rank (row) sends to each other (column) in an epoch of training: at most "
        f"{with_unit(float(run.pairs.max()), BYTES)}, from rank {place[0]} to rank {place[1]}. "
        f"On average, a rank sends to {number(float(peers.mean()), 3)} others.{cell} Empty "
        "cells: nothing is sent.",
        "to rank", "from rank", np.where(grouped > 0, grouped / size, np.nan),
        [f"from {named('rank', group)}" for group in groups],
        [f"to {named('rank', group)}" for group in groups], ticks, ticks,
        colour_label=f"bytes per epoch ({unit})",
    )]  # fmt: skip


def _of_ranks(run: RunFacts, prefix: str, key: str) -> list[Figure]:
    """A bar for each rank, of one of _OF_RANKS; none where it is not known."""
    values = getattr(run, key)
    if values is None or not values.any():
        return []
    title, about, label, units, colour = _OF_RANKS[key]
    size, unit = unit_of(float(values.max()), units) if units else (1.0, "")
    return [_rank_bars(
        run, prefix + key, title, f"{about}: {_spread(values, units)}.",
        f"{label} ({unit})" if unit else label,
        {key if units else label: values / size}, [colour], mean=True,
    )]  # fmt: skip


def _entries_and_time(run: RunFacts, prefix: str) -> list[Figure]:
    """Whether the ranks that multiply most take longest."""
    spent = total(run.phases, ["spmm"])
    if run.entries is None or run.ranks == 1 or not spent.any():
        return []
    size, unit = unit_of(float(spent.max()), SECONDS)
    return [Points(
        prefix + "work", "Entries and time",
        "One point per rank. Points on a line through the origin: time follows the number "
        "of entries. A point far above it: a slower or busier core.",
        "entries multiplied", f"sparse products per epoch ({unit})",
        [Series("ranks", run.entries.tolist(), (spent / size).tolist(), colour=0)],
        [[f"rank {rank}" for rank in range(run.ranks)]],
    )]  # fmt: skip


def _memory(run: RunFacts, prefix: str) -> list[Figure]:
    """The peak of every rank, beside the forecast."""
    if run.peak is None or not run.peak.any():
        return []
    size, unit = unit_of(max(float(run.peak.max()), run.forecast or 0.0), BYTES)
    about = f"The largest memory of each process: {_spread(run.peak, BYTES)}."
    mark = None
    if run.forecast is not None:
        mark = "forecast for the rank that needs most", run.forecast / size
        about += (
            f" Forecast by gcnmpi plan for the rank that needs most: "
            f"{with_unit(run.forecast, BYTES)}; the largest peak is "
            f"{float(run.peak.max()) / run.forecast:.0%} of that."
        )
    return [_rank_bars(
        run, prefix + "memory", "Peak memory", about, f"memory ({unit})",
        {"peak": run.peak / size}, [8], mark=mark,
    )]  # fmt: skip


def _rank_bars(
    run: RunFacts,
    key: str,
    title: str,
    about: str,
    label: str,
    stacks: dict[str, np.ndarray],
    colours: Sequence[int],
    *,
    mean: bool = False,
    mark: tuple[str, float] | None = None,
) -> Bars:
    """A bar for each rank; of very many ranks, the mean of some."""
    groups = groups_of(run.ranks)
    starts, sizes = [group.start for group in groups], [len(group) for group in groups]
    if len(groups) < run.ranks:
        about += f" Each bar is the mean of {sizes[0]} ranks."
    if mean and run.ranks > 1:
        mark = "mean", float(np.mean(list(stacks.values())))
    thinned = {
        name: (np.add.reduceat(values, starts) / sizes).tolist() for name, values in stacks.items()
    }
    return Bars(
        key, title, about, "rank", label, [named("rank", group) for group in groups],
        [str(start) for start in starts], thinned, colours, mark,
    )  # fmt: skip


def _over_time(run: RunFacts, prefix: str) -> list[Figure]:
    """How much each rank waits, and how long ranks compute and wait, over the epochs."""
    samples = run.samples
    if len(samples) < 2 or run.ranks == 1:
        return []
    groups = groups_of(run.ranks, CELLS)
    starts, sizes = [group.start for group in groups], [len(group) for group in groups]
    work, wait = (np.array([s.of(names) for s in samples]) for names in (COMPUTING, WAITING))
    shares = 100 * wait / np.where(wait + work > 0, wait + work, 1)
    row = f" A row is the mean of {len(groups[0])} ranks." if len(groups[0]) > 1 else ""
    spans = [_span(sample.after, sample.epoch) for sample in samples]
    heat = HeatMap(
        prefix + "waiting", "Waiting over the epochs",
        "The share of an epoch that each rank (row) spends waiting for rows of other ranks or for "
        "the reduction. The rank that waits least is the one that the others wait for. A column is "
        f"the epochs between two samples, which become rarer as a run goes on.{row}",
        "epoch", "rank", np.add.reduceat(shares, starts, axis=1).T / np.array(sizes)[:, None],
        [named("rank", group) for group in groups], spans,
        [str(start) for start in starts], [str(sample.epoch) for sample in samples],
        [samples[0].after, *(sample.epoch for sample in samples)], "waiting (% of an epoch)",
    )  # fmt: skip
    size, unit = unit_of(max(float(values.mean(axis=1).max()) for values in (work, wait)), SECONDS)
    middle = [(sample.after + 1 + sample.epoch) / 2 for sample in samples]
    series = []
    for name, values, colour in (("computing and packing", work, 0), ("waiting", wait, 5)):
        mean, low, high = (f(values / size, axis=1).tolist() for f in (np.mean, np.min, np.max))
        series.append(Series(name, middle, mean, low, high, colour=colour))
    slowest = work.argmax(axis=1)
    rank = int(np.bincount(slowest).argmax())
    lines = Lines(
        prefix + "work-over-epochs", "Work and waiting over the epochs",
        "Line: mean over ranks; band: from the rank with the least to the rank with the most. "
        f"Rank {rank} computed longest in {(slowest == rank).sum()} of {len(slowest)} samples.",
        "epoch", f"time per epoch ({unit})", series, spans,
    )  # fmt: skip
    return [heat, lines]


def _who_waits(run: RunFacts) -> str:
    """Who computes longest, and who waits for it."""
    work, wait = total(run.phases, COMPUTING), total(run.phases, WAITING)
    if run.ranks == 1 or not work.any():
        return "on the average of the run."
    slow, patient = int(work.argmax()), int(wait.argmax())
    excess = work[slow] / work.mean() - 1
    return (
        "from below: computing, waiting, then evaluation and checkpoints. Rank "
        f"{slow} computes longest, {with_unit(float(work[slow]), SECONDS)}, {excess:.0%} above "
        f"average; rank {patient} waits longest, {with_unit(float(wait[patient]), SECONDS)}."
    )


def _spread(values: np.ndarray, units: Sequence[tuple[float, str]] = ()) -> str:
    """The largest over the mean, in words."""
    most, mean = float(values.max()), float(values.mean())
    shown = [with_unit(v, units) if units else number(v) for v in (most, mean)]
    if len(values) == 1:
        return shown[0]
    above = f", {most / mean - 1:.1%} above it" if mean else ""
    return f"{shown[1]} on average, {shown[0]} on rank {int(values.argmax())}{above}"


def _span(after: int, epoch: int) -> str:
    return f"epoch {epoch}" if epoch == after + 1 else f"epochs {after + 1} to {epoch}"
