"""Arcs in an ``.npy``: the ``edge_index`` of PyTorch Geometric, (2, E), or (E, 2).

Ids are as in lists of arcs. PyTorch Geometric counts vertices without arcs: ``--vertices N``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers.source import Layout, Piece, Reading, Stream
from partition.importing.readers.text import in_step
from partition.records import map_npy
from partition.resident import forget_pages

SHAPES = "(2, E) or (E, 2)"
AT_ONCE = 1 << 22


def stream(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read an array of integers: sources in its first row or column, targets in its second.

    A UserError if it is anything else, or 2 × 2, which can be read either way.
    """
    array = map_npy(path)
    if array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2 != len(array):
        array = array.T
    if array.shape == (2, 2) and array.dtype.kind in "iu":
        raise UserError(
            f"{path} is 2 x 2: it is not clear whether a row is an arc",
            "write the two arcs as a list: 'source target', one a line",
        )

    readers = reading.readers

    def pieces() -> Iterator[Piece]:
        total = array.shape[1] if array.ndim == 2 else 0
        at_once = max(1, total if reading.whole else min(AT_ONCE, -(-total // readers.size)))
        for start in range(readers.rank * at_once, max(1, total), readers.size * at_once):
            some = array[:, start : start + at_once] if array.ndim == 2 else array
            yield Piece(*ends_of(some, str(path), SHAPES), None, {}, start)
            forget_pages(array)
            reading.tell("reading", min(start + at_once, total), total)

    none = np.empty(0, np.int64)
    own = in_step(pieces(), readers, lambda: Piece(none, none, None, {}, 0))
    return Stream(own, str(path), rest={"format": "npy"})


def ends_of(array: np.ndarray, where: str, shapes: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, (E,) int64 each, of a (2, E) array of integers.

    A UserError if it is none, which says that ``shapes`` are accepted.
    """
    if array.ndim != 2 or array.dtype.kind not in "iu" or len(array) != 2:
        raise UserError(
            f"{where} holds {array.dtype} {array.shape}, not integers in the shape {shapes}",
            "a matrix of adjacency is read from scipy.sparse.save_npz(FILE, csr_array(matrix))"
            if array.ndim == 2 and 2 < array.shape[0] == array.shape[1]
            else None,
        )
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise UserError(f"{where} holds {array.max()}, which is beyond 63 bits")
    source, target = (np.ascontiguousarray(row, np.int64) for row in array)
    return source, target
