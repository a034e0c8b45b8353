"""Lists of vertices: text files, or arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.store import StoredGraph
from partition.records import open_regular


def picked_vertices(stored: StoredGraph, rows: Path | np.ndarray) -> np.ndarray:
    """The vertices that a file names, one a line, or an array, in its order: (m,) int64.

    They are called as in the file that the graph was imported from, if that had names of its own
    (``ids.npy``); else they are numbers from 0. A UserError if the file cannot be read, or names
    what is no vertex of the graph.
    """
    if isinstance(rows, Path):
        return called(stored, enumerate(_words(rows), start=1), f"{rows}, line")
    if rows.ndim != 1 or rows.dtype.kind not in "iuU":
        raise UserError(f"rows are a vector of vertices, not {rows.dtype} {rows.shape}")
    return called(stored, enumerate(map(str, rows.tolist())), "rows, entry")


def _words(path: Path) -> list[str]:
    try:
        with open_regular(path) as file:
            return [line.strip() for line in file.read().decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from error


def called(stored: StoredGraph, words: Iterable[tuple[int, str]], where: str) -> np.ndarray:
    """The vertices that words name, (m,) int64; empty words name none.

    Each word comes with the number that names it, after ``where``, in a UserError: if it is the
    name of no vertex.
    """
    ids, n = stored.graph.ids, stored.manifest.n
    known = {} if ids is None else {str(name): i for i, name in enumerate(ids)}
    found = []
    for number, word in words:
        if not word:
            continue
        vertex = known.get(word, -1)
        if ids is None and word.isdecimal():
            vertex = int(word)
        if not 0 <= vertex < n:
            raise UserError(
                f"{where} {number}: {word!r} is no vertex of {stored.path}",
                f"vertices are 0 to {n - 1}" if ids is None else "vertices, as they were imported",
            )
        found.append(vertex)
    return np.array(found, np.int64)
