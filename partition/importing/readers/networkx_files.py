"""GraphML, GML and JSON of nodes and links, which NetworkX reads where it is installed."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from partition.errors import UserError, shortened
from partition.importing.objects import arc_table_of, arrays_of
from partition.importing.readers.files import open_unpacked
from partition.importing.readers.npz import MASK_FIELDS, source_of
from partition.importing.readers.source import Layout, Source
from partition.resident import check_memory

OBJECT_BYTES = 8  # that NetworkX takes, for each byte of a file


def read(path: Path, layout: Layout) -> Source:
    """Read a file as NetworkX does; attributes are those of :func:`gcnmpi.graph.from_object`.

    Vertices are called as in the file, in its order; edges without a direction become two arcs. A
    UserError if NetworkX is not installed, or cannot read the file.
    """
    try:
        networkx = import_module("networkx")
    except ImportError as error:
        hint = "pip install networkx"
        raise UserError(f"{path}: this needs the Python package networkx", hint) from error
    check_memory(OBJECT_BYTES * path.stat().st_size, f"{path}: a graph of objects")
    with open_unpacked(path) as file:
        begin = file.read(1 << 12).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    form, reader = FORMS.get(begin, FORMS[b""])
    with open_unpacked(path) as file:
        try:
            graph = reader(networkx, file)
        except (networkx.NetworkXException, SyntaxError, ValueError, KeyError, TypeError) as error:
            reason = shortened(" ".join(f"{error}".split()), 200)
            raise UserError(f"{path} is not read as {form}: {reason}") from error
    return _source(graph, path, form, layout)


def _graphml(networkx: Any, file: IO[bytes]) -> Any:
    return networkx.read_graphml(file)


def _gml(networkx: Any, file: IO[bytes]) -> Any:
    lines = file.read().decode("utf-8").splitlines()
    try:
        return networkx.parse_gml(lines)
    except networkx.NetworkXError as error:
        if "label" not in str(error):
            raise
        return networkx.parse_gml(lines, label="id")


def _node_link(networkx: Any, file: IO[bytes]) -> Any:
    facts = json.load(file)
    links = next((key for key in ("links", "edges") if isinstance(facts.get(key), list)), None)
    if links is None or not isinstance(facts.get("nodes"), list):
        raise ValueError("it has no lists 'nodes' and 'links' or 'edges'")
    called = inspect.signature(networkx.node_link_graph).parameters
    return networkx.node_link_graph(facts, **{"edges" if "edges" in called else "link": links})


# The first sign of a file → the form, and what reads it.
FORMS = {
    b"<": ("graphml", _graphml),
    b"{": ("node-link", _node_link),
    b"[": ("node-link", _node_link),
    b"": ("gml", _gml),
}


def _source(graph: Any, path: Path, form: str, layout: Layout) -> Source:
    if not len(graph):
        raise UserError(f"{path} holds a graph without vertices")
    found = arrays_of(graph, layout.arc_features, layout.arc_label)
    masks = found.get("masks") or {}
    fields = {
        "edge_index": found["edge_index"],
        "x": found.get("features"),
        "y": found.get("labels", found.get("targets")),
        "edge_weight": found.get("edge_weight"),
    } | {name: masks.get(name.removesuffix("_mask")) for name in MASK_FIELDS}
    fields = {name: array for name, array in fields.items() if array is not None}
    source = source_of(fields, str(path), form, Layout(), {}, found["n"])
    of_arcs = {"features": found.get("arc_features"), "labels": found.get("arc_labels")}
    of_arcs |= found.get("arc_masks") or {}
    data = arc_table_of(of_arcs, len(source.source))
    return replace(source, ids=found.get("ids"), symmetric=not graph.is_directed(), arc_data=data)
