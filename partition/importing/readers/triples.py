"""Triples (source, relation, target) of one type of vertices, as knowledge graphs are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.relations import number_relations
from partition.importing.readers import Layout, Source
from partition.importing.readers.link_files import read_list
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.typed_source import TypedSource, grouped
from partition.importing.readers.vertex_files import read_ids

ENTITY = "entity"  # the type of all vertices


def read(path: Path, layout: Layout) -> TypedSource:
    """Read a table of triples in text, Parquet or ``.npy``; ids are integers or texts.

    ``layout.columns`` says where sources, relations and targets stand. A UserError if the file
    holds none, or an id is not among those announced.
    """
    found = read_list(path, layout.columns, layout.string_ids, header=layout.header)
    pairs, relation = found["positives"], found.get("relations")
    if relation is None or not len(pairs):
        raise UserError(f"{path} holds no triples")
    text = pairs.dtype.kind == "U"
    ids = None if layout.ids is None else read_ids(layout.ids, text=text)
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
    arcs = Source(n, source, target, ids=ids, format="triples")
    return grouped(arcs, number, called, ENTITY)
