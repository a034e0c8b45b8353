"""Commands whose ranks make a graph folder, or a partition, together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gcnmpi.cli.common import Job, Json, Quiet, Words, job, telling
from gcnmpi.mpi.launch import sleep_while_waiting
from partition.cli import common, importing
from partition.commands import command, parse_bytes

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims


@command
def import_(
    source: Path,
    out: Annotated[Path, {"metavar": "OUT.graph"}],
    *,
    memory: str = "2GB",
    options: importing.ImportOptions,
    force: common.Force = False,
    words: Words,
    as_json: Json = False,
    quiet: Quiet = False,
) -> Job:
    """Import a list of arcs, on all ranks together.

    It is read of the file SOURCE. The folder OUT.graph is that of gcn-partition import, byte for
    byte. Each rank reads some pieces of the file, text or Parquet or .npy, and sorts the arcs of a
    range of vertices.

    Parameters
    ----------
    memory : SIZE
        Memory that a rank may take; arcs are sorted in files beside OUT.graph.

    Examples
    --------
    mpirun -n 16 gcnmpi import links.csv links.graph --undirected --features random:64
    """
    config, limit, fields = words.config(), parse_bytes(memory), options.to_import_fields()

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.importing.running import import_together
        from gcnmpi.report.progress import print_imported
        from partition.importing.assemble import asked_for

        asked = asked_for(source, out, overwrite=force, memory=limit, **fields)
        hidden = quiet or comm.rank
        with contextlib.nullcontext(lambda *_: None) if hidden else common.working() as progress:
            done = import_together(comm, asked, telling(comm), progress)
        return lambda: print_imported(done, as_json)

    sleep_while_waiting()
    return job(config, call)


@command
def partition(
    graph: Path,
    *,
    k: int,
    name: str | None = None,
    imbalance: float = 0.01,
    balance: str = "nnz",
    seed: int = 0,
    direction: common.Direction = None,
    memory: str | None = None,
    effort: float = 1.0,
    force: bool = False,
    words: Words,
    as_json: Json = False,
    quiet: Quiet = False,
) -> Job:
    """Partition a graph that no rank holds, on all ranks.

    The result is stored in the folder GRAPH. It has K parts, for fewest rows sent. Each rank reads
    a share of the rows. The parts are the same for any number of ranks. K is the number of ranks of
    later runs, and need not be that of this one.

    Parameters
    ----------
    k : -k --parts
        Number of parts: one per rank of later runs.
    name
        Name of the partition.  [default: job-K]
    imbalance
        Largest weight of a part, relative to the average, minus 1.
    balance : nnz|rows|work
        What is balanced, as for gcn-partition add.
    seed
        Seed of all hashes.
    memory : SIZE
        Memory for what one rank does alone, such as 100MB: the first partition of the coarsest
        graph, and the refinement of a graph for which that is enough.  [default: 200MB]
    effort
        Factor of the work done.
    force
        Replace a partition of that name.

    Examples
    --------
    mpirun -n 8 gcnmpi partition G.graph -k 64
    """
    from gcnmpi.partitioning.running import default_name, effort_within

    config = words.config()
    work = effort_within(None if memory is None else parse_bytes(memory), effort)
    called = name or default_name(k, imbalance, seed)
    demands = {"imbalance": imbalance, "balance": balance, "seed": seed, "direction": direction}

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.partitioning.running import make_partition
        from gcnmpi.report.progress import print_partitioned

        limit, tell = config.loading.max_bytes, telling(comm, quiet)
        done = make_partition(comm, claims, graph, k, called, demands, work, limit, tell, force)
        return lambda: print_partitioned(done, as_json)

    sleep_while_waiting()
    return job(config, call, graph)
