"""Graph files of other programs: one module per format, one line in the table each.

A reader is a function ``read(path, layout) -> Source``. It hands over the arcs as the file has
them, in the file's order; what becomes of duplicates and self-loops is decided in
:mod:`partition.importing.assemble`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, unknown_name
from partition.importing.readers.files import check_file, open_plain_or_gzip, read_errors
from partition.registry import Registry

READERS = Registry(
    "graph format",
    {
        "mtx": "partition.importing.readers.matrix_market:read",
        "edges": "partition.importing.readers.edge_list:read",
        "planetoid": "partition.importing.readers.planetoid:read",
        "npz": "partition.importing.readers.gnn_benchmark:read",
        "npy": "partition.importing.readers.edge_index:read",
        "ogb": "partition.importing.readers.ogb:read",
        "pyg": "partition.importing.readers.pyg:read",
        "dgl": "partition.importing.readers.dgl_bin:read",
        "distdgl": "partition.importing.readers.distdgl:read",
        "parquet": "partition.importing.readers.parquet:read",
    },
)

# Those that can be read a piece at a time, for graphs larger than memory.
STREAMS = Registry(
    "graph format that is read in pieces",
    {
        "edges": "partition.importing.readers.edge_list:stream",
        "npy": "partition.importing.readers.edge_index:stream",
        "ogb": "partition.importing.readers.ogb:stream",
        "parquet": "partition.importing.readers.parquet:stream",
    },
)

# Formats that are not one file: what they are, by name.
FOLDERS = {
    "planetoid": "a prefix",
    "ogb": "a folder",
    "pyg": "a file or a folder",
    "distdgl": "a folder",
}

# The fields of a Layout that a format has a use for.
LAYOUTS = {
    "edges": ("columns", "header", "string_ids", "vertices", "ids"),
    "npy": ("vertices", "ids"),
    "parquet": ("columns", "string_ids", "vertices", "ids"),
}

# Of a folder of OGB, one of these is there; the last two are of graphs with types.
OGB_FILES = ("edge.csv.gz", "data.npz", "num-node-dict.csv.gz", "edge_index_dict.npz")

SUFFIXES = {
    ".mtx": "mtx",
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".bin": "dgl",
    ".json": "distdgl",
    ".pt": "pyg",
    ".pth": "pyg",
    ".txt": "edges",
    ".edges": "edges",
    ".edgelist": "edges",
    ".el": "edges",
    ".tsv": "edges",
    ".csv": "edges",
}


@dataclass(frozen=True)
class Layout:
    """What the user says of a list of arcs, where the list does not say it itself.

    Attributes
    ----------
    columns : str, optional
        Their meaning in their order: "source,target,-,weight"; columns beyond are not read.
    header : bool, optional
        Whether the first line names the columns; judged by the first two lines where None.
    string_ids : bool
        Ids are texts, even if they look like integers.
    vertices : str, optional
        "N" or "A..B": which vertices there are, with an arc or without.
    ids : path, optional
        A file with the id of each vertex, in the order that they shall have.
    """

    columns: str | None = None
    header: bool | None = None
    string_ids: bool = False
    vertices: str | None = None
    ids: str | os.PathLike | None = None


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
    masks : mapping of "train" / "val" / "test" to (n,) bool, or to (n, splits) bool
    class_names : tuple of str, optional
        Names of the classes, where they are not their numbers.
    ids : (n,) int64 or str, optional
        Ids of the vertices in the file, where they are not 0..n−1.
    symmetric : bool
        Each undirected edge is listed once and stands for both its arcs.
    format : str
        Name of the format in ``READERS``.
    notes : mapping
        What else the reader found, for the manifest.
    targets : (n, c) float32 or float64, optional
        Numbers to be learned, or several labels a vertex; NaN where unknown.
    """

    n: int
    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    symmetric: bool = False
    format: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    targets: np.ndarray | None = None


# source, target, and weights of some arcs: ids of the file.
Piece = tuple[np.ndarray, np.ndarray, np.ndarray | None]
# (name, shape, dtype) → an array to be filled: in memory, or in a file.
Allocate = Callable[[str, tuple[int, ...], np.dtype], np.ndarray]
# Told the stage, how much of it is done, and how much there is.
Tell = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Stream:
    """What a graph file says, with the arcs a piece at a time.

    Attributes
    ----------
    pieces : iterator of (source, target, weights or None)
        int64 ids of the file, and float64 weights; to be taken once.
    where : str
        The file, for messages.
    weighted : bool
        Whether pieces have weights.
    n : int, optional
        Ids are 0..n−1, checked. None: as ``vertices`` and ``ids`` of :class:`Layout` say.
    vertices : str, optional
    ids : (n,) int64, optional
    rest : mapping
        Further fields of :class:`Source`; of ``notes`` what is known before the arcs are read.
    """

    pieces: Iterator[Piece]
    where: str
    weighted: bool = False
    n: int | None = None
    vertices: str | None = None
    ids: np.ndarray | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)


def read_source(
    path: str | os.PathLike, format: str = "auto", layout: Layout | None = None
) -> Source:
    """Read a graph file.

    Parameters
    ----------
    path : path
        The file; for ``planetoid`` the prefix that its eight files share, ``DIR/ind.cora``.
    format : str
        A name in ``READERS``, or ``"auto"``: judged by the name and the first bytes.
    layout : Layout, optional
        What the file does not say itself.

    Raises
    ------
    UserError
        If the format is unknown or has no use for what ``layout`` says, or the file is missing,
        truncated or malformed; the message names the file and the place in it.
    """
    path, layout = Path(path), layout or Layout()
    format = _checked_format(path, format, layout)
    with read_errors(path):
        return READERS.get(format)(path, layout)


def open_stream(
    path: str | os.PathLike,
    format: str,
    layout: Layout,
    allocate: Allocate,
    tell: Tell = lambda stage, done, total: None,
) -> Stream:
    """The same a piece at a time; what belongs to the vertices is in arrays of ``allocate``.

    Raises
    ------
    UserError
        As :func:`read_source`, here or from the pieces; or if the format is not read in pieces.
    """
    path = Path(path)
    format = _checked_format(path, format, layout)
    if format not in STREAMS:
        raise UserError(
            f"{path} has the format {format}, which is read as a whole",
            f"--memory is for {', '.join(STREAMS)}",
        )
    with read_errors(path):
        return STREAMS.get(format)(path, layout, allocate, tell)


def _checked_format(path: Path, format: str, layout: Layout) -> str:
    if format == "auto":
        format = guess_format(path)
    elif format not in READERS:
        raise unknown_name(READERS.kind, format, ["auto", *READERS])
    elif format not in FOLDERS:
        check_file(path)
    _check_layout(path, format, layout)
    return format


def guess_format(path: Path) -> str:
    """The name in ``READERS`` of the format that a file seems to have; a UserError if none."""
    if path.with_name(path.name + ".graph").is_file():
        return "planetoid"
    if path.is_dir():
        if any((path / "raw" / name).exists() for name in OGB_FILES):
            return "ogb"
        if (path / "processed" / "data.pt").exists():
            return "pyg"
        if (path / "part0" / "graph.dgl").exists():
            return "distdgl"
        hint = (
            "a folder of OGB has raw/edge.csv.gz or raw/data.npz; a planetoid source is the "
            "prefix of its files, such as DIR/ind.cora"
        )
        raise UserError(f"{path} is a folder, not a graph file", hint)
    check_file(path)
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


def _check_layout(path: Path, format: str, layout: Layout) -> None:
    """Refuse what the format itself says, or has no place for."""
    for option in fields(layout):
        given = getattr(layout, option.name) != option.default
        # Files of features may list ids in any order, whatever the arcs come from.
        if given and option.name != "ids" and option.name not in LAYOUTS.get(format, ()):
            takes = ", ".join(name for name in LAYOUTS if option.name in LAYOUTS[name])
            raise UserError(
                f"{path} has the format {format}: --{option.name.replace('_', '-')} is for {takes}"
            )
