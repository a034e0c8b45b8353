"""The lines of a run's record: how it starts, what its ranks hold, send and spend, how it ends.

The facts of single ranks are small: who sends how many rows to whom is recorded once, and the
seconds of the phases ever less often, so that a long run on many ranks has few of them.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import platform
import resource
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gcnmpi import __version__
from gcnmpi.core.precision import row_bytes
from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.core.volume import Volume
from gcnmpi.halo.messages import relative_errors
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import Comm, agreed, versions
from gcnmpi.mpi.hosts import host_names, most_ranks_a_node, slurm_job
from gcnmpi.options.config import TrainConfig, table_of
from gcnmpi.options.task import chosen_metrics
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate
from gcnmpi.run import checkpoint, checkpoint_files
from gcnmpi.run.best import Best
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.opening import Opened
from gcnmpi.run.problem import Problem
from gcnmpi.run.record import (
    End,
    Epoch,
    ExchangeError,
    PhaseSample,
    RanksRecord,
    Start,
    ids_of,
    is_finished,
)
from gcnmpi.run.step import Forecast, Step
from gcnmpi.run.writer import Writer, continued_record, new_record
from gcnmpi.schemes.operations import EXCHANGES, Operation, Product
from partition.errors import UserError
from partition.graph.samples import SampleSet
from partition.graph.vertex_pairs import HELD_OUT, PairSet

LISTED = 256  # ranks up to which the record says who sends to whom
# Of epochs 16 to 31, 32 to 63 … 16 are sampled, each standing for those before it; of more
# than 64 ranks fewer, so that the numbers stay as many.
SAMPLES, NUMBERS = 16, 1024
_DIGITS = 3


def start_record(problem: Problem, warnings: list[str]) -> Start:
    """The first record of a run: what is run, on what, with what."""
    metric, table = chosen_metrics(problem.config.task)[0], table_of(problem.config)
    how = {"scheme_options": problem.scheme.describe(), "reduction": problem.reduction}
    return opened_record(problem, {**how, "metric": metric, "config": table}, warnings)


def opened_record(
    opened: Opened, how: Mapping[str, Any], warnings: Sequence[str], packages: Sequence[str] = ()
) -> Start:
    """The first record of a run on a graph that is open.

    ``how`` are the fields that tell what is computed on it; ``packages`` those used besides.
    """
    comm, kernel = opened.runtime.everyone, opened.runtime.kernel
    stored, partition = opened.source.stored, opened.source.partition
    # A rank needs not all of them: python-graphblas may be missing where another kernel computes.
    packages = ("numpy", "scipy", "python-graphblas", *packages)
    return Start(
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        graph=stored.manifest.name,
        **ids_of(stored),
        pairs=None if stored.pairs is None else _of_pairs(stored.pairs),
        sample_set=None if stored.samples is None else _of_samples(stored.samples),
        n=stored.manifest.n,
        nnz=stored.manifest.nnz,
        partition=None if partition is None else partition.name,
        partition_id=None if partition is None else partition.id,
        direction=opened.source.direction,
        scheme=opened.config.scheme.name,
        kernel=kernel.name,
        ranks=comm.size,
        groups=comm.size // opened.runtime.comm.size,
        threads=kernel.threads,
        hosts=host_names(comm),
        job=slurm_job(),
        devices=comm.allgather(kernel.device),
        versions={
            "gcnmpi": __version__,
            "python": platform.python_version(),
            **{name: found for name in packages if (found := _version(name)) is not None},
            **kernel.versions(),
            **versions(),
        },
        **how,
        warnings=[*opened.told, *warnings],
    )


def _of_pairs(pairs: PairSet) -> dict[str, object]:
    """Facts of pairs for reports: how they were made, and how many there are."""
    counts = {mask: len(of) for mask, of in pairs.positives.items()}
    negatives = {mask: len(of) for mask, of in pairs.negatives.items()}
    drawn = {mask: pairs.drawn for mask in HELD_OUT if pairs.drawn}
    candidates = drawn | {mask: of.shape[1] for mask, of in pairs.candidates.items()}
    made = {"name": pairs.name, "made": pairs.made, "directed": pairs.directed}
    return {**made, **counts, "negatives": negatives, "candidates": candidates}


def _of_samples(samples: SampleSet) -> dict[str, object]:
    """Facts of samples for reports: how they were made, and how many steps there are of each."""
    counts = {mask: sum(b - a for a, b in some) for mask, some in samples.ranges.items()}
    columns = {"columns": samples.columns, "target_columns": samples.target_columns}
    return {"name": samples.name, "made": samples.made, **columns, **counts}


@functools.cache  # each call parses the package's metadata
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def print_origin(found: checkpoint.Checkpoint | None, warnings: list[str]) -> None:
    """Print what a run goes on from, and what is not as it should be."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if found is not None:
        epoch, batch = found.facts["epoch"], found.facts.get("batch", 0)
        after = f"epoch {epoch}" + (f" and {batch} batches" if batch else "")
        print(f"going on after {after}, from {found.path}", file=sys.stderr)


@contextlib.contextmanager
def recording(
    comm: Comm, path: str | None, logs: Sequence[str] = (), until: int = 0
) -> Iterator[Writer]:
    """The record, written to by rank 0; all ranks raise what could not be written, at the end.

    ``until`` is the epoch that the run goes on from: its logs have those until then.
    """
    hint = "remove the cause; the same command then continues from the last checkpoint"
    with agreed(comm):
        write = Writer(path if comm.rank == 0 else None, hint, logs, until)
    try:
        yield write
    finally:
        write.close()
    with agreed(comm):
        write.check()


def open_record(
    out: Path, start: Start, found: checkpoint.Checkpoint | None, over: bool
) -> str | None:
    """The record to write to; None where it is complete already.

    With ``over``, there are no epochs left to run.
    """
    if found is None:
        checkpoint_files.set_aside(out)
        return str(new_record(out))
    if over and found.path.parent == out / checkpoint_files.FOLDER and is_finished(out):
        return None
    checkpoint_files.discard_after(out, found.path)
    return str(continued_record(out, start, found.epochs))


def check_there(comm: Comm, moved: bool, out: Path, kept: Path) -> None:
    """Raise a UserError on all ranks if the folder of a run was moved while it went on.

    With the folder went the lock that keeps others from writing to it. ``kept`` is the checkpoint
    that a new one has.
    """
    if moved:
        hint = f"the record and {kept} are in a new one: the same command goes on from there"
        with agreed(comm):
            raise UserError(f"{out} was renamed or removed during the run", hint)


def evaluates(config: TrainConfig, epoch: int) -> bool:
    """Whether metrics are evaluated after an epoch; after the last one, always."""
    every = config.eval_every
    return every > 0 and (epoch % every == 0 or epoch == config.epochs)


def end_record(
    problem: Problem,
    step: Step,
    evaluation: Evaluation,
    epochs: Sequence[Epoch],
    before: int,
    best: Best,
) -> End:
    """The last record, of which bytes and phases are those of the epochs after ``before``."""
    runtime, config = problem.runtime, problem.config.train
    run = [epoch.epoch for epoch in epochs[before:]]
    evaluations = sum(evaluates(config, number) for number in run)
    predicted_eval = evaluation.volume() * evaluations
    mine = {
        **_figures("eval_", runtime.traffic["eval"], predicted_eval),
        "hidden": runtime.traffic.hidden("train"),
        **step.work.counted(),
    }
    predicted = step.work.predicted(len(run))
    end = counted_record(runtime, config.epochs, epochs, before, best, predicted, mine)
    errors = relative_errors(runtime.everyone, runtime.traffic.errors)
    return msgspec.structs.replace(
        end,
        leads=evaluation.leads,
        orders=list(step.model.program.orders),
        rounding=msgspec.convert(errors, list[ExchangeError]),
    )


def counted_record(
    runtime: Runtime,
    wanted: int,
    epochs: Sequence[Epoch],
    before: int,
    best: Best,
    predicted: Volume,
    more: Mapping[str, object],
) -> End:
    """Numbers that were counted and timed on every rank, and those of the best epoch.

    Parameters
    ----------
    wanted : int
        How many epochs were asked for.
    predicted : Volume
        Of this rank, in the exchanges of training.
    more : mapping
        Other numbers of this rank.
    """
    traffic, run = runtime.traffic, len(epochs) - before
    mine = {
        **_figures("", traffic["train"], predicted),
        **more,
        "setup_bytes_sent": traffic["setup"].sent,
        "reduce_bytes": traffic["train_reduce"].sent,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    every = runtime.everyone.allgather((mine, dict(runtime.phases.seconds)))
    names = sorted({name for _, seconds in every for name in seconds})
    phases = {}
    for name in names:
        times = [seconds.get(name, 0.0) for _, seconds in every]
        phases[name] = {"min": min(times), "mean": statistics.fmean(times), "max": max(times)}
    each: dict[str, Any] = {key: [numbers[key] for numbers, _ in every] for key in mine}
    return End(
        epochs=len(epochs),
        epochs_run=run,
        stopped_early=len(epochs) < wanted,
        best_epoch=best.epoch or None,
        best={f"best_{mask}_{best.metric}": _at(epochs, best, mask) for mask in HELD_OUT},
        seconds_per_epoch=statistics.median(epoch.seconds for epoch in epochs),
        **each,
        phases=phases,
        rank_phases={
            name: [float(f"{seconds.get(name, 0.0):.6g}") for _, seconds in every] for name in names
        },
    )


def _at(epochs: Sequence[Epoch], best: Best, mask: str) -> float | None:
    """The metric of a mask in the epoch of the best weights."""
    return epochs[best.epoch - 1].of(mask, best.metric) if best.epoch else None


def _figures(prefix: str, counted: Volume, predicted: Volume) -> dict[str, object]:
    """Fields of the record: what was counted beside what was predicted."""
    return {
        f"{prefix}bytes_sent": counted.sent,
        f"{prefix}bytes_predicted": predicted.sent,
        f"{prefix}bytes_received": counted.received,
        f"{prefix}received_predicted": predicted.received,
        f"{prefix}messages_sent": counted.messages,
        f"{prefix}messages_predicted": predicted.messages,
        f"{prefix}shared_bytes": counted.shared,
        f"{prefix}shared_predicted": predicted.shared,
    }


def ranks_record(problem: Problem, step: Step) -> RanksRecord:
    """The rows that every rank holds and sends, for rank 0 to record; all call it together.

    Parameters
    ----------
    step : Step
        An epoch; of mini-batches, each sends other rows.

    Returns
    -------
    RanksRecord
        ``peers`` and ``peer_rows`` are None where no one plan serves all exchanges of an epoch, or
        there are more than ``LISTED`` ranks. Empty on other ranks.
    """
    comm, plan = problem.runtime.comm, problem.scheme.plan
    products, memory = step.work.products(), step.work.forecast()
    per_node = most_ranks_a_node(comm)
    sends: list[tuple[list[int], list[int]]] | None = None
    if plan is not None and products is not None and comm.size <= LISTED:
        mine = plan.send_peers.tolist(), np.diff(plan.send_offsets).tolist()
        sends = comm.gather(mine, root=0)
    if comm.rank:
        return RanksRecord()
    there, back = _row_bytes(problem, products or [])
    return RanksRecord(
        **_forecast(problem, per_node, memory),
        peers=None if sends is None else [peers for peers, _ in sends],
        peer_rows=None if sends is None else [rows for _, rows in sends],
        expand_row_bytes=there,
        fold_row_bytes=back,
    )


class PhaseSamples:
    """The seconds that every rank spent in each phase, between two epochs that are sampled.

    Parameters
    ----------
    runtime : Runtime
    epoch : int
        The last epoch that is over.

    Attributes
    ----------
    taken : list of PhaseSample
        On rank 0.
    """

    def __init__(self, runtime: Runtime, epoch: int) -> None:
        self._comm, self._phases = runtime.everyone, runtime.phases
        self._epoch, self._before = epoch, self._now()
        self.taken: list[PhaseSample] = []

    def due(self, epoch: int) -> bool:
        """Whether an epoch is sampled: every one at first, then every second, every fourth …"""
        return epoch % sampled_every(epoch, self._comm.size) == 0

    def take(self, epoch: int) -> None:
        """Keep what has gone by since the last sample, on rank 0; all call it together."""
        now = self._now()
        mine = now - self._before
        every = np.empty((self._comm.size, len(mine)) if self._comm.rank == 0 else 0)
        self._comm.Gather(mine, every, root=0)
        after, self._epoch, self._before = self._epoch, epoch, now
        if self._comm.rank:
            return
        seconds = {
            name: [float(f"{value:.{_DIGITS}g}") for value in column]
            for name, column in zip(EPOCH_PHASES, every.T.tolist(), strict=True)
            if any(column)
        }
        self.taken.append(PhaseSample(epoch, after, seconds))

    def _now(self) -> np.ndarray:
        return np.array([self._phases.seconds.get(name, 0.0) for name in EPOCH_PHASES])


def sampled_every(epoch: int, size: int) -> int:
    """How many epochs a sample stands for at an epoch: a power of two that grows with it.

    >>> [sampled_every(epoch, 4) for epoch in (1, 63, 64, 1000, 10_000)]
    [1, 2, 4, 32, 512]
    >>> sampled_every(1000, 1024)
    512
    """
    most = max(1, epoch * max(size, NUMBERS // SAMPLES) // NUMBERS)
    return 1 << (most.bit_length() - 1)


def _forecast(problem: Problem, per_node: int, memory: Forecast | None) -> dict[str, Any]:
    """Rows and entries of every rank, and memory of the one that needs most, as ``plan`` has it.

    None of them where nothing can be forecast: a run that goes well does not end for that.
    """
    config, source = problem.config, problem.source
    candidate = Candidate(config.scheme, {}, 0, source.partition, groups=config.train.groups)
    size = problem.runtime.everyone.size
    try:
        setting = problem.setting().on(config, Machine(), per_node)
        case = setting.case(candidate, size)
    except UserError:
        return dict.fromkeys(("rows", "entries", "memory_forecast_bytes"))
    needed = memory(case, source) if memory else setting.epochs.memory(candidate, case)
    groups, copies = config.train.groups, case.forecast.samples
    held = [case.arcs(rank) for rank in range(problem.runtime.comm.size)] * groups
    return {
        "rows": [rows // copies for rows, _, _ in held],
        "entries": [entries for _, _, entries in held],
        "memory_forecast_bytes": needed,
    }


def _row_bytes(problem: Problem, products: list[Product]) -> tuple[int, int]:
    """Bytes that a row of the exchange takes in an epoch: in expands, and in folds."""
    config, folds = problem.config, problem.scheme.describe().get("backward") == "fold"
    itemsize = problem.runtime.kernel.dtype.itemsize
    there = back = 0
    for name, _, *widths in products:
        if name in EXCHANGES:
            taken = row_bytes(config.comm.precision, widths[0], itemsize)
            if name is Operation.FOLD or (name is Operation.AGGREGATE_T and folds):
                back += taken
            else:
                there += taken
    return there, back
