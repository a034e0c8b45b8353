"""Heterogeneous graphs: arcs of several relations in one order, data of types in one numbering."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.graph import Graph
from partition.graph.relations import Relation, VertexTypes, relation_dtype
from partition.graph.store import Manifest, check_target, write_graph
from partition.graph.vertex_pairs import Twin, recognised
from partition.importing.arcs import ArcRules, Keys, check_number, joined
from partition.importing.readers.classes import class_labels
from partition.importing.readers.source import RelationArcs, Source, TypedSource
from partition.importing.readers.typed_tables import checked
from partition.importing.readers.vertex_tables import checked_targets
from partition.importing.vertex_data import RandomSplit, VertexFiles, attach


def import_typed(
    out_path: str | os.PathLike[str],
    source: TypedSource,
    *,
    reverse: bool = False,
    undirected: bool = False,
    direction: str = "in",
    duplicates: str = "merge",
    self_loops: str = "keep",
    split: RandomSplit | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Make a graph folder of a heterogeneous graph in memory.

    Parameters
    ----------
    out_path, direction, overwrite, report
        See :func:`partition.graph.store.write_graph`.
    source : TypedSource
    reverse, duplicates, self_loops
        See :func:`build_typed`.
    undirected : bool
        Refused: the reverse of a relation is another one.
    split : RandomSplit, optional
        How masks are drawn, in place of those of the source.

    Raises
    ------
    UserError
        If an array does not fit the others, or the folder cannot be written.
    """
    refuse_undirected(undirected, "the graph")
    check_target(Path(out_path), overwrite)
    source = checked(source, "the graph")
    graph, facts = build_typed(
        source, reverse=reverse, duplicates=duplicates, self_loops=self_loops, report=report
    )
    given = VertexFiles(split=split)
    graph = attach(graph if split is None else replace(graph, masks={}), given)
    facts |= given.facts()
    return write_graph(
        out_path, graph, source=facts, direction=direction, overwrite=overwrite, report=report
    )


def refuse_undirected(undirected: bool, where: object) -> None:
    """A UserError for ``--undirected``, which a heterogeneous graph has no meaning for."""
    if undirected:
        raise UserError(
            f"{where} has relations, and the reverse of one is another one",
            "--reverse adds the reverse of each relation in place of --undirected",
        )


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
        as a relation that has nearly the same arcs the other way. A
        relation that is its own reverse gets none.
    duplicates, self_loops : str
        As of :func:`partition.importing.assemble.build_graph`, within each relation.
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
    n = types.offsets[-1]
    check_number(n)
    ids = _ids(source)
    rules = ArcRules(False, duplicates, self_loops)
    tables = [_Settled(one.relation, _keys(one, types, rules, ids)) for one in source.arcs]
    read = sum(len(one.source) for one in source.arcs)
    added: list[str] = []
    if reverse:
        tables, added = _with_reverses(tables, n, report)
    dtype = relation_dtype(len(tables))
    number = np.repeat(np.arange(len(tables)).astype(dtype), [len(one.keys.key) for one in tables])
    keys = joined([one.keys for one in tables])
    order = np.argsort(keys.key, kind="stable")
    keys = keys.of(order)
    labels, class_names = _labels(source, types, missing_labels, report)
    graph = Graph(
        **keys.csr(n),
        labels=labels,
        class_names=class_names,
        targets=_targets(source, types),
        masks={name: _of_all(m, types, False, np.dtype(bool)) for name, m in source.masks.items()},
        ids=ids,
        parallel=bool((keys.key[1:] == keys.key[:-1]).any()),
        vertex_types=types,
        relations=tuple(one.relation for one in tables),
        arc_type=number[order],
        type_features=source.features,
    )
    facts = {"format": source.format} | rules.facts(read, False, False) | dict(source.notes)
    return graph, facts | ({"reverse": added} if reverse else {})


@dataclass(frozen=True)
class _Settled:
    relation: Relation
    keys: Keys


def _keys(one: RelationArcs, types: VertexTypes, rules: ArcRules, ids: np.ndarray | None) -> Keys:
    """The arcs of a relation, by the numbers of all vertices, each once unless all are kept."""
    source, target = types.range(one.relation.source), types.range(one.relation.target)
    arcs = Source(
        types.offsets[-1],
        np.asarray(one.source, np.int64) + source.start,
        np.asarray(one.target, np.int64) + target.start,
        one.weights,
    )
    keys = rules.settle(rules.keys_of(arcs))
    rules.check_copies(arcs.n, ids)
    return keys


def _with_reverses(
    tables: Sequence[_Settled], n: int, report: Callable[[str], None]
) -> tuple[list[_Settled], list[str]]:
    """The relations, and after them the reverses of those that have none; the names of these."""
    every = np.concatenate([one.keys.key for one in tables])
    order = np.argsort(every, kind="stable")
    sizes = [len(one.keys.key) for one in tables]
    twins = recognised(every[order], np.repeat(np.arange(len(tables)), sizes)[order], n)
    backs: dict[int, list[int]] = {}
    for relation, other, turned in twins:
        if turned and relation != other:
            backs.setdefault(relation, []).append(other)
    number = {one.relation: at for at, one in enumerate(tables)}
    added: list[_Settled] = []
    for at, one in enumerate(tables):
        back, wanted = _turned(one.keys, n), one.relation.reverse()
        same = one.relation.source == one.relation.target
        if same and back.equal(one.keys):
            report(f"{one.relation} is symmetric: it gets no reverse")
            continue
        there = [number[wanted]] if wanted in number else []
        there += [
            other
            for other in backs.get(at, ())
            if Twin(other, at, True) in twins and Twin(at, other, False) not in twins
        ]
        if not there:
            added.append(_Settled(wanted, back))
            continue
        share = min(twins.get(Twin(*ways, True), 1) for ways in ((at, there[0]), (there[0], at)))
        of = "" if share == 1 else f", with {share:.1%} of its edges turned round"
        report(f"{one.relation} has a reverse: {tables[there[0]].relation}{of}")
    return [*tables, *added], [str(one.relation) for one in added]


def _turned(keys: Keys, n: int) -> Keys:
    """The arcs the other way round, sorted."""
    row, column = np.divmod(keys.key, n)
    back = keys._replace(key=column * n + row)
    return back.of(np.argsort(back.key, kind="stable"))


def _ids(source: TypedSource) -> np.ndarray | None:
    """The names of the vertices, each another one; None: they are their numbers.

    Of several types texts such as "paper:7", where the vertices of one are not called 0 … n−1.
    """
    if not source.ids:
        return None
    if len(source.counts) == 1:
        return next(iter(source.ids.values()))
    called = [
        np.char.add(f"{name}:", source.ids.get(name, np.arange(count)).astype(str))
        for name, count in source.counts.items()
        if count
    ]
    return np.concatenate(called)


def _labels(
    source: TypedSource,
    types: VertexTypes,
    missing: Sequence[str],
    report: Callable[[str], None],
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Classes of all vertices, numbered together, −1 where there is none, and their names."""
    if not source.labels:
        return None, None
    of_text = {labels.dtype.kind == "U" for labels in source.labels.values()}
    if len(of_text) > 1:
        raise UserError(
            "labels of some types are texts, and of others numbers", "give texts to all"
        )
    dtype = np.result_type(*source.labels.values()) if of_text == {True} else np.dtype(np.int64)
    absent = "" if of_text == {True} else -1
    where = f"labels of {', '.join(source.labels)}"
    found = _of_all(source.labels, types, absent, dtype)
    return class_labels(found, where, missing=missing, report=report)


def _targets(source: TypedSource, types: VertexTypes) -> np.ndarray | None:
    """Numbers to be learned, (n, c), NaN where there are none."""
    if not source.targets:
        return None
    by_type = {name: rows.reshape(len(rows), -1) for name, rows in source.targets.items()}
    found = _of_all(by_type, types, np.nan, np.result_type(np.float32, *by_type.values()))
    return checked_targets(found, f"targets of {', '.join(by_type)}")


def _of_all(
    by_type: Mapping[str, np.ndarray], types: VertexTypes, absent: object, dtype: np.dtype
) -> np.ndarray:
    """Rows of all vertices: those of some types, and others that are ``absent``."""
    shapes = {rows.shape[1:]: name for name, rows in by_type.items()}
    if len(shapes) > 1:
        told = ", ".join(f"{shape[0] if shape else 1} of {name}" for shape, name in shapes.items())
        raise UserError(f"types have targets or masks of different numbers of columns: {told}")
    found = np.full((types.offsets[-1], *next(iter(shapes))), absent, dtype)
    for name, rows in by_type.items():
        own = types.range(name)
        found[own.start : own.stop] = rows
    return found


def vertices_of_type(graph: Graph, name: str) -> Graph:
    """The vertices of a type by the ids that its tables have, as a graph without arcs."""
    assert graph.vertex_types is not None
    own = graph.vertex_types.range(name)
    ids = None if graph.ids is None else np.asarray(graph.ids[own.start : own.stop])
    if ids is not None and ids.dtype.kind == "U":
        ids = np.array([text.removeprefix(f"{name}:") for text in ids.tolist()])
    return Graph(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32), ids=ids)


def with_type_features(graph: Graph, features: Mapping[str, np.ndarray]) -> Graph:
    """The graph with features of some types in place of those that they have."""
    types = graph.vertex_types
    if types is None:
        name = next(iter(features))
        raise UserError(f"--features {name}=…: the graph has no vertex types")
    kept = {name: graph.features_of(name) for name in types.names}
    together: dict[str, np.ndarray] = {name: x for name, x in kept.items() if x is not None}
    for name, rows in features.items():
        count = len(types.range(name))
        if len(rows) != count:
            raise UserError(f"{name} has {count:,} vertices, its features {len(rows):,} rows")
        together[name] = rows
    return replace(graph, features=None, type_features=together)
