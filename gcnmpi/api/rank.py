"""A rank of :func:`gcnmpi.launch`: ``python -P -m gcnmpi.api.rank FOLDER``, under mpirun."""

from __future__ import annotations

import contextlib
import importlib
import json
import operator
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from gcnmpi.api.data import read_data, write_data
from gcnmpi.api.launching import CALL, ERROR, RESULT, kill_session
from gcnmpi.mpi.comm import Comm
from gcnmpi.mpi.launch import start_limit
from gcnmpi.mpi.process import run
from gcnmpi.options.user_network import load_function
from partition.errors import UserError
from partition.locks import process_is_dead
from partition.records import temporary_name

_LOOKS = 0.5  # seconds


def main(comm: Comm) -> int:
    """Call the function; rank 0 writes what it returns, whoever fails first what it raised."""
    folder = Path(sys.argv[1])
    call = read_data(folder, CALL)
    if comm.rank == 0:
        threading.Thread(target=_end_with_caller, args=[call["caller"]], daemon=True).start()
    try:
        sys.path[:] = call["path"]
        value = _function(call["function"])(**call["arguments"])
        if comm.rank == 0:
            write_data(folder, RESULT, value)
    except BaseException as error:
        together = getattr(error, "agreed", False)
        if comm.rank == 0 or not together:
            _report(folder / ERROR, comm.rank, error)
        if not together:
            comm.Abort(1)
        comm.Barrier()
    return 0


def _function(name: str) -> Callable:
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        return load_function(place, attribute)
    return operator.attrgetter(attribute)(importlib.import_module(place))


def _report(file: Path, rank: int, error: BaseException) -> None:
    """Say what was raised, unless another rank has done so before: its error is the cause."""
    facts: dict[str, object] = {"rank": rank}
    if isinstance(error, UserError):
        facts |= {"message": error.message, "hint": error.hint}
    else:
        text = traceback.format_exception_only(error)[-1].strip()
        facts |= {"text": text, "traceback": "".join(traceback.format_exception(error))}
    whole = temporary_name(file)
    whole.write_text(json.dumps(facts), encoding="utf-8")
    with contextlib.suppress(FileExistsError):
        os.link(whole, file)


def _end_with_caller(caller: int) -> None:
    """End all ranks, whose session is theirs alone, when the process is gone that launched them."""
    while not process_is_dead(caller):
        time.sleep(_LOOKS)
    kill_session(os.getsid(0))


if __name__ == "__main__":
    run(main, start_limit(os.environ))
