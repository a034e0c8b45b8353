"""Training from Python, and its proof."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gcnmpi.api.calls import Network, Settings, in_session, requested, warn
from gcnmpi.api.graph import Graph
from gcnmpi.api.record import Run
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.mpi.process import told
from gcnmpi.options.requests import TrainRequest, VerifyRequest, job_folder
from gcnmpi.report.checks import print_checks
from gcnmpi.report.progress import Progress
from gcnmpi.run.best import diverged
from gcnmpi.run.claims import Guard, Stopped, check_words, guarded
from gcnmpi.run.problem import Problem
from gcnmpi.run.record import Epoch, read_run
from gcnmpi.run.trainer import train_run

_Callback = Callable[[dict[str, Any]], object]


def train(
    graph: Graph | str | os.PathLike,
    partition: str | None = None,
    *,
    model: Network = None,
    config: Settings = None,
    out: str | os.PathLike | None = None,
    resume: str = "auto",
    callbacks: Sequence[_Callback] = (),
    progress: bool = False,
    log: str = "",
    comm: Comm | None = None,
    **settings: object,
) -> Run:
    """Train on a graph, as ``gcnmpi train`` does: all ranks call it with the same arguments.

    A run that is complete in ``out``, of the same graph and configuration, is not run again, and
    one that was interrupted goes on from its last checkpoint. The folder of the run also gets
    ``weights.npz``, ``best.npz`` where there is something to validate, and ``network.py``
    if ``model`` is a network of one's own.

    Parameters
    ----------
    graph : Graph or path
    partition : str, optional
        Name of a partition into as many parts as there are ranks; one rank needs none.
    model : str or function, optional
        A network that comes along (``"sage"``), one in a file (``"my_file.py:build"``), or a
        function ``build(model, features, classes)`` that describes one.
    config : path or mapping, optional
        A TOML file, or the name of a configuration that comes along, such as "gcn"; or
        keys with their values, ``{"model.hidden": [64]}``.
    out : path, optional
        Folder of the run; default: that of the job, in a script that ``gcnmpi submit`` has started,
        else ``runs/GRAPH-PARTITION-DATE``.
    resume : str
        "auto", "never", or the path of a checkpoint or of a run to go on from.
    callbacks : sequence of callable
        Each is called on rank 0 after every epoch with its record, a dict with "epoch", "loss",
        "seconds" and the metrics ("val_accuracy" …). If one returns True or "stop", the run ends
        there; what one raises, all ranks raise.
    progress : bool
        Show the epochs on the standard error stream.
    log : str
        Logs of the epochs that are written to the folder, for other programs: "csv,tensorboard".
    comm : communicator, optional
        Of mpi4py; default: all ranks.
    **settings
        Keys of the configuration with a "_" for the dot: ``model_hidden=[64]``, ``train_lr=0.01``,
        ``dtype="float64"``.

    Returns
    -------
    Run

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi train`` refuses.
    Stopped
        If ``gcnmpi stop``, SIGUSR1, SIGTERM or a first Ctrl-C asked for an end.
    """
    options = {"graph": graph, "partition": partition, "out": out, "resume": resume, "log": log}
    call = requested(TrainRequest, comm, config, model, settings, **options, keeps=True)
    with call as (comm, request):
        with agreed(comm):
            request = dataclasses.replace(request, out=job_folder(request.out))
        with guarded(comm, request.config, "gcnmpi.train") as guard:
            words = request.words | {"number of callbacks": len(callbacks)}
            check_words(comm, request.config, words)

            def begin(problem: Problem) -> contextlib.AbstractContextManager[Callable]:
                warn(comm, () if progress else problem.told, 5)
                return _epochs(problem, guard, callbacks, progress)

            done = train_run(comm, request, guard, begin)
    rose = diverged(done.epochs, request.config.train.lr)
    warn(comm, () if rose is None else (rose,))
    if done.stopped:
        raise Stopped.on(comm)
    return Run(done.folder, from_root(comm, lambda: read_run(done.folder)))


def verify(
    graph: Graph | str | os.PathLike,
    partition: str | None = None,
    *,
    model: Network = None,
    config: Settings = None,
    comm: Comm | None = None,
    **settings: object,
) -> bool:
    """Whether a run equals one serial process, as ``gcnmpi verify``, which prints a table.

    Parameters
    ----------
    graph, partition, model, config, comm, **settings
        See :func:`train`; in float64 unless ``dtype`` says otherwise.
    """
    from gcnmpi.proof.verify import verify as run

    arguments = VerifyRequest, comm, config, model, settings
    options = {"graph": graph, "partition": partition}
    with in_session("gcnmpi.verify", *arguments, **options) as (comm, request, claims):
        where = request.graph, request.partition, request.config
        found = run(comm, *where, moved=claims.moved)
    if comm.rank == 0:
        print_checks(found)
    return found.ok


@contextlib.contextmanager
def _epochs(
    problem: Problem, guard: Guard, callbacks: Sequence[_Callback], progress: bool
) -> Iterator[Callable[[Epoch], bool]]:
    """Shows progress around the epochs, and gives the function that is called after each."""
    comm = problem.runtime.everyone
    hidden, folders = not progress or comm.rank != 0, guard.claims.folders
    with Progress(problem, hidden, guard.moved, folders=folders) as shown:

        def on_epoch(epoch: Epoch) -> bool:
            shown.epoch(epoch)
            if not callbacks:
                return False
            return told(comm, lambda: True in [_asks_to_stop(call, epoch) for call in callbacks])

        yield on_epoch


def _asks_to_stop(callback: _Callback, epoch: Epoch) -> bool:
    answer = callback(epoch.record())
    if answer is None or isinstance(answer, bool | np.bool_):
        return bool(answer)
    if isinstance(answer, str) and answer == "stop":
        return True
    raise ValueError(f"a callback returned {answer!r}, not None, True or 'stop'")
