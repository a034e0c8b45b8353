"""The training loop and its record."""

from __future__ import annotations

import contextlib
import datetime
import functools
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi import __version__
from gcnmpi.core.config import TrainConfig
from gcnmpi.core.record import Epoch, Writer, continued_record, is_finished, new_record
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.messages import relative_errors
from gcnmpi.kernels.interface import Array
from gcnmpi.mpi.comm import Comm, agreed, from_root, maxima, versions
from gcnmpi.mpi.hosts import host_names, slurm_job
from gcnmpi.nn.loss import SoftmaxCrossEntropy, count_correct
from gcnmpi.nn.model import Model
from gcnmpi.nn.optim import make_optimizer
from gcnmpi.nn.program import Product
from gcnmpi.run import checkpoint, checkpoint_files
from gcnmpi.run.problem import Problem, Targets, check_trainable, load_targets, make_model, make_sum
from gcnmpi.run.weights import save_weights
from gcnmpi.schemes.interface import Scheme
from partition.errors import UserError


@dataclass(frozen=True)
class Best:
    """The weights with the highest validation accuracy so far, the first of equals.

    Attributes
    ----------
    epoch : int
        0: there is none.
    flat : array or None
        In the layout of ``model.parameters.flat``; None where nothing is validated.
    """

    epoch: int
    val_accuracy: float
    flat: Array | None


@dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes
    ----------
    epochs : list of Epoch
        All of them, also those before it was resumed.
    model : model
        With its last weights.
    best : Best
    end : mapping
        The last record.
    stopped : bool
        Whether the run was asked to stop before its last epoch, and can be resumed.
    keep : callable
        The checkpoint of the end, which it writes if there is none; None without a folder.
    """

    epochs: list[Epoch]
    model: Model
    best: Best
    end: dict[str, Any]
    stopped: bool = False
    keep: Callable[[], Path | None] = lambda: None


def train(
    problem: Problem,
    out: Path | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    resume: str = "never",
    stop: Callable[[], int] = lambda: 0,
) -> Result:
    """Train, and write ``out/run.jsonl`` on rank 0 and checkpoints together.

    Parameters
    ----------
    problem : Problem
    out : path, optional
        Folder of the run, made if need be; the record of an earlier run in it is kept as
        ``run.previous.jsonl``. None: no record and no checkpoints.
    on_epoch : callable
        Called on every rank after each epoch.
    resume : str
        As :func:`gcnmpi.run.checkpoint.find` takes it.
    stop : callable
        Asked on every rank after each epoch; once it is not 0 on one of them, all write a
        checkpoint and return.

    Raises
    ------
    UserError
        On all ranks, if the record or a checkpoint cannot be written, there is none to resume
        from that fits, or the loss is no longer a number.
    """
    comm, config = problem.comm, problem.config.train
    found, warnings = (None, []) if out is None else checkpoint.find(problem, out, resume)
    start = _start_record(problem, warnings)
    if comm.rank == 0:
        _tell(found, warnings)
    step = Step(problem)
    model, targets = step.model, step.targets
    epochs, best = _restored(problem, step, found)
    history = checkpoint_files.History(epochs)
    before, since = len(epochs), time.monotonic()
    kept = None if found is None else found.path
    file = None
    if out is not None:
        file = from_root(comm, lambda: _open_record(out, start, found, config.epochs))

    def save() -> Path:
        arrays = {"weights": model.parameters.flat, **step.optimizer.state()}
        if best.epoch and best.flat is not None:
            arrays["best"] = best.flat
        facts = {
            "steps": step.optimizer.steps,
            "best": {"epoch": best.epoch, "val_accuracy": best.val_accuracy},
            "versions": start["versions"],
        }
        with problem.phases.as_one("checkpoint"), problem.traffic.during("checkpoint"):
            return checkpoint.save(problem, out, model, arrays, history, facts)  # type: ignore

    # A loss that overflows is an error below, said once and not by every rank's NumPy.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with quiet, _recording(comm, file) as write:
        write("start" if found is None else "resume", **start)
        with agreed(comm):
            write.check()
        for number in range(before + 1, config.epochs + 1):
            began = time.perf_counter()
            value = step(number)
            seconds = time.perf_counter() - began
            minutes = (time.monotonic() - since) / 60
            # One reduction lets all ranks decide alike.
            seconds, signal, minutes, failed = maxima(comm, seconds, stop(), minutes, write.failed)
            if failed:
                with agreed(comm):
                    write.check()
            if not np.isfinite(value):
                error = UserError(f"the loss is {value} in epoch {number}", "lower train.lr")
                with agreed(comm):
                    raise error
            accuracies = {}
            if _evaluates(config, number):
                accuracies = evaluate(problem, model, targets)
            epoch = Epoch(
                number, value, accuracies.get("train"), accuracies.get("val"),
                accuracies.get("test"), seconds,
            )  # fmt: skip
            epochs.append(epoch)
            if best.flat is not None and accuracies.get("val", -1.0) > best.val_accuracy:
                problem.kernel.copy(model.parameters.flat, best.flat)
                best = replace(best, epoch=number, val_accuracy=accuracies["val"])
            write("epoch", **asdict(epoch), time=round(time.time(), 3))
            on_epoch(epoch)
            if out is None:
                continue
            last = number == config.epochs
            # A run that has written checkpoints leaves one of its end: it may be given more epochs.
            if signal or (last and kept) or _checkpoints(config, number, minutes):
                kept, since = save(), time.monotonic()
                if signal and not last:
                    end = {"epoch": number, "signal": int(signal), "checkpoint": kept.name}
                    write("stop", **end)
                    return Result(epochs, model, best, end, stopped=True)
        end = _end_record(problem, step, epochs, before, best)
        write("end", **end)
    return Result(epochs, model, best, end, keep=lambda: kept or (save() if out else None))


@contextlib.contextmanager
def _recording(comm: Comm, path: str | None) -> Iterator[Writer]:
    """The record, written to by rank 0; all ranks raise what could not be written, at the end."""
    with agreed(comm):
        hint = "remove the cause; the same command then continues from the last checkpoint"
        write = Writer(path if comm.rank == 0 else None, hint)
    try:
        yield write
    finally:
        write.close()
    with agreed(comm):
        write.check()


class Step:
    """One epoch of training: forward, backward, one reduction, update.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    model : model
        With its initial weights, until the first call.
    targets : Targets
    optimizer : optimizer
    """

    def __init__(self, problem: Problem) -> None:
        kernel, train = problem.kernel, problem.config.train
        with agreed(problem.comm):
            check_trainable(problem.stored)
        self.model = model = make_model(problem)
        self.targets = targets = load_targets(problem, model.place)
        self._problem = problem
        self.optimizer = make_optimizer(kernel, model.parameters, model.penalties(), train)
        self._loss = SoftmaxCrossEntropy(
            problem.scheme, kernel, model.place.layer, targets.labels, targets.masks["train"],
            targets.counts["train"], model.widths[-1],
        )  # fmt: skip
        shared = model.gradients.shared
        self._sum = make_sum(problem, shared.stop - shared.start)

    def products(self) -> list[Product]:
        """The scheme's products and row operations of an epoch."""
        return [*self.model.products(backward=True), *self._loss.products()]

    def __call__(self, epoch: int) -> float:
        """Run an epoch and return its loss, equal on every rank."""
        problem = self._problem
        measured = epoch in (1, problem.config.train.epochs)
        during = problem.traffic.during("train", epoch, measured)
        with during, problem.phases("other"):
            loss, gradient = self.gradient(epoch)
            with problem.phases("update"):
                self.optimizer.step(gradient)
                problem.kernel.finish()
        return loss

    def gradient(self, epoch: int) -> tuple[float, Array]:
        """Loss and flat gradient at the model's weights, with the dropout of an epoch.

        Returns
        -------
        loss : float
        gradient : array
            ``model.gradients.flat``, summed over ranks, without weight decay; overwritten by the
            next call.
        """
        model, flat = self.model, self.model.gradients.flat
        logits = model.forward(epoch)
        with self._problem.phases("loss"):
            loss = self._loss(logits, model.output_grad)
        model.backward(epoch)
        return self._sum(loss, flat[model.gradients.shared]), flat


def evaluate(problem: Problem, model: Model, targets: Targets) -> dict[str, float]:
    """Accuracies over the masks, from a pass without dropout; fractions in 0..1."""
    with problem.traffic.during("eval"), problem.phases.as_one("eval"):
        arguments = (model.place.layer, model.forward(), model.widths[-1])
        correct = count_correct(problem.scheme, *arguments, targets.labels, targets.masks)
        problem.scheme.reduce(correct)
    return {
        name: float(right) / targets.counts[name]
        for name, right in zip(targets.masks, correct, strict=True)
        if targets.counts[name]
    }


def save(problem: Problem, result: Result, weights: Path | None, best: Path | None) -> None:
    """Write the last and the best weights of a run to files, where asked for.

    Raises
    ------
    UserError
        On all ranks, if one cannot be written; a checkpoint has them then, if that can be written.
    """
    chosen = (
        (weights, result.epochs[-1].epoch, result.model.parameters.flat),
        (best, result.best.epoch, result.best.flat),
    )
    with agreed(problem.comm):
        if best is not None and not result.best.epoch:
            raise UserError("--save-best: nothing was validated")
    try:
        for path, epoch, flat in chosen:
            if path is not None and flat is not None:
                loss = result.epochs[epoch - 1].loss
                save_weights(path, problem, result.model, flat, epoch=epoch, loss=loss)
    except UserError as error:
        with contextlib.suppress(UserError):
            if kept := result.keep():
                error.hint = f"they are in {kept}: the same command, started again, writes them"
        raise


def _start_record(problem: Problem, warnings: list[str]) -> dict[str, Any]:
    comm, partition = problem.comm, problem.partition
    packages = ("numpy", "scipy", "python-graphblas")
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "graph": problem.stored.manifest.name,
        "graph_id": problem.stored.manifest.id,
        "data_id": problem.stored.manifest.data_id,
        "n": problem.stored.manifest.n,
        "nnz": problem.stored.manifest.nnz,
        "partition": None if partition is None else partition.name,
        "partition_id": None if partition is None else partition.id,
        "direction": problem.direction,
        "scheme": problem.scheme.name,
        "scheme_options": problem.scheme.describe(),
        "kernel": problem.kernel.name,
        "ranks": comm.size,
        "threads": problem.threads,
        "hosts": host_names(comm),
        "job": slurm_job(),
        "devices": comm.allgather(problem.kernel.device),
        "reduction": problem.reduction,
        "versions": {
            "gcnmpi": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in packages},
            **versions(),
        },
        "config": asdict(problem.config),
        "warnings": [*problem.warnings, *warnings],
    }


_version = functools.cache(version)  # each call parses the package's metadata


def _tell(found: checkpoint.Checkpoint | None, warnings: list[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if found is not None:
        print(f"going on after epoch {found.facts['epoch']}, from {found.path}", file=sys.stderr)


def _restored(
    problem: Problem, step: Step, found: checkpoint.Checkpoint | None
) -> tuple[list[Epoch], Best]:
    """Epochs and best weights so far; the step gets its weights and the optimizer its moments."""
    flat = step.model.parameters.flat
    validated = problem.config.train.eval_every and step.targets.counts.get("val")
    # Found before, they are kept where nothing is validated any more.
    stored = found is not None and found.facts["best"]["epoch"]
    best = Best(0, -1.0, problem.kernel.zeros(len(flat)) if validated or stored else None)
    if found is None:
        return [], best
    arrays = {"weights": flat, **step.optimizer.state()}
    if stored and best.flat is not None:
        arrays["best"] = best.flat
        best = replace(best, **found.facts["best"])
    with problem.phases.as_one("checkpoint"):
        checkpoint.restore(problem, found, step.model, arrays)
    step.optimizer.steps = found.facts["steps"]
    return list(found.epochs), best


def _open_record(
    out: Path, start: dict[str, Any], found: checkpoint.Checkpoint | None, epochs: int
) -> str | None:
    """The record to write to; None where it is complete already."""
    if found is None:
        checkpoint_files.set_aside(out)
        return str(new_record(out))
    epoch, of_out = found.facts["epoch"], found.path.parent == out / checkpoint_files.FOLDER
    if epoch == epochs and of_out and is_finished(out):
        return None
    start |= {"epoch": epoch, "checkpoint": str(found.path)}
    checkpoint_files.discard_after(out, epoch)
    return str(continued_record(out, start, found.epochs))


def _evaluates(config: TrainConfig, epoch: int) -> bool:
    every = config.eval_every
    return every > 0 and (epoch % every == 0 or epoch == config.epochs)


def _checkpoints(config: TrainConfig, epoch: int, minutes: float) -> bool:
    every, after = config.checkpoint_every, config.checkpoint_minutes
    return (every > 0 and epoch % every == 0) or (after > 0 and minutes >= after)


def _end_record(
    problem: Problem, step: Step, epochs: list[Epoch], before: int, best: Best
) -> dict[str, Any]:
    """The last record, of which bytes and phases are those of the epochs after ``before``."""
    comm, traffic, config, model = problem.comm, problem.traffic, problem.config.train, step.model
    run = [epoch.epoch for epoch in epochs[before:]]
    evaluations = sum(_evaluates(config, number) for number in run)
    argmax = ("row_argmax", model.place.layer, len(step.targets.labels))
    evaluation = [*model.products(backward=False), argmax]
    predicted = _predicted(problem.scheme, step.products()) * len(run)
    predicted_eval = _predicted(problem.scheme, evaluation) * evaluations
    mine = {
        **_figures("", traffic["train"], predicted),
        **_figures("eval_", traffic["eval"], predicted_eval),
        "hidden": traffic.hidden("train"),
        "setup_bytes_sent": traffic["setup"].sent,
        "reduce_bytes": traffic["train_reduce"].sent,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    every = comm.allgather((mine, dict(problem.phases.seconds)))
    names = sorted({name for _, seconds in every for name in seconds})
    phases = {}
    for name in names:
        times = [seconds.get(name, 0.0) for _, seconds in every]
        phases[name] = {"min": min(times), "mean": statistics.fmean(times), "max": max(times)}
    return {
        "finished": True,
        "epochs": len(epochs),
        "epochs_run": len(run),
        "best_epoch": best.epoch or None,
        "best_val_accuracy": best.val_accuracy if best.epoch else None,
        "seconds_per_epoch": statistics.median(epoch.seconds for epoch in epochs),
        "orders": list(model.program.orders),
        **{key: [numbers[key] for numbers, _ in every] for key in mine},
        "rounding": relative_errors(comm, traffic.errors),
        "phases": phases,
    }


def _predicted(scheme: Scheme, products: list[Product]) -> Volume:
    return sum((scheme.volume(*product) for product in products), NOTHING)


def _figures(prefix: str, counted: Volume, predicted: Volume) -> dict[str, Any]:
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
