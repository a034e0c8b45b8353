"""MPI in this process: its start, its end, and the end of all ranks for an error nobody catches.

It starts and ends with a command (:func:`run`); in a program of the user's it starts when it is
first needed (:func:`world`), and ends with the process.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from gcnmpi.core.resident import return_large_arrays
from gcnmpi.mpi import launch
from gcnmpi.mpi.comm import MPI, Comm, has_all_ranks, maxima, versions
from gcnmpi.mpi.watch import end_within, waking_slowly, watchdog, within
from partition.errors import EXIT_USER_ERROR, UserError, memory_errors, printing, replace_signs

T = TypeVar("T")
_LAST_SECONDS = 0.5


def run(main: Callable[[Comm], int], timeout: float = 0) -> NoReturn:
    """Initialise MPI, run ``main(world)``, finalise, and exit with what it returns.

    A rank that waits for another in MPI's start or end for more than ``timeout`` seconds ends the
    job (0: none does); ``main`` watches itself.

    A :class:`UserError` that all ranks agreed on (see :func:`agreed`) is printed once and
    gives exit code 2. Any other exception, and a UserError that one rank raises alone, takes the
    whole job down at once: its traceback first, then ``MPI_Abort``.
    """
    gc.freeze()  # the objects of imported modules stay: they are not searched for garbage again
    comm = start(timeout)
    code = 1
    try:
        launch.check_together(comm.size, os.environ, versions()["mpi"])
        with memory_errors(), printing():
            code = main(comm)
    except UserError as error:
        if comm.size > 1 and not getattr(error, "agreed", False):
            abort(comm, f"rank {comm.rank}: error: {error}", EXIT_USER_ERROR)
        if comm.rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        code = EXIT_USER_ERROR
    except KeyboardInterrupt:
        abort(comm, f"rank {comm.rank}: interrupted", 130)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            code = 0
        else:
            abort(comm, f"rank {comm.rank} failed:\n{traceback.format_exc()}", 1)
    finish(comm, code, timeout)


def start(timeout: float = 0) -> Comm:
    """All ranks; MPI starts if it has not yet, with a limit as :func:`run` takes it."""
    return_large_arrays()
    replace_signs()  # programs of users print our tables, too
    if not MPI.Is_initialized():
        rank = launch.launched_rank(os.environ)
        with launch.start_environment(), waking_slowly():
            within(timeout, rank, lambda: MPI.Init_thread(MPI.THREAD_FUNNELED))
    return MPI.COMM_WORLD


def finalize(timeout: float = 0) -> None:
    """End MPI, and this process soon after."""
    end_within(timeout)
    within(timeout, launch.launched_rank(os.environ), MPI.Finalize)


def finish(comm: Comm, code: int, timeout: float = 0) -> NoReturn:
    """End MPI and this process: all ranks do, with the largest of their exit codes."""
    sys.stdout.flush()
    rank, size = comm.rank, comm.size
    with watchdog(timeout, rank):
        code = int(maxima(comm, code)[0])
    finalize(timeout)
    # Open MPI's mpirun crashes now and then, or hangs, when ranks of several hosts return an error
    # together: one does, after the others have gone.
    if rank > 0:
        code = 0
    elif code and size > 1:
        time.sleep(_LAST_SECONDS)
    sys.exit(code)


def abort(comm: Comm, message: str, code: int) -> NoReturn:
    """Say why, and take all ranks down at once."""
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    if comm.size > 1 or launch.launched():
        comm.Abort(code)
    os._exit(code)  # alone; else Abort does not return, which this tells the type checker


class OtherRankError(RuntimeError):
    """Raised where another rank has failed: what it was, in one line."""


def world() -> Comm:
    """All ranks of this program; MPI starts with the first call.

    From then on, an exception that nobody catches takes all ranks down: no rank waits for one that
    has failed. An exception that all ranks raise together is printed once. A program that has
    started MPI itself, as ``from mpi4py import MPI`` does, ends it itself, too.
    """
    if MPI.Is_finalized():
        raise UserError("MPI has ended in this process", "start a new one")
    if MPI.Is_initialized():
        return MPI.COMM_WORLD
    timeout = launch.start_limit(os.environ)
    comm = start(timeout)
    atexit.register(_finalize, timeout)
    sys.excepthook = _hook(comm, sys.excepthook, timeout)
    launch.check_together(comm.size, os.environ, versions()["mpi"])
    return comm


def told(comm: Comm, call: Callable[[], T]) -> T:
    """Call ``call()`` on rank 0; its result comes to every rank, and all raise if it raises.

    Rank 0 raises the exception itself, the others an :class:`OtherRankError` that says what it was;
    a UserError is raised as it is on all.
    """
    value: T | None = None
    error: BaseException | None = None
    if comm.rank == 0:
        try:
            value = call()
        except BaseException as caught:
            error = caught
    sent: Exception | None = None
    if error is not None:
        text = f"rank 0 failed: {type(error).__name__}: {error}"
        sent = error if isinstance(error, UserError) else OtherRankError(text)
    value, sent = comm.bcast((value, sent))
    if sent is None:
        return value  # type: ignore[return-value]
    raised: Any = error or sent
    raised.agreed = has_all_ranks(comm)
    raise raised


def _hook(comm: Comm, before: Callable[..., object], timeout: float) -> Callable[..., None]:
    """A hook for exceptions that nobody has caught; ``before`` prints them."""

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        mistake = isinstance(error, UserError)
        code = EXIT_USER_ERROR if mistake else 1
        if comm.size > 1 and not getattr(error, "agreed", False):
            lines = "".join(traceback.format_exception(kind, error, trace))
            text = f"error: {error}" if mistake else f"failed:\n{lines}"
            abort(comm, f"rank {comm.rank} {text}", code)
        if comm.rank == 0 and mistake:
            print(f"error: {error}", file=sys.stderr, flush=True)
        elif comm.rank == 0:
            before(kind, error, trace)
        if not hasattr(sys, "ps1"):  # which a prompt has, that goes on
            finish(comm, code, timeout)

    return uncaught


def _finalize(timeout: float) -> None:
    sys.stdout.flush()
    if not MPI.Is_finalized():
        finalize(timeout)
