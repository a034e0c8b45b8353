"""``gcnmpi partition``: a partition that the ranks of a job make together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gcnmpi.cli import common
from gcnmpi.mpi.launch import sleep_while_waiting
from partition.commands import option, parse_bytes

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims


@click.command(short_help="Partition a graph that no rank holds, on all ranks together.")
@common.configured
@common.graph_argument
@option("-k --parts k", "Number of parts: one per rank of later runs.", type=int, required=True)
@option("--name", "Name of the partition.  [default: job-K]")
@option(
    "--imbalance", "Largest weight of a part, relative to the average, minus 1.", 0.01, type=float
)
@option("--balance", "What is balanced, as for gcn-partition add.", "nnz", metavar="nnz|rows|work")
@option("--seed", "Seed of all hashes.", 0, type=int)
@option(
    "--direction",
    "Direction of the aggregation.  [default: the graph's]",
    type=click.Choice(("in", "out")),
)
@option(
    "--memory",
    "Memory for what one rank does alone, such as 100MB: the first partition of the coarsest "
    "graph, and the refinement of a graph for which that is enough.  [default: 200MB]",
    metavar="SIZE",
)
@option("--effort", "Factor of the work done.", 1.0, type=float)
@option("--force", "Replace a partition of that name.", is_flag=True)
@common.json_option
@common.quiet_option
def partition(
    words: common.Words,
    graph: Path,
    k: int,
    name: str | None,
    imbalance: float,
    balance: str,
    seed: int,
    direction: str | None,
    memory: str | None,
    effort: float,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> common.Job:
    """Partition GRAPH into K parts for fewest rows sent, and store the result in its folder.

    No rank holds the graph: each reads a share of the rows. The parts are the same for any number
    of ranks. K is the number of ranks of later runs, and need not be that of this one.

    \b
      mpirun -n 8 gcnmpi partition G.graph -k 64
    """
    from gcnmpi.partitioning.running import default_name, effort_within

    config = words.config()
    work = effort_within(None if memory is None else parse_bytes(memory), effort)
    name = name or default_name(k, imbalance, seed)
    demands = {"imbalance": imbalance, "balance": balance, "seed": seed, "direction": direction}

    def job(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.partitioning.running import make_partition
        from gcnmpi.report.progress import print_partitioned

        limit, tell = config.loading.max_bytes, common.telling(comm, quiet)
        done = make_partition(comm, claims, graph, k, name, demands, work, limit, tell, force)
        return lambda: print_partitioned(done, as_json)

    sleep_while_waiting()
    return common.claimed(config, graph, None, job)
