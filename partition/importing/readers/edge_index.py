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
    if array.ndim != 2 or array.dtype.kind not in "iu" or 2 not in array.shape:
        raise UserError(
            f"{path} holds {array.dtype} {array.shape}, not integers in the shape (2, E) or (E, 2)"
        )
    if array.shape == (2, 2):
        raise UserError(
            f"{path} is 2 x 2: it is not clear whether a row is an arc",
            "write the two arcs as a list: 'source target', one a line",
        )
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise UserError(f"{path} holds {array.max()}, which is beyond 63 bits")
    ends = array if len(array) == 2 else array.T
    source, target = (np.ascontiguousarray(row, np.int64) for row in ends)
    given = None if layout.ids is None else read_ids(layout.ids)
    n, source, target, ids = number_vertices(
        source, target, str(path), vertices=layout.vertices, ids=given
    )
    return Source(n=n, source=source, target=target, ids=ids, format="npy")
