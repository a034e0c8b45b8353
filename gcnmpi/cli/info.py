"""``gcnmpi info``: the kernels, schemes and keys that there are; the program of a network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from gcnmpi import __version__
from gcnmpi.cli import common
from gcnmpi.cli.schemes import USUAL_RANKS_PER_NODE
from gcnmpi.options.config import (
    NETWORKS,
    OPTIMIZERS,
    SCHEDULES,
    TASKS,
    Config,
    keys,
    readers,
    value_of,
)
from gcnmpi.options.frames import ends
from gcnmpi.options.kernel import AUTO, KERNELS, resolve
from gcnmpi.options.methods import EMBEDDINGS, METHODS
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.task import METRICS
from partition.commands import option
from partition.errors import UserError


@click.command(short_help="Show kernels, schemes and configuration keys; or a network's program.")
@click.argument("graph", required=False, type=click.Path(path_type=Path))
@option("--program", "Print the program of a training run on GRAPH.", is_flag=True)
@option("--partition", "Partition that the run would use.", metavar="NAME")
@option(
    "-P --ranks",
    "Number of ranks of the run.  [default: the parts of the partition, or 1]",
    type=click.IntRange(1),
)
@common.configured
@common.json_option
def info(
    graph: Path | None,
    program: bool,
    partition: str | None,
    ranks: int | None,
    words: common.Words,
    as_json: bool,
) -> int:
    """Show available kernels and schemes, and every configuration key with its default.

    With --program, show what a training run on GRAPH would compute, without starting one: the
    values, the steps of forward pass, backward pass and evaluation, what these send, and the
    memory that values share.
    """
    if program:
        if graph is None:
            raise UserError("--program: whose? There is no GRAPH", "gcnmpi info G.graph --program")
        _print_program(graph, partition, ranks, words.config(), as_json)
        return 0
    if graph or partition or ranks or words.file or words.settings:
        raise UserError(
            "without --program, info shows what is installed",
            "gcnmpi info G.graph --program; gcn-partition info G.graph describes a graph",
        )
    from gcnmpi.mpi.comm import versions

    registries = (
        KERNELS, SCHEMES, NETWORKS, TASKS, METRICS, OPTIMIZERS, SCHEDULES, METHODS, EMBEDDINGS
    )  # fmt: skip
    tables = {r.kind: r.available() for r in registries}
    native = _native_facts() if tables["kernel"]["native"] is None else {}
    if as_json:
        config = {
            name: {"default": default, "meaning": text, "readers": readers(name)}
            for name, default, text in keys()
        }
        facts = {"versions": versions(), **tables, "native": native, "config": config}
        click.echo(json.dumps(facts))
        return 0
    click.echo(f"gcnmpi {__version__}; " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    for kind, entries in tables.items():
        names = [name if why is None else f"{name} ({why})" for name, why in entries.items()]
        click.echo(f"{kind}s: {', '.join(names)}")
    chosen, fallen = resolve(AUTO)
    click.echo(f"kernel = auto: {chosen}" + (f" ({fallen})" if fallen else ""))
    click.echo(f"native kernel: {', '.join(native.values()) or 'none'}")
    click.echo("\nconfiguration keys (TOML file, or --set key=value):")
    for name, default, text in keys():
        shown = json.dumps(default)
        click.echo(f"  {name:28} {shown:16} {text}" + (f" [{of}]" if (of := readers(name)) else ""))
    return 0


def _print_program(
    graph: Path, name: str | None, ranks: int | None, config: Config, as_json: bool
) -> None:
    from gcnmpi.nn.compile.on_scheme import program_of_batches
    from gcnmpi.nn.describe import graph_of
    from gcnmpi.planner.auto import resolved_options
    from gcnmpi.planner.machine import Machine
    from gcnmpi.planner.ranking import Candidate, Setting
    from gcnmpi.report.program import print_program
    from gcnmpi.run.opening import open_split
    from partition.graph.store import member, read_partition

    stored, where = open_split(graph, config), USUAL_RANKS_PER_NODE
    size = ranks or 1
    if name is not None and ranks is None:
        size = read_partition(graph, member(graph, name), parts=False).k
    config = replace(config, graph=graph_of(config))
    partition, scheme = resolved_options(stored, name, config, size, where)
    config = replace(config, scheme=scheme)
    widths = ends(config.task, config.model, stored.manifest)
    setting = Setting(stored, config, Machine(), where, *widths, locality=False)
    candidate = Candidate(scheme, {}, 0, partition)
    case = setting.case(candidate, size)
    batch = program_of_batches(case.work.config, stored, case.work.network, case.program)
    facts = {
        "graph": stored.manifest.name,
        "ranks": size,
        "partition": partition.name if partition else None,
        "direction": setting.direction,
        "model": config.model.name,
        "widths": list(case.work.network.widths),
        "dtype": config.dtype,
        "scheme": scheme.name,
        "memory": case.work.config.train.memory,
        "memory_forecast_bytes": setting.memory(candidate, size) if batch is None else None,
        **{name: value_of(config, name) for name in SCHEMES.keys(scheme.name)},
    }
    print_program(case, batch, facts, as_json=as_json)


def _native_facts() -> dict[str, str]:
    """The instruction set that the native kernel uses here, and whether it has threads."""
    from gcnmpi.kernels.native.kernel import NativeKernel, targets

    threads = "threads by OpenMP" if NativeKernel.parallel else "one thread: built without OpenMP"
    return {"target": targets()[0], "threads": threads}
