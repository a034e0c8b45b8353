"""A run leaves in its record how it starts, what was counted, and how it ends."""

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

from gcnmpi import __version__
from gcnmpi.core.volume import Volume
from gcnmpi.halo.messages import relative_errors
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import Comm, agreed, versions
from gcnmpi.mpi.hosts import host_names, slurm_job
from gcnmpi.options.config import TrainConfig, table_of
from gcnmpi.options.task import chosen_metrics
from gcnmpi.run import checkpoint, checkpoint_files
from gcnmpi.run.best import Best
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.logs import LOGS, Log
from gcnmpi.run.opening import Opened
from gcnmpi.run.problem import Problem
from gcnmpi.run.record import (
    Epoch,
    continued_record,
    epochs_until,
    ids_of,
    is_finished,
    new_record,
)
from gcnmpi.run.step import Step
from gcnmpi.run.writer import Writer
from partition.errors import UserError
from partition.graph.samples import SampleSet
from partition.graph.vertex_pairs import HELD_OUT, PairSet


def start_record(problem: Problem, warnings: list[str]) -> dict[str, object]:
    """Of what is run, on what, with what."""
    metric, table = chosen_metrics(problem.config.task)[0], table_of(problem.config)
    how = {"scheme_options": problem.scheme.describe(), "reduction": problem.reduction}
    return opened_record(problem, {**how, "metric": metric, "config": table}, warnings)


def opened_record(
    opened: Opened, how: Mapping[str, object], warnings: Sequence[str], packages: Sequence[str] = ()
) -> dict[str, object]:
    """The start of a record, of a graph that is open.

    ``how`` are the fields that tell what is computed on it; ``packages`` those used besides.
    """
    comm, kernel = opened.runtime.everyone, opened.runtime.kernel
    stored, partition = opened.source.stored, opened.source.partition
    # A rank needs not all of them: python-graphblas may be missing where another kernel computes.
    packages = ("numpy", "scipy", "python-graphblas", *packages)
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "graph": stored.manifest.name,
        **ids_of(stored),
        "pairs": None if stored.pairs is None else _of_pairs(stored.pairs),
        "sample_set": None if stored.samples is None else _of_samples(stored.samples),
        "n": stored.manifest.n,
        "nnz": stored.manifest.nnz,
        "partition": None if partition is None else partition.name,
        "partition_id": None if partition is None else partition.id,
        "direction": opened.source.direction,
        "scheme": opened.config.scheme.name,
        "kernel": kernel.name,
        "ranks": comm.size,
        "groups": comm.size // opened.runtime.comm.size,
        "threads": kernel.threads,
        "hosts": host_names(comm),
        "job": slurm_job(),
        "devices": comm.allgather(kernel.device),
        "versions": {
            "gcnmpi": __version__,
            "python": platform.python_version(),
            **{name: found for name in packages if (found := _version(name)) is not None},
            **kernel.versions(),
            **versions(),
        },
        **how,
        "warnings": [*opened.told, *warnings],
    }


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


def tell(found: checkpoint.Checkpoint | None, warnings: list[str]) -> None:
    """Say what it goes on from, and what is not as it should be."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if found is not None:
        epoch, batch = found.facts["epoch"], found.facts.get("batch", 0)
        after = f"epoch {epoch}" + (f" and {batch} batches" if batch else "")
        print(f"going on after {after}, from {found.path}", file=sys.stderr)


class Recorder:
    """The record of a run, and logs of its epochs; :class:`gcnmpi.run.writer.Writer` of both.

    Parameters
    ----------
    path : str or None
        The record; without it, nothing is written.
    logs : sequence of str
        Names of logs, which are written beside the record.
    until : int
        The epoch that the run goes on from; the record has those until then.
    """

    def __init__(self, path: str | None, logs: Sequence[str], until: int) -> None:
        hint = "remove the cause; the same command then continues from the last checkpoint"
        self._writer, self._hint = Writer(path, hint), hint
        self._error: UserError | None = None
        self._logs: list[Log] = []
        if path is not None and logs:
            folder, before = Path(path).parent, epochs_until(path, until) if until else []
            with self._logging():
                self._logs = [LOGS.get(name)(folder, before) for name in logs]
            self.check()

    @property
    def failed(self) -> bool:
        """Whether something could not be written; nothing is written after it."""
        return self._writer.failed or self._error is not None

    def __call__(self, event: str, **values: object) -> None:
        self._writer(event, **values)
        if event == "epoch" and not self.failed:
            with self._logging():
                for log in self._logs:
                    log.add(values)

    def check(self) -> None:
        """Raise the error of what could not be written."""
        self._writer.check()
        if self._error is not None:
            raise self._error

    def restore(self) -> bool:
        """Restore the file as :meth:`gcnmpi.run.writer.Writer.restore` does."""
        return self._writer.restore()

    def close(self) -> None:
        """Close the record and the logs."""
        self._writer.close()
        with self._logging():
            for log in self._logs:
                log.close()

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot write {error.filename or 'a log'}: {error.strerror or error}"
            self._error = self._error or UserError(what, self._hint)


@contextlib.contextmanager
def recording(
    comm: Comm, path: str | None, logs: Sequence[str] = (), until: int = 0
) -> Iterator[Recorder]:
    """The record, written to by rank 0; all ranks raise what could not be written, at the end."""
    with agreed(comm):
        write = Recorder(path if comm.rank == 0 else None, logs, until)
    try:
        yield write
    finally:
        write.close()
    with agreed(comm):
        write.check()


def open_record(
    out: Path, start: dict[str, object], found: checkpoint.Checkpoint | None, over: bool
) -> str | None:
    """The record to write to; None where it is complete already.

    With ``over``, there are no epochs left to run.
    """
    if found is None:
        checkpoint_files.set_aside(out)
        return str(new_record(out))
    epoch, of_out = found.facts["epoch"], found.path.parent == out / checkpoint_files.FOLDER
    if over and of_out and is_finished(out):
        return None
    start |= {"epoch": epoch, "checkpoint": str(found.path)}
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
) -> dict[str, object]:
    """The last record, of which bytes and phases are those of the epochs after ``before``."""
    runtime, config = problem.runtime, problem.config.train
    run = [epoch.epoch for epoch in epochs[before:]]
    evaluations = sum(evaluates(config, number) for number in run)
    predicted_eval = evaluation.volume() * evaluations
    mine = {
        **figures("eval_", runtime.traffic["eval"], predicted_eval),
        "hidden": runtime.traffic.hidden("train"),
        **step.work.counted(),
    }
    predicted = step.work.predicted(len(run))
    end = counted_record(runtime, config.epochs, epochs, before, best, predicted, mine)
    errors = relative_errors(runtime.everyone, runtime.traffic.errors)
    if evaluation.leads is not None:
        end["leads"] = evaluation.leads
    return {**end, "orders": list(step.model.program.orders), "rounding": errors}


def counted_record(
    runtime: Runtime,
    wanted: int,
    epochs: Sequence[Epoch],
    before: int,
    best: Best,
    predicted: Volume,
    more: Mapping[str, object],
) -> dict[str, object]:
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
        **figures("", traffic["train"], predicted),
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
    return {
        "finished": True,
        "epochs": len(epochs),
        "epochs_run": run,
        "stopped_early": len(epochs) < wanted,
        "best_epoch": best.epoch or None,
        **{f"best_{mask}_{best.metric}": _at(epochs, best, mask) for mask in ("val", "test")},
        "seconds_per_epoch": statistics.median(epoch.seconds for epoch in epochs),
        **{key: [numbers[key] for numbers, _ in every] for key in mine},
        "phases": phases,
        "rank_phases": {
            name: [float(f"{seconds.get(name, 0.0):.6g}") for _, seconds in every] for name in names
        },
    }


def _at(epochs: Sequence[Epoch], best: Best, mask: str) -> float | None:
    """The metric of a mask in the epoch of the best weights."""
    return epochs[best.epoch - 1].of(mask, best.metric) if best.epoch else None


def figures(prefix: str, counted: Volume, predicted: Volume) -> dict[str, object]:
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
