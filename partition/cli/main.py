"""The command line ``gcn-partition``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from partition.backends import TOOLS
from partition.charts.paper import check_figure, check_figures, save_figures
from partition.cli import common
from partition.cli.importing import attach, import_
from partition.cli.make import add, refine
from partition.cli.minibatches import simulate
from partition.cli.study import study
from partition.cli.synth import synth
from partition.cli.tools import export_model, import_parts
from partition.commands import Commands, figures_option, page_option, path_option
from partition.errors import UserError
from partition.graph import store
from partition.graph.pairs import members
from partition.pipeline import adding
from partition.pipeline.checking import check_folder
from partition.records import make_room_for
from partition.reporting import comparison, tables
from partition.reporting.describe import describe_graph, describe_partition
from partition.reporting.plots import plot_comparison
from partition.signals import end_in_order


def main() -> None:
    """Entry point of ``gcn-partition`` and of ``python -m partition``."""
    end_in_order()
    cli.main(prog_name="gcn-partition")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
A first session:
  gcn-partition synth sbm demo.graph --vertices 20000 --classes 8
  gcn-partition add demo.graph --model rp -k 4
  gcn-partition add demo.graph --model hp -k 4
  gcn-partition compare demo.graph
  mpirun -n 4 gcnmpi train demo.graph --partition hp-4""",
)
@click.version_option(package_name="gcnmpi")
def cli() -> None:
    """Make graph folders, and partition their rows over the ranks of a run.

    A graph folder NAME.graph holds one graph and any number of named partitions. The trainer,
    gcnmpi, reads both. The partition determines how much it sends.
    """


@cli.command()
@common.graph_argument
@click.argument("name", required=False)
@common.json_option
def info(graph: Path, name: str | None, as_json: bool) -> None:
    """Describe a graph folder (size, degrees, changes by the import) or one partition in it."""
    if name is None:
        facts = describe_graph(store.open_graph(graph))
        common.emit(facts, as_json, tables.show_graph)
    else:
        found = [store.read_partition(graph, each) for each in members(graph, name)]
        facts_of_each = [describe_partition(partition) for partition in found]
        common.emit_each(facts_of_each, as_json, tables.show_partition)


@cli.command()
@common.graph_argument
@common.json_option
def check(graph: Path, as_json: bool) -> None:
    """Read all of a graph folder and its partitions, and compare it with what it says of itself."""
    found = list(check_folder(graph))
    common.emit([asdict(finding) for finding in found], as_json, tables.show_checks)
    wrong = [finding for finding in found if finding.wrong is not None]
    if wrong:
        first, *others = wrong
        more = f" (and {len(others)} more)" if others else ""
        hint = "import the graph again, or make the partition again with gcn-partition add --force"
        raise UserError(f"{graph}: {first.what}: {first.wrong}{more}", hint)


@cli.command("list")
@common.graph_argument
@common.json_option
def list_(graph: Path, as_json: bool) -> None:
    """List the partitions of a graph."""
    store.open_graph(graph, check=False)
    names = store.list_partitions(graph)
    partitions = (store.read_partition(graph, name, parts=False) for name in names)
    facts = [describe_partition(partition, lists=False) for partition in partitions]
    common.emit(facts, as_json, tables.show_list)


@cli.command()
@common.graph_argument
@click.argument("names", metavar="[NAME]...", nargs=-1)
@common.direction_option()
@path_option(
    "--plot",
    "FILE",
    "Draw the figures relative to random rows into FILE: .png, .pdf or .svg.",
    dir_okay=False,
)
@page_option("Write a page with volume, busiest parts, messages and balance, also over k.")
@figures_option
@common.json_option
def compare(
    graph: Path, names: tuple[str, ...], direction: str | None, plot: Path | None,
    page: Path | None, figures: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare partitions (all, or those named) with each other and with random rows."""
    if plot is not None:
        check_figure(plot)
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
    if plot is not None:
        title = store.open_graph(graph, check=False).manifest.name
        plot_comparison([{"graph": title, "label": row["name"]} | row for row in rows], plot)
    common.emit(rows, as_json, tables.show_comparison)


@cli.command(help="Delete partitions.")
@common.graph_argument
@common.names_argument
@common.json_option
def remove(graph: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Delete the partitions that are named, and of a pair both."""
    store.open_graph(graph, check=False)
    removed = [each for name in names for each in members(graph, name)]
    store.remove_partition(graph, *removed)
    line = f"removed {', '.join(removed)}"
    common.emit({"removed": removed}, as_json, lambda facts: click.echo(line))


@cli.command()
@common.json_option
def models(as_json: bool) -> None:
    """List the models, the tools that take them, and the tools' options."""
    missing = TOOLS.available()
    rows = []
    for name, model in adding.MODELS.items():
        for tool in model.tools:
            options = {**model.options, **({} if missing[tool] else TOOLS.get(tool).options)}
            table = {key: asdict(option) for key, option in options.items()}
            facts = {"model": name, "help": model.help, "tool": tool, "missing": missing[tool]}
            rows.append(facts | {"options": table})
    common.emit(rows, as_json, tables.show_models)


for _command in (import_, attach, add, export_model, import_parts, refine, simulate, study, synth):
    cli.add_command(_command)
