"""Heterogeneous graphs for other programs: each type and each relation by itself, and as tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from partition.errors import UserError
from partition.graph.graph import UNLABELLED, ArcData, Graph, arcs
from partition.graph.manifest import Manifest
from partition.graph.relations import Relation, number_relations
from partition.graph.store import StoredGraph, write_graph
from partition.graph.typed import by_type
from partition.importing.arcs import build_typed
from partition.importing.readers.source import RelationArcs, TypedSource
from partition.importing.readers.text import is_integer
from partition.importing.readers.typed_tables import SCHEMA
from partition.records import atomic_folder


def taken_apart(graph: Graph) -> TypedSource:
    """The types and relations of a graph, each by itself, with the data that they have.

    :func:`partition.importing.arcs.build_typed` puts them together again. Vertices are numbers
    within their types, labels numbers of classes. A UserError if the graph has no types.
    """
    types = graph.vertex_types
    if types is None or graph.arc_type is None:
        raise UserError(
            "the graph has one type of vertices and no relations",
            "its files are plain .npy; gcnmpi.graph.open(…).to_pyg() makes a Data of it",
        )
    source, target, weights = arcs(graph), np.asarray(graph.indices), graph.weights
    order = np.argsort(graph.arc_type, kind="stable")
    ends = np.searchsorted(graph.arc_type[order], np.arange(1, len(graph.relations)))
    tables = []
    for relation, some in zip(graph.relations, np.split(order, ends), strict=True):
        first, second = types.range(relation.source).start, types.range(relation.target).start
        own = None if weights is None else np.asarray(weights)[some]
        tables.append(RelationArcs(relation, source[some] - first, target[some] - second, own))
    rows = {"ids": graph.ids, "labels": graph.labels, "targets": graph.targets, **graph.masks}
    found: dict[str, dict[str, Any]] = {"ids": {}, "labels": {}, "targets": {}}
    for name, start, stop in zip(types.names, types.offsets[:-1], types.offsets[1:], strict=True):
        for what, array in rows.items():
            part = None if array is None else np.asarray(array[start:stop])
            if part is None or not _known(what, part).any():
                continue
            apart = what == "ids" and len(types.names) > 1
            found.setdefault(what, {})[name] = _own_ids(part, name) if apart else part
    named = {what: found.pop(what) for what in ("ids", "labels", "targets")}
    return TypedSource(
        types.counts, tables, features=by_type(graph), masks=found, format="tables", **named
    )


def _known(what: str, rows: np.ndarray) -> np.ndarray:
    """Which rows of ids, labels, targets or a mask say something."""
    if what == "ids":
        return np.ones(len(rows), bool)
    if what == "targets":
        return ~np.isnan(rows)
    return rows != UNLABELLED if what == "labels" else rows


def export_tables(
    stored: StoredGraph, folder: str | os.PathLike[str], overwrite: bool = False
) -> dict[str, Any]:
    """Write a table for each relation and each type of a graph, and ``graph.toml`` that lists them.

    Relations are text with a header, ``source,target`` or ``source,target,weight``; types are
    Parquet, with the columns ``id``, ``x``, ``label``, ``target`` and masks that they have. The
    import of the folder gives the same graph.

    Parameters
    ----------
    stored : StoredGraph
        Of a heterogeneous graph.
    folder : path
        To be made.
    overwrite : bool
        Replace it, if it is one of such tables.

    Returns
    -------
    dict
        ``path``, and the names of the files of relations and of types.

    Raises
    ------
    UserError
        If the graph has no types, or the folder is there or cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not (overwrite and (folder / SCHEMA).is_file()):
        hint = "give another name" + ("" if overwrite else ", or --force")
        raise UserError(f"{folder} is there already", hint)
    source = taken_apart(stored.graph)
    files = _names_of_files(source)
    nodes: dict[str, str | int] = {}
    texts = [ids for ids in source.ids.values() if ids.dtype.kind == "U"]
    string_ids = any(is_integer(text) for ids in texts for text in ids.tolist())
    with atomic_folder(folder, overwrite=overwrite) as temporary:
        for one in source.arcs:
            _write_arcs(temporary / files[one.relation], one, source.ids)
        for name, count in source.counts.items():
            columns, nodes[name] = _columns(name, source, stored.graph.class_names), count
            if columns:
                nodes[name] = f"{name}.parquet"
                parquet.write_table(pa.table(columns), temporary / f"{name}.parquet")
        lines = ["string_ids = true"] if string_ids else []
        relations = {str(one): file for one, file in files.items()}
        tables: dict[str, Mapping[str, object]] = {"relations": relations, "nodes": nodes}
        for section, table in tables.items():
            # Texts and numbers of TOML are those of JSON.
            told = [[json.dumps(x, ensure_ascii=False) for x in pair] for pair in table.items()]
            lines += [f"[{section}]", *(" = ".join(pair) for pair in told)]
        (temporary / SCHEMA).write_text("\n".join(lines) + "\n", "utf-8")
    return {"path": str(folder), "relations": list(files.values()), "nodes": nodes}


def export_relations(
    stored: StoredGraph,
    path: str | os.PathLike[str],
    relations: Sequence[str],
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Write a graph folder with the arcs of some relations, and all vertices with their data.

    Parameters
    ----------
    stored : StoredGraph
        Of a heterogeneous graph.
    path, overwrite, report
        See :func:`partition.graph.store.write_graph`.
    relations : sequence of str
        Names of relations, or "source,name,target".

    Raises
    ------
    UserError
        If there is no such relation, or the folder cannot be written.
    """
    graph, source = stored.graph, taken_apart(stored.graph)
    asked = {"relations": np.array(relations)}
    numbers, _ = number_relations(asked, stored.manifest.name, graph.relations)
    wanted = [source.arcs[number] for number in np.unique(numbers["relations"])]
    made, _ = build_typed(replace(source, arcs=wanted))
    names = ("indptr", "indices", "weights", "arc_type", "parallel", "relations")
    of_arcs: dict[str, Any] = {name: getattr(made, name) for name in names}
    found, manifest = replace(graph, arc_data=ArcData(), **of_arcs), stored.manifest
    facts = {"relations of": manifest.name, "id of that": manifest.data_id}
    options: dict[str, Any] = {"overwrite": overwrite, "report": report}
    return write_graph(path, found, source=facts, direction=manifest.direction, **options)


def _own_ids(ids: np.ndarray, name: str) -> np.ndarray:
    """The ids of a type without its name, as integers where they all are."""
    texts = [text.removeprefix(f"{name}:") for text in ids.tolist()]
    if all(is_integer(text) and str(int(text)) == text for text in texts):
        return np.array(list(map(int, texts)), np.int64)
    return np.array(texts)


def _names_of_files(source: TypedSource) -> dict[Relation, str]:
    """A file for each relation, by its name."""
    found: dict[Relation, str] = {}
    for number, one in enumerate(source.arcs):
        if "," in one.relation.name or not one.relation.name.isprintable():
            raise UserError(f"the relation {one.relation.name!r} has no name that tables can have")
        plain = re.sub(r"[^A-Za-z0-9_.+=-]+", "_", "-".join(one.relation))[:120]
        name = f"{plain}.csv"
        taken = {each.lower() for each in found.values()}
        found[one.relation] = f"{plain}-{number}.csv" if name.lower() in taken else name
    return found


def _write_arcs(file: Path, one: RelationArcs, ids: Mapping[str, np.ndarray]) -> None:
    ends = {
        "source": (one.source, one.relation.source),
        "target": (one.target, one.relation.target),
    }
    columns = {end: ids[of][rows] if of in ids else rows for end, (rows, of) in ends.items()}
    columns |= {} if one.weights is None else {"weight": one.weights}
    csv.write_csv(pa.table(columns), file, csv.WriteOptions(quoting_style="needed"))


def _columns(
    name: str, source: TypedSource, class_names: tuple[str, ...] | None
) -> dict[str, pa.Array]:
    """The columns of a table of vertices; none where all is their number."""
    of = {"id": source.ids, "x": source.features, "label": source.labels, "target": source.targets}
    of |= {f"{mask}_mask": rows for mask, rows in source.masks.items()}
    columns = {called: np.asarray(rows[name]) for called, rows in of.items() if name in rows}
    if "x" in columns:
        columns["x"] = columns["x"].astype(np.float32)
    if "label" in columns and class_names is not None:
        columns["label"] = np.array([*class_names, ""])[columns["label"]]
    return {
        called: pa.array(rows)
        if rows.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        for called, rows in columns.items()
    }
