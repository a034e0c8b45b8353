"""Commands of ``gcn-partition`` for other partitioners: reading parts, writing models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.backends.catalogue import MODELS
from partition.cli import common
from partition.cli.common import option
from partition.pipeline import adding, tool_files


@click.command(
    "import-parts",
    epilog="""\b
Examples:
  gcn-partition import-parts G.graph G.metis.part.16 --name metis-16
  gcn-partition import-parts G.graph G.u.part.64 --name patoh-64 -k 64""",
)
@common.graph_argument
@click.argument("file", type=common.FILE)
@option("--name", "Name of the partition.", required=True)
@option("-k --parts k", "Number of parts.  [default: the largest + 1]", type=int)
@option("--first", "Number of the first part in FILE: 0 or 1.", 0, type=click.IntRange(0, 1))
@common.direction_option("Direction it was made for.  [default: the graph's]")
@common.force_option
@common.json_option
def import_parts(graph: Path, file: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Store a partition of another program: FILE has a part number per vertex.

    One number per line (METIS, hMETIS, KaHyPar, KaHIP, Zoltan) or several (PaToH),
    or a mapping of Scotch.
    """
    made = adding.import_parts(graph, file, overwrite=force, **options)
    common.emit_each([made], as_json, common.show_added, warnings=[])


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
@common.graph_argument
@click.argument("file", metavar="OUT", type=common.FILE)
@option(
    "--format",
    "; ".join(f"{name}: {text}" for name, text in tool_files.FORMATS.items()) + ".",
    metavar="|".join(tool_files.FORMATS),
    required=True,
)
@option("--model", "Model.  [default: gp for metis, else hp]", metavar="gp|hp|mg|shp")
@option("-k --parts k", "Number of parts, needed for shp.", type=int)
@option("--seed", "Seed of shp's mini-batches.", 0)
@common.settings_option(
    "Option of the model.",
    lambda: dict.fromkeys(key for model in MODELS.values() for key in model.options),
)
@common.balance_option("Weights of the vertices; several, such as nnz,rows, for metis and patoh.")
@common.direction_option()
@common.force_option
@common.json_option
def export_model(
    graph: Path, file: Path, settings: tuple[str, ...], force: bool, as_json: bool, **arguments: Any
) -> None:
    """Write the model of a graph to the file OUT, for a partitioner that is not built in."""
    options = common.parse_settings(settings)
    with common.working("writing"):
        facts = tool_files.export_model(graph, file, overwrite=force, **arguments, **options)
    common.emit(facts, as_json, lambda: _show_exported(facts))


def _show_exported(facts: dict[str, Any]) -> None:
    kinds = ("edges",) if "edges" in facts else ("nets", "pins")
    size = ", ".join(f"{facts[kind]:,} {kind}" for kind in kinds)
    click.echo(
        f"{facts['file']}: {facts['model']}, {facts['vertices']:,} vertices, {size}, "
        f"weights: {', '.join(facts['constraints'])}, {facts['bytes'] / 1e6:.1f} MB"
    )
