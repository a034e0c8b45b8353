"""A training run from what is asked for to its files: what the command and the API share."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gcnmpi.mpi.comm import Comm, from_root
from gcnmpi.mpi.launch import launched
from gcnmpi.mpi.watch import EXIT_REQUEUE, stop_requests, watchdog
from gcnmpi.options.config import Config
from gcnmpi.options.requests import BEST_WEIGHTS, LAST_WEIGHTS, NETWORK, TrainRequest, run_name
from gcnmpi.options.user_network import is_user_network, load_network, source_of
from gcnmpi.run import trainer
from gcnmpi.run.claims import Claims
from gcnmpi.run.opening import open_folder
from gcnmpi.run.preflight import check_training
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.record import End, Epoch, RunRecord
from partition.records import atomic_file

OnEpoch = Callable[[Epoch], bool | None]


class Stopped(SystemExit):
    """A signal asked a run to stop: it has written a checkpoint, and the same call goes on from it.

    A script that does not catch it ends with exit code 75, as ``gcnmpi train`` does.
    """

    @classmethod
    def on(cls, comm: Comm) -> Stopped:
        """To be raised on all ranks: the exit code is that of rank 0."""
        return cls(0 if comm.rank else EXIT_REQUEUE)


@dataclass(frozen=True)
class Guard:
    """The locks, signals and watch around a run."""

    claims: Claims  # locks that are held until the end
    stop: Callable[[], int]  # the signal that asked for an end, SIGUSR1 for a file, or 0
    moved: Callable[[], None]  # called to say that a rank makes progress


@contextlib.contextmanager
def guarded(comm: Comm, config: Config, purpose: str) -> Iterator[Guard]:
    """Locks, signals and files that ask for a checkpoint, and a watch over ranks that hang.

    The purpose is for the locks: "gcnmpi train".
    """
    launcher = os.getppid() if launched() else None
    requests = stop_requests(launcher, tell=comm.rank == 0)
    watch = watchdog(config.comm.timeout, comm.rank)
    with watch as moved, Claims(comm, purpose) as claims, requests as signalled:
        yield Guard(claims, lambda: signalled() or claims.stop_asked(), moved)


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
        result = trainer.train(problem, folder, on_epoch, asked.resume, guard.stop, asked.logs)
    if not result.stopped:
        trainer.save(problem, result, asked.save_weights, asked.save_best)
        if asked.keeps:
            best = folder / BEST_WEIGHTS if result.best.epoch else None
            trainer.save(problem, result, folder / LAST_WEIGHTS, best)
    trained = Trained(folder, result.epochs, result.end, result.stopped)
    del problem, result, on_epoch
    gc.collect()  # the matrices of a run are in circles with its buffers
    return trained


def _keep_network(folder: Path, name: str) -> None:
    with atomic_file(folder / NETWORK, "w") as file:
        file.write(source_of(load_network(name)))
