"""Parts of every kind of thing in a graph folder: its name, its mapped arrays."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partition.errors import UserError, system_errors
from partition.graph.graph import AGAIN
from partition.graph.relations import STORED_NAME
from partition.locks import folder_inside, folder_lock
from partition.records import NUMBERS, TEXTS, map_npy, sweep, temporary_name

WAIT = 60.0  # seconds, for others that hold a lock while they write


def check_stored_name(kind: str, name: str) -> str:
    """The name, if a thing in a graph folder may be called so; ``kind`` says what it is."""
    if not STORED_NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a valid name for {kind}",
            "use at most 200 letters, digits and any of _ . + = -",
        )
    return name


def map_array(
    path: Path, shape: tuple[int, ...], kind: str, *others: tuple[int, ...], again: str = AGAIN
) -> np.ndarray:
    """An array of that shape, or of one of the others, mapped read-only.

    ``kind`` has the kinds of dtypes that it may have, as NumPy calls them; ``again`` is the hint of
    how to make the file again. A UserError if the file is missing, damaged or holds something else.
    """
    if not path.exists():
        raise UserError(f"{path} is missing", again)
    try:
        array = map_npy(path, kinds=NUMBERS + TEXTS)
    except UserError as error:
        raise UserError(f"{path} is damaged or truncated: {error.message}", again) from None
    if array.shape not in (shape, *others) or array.dtype.kind not in kind:
        raise UserError(
            f"{path} holds {array.dtype} {array.shape}, the manifest asks for {shape}", again
        )
    return array


@contextlib.contextmanager
def writing_inside(path: Path, kind: str, purpose: str) -> Iterator[None]:
    """Keep others from replacing the graph, and from writing or removing sets of a kind in it."""
    folder = folder_inside(path, kind)
    with folder_lock(path, purpose, exclusive=False):
        with system_errors(f"cannot write {folder}"):
            folder.mkdir(exist_ok=True)
        with folder_lock(folder, purpose, name=".write.lock", patience=WAIT):
            sweep(folder)
            yield


def remove_inside(path: Path, kind: str, folder: Path) -> None:
    """Delete the folder of a set of a kind at once: who has it open keeps its arrays."""
    with writing_inside(path, kind, "gcn-partition remove"):
        aside = temporary_name(folder)
        with system_errors(f"cannot remove {folder}"):
            os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)


def linked(source: str, target: str) -> None:
    """A second name for a file, or a copy of it where its file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
