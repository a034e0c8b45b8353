"""What the commands of ``gcnmpi`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gcnmpi.watch import watchdog

Job = Callable[[Any], int]  # takes the communicator, returns the exit code


def watched(timeout: float, job: Job) -> Job:
    """The job, which is ended where a rank does not move for so many seconds; 0: never."""

    def run(comm: Any) -> int:
        with watchdog(timeout, comm.rank):
            return job(comm)

    return run


def configured(function: Callable) -> Callable:
    """Add the options that make a configuration."""
    for add in (
        click.option(
            "--set",
            "settings",
            metavar="KEY=VALUE",
            multiple=True,
            help="Override one key of the configuration; may be repeated.",
        ),
        click.option(
            "--config",
            "config_file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="TOML file; 'gcnmpi info' lists the keys.",
        ),
    ):
        function = add(function)
    return function


def common(function: Callable) -> Callable:
    """Add the arguments that every command on a graph takes."""
    partition = click.option(
        "--partition",
        metavar="NAME",
        help="Partition into as many parts as there are ranks; one rank needs none.",
    )
    graph = click.argument("graph", type=click.Path(path_type=Path))
    return graph(partition(configured(function)))
