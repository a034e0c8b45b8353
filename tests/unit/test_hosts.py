"""The cores that a rank may use."""

import contextlib
import os

import pytest

from gcnmpi.mpi import hosts


class Node:
    """A node of so many ranks, all of which may run on the same cores."""

    def __init__(self, ranks):
        self.ranks = ranks

    def allgather(self, cores):
        return [cores] * self.ranks


@pytest.mark.parametrize(
    ("ranks", "asked", "threads"),
    [(1, None, 8), (3, None, 2), (20, None, 1), (1, "4", 4), (4, "4", 2), (1, "0", 1), (1, "", 8)],
)
def test_a_rank_takes_its_share_and_no_more_than_was_asked_for(monkeypatch, ranks, asked, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(hosts, "of_node", lambda comm: contextlib.nullcontext(Node(ranks)))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if asked is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", asked)
    assert hosts.share_of_cores(None) == threads
