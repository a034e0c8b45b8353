"""Commands of ``gcn-partition`` that hold partitions against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from partition.charts.paper import check_figures, save_figures
from partition.cli import common
from partition.commands import Result, command, figures_option, page_option
from partition.errors import UserError
from partition.graph import store
from partition.pipeline.adding import PartitionWarning
from partition.records import make_room_for
from partition.reporting import comparison, simulate, tables


@command
@page_option("Write a page with volume, busiest parts, messages and balance, also over k.")
@figures_option
def compare(
    graph: common.GraphFolder,
    names: Annotated[tuple[str, ...], {"metavar": "[NAME]..."}] = (),
    *,
    direction: common.Direction = None,
    page: Path | None,
    figures: Path | None,
) -> Result:
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
    if rows and (page is not None or figures is not None):
        from partition.reporting.page import comparison_figures, write_comparison

        parts = comparison.metrics_of_parts(graph, rows)
        if page is not None:
            write_comparison(page, store.open_graph(graph, check=False).manifest, rows, parts)
        if figures is not None:
            save_figures(comparison_figures(rows, parts), figures)

    def show(rows: list[dict[str, object]]) -> None:
        if not rows:
            raise UserError(f"{graph} has no partitions", "make one: gcn-partition add")
        tables.show_comparison(rows)

    return Result(rows, show)


@command
def simulate_(
    graph: common.GraphFolder,
    names: common.Names,
    batches: simulate.MiniBatches,
    *,
    direction: common.Direction = None,
) -> Result:
    """Simulate the communication of random mini-batches; ratios are to the first partition named.

    Rows and messages of one expand for each of them: mean, standard deviation and quantiles.

    Examples
    --------
    gcn-partition simulate G.graph hp-8 --sampler vertex --batch 20000 --batches 1000
    gcn-partition simulate G.graph hp-8 shp-8 gp-8 --batch 6%
    gcn-partition simulate G.graph hp-8 shp-8 --sampler neighbor --batch 1024 --fanouts 10,5
    gcn-partition simulate G.graph hp-8 --sampler neighbor --relations --fanouts-of writes=15,10
    """
    with common.working("drawing mini-batches"):
        facts = simulate.simulate(graph, names, direction=direction, **vars(batches))
    return Result(facts, tables.show_simulation)


@command
def study_(
    graphs: tuple[Path, ...],
    *,
    models: tuple[str, ...] = ("hp", "gp"),
    ks: tuple[int, ...] = (16,),
    direction: common.Direction = None,
    imbalance: float = 0.01,
    seed: int = 0,
    out: Path = Path("runs/partitions"),
) -> None:
    """Partition graphs by several models, and compare them with random rows.

    The partitions stay in the graph folders; what is there already is not made again.

    Parameters
    ----------
    graphs : G.graph...
    models : --model RECIPE
        MODEL or MODEL:OPTION=VALUE,…, with +refined at the end to refine it, or
        auto:time_limit=60. May be repeated; the first is compared with the others.
    ks : -k --parts
        Numbers of parts; may be repeated.
    direction
        Direction of the aggregation.  [default: each graph's own]
    out : FOLDER
        Folder for comparison.csv and comparison.md.

    Examples
    --------
    gcn-partition study a.graph b.graph --model gp+refined --model gp -k 16 -k 64
    """
    recipes = [comparison.parse_recipe(text) for text in models]
    files = {ending: out / f"comparison.{ending}" for ending in ("csv", "md")}
    make_room_for(files["csv"])
    with common.shown_warnings(PartitionWarning, "warning"):
        rows = comparison.study(
            graphs, recipes, ks, direction=direction, imbalance=imbalance, seed=seed,
            report=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    comparison.write_csv(rows, files["csv"])
    text = comparison.table(rows)
    files["md"].write_text(text, encoding="utf-8")
    click.echo(text)
