"""A graph file by its format: whole, or a piece at a time."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import READERS, STREAMS, arc_columns, checked_format, files
from partition.importing.readers.numbering import number_texts, number_vertices
from partition.importing.readers.source import Layout, Reading, Source, Stream, TypedSource
from partition.importing.readers.vertex_tables import read_ids
from partition.resident import check_memory


def read_source(
    path: str | os.PathLike[str],
    format: str = "auto",
    layout: Layout | None = None,
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
    found = read_graph(path, checked_format(path, format, layout), layout)
    if not isinstance(found, Source):
        raise UserError(f"{path} holds a graph with vertices of several types")
    return found


def read_graph(path: Path, format: str, layout: Layout) -> Source | TypedSource:
    """Read a graph of one type or of several; ``format`` is one that has been checked."""

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        check_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize, f"{path}: {name}")
        return np.empty(shape, dtype)

    with files.read_errors(path):
        if format not in STREAMS:
            found: Source | TypedSource = READERS.get(format)(path, layout)
            return found
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
    with files.read_errors(path):
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
    ids = stream.ids
    if stream.n is None and layout.ids is not None:
        ids = read_ids(layout.ids, text=stream.text, comments=layout.comments)
    return replace(stream, vertices=layout.vertices, ids=ids)


def _whole(stream: Stream) -> Source:
    """All pieces together, with vertices that are numbered."""
    sources, targets, of_weights, of_data = map(list, zip(*stream.pieces, strict=True))
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


def _table_of(pieces: list[Mapping[str, Any]]) -> arc_columns.ArcTable:
    """The data of arcs that come in pieces; the list is emptied."""
    texts: dict[str, int] = {}
    columns: dict[str, list[np.ndarray]] = {name: [] for name in pieces[0]}
    for piece in pieces:
        for name, column in piece.items():
            columns[name].append(arc_columns.text_places(column, texts))
    pieces.clear()
    joined = {name: _joined(arrays) for name, arrays in columns.items()}
    return arc_columns.ArcTable(joined, list(texts) or None)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """The arrays as one; the list is emptied, so that they can go."""
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    pieces.clear()
    return joined
