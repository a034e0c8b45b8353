"""From arcs to the CSR arrays of a graph: duplicates, self-loops, reverses, relations.

Arcs are keys, which order them as CSR does. A graph larger than memory is made in files, with the
same bits: arcs are numbered and put into files by ranges of rows, each of which fits into memory,
in the order in which they are read; a range is then sorted and settled by itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partition.errors import UserError, check_name, require
from partition.graph.graph import ArcData, Graph, chunks, index_dtype
from partition.graph.relations import Relation, VertexTypes, relation_dtype
from partition.graph.sampling import pointers
from partition.graph.vertex_pairs import Twin, recognised
from partition.importing.data_files import ArcFiles, in_order
from partition.importing.readers.arc_columns import NO_DATA, ArcTable, text_places
from partition.importing.readers.classes import class_labels
from partition.importing.readers.numbering import IdsSeen, Numbering, extremes, numbering_of
from partition.importing.readers.source import Allocate, Source, Stream, Tell, TypedSource
from partition.importing.readers.vertex_tables import checked_targets
from partition.records import temporary_name

DUPLICATES = ("merge", "sum", "keep", "error")
SELF_LOOPS = ("keep", "drop")
# Of arcs that become one, and of both directions of an edge, the one listed first gives its data.
_DATA_RULE = "first"
# Beyond, source · n + target does not fit an int64.
_MAX_VERTICES = 3_037_000_499
# Bytes that an import takes beside its arcs: Python and its libraries; and for each vertex.
_BASE_BYTES = 300 << 20
_VERTEX_BYTES = 100
# Bytes for an arc that is being sorted, with its weight and its number.
_ARC_BYTES = 150
FEWEST_ARCS = 1 << 16
_Form = Mapping[str, bool]
"""Whether keys are ``weighted`` and ``numbered``."""


class Keys(NamedTuple):
    """Some arcs, as numbers that order them by source, then by target.

    Attributes
    ----------
    key : (m,) int64
        source · n + target.
    weights : (m,) float64, optional
    numbers : (m,) int64, optional
        Of each arc its number in the source, whose data it has.
    """

    key: np.ndarray
    weights: np.ndarray | None
    numbers: np.ndarray | None = None

    def of(self, chosen: np.ndarray) -> Keys:
        """Some of them, by their places or by a mask."""
        return Keys._make(column if column is None else column[chosen] for column in self)

    def weighted(self) -> Keys:
        """The same with weights: 1 where there are none."""
        return self if self.weights is not None else self._replace(weights=np.ones(len(self.key)))

    def equal(self, other: Keys) -> bool:
        """Whether the arcs are those of others with the same columns, in the same order."""
        pairs = zip(self, other, strict=True)
        return all(a is b or np.array_equal(a, b) for a, b in pairs)  # type: ignore[arg-type]

    def csr(self, n: int) -> dict[str, Any]:
        """Of sorted keys the arrays of a graph of n vertices: indptr, indices and weights."""
        return {
            "indptr": np.searchsorted(self.key, np.arange(n + 1) * n),
            "indices": (self.key % n).astype(index_dtype(n)),
            "weights": self.weights,
        }


@dataclass
class ArcRules:
    """The rules by which arcs become those of a graph, and counts of the cases met so far.

    Self-loops are settled first, then duplicates, then the graph is made undirected. See
    :func:`build_graph`.

    Attributes
    ----------
    undirected : bool
    duplicates, self_loops : str
        Of ``DUPLICATES`` and ``SELF_LOOPS``; a UserError for another rule.
    loops, copies, differ : int
        Self-loops; copies of arcs beyond the first; those with another weight than the first.
    """

    undirected: bool = False
    duplicates: str = "merge"
    self_loops: str = "keep"
    loops: int = field(default=0, init=False)
    copies: int = field(default=0, init=False)
    differ: int = field(default=0, init=False)
    _copied: int | None = field(default=None, init=False)  # the first key that is an error

    def __post_init__(self) -> None:
        check_name("rule for duplicates", self.duplicates, DUPLICATES)
        check_name("rule for self-loops", self.self_loops, SELF_LOOPS)

    @property
    def parallel(self) -> bool:
        """Whether arcs that are listed more than once stay as many."""
        return self.duplicates == "keep"

    def valued(self, weighted: bool) -> bool:
        """Whether settled arcs have weights, if the source has: ones that stay so are none."""
        return weighted or (self.duplicates == "sum" and self.copies > 0)

    def set_sums_of(self, others: Sequence[ArcRules]) -> None:
        """Replace the counters by the sums over all ranks, each of which had other arcs."""
        self.loops, self.copies, self.differ = (
            sum(getattr(other, name) for other in others) for name in ("loops", "copies", "differ")
        )
        copied = [other._copied for other in others if other._copied is not None]
        self._copied = min(copied, default=None)

    def keys_of(self, source: Source, numbers: np.ndarray | None = None) -> Keys:
        """The keys of arcs, in their order, without the self-loops that are dropped.

        ``numbers`` are those that they have in the source, where they are needed.
        """
        row, column = source.source, source.target
        if source.symmetric:  # edges in the lower triangle, so that i–j and j–i are duplicates
            row, column = np.maximum(row, column), np.minimum(row, column)
        key = np.multiply(row, source.n, dtype=np.int64)
        key += column
        loop = row == column
        nloops = int(np.count_nonzero(loop))
        self.loops += nloops
        keys = Keys(key, source.weights, numbers)
        return keys.of(~loop) if self.self_loops == "drop" and nloops else keys

    def settle(self, keys: Keys) -> Keys:
        """The keys sorted, each once unless they are kept; the array of keys is overwritten.

        All copies of an arc are among them.
        """
        keys = _sorted(keys)
        first = _first_of_each(keys.key)
        ncopies = len(first) - int(np.count_nonzero(first))
        self.copies += ncopies
        if ncopies == 0:
            return keys
        if self.duplicates == "error":
            copied = int(keys.key[np.argmin(first)])
            self._copied = copied if self._copied is None else self._copied
            return keys
        start, weights = np.flatnonzero(first), keys.weights
        if weights is not None:
            of_first = np.repeat(weights[start], np.diff(start, append=len(first)) - 1)
            self.differ += int(np.count_nonzero(weights[~first] != of_first))
        if self.duplicates == "keep":
            return keys
        if self.duplicates == "merge":
            return keys.of(start)
        if weights is None:
            weights = np.diff(start, append=len(first)).astype(np.float64)
        else:
            with np.errstate(over="ignore"):
                weights = np.add.reduceat(weights, start)
            if not np.isfinite(weights).all():
                raise UserError("the weights of duplicate arcs add up to more than a float64 holds")
        return keys._replace(weights=None).of(start)._replace(weights=weights)

    def with_reverse(self, keys: Keys, n: int) -> Keys:
        """Settled arcs and after them their reverses."""
        return _joined([keys, self.reverses(keys, n)])

    def reverses(self, keys: Keys, n: int) -> Keys:
        """The reverses of settled arcs, but of loops that are kept as many."""
        row, column = np.divmod(keys.key, n)
        back = keys._replace(key=column * n + row)
        return back.of(row != column) if self.parallel else back

    def merge_reverse(self, both: Keys) -> Keys:
        """Sorted keys out of arcs and their reverses, each once: with the mean of both weights.

        The data are of the one that is listed first. Arcs that are kept as many all stay, in the
        order of their numbers.
        """
        keys = _sorted(both)
        if self.parallel:
            return keys
        first = _first_of_each(keys.key)
        # A key occurs at most twice (and a self-loop twice with one weight).
        start = np.flatnonzero(first)
        end = start + np.diff(start, append=len(first)) - 1
        one, other = keys.of(start), keys.of(end)
        weights, numbers = one.weights, one.numbers
        if weights is not None:
            assert other.weights is not None
            weights = np.where(weights == other.weights, weights, weights / 2 + other.weights / 2)
        if numbers is not None:
            assert other.numbers is not None
            numbers = np.minimum(numbers, other.numbers)
        return Keys(one.key, weights, numbers)

    def check_copies(self, n: int, ids: np.ndarray | None) -> None:
        """Refuse a graph of n vertices with duplicates, where they are an error."""
        if self._copied is not None:
            arc = np.array(divmod(self._copied, n))
            i, j = arc if ids is None else ids[arc]
            raise UserError(
                f"the arc {i} -> {j} is listed more than once; there are {self.copies} such copies",
                "the rules merge, sum and keep accept duplicates",
            )

    def facts(self, nread: int, symmetric: bool, data: bool) -> dict[str, object]:
        """The account of the arcs that were read, for the manifest; ``data``: they have data."""
        differ = {"differ": self.differ} if self.differ else {}
        return {
            "arcs_read": nread,
            "symmetric_file": symmetric,
            "self_loops": {"found": self.loops, "rule": self.self_loops},
            "duplicates": {"found": self.copies, "rule": self.duplicates} | differ,
            "undirected": self.undirected,
        } | ({"arc_data": {"rule": _DATA_RULE}} if data else {})


def check_number(n: int) -> None:
    """A UserError if keys of so many vertices do not fit an int64."""
    most = _MAX_VERTICES
    require(n <= most, f"{n} vertices are more than the {most} that are supported")


def _joined(pieces: Sequence[Keys]) -> Keys:
    """All keys, in their order; weights are 1 where others have some."""
    if any(piece.weights is not None for piece in pieces):
        pieces = [piece.weighted() for piece in pieces]
    columns = zip(*pieces, strict=True)
    return Keys._make(None if each[0] is None else np.concatenate(each) for each in columns)


def _sorted(keys: Keys) -> Keys:
    """Sorted by key, copies of a key by their numbers, or as they come; may overwrite the keys."""
    if keys.weights is None and keys.numbers is None:
        keys.key.sort()
        return keys
    if keys.numbers is None or (keys.numbers[1:] > keys.numbers[:-1]).all():
        return keys.of(np.argsort(keys.key, kind="stable"))
    return keys.of(np.lexsort((keys.numbers, keys.key)))


def _first_of_each(key: np.ndarray) -> np.ndarray:
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return first


def build_graph(
    source: Source,
    *,
    undirected: bool = False,
    duplicates: str = "merge",
    self_loops: str = "keep",
) -> tuple[Graph, dict[str, object]]:
    """Sort arcs into CSR form, and settle self-loops and duplicates by the rules given.

    Self-loops are settled first, then duplicates, then the graph is made undirected.

    Parameters
    ----------
    source : Source
    undirected : bool
        Take the union of A and its transpose; where both arcs exist with different weights, each
        gets their mean. Where duplicates are kept, every arc but a loop gets a reverse of its own.
    duplicates : {"merge", "sum", "keep", "error"}
        Arcs listed more than once: one arc with the first weight; one arc with the sum of the
        weights (of ones, where the file has none); as many arcs, in the order of the source; or an
        error. In a symmetric source i–j and j–i are the same edge. Of arcs that become one, and of
        both directions of an edge, the one that is listed first gives its data.
    self_loops : {"keep", "drop"}

    Returns
    -------
    graph : Graph
    facts : dict
        For the manifest: ``format``, ``arcs_read`` (entries of the file), ``symmetric_file``,
        ``self_loops`` and ``duplicates`` (``found`` and ``rule`` each; copies beyond the first
        are duplicates, of which ``differ`` have another weight), ``undirected``.

    Raises
    ------
    UserError
        For an unknown rule, a vertex outside 0..n−1, too many vertices, duplicates where they
        are an error, or a sum of weights that is not finite.
    """
    rules = ArcRules(undirected, duplicates, self_loops)
    n = source.n
    check_number(n)
    for ends in (source.source, source.target):
        inside = not len(ends) or bool(ends.min() >= 0 and ends.max() < n)
        require(inside, f"an arc has a vertex outside 0..{n - 1}")

    has_data = bool(source.arc_data.columns)
    numbers = np.arange(len(source.source)) if has_data or rules.parallel else None
    keys = rules.settle(rules.keys_of(source, numbers))
    rules.check_copies(n, source.ids)
    if source.symmetric or rules.undirected:
        keys = rules.merge_reverse(rules.with_reverse(keys, n))

    names = ("features", "labels", "targets", "class_names", "ids")
    graph = Graph(
        **keys.csr(n),
        **{name: getattr(source, name) for name in names},
        masks=dict(source.masks),
        arc_data=in_order(source.arc_data, keys.numbers) if has_data else ArcData(),
        parallel=rules.parallel,
    )
    facts = rules.facts(len(source.source), source.symmetric, has_data)
    return graph, {"format": source.format} | facts | dict(source.notes)


def build_typed(
    source: TypedSource,
    *,
    reverse: bool = False,
    duplicates: str = "merge",
    self_loops: str = "keep",
    missing_labels: Sequence[str] = (),
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Graph, dict[str, object]]:
    """Sort the arcs of all relations into CSR form; those of two vertices by their relation.

    Parameters
    ----------
    source : TypedSource
        As :func:`partition.importing.readers.typed_tables.checked` has let it pass.
    reverse : bool
        Add the reverse of each relation, called ``rev_NAME``, unless it is there: by that name, or
        as a relation that has nearly the same arcs the other way
        (:mod:`partition.graph.vertex_pairs`). A relation that is its own reverse gets none.
    duplicates, self_loops : str
        As of :func:`build_graph`, within each relation.
    missing_labels : sequence of str
        Words for no label: see :func:`class_labels`.
    report : callable
        Told which relations get no reverse, and why; and of labels that may be none.

    Returns
    -------
    graph : Graph
    facts : dict
        For the manifest.
    """
    types = VertexTypes.of_counts(source.counts)
    n, ids, rules = types.offsets[-1], _ids(source), ArcRules(False, duplicates, self_loops)
    check_number(n)
    tables: dict[Relation, Keys] = {}
    for one in source.arcs:
        first = np.asarray(one.source, np.int64) + types.range(one.relation.source).start
        second = np.asarray(one.target, np.int64) + types.range(one.relation.target).start
        keys = rules.keys_of(Source(n, first, second, one.weights))
        tables[one.relation] = rules.settle(keys)
        rules.check_copies(n, ids)
    read = sum(len(one.source) for one in source.arcs)
    facts = {"format": source.format} | rules.facts(read, False, False) | dict(source.notes)
    if reverse:
        added = _reverses(tables, n, report)
        tables |= added
        facts["reverse"] = list(map(str, added))
    keys, number = _in_turn(tables)
    given = {"labels": source.labels, "targets": source.targets, **source.masks}
    of_all = {name: _of_all(name, rows, types) for name, rows in given.items() if rows}
    labels, class_names, targets = of_all.pop("labels", None), None, of_all.pop("targets", None)
    if labels is not None:
        where = f"labels of {', '.join(source.labels)}"
        labels, class_names = class_labels(labels, where, missing=missing_labels, report=report)
    if targets is not None:
        targets = checked_targets(targets, f"targets of {', '.join(source.targets)}")
    graph = Graph(
        **keys.csr(n),
        labels=labels,
        class_names=class_names,
        targets=targets,
        masks=of_all,
        ids=ids,
        parallel=bool((keys.key[1:] == keys.key[:-1]).any()),
        vertex_types=types,
        relations=tuple(tables),
        arc_type=number,
        type_features=source.features,
    )
    return graph, facts


def _in_turn(tables: Mapping[Relation, Keys]) -> tuple[Keys, np.ndarray]:
    """The keys of all relations, sorted, those of two vertices by their relation; its numbers."""
    keys = _joined(list(tables.values()))
    number = np.arange(len(tables)).astype(relation_dtype(len(tables)))
    order = np.argsort(keys.key, kind="stable")
    return keys.of(order), np.repeat(number, [len(one.key) for one in tables.values()])[order]


def _reverses(
    tables: Mapping[Relation, Keys], n: int, report: Callable[[str], None]
) -> dict[Relation, Keys]:
    """The reverses of the relations that have none."""
    (every, *_), number = _in_turn(tables)
    twins = recognised(every, number, n)
    names, added = list(tables), dict[Relation, Keys]()
    for at, (relation, keys) in enumerate(tables.items()):
        row, column = np.divmod(keys.key, n)
        back, wanted = keys._replace(key=column * n + row), relation.reverse()
        back = back.of(np.argsort(back.key, kind="stable"))
        if relation.source == relation.target and back.equal(keys):
            report(f"{relation} is symmetric: it gets no reverse")
            continue
        there = [names.index(wanted)] if wanted in tables else []
        there += [
            other
            for one, other, turned in twins
            if turned
            and one == at != other
            and Twin(other, at, True) in twins
            and Twin(at, other, False) not in twins
        ]
        if not there:
            added[wanted] = back
            continue
        share = min(twins.get(Twin(*ways, True), 1) for ways in ((at, there[0]), (there[0], at)))
        of = "" if share == 1 else f", with {share:.1%} of its edges turned round"
        report(f"{relation} has a reverse: {names[there[0]]}{of}")
    return added


def _ids(source: TypedSource) -> np.ndarray | None:
    """The names of the vertices, each another one; None: they are their numbers.

    Of several types texts such as "paper:7", where the vertices of one are not called 0 … n−1.
    """
    if not source.ids or len(source.counts) == 1:
        return next(iter(source.ids.values()), None)
    called = [
        np.char.add(f"{name}:", source.ids.get(name, np.arange(count)).astype(str))
        for name, count in source.counts.items()
        if count
    ]
    return np.concatenate(called)


def _of_all(role: str, by_type: Mapping[str, np.ndarray], types: VertexTypes) -> np.ndarray:
    """Rows of all vertices: labels, targets or a mask of some types, and none of others."""
    absent: object = False
    dtype: np.dtype = np.dtype(bool)
    if role == "labels":
        texts = {rows.dtype.kind == "U" for rows in by_type.values()}
        if len(texts) > 1:
            told = "labels of some types are texts, and of others numbers"
            raise UserError(told, "give texts to all")
        absent, dtype = -1, np.dtype(np.int64)
        if texts == {True}:
            absent, dtype = "", np.result_type(*by_type.values())
    elif role == "targets":
        by_type = {name: rows.reshape(len(rows), -1) for name, rows in by_type.items()}
        absent, dtype = np.nan, np.result_type(np.float32, *by_type.values())
    shapes = {rows.shape[1:]: name for name, rows in by_type.items()}
    if len(shapes) > 1:
        told = ", ".join(f"{shape[0] if shape else 1} of {name}" for shape, name in shapes.items())
        raise UserError(f"types have targets or masks of different numbers of columns: {told}")
    found = np.full((types.offsets[-1], *next(iter(shapes))), absent, dtype)
    for name, rows in by_type.items():
        own = types.range(name)
        found[own.start : own.stop] = rows
    return found


def build_on_disk(
    stream: Stream,
    folder: Path,
    memory: float,
    rules: ArcRules,
    tell: Tell = lambda stage, done, total: None,
    arc_files: ArcFiles | None = None,
) -> tuple[Graph, dict[str, object]]:
    """As :func:`build_graph`, out of pieces and into files.

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
        settled = build.undirected(settled)
    with (folder / "indices").open("wb") as out:
        degrees = build.csr(settled, lambda column: column.tofile(out))
    settled.paths["key"].unlink()

    def mapped(path: Path, dtype: np.dtype) -> np.ndarray:
        return (
            np.memmap(path, dtype, "r", shape=settled.rows) if settled.rows else np.empty(0, dtype)
        )

    data, rest = ArcData(), dict(stream.rest)
    if table.columns:
        of_source = mapped(settled.paths["numbers"], np.dtype(np.int64))
        data = in_order(table, of_source, allocate_in(folder))
    format, notes = rest.pop("format", ""), rest.pop("notes", {})
    graph = Graph(
        indptr=pointers(degrees),
        indices=mapped(folder / "indices", index_dtype(n)),
        weights=mapped(settled.paths["weights"], np.dtype(float)) if settled.weighted else None,
        ids=numbering.ids,
        arc_data=data,
        parallel=rules.parallel,
        **{name: value for name, value in rest.items() if name not in ("arc_data", "unread")},
    )
    facts = rules.facts(read.rows, False, bool(table.columns))
    return graph, {"format": format} | facts | notes


def arcs_at_once(memory: float, n: int) -> int:
    """How many arcs are sorted at a time."""
    left = memory - _BASE_BYTES - _VERTEX_BYTES * n
    if left < _ARC_BYTES * FEWEST_ARCS:
        need = _BASE_BYTES + _VERTEX_BYTES * n + _ARC_BYTES * FEWEST_ARCS
        raise UserError(
            f"--memory {memory / 1e9:.3g}GB is too little: {n} vertices stay in memory",
            f"give --memory {need / 1e9 + 0.01:.2f}GB or more",
        )
    return int(left // _ARC_BYTES)


def _collect(stream: Stream, folder: Path, memory: float) -> tuple[Columns, Numbering, ArcTable]:
    """The arcs in files, with their own ids, which vertex is which number, and data of the arcs."""
    read = Columns(folder / "read", "source", "target", weighted=stream.weighted)
    data = DataFiles(folder / "read")
    listed = stream.n is None and stream.vertices is None
    seen = IdsSeen(max(FEWEST_ARCS, int(memory // 200)))
    for piece in stream.pieces:
        read.append(piece.source, piece.target, piece.weights, None)
        data.append(piece.data)
        ends = piece.source, piece.target
        if seen.add(*(ends if listed else map(extremes, ends))):
            arcs_at_once(memory, len(seen.known))
    table = stream.rest.get("arc_data", NO_DATA).with_columns(data.table())
    if stream.n is not None:
        return read, Numbering(stream.n), table
    numbering = numbering_of(seen.all(), stream.where, stream.vertices, stream.ids)
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
        self, counts: np.ndarray, keys: Iterator[Keys], form: _Form, *, numbered: bool
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

    def undirected(self, keys: Columns) -> Columns:
        """The arcs and their reverses, of all arcs of the graph, whose files are deleted."""
        counts = np.zeros(len(self.rows), np.int64)
        for key, *_ in keys.pieces(self.most // 2, weights=False):
            for ends in np.divmod(key, self.n):
                counts += np.bincount(ends, minlength=len(counts))

        def both() -> Iterator[Keys]:
            for some in keys.keys(self.most // 4):
                yield self.rules.with_reverse(some, self.n)
            keys.delete()

        return self.with_reverses(counts, both(), keys)

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
        self, counts: np.ndarray, keys: Iterator[Keys], form: _Form, stage: str
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
        names = (f"ranges-{i}" for i in range(max(1, len(first_keys))))
        files = [Columns(self.folder / name, "key", **form) for name in names]
        if len(files) == 1:  # all of them fit
            yield _joined([Keys(*files[0].rows_from(0, 0)), *keys])
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
            yield Keys(*file.rows_from(0, file.rows))
            file.delete()
            done += file.rows
            self.tell(stage, done, total)


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
        return (Keys(*columns) for columns in self.pieces(at_once))

    @property
    def form(self) -> _Form:
        """Whether they have weights and numbers."""
        return {"weighted": self.weighted, "numbered": self.numbered}

    def delete(self) -> None:
        """Delete the files of all columns."""
        for path in self.paths.values():
            path.unlink()
