"""Commands of ``gcn-partition`` about mini-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.cli import common
from partition.cli.common import option
from partition.graph.sampling import SAMPLERS
from partition.reporting import simulate as simulation
from partition.reporting import tables


@click.command(
    epilog="""\b
Examples:
  gcn-partition simulate G.graph hp-8 --sampler vertex --batch 20000 --batches 1000
  gcn-partition simulate G.graph hp-8 shp-8 gp-8 --batch 6%
  gcn-partition simulate G.graph hp-8 shp-8 --sampler neighbor --batch 1024 --fanouts 10,5"""
)
@common.graph_argument
@common.names_argument
@option(
    "--sampler",
    "vertex: the subgraph that uniformly drawn vertices induce; neighbor, labor: seed "
    "vertices and some neighbours of each, layer by layer.",
    "vertex",
    metavar="|".join(name for name in SAMPLERS if name != "cluster"),
)
@option(
    "--batch",
    "Vertices in a mini-batch (neighbor: seeds), or their share of all vertices.",
    "6%",
    metavar="NUMBER|SHARE%",
)
@click.option(
    "--fanouts",
    metavar="F,F…",
    default="",
    help="neighbor, labor: neighbours per vertex for each layer, that of the seeds first; -1: all. "
    "[default: 10,10]",
)
@option("--batches", "Number of mini-batches.", 1000)
@option("--seed", "Seed of the mini-batches.", 0)
@option(
    "--as-trained",
    "The batches of a run with this train.seed, in their order; neighbor and labor draw seeds "
    "among the training vertices.",
    is_flag=True,
)
@click.option(
    "--cache-mb",
    type=click.FloatRange(0),
    default=0.0,
    help="With --as-trained: MB of input rows of others that each part keeps, as train.cache_mb.",
)
@common.direction_option()
@common.json_option
def simulate(graph: Path, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Simulate the communication of random mini-batches; ratios are to the first partition named.

    Rows and messages of one expand for each of them: mean, standard deviation and quantiles.
    """
    with common.working("drawing mini-batches"):
        facts = simulation.simulate(graph, names, **options)
    common.emit(facts, as_json, tables.show_simulation)
