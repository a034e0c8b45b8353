"""The ``gcnmpi`` command, and what shows what there is. Launch it with mpirun or srun."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import click

from gcnmpi.cli.common import Json, Many, Words, tables_option
from gcnmpi.mpi.launch import launched, start_limit
from gcnmpi.options.config import Config, keys, readers, value_of
from gcnmpi.options.settings import shipped_configs
from partition.commands import Commands, command, figures_option, page_option
from partition.errors import EXIT_USER_ERROR, UserError, meant_keys, unknown_name

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm


def main() -> None:
    """Console entry: read the command line, then start MPI for the commands that need it.

    Every rank reads the same command line and finds the same mistake in it. Under mpirun, the
    mistake is reported once, through MPI.
    """
    try:
        outcome = cli.main(prog_name="gcnmpi", standalone_mode=False) or 0
        if not callable(outcome):
            sys.exit(outcome)
        timeout = outcome.timeout or start_limit(os.environ)
        from gcnmpi.mpi.process import run
    except UserError as error:
        _fail(error)
    run(outcome, timeout)


def _fail(error: UserError) -> NoReturn:
    with contextlib.suppress(UserError):
        from gcnmpi.mpi.comm import agreed
        from gcnmpi.mpi.process import run

        if launched():

            def fail(world: Comm) -> int:
                with agreed(world):
                    raise error

            run(fail, _TELLING)
    print(f"error: {error}", file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)


_TELLING = 60.0  # seconds that ranks wait for each other to tell a mistake in their words once

# Commands and the modules that have them.
_MODULES = {
    "verbs": ("train", "infer", "evaluate", "score", "verify", "propagate"),
    "making": ("import", "partition"),
    "schemes": ("plan", "volumes", "calibrate", "bench-schemes"),
    "repeated": ("repeat", "sweep"),
    "demo": ("demo",),
    "cluster": ("doctor", "submit", "status", "stop"),
}
ELSEWHERE = {
    name: f"gcnmpi.cli.{module}:{'import_' if name == 'import' else name.replace('-', '_')}"
    for module, names in _MODULES.items()
    for name in names
}


@click.group(
    cls=Commands,
    elsewhere=ELSEWHERE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="gcnmpi", prog_name="gcnmpi")
def cli() -> None:
    """Exact full-graph training and inference of graph neural networks over many machines.

    Make a graph folder and a partition with gcn-partition first, then

    \b
      mpirun -n 4 gcnmpi train G.graph --partition hp-4 --out runs/first
    """


@command
def config(name: str | None = None) -> None:
    """Print the configuration NAME, or what a key means.

    Edit it and give it to --config. Without NAME, list all. --config NAME takes one as it is. Where
    NAME is a key, its last word, or a table of keys, print its default, what it means, and which
    networks, tasks or schemes read it, if not all do.

    Examples
    --------
    gcnmpi config gcn > my.toml
    gcnmpi config tuned/physics-sage > my.toml
    gcnmpi config model.norm
    gcnmpi config train
    """
    there = shipped_configs()
    meant = [key for key in keys() if name in (key, key.split(".")[0])]
    meant = meant or [key for key in keys() if name == key.rpartition(".")[2]]
    if name is None:
        for each, file in sorted(there.items()):
            about = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            print(f"{each:22} {re.split('[:.] |[:.]$', about)[0]}")
    elif meant and name not in there:
        for key in meant:
            default, text = json.dumps(keys()[key].default), keys()[key].meaning
            print(f"{key} = {default}\n    {text}{_read_by(key)}")
    elif name.removesuffix(".toml") not in there:
        found = {key for key in keys() if key.split(".")[0] == name.split(".")[0]}
        known = found or meant_keys(name, keys()) or there
        raise unknown_name("configuration or key", name, known)
    else:
        print(there[name.removesuffix(".toml")].read_text(encoding="utf-8"), end="")


def _read_by(key: str) -> str:
    return f" [{of}]" if (of := readers(key)) else ""


@command
def info(
    graph: Path | None = None,
    *,
    program: bool = False,
    partition: str | None = None,
    ranks: Many | None = None,
    words: Words,
    as_json: Json = False,
) -> None:
    """Show kernels, schemes and keys; or a network's program.

    With --program, show what a training run on GRAPH would compute, without starting one: the
    values, the steps of forward pass, backward pass and evaluation, what these send, and the
    memory that values share.

    Parameters
    ----------
    program
        Print the program of a training run on GRAPH.
    partition : NAME
        Partition that the run would use.
    ranks : -P --ranks
        Number of ranks of the run.  [default: the parts of the partition, or 1]
    """
    if not program:
        if graph or partition or ranks or words.config_file or words.settings:
            raise UserError(
                "without --program, info shows what is installed",
                "gcnmpi info G.graph --program; gcn-partition info G.graph describes a graph",
            )
        _print_installed(as_json)
    elif graph is None:
        raise UserError("--program: whose? There is no GRAPH", "gcnmpi info G.graph --program")
    else:
        _print_program(graph, partition, ranks, words.config(), as_json)


def _print_installed(as_json: bool) -> None:
    from gcnmpi import __version__
    from gcnmpi.mpi.comm import versions
    from gcnmpi.options.config import NETWORKS, OPTIMIZERS, SCHEDULES, TASKS
    from gcnmpi.options.kernel import AUTO, KERNELS, resolve
    from gcnmpi.options.scheme import SCHEMES
    from gcnmpi.options.task import METRICS
    from gcnmpi.propagation.methods import EMBEDDINGS, METHODS

    registries = (
        KERNELS, SCHEMES, NETWORKS, TASKS, METRICS, OPTIMIZERS, SCHEDULES, METHODS, EMBEDDINGS
    )  # fmt: skip
    tables = {r.kind: r.available() for r in registries}
    native = _native_facts() if tables["kernel"]["native"] is None else {}
    if as_json:
        found = {
            name: {"default": key.default, "meaning": key.meaning, "readers": readers(name)}
            for name, key in keys().items()
        }
        facts = {"versions": versions(), **tables, "native": native, "config": found}
        click.echo(json.dumps(facts))
        return
    click.echo(f"gcnmpi {__version__}; " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    for kind, entries in tables.items():
        names = [name if why is None else f"{name} ({why})" for name, why in entries.items()]
        click.echo(f"{kind}s: {', '.join(names)}")
    chosen, fallen = resolve(AUTO)
    click.echo(f"kernel = auto: {chosen}" + (f" ({fallen})" if fallen else ""))
    click.echo(f"native kernel: {', '.join(native.values()) or 'none'}")
    click.echo("\nconfiguration keys (TOML file, or --set key=value):")
    for name, key in keys().items():
        click.echo(f"  {name:28} {json.dumps(key.default):16} {key.meaning}{_read_by(name)}")


def _print_program(
    graph: Path, name: str | None, ranks: int | None, config: Config, as_json: bool
) -> None:
    from gcnmpi.cli.schemes import USUAL_RANKS_PER_NODE
    from gcnmpi.nn.compile.on_scheme import program_of_batches
    from gcnmpi.nn.describe import graph_of
    from gcnmpi.options.scheme import SCHEMES
    from gcnmpi.planner.auto import resolved_options, setting_of
    from gcnmpi.planner.ranking import Candidate
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
    setting = setting_of(stored, config, where)
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


def _fields() -> Mapping[str, Mapping[str, str]]:
    from gcnmpi.run.record import field_tables

    return field_tables()


@command
@tables_option("--fields", "Print what the fields of run.jsonl mean.", _fields)
@page_option("Write a page with curves, phases of ranks, bytes between them, memory and settings.")
@figures_option
def report(
    runs: tuple[Path, ...],
    *,
    as_json: Annotated[bool, {"names": ["--json"], "help": "Print one JSON array."}] = False,
    as_csv: Annotated[bool, {"names": ["--csv"], "help": "Print CSV, one line per run."}] = False,
    page: Path | None,
    figures: Path | None,
) -> None:
    """Compare finished RUNS: volume, time, accuracy.

    RUNS are folders with a run.jsonl, or folders with such folders somewhere below them. --html and
    --figures also show runs that go on, or did not finish.
    """
    from gcnmpi.report.table import print_runs

    print_runs(runs, as_json=as_json, as_csv=as_csv, page=page, figures=figures)


for each in (config, info, report):
    cli.add_command(each)
