"""Part vectors as other programs write them: part numbers, vertex by vertex, in lines."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from partition.errors import UserError, system_errors

_FROM_ONE = "--first 1 if the file counts parts from 1"


def read_parts(
    file: str | os.PathLike[str], n: int, k: int | None = None, first: int = 0
) -> np.ndarray:
    """Read n part numbers, (n,) int32, from 0; below ``k`` if it is given.

    One number per line, as METIS, hMETIS, KaHyPar, KaHIP and Zoltan write them, or several per
    line, separated by white space, as PaToH does; or a mapping of Scotch: how many vertices, then
    the number of each and its part. ``first`` is the number of the first part in the file.

    A UserError with the number of the line that is wrong; or if a part has no vertex and k is not
    given: the file may count from 1, or hold other numbers than those of parts.
    """
    with system_errors(f"cannot read {file}"):
        lines = Path(file).read_bytes().rstrip().split(b"\n")
    words, line_of = lines if lines != [b""] else [], None
    if any(len(line.split(None, 2)) > 1 for line in lines):
        rows = [line.split() for line in lines]
        sizes = [len(row) for row in rows]
        line_of = np.repeat(np.arange(len(rows)), sizes)
        words = [word for row in rows for word in row]
        if sizes == [1, *[2] * n] and words[0] == str(n).encode():
            line_of = 1 + _order(file, words[1::2])
            words = [words[2 * line] for line in line_of]
    parts, wrong = _numbers(words)
    if wrong is not None:
        shown = words[wrong][:40].decode(errors="replace").strip()
        raise UserError(f"{file}, line {_line(wrong, line_of)}: {shown!r} is not a part number")
    from_one = first == 0 and len(parts) > 0 and parts.min() == 1
    last = first + (k or np.iinfo(np.int32).max)
    outside = np.flatnonzero((parts < first) | (parts >= last))
    if len(outside):
        i = int(outside[0])
        limit = f"{first}..{last - 1}" if k else f"{first}, {first + 1}, {first + 2}, …"
        wrong_part = f"{file}, line {_line(i, line_of)}: part {parts[i]} is not one of {limit}"
        raise UserError(wrong_part, _FROM_ONE if from_one and parts.max() == k else None)
    if len(parts) != n:
        count = f"{file} has {len(parts)} part numbers, the graph has {n} vertices"
        raise UserError(count, "one number for each vertex, in their order")
    used = np.unique(parts)
    empty = np.flatnonzero(used != first + np.arange(len(used)))
    if k is None and len(empty):
        part, parted = first + empty[0], used[-1] - first + 1
        hint = f"-k {parted} if part {part} is meant to be empty"
        gap = f"{file} has parts {used[0]} to {used[-1]} and no vertex in part {part}"
        raise UserError(gap, f"{_FROM_ONE}; {hint}" if from_one else hint)
    return (parts - first).astype(np.int32)


def _order(file: str | os.PathLike[str], vertices: list[bytes]) -> np.ndarray:
    """Where the parts of vertices 0, 1, … are in a mapping, whose vertices are counted from any."""
    numbers, wrong = _numbers(vertices)
    order = np.argsort(numbers, kind="stable")
    if wrong is not None or (np.diff(numbers[order]) != 1).any():
        raise UserError(f"{file} is not a mapping of Scotch: its vertices are not each there once")
    return order


def _line(i: int, line_of: np.ndarray | None) -> int:
    return (i if line_of is None else int(line_of[i])) + 1


def _numbers(words: list[bytes]) -> tuple[np.ndarray, int | None]:
    """Words as (m,) int64; or the place of one that is no such number."""
    with contextlib.suppress(ValueError, OverflowError):
        return np.array(list(map(int, words)), np.int64), None
    return np.zeros(len(words), np.int64), next(i for i, w in enumerate(words) if not _fits(w))


def _fits(word: bytes) -> bool:
    """Whether a word is an int64."""
    with contextlib.suppress(ValueError):
        return -(2**63) <= int(word) < 2**63
    return False
