"""The cores that a rank may use."""

import contextlib
import os

import pytest

from gcnmpi.mpi import hosts


class Node:
    """A node of so many ranks, all of which may run on the same cores."""

    rank = 0

    def __init__(self, ranks):
        self.size = ranks

    def allgather(self, mine):
        return [mine] * self.size


class Ranks:
    """All ranks of one node."""

    def allgather(self, mine):
        return [mine]


@pytest.mark.parametrize(
    ("ranks", "asked", "quota", "threads"),
    [(1, None, 0, 8), (3, None, 0, 2), (20, None, 0, 1), (1, "4", 0, 4), (4, "4", 0, 2),
     (1, "0", 0, 1), (1, "", 0, 8), (1, None, 1.5, 2), (2, None, 1.5, 1), (2, None, 100, 4),
     (1, "1", 1.5, 1), (1, None, 0.1, 1)],
)  # fmt: skip
def test_a_rank_takes_its_share_and_no_more_than_was_asked_for(
    monkeypatch, ranks, asked, quota, threads
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(hosts, "core_quotas", lambda: {"a group": quota} if quota else {})
    monkeypatch.setattr(hosts, "of_node", lambda comm: contextlib.nullcontext(Node(ranks)))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if asked is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", asked)
    assert hosts.share_of_cores(None) == threads


@pytest.mark.parametrize(
    ("ranks", "threads", "bound", "says", "never"),
    [
        (4, 2, False, "start fewer ranks, or set threads", "bind"),
        (9, 1, False, "start fewer ranks", "set threads"),
        (3, 2, True, "set threads, or let the launcher bind ranks to more cores", "nothing"),
    ],
)
def test_the_hint_of_a_crowded_node_helps_there(monkeypatch, ranks, threads, bound, says, never):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1} if bound else set(range(7)))
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(hosts, "host_name", lambda: "here")  # MPI's, which has not begun
    monkeypatch.setattr(hosts, "of_node", lambda comm: contextlib.nullcontext(Node(ranks)))
    warning = hosts.crowded_node(Ranks(), threads)
    advice = warning.partition(": ")[2]
    assert f"use {ranks * threads} threads, but may run on {2 if bound else 7} of its 7" in warning
    assert says in advice
    assert never not in advice
    assert hosts.crowded_node(Ranks(), 0) is None


@pytest.mark.parametrize(
    ("named", "size", "torn"),
    [("aabb", 2, 0), ("abbb", 2, 1), ("aabb", 4, 0), ("aaabbb", 2, 1), ("abcabc", 2, 3)],
)
def test_groups_that_lie_on_several_hosts_without_need(named, size, torn):
    assert hosts.torn_groups(list(named), size) == torn
