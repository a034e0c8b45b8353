"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.readers import Source
from partition.readers.files import finite_weights, open_plain_or_gzip

COMMENTS = ("#", "%")
LONGEST_LINE = 1 << 16


def read(path: Path) -> Source:
    """Read an edge list: integers separated by white space or commas, # and % begin comments.

    Ids may be any int64, negative and sparse too; vertices are numbered 0..n−1 in increasing
    order of their ids.

    Raises
    ------
    UserError
        If there is no arc in the file, or a line is not two integers and, if the first line has
        one, a finite weight.
    """
    first, comment = _first_line(path)
    separator = "," if "," in first else None
    width = len(first.split(separator))
    if width not in (2, 3):
        hint = None if width > 1 else "one arc 'source target [weight]' a line"
        raise UserError(f"{path}: the first arc has {width} columns, not 2 or 3", hint)
    table = _read_table(path, separator, width, comment)
    n, source, target, ids = compact(table["source"], table["target"])
    weights = finite_weights(table["weight"], str(path)) if width == 3 else None
    return Source(n=n, source=source, target=target, weights=weights, ids=ids, format="edges")


def compact(
    source: np.ndarray, target: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray | None]:
    """Number the ids that occur 0..n−1 in increasing order.

    Parameters
    ----------
    source, target : (nnz,) int64, nnz > 0

    Returns
    -------
    n, source, target, ids
        ``ids`` is the (n,) int64 id of each number, or None where that is the number itself.
    """
    low = min(int(source.min()), int(target.min()))
    high = max(int(source.max()), int(target.max()))
    span = high - low + 1
    if span <= 16 * len(source):
        # A table over the span is faster than sorting, and smaller.
        present = np.zeros(span, bool)
        present[source - low] = True
        present[target - low] = True
        ids = np.flatnonzero(present) + low
        if len(ids) == span:
            source, target = source - low, target - low
        else:
            number = np.cumsum(present, dtype=np.int64) - 1
            source, target = number[source - low], number[target - low]
    else:
        ids = np.union1d(source, target)
        source, target = np.searchsorted(ids, source), np.searchsorted(ids, target)
    same = low == 0 and high == len(ids) - 1
    return len(ids), source, target, None if same else ids


def _first_line(path: Path) -> tuple[str, str]:
    """The first line with an arc, and the comment sign that the file uses before it."""
    comment = COMMENTS[0]
    with open_plain_or_gzip(path) as file:
        while line := file.readline(LONGEST_LINE).decode("latin1"):
            if line.lower().startswith("%%matrixmarket"):
                raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
            if line.strip().startswith(COMMENTS):
                comment = line.strip()[0]
            elif line.strip():
                return re.split("[#%]", line)[0].strip(), comment
    raise UserError(f"{path} holds no arcs", "one arc 'source target [weight]' a line")


def _read_table(path: Path, separator: str | None, width: int, comment: str) -> np.ndarray:
    columns = [("source", np.int64), ("target", np.int64), ("weight", np.float64)][:width]

    def load(comments: str | tuple[str, ...]) -> np.ndarray:
        return np.loadtxt(
            path,
            dtype=np.dtype(columns),
            comments=comments,
            delimiter=separator,
            encoding="latin1",
            ndmin=1,
        )

    try:
        return load(comment)
    except ValueError:
        pass
    # Perhaps only because the file uses both comment signs; NumPy is slow with two of them.
    try:
        return load(COMMENTS)
    except ValueError as error:
        raise _fault(path, separator, width, str(error)) from error


def _fault(path: Path, separator: str | None, width: int, otherwise: str) -> UserError:
    """Find the first bad line, slowly: NumPy counts rows without comments."""
    kinds = (int, int, float)[:width]
    with open_plain_or_gzip(path) as file:
        for number, raw in enumerate(file, start=1):
            line = re.split("[#%]", raw.decode("latin1"))[0].strip()
            if not line:
                continue
            words = line.split(separator)
            try:
                if len(words) != width:
                    raise ValueError
                values = [kind(word) for kind, word in zip(kinds, words, strict=True)]
                np.array(values[:2], np.int64)
            except (ValueError, OverflowError):
                expected = "source target weight" if width == 3 else "source target"
                hint = "put a # before a line that is a heading" if number == 1 else None
                return UserError(
                    f"{path}, line {number}: {line[:60]!r} is not '{expected}' in numbers", hint
                )
    return UserError(f"{path}: {otherwise}")
