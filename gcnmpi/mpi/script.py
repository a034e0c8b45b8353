"""MPI in a program of the user's: it starts when it is first needed, and ends with the process."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from gcnmpi.mpi.comm import MPI, Comm, abort, finalize, finish, has_all_ranks, start, versions
from gcnmpi.mpi.launch import check_together, start_limit
from partition.errors import EXIT_USER_ERROR, UserError

T = TypeVar("T")


class OtherRankError(RuntimeError):
    """Raised where another rank has failed: what it was, in one line."""


def world() -> Comm:
    """All ranks of this program; MPI starts with the first call.

    From then on, an exception that nobody catches takes all ranks down: no rank waits for one that
    has failed. What all ranks raise together is printed once. A program that has started MPI
    itself, as ``from mpi4py import MPI`` does, ends it itself, too.
    """
    if MPI.Is_finalized():
        raise UserError("MPI has ended in this process", "start a new one")
    if MPI.Is_initialized():
        return MPI.COMM_WORLD
    timeout = start_limit(os.environ)
    comm = start(timeout)
    atexit.register(_finalize, timeout)
    sys.excepthook = _hook(comm, sys.excepthook, timeout)
    check_together(comm.size, os.environ, versions()["mpi"])
    return comm


def told(comm: Comm, call: Callable[[], T]) -> T:
    """What ``call()`` returns on rank 0, on every rank; whatever it raises, all ranks raise.

    Raises
    ------
    Exception
        On rank 0.
    OtherRankError
        On the others, with what it was; a UserError is raised as it is.
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


def _hook(comm: Comm, before: Callable[..., Any], timeout: float) -> Callable[..., None]:
    """What is done about an exception that nobody has caught; ``before`` prints it."""

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
