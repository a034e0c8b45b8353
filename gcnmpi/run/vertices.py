"""Lists of vertices in text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.store import StoredGraph
from partition.records import open_regular


def read_vertices(stored: StoredGraph, path: Path) -> np.ndarray:
    """The vertices that a file names, one a line, in its order: (m,) int64.

    They are called as in the file that the graph was imported from, if that had names of its own
    (``ids.npy``); else they are numbers from 0.

    Raises
    ------
    UserError
        If the file cannot be read, or names what is no vertex of the graph.
    """
    try:
        with open_regular(path) as file:
            words = [line.strip() for line in file.read().decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from error
    ids, n = stored.graph.ids, stored.manifest.n
    known = {} if ids is None else {str(name): i for i, name in enumerate(ids)}
    found = []
    for number, word in enumerate(words, start=1):
        if not word:
            continue
        vertex = known.get(word, -1)
        if ids is None and word.isdecimal():
            vertex = int(word)
        if not 0 <= vertex < n:
            raise UserError(
                f"{path}, line {number}: {word!r} is no vertex of {stored.path}",
                "one vertex a line"
                + (f", 0 to {n - 1}" if ids is None else ", as it was imported"),
            )
        found.append(vertex)
    return np.array(found, np.int64)
