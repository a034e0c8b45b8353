"""Run a tool in a process of its own: ``python -P -m partition.backends.process FOLDER``.

Foreign code may print, crash, be killed for its memory, ignore Ctrl-C, or allow only one
initialisation per process. The model travels through memory-mapped files in a temporary folder.
"""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.records import to_json
from partition.startup import PYTHON

PR_SET_PDEATHSIG = 1


class TimeIsUp(UserError):
    """A tool was stopped because its time was up."""


def run_apart(
    entry: str, model: Any, k: int, *, timeout: float | None = None, **arguments: Any
) -> np.ndarray:
    """Call ``partition(model, k, **arguments)`` of a tool in another process.

    Parameters
    ----------
    entry : str
        Where the tool is, ``"module:attribute"``.
    model : dataclass of arrays
    timeout : float, optional
        Seconds after which the tool is stopped.
    arguments
        What has a form in JSON.

    Raises
    ------
    UserError
        If the tool raises one, fails or is killed; with the last line that it printed.
    TimeIsUp
        If it was stopped.
    """
    with tempfile.TemporaryDirectory(prefix="gcn-partition-") as name:
        folder = Path(name)
        arrays = {part.name: getattr(model, part.name) for part in fields(model)}
        for key, array in arrays.items():
            if array is not None:
                np.save(folder / f"{key}.npy", array, allow_pickle=False)
        kind = f"{type(model).__module__}:{type(model).__name__}"
        task = {"entry": entry, "model": kind, "k": k, "arguments": arguments}
        (folder / "task.json").write_text(json.dumps(task, default=to_json), encoding="utf-8")

        command = [*PYTHON, "partition.backends.process", name]
        # On Ctrl-C, as when the time is up, run() kills the child, which may be deep in code that
        # ignores signals.
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeIsUp(f"the tool was stopped after {error.timeout:.0f} s") from error
        if (folder / "error.json").exists():
            raise UserError(**json.loads((folder / "error.json").read_text(encoding="utf-8")))
        if done.returncode:
            raise UserError(*_obituary(done.returncode, done.stdout.decode(errors="replace")))
        return np.load(folder / "parts.npy", allow_pickle=False)


def main(folder: Path) -> None:
    """The other process: read the task, run the tool, write the parts."""
    if sys.platform == "linux":  # do not outlive the parent
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    kind = _resolve(task["model"])
    model = kind(**{f.name: _mapped(folder / f"{f.name}.npy") for f in fields(kind)})
    try:
        parts = _resolve(task["entry"]).partition(model, task["k"], **task["arguments"])
    except UserError as error:
        message: Mapping[str, Any] = {"message": error.message, "hint": error.hint}
        (folder / "error.json").write_text(json.dumps(message), encoding="utf-8")
        return
    np.save(folder / "parts.npy", np.asarray(parts), allow_pickle=False)


def _mapped(path: Path) -> np.ndarray | None:
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:  # an optional array that is None
        return None
    except ValueError:  # an empty array cannot be mapped
        return np.load(path, allow_pickle=False)


def _resolve(entry: str) -> Any:
    module, attribute = entry.split(":")
    return getattr(import_module(module), attribute)


def _obituary(returncode: int, output: str) -> tuple[str, str]:
    """What became of the tool, and what it said last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if returncode < 0:
        number = -returncode
        known = number in signal.Signals.__members__.values()
        by = signal.Signals(number).name if known else f"signal {number}"
        hint = (
            "not enough memory?" if number == signal.SIGKILL else "try another tool or a smaller k"
        )
        return f"the tool was killed by {by}: {last}", hint
    return f"the tool failed: {last}", "try another tool or other options"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
