"""The hosts of the ranks, and the cores that they may use there."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gcnmpi.mpi.comm import Comm, agreed, host_name, maximum, of_node
from partition.resident import core_quotas, round_half_up


@dataclass(frozen=True)
class Node:
    """The ranks of a node that compute at the same time.

    Attributes
    ----------
    place : int
        Which of them this rank is, from 0.
    cores : list of set of int
        On which each of them may run.
    quotas : list of dict
        Cores' worth of time by control group, of each of them.
    """

    place: int
    cores: list[set[int]]
    quotas: list[dict[str, float]]


def node_around(comm: Comm) -> Node:
    """The node of this rank."""
    with of_node(comm) as node:
        found = node.allgather((os.sched_getaffinity(0), core_quotas()))
        return Node(node.rank, [cores for cores, _ in found], [quotas for _, quotas in found])


def host_names(comm: Comm) -> list[str]:
    """Host name of every rank."""
    return comm.allgather(host_name())


def torn_groups(hosts: Sequence[str], size: int) -> int:
    """How many groups of ``size`` ranks lie on several hosts, of which one has room for it.

    >>> torn_groups(["a", "a", "a", "b", "b", "b"], 2)
    1
    """
    counts = Counter(hosts)
    groups = (set(hosts[start : start + size]) for start in range(0, len(hosts), size))
    return sum(len(on) > 1 and size <= max(counts[host] for host in on) for on in groups)


def slurm_job() -> str | None:
    """The job that this process is part of, and how often it went back into the queue: "4711.0".

    None outside of Slurm. Batch scripts look for it in the record of a run.
    """
    number = os.environ.get("SLURM_JOB_ID")
    return f"{number}.{os.environ.get('SLURM_RESTART_COUNT') or 0}" if number else None


def node_of(comm: Comm) -> list[int]:
    """The ranks of this rank's node, this one among them."""
    with of_node(comm) as node:
        return node.allgather(comm.rank)


def place_on_node(comm: Comm) -> int:
    """Which of the ranks of its node a rank is, from 0."""
    with of_node(comm) as node:
        return node.rank


def ping_pong(comm: Comm, pair: tuple[int, int], nbytes: int, trips: int) -> list[float]:
    """Seconds of each round trip of a message between two ranks, both of which call this."""
    buffer, seconds = np.zeros(nbytes, np.uint8), []
    other = pair[1] if comm.rank == pair[0] else pair[0]
    for _ in range(trips):
        began = time.perf_counter()
        if comm.rank == pair[0]:
            comm.Send(buffer, other)
            comm.Recv(buffer, other)
        else:
            comm.Recv(buffer, other)
            comm.Send(buffer, other)
        seconds.append(time.perf_counter() - began)
    return seconds


def share_of_cores(comm: Comm) -> int:
    """Cores for this rank, at least 1: those it may run on, shared with ranks that may too.

    Right whether the launcher binds ranks to cores of their own, or to none. At most its share of
    the quotas of its control groups, as in containers; and what Slurm was asked for a task, as not
    every cluster keeps jobs to their cores.
    """
    node = node_around(comm)
    sharers = Counter(core for cores in node.cores for core in cores)
    beside = Counter(group for quotas in node.quotas for group in quotas)
    share = int(sum(Fraction(1, sharers[core]) for core in node.cores[node.place]))
    for group, cores in node.quotas[node.place].items():
        share = min(share, round_half_up(cores / beside[group]))
    asked = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min(share, int(asked)) if asked.isdecimal() else share)


def crowded_node(comm: Comm, threads: int) -> str | None:
    """A warning if the ranks of a node use more threads than cores: of the worst node.

    Ranks of other groups are taken to use as many.
    """
    allowed = node_around(comm).cores
    ranks, cores = len(allowed), len(set().union(*allowed))
    with of_node(comm) as node:
        wanted = -(-sum(node.allgather(threads)) * ranks // node.size)
    mine = (host_name(), ranks, wanted, cores, os.cpu_count() or 1)
    host, ranks, threads, cores, of_host = max(comm.allgather(mine), key=lambda it: it[2] / it[3])
    if threads <= cores:
        return None
    ways = ["start fewer ranks", *(["set threads"] if threads > ranks else [])]
    if cores < of_host:
        ways.append("let the launcher bind ranks to more cores (--bind-to none)")
    return (
        f"the ranks on {host} use {threads} threads, but may run on {cores} of its {of_host} "
        f"cores, and wait for each other: {', or '.join(ways)}"
    )


def most_ranks_a_node(comm: Comm) -> int:
    """How many ranks the fullest node runs.

    May be the first thing that ranks do together: one that has failed before is heard here.
    """
    with agreed(comm):
        pass  # what such a rank meets in a split instead, it would wait for without end
    with of_node(comm) as node:
        size = node.size
    return int(maximum(comm, size))
