"""Lists of vertices, or of arcs: text files, or arrays."""

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
        return called(stored, enumerate(map(str.strip, text_lines(rows)), start=1), f"{rows}, line")
    if rows.ndim != 1 or rows.dtype.kind not in "iuU":
        raise UserError(f"rows are a vector of vertices, not {rows.dtype} {rows.shape}")
    return called(stored, enumerate(map(str, rows.tolist())), "rows, entry")


def picked_arcs(stored: StoredGraph, rows: Path | np.ndarray) -> np.ndarray:
    """The arcs that a file or an array names, in its order: (m,) int64, numbers in the folder.

    A line is the number of an arc in the order of the folder, or its source and its target, called
    as by :func:`picked_vertices`; an array has a column or two of them. A UserError as there, or
    if there is no arc of that kind, or several from one vertex to the other.
    """
    first, where = 1, f"{rows}, line"
    if isinstance(rows, Path):
        lines = [line.split() for line in text_lines(rows)]
    elif rows.ndim in (1, 2) and rows.dtype.kind in "iuU":
        first, where = 0, "rows, entry"
        lines = [list(map(str, row)) for row in np.atleast_2d(rows.T).T.tolist()]
    else:
        raise UserError(f"rows are a vector of arcs or (m, 2), not {rows.dtype} {rows.shape}")
    graph, found = stored.graph, []
    for number, words in enumerate(lines, start=first):
        arcs = np.zeros(0, np.int64)
        if len(words) == 1 and words[0].isdecimal() and int(words[0]) < graph.nnz:
            arcs = np.array([int(words[0])])
        elif len(words) == 2:
            source, target = called(stored, ((number, word) for word in words), where)
            start, end = graph.indptr[source : source + 2]
            arcs = start + np.flatnonzero(graph.indices[start:end] == target)
        elif not words:
            continue
        if len(arcs) != 1:
            told = "names several parallel arcs" if len(arcs) else "is no arc"
            raise UserError(
                f"{where} {number}: {' '.join(words)!r} {told} of {stored.path}",
                f"SOURCE TARGET, or the number of an arc in the folder, 0 to {graph.nnz - 1}",
            )
        found.append(int(arcs[0]))
    return np.array(found, np.int64)


def text_lines(path: Path, hint: str | None = None) -> list[str]:
    """The lines of a file of the user's; a UserError with a hint if it is no text, or not there."""
    try:
        with open_regular(path) as file:
            return file.read().decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}", hint) from error


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
                f"vertices are 0 to {n - 1}"
                if ids is None
                else f"vertices are called as they were imported, such as {ids[0]}",
            )
        found.append(vertex)
    return np.array(found, np.int64)
