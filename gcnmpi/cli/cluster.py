"""Commands for clusters: doctor, submit, status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gcnmpi.cli import common
from gcnmpi.cluster.submit import LAUNCHERS, Request, check, scripts
from gcnmpi.cluster.submit import submit as give
from gcnmpi.options.outputs import run_name
from gcnmpi.run.record import new_folder
from partition.commands import path_option

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm


@click.command(short_help="Check the hosts, ranks and network of this job.")
@path_option(
    "--folder",
    "DIR",
    "A folder that all hosts should share.  [default: the current one]",
    default=Path(),
)
@click.option("--partition", metavar="NAME", help="Partition of GRAPH, to predict its memory.")
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


@click.command(short_help="Train on a Slurm cluster, in as many jobs as needed.")
@common.on_graph
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option(
    "--time", "limit", required=True, metavar="TIME", help="Time limit of a job, such as 01:30:00."
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    metavar="P",
    help="Number of ranks.  [default: parts of the partition, or one per GPU]",
)
@click.option("--cpus-per-rank", type=click.IntRange(1), default=1, show_default=True, metavar="C")
@click.option(
    "--gpus-per-node", type=click.IntRange(0), default=0, metavar="G", help="One rank per GPU."
)
@click.option("--launcher", type=click.Choice(LAUNCHERS), help="[default: mpirun; srun for GPUs]")
@path_option(
    "--setup",
    "FILE",
    "Shell commands that the job runs first, such as module load.",
    dir_okay=False,
)
@click.option(
    "--notice",
    type=click.IntRange(1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Stop this long before the time limit; choose more than an epoch and a checkpoint take.",
)
@click.option("--partition-time", default="04:00:00", show_default=True, metavar="TIME",
              help="Time limit of the job that makes the partition, if it is missing.")  # fmt: skip
@click.option(
    "--sbatch",
    "options",
    multiple=True,
    metavar="OPTION",
    help="Further option of sbatch, such as --account=X; may be repeated.",
)
@path_option("--out", "DIR", "Folder of the run.  [default: runs/GRAPH-PARTITION-DATE]")
@click.option("--dry-run", is_flag=True, help="Print the scripts and submit nothing.")
@common.json_option
def submit(
    given: common.Given,
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

    Writes a batch script into the folder of the run and submits it. Before the time limit the run
    stops with a checkpoint and is put back in the queue, until it has finished. If the graph has
    no partition of that name, and the name is such as hp-16, a job makes it first.
    """
    request = Request(
        graph=given.graph,
        partition=given.partition,
        config_file=given.file,
        settings=given.settings,
        run=out or Path("runs") / run_name(given.graph, given.partition),
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
        click.echo(f"job {facts['partition_job']} makes the partition {given.partition}")
    click.echo(f"job {facts['job']}, run {request.run}")
    click.echo(f"  gcnmpi status {request.run}")
    return 0


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
