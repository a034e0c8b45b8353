"""Commands for clusters: doctor, submit, status, stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from gcnmpi.cli.common import Job, Json, Many, Words, job
from gcnmpi.cluster import submit as jobs
from gcnmpi.options.requests import run_name
from gcnmpi.run.writer import new_folder
from partition.commands import Result, command
from partition.errors import UserError

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims


@command
def doctor(
    graph: Path | None = None,
    *,
    folder: Path = Path(),
    partition: str | None = None,
    words: Words,
    as_json: Json = False,
) -> Job:
    """Check the hosts, ranks and network of this job.

    Prints the host, cores, GPUs and memory of each rank, measures the network, and reports
    problems: different MPI libraries, too many ranks for the cores, no shared folder, too little
    memory for GRAPH, a slow link. The exit code is 1 if there is a problem.

    Parameters
    ----------
    folder : DIR
        A folder that all hosts should share.
    partition : NAME
        Partition of GRAPH, to predict its memory.
    """
    config = words.config()

    def call(comm: Comm, claims: Claims) -> int:
        from gcnmpi.cluster.doctor import examine
        from gcnmpi.report.checks import print_diagnosis

        found = examine(comm, folder, graph, partition, config)
        if comm.rank == 0 and as_json:
            click.echo(json.dumps(asdict(found)))
        elif comm.rank == 0:
            print_diagnosis(found)
        return int(any(finding.problem for finding in found.findings))

    return job(config, call)


_File = Annotated[Path | None, click.Path(path_type=Path, dir_okay=False)]
_Sbatch = Annotated[tuple[str, ...], {"names": ["--sbatch"], "metavar": "OPTION"}]


@command
def submit(
    graph: Path,
    arguments: Annotated[tuple[str, ...], {"metavar": "[-- ARGUMENTS OF A SCRIPT]"}] = (),
    *,
    partition: str | None = None,
    nodes: Many = 1,
    time: str,
    ranks: Many | None = None,
    cpus_per_rank: Many = 1,
    gpus_per_node: Annotated[int, click.IntRange(0)] = 0,
    launcher: Annotated[str | None, click.Choice(jobs.LAUNCHERS)] = None,
    setup: _File = None,
    notice: Many = 120,
    partition_time: str = "04:00:00",
    options: _Sbatch = (),
    out: Path | None = None,
    dry_run: bool = False,
    words: Words,
) -> Result:
    """Train on a Slurm cluster, in as many jobs as needed.

    In place of GRAPH may be a script in Python that trains in g.run(None, …) of gcnmpi.torch, with
    its own arguments behind --.

    Writes a batch script into the folder of the run and submits it. Before the time limit the run
    stops with a checkpoint and is put back in the queue, until it has finished. If the graph has
    no partition of that name, and the name is such as hp-16, a job makes it first.

    Parameters
    ----------
    partition : NAME
        Partition into as many parts as there are ranks.
    nodes : N
        Number of nodes.
    time : TIME
        Time limit of a job, such as 01:30:00.
    ranks : P
        Number of ranks.  [default: parts of the partition, or one per GPU]
    cpus_per_rank : C
        Cores of a rank.
    gpus_per_node : G
        One rank per GPU.
    launcher
        [default: mpirun; srun for GPUs]
    setup : FILE
        Shell commands that the job runs first, such as module load.
    notice : SECONDS
        Stop this long before the time limit; choose more than an epoch and a checkpoint take.
    partition_time : TIME
        Time limit of the job that makes the partition, if it is missing.
    options
        Further option of sbatch, such as --account=X; may be repeated.
    out : DIR
        Folder of the run.  [default: runs/GRAPH-PARTITION-DATE]
    dry_run
        Print the scripts and submit nothing.
    """
    script, known, parts, name = _what_runs(graph, partition, words, arguments)
    request = jobs.Request(
        graph=known,
        partition=parts,
        config_file=words.config_file,
        settings=words.settings,
        run=out or Path("runs") / name,
        ranks=ranks,
        nodes=nodes,
        cpus=cpus_per_rank,
        gpus=gpus_per_node,
        time=time,
        partition_time=partition_time,
        notice=notice,
        launcher=launcher or ("srun" if gpus_per_node else "mpirun"),
        setup=setup,
        options=options,
        script=script,
    )
    number = jobs.check(request)
    if dry_run:
        made = jobs.scripts(request, number)
        texts = [f"# --- {request.run / name}\n{text}" for name, text in made.items()]
        return Result(made, "\n".join(texts))
    if out is None:
        request = replace(request, run=new_folder(request.run.parent, request.run.name))
    facts = jobs.submit(request, jobs.scripts(request, number))
    first = facts["partition_job"]
    lines = [] if first is None else [f"job {first} makes the partition {parts}"]
    lines += [f"job {facts['job']}, run {request.run}", f"  gcnmpi status {request.run}"]
    return Result(facts, "\n".join(lines))


def _what_runs(
    path: Path, partition: str | None, words: Words, arguments: Sequence[str]
) -> tuple[tuple[str, ...], Path | None, str | None, str]:
    """Script with its arguments, graph and partition that are known, and the name of the run."""
    found = jobs.named_by_script(path, arguments)
    if found is None:
        if arguments:
            raise UserError(
                f"{path} is not a script: {arguments[0]!r} is one argument too many",
                "a script is a file that ends in .py; it takes arguments",
            )
        return (), path, partition, run_name(path, partition)
    if partition is not None or words.config_file is not None or words.settings:
        raise UserError(
            "--partition, --config and --set have no meaning with a script",
            f"what {path} takes stands behind --: {path} -- my.graph --partition hp-4",
        )
    graph, parts = found
    name = run_name(graph or Path(path.stem), parts or "script")
    return (str(path), *arguments), graph, parts, name


@command
def status(run: Path) -> Result:
    """Show the state and progress of a run.

    Its epoch, loss, time per epoch and time left, or how it ended.
    """
    from gcnmpi.report.status import print_status
    from gcnmpi.report.status import status as look

    return Result(look(run), print_status)


@command
def stop(run: Path) -> None:
    """Have a run write a checkpoint and end.

    It ends after its epoch, or batch, with exit code 75. From any host that sees the folder RUN.
    The command that started the run goes on from the checkpoint.
    """
    from gcnmpi.report.status import ask_to_stop

    ask_to_stop(run)
    click.echo(f"asked: after this epoch {run} writes a checkpoint and ends; gcnmpi status {run}")
