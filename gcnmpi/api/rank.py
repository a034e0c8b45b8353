"""A rank of :func:`gcnmpi.launch`: ``python -P -m gcnmpi.api.rank FOLDER``, under mpirun."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gcnmpi.api.data import read_data, write_data
from gcnmpi.api.launching import CALL, ERROR, RESULT
from gcnmpi.core.own_code import load_function
from gcnmpi.mpi.comm import Comm, run
from partition.errors import UserError
from partition.records import temporary_name


def main(comm: Comm) -> int:
    """Call the function; rank 0 writes what it returns, whoever fails first what it raised."""
    folder = Path(sys.argv[1])
    if comm.rank == 0:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        value = _called(folder)
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


def _called(folder: Path) -> Any:
    call = read_data(folder, CALL)
    sys.path[:] = call["path"]
    return _function(call["function"])(**call["arguments"])


def _function(name: str) -> Callable:
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        return load_function(place, attribute)
    found: Any = importlib.import_module(place)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _report(file: Path, rank: int, error: BaseException) -> None:
    """Say what was raised, unless another rank has done so before: its error is the cause."""
    facts: dict[str, Any] = {"rank": rank}
    if isinstance(error, UserError):
        facts |= {"message": error.message, "hint": error.hint}
    else:
        text = traceback.format_exception_only(error)[-1].strip()
        facts |= {"text": text, "traceback": "".join(traceback.format_exception(error))}
    whole = temporary_name(file)
    whole.write_text(json.dumps(facts), encoding="utf-8")
    with contextlib.suppress(FileExistsError):
        os.link(whole, file)


def _end_with_parent() -> None:
    """End this rank, and so all of them, when the process is gone that has called launch."""
    if os.read(0, 1):  # where a launcher gives rank 0 no input, nothing is known
        os.read(0, 1)
        os._exit(1)


if __name__ == "__main__":
    run(main)
