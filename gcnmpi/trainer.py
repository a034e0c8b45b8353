"""The training loop and its record."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi import __version__
from gcnmpi.comm import agreed, from_root, host_names, maximum, versions
from gcnmpi.layers import Product
from gcnmpi.loading import write_rows
from gcnmpi.loss import SoftmaxCrossEntropy, count_correct
from gcnmpi.optim import make_optimizer
from gcnmpi.problem import Problem, Targets, features_path, load_targets, make_model
from gcnmpi.schemes.interface import Place
from gcnmpi.volume import NOTHING, Volume
from partition.errors import UserError
from partition.records import append_record, atomic_file

RECORD = "run.jsonl"


@dataclass(frozen=True)
class Epoch:
    """What one epoch of training gave; accuracies are None where they were not evaluated.

    Attributes
    ----------
    epoch : int
        From 1.
    loss : float
        Mean cross-entropy over the training vertices, with this epoch's dropout, before its
        update, without the weight-decay term.
    seconds : float
        Forward, backward and update, of the slowest rank; no evaluation.
    """

    epoch: int
    loss: float
    train_accuracy: float | None
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class Result:
    """What a finished run leaves: its epochs, and the model with its last weights."""

    epochs: list[Epoch]
    model: Any
    end: dict[str, Any]


def train(
    problem: Problem,
    out: Path | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Result:
    """Train, and write ``out/run.jsonl`` on rank 0.

    Parameters
    ----------
    problem : Problem
    out : path, optional
        Folder of the run, made if need be; a record of an earlier run in it is kept as
        ``run.previous.jsonl``. None: no record.
    on_epoch : callable
        Called on every rank after each epoch.

    Raises
    ------
    UserError
        On all ranks, if the record cannot be written or the loss is no longer a number.
    """
    comm, config = problem.comm, problem.config
    start = _start_record(problem)
    file = from_root(comm, lambda: None if out is None else str(_new_record(out)))
    step = Step(problem)
    model, targets = step.model, step.targets

    epochs: list[Epoch] = []
    # A loss that overflows is an error below, said once and not by every rank's NumPy.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with quiet, _record(file if comm.rank == 0 else None, start) as write:
        for number in range(1, config.train.epochs + 1):
            began = time.perf_counter()
            value = step(number)
            seconds = maximum(comm, time.perf_counter() - began)
            if not np.isfinite(value):
                error = UserError(f"the loss is {value} in epoch {number}", "lower train.lr")
                with agreed(comm):
                    raise error
            every = config.train.eval_every
            accuracies = {}
            if every and (number % every == 0 or number == config.train.epochs):
                accuracies = evaluate(problem, model, targets)
            epoch = Epoch(
                number, value, accuracies.get("train"), accuracies.get("val"),
                accuracies.get("test"), seconds,
            )  # fmt: skip
            epochs.append(epoch)
            write("epoch", **asdict(epoch))
            on_epoch(epoch)
        end = _end_record(problem, step, epochs)
        write("end", **end)
    return Result(epochs, model, end)


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
    """

    def __init__(self, problem: Problem) -> None:
        manifest, kernel, train = problem.stored.manifest, problem.kernel, problem.config.train
        widths = (manifest.features, *problem.config.model.hidden, manifest.classes)
        self.model = model = make_model(problem, widths)
        self.targets = targets = load_targets(problem, Place(model.depth))
        self._problem = problem
        self._optimizer = make_optimizer(kernel, model.parameters, model.decays(), train)
        self._loss = SoftmaxCrossEntropy(
            problem.scheme, kernel, model.depth, targets.labels, targets.masks["train"],
            targets.counts["train"], widths[-1],
        )  # fmt: skip
        # Reduced in float64 whatever the dtype: the loss and the gradients in one buffer.
        shared = model.gradients.shared
        self._contributions = np.zeros(shared.stop - shared.start + 1)

    def products(self) -> list[Product]:
        """The scheme's products and row operations of an epoch."""
        return [*self.model.products(backward=True), *self._loss.products()]

    def __call__(self, epoch: int) -> float:
        """Run an epoch and return its loss, equal on every rank."""
        problem = self._problem
        with problem.traffic.during("train"), problem.phases("other"):
            loss, gradient = self.gradient(epoch)
            with problem.phases("update"):
                self._optimizer.step(gradient)
        return loss

    def gradient(self, epoch: int) -> tuple[float, Any]:
        """Loss and flat gradient at the model's weights, with the dropout of an epoch.

        Returns
        -------
        loss : float
        gradient : array
            ``model.gradients.flat``, summed over ranks, without weight decay; overwritten by the
            next call.
        """
        problem, model, sums = self._problem, self.model, self._contributions
        kernel, flat = problem.kernel, model.gradients.flat
        logits = model.forward(epoch)
        with problem.phases("loss"):
            sums[-1] = self._loss(logits, model.output_grad)
        model.backward(epoch)
        shared = flat[model.gradients.shared]
        sums[:-1] = kernel.to_host(shared)
        problem.scheme.reduce(sums)
        kernel.copy(kernel.from_host(sums[:-1]), shared)
        return float(sums[-1]), flat


def evaluate(problem: Problem, model: Any, targets: Targets) -> dict[str, float]:
    """Accuracies over the masks, from a pass without dropout; fractions in 0..1."""
    with problem.traffic.during("eval"), problem.phases.as_one("eval"):
        arguments = (model.depth, model.forward(), model.widths[-1])
        correct = count_correct(problem.scheme, *arguments, targets.labels, targets.masks)
        problem.scheme.reduce(correct)
    return {
        name: float(right) / targets.counts[name]
        for name, right in zip(targets.masks, correct, strict=True)
        if targets.counts[name]
    }


def save_weights(path: str | os.PathLike, problem: Problem, model: Any) -> None:
    """Write the weights as ``.npz`` under PyTorch Geometric's names, on rank 0.

    Features that were trained are written beside them, (n, width), by all ranks together.
    """
    if problem.config.model.train_features:
        piece = model.features(model.parameters.flat)
        rows = problem.scheme.original(Place(0), piece, model.widths[0])
        write_rows(problem.comm, features_path(path), rows, problem.stored.graph.n)
    state = model.state()

    def write() -> None:
        with atomic_file(path) as file:
            np.savez(file, **state)

    from_root(problem.comm, write)


def _start_record(problem: Problem) -> dict[str, Any]:
    comm, partition = problem.comm, problem.partition
    packages = ("numpy", "scipy", "python-graphblas")
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "graph": problem.stored.manifest.name,
        "graph_id": problem.stored.manifest.id,
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
        "versions": {
            "gcnmpi": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
            **versions(),
        },
        "config": asdict(problem.config),
        "warnings": list(problem.warnings),
    }


def _end_record(problem: Problem, step: Step, epochs: list[Epoch]) -> dict[str, Any]:
    comm, traffic, config, model = problem.comm, problem.traffic, problem.config.train, step.model
    evaluations = 0
    if config.eval_every:
        evaluations = -(-config.epochs // config.eval_every)
    argmax = ("row_argmax", model.depth, len(step.targets.labels))
    evaluation = [*model.products(backward=False), argmax]
    predicted = _predicted(problem.scheme, step.products()) * config.epochs
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
        "seconds_per_epoch": statistics.median(epoch.seconds for epoch in epochs),
        "orders": [layer.order for layer in model.layers],
        **{key: [numbers[key] for numbers, _ in every] for key in mine},
        "phases": phases,
    }


def _predicted(scheme: Any, products: list[Product]) -> Volume:
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


@contextlib.contextmanager
def _record(file: str | None, start: dict[str, Any]) -> Iterator[Callable[..., None]]:
    """Open the record and give the function that appends to it (without a file: does nothing)."""
    if file is None:
        yield lambda event, **values: None
        return
    with open(file, "a", encoding="utf-8") as opened:

        def write(event: str, **values: Any) -> None:
            append_record(opened, event, **values)

        write("start", **start)
        yield write


def _new_record(out: Path) -> Path:
    path = out / RECORD
    try:
        out.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.replace(out / "run.previous.jsonl")
        path.touch()
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path
