"""Commands for clusters: doctor, submit, status, stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcnmpi.cli import common
from gcnmpi.cluster.submit import (
    LAUNCHERS,
    Request,
    check,
    graph_and_partition,
    is_script,
    scripts,
)
from gcnmpi.cluster.submit import submit as give
from gcnmpi.options.outputs import run_name
from gcnmpi.run.writer import new_folder
from partition.commands import option, path_option
from partition.errors import UserError

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm


@click.command(short_help="Check the hosts, ranks and network of this job.")
@path_option(
    "--folder",
    "DIR",
    "A folder that all hosts should share.  [default: the current one]",
    default=Path(),
)
@option("--partition", "Partition of GRAPH, to predict its memory.", metavar="NAME")
@common.configured
@common.json_option
@click.argument("graph", required=False, type=click.Path(path_type=Path))
def doctor(
    graph: Path | None,
    folder: Path,
    partition: str | None,
    words: common.Words,
    as_json: bool,
) -> common.Job:
    """Check the hosts, ranks and network of a job, started by mpirun or srun.

    Prints the host, cores, GPUs and memory of each rank, measures the network, and reports
    problems: different MPI libraries, too many ranks for the cores, no shared folder, too little
    memory for GRAPH, a slow link. The exit code is 1 if there is a problem.
    """
    config = words.config()

    def job(comm: Comm) -> int:
        from gcnmpi.cluster.doctor import as_facts, examine
        from gcnmpi.report.machines import print_findings

        seats, links, findings = examine(comm, folder, graph, partition, config)
        if comm.rank == 0 and as_json:
            click.echo(json.dumps(as_facts(seats, links, findings)))
        elif comm.rank == 0:
            print_findings(seats, links, findings)
        return int(any(finding.problem for finding in findings))

    return common.watched(config, job)


class _OfScripts(click.Command):
    """A command on a graph, or on a script: all that follows that is the script's own."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            parser.allow_interspersed_args = False  # options end at the first argument
            found = parse(list(args))
            first = found[0].get("graph")
            if isinstance(first, str) and is_script(first):
                return found
            parser.allow_interspersed_args = True
            return parse(args)

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            options = error.param.opts if error.param else []
            for word in words:
                if word.partition("=")[0] in options:
                    raise UserError(
                        f"{word} stands after the script, so it is an argument of the script",
                        f"options of {ctx.command_path} come before it",
                    ) from error
            raise


@click.command(cls=_OfScripts, short_help="Train on a Slurm cluster, in as many jobs as needed.")
@common.on_graph
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS OF A SCRIPT]...")
@option("--nodes", default=1, type=click.IntRange(1), metavar="N")
@option("--time limit", "Time limit of a job, such as 01:30:00.", required=True, metavar="TIME")
@option(
    "--ranks",
    "Number of ranks.  [default: parts of the partition, or one per GPU]",
    type=click.IntRange(1),
    metavar="P",
)
@option("--cpus-per-rank", default=1, type=click.IntRange(1), metavar="C")
@click.option(
    "--gpus-per-node", type=click.IntRange(0), default=0, metavar="G", help="One rank per GPU."
)
@option("--launcher", "[default: mpirun; srun for GPUs]", type=click.Choice(LAUNCHERS))
@path_option(
    "--setup",
    "FILE",
    "Shell commands that the job runs first, such as module load.",
    dir_okay=False,
)
@option(
    "--notice",
    "Stop this long before the time limit; choose more than an epoch and a checkpoint take.",
    120,
    type=click.IntRange(1),
    metavar="SECONDS",
)
@option(
    "--partition-time",
    "Time limit of the job that makes the partition, if it is missing.",
    "04:00:00",
    metavar="TIME",
)
@option(
    "--sbatch options",
    "Further option of sbatch, such as --account=X; may be repeated.",
    multiple=True,
    metavar="OPTION",
)
@path_option("--out", "DIR", "Folder of the run.  [default: runs/GRAPH-PARTITION-DATE]")
@option("--dry-run", "Print the scripts and submit nothing.", is_flag=True)
@common.json_option
def submit(
    given: common.Given,
    words: tuple[str, ...],
    nodes: int,
    limit: str,
    ranks: int | None,
    cpus_per_rank: int,
    gpus_per_node: int,
    launcher: str | None,
    setup: Path | None,
    notice: int,
    partition_time: str,
    options: tuple[str, ...],
    out: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Train on GRAPH on a Slurm cluster, in as many jobs as needed.

    In place of GRAPH may be a script in Python that trains in g.run(None, …) of gcnmpi.torch, with
    its own arguments behind it. Options of submit come before it.

    Writes a batch script into the folder of the run and submits it. Before the time limit the run
    stops with a checkpoint and is put back in the queue, until it has finished. If the graph has
    no partition of that name, and the name is such as hp-16, a job makes it first.
    """
    script, graph, partition, name = _what_runs(given, words)
    request = Request(
        graph=graph,
        partition=partition,
        config_file=given.file,
        settings=given.settings,
        run=out or Path("runs") / name,
        ranks=ranks,
        nodes=nodes,
        cpus=cpus_per_rank,
        gpus=gpus_per_node,
        time=limit,
        partition_time=partition_time,
        notice=notice,
        launcher=launcher or ("srun" if gpus_per_node else "mpirun"),
        setup=setup,
        options=options,
        script=script,
    )
    ranks = check(request)
    if dry_run:
        for name, text in scripts(request, ranks).items():
            click.echo(f"# --- {request.run / name}\n{text}")
        return 0
    if out is None:
        request = replace(request, run=new_folder(request.run.parent, request.run.name))
    facts = give(request, scripts(request, ranks))
    if as_json:
        click.echo(json.dumps(facts))
        return 0
    if facts["partition_job"] is not None:
        click.echo(f"job {facts['partition_job']} makes the partition {partition}")
    click.echo(f"job {facts['job']}, run {request.run}")
    click.echo(f"  gcnmpi status {request.run}")
    return 0


def _what_runs(
    given: common.Given, words: Sequence[str]
) -> tuple[tuple[str, ...], Path | None, str | None, str]:
    """Script with its arguments, graph and partition that are known, and the name of the run."""
    path = given.graph
    if not is_script(str(path)):
        if words:
            raise UserError(
                f"{path} is not a script: {words[0]!r} is one argument too many",
                "a script is a file that ends in .py; it takes arguments",
            )
        return (), path, given.partition, run_name(path, given.partition)
    if given.partition is not None or given.file is not None or given.settings:
        raise UserError(
            "--partition, --config and --set before a script have no meaning",
            f"what {path} takes stands behind it: {path} my.graph --partition hp-4",
        )
    graph, partition = graph_and_partition(words)
    name = run_name(graph or Path(path.stem), partition or "script")
    return (str(path), *words), graph, partition, name


@click.command(short_help="Show the state and progress of a run.")
@click.argument("run", type=click.Path(path_type=Path))
@common.json_option
def status(run: Path, as_json: bool) -> int:
    """Show state, epoch, loss, time per epoch and time left of a run, or how it ended."""
    from gcnmpi.report.status import print_status
    from gcnmpi.report.status import status as look

    facts = look(run)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_status(facts)
    return 0


@click.command(short_help="Have a run write a checkpoint and end.")
@click.argument("run", type=click.Path(path_type=Path))
def stop(run: Path) -> int:
    """Have a run write a checkpoint after its epoch, or batch, and end with exit code 75.

    From any host that sees the folder RUN. The command that started the run goes on from the
    checkpoint.
    """
    from gcnmpi.report.status import ask_to_stop

    ask_to_stop(run)
    click.echo(f"asked: after this epoch {run} writes a checkpoint and ends; gcnmpi status {run}")
    return 0
