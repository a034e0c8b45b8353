"""Commands about all schemes: plan, volumes, calibrate, bench-schemes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from gcnmpi.cli.common import Job, Json, Lines, Many, Words, job, listed
from gcnmpi.options.config import Config, read_config
from gcnmpi.options.kernel import must_be_best
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.machine import Machine, read_machine, write_machine
from partition.commands import command, parse_bytes
from partition.errors import UserError
from partition.graph.store import open_graph
from partition.records import make_room_for

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.planner.ranking import Setting
    from gcnmpi.run.claims import Claims

USUAL_RANKS_PER_NODE = 16


@dataclass(frozen=True)
class _Schemes:
    """The schemes that are compared, and the machine.

    Attributes
    ----------
    schemes : NAME,…
        Only these schemes.  [default: all]
    machine : FILE
        File of 'gcnmpi calibrate', or perlmutter, frontier, cpu-100g.  [default: scheme.machine, or
        default constants]
    """

    schemes: str | None = None
    machine: Path | None = None

    @property
    def names(self) -> list[str] | None:
        """The schemes; None: all."""
        return None if self.schemes is None else listed(self.schemes)

    def read(self, words: Words) -> tuple[Config, dict[str, Any]]:
        """The configuration for several schemes, and the given keys, each read by at least one.

        The file may name the scheme that runs will use.
        """
        for setting in words.settings:
            name, _, scheme = setting.partition("=")
            if name.strip() == "scheme.name":
                hint = f"--schemes {scheme}"
                raise UserError("--set scheme.name: several schemes are tried", hint)
        return read_config(words.config_file, words.settings, schemes=self.names or SCHEMES)

    def constants(self, config: Config) -> tuple[Machine, dict[str, Any]]:
        """The machine and the contents of its file, which are empty for the default machine."""
        file = self.machine or (Path(config.scheme.machine) if config.scheme.machine else None)
        if file is None:
            return Machine(), {}
        machine, facts = read_machine(file)
        return machine, {"file": str(file), **facts}


@dataclass(frozen=True)
class _Assumed(_Schemes):
    """The same for another graph.

    Attributes
    ----------
    ranks_per_node : R
        Ranks that share a node and its network.  [default: as calibrated, or 16]
    features
        Columns of features, if the graph had so many.
    classes
        Classes, if the graph had so many.
    """

    ranks_per_node: Many | None = None
    features: Many | None = None
    classes: Many | None = None

    def setting(
        self, graph: Path, words: Words, limit: float = math.inf
    ) -> tuple[Setting, dict[str, Any]]:
        """The case to predict, and the facts of the machine's file."""
        from gcnmpi.planner.ranking import Setting

        config, given = self.read(words)
        machine, facts = self.constants(config)
        per_node = self.ranks_per_node or facts.get("ranks_per_node", USUAL_RANKS_PER_NODE)
        widths = self.features, self.classes
        setting = Setting(open_graph(graph), config, machine, per_node, *widths, given, limit=limit)
        return setting, facts


_Partitions = Annotated[
    tuple[str, ...],
    {
        "names": ["--partition"],
        "metavar": "NAME",
        "help": "Only this partition; may be repeated.  [default: all that fit]",
    },
]


@command
def plan(
    graph: Path,
    *,
    ranks: Many,
    partitions: _Partitions = (),
    case: _Assumed,
    memory: str | None = None,
    top: Many | None = None,
    groups: bool = False,
    words: Words,
    as_json: Json = False,
) -> None:
    """Rank all schemes on P ranks, without running one.

    The cost model knows GRAPH. Grids and replication factors are ranked, too, and P may be in the
    thousands. For the busiest rank, it predicts seconds, received bytes and messages of a training
    epoch, and memory. If a scheme needs a partition into P parts and GRAPH has none, random rows
    are assumed.

    With --groups, the P ranks are divided into groups of one size, each of which computes a
    mini-batch of its own, and the divisions are ranked, each with the fastest scheme for a group.

    Parameters
    ----------
    ranks : -P --ranks
        Number of ranks.
    memory : SIZE
        Memory available to a rank, such as 64GB.
    top : N
        Show the N fastest only.
    groups
        Mini-batches: divide the ranks into groups with one each.
    """
    from gcnmpi.planner.auto import other_exchange
    from gcnmpi.planner.groups import Groups
    from gcnmpi.planner.ranking import rank_schemes
    from gcnmpi.report.costs import print_groups, print_plan

    limit = math.inf if memory is None else parse_bytes(memory)
    setting, facts = case.setting(graph, words, limit)
    if groups:
        divisions = Groups(setting, case.names).divisions(ranks)
        if not divisions:
            raise UserError(f"no scheme can run on {ranks} ranks in groups of any size")
        print_groups(setting, ranks, facts, divisions, as_json=as_json, top=top)
        return
    ranked, skipped = rank_schemes(setting, ranks, schemes=case.names, partitions=partitions)
    if not ranked:
        raise UserError(f"no scheme can run on {ranks} ranks", skipped[0].reason if skipped else "")
    print_plan(setting, ranks, facts, ranked, skipped, as_json=as_json, top=top)
    first = ranked[0].candidate
    options = setting.stored, first.partition, setting.direction, first.scheme
    for line in other_exchange(*options):
        click.echo(f"warning: {line}", err=True)


@command
def volumes(
    graph: Path,
    *,
    sizes: tuple[Many, ...] = (4, 16, 64, 256, 1024, 4096),
    records: tuple[Path, ...] = (),
    case: _Assumed,
    words: Words,
    out: Path = Path("runs/volumes"),
) -> None:
    """Compare received bytes of all schemes by number of ranks.

    They are those of an epoch, predicted for any number of ranks, with the best grid or replication
    factor of each scheme.

    Parameters
    ----------
    sizes : -P --ranks
        Numbers of ranks; may be repeated.
    records
        Output of 'bench-schemes --json', to print counted bytes next to predicted ones.
    out
        Folder for volumes.csv and volumes.md.
    """
    from gcnmpi.planner.by_ranks import as_text, counted_rows, predicted_rows, write_csv

    setting, _ = case.setting(graph, words)
    make_room_for(out / "volumes.csv")
    counted = counted_rows(records)
    predicted, skipped = predicted_rows(setting, sizes, case.names)
    rows = predicted + counted
    write_csv(rows, out / "volumes.csv")
    text = as_text(rows)
    (out / "volumes.md").write_text(text, encoding="utf-8")
    click.echo(text)
    for skip in skipped:
        click.echo(f"not {skip.scheme}: {skip.reason}", err=True)


@command
def calibrate(
    *,
    out: Annotated[Path, click.Path(path_type=Path, dir_okay=False)] = Path("machine.json"),
    words: Words,
) -> Job:
    """Measure this machine, for 'plan' and scheme.machine.

    It measures latency, bandwidth and arithmetic, in some seconds, and writes FILE. Start it like a
    training run, with the same number of ranks per node. To measure the network between nodes, use
    two nodes at least.

    Parameters
    ----------
    out : FILE
    """
    config = words.config()
    must_be_best(config.kernel)

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.bench.calibrate import calibrate as measure
        from gcnmpi.mpi.comm import from_root
        from gcnmpi.report.costs import print_machine

        from_root(comm, lambda: make_room_for(out))
        machine, facts = measure(comm, config)
        from_root(comm, lambda: write_machine(out, machine, facts))
        return lambda: print_machine(machine, facts, out)

    return job(config, call)


@command
def bench_schemes(
    graph: Path,
    *,
    partitions: _Partitions = (),
    case: _Schemes,
    epochs: Many = 5,
    words: Words,
    as_json: Lines = False,
) -> Job:
    """Measure all schemes on GRAPH beside their predictions.

    Trains a few epochs under every scheme and grid that this number of ranks allows, and prints
    measured values next to those that 'plan' predicts: seconds (median over epochs of the slowest
    rank), received bytes and peak memory of the rank with most. Schemes that cannot run are listed
    with the reason.
    """
    config, given = case.read(words)
    must_be_best(config.kernel)
    machine, _ = case.constants(config)

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.bench.schemes import bench
        from gcnmpi.report.costs import print_bench, print_line
        from gcnmpi.report.progress import print_warnings

        lines = bench(
            comm, graph, config, machine, schemes=case.names, partitions=partitions, given=given,
            epochs=epochs,
            on_line=print_line if as_json and comm.rank == 0 else lambda line: None,
        )  # fmt: skip

        def show() -> None:
            if not as_json:
                print_bench(lines)
            print_warnings(dict.fromkeys(w for line in lines for w in line.get("warnings", ())))

        return show

    return job(config, call)
