"""Ranks for a function, started by mpirun from a process that is none: a script or a notebook.

Arguments go to the ranks, and results come back, in files of a temporary folder::

    call.json call.npz           the function's name, where Python looks for modules, the arguments,
                                 and which process this is
    [script.py]                  the function's source, where it has no module that can be imported
    result.json result.npz       what it returned on rank 0, or
    error.json                   what was raised first
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gcnmpi.api.data import read_data, write_data
from gcnmpi.mpi.launch import launched, local_environment, local_launcher
from gcnmpi.options.user_network import check_is_function, source_of
from partition import PYTHON
from partition.errors import UserError

CALL, RESULT, ERROR, SCRIPT = "call", "result", "error.json", "script.py"
_SECONDS_TO_END = 5.0
_LINES_SHOWN, _LETTERS_KEPT = 20, 1 << 14


class RankError(RuntimeError):
    """Raised where a function failed on a rank: the traceback of the rank that failed first.

    Attributes
    ----------
    rank : int or None
        None: no rank could say what happened.
    """

    rank: int | None = None


def launch(
    function: Callable | str,
    ranks: int,
    arguments: Mapping[str, object] | None = None,
    *,
    timeout: float | None = None,
) -> Any:
    """Call a function on several ranks, processes of their own that end with it.

    They are started by mpirun on this host, and print to this process' standard output. All of them
    call the function, which may use the rest of gcnmpi.

    Parameters
    ----------
    function : function or str
        Of a module; or of a script or a notebook, whose source is given to the ranks with the
        functions, imports and plain values that it uses. Or "module:function", or
        "FILE.py:function".
    ranks : int
        How many.
    arguments : mapping, optional
        By name: numbers, texts, lists, dicts, NumPy arrays, paths, graphs and runs. They are
        written to files, never pickled; so is the result.
    timeout : float, optional
        Seconds after which the ranks are ended.

    Returns
    -------
    value
        What the function returned on rank 0.

    Raises
    ------
    UserError
        If the function or an argument cannot be given to ranks, there is no mpirun, or this process
        is a rank itself; and what ranks raise as such.
    RankError
        If a rank raised anything else, or died.
    TimeoutError
        If they did not end in time.
    """
    if launched():
        raise UserError(
            "launch was called by a rank, which cannot start others",
            "call the function itself: all ranks run the program that mpirun has started",
        )
    if ranks < 1:
        raise UserError(f"{ranks} ranks: there is at least one")
    command = [*local_launcher(), "-n", str(ranks), *PYTHON, "gcnmpi.api.rank"]
    with tempfile.TemporaryDirectory(prefix="gcnmpi-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        call = {
            "function": _importable(function, folder),
            "arguments": dict(arguments or {}),
            "path": [os.path.abspath(place) for place in sys.path],
            "caller": os.getpid(),
        }
        write_data(folder, CALL, call)
        # A launcher that was killed leaves its files; these go with the folder.
        environment = local_environment(ranks) | {"PRTE_MCA_prte_tmpdir_base": name}
        code, said = _run([*command, name], folder, environment, timeout)
        if (folder / ERROR).exists():
            raise _raised(folder / ERROR)
        if (folder / f"{RESULT}.json").exists():
            return read_data(folder, RESULT)
    raise RankError("\n".join([f"mpirun ended with exit code {code}; its last lines:", *said]))


def _importable(function: Callable | str, folder: Path) -> str:
    """A name under which ranks find a function."""
    if isinstance(function, str):
        file, _, name = function.rpartition(":")
        if not file or not name:
            raise UserError(
                f"{function!r} names no function", "module:function, or FILE.py:function"
            )
        return f"{os.path.abspath(file)}:{name}" if file.endswith(".py") else function
    module = getattr(function, "__module__", None)
    if module in (None, "__main__") or getattr(sys.modules.get(module), "__spec__", None) is None:
        # Neither is a script, which would run once more if it were imported.
        (folder / SCRIPT).write_text(source_of(function), encoding="utf-8")
        return f"{folder / SCRIPT}:{function.__name__}"
    if "<" in function.__qualname__:  # <locals>, <lambda>
        check_is_function(function)
    return f"{module}:{function.__qualname__}"


def _run(
    command: list[str], folder: Path, environment: Mapping[str, str], timeout: float | None
) -> tuple[int, list[str]]:
    """Run a command to its end and show what it prints; its exit code and its last lines."""
    until = None if timeout is None else time.monotonic() + timeout
    said, decoded = "", codecs.getincrementaldecoder("utf-8")("replace")
    with _started(command, environment) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"the ranks did not end within {timeout:g} s")
                if not selector.select(left):
                    continue
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                text = decoded.decode(data)
                said = (said + text)[-_LETTERS_KEPT:]
                if not (folder / ERROR).exists():  # then mpirun tells at length that it ended them
                    sys.stdout.write(text)
                    sys.stdout.flush()
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            code = process.wait(left)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the ranks did not end within {timeout:g} s") from error
    return code, said.splitlines()[-_LINES_SHOWN:]


@contextlib.contextmanager
def _started(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen]:
    """A process in a session of its own, of which nothing is left after this block."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # mpirun then ends the ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END)
        kill_session(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def kill_session(leader: int) -> None:
    """Kill the processes of the session that a process began: a launcher and its ranks."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # Its name, in parentheses, may hold anything.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(stat.parent.name))
    for pid in sorted(found, key=lambda pid: pid == os.getpid()):  # this one last
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _raised(file: Path) -> Exception:
    facts = json.loads(file.read_text(encoding="utf-8"))
    if "message" in facts:
        return UserError(facts["message"], facts["hint"])
    error = RankError(f"rank {facts['rank']} failed: {facts['text']}\n\n{facts['traceback']}")
    error.rank = facts["rank"]
    return error
