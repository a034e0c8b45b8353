"""The training loop, with its record and checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.mpi.comm import agreed, from_root, maxima, told_to
from gcnmpi.nn.model import Model
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.options.config import TrainConfig
from gcnmpi.options.task import LOWER_IS_BETTER, chosen_metrics
from gcnmpi.run import checkpoint, checkpoint_files
from gcnmpi.run.best import Best, stops_early
from gcnmpi.run.last_state import SLOW, LastState
from gcnmpi.run.problem import Problem
from gcnmpi.run.ranks_record import PhaseSamples, ranks_record
from gcnmpi.run.record import Epoch
from gcnmpi.run.run_record import (
    check_there,
    end_record,
    evaluates,
    open_record,
    recording,
    start_record,
    tell,
)
from gcnmpi.run.step import Step
from gcnmpi.run.weights import save_weights
from partition.errors import UserError


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    epochs: list[Epoch]  # all of them, also those before it was resumed
    model: Model  # with its last weights
    best: Best
    end: dict[str, Any]  # the last record
    # Whether the run was asked to stop before its last epoch, and can be resumed
    stopped: bool = False
    # The checkpoint of the end, which it writes if there is none; None without a folder
    keep: Callable[[], Path | None] = lambda: None


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
        Names of ``run.logs.LOGS``, which rank 0 writes to ``out`` besides.

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
        tell(found, warnings)
    with told_to(comm, problem.runtime.comm):
        step = Step(problem)
        evaluation = step.work.evaluation()
    model = step.model
    epochs, best = _restored(problem, step, found)
    rate, over = _replayed(config, epochs, best)
    history = checkpoint_files.History(epochs)
    before, since, spent = len(epochs), time.monotonic(), 0.0
    kept = None if found is None else found.path
    file = None
    if out is not None:
        file = from_root(comm, lambda: open_record(out, start, found, over))

        start["of_ranks"] = ranks_record(problem, step)

    def state() -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"weights": model.parameters.flat, **step.optimizer.state()}
        if best.epoch and best.flat is not None:
            arrays["best"] = best.flat
        facts = {
            **step.progress,
            "steps": step.optimizer.steps,
            "best": {"epoch": best.epoch, "value": best.value},
            "versions": start["versions"],
        }
        return arrays, facts

    def save() -> Path:
        runtime = problem.runtime
        during = runtime.phases.as_one("checkpoint"), runtime.traffic.during("checkpoint")
        with during[0], during[1], last.written():
            moved = from_root(comm, write.restore)
            path = checkpoint.save(problem, out, model, *state(), history)  # type: ignore
        check_there(comm, moved, out, path)  # type: ignore[arg-type]
        return path

    def keep() -> None:
        arrays, facts = state()
        numbered = {"epoch": history.last, **facts}
        last.keep(*checkpoint.content(problem, model, arrays, numbered), epochs)

    def interrupt() -> bool:
        """Whether an epoch of many batches is to be interrupted by a checkpoint."""
        minutes = (time.monotonic() - since) / 60
        return out is not None and (stop() > 0 or 0 < config.checkpoint_minutes <= minutes)

    # A loss that overflows is an error below, said once and not by every rank's NumPy.
    quiet = np.errstate(over="ignore", invalid="ignore")
    # Trained features are with all ranks: one alone cannot write them.
    whole = comm.rank == 0 and not problem.config.model.train_features
    last = LastState(out if whole else None)
    with quiet, recording(comm, file, logs, before) as write, last.listening():
        write("start" if found is None else "resume", **start)
        with agreed(comm):
            write.check()
        samples = PhaseSamples(problem.runtime, before)
        stop()  # from here on it is asked in every epoch, and who asks for an end waits for that
        while not over:
            number, began = len(epochs) + 1, time.perf_counter()
            value = step(number, rate(number), interrupt)
            seconds = spent + time.perf_counter() - began
            minutes = (time.monotonic() - since) / 60
            # One reduction lets all ranks decide alike.
            seconds, signal, minutes, failed = maxima(comm, seconds, stop(), minutes, write.failed)
            if failed:
                with agreed(comm):
                    write.check()
            if value is None:  # a signal, or a checkpoint that is due, between two batches
                spent, kept, since = seconds, save(), time.monotonic()
                if signal:
                    end = {"epoch": len(epochs), "signal": int(signal), "checkpoint": kept.name}
                    write("stop", **end, samples=samples.taken)
                    return Result(epochs, model, best, end, stopped=True)
                continue
            spent = 0.0
            if not np.isfinite(value):
                error = UserError(f"the loss is {value} in epoch {number}", "lower train.lr")
                with agreed(comm):
                    raise error
            evaluated = evaluates(config, number)
            values = evaluation() if evaluated else dict.fromkeys(evaluation.names)
            if problem.runtime.world is not None:  # groups may differ in their last digits
                values = comm.bcast(values)
            epoch = Epoch(number, value, values, seconds)
            epochs.append(epoch)
            if evaluated:
                best = best.after(epoch, problem.runtime.kernel, model.parameters.flat)
            over = _observed(config, rate, best, epoch)
            if file is not None and (over or signal or samples.due(number)):
                samples.take(number)
            write("epoch", **epoch.record(), time=round(time.time(), 3))
            over = bool(on_epoch(epoch)) or over
            # A run that has written checkpoints leaves one of its end: it may be given more epochs.
            due = signal or (over and kept) or _checkpoints(config, number, minutes)
            if out is not None and due:
                kept, since = save(), time.monotonic()
                if signal and not over:
                    end = {"epoch": number, "signal": int(signal), "checkpoint": kept.name}
                    write("stop", **end, samples=samples.taken)
                    return Result(epochs, model, best, end, stopped=True)
            elif out is not None and seconds > SLOW and not problem.config.model.train_features:
                keep()
        end = end_record(problem, step, evaluation, epochs, before, best)
        write("end", **end, samples=samples.taken)
        with contextlib.suppress(UserError):  # it is complete, wherever it is
            write.restore()
    return Result(epochs, model, best, end, keep=lambda: kept or (save() if out else None))


def save(problem: Problem, result: Result, weights: Path | None, best: Path | None) -> None:
    """Write the last and the best weights of a run to files, where asked for.

    On all ranks a UserError if one cannot be written; a checkpoint has them then, if that can be
    written.
    """
    chosen = (
        (best, result.best.epoch, result.best.flat),
        (weights, result.epochs[-1].epoch, result.model.parameters.flat),
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
        with contextlib.suppress(UserError):
            if kept := result.keep():
                error.hint = f"they are in {kept}: the same command, started again, writes them"
        raise


def _restored(
    problem: Problem, step: Step, found: checkpoint.Checkpoint | None
) -> tuple[list[Epoch], Best]:
    """Epochs and best weights so far; the step gets its weights and the optimizer its moments."""
    flat = step.model.parameters.flat
    validated = problem.config.train.eval_every and step.work.examples.get("val")
    # Found before, they are kept where nothing is validated any more.
    stored = found is not None and found.facts["best"]["epoch"]
    metric = chosen_metrics(problem.config.task)[0]
    kernel = problem.runtime.kernel
    best = Best(metric, 0, None, kernel.zeros(len(flat)) if validated or stored else None)
    if found is None:
        return [], best
    arrays = {"weights": flat, **step.optimizer.state()}
    if stored and best.flat is not None:
        arrays["best"] = best.flat
        best = replace(best, **found.facts["best"])
    with problem.runtime.phases.as_one("checkpoint"):
        checkpoint.restore(problem, found, step.model, arrays)
    step.optimizer.steps = found.facts["steps"]
    step.go_on(found.facts)
    return list(found.epochs), best


def _replayed(config: TrainConfig, epochs: list[Epoch], best: Best) -> tuple[LearningRate, bool]:
    """The learning rates from here on, and whether the run is over; from the epochs so far."""
    rate, over = LearningRate(config), False
    for epoch in epochs:
        over = _observed(config, rate, best, epoch)
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


def _checkpoints(config: TrainConfig, epoch: int, minutes: float) -> bool:
    every, after = config.checkpoint_every, config.checkpoint_minutes
    return (every > 0 and epoch % every == 0) or (after > 0 and minutes >= after)
