"""A training run: from what is asked for to its files, and its loop over the epochs."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.mpi.comm import Comm, agreed, from_root, told_to
from gcnmpi.nn.model import Model
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.options.config import TrainConfig
from gcnmpi.options.requests import BEST_WEIGHTS, LAST_WEIGHTS, NETWORK, TrainRequest, run_name
from gcnmpi.options.task import LOWER_IS_BETTER, chosen_metrics
from gcnmpi.options.user_network import is_user_network, load_network, source_of
from gcnmpi.run import checkpoint
from gcnmpi.run.best import Best, stops_early
from gcnmpi.run.checkpoint import SLOW, LastState
from gcnmpi.run.claims import Guard
from gcnmpi.run.ledger import CheckpointRules, Ledger
from gcnmpi.run.opening import open_folder
from gcnmpi.run.preflight import check_training
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.record import End, Epoch, RunRecord
from gcnmpi.run.run_record import (
    end_record,
    evaluates,
    print_origin,
    ranks_record,
    start_record,
)
from gcnmpi.run.step import Step
from gcnmpi.run.weights import save_weights
from partition.errors import UserError
from partition.records import atomic_file

OnEpoch = Callable[[Epoch], bool | None]


@dataclass(frozen=True)
class Trained:
    """The files and records that a run left."""

    folder: Path
    epochs: list[Epoch]  # empty where the run had finished before
    end: End  # the last record
    stopped: bool  # whether a signal ended it before its last epoch: it can be resumed
    # The record of a run that had finished before, with all that is asked for: nothing was done
    before: RunRecord | None = None


def train_run(
    comm: Comm,
    asked: TrainRequest,
    guard: Guard,
    begin: Callable[[Problem], AbstractContextManager[OnEpoch]],
) -> Trained:
    """Train as asked, unless that has been done, and write record and weights.

    Parameters
    ----------
    begin : callable
        ``begin(problem)`` is a context around the epochs that gives what is called after each of
        them, as :func:`gcnmpi.run.trainer.train` takes it.

    Raises
    ------
    UserError
        On all ranks: as training does.
    """
    for path in filter(None, (asked.save_weights, asked.save_best)):
        guard.claims.file(path)
    if asked.out is not None:
        guard.claims.folder(asked.out)
    guard.claims.graph(asked.graph, asked.partition)
    looked = asked
    if asked.keeps and asked.out is not None:
        looked = dataclasses.replace(asked, save_weights=asked.out / LAST_WEIGHTS)
    stored = open_folder(comm, asked.graph, asked.config)
    before = check_training(comm, looked, stored)
    if before is not None:
        assert asked.out is not None, "only a run that has a folder can be complete"
        return Trained(asked.out, [], before.end or End(), False, before)
    problem = open_problem(comm, stored, asked.partition, asked.config)
    name = run_name(asked.graph, asked.partition)
    folder = asked.out or guard.claims.new_folder(Path("runs"), name)
    if is_user_network(asked.config.model.name):
        from_root(comm, lambda: _keep_network(folder, asked.config.model.name))
    with begin(problem) as on_epoch:
        result = train(problem, folder, on_epoch, asked.resume, guard.stop, asked.logs)
    if not result.stopped:
        save(problem, result, asked.save_weights, asked.save_best)
        if asked.keeps:
            best = folder / BEST_WEIGHTS if result.best.epoch else None
            save(problem, result, folder / LAST_WEIGHTS, best)
    trained = Trained(folder, result.epochs, result.end, result.stopped)
    del problem, result, on_epoch
    gc.collect()  # the matrices of a run are in circles with its buffers
    return trained


def _keep_network(folder: Path, name: str) -> None:
    with atomic_file(folder / NETWORK, "w") as file:
        file.write(source_of(load_network(name)))


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    ledger: Ledger
    state: _TrainingState
    end: End  # the last line of the record; nothing is known of a run that was stopped
    stopped: bool = False  # asked to, before its last epoch: it can be resumed

    @property
    def epochs(self) -> list[Epoch]:
        """All of them, also those before it was resumed."""
        return self.ledger.epochs

    @property
    def best(self) -> Best:
        """The epoch of the best weights."""
        return self.ledger.best

    @property
    def model(self) -> Model:
        """The model, with its last weights."""
        return self.state.step.model


class _TrainingState:
    """The step that trains, and its state in checkpoints: weights, moments, the best weights.

    Parameters
    ----------
    problem : Problem
    versions : object
        Of libraries, for the manifest of checkpoints.
    folder : path or None
        Of the run.
    """

    def __init__(self, problem: Problem, versions: object, folder: Path | None) -> None:
        self._problem, self._versions = problem, versions
        with told_to(problem.runtime.everyone, problem.runtime.comm):
            self.step = Step(problem)
            self.evaluation = self.step.work.evaluation()
        self.best: Array | None = None  # weights, as in ``model.parameters.flat``
        # Trained features are with all ranks: one alone cannot write them.
        trains_features = problem.config.model.train_features
        self._whole = folder is not None and not trains_features
        alone = self._whole and problem.runtime.everyone.rank == 0
        self.last = LastState(folder if alone else None)

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Take over a checkpoint; all ranks call it together."""
        step = self.step
        arrays = {"weights": step.model.parameters.flat, **step.optimizer.state()}
        if found.facts["best"]["epoch"]:
            arrays["best"] = self._of_best()
        with self._problem.runtime.phases.as_one("checkpoint"):
            checkpoint.restore(self._problem, found, step.model, arrays)
        step.optimizer.steps = found.facts["steps"]
        step.go_on(found.facts)

    def keep_best(self) -> None:
        """Remember the weights of now as the best ones."""
        self._problem.runtime.kernel.copy(self.step.model.parameters.flat, self._of_best())

    def save(self, folder: Path, facts: Mapping[str, object], epochs: Sequence[Epoch]) -> Path:
        """Write a checkpoint, as :func:`gcnmpi.run.checkpoint.save`."""
        arrays, more = self._state()
        with self.last.written():
            given = self.step.model, arrays, {**more, **facts}, epochs
            return checkpoint.save(self._problem, folder, *given)

    def keep_last(self, best: Best, epochs: Sequence[Epoch]) -> None:
        """Keep the state after a slow epoch ready, for an end that leaves no time to write it."""
        if self._whole:
            arrays, more = self._state()
            facts = {"epoch": len(epochs), **more, "best": best.facts()}
            self.last.keep(
                *checkpoint.content(self._problem, self.step.model, arrays, facts), epochs
            )

    def _of_best(self) -> Array:
        if self.best is None:
            self.best = self._problem.runtime.kernel.zeros(len(self.step.model.parameters.flat))
        return self.best

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"weights": self.step.model.parameters.flat, **self.step.optimizer.state()}
        if self.best is not None:
            arrays["best"] = self.best
        steps = {"steps": self.step.optimizer.steps, "versions": self._versions}
        return arrays, {**self.step.progress, **steps}


def train(
    problem: Problem,
    out: Path | None = None,
    on_epoch: Callable[[Epoch], bool | None] = lambda epoch: None,
    resume: str = "never",
    stop: Callable[[], int] = lambda: 0,
    logs: Sequence[str] = (),
) -> Result:
    """Train, and write ``out/run.jsonl`` on rank 0 and checkpoints together.

    Parameters
    ----------
    problem : Problem
    out : path, optional
        Folder of the run, made if need be; the record of an earlier run in it is kept as
        ``run.previous.jsonl``. None: no record and no checkpoints.
    on_epoch : callable
        Called on every rank after each epoch. The run ends where it returns True, which it does on
        all of them or on none.
    resume : str
        As :func:`gcnmpi.run.checkpoint.find` takes it.
    stop : callable
        Asked on every rank after each epoch; once it is not 0 on one of them, all write a
        checkpoint and return.
    logs : sequence of str
        Names of ``options.requests.LOGS``, which rank 0 writes to ``out`` besides.

    Raises
    ------
    UserError
        On all ranks, if the record or a checkpoint cannot be written, there is none to resume
        from that fits, or the loss is no longer a number.
    """
    comm, config = problem.runtime.everyone, problem.config.train
    found, warnings = (None, []) if out is None else checkpoint.find(problem, out, resume)
    start = start_record(problem, warnings)
    if comm.rank == 0:
        print_origin(found, warnings)
    state = _TrainingState(problem, start.versions, out)
    step, evaluation = state.step, state.evaluation
    if found is not None:
        state.restore(found)
    rules = CheckpointRules(config.checkpoint_every, config.checkpoint_minutes)
    best = Best(chosen_metrics(problem.config.task)[0])
    ledger = Ledger(problem, out, state, rules, found, best, stop)
    rate, over = _replayed(config, ledger)
    if out is not None:
        start = msgspec.structs.replace(start, of_ranks=ranks_record(problem, step))
    # A loss that overflows is an error below, said once and not by every rank's NumPy.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with quiet, ledger.open(start, logs, over), state.last.listening():
        spent = 0.0
        while not over:
            number, began = len(ledger.epochs) + 1, time.perf_counter()
            value = step(number, rate(number), ledger.interrupts)
            (seconds,) = ledger.agree(spent + time.perf_counter() - began)
            if value is None:  # a signal, or a checkpoint that is due, between two batches
                spent = seconds
                if ledger.leave(False, part=True):
                    return Result(ledger, state, End(finished=False), stopped=True)
                continue
            spent = 0.0
            if not np.isfinite(value):
                error = UserError(f"the loss is {value} in epoch {number}", "lower train.lr")
                with agreed(comm):
                    raise error
            values = dict.fromkeys(evaluation.names)
            if evaluates(config, number):
                values = evaluation()
            if problem.runtime.world is not None:  # groups may differ in their last digits
                values = comm.bcast(values)
            epoch = Epoch(number, value, values, seconds)
            ledger.enter(epoch)
            over = _observed(config, rate, ledger.best, epoch)
            ledger.sample(over)
            ledger.record()
            over = bool(on_epoch(epoch)) or over
            kept = ledger.kept
            if ledger.leave(over):
                return Result(ledger, state, End(finished=False), stopped=True)
            if ledger.kept is kept and seconds > SLOW:
                state.keep_last(ledger.best, ledger.epochs)
        end = end_record(problem, step, evaluation, ledger.epochs, ledger.before, ledger.best)
        ledger.end(end)
    return Result(ledger, state, end)


def save(problem: Problem, result: Result, weights: Path | None, best: Path | None) -> None:
    """Write the last and the best weights of a run to files, where asked for.

    On all ranks a UserError if one cannot be written; a checkpoint has them then, if that can be
    written.
    """
    chosen = (
        (best, result.best.epoch, result.state.best),
        (weights, len(result.epochs), result.model.parameters.flat),
    )
    with agreed(problem.runtime.everyone):
        if best is not None and not result.best.epoch:
            raise UserError("--save-best: nothing was validated")
    try:
        for path, epoch, flat in chosen:
            if path is not None and flat is not None:
                loss = result.epochs[epoch - 1].loss
                save_weights(path, problem, result.model, flat, epoch=epoch, loss=loss)
    except UserError as error:
        ledger = result.ledger
        with contextlib.suppress(UserError):
            if kept := ledger.kept or (ledger.save() if ledger.folder else None):
                error.hint = f"they are in {kept}: the same command, started again, writes them"
        raise


def _replayed(config: TrainConfig, ledger: Ledger) -> tuple[LearningRate, bool]:
    """The learning rates from here on, and whether the run is over; from the epochs so far."""
    rate, over = LearningRate(config), False
    for epoch in ledger.epochs:
        over = _observed(config, rate, ledger.best, epoch)
    return rate, over


def _observed(config: TrainConfig, rate: LearningRate, best: Best, epoch: Epoch) -> bool:
    """Show an epoch to the schedule; whether it was the last one.

    An evaluation that was made only because a run was to end there decides nothing: with more
    epochs, the run goes on as if it had been given them at once.
    """
    number = epoch.epoch
    if config.eval_every and number % config.eval_every == 0:
        lower = best.metric in LOWER_IS_BETTER
        rate.observe(number, epoch.of("val", best.metric), lower)
        if stops_early(config.patience, best, number):
            return True
    return number >= config.epochs
