"""Graph files of other programs: one module per format, one line in the table each.

A reader hands over the arcs as the file has them, in the file's order;
:mod:`partition.importing.assemble` decides what becomes of duplicates and self-loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from partition.errors import UserError, unknown_name
from partition.importing.readers.arc_columns import NO_DATA, ArcTable, text_places
from partition.importing.readers.files import check_file, read_errors
from partition.importing.readers.numbering import number_texts, number_vertices
from partition.importing.readers.sharing import ALONE, Readers
from partition.importing.readers.sizes import BANNER, HYPERGRAPH, refuse_sizes
from partition.importing.readers.unpacking import (
    ZIP,
    content_name,
    holds_arrays,
    open_unpacked,
    packing_of,
)
from partition.importing.readers.vertex_files import read_ids
from partition.registry import Registry
from partition.resident import check_memory

# One of these is in the folder raw of OGB; the last two are of graphs with types.
OGB_FILES = ("edge.csv.gz", "data.npz", "num-node-dict.csv.gz", "edge_index_dict.npz")


@dataclass(frozen=True)
class Format:
    """How the files of a format are told from others, and which options they take.

    Attributes
    ----------
    reader : str
        "module:function" in this package. ``read(path, layout) -> Source`` reads a file as a whole;
        ``stream(path, layout, reading) -> Stream`` reads it a piece at a time: see
        :class:`Reading`.
    suffixes : tuple of str
        Names of files end so.
    inside : tuple of str
        One of these files is in a folder of this format.
    single : bool
        Whether it is always one file.
    options : tuple of str
        The fields of a :class:`Layout` that it has a use for.
    packed : bool
        Whether it is read out of compressed files and archives.
    """

    reader: str
    suffixes: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    single: bool = True
    options: tuple[str, ...] = ()
    packed: bool = False


ARCHIVES = ("npz", "pyg")  # formats that are zip archives themselves
RELATION = "relation"  # the column of relations in --columns
TRIPLETS = "triplet-type-list.csv.gz"
OF_ARCS = ("arc_features", "arc_label")
FORMATS = {
    "mtx": Format("matrix_market:read", (".mtx",), options=("arc_features",), packed=True),
    "edges": Format(
        "edge_list:stream",
        (".txt", ".edges", ".edgelist", ".el", ".tsv", ".csv"),
        options=("columns", "header", "comments", "string_ids", "vertices", "ids", *OF_ARCS),
        packed=True,
    ),
    "metis": Format("metis:read", (".graph", ".metis"), packed=True),
    "graphml": Format("networkx_files:read", (".graphml",), options=OF_ARCS, packed=True),
    "gml": Format("networkx_files:read", (".gml",), options=OF_ARCS, packed=True),
    "node-link": Format("networkx_files:read", (".json",), options=OF_ARCS, packed=True),
    "planetoid": Format("planetoid:read", single=False),
    "npz": Format("gnn_benchmark:read", (".npz",), options=OF_ARCS),
    "npy": Format("edge_index:stream", (".npy",), options=("vertices", "ids")),
    "ogb-hetero": Format("ogb_hetero:read", inside=(f"raw/{TRIPLETS}",), single=False),
    "ogb": Format("ogb:stream", inside=tuple(f"raw/{n}" for n in OGB_FILES), single=False),
    "pyg": Format(
        "pyg:read", (".pt", ".pth"), ("processed/data.pt",), single=False, options=OF_ARCS
    ),
    "dgl": Format("dgl_bin:read", (".bin",), options=OF_ARCS),
    "parquet": Format(
        "parquet:stream",
        (".parquet",),
        options=("columns", "string_ids", "vertices", "ids", *OF_ARCS),
    ),
    "triples": Format(
        "triples:read",
        options=("columns", "header", "comments", "string_ids", "vertices", "ids"),
        packed=True,
    ),
    "tables": Format(
        "typed_tables:read",
        (".toml",),
        ("graph.toml",),
        single=False,
        options=("header", "comments", "string_ids", "relation", "nodes"),
    ),
}
READERS = Registry(
    "graph format",
    {name: f"partition.importing.readers.{form.reader}" for name, form in FORMATS.items()},
)
# Formats that are read a piece at a time, for graphs larger than memory.
STREAMS = [name for name, form in FORMATS.items() if form.reader.endswith(":stream")]
# Formats that do not say how many vertices there are.
LISTS = [name for name, form in FORMATS.items() if "vertices" in form.options]
# Formats of which several read the pieces together.
SHARED = [name for name in STREAMS if name in LISTS]
# Formats of heterogeneous graphs; so may be files of ``pyg``.
TYPED = ("triples", "tables", "ogb-hetero")
# Files that tools write and that hold no graph, by the ends of their names.
NO_GRAPHS = {
    ".hgr": "a hypergraph of hMETIS",
    ".hmetis": "a hypergraph of hMETIS",
    ".patoh": "a hypergraph of PaToH",
    ".u": "a hypergraph of PaToH",
}


@dataclass(frozen=True)
class Layout:
    """The words of the user about a list of arcs, where the list does not say it itself.

    Attributes
    ----------
    columns : str, optional
        Their meaning in their order: "source,target,-,weight"; columns beyond are not read.
    header : bool, optional
        Whether the first line names the columns; judged by the first two lines where None.
    comments : str, optional
        The signs with which comments begin, "#", "%" or both, or "none"; judged where None, see
        :meth:`partition.importing.readers.text.Table.is_comment`. Also of files with a row for each
        vertex.
    string_ids : bool
        Ids are texts, even if they look like integers.
    vertices : str, optional
        "N" or "A..B": which vertices there are, with an arc or without.
    ids : path, optional
        A file with the id of each vertex, in the order that they shall have.
    arc_features, arc_label : str, optional
        Columns that are features and labels of the arcs, by names and patterns: "w1,w2", "f*".
    relation, nodes : tuple of str
        Tables of a heterogeneous graph: "author,writes,paper=FILE", "paper=FILE" or "paper=N".
    """

    columns: str | None = None
    header: bool | None = None
    comments: str | None = None
    string_ids: bool = False
    vertices: str | None = None
    ids: str | os.PathLike[str] | None = None
    arc_features: str | None = None
    arc_label: str | None = None
    relation: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The content of a graph file, before duplicates and self-loops are dealt with.

    Attributes
    ----------
    n : int
        Number of vertices.
    source, target : (nnz,) integers in 0..n−1
        The arcs in the file's order: row = source, column = target.
    weights : (nnz,) float64, optional
        Finite weights of the arcs; 1 where None.
    features, labels, targets, masks, class_names, ids
        See :class:`partition.graph.graph.Graph`.
    symmetric : bool
        Each undirected edge is listed once and stands for both its arcs.
    format : str
        Name of the format in ``FORMATS``.
    notes : mapping
        Further findings of the reader, for the manifest.
    arc_data : ArcTable
        Columns with a row for each arc.
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
    arc_data: ArcTable = NO_DATA


class Piece(NamedTuple):
    """Some arcs of a file, in its order.

    Attributes
    ----------
    source, target : (m,) integers, or Arrow array of texts
    weights : (m,) float64, optional
    data : mapping of str to (m, …) array, or Arrow array of texts
        Columns of data of the arcs, by name.
    first : int
        The number of the first of them in the file, from 0.
    """

    source: np.ndarray | pa.Array
    target: np.ndarray | pa.Array
    weights: np.ndarray | None
    data: Mapping[str, np.ndarray | pa.Array]
    first: int


# (name, shape, dtype) → an array to be filled: in memory, or in a file.
Allocate = Callable[[str, tuple[int, ...], np.dtype], np.ndarray]
# Told the stage, how much of it is done, and how much there is.
Tell = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Reading:
    """How a file is read a piece at a time.

    Attributes
    ----------
    allocate : callable
        Makes arrays of data of vertices.
    tell : callable
        Told how far it is.
    whole : bool
        One piece is as good as many, if that is faster.
    readers : Readers
        Those who share the pieces: each gets as many, the last ones perhaps empty, and the errors
        of all.
    """

    allocate: Allocate = lambda name, shape, dtype: np.empty(shape, dtype)
    tell: Tell = lambda stage, done, total: None
    whole: bool = False
    readers: Readers = ALONE


@dataclass(frozen=True)
class Stream:
    """The content of a graph file, with the arcs a piece at a time.

    Attributes
    ----------
    pieces : iterator of Piece
        Ids of the file, weights, and data of the arcs: "features" (m, d) float32 and "labels", (m,)
        int64, (m, tasks) floats, or texts; to be taken once.
    where : str
        The file, for messages.
    weighted : bool
        Whether pieces have weights.
    text : bool
        Ids are Arrow arrays of texts; otherwise, int64.
    n : int, optional
        Ids are 0..n−1, checked. None: as ``vertices`` and ``ids`` say.
    vertices : str, optional
        See :class:`Layout`.
    ids : (n,) int64 or str, optional
        The content of the file of that name.
    rest : mapping
        Further fields of :class:`Source`, ``arc_data`` where pieces have none; ``notes`` are
        complete after the last piece.
    """

    pieces: Iterator[Piece]
    where: str
    weighted: bool = False
    text: bool = False
    n: int | None = None
    vertices: str | None = None
    ids: np.ndarray | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)


def read_source(
    path: str | os.PathLike[str], format: str = "auto", layout: Layout | None = None
) -> Source:
    """Read a graph file.

    Parameters
    ----------
    path : path
        The file; for ``planetoid`` the prefix that its eight files share, ``DIR/ind.cora``.
    format : str
        A name in ``FORMATS``, or ``"auto"``: judged by the name and the first bytes.
    layout : Layout, optional
        The user's words on facts that the file does not state.

    Raises
    ------
    UserError
        If the format is unknown or has no use for what ``layout`` says, or the file is missing,
        truncated or malformed; the message names the file and the place in it.
    """
    path, layout = Path(path), layout or Layout()
    format = checked_format(path, format, layout)

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        check_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize, f"{path}: {name}")
        return np.empty(shape, dtype)

    with read_errors(path):
        if format not in STREAMS:
            return READERS.get(format)(path, layout)
        return _whole(_stream(path, format, layout, Reading(allocate, whole=True)))


def open_stream(
    path: str | os.PathLike[str], format: str, layout: Layout, reading: Reading
) -> Stream:
    """The same a piece at a time.

    A UserError as of :func:`read_source`, here or from the pieces; or if the format is not read in
    pieces, or ids are texts, each of which would have to be kept.
    """
    path = Path(path)
    format = checked_format(path, format, layout)
    if format not in STREAMS:
        raise UserError(
            f"{path} has the format {format}, which is read as a whole",
            f"--memory is for {', '.join(STREAMS)}",
        )
    with read_errors(path):
        stream = _stream(path, format, layout, reading)
    if stream.text:
        raise UserError(
            f"{path}: --memory is for ids that are integers; these are texts",
            "import it without --memory: texts are numbered in memory",
        )
    return stream


def _stream(path: Path, format: str, layout: Layout, reading: Reading) -> Stream:
    """The arcs of a file, with its vertices as ``layout`` lists them where the file does not."""
    stream = READERS.get(format)(path, layout, reading)
    if stream.n is not None or layout.ids is None:
        return replace(stream, vertices=layout.vertices)
    ids = read_ids(layout.ids, text=stream.text, comments=layout.comments)
    return replace(stream, vertices=layout.vertices, ids=ids)


def _whole(stream: Stream) -> Source:
    """All pieces together, with vertices that are numbered."""
    columns = [list(some) for some in zip(*stream.pieces, strict=True)]
    sources, targets, of_weights, of_data, _ = columns
    data, names = _table_of(of_data), None
    weights = _joined(of_weights) if stream.weighted else None
    if stream.text:
        chunked = pa.chunked_array(sources), pa.chunked_array(targets)
        names, source, target = number_texts(stream.where, *chunked)
        del chunked
    else:
        target, source = _joined(targets), _joined(sources)
    del sources, targets
    pa.default_memory_pool().release_unused()  # it would keep the memory for later columns
    n, ids = stream.n, None
    if n is None:
        n, source, target, ids = number_vertices(
            source, target, stream.where, names=names, vertices=stream.vertices, ids=stream.ids
        )
    return Source(
        n=n, source=source, target=target, weights=weights, ids=ids,
        **{"arc_data": data, **stream.rest},
    )  # fmt: skip


def _table_of(pieces: list[Mapping[str, Any]]) -> ArcTable:
    """The data of arcs that come in pieces; the list is emptied."""
    texts: dict[str, int] = {}
    columns: dict[str, list[np.ndarray]] = {name: [] for name in pieces[0]}
    for piece in pieces:
        for name, column in piece.items():
            columns[name].append(text_places(column, texts))
    pieces.clear()
    joined = {name: _joined(arrays) for name, arrays in columns.items()}
    return ArcTable(joined, list(texts) or None)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """The arrays as one; the list is emptied, so that they can go."""
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    pieces.clear()
    return joined


def checked_format(path: Path, format: str, layout: Layout) -> str:
    """The name of the format, guessed or given, of a file for which ``layout`` has a meaning."""
    if format == "auto" and (layout.relation or layout.nodes):
        format = "tables"
    elif format == "auto":
        format = guess_format(path)
    elif format not in FORMATS:
        raise unknown_name(READERS.kind, format, ["auto", *FORMATS])
    elif FORMATS[format].single:
        check_file(path)
    if format in LISTS and RELATION in (layout.columns or "").split(","):
        format = "triples"
    if FORMATS[format].single and format not in ARCHIVES:
        _check_packing(path, format)
    if format == "edges" and layout.columns is None and layout.header is None:
        refuse_sizes(path)
    for option in fields(layout):
        given = getattr(layout, option.name) != option.default
        # Files of features may list ids in any order and have comments, whatever the arcs are in.
        if (
            given
            and option.name not in ("ids", "comments")
            and option.name not in FORMATS[format].options
        ):
            takes = ", ".join(name for name in FORMATS if option.name in FORMATS[name].options)
            raise UserError(
                f"{path} has the format {format}: --{option.name.replace('_', '-')} is for {takes}",
                "the tables of --relation and --nodes name their columns in a header"
                if format == "tables"
                else None,
            )
    return format


def guess_format(path: Path) -> str:
    """The name in ``FORMATS`` of the format that a file seems to have; a UserError if none."""
    if Path(f"{path}.graph").is_file():
        return "planetoid"
    if path.is_dir():
        for format, form in FORMATS.items():
            if any((path / name).exists() for name in form.inside):
                return format
        hint = (
            "a folder of OGB has raw/edge.csv.gz or raw/data.npz; a planetoid source is the "
            "prefix of its files, such as DIR/ind.cora"
        )
        raise UserError(f"{path} is a folder, not a graph file", hint)
    check_file(path)
    with read_errors(path):
        packing = packing_of(path)
        name, begin = path.name, b""
        arrays = packing == ZIP and holds_arrays(path)
        if not arrays:
            name = content_name(path)
            with open_unpacked(path) as file:
                begin = file.read(1 << 12)
    if BANNER.match(begin):
        return "mtx"
    suffix = Path(name.lower()).suffix
    if suffix in NO_GRAPHS:
        raise UserError(f"{path} is {NO_GRAPHS[suffix]}, not a graph", HYPERGRAPH)
    for format, form in FORMATS.items():
        if suffix in form.suffixes:
            return format
    if (packing is not None or name != path.name) and not arrays:
        return "edges"
    known = ", ".join(FORMATS)
    raise UserError(f"cannot tell the format of {path} by its name", f"give --format: {known}")


def _check_packing(path: Path, format: str) -> None:
    """A UserError for a packed file of a format that is read from plain files only."""
    with read_errors(path):
        packing = packing_of(path)
    if packing is not None and not FORMATS[format].packed:
        raise UserError(f"{path} is {packing}: the format {format} is read unpacked", "unpack it")
