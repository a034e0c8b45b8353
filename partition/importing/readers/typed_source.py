"""The content of a file of a heterogeneous graph, in whatever form the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.relations import Relation
from partition.importing.readers import Layout, Source
from partition.importing.readers.files import check_inside, quoted
from partition.importing.readers.named_arrays import (
    MASK_FIELDS,
    labels_or_targets,
    source_of,
    weights_name,
)


@dataclass(frozen=True)
class RelationArcs:
    """The arcs of one relation, by the numbers that their ends have within their types.

    ``source`` and ``target`` are (m,) integers from 0, ``weights`` (m,) float64 or None.
    """

    relation: Relation
    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class TypedSource:
    """The content of a file with several types of vertices or relations.

    Attributes
    ----------
    counts : mapping of str to int
        How many vertices each type has, in the order of the types.
    arcs : sequence of RelationArcs
        In the order of the relations.
    ids : mapping of str to (n_type,) int64 or str
        Of types whose vertices are called otherwise than 0..n_type−1.
    features : mapping of str to (n_type, d_type) float32
    labels : mapping of str to (n_type,) integers or texts
        Classes, −1 or an empty text for a vertex without one.
    targets : mapping of str to (n_type, c) numbers
    masks : mapping of "train" / "val" / "test" to mapping of str to (n_type,) bool
        Or (n_type, splits) bool.
    format : str
    notes : mapping
        Further findings of the reader, for the manifest.
    """

    counts: Mapping[str, int]
    arcs: Sequence[RelationArcs]
    ids: Mapping[str, np.ndarray] = field(default_factory=dict)
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    masks: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    format: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


Fields = Mapping[str, np.ndarray]


def typed_source_of(
    vertices: Mapping[str, Fields],
    arcs: Mapping[tuple[str, str, str], Fields],
    where: str,
    format: str,
    counts: Mapping[str, int | None],
) -> TypedSource:
    """A heterogeneous graph out of named arrays, as PyTorch Geometric calls them.

    Parameters
    ----------
    vertices : mapping of str to mapping of str to array
        Of each type ``x``, ``y``, ``train_mask`` and so on, those that there are.
    arcs : mapping of (source, name, target) to mapping of str to array
        Of each relation ``edge_index`` (2, E) by numbers within types, perhaps ``edge_weight``.
    where, format : str
    counts : mapping of str to int
        How many vertices each type has, where that is known.

    Raises
    ------
    UserError
        If there are no arcs, or an array does not fit the others.
    """
    relations = [Relation(*key) for key in arcs]
    names = list(dict.fromkeys([*vertices, *(t for r in relations for t in (r.source, r.target))]))
    unread: set[str] = set()
    found: dict[str, dict[str, np.ndarray]] = {"features": {}, "labels": {}, "targets": {}}
    masks: dict[str, dict[str, np.ndarray]] = {name: {} for name in MASKS}
    sizes: dict[str, int] = {}
    for name in names:
        given = vertices.get(name, {})
        at = f"{where}, {name}"
        sizes[name] = _size(name, counts.get(name), given, relations, arcs)
        known = {key: a for key, a in given.items() if key in ("x", *MASK_FIELDS)}
        nothing = {"edge_index": np.empty((2, 0), np.int64)}
        if sizes[name]:
            one = source_of(known | nothing, at, format, Layout(), {}, sizes[name])
            if one.features is not None:
                found["features"][name] = one.features
            for mask, rows in one.masks.items():
                masks[mask][name] = rows
        if "y" in given:
            kind, values = labels_or_targets(given["y"])
            _check_rows(values, sizes[name], f"{at}: y")
            found[kind][name] = values
        unread |= {f"{name}.{key}" for key in given if key not in ("x", "y", *MASK_FIELDS)}
    read = []
    for relation in relations:
        at = f"{where}, {relation}"
        fields = arcs[relation]
        weight = weights_name(fields)
        taken = ("edge_index", *([] if weight is None else [weight]))
        known = {key: fields[key] for key in taken if key in fields}
        most = max(1, sizes[relation.source], sizes[relation.target])
        one = source_of(known, at, format, Layout(), {}, most)
        read.append(RelationArcs(relation, one.source, one.target, one.weights))
        unread |= {f"{relation}.{key}" for key in fields if key not in known}
    more = ", …" if len(unread) > 12 else ""
    text = f"not read: {', '.join(map(quoted, sorted(unread)[:12]))}{more}"
    return TypedSource(
        sizes, read, masks={mask: rows for mask, rows in masks.items() if rows},
        format=format, notes={"columns": text} if unread else {}, **found,
    )  # fmt: skip


def checked(source: TypedSource, where: str) -> TypedSource:
    """The source, if its arcs and arrays are of the vertices that there are.

    A UserError if a relation is there twice, or has an end that its type does not have; or a type
    has another number of rows than vertices.
    """
    seen: set[Relation] = set()
    if not source.arcs:
        raise UserError(f"{where} holds no relations")
    for one in source.arcs:
        if one.relation in seen:
            raise UserError(f"{where}: the relation {one.relation} is there twice")
        seen.add(one.relation)
        for name, ends in ((one.relation.source, one.source), (one.relation.target, one.target)):
            check_inside(ends, source.counts[name], f"{where}, {one.relation}: {name}")
    columns = {"ids": source.ids, "features": source.features, "labels": source.labels}
    columns |= {"targets": source.targets, **source.masks}
    for what, by_type in columns.items():
        for name, rows in by_type.items():
            _check_rows(rows, source.counts[name], f"{where}, {name}: {what}")
    return source


def grouped(source: Source, relation: np.ndarray, names: Sequence[str], entity: str) -> TypedSource:
    """A graph of one type whose arcs are of several relations.

    Parameters
    ----------
    source : Source
        All arcs, in the order of the file.
    relation : (m,) integers
        The number of the relation of each.
    names : sequence of str
        Of the relations.
    entity : str
        What the type of all vertices is called.
    """
    order = np.argsort(relation, kind="stable")
    ends = np.searchsorted(relation[order], np.arange(len(names) + 1))
    arcs = []
    for number, name in enumerate(names):
        some = order[ends[number] : ends[number + 1]]
        one = Relation(entity, name, entity)
        arcs.append(RelationArcs(one, source.source[some], source.target[some]))
    ids = {} if source.ids is None else {entity: source.ids}
    return TypedSource({entity: source.n}, arcs, ids, format=source.format, notes=source.notes)


def _size(
    name: str,
    said: int | None,
    given: Fields,
    relations: Sequence[Relation],
    arcs: Mapping[tuple[str, str, str], Fields],
) -> int:
    """How many vertices a type has: as it is said, by its rows, or by the largest number."""
    if said is not None:
        return said
    rows = [len(given[key]) for key in ("x", "y", *MASK_FIELDS) if key in given]
    if rows:
        return rows[0]
    most = -1
    for relation in relations:
        index = arcs[relation].get("edge_index", np.empty((2, 0)))
        for side, end in enumerate((relation.source, relation.target)):
            if end == name and index.ndim == 2 and index.shape[0] == 2 and index.size:
                most = max(most, int(index[side].max()))
    return most + 1


def _check_rows(rows: np.ndarray, count: int, where: str) -> None:
    if not rows.ndim or len(rows) != count:
        given = len(rows) if rows.ndim else 0
        raise UserError(f"{where} has {given} rows, there are {count} vertices of that type")
