"""Part vectors as other programs write them: one part number per line, vertex by vertex."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from partition.errors import UserError


def read_parts(file: str | os.PathLike, n: int, k: int | None = None) -> np.ndarray:
    """Read n part numbers, one per line, (n,) int32; below ``k`` if it is given.

    Raises
    ------
    UserError
        With the number of the line that is wrong.
    """
    try:
        lines = Path(file).read_bytes().rstrip().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    try:
        parts = np.array(list(map(int, lines)) if lines != [b""] else [], dtype=np.int64)
    except (ValueError, OverflowError):
        number, line = next((i, x) for i, x in enumerate(lines, start=1) if not _is_part(x))
        shown = line[:40].decode(errors="replace").strip()
        raise UserError(f"{file}, line {number}: {shown!r} is no part number") from None
    outside = np.flatnonzero((parts < 0) | (parts >= (k or np.iinfo(np.int32).max)))
    if len(outside):
        i = int(outside[0])
        limit = f"0..{k - 1}" if k else "0, 1, 2, …"
        raise UserError(f"{file}, line {i + 1}: part {parts[i]} is not one of {limit}")
    if len(parts) != n:
        raise UserError(
            f"{file} has {len(parts)} part numbers, the graph has {n} vertices",
            "one number per line, in the order of the vertices",
        )
    return parts.astype(np.int32)


def _is_part(line: bytes) -> bool:
    try:
        return int(line) < 2**63
    except ValueError:
        return False
