"""The archive of a file of weights: arrays as of ``numpy.savez``, and what they are of as JSON."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.options.config import from_table
from partition.errors import UserError
from partition.records import atomic_file, open_regular, zip_errors
from partition.tensor_files import read_tensors

FORMAT, VERSION = "gcnmpi-weights", 1
_DESCRIPTION = "gcnmpi"
"""The array with the description, as bytes of JSON, where that is longer than a comment may be."""

LONGEST = 2**16 - 1
_END = 22  # bytes of the record at the end of an archive, before its comment
_END_AND_COMMENT = _END + LONGEST


def write_weights(
    path: str | os.PathLike, state: Mapping[str, np.ndarray], facts: Mapping[str, object]
) -> None:
    """Write arrays as ``numpy.savez`` does, and what they are in the comment of the archive.

    A UserError if the file cannot be written.
    """
    comment = json.dumps(facts).encode()
    if len(comment) > LONGEST:  # thousands of names
        state = {**state, _DESCRIPTION: np.frombuffer(comment, np.uint8)}
        comment = json.dumps({"format": FORMAT, "version": VERSION, "in": _DESCRIPTION}).encode()
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in state.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.comment = comment


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a file of weights, of this program or of another one.

    A UserError if it cannot be read.
    """
    return {name: array for name, array in read_tensors(Path(path)).items() if name != _DESCRIPTION}


def task_of(path: str | os.PathLike) -> dict[str, object]:
    """Full names of the keys of the task that a file of weights names, and their values.

    None of a file that does not say it, or is damaged: :func:`gcnmpi.run.weights.read_weights`
    tells what is wrong.
    """
    try:
        facts = read_facts(path) if Path(path).suffix == ".npz" else None
        stored = (facts or {}).get("task", {})
        task = from_table({"task": stored}).task
    except UserError:
        return {}
    return {f"task.{name}": getattr(task, name) for name in stored if hasattr(task, name)}


def read_facts(path: str | os.PathLike) -> dict[str, Any] | None:
    """The description in a file of weights; None of a file of another program.

    A UserError if it cannot be read, or is cut off within what it says.
    """
    path = Path(path)
    with zip_errors(path), open_regular(path) as file:
        with zipfile.ZipFile(file) as archive:
            comment = archive.comment
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_AND_COMMENT))
        tail = file.read()
    # zipfile takes a comment that is shorter than announced.
    end = tail.rfind(b"PK\5\6")
    if len(tail) != end + _END + int.from_bytes(tail[end + _END - 2 : end + _END], "little"):
        raise UserError(f"{path} is truncated or damaged: its end is missing")
    try:
        facts = json.loads(comment)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        if FORMAT.encode() in comment:
            raise UserError(f"{path} is damaged: what it says of its network is not readable")
        return None
    if facts.get("version") != VERSION:
        raise UserError(
            f"{path} has format version {facts.get('version')}, this program reads {VERSION}"
        )
    return _in_array(path) if facts.get("in") == _DESCRIPTION else facts


def _in_array(path: Path) -> dict[str, Any]:
    """The description that is an array."""
    try:
        facts = json.loads(read_tensors(path)[_DESCRIPTION].tobytes())
    except (ValueError, KeyError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise UserError(f"{path} is damaged: what it says of its network is not readable")
    return facts
