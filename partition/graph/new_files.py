"""Where a new graph folder goes: what is looked at before it is made, and its arrays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.locks import folder_lock
from partition.records import atomic_file
from partition.resident import forget_pages

REPLACING = "gcn-partition import --force"  # the purpose of the lock on a folder that is replaced


def check_target(path: Path, overwrite: bool = False) -> None:
    """Refuse a path that :func:`write_graph` could not write a graph folder to."""
    if path.suffix != ".graph":
        raise UserError(f"a graph folder's name ends in .graph, not {path.name!r}")
    if path.exists() and not overwrite:
        hint = "choose another name, or replace it: --force, in Python overwrite=True"
        raise UserError(f"{path} is there already", hint)
    if path.exists() and not (path / "manifest.json").exists():
        raise UserError(f"{path} is not a graph folder and is not replaced")
    parent = _parent(path)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: {parent} is not a folder that you may write to")
    if path.exists():
        with folder_lock(path, REPLACING):
            pass


def save_array(file: Path, array: np.ndarray) -> None:
    """Write an array of a graph into a new folder."""
    file.parent.mkdir(exist_ok=True)
    with atomic_file(file) as out:
        np.save(out, array, allow_pickle=False)
    forget_pages(array)


def check_room(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A UserError if the disk has not the room for a folder of these arrays."""
    nbytes = sum(array.nbytes for array in arrays.values())
    free = shutil.disk_usage(_parent(path)).free
    if nbytes > free:
        raise UserError(
            f"cannot write {path}: it takes {nbytes / 2**20:,.0f} MiB, {free / 2**20:,.0f} are free"
        )


def _parent(path: Path) -> Path:
    """The innermost folder around ``path`` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())
