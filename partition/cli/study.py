"""``gcn-partition study``: partitions compared as a paper does."""

from __future__ import annotations

from pathlib import Path

import click

from partition.charts.paper import check_figure
from partition.cli.common import FILE, collected_warnings, direction_option, option
from partition.records import make_room_for
from partition.reporting.plots import plot_comparison
from partition.reporting.study import parse_recipe, table, write_csv
from partition.reporting.study import study as run_study


@click.command(
    epilog="""\b
Example:
  gcn-partition study a.graph b.graph --model gp+refined --model gp -k 16 -k 64"""
)
@click.argument("graphs", metavar="G.graph...", nargs=-1, required=True, type=FILE)
@option(
    "--model models",
    "MODEL or MODEL:OPTION=VALUE,…, with +refined at the end to refine it, or "
    "auto:time_limit=60. May be repeated; the first is compared with the others.",
    ("hp", "gp"),
    metavar="RECIPE",
    multiple=True,
)
@option("-k --parts ks", default=(16,), type=int, multiple=True)
@direction_option("Direction of the aggregation.  [default: each graph's own]")
@option("--imbalance", default=0.01)
@option("--seed", default=0)
@option(
    "--out",
    "Folder for comparison.csv, comparison.md and comparison.png.",
    Path("runs/partitions"),
    type=FILE,
)
@option("--plot/--no-plot", "Needs matplotlib.", True)
def study(
    graphs: tuple[Path, ...], models: tuple[str, ...], ks: tuple[int, ...], direction: str | None,
    imbalance: float, seed: int, out: Path, plot: bool,
) -> None:  # fmt: skip
    """Partition graphs by several models, and compare them with random rows.

    The partitions stay in the graph folders; what is there already is not made again.
    """
    recipes = [parse_recipe(text) for text in models]
    files = {ending: out / f"comparison.{ending}" for ending in ("csv", "md", "png")}
    make_room_for(files["csv"])
    if plot:
        check_figure(files["png"])
    with collected_warnings():
        rows = run_study(
            graphs, recipes, ks, direction=direction, imbalance=imbalance, seed=seed,
            report=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    write_csv(rows, files["csv"])
    text = table(rows)
    files["md"].write_text(text, encoding="utf-8")
    if plot:
        plot_comparison(rows, files["png"])
    click.echo(text)
