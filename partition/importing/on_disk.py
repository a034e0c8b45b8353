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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.graph import ArcData, Graph, chunks, index_dtype
from partition.graph.sampling import pointers
from partition.importing.arcs import ArcRules, Keys, check_number, joined
from partition.importing.data_files import ArcFiles, in_order
from partition.importing.readers.arc_columns import NO_DATA, ArcTable, text_places
from partition.importing.readers.numbering import IdsSeen, Numbering, numbering_of
from partition.importing.readers.source import Allocate, Source, Stream, Tell
from partition.records import temporary_name

# Bytes that an import takes beside its arcs: Python and its libraries; and for each vertex.
BASE_BYTES = 300 << 20
VERTEX_BYTES = 100
# Bytes for an arc that is being sorted, with its weight and its number.
ARC_BYTES = 150
FEWEST_ARCS = 1 << 16
Form = Mapping[str, bool]
"""Whether keys are ``weighted`` and ``numbered``."""
OF_SOURCES = ("format", "notes", "arc_data", "unread")  # fields that a graph does not have


def build_on_disk(
    stream: Stream,
    folder: Path,
    memory: float,
    rules: ArcRules,
    tell: Tell = lambda stage, done, total: None,
    arc_files: ArcFiles | None = None,
) -> tuple[Graph, dict[str, object]]:
    """As :func:`partition.importing.arcs.build_graph`, out of pieces and into files.

    The files are in ``folder``, which is the caller's to delete, and the arrays of the graph are
    mapped from them. ``memory`` is how many bytes the program may take, itself included: vertices
    are kept in memory, of the arcs as many as fit beside them. ``arc_files`` are data of the arcs
    in the order of the stream. A UserError if the vertices, or the arcs of one of them, do not fit.
    """
    read, numbering, table = _collect(stream, folder, memory)
    table = table.with_columns((arc_files or ArcFiles()).read(read.rows, "it lists"))
    n, most = numbering.n, arcs_at_once(memory, numbering.n)
    numbered = bool(table.columns) or rules.parallel
    build = Building(folder, n, range(n), numbering.ids, most, tell, rules)

    def keys() -> Iterator[Keys]:
        done = 0
        for source, target, weights, _ in read.pieces(most // 2):
            ends = Source(n, numbering.of(source), numbering.of(target), weights)
            numbers = np.arange(done, done + len(source)) if numbered else None
            yield rules.keys_of(ends, numbers)
            done += len(source)

    counts, done = np.zeros(n, np.int64), 0
    for source, target, *_ in read.pieces(most // 2, weights=False):
        kept = source if rules.self_loops == "keep" else source[source != target]
        counts += np.bincount(numbering.of(kept), minlength=n)
        tell("counting arcs", done := done + len(source), read.rows)
    form = {"weighted": read.weighted, "numbered": numbered}
    settled = build.settled(counts, keys(), form, numbered=numbered)
    rules.check_copies(n, numbering.ids)
    settled.weighted = rules.valued(read.weighted)
    read.delete()
    if rules.undirected:
        counts = build.counted(settled)
        settled = build.with_reverses(counts, build.both(settled), settled)
    graph = _graph(build, settled, stream.rest, table)
    facts = rules.facts(read.rows, False, bool(table.columns))
    return graph, {"format": stream.rest.get("format", "")} | facts | stream.rest.get("notes", {})


def arcs_at_once(memory: float, n: int) -> int:
    """How many arcs are sorted at a time."""
    left = memory - BASE_BYTES - VERTEX_BYTES * n
    if left < ARC_BYTES * FEWEST_ARCS:
        need = BASE_BYTES + VERTEX_BYTES * n + ARC_BYTES * FEWEST_ARCS
        raise UserError(
            f"--memory {memory / 1e9:.3g}GB is too little: {n} vertices stay in memory",
            f"give --memory {need / 1e9 + 0.01:.2f}GB or more",
        )
    return int(left // ARC_BYTES)


def _collect(stream: Stream, folder: Path, memory: float) -> tuple[Columns, Numbering, ArcTable]:
    """The arcs in files, with their own ids, which vertex is which number, and data of the arcs."""
    read = Columns(folder / "read", "source", "target", weighted=stream.weighted)
    data = DataFiles(folder / "read")
    listed = stream.n is None and stream.vertices is None
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    seen = IdsSeen(max(FEWEST_ARCS, int(memory // 200)))
    for piece in stream.pieces:
        read.append(piece.source, piece.target, piece.weights, None)
        data.append(piece.data)
        if not len(piece.source):
            continue
        ends = piece.source, piece.target
        low = min(low, *(int(some.min()) for some in ends))
        high = max(high, *(int(some.max()) for some in ends))
        if listed and seen.add(*ends):
            arcs_at_once(memory, len(seen.known))
    known = seen.all()
    table = stream.rest.get("arc_data", NO_DATA).with_columns(data.table())
    if stream.n is not None:
        return read, Numbering(stream.n), table
    span = (low, high) if read.rows else None
    numbering = numbering_of(span, known, stream.where, stream.vertices, stream.ids)
    check_number(numbering.n)
    return read, numbering, table


@dataclass(frozen=True)
class Building:
    """The steps from keys of arcs to the arrays of a graph, or of a range of its rows.

    Attributes
    ----------
    folder : path
        For files.
    n : int
        Vertices of the graph.
    rows : range
        The sources of the arcs.
    ids : (n,) int64, optional
        Those of the vertices in the source, for messages.
    most : int
        Arcs that are sorted at once.
    tell, rules
        See :func:`build_on_disk`.
    """

    folder: Path
    n: int
    rows: range
    ids: np.ndarray | None
    most: int
    tell: Tell
    rules: ArcRules

    def settled(
        self, counts: np.ndarray, keys: Iterator[Keys], form: Form, *, numbered: bool
    ) -> Columns:
        """Sorted keys by the rules for duplicates, out of keys of a ``form``.

        ``counts`` are how many each row has. Keys without numbers come in their order in the
        source; those with numbers keep them if the result is to be ``numbered``.
        """
        weighted = form["weighted"] or self.rules.duplicates == "sum"
        settled = Columns(self.folder / "settled", "key", weighted=weighted, numbered=numbered)
        for piece in self._ranges(counts, keys, form, "sorting"):
            found = self.rules.settle(piece)
            key, weights, numbers = found.weighted() if settled.weighted else found
            settled.append(key, weights, numbers if numbered else None)
        return settled

    def counted(self, keys: Columns) -> np.ndarray:
        """How many arcs each row has together with the reverses of all arcs, where it has all."""
        counts = np.zeros(len(self.rows), np.int64)
        for key, *_ in keys.pieces(self.most // 2, weights=False):
            for ends in np.divmod(key, self.n):
                counts += np.bincount(ends - self.rows.start, minlength=len(counts))
        return counts

    def both(self, keys: Columns) -> Iterator[Keys]:
        """The arcs and their reverses; the files of the arcs are deleted after that."""
        for some in keys.keys(self.most // 4):
            yield self.rules.with_reverse(some, self.n)
        keys.delete()

    def with_reverses(self, counts: np.ndarray, both: Iterator[Keys], like: Columns) -> Columns:
        """Sorted keys out of settled arcs and reverses of such; ``counts`` of both."""
        merged = Columns(self.folder / "merged", "key", **like.form)
        for piece in self._ranges(counts, both, like.form, "adding reverses"):
            merged.append(*self.rules.merge_reverse(piece))
        return merged

    def csr(self, keys: Columns, put: Callable[[np.ndarray], object]) -> np.ndarray:
        """Hand over the targets of sorted keys piece by piece; returns how many each row has."""
        degrees, done = np.zeros(len(self.rows), np.int64), 0
        for key, *_ in keys.pieces(self.most, weights=False):
            row, column = np.divmod(key, self.n)
            degrees += np.bincount(row - self.rows.start, minlength=len(degrees))
            put(column.astype(index_dtype(self.n)))
            self.tell("writing arcs", done := done + len(key), keys.rows)
        return degrees

    def _ranges(
        self, counts: np.ndarray, keys: Iterator[Keys], form: Form, stage: str
    ) -> Iterator[Keys]:
        """The keys of one range of rows after the other, each in the order in which it came.

        ``counts`` are the arcs of each row, of which a range has as many as fit.
        """
        large = np.flatnonzero(counts > self.most)
        if len(large):
            vertex = self.rows[large[0]]
            raise UserError(
                f"vertex {vertex if self.ids is None else self.ids[vertex]} has "
                f"{counts[large[0]]} arcs, which are sorted at once",
                "give more --memory",
            )
        first_keys = [
            (self.rows.start + first) * self.n for first, _ in chunks(pointers(counts), self.most)
        ]
        names = [self.folder / f"ranges-{i}" for i in range(max(1, len(first_keys)))]
        files = [Columns(name, "key", **form) for name in names]
        if len(files) == 1:  # all of them fit
            yield joined([files[0].whole(), *keys])
            files[0].delete()
            return
        done, total = 0, int(counts.sum())
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


def _graph(build: Building, keys: Columns, rest: Mapping[str, Any], table: ArcTable) -> Graph:
    """The graph of sorted keys, with data of its arcs out of those of the source."""
    with (build.folder / "indices").open("wb") as out:
        degrees = build.csr(keys, lambda column: column.tofile(out))
    keys.paths["key"].unlink()

    def mapped(path: Path, dtype: np.dtype) -> np.ndarray:
        return np.memmap(path, dtype, "r", shape=keys.rows) if keys.rows else np.empty(0, dtype)

    data = ArcData()
    if table.columns:
        numbers = mapped(keys.paths["numbers"], np.dtype(np.int64))
        data = in_order(table, numbers, allocate_in(build.folder))
    return Graph(
        indptr=pointers(degrees),
        indices=mapped(build.folder / "indices", index_dtype(build.n)),
        weights=mapped(keys.paths["weights"], np.dtype(np.float64)) if keys.weighted else None,
        ids=build.ids,
        arc_data=data,
        parallel=build.rules.parallel,
        **{name: value for name, value in rest.items() if name not in OF_SOURCES},
    )


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


class DataFiles:
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


class Columns:
    """Arcs in files in the order in which they came: ends or keys, weights and numbers."""

    def __init__(
        self, path: Path, *names: str, weighted: bool = False, numbered: bool = False
    ) -> None:
        self.names, self.weighted, self.numbered, self.rows = names, weighted, numbered, 0
        columns = (*names, "weights", "numbers")
        self.paths = {name: path.with_suffix(f".{name}") for name in columns}
        for file in self.paths.values():
            file.touch()

    def append(self, *columns: np.ndarray | None) -> None:
        """Put some arcs behind the others."""
        self.rows += 0 if columns[0] is None else len(columns[0])
        for path, column in zip(self.paths.values(), columns, strict=True):
            if column is not None:
                with path.open("ab") as file:
                    np.ascontiguousarray(column).tofile(file)

    def rows_from(self, start: int, most: int, *, weights: bool = True) -> tuple[Any, ...]:
        """The columns of at most so many rows; None in place of weights and numbers without any."""
        start = min(start, self.rows)
        count = min(most, self.rows - start)
        *ends, of_weights, of_numbers = self.paths.values()
        weighted, numbered = weights and self.weighted, weights and self.numbered
        return (
            *(np.fromfile(path, np.int64, count, offset=start * 8) for path in ends),
            np.fromfile(of_weights, count=count, offset=start * 8) if weighted else None,
            np.fromfile(of_numbers, np.int64, count, offset=start * 8) if numbered else None,
        )

    def pieces(self, at_once: int, *, weights: bool = True) -> Iterator[tuple[Any, ...]]:
        """The columns, so many rows at a time."""
        for start in range(0, self.rows, at_once):
            yield self.rows_from(start, at_once, weights=weights)

    def keys(self, at_once: int) -> Iterator[Keys]:
        """The same, of a column of keys."""
        for columns in self.pieces(at_once):
            yield Keys(*columns)

    def whole(self) -> Keys:
        """All of a column of keys."""
        return Keys(*self.rows_from(0, self.rows))

    @property
    def form(self) -> Form:
        """Whether they have weights and numbers."""
        return {"weighted": self.weighted, "numbered": self.numbered}

    def delete(self) -> None:
        """Delete the files of all columns."""
        for path in self.paths.values():
            path.unlink()
