"""From arcs to the CSR arrays of a graph: duplicates, self-loops, reverses, relations.

Arcs are keys, which order them as CSR does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from partition.errors import UserError, check_name, require
from partition.graph.graph import ArcData, Graph, index_dtype
from partition.graph.relations import Relation, VertexTypes, relation_dtype
from partition.graph.twins import Twin, recognised
from partition.importing.data_files import in_order
from partition.importing.readers.classes import class_labels
from partition.importing.readers.source import Source, TypedSource
from partition.importing.readers.vertex_tables import checked_targets

DUPLICATES = ("merge", "sum", "keep", "error")
SELF_LOOPS = ("keep", "drop")
# Of arcs that become one, and of both directions of an edge, the one listed first gives its data.
DATA_RULE = "first"
# Beyond, source · n + target does not fit an int64.
MAX_VERTICES = 3_037_000_499


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
        return joined([keys, self.reverses(keys, n)])

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
        } | ({"arc_data": {"rule": DATA_RULE}} if data else {})


def check_number(n: int) -> None:
    """A UserError if keys of so many vertices do not fit an int64."""
    most = MAX_VERTICES
    require(n <= most, f"{n} vertices are more than the {most} that are supported")


def joined(pieces: Sequence[Keys]) -> Keys:
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
        as a relation that has nearly the same arcs the other way (:mod:`partition.graph.twins`). A
        relation that is its own reverse gets none.
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
    keys = joined(list(tables.values()))
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
