#!/usr/bin/env python
"""Compare partitions as a paper does: graphs × models × k → CSV, table, plot.

The partitions stay in the graph folders; what is there already is not made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from partition.cli_common import collected_warnings
from partition.errors import EXIT_USER_ERROR, UserError
from partition.graph import DIRECTIONS
from partition.plots import plot_comparison
from partition.study import parse_recipe, study, table, write_csv


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("graphs", metavar="G.graph...", nargs=-1, required=True, type=Path)
@click.option(
    "--model",
    "models",
    metavar="RECIPE",
    multiple=True,
    default=("hp", "gp"),
    show_default=True,
    help="MODEL, MODEL:OPTION=VALUE,…, with +refined at its end or not, or auto:time_limit=60; "
    "give it several times. The first is compared with the others.",
)
@click.option("-k", "--parts", "ks", type=int, multiple=True, default=(16,), show_default=True)
@click.option("--direction", type=click.Choice(DIRECTIONS), help="[default: each graph's own]")
@click.option("--imbalance", type=float, default=0.01, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--out",
    type=Path,
    default=Path("runs/partitions"),
    show_default=True,
    help="Folder for comparison.csv, comparison.md and comparison.png.",
)
@click.option("--plot/--no-plot", default=True, show_default=True, help="Needs matplotlib.")
def main(graphs, models, ks, direction, imbalance, seed, out, plot):
    """Partition graphs by several models, and compare them with random rows."""
    try:
        recipes = [parse_recipe(text) for text in models]
        out.mkdir(parents=True, exist_ok=True)
        with collected_warnings():
            rows = study(
                graphs,
                recipes,
                ks,
                direction=direction,
                imbalance=imbalance,
                seed=seed,
                report=lambda line: click.echo(line, err=True),
            )
        write_csv(rows, out / "comparison.csv")
        text = table(rows)
        (out / "comparison.md").write_text(text, encoding="utf-8")
        click.echo(text)
        if plot:
            plot_comparison(rows, out / "comparison.png")
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)


if __name__ == "__main__":
    main()
