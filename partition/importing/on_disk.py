"""Graphs larger than memory: the CSR arrays are made in files, with the result of `build_graph`.

Arcs are numbered and put into files by ranges of rows, each of which fits into memory, in the order
in which they are read. A range is then sorted and settled by itself, by the steps of
:mod:`partition.importing.arcs`, so that arcs and weights have the same bits.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.arc_data import ArcData
from partition.graph.graph import Graph, chunks, index_dtype
from partition.graph.sampling import pointers
from partition.importing.arc_data import ArcFiles, in_order, read_arc_files
from partition.importing.arcs import Keys, Settling, check_number, joined
from partition.importing.readers import Allocate, Source, Stream, Tell
from partition.importing.readers.arc_columns import NO_DATA, ArcTable, text_places
from partition.importing.readers.numbering import Numbering, distinct, numbering_of
from partition.records import temporary_name

# Bytes that an import takes beside its arcs: Python and its libraries; and for each vertex.
BASE_BYTES = 300 << 20
VERTEX_BYTES = 100
# Bytes for an arc that is being sorted, with its weight and its number.
ARC_BYTES = 150
FEWEST_ARCS = 1 << 16
OF_SOURCES = ("format", "notes", "arc_data")  # fields that a graph does not have


def build_on_disk(
    stream: Stream,
    folder: Path,
    memory: float,
    rules: Settling,
    tell: Tell = lambda stage, done, total: None,
    arc_files: ArcFiles | None = None,
) -> tuple[Graph, dict[str, object]]:
    """As :func:`partition.importing.assemble.build_graph`, out of pieces and into files.

    The files are in ``folder``, which is the caller's to delete, and the arrays of the graph are
    mapped from them. ``memory`` is how many bytes the program may take, itself included: vertices
    are kept in memory, of the arcs as many as fit beside them. ``arc_files`` are data of the arcs
    in the order of the stream. A UserError if the vertices, or the arcs of one of them, do not fit.
    """
    spool = _Columns(folder / "read", "source", "target", weighted=stream.weighted)
    numbering, table = _collect(stream, spool, memory)
    files = read_arc_files(arc_files or ArcFiles(), spool.rows, "it lists")
    table = table.with_columns(files)
    build = _Building(folder, numbering, _arcs_at_once(memory, numbering.n), tell, rules)
    n, at_once = numbering.n, build.most // 2
    counted = bool(table.columns) or rules.parallel

    def keys() -> Iterator[Keys]:
        done = 0
        for source, target, weights, _ in spool.pieces(at_once):
            ends = Source(n, numbering.of(source), numbering.of(target), weights)
            yield rules.keys_of(ends, done if counted else None)
            done += len(source)

    counts = np.zeros(n, np.int64)
    for done, (source, target, *_) in _counted(spool.pieces(at_once, weights=False)):
        kept = source if rules.self_loops == "keep" else source[source != target]
        counts += np.bincount(numbering.of(kept), minlength=n)
        tell("counting arcs", done, spool.rows)
    weighted = spool.weighted or rules.duplicates == "sum"
    settled = _Columns(folder / "settled", "key", weighted=weighted, numbered=counted)
    form = {"weighted": spool.weighted, "numbered": counted}
    for piece in build.ranges(counts, keys(), form, "sorting"):
        found = rules.settle(piece)
        if found.weights is None and settled.weighted:
            found = found._replace(weights=np.ones(len(found.key)))
        settled.append(*found)
    rules.check_copies(n, numbering.ids)
    # Ones that nothing was added to are no weights.
    settled.weighted = spool.weighted or (rules.duplicates == "sum" and rules.copies > 0)
    spool.delete()
    if rules.undirected:
        settled = build.mirrored(settled)
    graph = build.graph(settled, stream.rest, table)
    facts = {"format": stream.rest.get("format", "")}
    facts |= rules.facts(spool.rows, False, bool(table.columns))
    return graph, facts | dict(stream.rest.get("notes", {}))


@contextlib.contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """A folder for large files beside a path, which is deleted in the end."""
    folder = temporary_name(beside)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder
    except OSError as error:
        raise UserError(
            f"cannot write to {folder.parent}: {error.strerror or error}",
            "with --memory, arcs are kept there meanwhile: some 40 bytes for each, 80 with weights",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def allocate_in(folder: Path) -> Allocate:
    """Arrays in files of a folder."""

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if 0 in shape:
            return np.empty(shape, dtype)
        # Into a file with holes that a full disk cannot fill, nobody could write and live.
        with open(folder / name, "wb") as file, contextlib.suppress(AttributeError):
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        return np.memmap(folder / name, dtype, "r+", shape=shape)

    return allocate


def _arcs_at_once(memory: float, n: int) -> int:
    """How many arcs are sorted at a time."""
    left = memory - BASE_BYTES - VERTEX_BYTES * n
    if left < ARC_BYTES * FEWEST_ARCS:
        need = BASE_BYTES + VERTEX_BYTES * n + ARC_BYTES * FEWEST_ARCS
        raise UserError(
            f"--memory {memory / 1e9:.3g}GB is too little: {n} vertices stay in memory",
            f"give --memory {need / 1e9 + 0.01:.2f}GB or more",
        )
    return int(left // ARC_BYTES)


def _collect(stream: Stream, spool: _Columns, memory: float) -> tuple[Numbering, ArcTable]:
    """Put the arcs into a file, with their own ids, and say which vertex is which number.

    The data of the arcs are in files beside it.
    """
    data = _DataFiles(spool.paths["source"].with_suffix(""))
    listed = stream.n is None and stream.vertices is None
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    known, fresh, waiting = np.empty(0, np.int64), list[np.ndarray](), 0
    for piece in stream.pieces:
        spool.append(piece.source, piece.target, piece.weights, None)
        data.append(piece.data)
        for ends in piece[:2] if len(piece[0]) else ():
            low, high = min(low, int(ends.min())), max(high, int(ends.max()))
            if listed:
                fresh.append(ends)
                waiting += len(ends)
        if waiting > max(FEWEST_ARCS, len(known), int(memory // 200)):
            known, fresh, waiting = distinct(known, *fresh), [], 0
            _arcs_at_once(memory, len(known))
    if listed:
        known = distinct(known, *fresh)
    table = stream.rest.get("arc_data", NO_DATA).with_columns(data.table())
    if stream.n is not None:
        return Numbering(stream.n), table
    span = (low, high) if spool.rows else None
    numbering = numbering_of(span, known, stream.where, stream.vertices, stream.ids)
    check_number(numbering.n)
    return numbering, table


class _DataFiles:
    """Data of arcs in files, in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[str, int] = {}
        self._forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self._rows = 0

    def append(self, columns: Mapping[str, Any]) -> None:
        """Put the rows of some arcs behind those of others."""
        for name, column in columns.items():
            values = text_places(column, self._texts)
            self._forms[name] = values.dtype, values.shape[1:]
            with self._file(name).open("ab") as file:
                np.ascontiguousarray(values).tofile(file)
            self._rows += len(values) if name == next(iter(columns)) else 0

    def table(self) -> ArcTable:
        """The columns, mapped from the files."""
        columns = {
            name: np.memmap(self._file(name), dtype, "r", shape=(self._rows, *shape))
            for name, (dtype, shape) in self._forms.items()
            if self._rows
        }
        return ArcTable(columns, list(self._texts) or None)

    def _file(self, name: str) -> Path:
        return self._path.with_suffix(f".arc_{name}")


_Pieces = Iterator[tuple[Any, ...]]


def _counted(pieces: _Pieces) -> Iterator[tuple[int, Any]]:
    """Each piece, after the number of rows up to its end."""
    done = 0
    for piece in pieces:
        done += len(piece[0])
        yield done, piece


class _Columns:
    """Arcs in files in the order in which they came: ends or keys, weights and numbers."""

    def __init__(
        self, path: Path, *names: str, weighted: bool = False, numbered: bool = False
    ) -> None:
        self.weighted, self.numbered, self.rows = weighted, numbered, 0
        columns = (*names, "weights", "numbers")
        self.paths = {name: path.with_suffix(f".{name}") for name in columns}
        for file in self.paths.values():
            file.touch()

    def append(self, *columns: np.ndarray | None) -> None:
        self.rows += 0 if columns[0] is None else len(columns[0])
        for path, column in zip(self.paths.values(), columns, strict=True):
            if column is not None:
                with path.open("ab") as file:
                    np.ascontiguousarray(column).tofile(file)

    def pieces(self, at_once: int, *, weights: bool = True) -> _Pieces:
        """The columns, so many rows at a time; None in place of weights and numbers without any."""
        *ends, of_weights, of_numbers = self.paths.values()
        for start in range(0, self.rows, at_once):
            count, at = min(at_once, self.rows - start), start * 8
            found = [np.fromfile(path, np.int64, count, offset=at) for path in ends]
            known = weights and self.weighted
            yield (
                *found,
                np.fromfile(of_weights, count=count, offset=at) if known else None,
                np.fromfile(of_numbers, np.int64, count, offset=at)
                if weights and self.numbered
                else None,
            )

    def keys(self, at_once: int) -> Iterator[Keys]:
        """The same, of a column of keys."""
        for columns in self.pieces(at_once):
            yield Keys(*columns)

    def whole(self) -> Keys:
        """All keys that were put here."""
        return next(self.keys(max(1, self.rows)), _no_keys(self.weighted, self.numbered))

    def delete(self) -> None:
        for path in self.paths.values():
            path.unlink()


@dataclass(frozen=True)
class _Building:
    """The steps from keys of arcs to a graph, in files of a folder, ``most`` arcs at a time."""

    folder: Path
    numbering: Numbering
    most: int
    tell: Tell
    rules: Settling

    def ranges(
        self, counts: np.ndarray, keys: Iterator[Keys], form: Mapping[str, bool], stage: str
    ) -> Iterator[Keys]:
        """The keys of one range of rows after the other, each in the order in which it came.

        ``counts`` are the arcs of each row, of which a range has as many as fit; ``form``: whether
        keys are ``weighted`` and ``numbered``.
        """
        large = np.flatnonzero(counts > self.most)
        if len(large):
            vertex = large[0] if self.numbering.ids is None else self.numbering.ids[large[0]]
            raise UserError(
                f"vertex {vertex} has {counts[large[0]]} arcs, which are sorted at once",
                "give more --memory",
            )
        first_keys = [first * len(counts) for first, _ in chunks(pointers(counts), self.most)]
        if len(first_keys) < 2:  # all of them fit
            yield joined([_no_keys(**form), *keys])
            return
        names = [self.folder / f"ranges-{i}" for i in range(len(first_keys))]
        files = [_Columns(name, "key", **form) for name in names]
        total = int(counts.sum())
        done = 0
        for some in keys:
            which = np.searchsorted(first_keys, some.key, side="right") - 1
            small = np.uint16 if len(files) < 1 << 16 else np.int64  # NumPy sorts it faster
            order = np.argsort(which.astype(small), kind="stable")
            ends = np.cumsum(np.bincount(which, minlength=len(files)))
            for file, start, end in zip(files, np.append(0, ends), ends, strict=False):
                file.append(*some.of(order[start:end]))
            done += len(order)
            self.tell(f"{stage}: distributing", done, total)
        done = 0
        for file in files:
            yield file.whole()
            file.delete()
            done += file.rows
            self.tell(stage, done, total)

    def mirrored(self, settled: _Columns) -> _Columns:
        """The arcs and their reverses."""
        n = self.numbering.n
        counts = np.zeros(n, np.int64)
        for key, *_ in settled.pieces(self.most // 2, weights=False):
            for ends in np.divmod(key, n):
                counts += np.bincount(ends, minlength=n)
        both = (self.rules.with_reverse(keys, n) for keys in settled.keys(self.most // 4))
        form = {"weighted": settled.weighted, "numbered": settled.numbered}
        merged = _Columns(self.folder / "merged", "key", **form)
        for piece in self.ranges(counts, both, form, "adding reverses"):
            merged.append(*self.rules.merge_reverse(piece))
        settled.delete()
        return merged

    def graph(self, keys: _Columns, rest: Mapping[str, Any], table: ArcTable) -> Graph:
        """The graph of sorted keys, with data of its arcs out of those of the source."""
        n, file = self.numbering.n, self.folder / "indices"
        degrees, kind = np.zeros(n, np.int64), index_dtype(n)
        with file.open("wb") as out:
            for done, (key, *_) in _counted(keys.pieces(self.most, weights=False)):
                row, column = np.divmod(key, n)
                degrees += np.bincount(row, minlength=n)
                column.astype(kind).tofile(out)
                self.tell("writing arcs", done, keys.rows)
        keys.paths["key"].unlink()
        weights = None
        if keys.weighted:
            weights = _mapped(keys.paths["weights"], np.dtype(np.float64), keys.rows)
        return Graph(
            indptr=pointers(degrees),
            indices=_mapped(file, kind, keys.rows),
            weights=weights,
            ids=self.numbering.ids,
            arc_data=self._data(keys, table),
            parallel=self.rules.parallel,
            **{name: value for name, value in rest.items() if name not in OF_SOURCES},
        )

    def _data(self, keys: _Columns, table: ArcTable) -> ArcData:
        if not table.columns:
            return ArcData()
        numbers = _mapped(keys.paths["numbers"], np.dtype(np.int64), keys.rows)
        return in_order(table, numbers, allocate_in(self.folder))


def _mapped(path: Path, dtype: np.dtype, rows: int) -> np.ndarray:
    return np.memmap(path, dtype, "r", shape=(rows,)) if rows else np.empty(0, dtype)


def _no_keys(weighted: bool, numbered: bool) -> Keys:
    none = np.empty(0, np.int64)
    return Keys(none, np.empty(0) if weighted else None, none if numbered else None)
