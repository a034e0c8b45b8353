"""Graphs larger than memory: the CSR arrays are made in files, with the result of `build_graph`.

Arcs are numbered and put into files by ranges of rows, each of which fits into memory, in the order
in which they are read. A range is then sorted and settled by itself, by the steps of
:mod:`partition.importing.arcs`, so that arcs and weights have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.graph import ArcData, Graph, chunks, index_dtype
from partition.graph.sampling import pointers
from partition.importing.arc_data import ArcFiles, in_order, read_arc_files
from partition.importing.arcs import Keys, Settling, check_number, joined
from partition.importing.readers.arc_columns import NO_DATA, ArcTable
from partition.importing.readers.numbering import IdsSeen, Numbering, numbering_of
from partition.importing.readers.source import Source, Stream, Tell
from partition.importing.spools import (
    Columns,
    DataFiles,
    allocate_in,
    counted_pieces,
    mapped,
    no_keys,
)

# Bytes that an import takes beside its arcs: Python and its libraries; and for each vertex.
BASE_BYTES = 300 << 20
VERTEX_BYTES = 100
# Bytes for an arc that is being sorted, with its weight and its number.
ARC_BYTES = 150
FEWEST_ARCS = 1 << 16
OF_SOURCES = ("format", "notes", "arc_data", "unread")  # fields that a graph does not have


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
    spool = Columns(folder / "read", "source", "target", weighted=stream.weighted)
    numbering, table = _collect(stream, spool, memory)
    files = read_arc_files(arc_files or ArcFiles(), spool.rows, "it lists")
    table = table.with_columns(files)
    n, most = numbering.n, arcs_at_once(memory, numbering.n)
    numbered = bool(table.columns) or rules.parallel
    build = Building(folder, n, range(n), numbering.ids, most, tell, rules)

    def keys() -> Iterator[Keys]:
        done = 0
        for source, target, weights, _ in spool.pieces(most // 2):
            ends = Source(n, numbering.of(source), numbering.of(target), weights)
            yield rules.keys_of(ends, done if numbered else None)
            done += len(source)

    counts = np.zeros(n, np.int64)
    for done, (source, target, *_) in counted_pieces(spool.pieces(most // 2, weights=False)):
        kept = source if rules.self_loops == "keep" else source[source != target]
        counts += np.bincount(numbering.of(kept), minlength=n)
        tell("counting arcs", done, spool.rows)
    settled = build.settled(counts, keys(), weighted=spool.weighted, numbered=numbered)
    rules.check_copies(n, numbering.ids)
    settled.weighted = rules.valued(spool.weighted)
    spool.delete()
    if rules.undirected:
        counts = build.counted(settled)
        settled = build.with_reverses(counts, build.both(settled), settled)
    graph = _graph(build, settled, stream.rest, table)
    facts = {"format": stream.rest.get("format", "")}
    facts |= rules.facts(spool.rows, False, bool(table.columns))
    return graph, facts | dict(stream.rest.get("notes", {}))


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


def _collect(stream: Stream, spool: Columns, memory: float) -> tuple[Numbering, ArcTable]:
    """Put the arcs into a file, with their own ids, and say which vertex is which number.

    The data of the arcs are in files beside it.
    """
    data = DataFiles(spool.paths["source"].with_suffix(""))
    listed = stream.n is None and stream.vertices is None
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    seen = IdsSeen(max(FEWEST_ARCS, int(memory // 200)))
    for piece in stream.pieces:
        spool.append(piece.source, piece.target, piece.weights, None)
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
        return Numbering(stream.n), table
    span = (low, high) if spool.rows else None
    numbering = numbering_of(span, known, stream.where, stream.vertices, stream.ids)
    check_number(numbering.n)
    return numbering, table


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
    rules: Settling

    def settled(
        self, counts: np.ndarray, keys: Iterator[Keys], *, weighted: bool, numbered: bool
    ) -> Columns:
        """Sorted keys by the rules for duplicates, out of keys in their order in the source.

        ``counts`` are how many each row has.
        """
        form = {"weighted": weighted, "numbered": numbered}
        settled = Columns(
            self.folder / "settled",
            "key",
            weighted=weighted or self.rules.duplicates == "sum",
            numbered=numbered,
        )
        for piece in self._ranges(counts, keys, form, "sorting"):
            found = self.rules.settle(piece)
            if found.weights is None and settled.weighted:
                found = found._replace(weights=np.ones(len(found.key)))
            settled.append(*found)
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
        form = {"weighted": like.weighted, "numbered": like.numbered}
        merged = Columns(self.folder / "merged", "key", **form)
        for piece in self._ranges(counts, both, form, "adding reverses"):
            merged.append(*self.rules.merge_reverse(piece))
        return merged

    def csr(self, keys: Columns, put: Callable[[np.ndarray], object]) -> np.ndarray:
        """Hand over the targets of sorted keys piece by piece; returns how many each row has."""
        degrees, kind = np.zeros(len(self.rows), np.int64), index_dtype(self.n)
        for done, (key, *_) in counted_pieces(keys.pieces(self.most, weights=False)):
            row, column = np.divmod(key, self.n)
            degrees += np.bincount(row - self.rows.start, minlength=len(degrees))
            put(column.astype(kind))
            self.tell("writing arcs", done, keys.rows)
        return degrees

    def _ranges(
        self, counts: np.ndarray, keys: Iterator[Keys], form: Mapping[str, bool], stage: str
    ) -> Iterator[Keys]:
        """The keys of one range of rows after the other, each in the order in which it came.

        ``counts`` are the arcs of each row, of which a range has as many as fit; ``form``: whether
        keys are ``weighted`` and ``numbered``.
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
        if len(first_keys) < 2:  # all of them fit
            yield joined([no_keys(**form), *keys])
            return
        names = [self.folder / f"ranges-{i}" for i in range(len(first_keys))]
        files = [Columns(name, "key", **form) for name in names]
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


def _graph(build: Building, keys: Columns, rest: Mapping[str, Any], table: ArcTable) -> Graph:
    """The graph of sorted keys, with data of its arcs out of those of the source."""
    file = build.folder / "indices"
    with file.open("wb") as out:
        degrees = build.csr(keys, lambda column: column.tofile(out))
    keys.paths["key"].unlink()
    weights, data = None, ArcData()
    if keys.weighted:
        weights = mapped(keys.paths["weights"], np.dtype(np.float64), keys.rows)
    if table.columns:
        numbers = mapped(keys.paths["numbers"], np.dtype(np.int64), keys.rows)
        data = in_order(table, numbers, allocate_in(build.folder))
    return Graph(
        indptr=pointers(degrees),
        indices=mapped(file, index_dtype(build.n), keys.rows),
        weights=weights,
        ids=build.ids,
        arc_data=data,
        parallel=build.rules.parallel,
        **{name: value for name, value in rest.items() if name not in OF_SOURCES},
    )
