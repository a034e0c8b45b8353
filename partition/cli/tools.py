"""Commands of ``gcn-partition`` for other partitioners: reading parts, writing models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.backends.catalogue import MODELS
from partition.cli.common import (
    GRAPH,
    direction_option,
    emit,
    force_option,
    json_option,
    parse_settings,
    show_added,
    working,
)
from partition.commands import Assignments
from partition.pipeline import adding, balance, tool_files
from partition.reporting.describe import describe_partition


@click.command(
    "import-parts",
    epilog="""\b
Examples:
  gcn-partition import-parts G.graph G.metis.part.16 --name metis-16
  gcn-partition import-parts G.graph G.u.part.64 --name patoh-64 -k 64""",
)
@click.argument("graph", metavar="G.graph", type=GRAPH)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Name of the partition.")
@click.option("-k", "--parts", "k", type=int, help="Number of parts.  [default: the largest + 1]")
@click.option(
    "--first",
    type=click.IntRange(0, 1),
    default=0,
    show_default=True,
    help="Number of the first part in FILE: 0 or 1.",
)
@direction_option("Direction it was made for.  [default: the graph's]")
@force_option
@json_option
def import_parts(
    graph: Path, file: Path, name: str, k: int | None, first: int, direction: str | None,
    force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Store a partition of another program: FILE has a part number per vertex.

    One number per line (METIS, hMETIS, KaHyPar, KaHIP, Zoltan) or several (PaToH),
    or a mapping of Scotch.
    """
    made = adding.import_parts(
        graph, file, name, k, first=first, direction=direction, overwrite=force
    )
    emit(describe_partition(made) | {"warnings": []}, as_json, show_added)


@click.command(
    "export-model",
    epilog="""\b
Examples:
  gcn-partition export-model G.graph G.metis --format metis
  gcn-partition export-model G.graph G.hgr --format hmetis --model hp
  gcn-partition export-model G.graph G.u --format patoh --balance nnz,rows
  gcn-partition export-model G.graph S.hgr --format hmetis --model shp -k 8 --set batch=20000
The tool's part file comes back with gcn-partition import-parts.""",
)
@click.argument("graph", metavar="G.graph", type=GRAPH)
@click.argument("file", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--format",
    metavar="|".join(tool_files.FORMATS),
    required=True,
    help="; ".join(f"{name}: {text}" for name, text in tool_files.FORMATS.items()) + ".",
)
@click.option("--model", metavar="gp|hp|mg|shp", help="Model.  [default: gp for metis, else hp]")
@click.option("-k", "--parts", "k", type=int, help="Number of parts, needed for shp.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of shp's mini-batches.")
@click.option(
    "--set",
    "settings",
    metavar="OPTION=VALUE",
    cls=Assignments,
    keys=lambda: dict.fromkeys(key for model in MODELS.values() for key in model.options),
    help="Option of the model.",
)
@click.option(
    "--balance",
    metavar="|".join(balance.CONSTRAINTS),
    default=balance.DEFAULT,
    show_default=True,
    help="Weights of the vertices; several, such as nnz,rows, for metis and patoh.",
)
@direction_option("Direction of the aggregation.  [default: the graph's]")
@force_option
@json_option
def export_model(
    graph: Path, file: Path, settings: tuple[str, ...], force: bool, as_json: bool, **arguments: Any
) -> None:
    """Write the model of a graph to the file OUT, for a partitioner that is not built in."""
    options = parse_settings(settings)
    with working("writing"):
        facts = tool_files.export_model(graph, file, overwrite=force, **arguments, **options)
    emit(facts, as_json, _show_exported)


def _show_exported(facts: dict[str, Any]) -> None:
    size = (
        f"{facts['edges']:,} edges"
        if "edges" in facts
        else f"{facts['nets']:,} nets, {facts['pins']:,} pins"
    )
    click.echo(
        f"{facts['file']}: {facts['model']}, {facts['vertices']:,} vertices, {size}, "
        f"weights: {', '.join(facts['constraints'])}, {facts['bytes'] / 1e6:.1f} MB"
    )
