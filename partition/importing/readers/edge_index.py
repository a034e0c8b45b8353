"""Arcs in an ``.npy``: the ``edge_index`` of PyTorch Geometric, (2, E), or (E, 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers import Allocate, Layout, Piece, Source, Stream, Tell
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.vertex_files import read_ids
from partition.records import map_npy

SHAPES = "(2, E) or (E, 2)"
AT_ONCE = 1 << 22


def read(path: Path, layout: Layout) -> Source:
    """Read an array of integers: sources in its first row or column, targets in its second.

    Raises
    ------
    UserError
        If it is anything else, or 2 × 2, which can be read either way.
    """
    source, target = ends_of(_mapped(path), str(path), SHAPES)
    given = None if layout.ids is None else read_ids(layout.ids)
    n, source, target, ids = number_vertices(
        source, target, str(path), vertices=layout.vertices, ids=given
    )
    return Source(n=n, source=source, target=target, ids=ids, format="npy")


def stream(path: Path, layout: Layout, allocate: Allocate, tell: Tell) -> Stream:
    """The same, ``AT_ONCE`` arcs at a time."""
    array = _mapped(path)

    def pieces() -> Iterator[Piece]:
        total = array.shape[1] if array.ndim == 2 else 0
        for start in range(0, max(1, total), AT_ONCE):
            some = array[:, start : start + AT_ONCE] if array.ndim == 2 else array
            source, target = ends_of(some, str(path), SHAPES)
            yield source, target, None
            tell("reading", start + len(source), total)

    ids = None if layout.ids is None else read_ids(layout.ids)
    return Stream(pieces(), str(path), vertices=layout.vertices, ids=ids, rest={"format": "npy"})


def _mapped(path: Path) -> np.ndarray:
    array = map_npy(path)
    if array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2 != len(array):
        array = array.T
    if array.shape == (2, 2) and array.dtype.kind in "iu":
        raise UserError(
            f"{path} is 2 x 2: it is not clear whether a row is an arc",
            "write the two arcs as a list: 'source target', one a line",
        )
    return array


def ends_of(array: np.ndarray, where: str, shapes: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, (E,) int64 each, of a (2, E) array of integers.

    Raises
    ------
    UserError
        If it is none: ``shapes`` are accepted.
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
