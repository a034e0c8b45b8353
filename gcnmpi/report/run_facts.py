"""The facts of a run that its page shows, as arrays: taken from its record, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.report.groups import Record, further_metrics
from gcnmpi.run.record import RunRecord, metric_of
from partition.errors import UserError, shown
from partition.graph.vertex_pairs import HELD_OUT

WAITING = ("wait", "reduce", "scratch")  # for other ranks, the network, or a disk
BESIDE = ("eval", "checkpoint")  # not part of an epoch
COMPUTING = tuple(name for name in EPOCH_PHASES if name not in (*WAITING, *BESIDE))
# Computing in blues and greens, waiting in warm colours, what is beside the epochs in grey.
PHASE_COLOURS = {
    "spmm": 0, "gemm": 4, "loss": 2, "update": 8, "other": 9, "pack": 6, "wait": 5, "reduce": 1,
    "eval": 7, "checkpoint": 10, "sample": 3,
    "scratch": 3,  # of runs without mini-batches
}  # fmt: skip
PHASE_NAMES = {
    "spmm": "sparse products", "gemm": "dense products", "loss": "loss", "update": "update",
    "other": "other", "pack": "packing", "wait": "waiting for rows", "reduce": "reduction",
    "eval": "evaluation", "checkpoint": "checkpoints", "sample": "sampling",
    "scratch": "waiting for a disk",
}  # fmt: skip


Leads = Mapping[str, Sequence[float | None]]
"""For each metric, its values at the leads from 1 on."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The phases of ranks between two epochs: seconds an epoch in each, (P,) arrays."""

    after: int
    epoch: int
    seconds: Mapping[str, np.ndarray]

    def of(self, names: Sequence[str]) -> np.ndarray:
        """Seconds an epoch in several phases together, (P,)."""
        return total(self.seconds, names)


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A run, finished or not; arrays are (P,) if nothing else is said, None where not known."""

    name: str  # among the runs it is compared with
    start: Record
    end: Record  # empty where the run did not finish
    epochs: Sequence[Record]
    metric: str
    ranks: int
    phases: Mapping[str, np.ndarray]  # seconds an epoch in each; empty where not known
    load: np.ndarray | None  # seconds before the first epoch
    samples: Sequence[Sample]
    pairs: np.ndarray | None  # (P, P) bytes an epoch from rank (row) to rank (column)
    # An epoch, in the exchanges of training.
    sent: np.ndarray | None
    received: np.ndarray | None
    messages: np.ndarray | None
    rows: np.ndarray | None  # owned
    entries: np.ndarray | None  # multiplied
    peak: np.ndarray | None  # bytes of memory
    forecast: float | None  # bytes of memory of the rank that needs most
    leads: Mapping[str, Leads]  # of "val" and "test", on samples

    def curve(self, key: str) -> tuple[list[int], list[float | None]]:
        """Epochs, and their values of a field."""
        return [e["epoch"] for e in self.epochs], [e.get(key) for e in self.epochs]

    @property
    def metrics(self) -> list[str]:
        """All metrics that were evaluated, the one that chose the best weights first."""
        return [self.metric, *further_metrics(self.start)]

    @property
    def best(self) -> Record:
        """The epoch of the best validation metric; empty where it is not known."""
        number = self.end.get("best_epoch")
        return next((e for e in self.epochs if e["epoch"] == number), {})

    @property
    def seconds(self) -> float:
        """Median seconds of an epoch."""
        return float(np.median([e["seconds"] for e in self.epochs]))


def facts_of(name: str, path: str, record: RunRecord) -> RunFacts:
    """The facts of a run; a UserError if it has no epoch, or no run writes such a record."""
    if not record.epochs:
        raise UserError(f"{path} has no epoch yet")
    try:
        return _facts_of(name, record)
    except _WRONG as error:
        raise UserError(f"{path} is damaged: {shown(str(error))}") from error


def leads_of(end: Record, mask: str) -> Leads:
    """Metrics by lead of a mask in the last record of a run; empty where one state is predicted.

    A ValueError if it is not what runs write.
    """
    every = end.get("leads", {})
    found = every.get(mask, {}) if isinstance(every, Mapping) else None
    if not isinstance(found, Mapping):
        raise ValueError(f"leads is {str(every)[:80]}")
    for values in found.values():
        if not isinstance(values, list) or not all(
            value is None or type(value) in (int, float) for value in values
        ):
            raise ValueError(f"leads has {str(values)[:80]}, not one number a lead")
    return {str(metric): values for metric, values in found.items() if len(values) > 1}


_WRONG = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


def total(seconds: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The sum of some phases, (P,); 0 where there is none of them."""
    found = [seconds[name] for name in names if name in seconds]
    size = len(next(iter(seconds.values()))) if seconds else 0
    return np.sum(found, axis=0) if found else np.zeros(size)


def _facts_of(name: str, record: RunRecord) -> RunFacts:
    start, end, ranks = record.start, record.end or {}, record.ranks
    size = start.get("ranks", 1)
    if type(size) is not int or size < 1:
        raise ValueError(f"ranks is {size!r}")
    for facts, field, kind in (
        (start, "versions", dict), (start, "scheme_options", dict), (start, "devices", list),
        (end, "orders", list), (end, "phases", dict),
    ):  # fmt: skip
        if not isinstance(facts.get(field), kind | None):
            raise ValueError(f"{field} is {str(facts[field])[:80]!r}")
    # Samples of a launch on another number of ranks are of other ranks.
    samples = [s for s in (_sample(sample) for sample in record.samples) if s.ranks == size]
    run = end.get("epochs_run") or 1
    if type(run) is not int or run < 0:
        raise ValueError(f"epochs_run is {run!r}")
    phases, load = _phases(end, samples, size, run)
    each = {
        key: None if (found := _numbers(end, key, size)) is None else found / run
        for key in ("bytes_sent", "bytes_received", "messages_sent")
    }
    forecast = ranks.get("memory_forecast_bytes")
    return RunFacts(
        name=name,
        start=start,
        end=end,
        epochs=record.epochs,
        metric=metric_of(start),
        ranks=size,
        phases=phases,
        load=load,
        samples=[sample.shown for sample in samples],
        pairs=_pairs(ranks, size),
        sent=each["bytes_sent"],
        received=each["bytes_received"],
        messages=each["messages_sent"],
        rows=_numbers(ranks, "rows", size),
        entries=_numbers(ranks, "entries", size),
        peak=_numbers(end, "peak_memory_bytes", size),
        forecast=float(forecast) if forecast else None,
        leads={mask: leads_of(end, mask) for mask in HELD_OUT},
    )


@dataclass(frozen=True)
class _Sampled:
    shown: Sample
    ranks: int
    count: int


def _sample(record: Record) -> _Sampled:
    after, epoch, seconds = record["after"], record["epoch"], record["seconds"]
    if type(after) is not int or type(epoch) is not int or epoch <= after:
        raise ValueError(f"a sample of phases after epoch {after!r}, in epoch {epoch!r}")
    size = len(next(iter(seconds.values()), []))
    found = {str(name): _numbers(seconds, name, size) for name in seconds}
    each = {name: values / (epoch - after) for name, values in found.items() if values is not None}
    return _Sampled(Sample(after, epoch, each), size, epoch - after)


def _phases(
    end: Record, samples: Sequence[_Sampled], size: int, run: int
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Seconds an epoch of every rank: of the whole run, or as far as samples say it."""
    if "rank_phases" in end:
        whole = {str(name): _numbers(end["rank_phases"], name, size) for name in end["rank_phases"]}
        known = {name: values for name, values in whole.items() if values is not None}
        load = known.pop("load", None)
        return {name: values / run for name, values in known.items()}, load
    count = sum(sample.count for sample in samples)
    names = dict.fromkeys(name for sample in samples for name in sample.shown.seconds)
    return {
        name: sum(
            (sample.shown.of([name]) * sample.count for sample in samples), np.zeros(size)
        ) / count
        for name in names
    }, None  # fmt: skip


def _pairs(ranks: Record, size: int) -> np.ndarray | None:
    peers, rows = ranks.get("peers"), ranks.get("peer_rows")
    if peers is None or rows is None:
        return None
    if len(peers) != size or len(rows) != size:
        raise ValueError("peers are not of every rank")
    sent = np.zeros((size, size))
    for rank, (others, counts) in enumerate(zip(peers, rows, strict=True)):
        sent[rank, np.asarray(others, np.int64)] = np.asarray(counts, np.float64)
    # In a fold a rank sends the rows that it receives in an expand.
    return sent * float(ranks["expand_row_bytes"]) + sent.T * float(ranks["fold_row_bytes"])


def _numbers(facts: Mapping[str, object], name: str, size: int) -> np.ndarray | None:
    """One number a rank; None where there is no such field."""
    values = facts.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != size:
        raise ValueError(f"{name} is {str(values)[:80]}, not one number a rank")
    if not all(type(value) in (int, float) for value in values):
        raise ValueError(f"{name} is {str(values)[:80]}, not one number a rank")
    found = np.array(values, np.float64)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} is not finite")
    return found
