"""``gcn-partition add``: make a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition import balance, pipeline
from partition.backends import TOOLS
from partition.catalogue import MODELS
from partition.cli_common import (
    GRAPH,
    collected_warnings,
    direction_option,
    emit,
    force_option,
    json_option,
    parse_settings,
    show_added,
    working,
)
from partition.describe import describe_partition
from partition.solving import MAPPINGS, NODES_FIRST


@click.command(
    epilog="""\b
Examples:
  gcn-partition add G.graph --model hp -k 16
  gcn-partition add G.graph --model gp --objective vol -k 16 --imbalance 0.03
  gcn-partition add G.graph --model hp -k 16 --set preset=quality --name best-16
  gcn-partition add G.graph --model hp -k 16 --balance nnz,rows --imbalance 0.03
  gcn-partition add G.graph --model shp -k 8 --set batch=20000 --set theta=0.01
`gcn-partition models` lists models, tools and their options."""
)
@click.argument("graph", metavar="G.graph", type=GRAPH)
@click.option(
    "--model",
    metavar="|".join(MODELS),
    required=True,
    help="; ".join(f"{name}: {model.help}" for name, model in MODELS.items()) + ".",
)
@click.option("-k", "--parts", "k", type=int, required=True, help="Number of parts: of processes.")
@click.option(
    "--imbalance",
    type=float,
    default=0.01,
    show_default=True,
    help="What the heaviest part may weigh above the average; 0.01 is one percent.",
)
@click.option(
    "--balance",
    metavar="|".join(balance.CONSTRAINTS),
    default=balance.DEFAULT,
    show_default=True,
    help="What is balanced: "
    + "; ".join(f"{name}: {text}" for name, text in balance.CONSTRAINTS.items())
    + ". Several, such as nnz,rows: no tool here takes more than one weight per vertex (METIS "
    "does, its Python wrapper does not), so they are summed, and vertices are moved afterwards.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the tool.")
@click.option("--name", help="Name of the partition.  [default: MODEL-K, such as hp-16]")
@click.option("--tool", metavar="|".join(TOOLS), help="Tool.  [default: the model's first]")
@click.option("--objective", metavar="cut|vol", help="What METIS minimises.  [default: cut]")
@click.option(
    "--set", "settings", metavar="OPTION=VALUE", multiple=True, help="Model, tool options."
)
@click.option(
    "--ranks-per-node",
    type=int,
    metavar="R",
    help="Number the parts so that little travels between nodes of R ranks each.",
)
@click.option(
    "--mapping",
    metavar="|".join(MAPPINGS),
    default=NODES_FIRST,
    show_default=True,
    help="With --ranks-per-node: partition into nodes and each node into parts, or into parts at "
    "once; both then number the parts anew.",
)
@direction_option("Direction of the aggregation.  [default: the graph's]")
@force_option
@json_option
def add(
    graph: Path, k: int, objective: str | None, settings: tuple[str, ...], force: bool,
    as_json: bool, **arguments: Any,
) -> None:  # fmt: skip
    """Partition a graph and store the result in its folder."""
    options = parse_settings(settings)
    if objective is not None:
        options["objective"] = objective
    with collected_warnings() as messages, working("partitioning"):
        made = pipeline.add_partition(graph, k=k, overwrite=force, **arguments, **options)
    facts = describe_partition(made) | {"warnings": messages}
    emit(facts, as_json, show_added)
