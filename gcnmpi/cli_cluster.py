"""Commands about the machines that a run is given: doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gcnmpi.cli_common import Job, configured
from gcnmpi.config import load_config


@click.command(short_help="Look at the hosts, ranks and network that this job is given.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=False),
    default=Path(),
    metavar="DIR",
    help="A folder that all hosts should share.  [default: the current one]",
)
@click.option("--partition", metavar="NAME", help="Of GRAPH, to predict the memory it takes.")
@configured
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("graph", required=False, type=click.Path(path_type=Path))
def doctor(
    graph: Path | None,
    folder: Path,
    partition: str | None,
    config_file: Path | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> Job:
    """Look at the hosts, ranks and network of a job, as mpirun or srun start it.

    Says what each rank finds, measures the network, and what is wrong: different MPI libraries,
    too many ranks for the cores, no shared folder, too little memory for GRAPH, a slow link. The
    exit code is 1 if there is a problem.
    """
    config = load_config(config_file, settings)

    def job(comm: Any) -> int:
        from gcnmpi.doctor import as_facts, examine
        from gcnmpi.report.machines import print_findings

        seats, links, findings = examine(comm, folder, graph, partition, config)
        if comm.rank == 0 and as_json:
            click.echo(json.dumps(as_facts(seats, links, findings)))
        elif comm.rank == 0:
            print_findings(seats, links, findings)
        return int(any(finding.problem for finding in findings))

    return job
