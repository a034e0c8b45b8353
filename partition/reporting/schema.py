"""The schema of a heterogeneous graph: as facts, as tables, and as a drawing."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Column, Table

from partition.charts.paper import COLOURS, new_figure, save_figure
from partition.charts.scales import number
from partition.errors import UserError, shown
from partition.graph.arc_data import AT_ONCE
from partition.graph.examples import known_rows
from partition.graph.graph import Graph
from partition.graph.typed import by_type

MANY = 40  # relations in a table
NAMED = 3  # relations whose names stand at an arrow
SIZE = 7.2, 5.4  # inches


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


def draw_schema(schema: Mapping[str, Any], title: str, file: str | os.PathLike[str]) -> None:
    """Draw types as discs on a ring, and an arrow for the relations from one to another.

    The ending of the file says the format: ``.png``, ``.pdf``, ``.svg``. A UserError if the graph
    has no types, or the file cannot be written.
    """
    if not schema:
        raise UserError("there is nothing to draw: the graph has no vertex types")
    figure = new_figure(*SIZE)
    axis = figure.add_subplot()
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title(f"{shown(title)}: vertices and arcs", fontsize=10)
    types = schema["vertex_types"]
    turn = 2 * math.pi / len(types)
    ring = 1.2 if len(types) > 1 else 0.0
    at = {
        row["name"]: (ring * math.sin(i * turn), ring * math.cos(i * turn))
        for i, row in enumerate(types)
    }
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in schema["relations"]:
        pairs.setdefault((row["source"], row["target"]), []).append(row)
    for (source, target), rows in pairs.items():
        _arrow(axis, at[source], at[target], _words(rows))
    for i, row in enumerate(types):
        text = f"{row['name']}\n{number(row['vertices'])}"
        text += f"\n{row['features']} features" if row["features"] else ""
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "linewidth": 1.6}
        box["edgecolor"] = COLOURS[i % len(COLOURS)]
        axis.text(
            *at[row["name"]], text, ha="center", va="center", fontsize=8.5, bbox=box, zorder=3
        )
    low = 0.5 + ring * -min(math.cos(i * turn) for i in range(len(types)))
    axis.set_xlim(-2.1, 2.1)
    axis.set_ylim(-low - 0.35, ring + 1.0)
    save_figure(figure, file)


def _words(rows: list[Mapping[str, Any]]) -> str:
    """The names of relations with their arcs, a line each."""
    rows = sorted(rows, key=lambda row: -row["arcs"])
    lines = [f"{shown(row['name'])}: {number(row['arcs'])}" for row in rows[:NAMED]]
    more = len(rows) - NAMED
    left = sum(row["arcs"] for row in rows[NAMED:])
    text = "\n".join([*lines, f"{more} more: {number(left)}"] if more > 0 else lines)
    return text.replace("$", r"\$")


def _arrow(axis: Any, source: tuple[float, float], target: tuple[float, float], text: str) -> None:
    """An arrow that bends to its left, so that its reverse lies beside it, with a text."""
    line = {"arrowstyle": "-|>", "color": "0.45", "shrinkA": 34, "shrinkB": 36, "linewidth": 1}
    if source == target:  # a loop outside the ring
        x, y = source
        away = math.hypot(x, y) or 1.0
        out = (x / away, y / away) if (x, y) != (0, 0) else (0.0, 1.0)
        side = -out[1] * 0.16, out[0] * 0.16
        ends = [(x + out[0] * 0.2 + sign * side[0], y + out[1] * 0.2 + sign * side[1])
                for sign in (1, -1)]  # fmt: skip
        loop = line | {"connectionstyle": "arc3,rad=-1.6", "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", ends[1], ends[0], arrowprops=loop, zorder=1)
        place = x + out[0] * 0.5, y + out[1] * 0.5
    else:
        axis.annotate(
            "", target, source, arrowprops=line | {"connectionstyle": "arc3,rad=0.18"}, zorder=1
        )
        across = target[0] - source[0], target[1] - source[1]
        place = (
            source[0] + 0.4 * across[0] + 0.1 * across[1],
            source[1] + 0.4 * across[1] - 0.1 * across[0],
        )
    beside = "center" if source != target else "bottom" if source[1] >= 0 else "top"
    axis.text(*place, text, fontsize=7, ha="center", va=beside, color="0.2", zorder=2,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8})  # fmt: skip
