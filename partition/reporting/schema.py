"""The schema of a heterogeneous graph: as facts, and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Column, Table

from partition.errors import shown
from partition.graph.graph import AT_ONCE, Graph, known_rows
from partition.graph.typed import by_type

MANY = 40  # relations in a table


def describe_schema(graph: Graph) -> dict[str, object]:
    """The types of a graph with their vertices, columns of features and labels, and its relations.

    Empty of a homogeneous graph.
    """
    types = graph.vertex_types
    if types is None or graph.arc_type is None:
        return {}
    widths = {name: int(x.shape[1]) for name, x in by_type(graph).items()}
    known = known_rows(graph)
    arcs = np.zeros(len(graph.relations), np.int64)
    for start in range(0, graph.nnz, AT_ONCE):
        arcs += np.bincount(graph.arc_type[start : start + AT_ONCE], minlength=len(arcs))
    vertices = []
    for name in types.names:
        own = types.range(name)
        labelled = 0 if known is None else int(known[own.start : own.stop].sum())
        facts = {"name": name, "vertices": len(own), "features": widths.get(name, 0)}
        vertices.append(facts | {"labelled": labelled})
    relations = [
        one._asdict() | {"arcs": int(count)}
        for one, count in zip(graph.relations, arcs, strict=True)
    ]
    return {"vertex_types": vertices, "relations": relations}


def schema_tables(schema: Mapping[str, Any]) -> list[Table]:
    """The types, and the relations, a row each; of many relations those with the most arcs."""
    if not schema:
        return []
    right = [Column(head, justify="right") for head in ("vertices", "features", "labelled")]
    types = Table("type", *right, title="vertex types", title_justify="left")
    for row in schema["vertex_types"]:
        columns = f"{row['features']:,}" if row["features"] else "none"
        types.add_row(row["name"], f"{row['vertices']:,}", columns, f"{row['labelled']:,}")
    found = schema["relations"]
    if len(found) > MANY:
        found = sorted(found, key=lambda row: -row["arcs"])
    heads = [Column(head) for head in ("source", "relation", "target")]
    relations = Table(
        *heads, Column("arcs", justify="right"), title="relations", title_justify="left"
    )
    for row in found[:MANY]:
        words = (shown(row[key]) for key in ("source", "name", "target"))
        relations.add_row(*words, f"{row['arcs']:,}")
    if rest := found[MANY:]:
        relations.add_row("…", f"{len(rest):,} more", "…", f"{sum(row['arcs'] for row in rest):,}")
    return [types, relations]
