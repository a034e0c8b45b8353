#!/usr/bin/env python
"""Received bytes per rank and epoch of every scheme over the number of ranks → CSV and table.

Predicted for any number of ranks; counted ones, from runs of "gcnmpi bench-schemes --json", stand
beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gcnmpi.comparison import counted_rows, crossovers, predicted_rows, table, write_csv
from gcnmpi.config import read_config
from gcnmpi.machine import Machine, read_machine
from gcnmpi.ranking import Setting
from gcnmpi.schemes import SCHEMES
from partition.errors import EXIT_USER_ERROR, UserError
from partition.store import open_graph


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("graph", metavar="G.graph", type=Path)
@click.option(
    "-P",
    "--ranks",
    "sizes",
    type=int,
    multiple=True,
    default=(4, 16, 64, 256, 1024, 4096),
    show_default=True,
)
@click.option("--records", type=Path, multiple=True, help="Output of bench-schemes --json.")
@click.option("--scheme", "schemes", multiple=True, help="Only these.  [default: all]")
@click.option("--machine", type=Path, help="From 'gcnmpi calibrate'.")
@click.option("--ranks-per-node", type=int, default=16, show_default=True)
@click.option("--features", type=int, help="Columns of features, if the graph had so many.")
@click.option("--classes", type=int, help="Classes, if the graph had so many.")
@click.option("--config", "config_file", type=Path)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True)
@click.option(
    "--out",
    type=Path,
    default=Path("runs/volumes"),
    show_default=True,
    help="Folder for volumes.csv and volumes.md.",
)
def main(
    graph, sizes, records, schemes, machine, ranks_per_node, features, classes, config_file,
    settings, out,
):  # fmt: skip
    """Compare what a rank receives in an epoch under every scheme, on few and on many ranks."""
    try:
        config, given = read_config(config_file, settings, schemes=schemes or SCHEMES)
        constants = read_machine(machine)[0] if machine else Machine()
        setting = Setting(
            open_graph(graph), config, constants, ranks_per_node, features, classes, given
        )
        rows, skipped = predicted_rows(setting, sizes, schemes or None)
        rows += counted_rows(records)
        out.mkdir(parents=True, exist_ok=True)
        write_csv(rows, out / "volumes.csv")
        lines = ["MB that the busiest rank receives in an epoch", "", table(rows)]
        for cross in crossovers(rows):
            when = (
                f"from {cross['from_ranks']} ranks on"
                if cross["from_ranks"]
                else f"nowhere up to {cross['compared']} ranks"
            )
            lines.append(f"{cross['other']} receives less than p2p {cross['partition']}: {when}")
        text = "\n".join(lines) + "\n"
        (out / "volumes.md").write_text(text, encoding="utf-8")
        click.echo(text)
        for skip in skipped:
            click.echo(f"not {skip.scheme}: {skip.reason}", err=True)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)


if __name__ == "__main__":
    main()
