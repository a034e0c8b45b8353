"""Commands of ``gcn-partition`` that hold partitions against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.charts.paper import check_figures, save_figures
from partition.cli import common
from partition.cli.common import option
from partition.commands import figures_option, page_option
from partition.errors import UserError
from partition.graph import store
from partition.graph.sampling import SAMPLERS
from partition.records import make_room_for
from partition.reporting import comparison, tables
from partition.reporting import simulate as simulation
from partition.reporting import study as studies


@click.command()
@common.graph_argument
@click.argument("names", metavar="[NAME]...", nargs=-1)
@common.direction_option()
@page_option("Write a page with volume, busiest parts, messages and balance, also over k.")
@figures_option
@common.json_option
def compare(
    graph: Path, names: tuple[str, ...], direction: str | None, page: Path | None,
    figures: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare partitions (all, or those named) with each other and with random rows.

    Volume: rows sent by all ranks in one exchange. Max send, max receive: rows of the busiest rank,
    for which the others wait. Messages: ordered pairs of ranks of which one sends to the other.
    Imbalance: weight of the heaviest part divided by the average, minus 1. Seconds: time of
    partitioning. In brackets are ratios to random rows.
    """
    if figures is not None:
        check_figures(figures)
    if page is not None:
        make_room_for(page)
    rows = comparison.compare(graph, names, direction)
    if not rows and not as_json:
        raise UserError(f"{graph} has no partitions", "make one: gcn-partition add")
    if rows and (page is not None or figures is not None):
        from partition.reporting.page import comparison_figures, write_comparison

        parts = comparison.metrics_of_parts(graph, rows)
        if page is not None:
            write_comparison(page, store.open_graph(graph, check=False).manifest, rows, parts)
        if figures is not None:
            save_figures(comparison_figures(rows, parts), figures)
    common.emit(rows, as_json, lambda: tables.show_comparison(rows))


@click.command(
    epilog="""\b
Examples:
  gcn-partition simulate G.graph hp-8 --sampler vertex --batch 20000 --batches 1000
  gcn-partition simulate G.graph hp-8 shp-8 gp-8 --batch 6%
  gcn-partition simulate G.graph hp-8 shp-8 --sampler neighbor --batch 1024 --fanouts 10,5
  gcn-partition simulate G.graph hp-8 --sampler neighbor --relations --fanouts-of writes=15,10"""
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
@click.option(
    "--relations",
    is_flag=True,
    help="Those of networks that tell relations apart: neighbours are drawn from the arcs of each "
    "relation.",
)
@click.option(
    "--fanouts-of",
    metavar="NAME=F,F…",
    multiple=True,
    help="neighbor, labor: the same, with fan-outs of this relation; may be repeated.",
)
@common.direction_option()
@common.json_option
def simulate(graph: Path, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Simulate the communication of random mini-batches; ratios are to the first partition named.

    Rows and messages of one expand for each of them: mean, standard deviation and quantiles.
    """
    with common.working("drawing mini-batches"):
        facts = simulation.simulate(graph, names, **options)
    common.emit(facts, as_json, lambda: tables.show_simulation(facts))


@click.command(
    epilog="""\b
Example:
  gcn-partition study a.graph b.graph --model gp+refined --model gp -k 16 -k 64"""
)
@click.argument("graphs", metavar="G.graph...", nargs=-1, required=True, type=common.FILE)
@option(
    "--model models",
    "MODEL or MODEL:OPTION=VALUE,…, with +refined at the end to refine it, or "
    "auto:time_limit=60. May be repeated; the first is compared with the others.",
    ("hp", "gp"),
    metavar="RECIPE",
    multiple=True,
)
@option("-k --parts ks", default=(16,), type=int, multiple=True)
@common.direction_option("Direction of the aggregation.  [default: each graph's own]")
@option("--imbalance", default=0.01)
@option("--seed", default=0)
@option(
    "--out",
    "Folder for comparison.csv and comparison.md.",
    Path("runs/partitions"),
    type=common.FILE,
)
def study(
    graphs: tuple[Path, ...], models: tuple[str, ...], ks: tuple[int, ...], direction: str | None,
    imbalance: float, seed: int, out: Path,
) -> None:  # fmt: skip
    """Partition graphs by several models, and compare them with random rows.

    The partitions stay in the graph folders; what is there already is not made again.
    """
    recipes = [studies.parse_recipe(text) for text in models]
    files = {ending: out / f"comparison.{ending}" for ending in ("csv", "md")}
    make_room_for(files["csv"])
    with common.collected_warnings():
        rows = studies.study(
            graphs, recipes, ks, direction=direction, imbalance=imbalance, seed=seed,
            report=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    studies.write_csv(rows, files["csv"])
    text = studies.table(rows)
    files["md"].write_text(text, encoding="utf-8")
    click.echo(text)
