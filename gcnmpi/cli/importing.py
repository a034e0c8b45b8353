"""``gcnmpi import``: a graph folder that the ranks of a job make together of a list of arcs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcnmpi.cli import common
from gcnmpi.mpi.launch import sleep_while_waiting
from partition.cli import importing
from partition.cli.common import working
from partition.commands import option, options_of, parse_bytes

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm

MEMORY = "2GB"


@click.command("import", short_help="Import a list of arcs, on all ranks together.")
@common.configured
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT.graph", type=click.Path(path_type=Path))
@option(
    "--memory",
    "Memory that a rank may take; arcs are sorted in files beside OUT.graph.",
    MEMORY,
    metavar="SIZE",
)
@options_of(importing.ImportOptions)
@option("--force", "Replace existing output.", is_flag=True)
@common.json_option
@common.quiet_option
def import_(
    words: common.Words,
    source: Path,
    out: Path,
    memory: str,
    force: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> common.Job:
    """Read the list of arcs in the file SOURCE and write the graph to the folder OUT.graph.

    The folder is that of gcn-partition import, byte for byte. Each rank reads some pieces of the
    file, text or Parquet or .npy, and sorts the arcs of a range of vertices.

    \b
      mpirun -n 16 gcnmpi import links.csv links.graph --undirected --features random:64
    """
    config, limit = words.config(), parse_bytes(memory)
    fields = importing.ImportOptions(**options).to_import_fields()

    def job(comm: Comm) -> int:
        from gcnmpi.importing.running import import_together
        from gcnmpi.report.progress import print_imported
        from partition.importing.assemble import asked_for

        asked = asked_for(source, out, overwrite=force, memory=limit, **fields)
        told = contextlib.nullcontext(_nobody) if quiet or comm.rank else working()
        with told as tell:
            done = import_together(comm, asked, common.telling(comm), tell)
        if comm.rank == 0:
            print_imported(done, as_json)
        return 0

    sleep_while_waiting()
    return common.watched(config, job)


def _nobody(stage: str, done: float, total: float) -> None:
    """Tell nobody how far it is."""
