"""Graph files of other programs: one module per format, one line in the table each.

A reader is a function ``read(path) -> Source``. It hands over the arcs as the file has them, in
the file's order; what becomes of duplicates and self-loops is decided in
:mod:`partition.assemble`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from partition.errors import UserError, unknown_name
from partition.readers.files import open_plain_or_gzip, read_errors
from partition.registry import Registry

READERS = Registry(
    "graph format",
    {
        "mtx": "partition.readers.matrix_market:read",
        "edges": "partition.readers.edge_list:read",
        "planetoid": "partition.readers.planetoid:read",
        "npz": "partition.readers.gnn_benchmark:read",
    },
)

SUFFIXES = {
    ".mtx": "mtx",
    ".npz": "npz",
    ".txt": "edges",
    ".edges": "edges",
    ".edgelist": "edges",
    ".el": "edges",
    ".tsv": "edges",
    ".csv": "edges",
}


@dataclass(frozen=True)
class Source:
    """What a graph file says, before duplicates and self-loops are dealt with.

    Attributes
    ----------
    n : int
        Number of vertices.
    source, target : (nnz,) integers in 0..n−1
        The arcs in the file's order: row = source, column = target.
    weights : (nnz,) float64, optional
        Finite weights of the arcs; 1 where None.
    features : (n, d) float32, optional
    labels : (n,) int32, optional
        Class of each vertex, −1 where it has none.
    masks : mapping of "train" / "val" / "test" to (n,) bool
    ids : (n,) int64, optional
        Ids of the vertices in the file, where they are not 0..n−1.
    symmetric : bool
        Each undirected edge is listed once and stands for both its arcs.
    format : str
        Name of the format in ``READERS``.
    """

    n: int
    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray | None = None
    symmetric: bool = False
    format: str = ""


def read_source(path: str | os.PathLike, format: str = "auto") -> Source:
    """Read a graph file.

    Parameters
    ----------
    path : path
        The file; for ``planetoid`` the prefix that its eight files share, ``DIR/ind.cora``.
    format : str
        A name in ``READERS``, or ``"auto"``: judged by the name and the first bytes.

    Raises
    ------
    UserError
        If the format is unknown, or the file is missing, truncated or malformed; the message
        names the file and the place in it.
    """
    path = Path(path)
    if format == "auto":
        format = guess_format(path)
    elif format not in READERS:
        raise unknown_name(READERS.kind, format, ["auto", *READERS])
    elif format != "planetoid" and not path.is_file():
        raise UserError(f"there is no file {path}")
    with read_errors(path):
        return READERS.get(format)(path)


def guess_format(path: Path) -> str:
    """The name in ``READERS`` of the format that a file seems to have; a UserError if none."""
    if path.with_name(path.name + ".graph").is_file():
        return "planetoid"
    if path.is_dir():
        hint = "a planetoid source is the prefix of its files, such as DIR/ind.cora"
        raise UserError(f"{path} is a folder, not a graph file", hint)
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    with read_errors(path), open_plain_or_gzip(path) as file:
        if file.read(14).lower() == b"%%matrixmarket":
            return "mtx"
    name = path.name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if name.endswith(".gz"):
        return "edges"
    known = ", ".join(READERS)
    raise UserError(f"cannot tell the format of {path} by its name", f"give --format: {known}")
