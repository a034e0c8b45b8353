"""Commands about all schemes: plan, calibrate, bench-schemes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcnmpi.cli import common
from gcnmpi.options.config import Config, read_config
from gcnmpi.options.kernel import must_be_best
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.machine import Machine, read_machine, write_machine
from partition.commands import option, parse_bytes, path_option
from partition.errors import UserError
from partition.graph.store import open_graph
from partition.records import make_room_for

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.planner.ranking import Setting

_partitions = option(
    "--partition partitions",
    "Only this partition; may be repeated.  [default: all that fit]",
    metavar="NAME",
    multiple=True,
)
_machine = path_option(
    "--machine machine_file",
    "FILE",
    "File of 'gcnmpi calibrate', or perlmutter, frontier, cpu-100g.  [default: scheme.machine, or "
    "default constants]",
)
_schemes = option("--schemes", "Only these schemes.  [default: all]", metavar="NAME,…")
_features = option(
    "--features", "Columns of features, if the graph had so many.", type=click.IntRange(1)
)
_classes = option("--classes", "Classes, if the graph had so many.", type=click.IntRange(1))


@click.command(short_help="Rank all schemes on P ranks, without running one.")
@common.graph_argument
@option("-P --ranks", "Number of ranks.", type=click.IntRange(1), required=True)
@_partitions
@_schemes
@_machine
@option(
    "--ranks-per-node",
    "Ranks that share a node and its network.  [default: as calibrated, or 16]",
    type=click.IntRange(1),
    metavar="R",
)
@option("--memory", "Memory available to a rank, such as 64GB.", metavar="SIZE")
@_features
@_classes
@option("--top", "Show the N fastest only.", type=click.IntRange(1), metavar="N")
@option("--groups", "Mini-batches: divide the ranks into groups with one each.", is_flag=True)
@common.configured
@common.json_option
def plan(
    graph: Path,
    ranks: int,
    partitions: tuple[str, ...],
    schemes: str | None,
    machine_file: Path | None,
    ranks_per_node: int | None,
    memory: str | None,
    features: int | None,
    classes: int | None,
    top: int | None,
    groups: bool,
    words: common.Words,
    as_json: bool,
) -> int:
    """Rank all schemes, grids and replication factors for GRAPH on P ranks by the cost model.

    No training is run, and P may be in the thousands. For the busiest rank, it predicts seconds,
    received bytes and messages of a training epoch, and memory. If a scheme needs a partition into
    P parts and GRAPH has none, random rows are assumed.

    With --groups, the P ranks are divided into groups of one size, each of which computes a
    mini-batch of its own, and the divisions are ranked, each with the fastest scheme for a group.
    """
    from gcnmpi.planner.auto import other_exchange
    from gcnmpi.planner.groups import Groups
    from gcnmpi.planner.ranking import rank_schemes
    from gcnmpi.report.costs import print_groups, print_plan

    widths = features, classes
    limit = math.inf if memory is None else parse_bytes(memory)
    setting, facts = _setting(graph, words, schemes, machine_file, ranks_per_node, widths, limit)
    if groups:
        divisions = Groups(setting, _names(schemes)).divisions(ranks)
        if not divisions:
            raise UserError(f"no scheme can run on {ranks} ranks in groups of any size")
        print_groups(setting, ranks, facts, divisions, as_json=as_json, top=top)
        return 0
    ranked, skipped = rank_schemes(setting, ranks, schemes=_names(schemes), partitions=partitions)
    if not ranked:
        raise UserError(f"no scheme can run on {ranks} ranks", skipped[0].reason if skipped else "")
    print_plan(setting, ranks, facts, ranked, skipped, as_json=as_json, top=top)
    first = ranked[0].candidate
    options = setting.stored, first.partition, setting.direction, first.scheme
    for line in other_exchange(*options):
        click.echo(f"warning: {line}", err=True)
    return 0


@click.command(short_help="Bytes that ranks receive under every scheme, by number of ranks.")
@common.graph_argument
@option(
    "-P --ranks sizes", default=(4, 16, 64, 256, 1024, 4096), type=click.IntRange(1), multiple=True
)
@option(
    "--records",
    "Output of 'bench-schemes --json', to print counted bytes next to predicted ones.",
    type=click.Path(path_type=Path),
    multiple=True,
)
@_schemes
@_machine
@option("--ranks-per-node", type=click.IntRange(1), metavar="R")
@_features
@_classes
@common.configured
@option(
    "--out",
    "Folder for volumes.csv and volumes.md.",
    Path("runs/volumes"),
    type=click.Path(path_type=Path),
)
def volumes(
    graph: Path, sizes: tuple[int, ...], records: tuple[Path, ...], schemes: str | None,
    machine_file: Path | None, ranks_per_node: int | None, features: int | None,
    classes: int | None, words: common.Words, out: Path,
) -> int:  # fmt: skip
    """Compare the bytes that a rank receives in an epoch under every scheme, by number of ranks.

    The bytes are predicted, for any number of ranks, with the best grid or replication factor of
    each scheme.
    """
    from gcnmpi.planner.by_ranks import as_text, counted_rows, predicted_rows, write_csv

    widths = features, classes
    setting, _ = _setting(graph, words, schemes, machine_file, ranks_per_node, widths)
    make_room_for(out / "volumes.csv")
    counted = counted_rows(records)
    predicted, skipped = predicted_rows(setting, sizes, _names(schemes))
    rows = predicted + counted
    write_csv(rows, out / "volumes.csv")
    text = as_text(rows)
    (out / "volumes.md").write_text(text, encoding="utf-8")
    click.echo(text)
    for skip in skipped:
        click.echo(f"not {skip.scheme}: {skip.reason}", err=True)
    return 0


@click.command(short_help="Measure this machine, for plan and grid = auto.")
@option(
    "--out", default="machine.json", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE"
)
@common.configured
def calibrate(out: Path, words: common.Words) -> common.Job:
    """Measure latency, bandwidth and arithmetic, and write FILE for 'plan' and scheme.machine.

    Start it like a training run, with the same number of ranks per node. To measure the network
    between nodes, use two nodes at least. It takes some seconds.
    """
    config = words.config()
    must_be_best(config.kernel)

    def job(comm: Comm) -> int:
        from gcnmpi.bench.calibrate import calibrate as measure
        from gcnmpi.mpi.comm import from_root
        from gcnmpi.report.costs import print_machine

        from_root(comm, lambda: make_room_for(out))
        machine, facts = measure(comm, config)
        from_root(comm, lambda: write_machine(out, machine, facts))
        if comm.rank == 0:
            print_machine(machine, facts, out)
        return 0

    return common.watched(config, job)


@click.command(
    "bench-schemes", short_help="Measure all possible schemes, and compare with predictions."
)
@common.graph_argument
@_partitions
@_schemes
@_machine
@option("--epochs", default=5, type=click.IntRange(1))
@common.configured
@common.lines_option
def bench_schemes(
    graph: Path,
    partitions: tuple[str, ...],
    schemes: str | None,
    machine_file: Path | None,
    epochs: int,
    words: common.Words,
    as_json: bool,
) -> common.Job:
    """Train a few epochs on GRAPH under every scheme and grid that this number of ranks allows.

    Prints measured values next to those that 'plan' predicts: seconds (median over epochs of the
    slowest rank), received bytes and peak memory of the rank with most. Schemes that cannot run
    are listed with the reason.
    """
    config, given = _read(words, schemes)
    must_be_best(config.kernel)
    machine, _ = _constants(machine_file, config)
    names = _names(schemes)

    def job(comm: Comm) -> int:
        from gcnmpi.bench.schemes import bench
        from gcnmpi.report.costs import print_bench, print_line
        from gcnmpi.report.progress import print_warnings

        lines = bench(
            comm, graph, config, machine, schemes=names, partitions=partitions, given=given,
            epochs=epochs,
            on_line=print_line if as_json and comm.rank == 0 else lambda line: None,
        )  # fmt: skip
        if comm.rank == 0:
            if not as_json:
                print_bench(lines)
            print_warnings(dict.fromkeys(w for line in lines for w in line.get("warnings", ())))
        return 0

    return common.watched(config, job)


USUAL_RANKS_PER_NODE = 16


def _read(words: common.Words, schemes: str | None) -> tuple[Config, dict[str, Any]]:
    """The configuration for several schemes, and the given keys, each read by at least one scheme.

    The file may name the scheme that runs will use.
    """
    for setting in words.settings:
        name, _, scheme = setting.partition("=")
        if name.strip() == "scheme.name":
            raise UserError("--set scheme.name: several schemes are tried", f"--schemes {scheme}")
    return read_config(words.file, words.settings, schemes=_names(schemes) or SCHEMES)


def _setting(
    graph: Path,
    words: common.Words,
    schemes: str | None,
    machine_file: Path | None,
    ranks_per_node: int | None,
    widths: tuple[int | None, int | None],
    limit: float = math.inf,
) -> tuple[Setting, dict[str, Any]]:
    """The case to predict, with assumed columns of features and classes; the machine's file."""
    from gcnmpi.planner.ranking import Setting

    config, given = _read(words, schemes)
    machine, facts = _constants(machine_file, config)
    per_node = ranks_per_node or facts.get("ranks_per_node", USUAL_RANKS_PER_NODE)
    setting = Setting(open_graph(graph), config, machine, per_node, *widths, given, limit=limit)
    return setting, facts


def _names(schemes: str | None) -> list[str] | None:
    return None if schemes is None else list(dict.fromkeys(common.listed(schemes)))


def _constants(file: Path | None, config: Config) -> tuple[Machine, dict[str, Any]]:
    """The machine and the contents of its file, which are empty for the default machine."""
    file = file or (Path(config.scheme.machine) if config.scheme.machine else None)
    if file is None:
        return Machine(), {}
    machine, facts = read_machine(file)
    return machine, {"file": str(file), **facts}
