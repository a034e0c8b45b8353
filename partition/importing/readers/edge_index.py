"""Arcs in an ``.npy``: the ``edge_index`` of PyTorch Geometric, (2, E), or (E, 2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers import Layout, Source
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.vertex_files import read_ids
from partition.records import map_npy


def read(path: Path, layout: Layout) -> Source:
    """Read an array of integers: sources in its first row or column, targets in its second.

    Raises
    ------
    UserError
        If it is anything else, or 2 × 2, which can be read either way.
    """
    array = map_npy(path)
    if array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2 != len(array):
        array = array.T
    source, target = ends_of(array, str(path), "(2, E) or (E, 2)")
    if array.shape == (2, 2):
        raise UserError(
            f"{path} is 2 x 2: it is not clear whether a row is an arc",
            "write the two arcs as a list: 'source target', one a line",
        )
    given = None if layout.ids is None else read_ids(layout.ids)
    n, source, target, ids = number_vertices(
        source, target, str(path), vertices=layout.vertices, ids=given
    )
    return Source(n=n, source=source, target=target, ids=ids, format="npy")


def ends_of(array: np.ndarray, where: str, shapes: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, (E,) int64 each, of a (2, E) array of integers.

    Raises
    ------
    UserError
        If it is none: ``shapes`` are accepted.
    """
    if array.ndim != 2 or array.dtype.kind not in "iu" or len(array) != 2:
        raise UserError(
            f"{where} holds {array.dtype} {array.shape}, not integers in the shape {shapes}"
        )
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise UserError(f"{where} holds {array.max()}, which is beyond 63 bits")
    source, target = (np.ascontiguousarray(row, np.int64) for row in array)
    return source, target
