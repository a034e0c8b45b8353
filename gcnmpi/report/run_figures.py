"""Figures of one run: where its time, bytes and memory go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.report.run_facts import (
    COMPUTING,
    PHASE_COLOURS,
    PHASE_NAMES,
    WAITING,
    RunFacts,
    total,
)
from partition.charts.figures import (
    Bars,
    Figure,
    HeatMap,
    Lines,
    Points,
    Series,
    groups_of,
    named,
)
from partition.charts.numbers import BYTES, SECONDS, number, unit_of, with_unit

CELLS = 64  # rows and columns of the bytes between ranks


def time_figures(run: RunFacts, prefix: str) -> list[Figure]:
    """Phases of every rank, and how waiting changes over the epochs."""
    figures: list[Figure] = []
    if run.phases:
        spent = {name: run.phases[name] for name in EPOCH_PHASES if name in run.phases}
        spent = {name: values for name, values in spent.items() if values.any()}
        stack = np.array(list(spent.values())).reshape(len(spent), run.ranks)
        size, unit = unit_of(float(stack.sum(axis=0).max(initial=0)), SECONDS)
        figures.append(_rank_bars(
            run, prefix + "phases", "Phases of each rank",
            f"Mean time of an epoch on each rank, {_who_waits(run)}",
            f"time per epoch ({unit})",
            {PHASE_NAMES[name]: values / size for name, values in spent.items()},
            [PHASE_COLOURS[name] for name in spent],
        ))  # fmt: skip
    if len(run.samples) > 1 and run.ranks > 1:
        figures += [_waiting(run, prefix), _work_over_time(run, prefix)]
    return figures


def traffic_figures(run: RunFacts, prefix: str) -> list[Figure]:
    """Who sends how much to whom."""
    figures: list[Figure] = []
    if run.pairs is not None and run.pairs.any():
        groups = groups_of(run.ranks, CELLS)
        starts = [group.start for group in groups]
        grouped = np.add.reduceat(np.add.reduceat(run.pairs, starts, 0), starts, 1)
        size, unit = unit_of(float(grouped.max()), BYTES)
        shown = np.where(grouped > 0, grouped / size, np.nan)
        together = (
            "" if len(groups[0]) == 1 else f" A cell is {len(groups[0])} × {len(groups[0])} ranks."
        )
        peers = (run.pairs > 0).sum(axis=1)
        place = np.unravel_index(int(run.pairs.argmax()), run.pairs.shape)
        figures.append(HeatMap(
            prefix + "bytes", "Bytes between ranks",
            "What each rank (row) sends to each other (column) in an epoch of training: at most "
            f"{with_unit(float(run.pairs.max()), BYTES)}, from rank {place[0]} to rank {place[1]}. "
            f"On average, a rank sends to {number(float(peers.mean()), 3)} others.{together} Empty "
            "cells: nothing is sent.",
            "to rank", "from rank", shown,
            [f"from {named('rank', group)}" for group in groups],
            [f"to {named('rank', group)}" for group in groups],
            [str(group.start) for group in groups], [str(group.start) for group in groups],
            colour_label=f"bytes per epoch ({unit})",
        ))  # fmt: skip
    for key, title, values in (("sent", "sent", run.sent), ("received", "received", run.received)):
        if values is not None and values.any():
            size, unit = unit_of(float(values.max()), BYTES)
            about = (
                f"What each rank {'sends' if key == 'sent' else 'receives'} in the exchanges of an "
                f"epoch of training, counted where it is handed to MPI: {_spread(values, BYTES)}."
            )
            figures.append(_rank_bars(
                run, prefix + key, f"Bytes {title} by each rank", about,
                f"{title} per epoch ({unit})", {title: values / size}, [0 if key == "sent" else 2],
                mean=True,
            ))  # fmt: skip
    return figures


def work_figures(run: RunFacts, prefix: str) -> list[Figure]:
    """How evenly rows, entries and time are spread."""
    figures: list[Figure] = []
    for key, title, values, colour in (
        ("entries", "Entries of M", run.entries, 0), ("rows", "Vertices", run.rows, 2),
    ):  # fmt: skip
        if values is not None and values.any():
            what = "entries multiplied" if key == "entries" else "vertices owned"
            figures.append(_rank_bars(
                run, prefix + key, f"{title} of each rank",
                f"{what.capitalize()}: {_spread(values)}.",
                what, {what: values}, [colour], mean=True,
            ))  # fmt: skip
    if run.phases and run.entries is not None and run.ranks > 1:
        spent = total(run.phases, ["spmm"])
        if spent.any():
            size, unit = unit_of(float(spent.max()), SECONDS)
            figures.append(Points(
                prefix + "work", "Entries and time",
                "One point per rank. Points on a line through the origin: time follows the number "
                "of entries. A point far above it: a slower or busier core.",
                "entries multiplied", f"sparse products per epoch ({unit})",
                [Series("ranks", run.entries.tolist(), (spent / size).tolist(), colour=0)],
                [[f"rank {rank}" for rank in range(run.ranks)]],
            ))  # fmt: skip
    return figures


def memory_figures(run: RunFacts, prefix: str) -> list[Figure]:
    """The peak of every rank, beside the forecast."""
    if run.peak is None or not run.peak.any():
        return []
    size, unit = unit_of(max(float(run.peak.max()), run.forecast or 0.0), BYTES)
    about = f"The largest memory of each process: {_spread(run.peak, BYTES)}."
    mark = None
    if run.forecast is not None:
        mark = "forecast for the rank that needs most", run.forecast / size
        ratio = float(run.peak.max()) / run.forecast
        about += (
            f" Forecast by gcnmpi plan for the rank that needs most: "
            f"{with_unit(run.forecast, BYTES)}; the largest peak is {ratio:.0%} of that."
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


def _waiting(run: RunFacts, prefix: str) -> HeatMap:
    """How much of an epoch each rank waits, over the epochs."""
    groups = groups_of(run.ranks, CELLS)
    starts, sizes = [group.start for group in groups], [len(group) for group in groups]
    shares = []
    for sample in run.samples:
        wait, work = sample.of(WAITING), sample.of(COMPUTING)
        both = np.where(wait + work > 0, wait + work, 1)
        shares.append(np.add.reduceat(100 * wait / both, starts) / sizes)
    edges = [run.samples[0].after, *(sample.epoch for sample in run.samples)]
    together = "" if len(groups[0]) == 1 else f" A row is the mean of {len(groups[0])} ranks."
    return HeatMap(
        prefix + "waiting", "Waiting over the epochs",
        "The share of an epoch that each rank (row) spends waiting for rows of other ranks or for "
        "the reduction. The rank that waits least is the one that the others wait for. A column is "
        f"the epochs between two samples, which become rarer as a run goes on.{together}",
        "epoch", "rank", np.array(shares).T,
        [named("rank", group) for group in groups],
        [_span(sample.after, sample.epoch) for sample in run.samples],
        [str(start) for start in starts], [str(sample.epoch) for sample in run.samples],
        edges, "waiting (% of an epoch)",
    )  # fmt: skip


def _span_of(values: np.ndarray) -> tuple[list[float], list[float], list[float]]:
    """Mean, least and most over the ranks, of (samples, P)."""
    return values.mean(axis=1).tolist(), values.min(axis=1).tolist(), values.max(axis=1).tolist()


def _work_over_time(run: RunFacts, prefix: str) -> Lines:
    """How long ranks compute and wait, from the rank with the least to the one with the most."""
    found = {
        "computing and packing": np.array([sample.of(COMPUTING) for sample in run.samples]),
        "waiting": np.array([sample.of(WAITING) for sample in run.samples]),
    }
    size, unit = unit_of(
        max(float(values.mean(axis=1).max()) for values in found.values()), SECONDS
    )
    middle = [(sample.after + 1 + sample.epoch) / 2 for sample in run.samples]
    series = [
        Series(name, middle, *_span_of(values / size), colour=colour)
        for (name, values), colour in zip(found.items(), (0, 5), strict=True)
    ]
    slowest = found["computing and packing"].argmax(axis=1)
    rank = int(np.bincount(slowest).argmax())
    often = int((slowest == rank).sum())
    return Lines(
        prefix + "work-over-epochs", "Work and waiting over the epochs",
        "Line: mean over ranks; band: from the rank with the least to the rank with the most. "
        f"Rank {rank} computed longest in {often} of {len(slowest)} samples.",
        "epoch", f"time per epoch ({unit})", series,
        [_span(sample.after, sample.epoch) for sample in run.samples],
    )  # fmt: skip


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
