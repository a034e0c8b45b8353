"""The facts of a run that reports show: its record, and arrays of what its ranks did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.report.comparison import further_metrics
from gcnmpi.run.record import Each, End, Epoch, PhaseSample, RunRecord, Start
from partition.errors import UserError

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


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A run, finished or not; arrays are (P,) if nothing else is said, None where not known."""

    name: str  # among the runs it is compared with
    path: str
    start: Start
    end: End  # of a run that did not finish: ``finished`` is False, and nothing is known
    epochs: Sequence[Epoch]
    best: Epoch | None  # the epoch of the best validation metric
    phases: Mapping[str, np.ndarray]  # seconds an epoch in each; empty where not known
    samples: Sequence[_Sample]
    pairs: np.ndarray | None  # (P, P) bytes an epoch from rank (row) to rank (column)
    # An epoch, in the exchanges of training.
    sent: np.ndarray | None
    received: np.ndarray | None
    messages: np.ndarray | None
    rows: np.ndarray | None  # owned
    entries: np.ndarray | None  # multiplied
    peak: np.ndarray | None  # bytes of memory

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.start.ranks

    @property
    def metric(self) -> str:
        """The metric that chose the best weights."""
        return self.start.metric

    @property
    def metrics(self) -> list[str]:
        """All metrics that were evaluated, the one that chose the best weights first."""
        return [self.metric, *further_metrics(self.start)]

    @property
    def forecast(self) -> float | None:
        """Bytes of memory of the rank that needs most."""
        return self.start.of_ranks.memory_forecast_bytes or None

    @property
    def seconds(self) -> float:
        """Median seconds of an epoch."""
        return float(np.median([epoch.seconds for epoch in self.epochs]))

    def curve(self, key: str) -> tuple[list[int], list[float | None]]:
        """Epochs, and their loss, seconds or a metric."""
        values = [getattr(e, key) if key in ("loss", "seconds") else e.metrics.get(key)
                  for e in self.epochs]  # fmt: skip
        return [epoch.epoch for epoch in self.epochs], values

    @property
    def best_epoch(self) -> int | None:
        """The number of this epoch."""
        return None if self.best is None else self.best.epoch

    def of_best(self, mask: str, metric: str) -> float | None:
        """A metric in the epoch of the best validation metric."""
        return None if self.best is None else self.best.of(mask, metric)

    def leads(self, mask: str, metric: str) -> list[float | None]:
        """A metric at the leads from 1 on; empty where one state is predicted."""
        values = (self.end.leads or {}).get(mask, {}).get(metric, [])
        return values if len(values) > 1 else []


@dataclass(frozen=True, eq=False)
class _Sample:
    """The phases of ranks between two epochs: seconds an epoch in each, (P,) arrays."""

    after: int
    epoch: int
    seconds: Mapping[str, np.ndarray]

    def of(self, names: Sequence[str]) -> np.ndarray:
        """Seconds an epoch in several phases together, (P,)."""
        return total(self.seconds, names)


def total(seconds: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The sum of some phases, (P,); 0 where there is none of them."""
    found = [seconds[name] for name in names if name in seconds]
    size = len(next(iter(seconds.values()))) if seconds else 0
    return np.sum(found, axis=0) if found else np.zeros(size)


def facts_of(name: str, path: str, record: RunRecord) -> RunFacts:
    """The facts of a run; a UserError if it has no epoch, or lists are not of all its ranks."""
    if not record.epochs:
        raise UserError(f"{path} has no epoch yet")
    start, end, size = record.start, record.end or End(finished=False), record.start.ranks
    ranks, run = start.of_ranks, end.epochs_run or 1
    try:
        samples = [found for one in record.phase_samples if (found := _sample(one, size))]
        return RunFacts(
            name,
            path,
            start,
            end,
            record.epochs,
            record.best,
            phases=_phases(end, samples, size, run),
            samples=samples,
            pairs=_pairs(start),
            sent=_each("bytes_sent", end.bytes_sent, size, run),
            received=_each("bytes_received", end.bytes_received, size, run),
            messages=_each("messages_sent", end.messages_sent, size, run),
            rows=_each("rows", ranks.rows, size),
            entries=_each("entries", ranks.entries, size),
            peak=_each("peak_memory_bytes", end.peak_memory_bytes, size),
        )
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _each(name: str, values: Each | None, size: int, epochs: int = 1) -> np.ndarray | None:
    """A number for each rank, of one of some epochs."""
    if values is None:
        return None
    found = np.array(values, np.float64)
    if len(found) != size or not np.isfinite(found).all():
        raise ValueError(f"{name} is {str(values)[:80]}, not one number a rank")
    return found / epochs


def _sample(sample: PhaseSample, size: int) -> _Sample | None:
    """The phases of a sample; None of a launch on another number of ranks."""
    if len(next(iter(sample.seconds.values()), [])) != size:
        return None
    count = sample.epoch - sample.after
    each = {name: _each(name, of, size, count) for name, of in sample.seconds.items()}
    return _Sample(sample.after, sample.epoch, each)  # type: ignore[arg-type]


def _phases(end: End, samples: Sequence[_Sample], size: int, run: int) -> dict[str, np.ndarray]:
    """Seconds an epoch of every rank: of the whole run, or as far as samples say it."""
    if end.rank_phases is not None:
        each = {name: _each(name, values, size, run) for name, values in end.rank_phases.items()}
        return {name: values for name, values in each.items() if name != "load"}  # type: ignore[misc]
    counts = [sample.epoch - sample.after for sample in samples]
    names = dict.fromkeys(name for sample in samples for name in sample.seconds)
    return {
        name: np.average([sample.of([name]) for sample in samples], axis=0, weights=counts)
        for name in names
    }


def _pairs(start: Start) -> np.ndarray | None:
    """Bytes of an epoch from rank to rank."""
    ranks, size = start.of_ranks, start.ranks
    if ranks.peers is None or ranks.peer_rows is None:
        return None
    if (len(ranks.peers), len(ranks.peer_rows)) != (size, size):
        raise ValueError("peers are not of every rank")
    sent = np.zeros((size, size))
    for rank, (others, rows) in enumerate(zip(ranks.peers, ranks.peer_rows, strict=True)):
        if not all(0 <= other < size for other in others):
            raise ValueError(f"peers of rank {rank} are {others}")
        sent[rank, others] = rows
    # In a fold a rank sends the rows that it receives in an expand.
    return sent * ranks.expand_row_bytes + sent.T * ranks.fold_row_bytes
