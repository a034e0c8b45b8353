"""Triples (source, relation, target) of one type of vertices, as knowledge graphs are published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.relations import number_relations
from partition.importing.readers import RELATION, Layout, Source
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.files import check_inside
from partition.importing.readers.link_files import read_list
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.typed_source import TypedSource, checked, grouped
from partition.importing.readers.vertex_files import read_ids
from partition.records import npz_names, read_npz

ENTITY = "entity"  # the type of all vertices


def read_arrays(path: Path) -> TypedSource | None:
    """Read an ``.npz`` of (m,) integers ``row``, ``column``, ``relation``; None without these.

    Perhaps with ``labels``, (n,) integers, −1 for none, and numbers of vertices in ``train``,
    ``val``, ``test``. A UserError if an array does not fit the others.
    """
    if not {"row", "column", RELATION} <= npz_names(path):
        return None
    arrays = read_npz(path)
    row, column, relation = (arrays[name].reshape(-1) for name in ("row", "column", RELATION))
    ends = ends_of(np.stack([row, column]), str(path), "(m,) each")
    if len(relation) != len(row) or relation.dtype.kind not in "iu":
        raise UserError(f"{path}: there are {len(row)} arcs, and {len(relation)} relations")
    labels = arrays.get("labels")
    n = int(max(end.max(initial=-1) for end in ends)) + 1 if labels is None else len(labels)
    given, number = np.unique(relation, return_inverse=True)
    arcs = Source(n, *ends, format="triples")
    masks = {}
    for name in MASKS:
        if name in arrays:
            check_inside(arrays[name], n, f"{path}, {name}")
            masks[name] = {ENTITY: np.isin(np.arange(n), arrays[name])}
    found = grouped(arcs, number, list(map(str, given.tolist())), ENTITY)
    of_labels = {} if labels is None else {ENTITY: labels}
    return checked(replace(found, labels=of_labels, masks=masks), str(path))


def read(path: Path, layout: Layout) -> TypedSource:
    """Read a table of triples in text, Parquet or ``.npy``; ids are integers or texts.

    ``layout.columns`` says where sources, relations and targets stand. A UserError if the file
    holds none, or an id is not among those announced.
    """
    listed = read_list(path, layout)
    found = listed.arrays
    pairs, relation = found["positives"], found.get("relations")
    if relation is None or not len(pairs):
        raise UserError(f"{path} holds no triples")
    text = pairs.dtype.kind == "U"
    ids = None if layout.ids is None else read_ids(layout.ids, text=text, comments=layout.comments)
    names = None
    if text:
        names, places = np.unique(pairs, return_inverse=True)
        pairs = places.reshape(-1, 2)
    n, source, target, ids = number_vertices(
        pairs[:, 0], pairs[:, 1], str(path), names=names, vertices=layout.vertices, ids=ids
    )
    numbers, called = number_relations({"": relation}, str(path))
    number = numbers[""]
    if not called:
        given, number = np.unique(number, return_inverse=True)
        called = tuple(map(str, given.tolist()))
    listed.check_first_line(path)
    comments = 0 if listed.columns is None else listed.columns.comments.lines
    notes = {"comments": comments} if comments else {}
    arcs = Source(n, source, target, ids=ids, format="triples", notes=notes)
    return grouped(arcs, number, called, ENTITY)
