"""Run a tool in a process of its own: ``python -P -m partition.backends.process FOLDER``.

Foreign code may print, crash, be killed for its memory, ignore Ctrl-C, or allow only one
initialisation per process. The model travels through memory-mapped files in a temporary folder.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partition import PYTHON
from partition.errors import UserError, system_errors
from partition.models.descriptions import Description
from partition.records import sweep, temporary_name, to_json
from partition.registry import Settings, resolved

_PR_SET_PDEATHSIG = 1


class TimeIsUp(UserError):
    """A tool was stopped because its time was up."""


def run_each(
    entry: str, model: Description, k: int, tries: Sequence[Settings], timeout: float | None = None
) -> list[np.ndarray]:
    """Call ``partition(model, k, **arguments)`` of a tool in a process, for each of ``tries``.

    ``entry`` is the place of the tool, ``"module:attribute"``. One that fails or is killed is a
    UserError with the last line that it printed, one that is stopped after ``timeout`` seconds a
    TimeIsUp.
    """
    kind = f"{type(model).__module__}:{type(model).__name__}"
    task = {"entry": entry, "model": kind, "k": k, "tries": tries, "parent": os.getpid()}
    with _temporary_folder() as folder:
        _write_arrays(folder, model)
        with system_errors(f"cannot write the model to {folder.parent}", _TMPDIR):
            (folder / "task.json").write_text(json.dumps(task, default=to_json), encoding="utf-8")
        command = [*PYTHON, "partition.backends.process", str(folder)]
        # On Ctrl-C, as when the time is up, run() kills the child, which may be deep in code that
        # ignores signals.
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TimeIsUp(
                f"the tool was stopped after {error.timeout:.0f} s",
                "a longer --time-limit, or a faster model, such as gp",
            ) from error
        if (folder / "error.json").exists():
            raise UserError(**json.loads((folder / "error.json").read_text(encoding="utf-8")))
        if done.returncode:
            raise _failure(done.returncode, done.stdout.decode(errors="replace"))
        return [np.load(folder / f"parts-{i}.npy", allow_pickle=False) for i in range(len(tries))]


@contextlib.contextmanager
def in_files(model: Description) -> Iterator[Description]:
    """The model with its arrays mapped from files: memory has none of it but what is looked at.

    Give away the only reference to it.
    """
    with _temporary_folder() as folder:
        kind = type(model)
        _write_arrays(folder, model)
        del model
        yield _read_model(folder, kind)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder for one tool; those of tools whose process was killed are deleted."""
    with system_errors("no folder for temporary files", _TMPDIR):
        parent = Path(tempfile.gettempdir())
        sweep(parent)
        folder = temporary_name(parent / "gcn-partition")
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_TMPDIR = "set the environment variable TMPDIR to a folder with space for the graph"


def _write_arrays(folder: Path, model: Description) -> None:
    """Arrays that are in files already are the same files there."""
    arrays = {key: array for key, array in vars(model).items() if array is not None}
    files = {key: _file_of(array) for key, array in arrays.items()}
    needed = sum(array.nbytes for key, array in arrays.items() if files[key] is None)
    with system_errors(f"cannot write the model to {folder.parent}", _TMPDIR):
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{needed >> 20} MiB are needed, {free >> 20} are free")
        for key, there in files.items():
            if there is None:
                np.save(folder / f"{key}.npy", arrays[key], allow_pickle=False)
            else:
                (folder / f"{key}.npy").symlink_to(there)


def _file_of(array: np.ndarray) -> Path | None:
    """The ``.npy`` file that all of an array is mapped from."""
    if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap):
        return None
    path = Path(str(array.filename))
    whole = path.suffix == ".npy" and path.stat().st_size == array.offset + array.nbytes
    return path if whole else None


def _main(folder: Path) -> None:
    """The other process: read the task, run the tool, write the parts of each try."""
    if sys.platform == "linux":  # do not outlive the parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    if os.getppid() != task["parent"]:  # which died before
        return
    model = _read_model(folder, resolved(task["model"]))
    try:
        tool = resolved(task["entry"])
        for number, arguments in enumerate(task["tries"]):
            parts = np.asarray(tool.partition(model, task["k"], **arguments))
            np.save(folder / f"parts-{number}.npy", parts, allow_pickle=False)
    except UserError as error:
        message = {"message": error.message, "hint": error.hint}
        (folder / "error.json").write_text(json.dumps(message), encoding="utf-8")


def _read_model(folder: Path, kind: Any) -> Description:
    """The model in a folder, mapped; its optional arrays that are None have no file."""
    arrays = {}
    for file in folder.glob("*.npy"):
        try:
            arrays[file.stem] = np.load(file, mmap_mode="c", allow_pickle=False)
        except ValueError:  # an empty array cannot be mapped
            arrays[file.stem] = np.load(file, allow_pickle=False)
    return kind(**arrays)


def _failure(returncode: int, output: str) -> UserError:
    """How the tool ended, and the last line that it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if returncode > 0:
        return UserError(f"the tool failed: {last}", "try another tool or other options")
    names = {number.value: number.name for number in signal.Signals}
    by = names.get(-returncode, f"signal {-returncode}")
    hint = "not enough memory?" if by == "SIGKILL" else "try another tool or a smaller k"
    return UserError(f"the tool was killed by {by}: {last}", hint)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
