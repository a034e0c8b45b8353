"""Reductions in pieces, among threads that stand in for ranks; their devices, cores and hosts."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, current_thread, main_thread
from unittest.mock import Mock

import numpy as np
import pytest

from gcnmpi.core import volume
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.mpi import collectives, comm, hosts
from gcnmpi.mpi.collectives import Group, reduction_scratch
from gcnmpi.mpi.reduction import shared_device

SIZE, AT_ONCE = 3, 64


class Rank:
    """A communicator of a thread, of which ``sent`` and ``barrier`` are everybody's."""

    size = SIZE

    def __init__(self, rank, sent, barrier):
        self.rank, self._sent, self._barrier = rank, sent, barrier
        self.largest = 0

    def _sum(self, array):
        self.largest = max(self.largest, array.nbytes)
        self._sent[self.rank] = array.copy()
        self._barrier.wait(10)
        total = np.sum(self._sent, axis=0)
        self._barrier.wait(10)
        return total

    def Allreduce(self, _, array, op):
        array[...] = self._sum(array)

    def Reduce_scatter(self, whole, piece, sizes):
        stop = sum(sizes[: self.rank + 1])
        assert piece.size == sizes[self.rank]
        piece.reshape(-1)[...] = self._sum(whole.reshape(-1))[stop - piece.size : stop]


def on_ranks(function):
    sent, barrier = [None] * SIZE, Barrier(SIZE)
    ranks = [Rank(r, sent, barrier) for r in range(SIZE)]
    with ThreadPoolExecutor(SIZE) as threads:
        results = list(threads.map(function, ranks))
    assert max(rank.largest for rank in ranks) <= AT_ONCE + 8 * 6 * SIZE  # a row of each more
    return results


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(collectives, "REDUCED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(comm, "REDUCED_AT_ONCE", AT_ONCE)


def test_what_collectives_move():
    """All ranks together receive what they send; and the room of a reduction has a bound."""
    of = volume.Volume
    assert volume.all_reduce(80, 4) == of(120, 120, 6)  # twice 3/4 of it
    assert volume.all_gather(20, 80, 4) == of(60, 60, 3)
    assert volume.reduce_scatter(20, 80, 4) == of(60, 60, 3)
    assert [volume.broadcast(80, 4, root) for root in (True, False)] == [of(240, 0, 3), of(0, 80)]
    assert [volume.reduction(80, 4, root) for root in (True, False)] == [of(0, 240), of(80, 0, 1)]
    assert volume.broadcast(0, 4, True) == volume.reduction(0, 4, False) == volume.NOTHING
    assert [reduction_scratch(n) for n in (40, 10**9)] == [20, AT_ONCE // 2]
    assert [reduction_scratch(n, scatter=True) for n in (40, 10**9)] == [60, 5 * AT_ONCE // 2]


# Which ranks have a device of their own, and what MPI gets of devices' memory.


def test_devices_of_their_own():
    """Devices of two hosts have equal addresses."""
    one, two = "0000:3B:00.0", "0000:AF:00.0"
    none = "the kernel does not compute on a GPU"
    shared = [("a", one), *(("b", x) for x in (two, one, two, two))]
    for seats, message in (
        ([("a", one), ("b", one), ("b", two)], None),
        (shared, f"ranks 1 and 3 share the GPU {two} of b"),
        ([("a", one), ("a", None)], none),
    ):
        assert getattr(shared_device(seats), "message", None) == message


@pytest.mark.parametrize("rows", [(0, 0, 0), (1, 0, 2), (3, 3, 3), (0, 50, 1), (20, 31, 17)])
@pytest.mark.parametrize("width", [0, 1, 6])
def test_reductions_in_pieces(rows, width):
    shape = (sum(rows), width)
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape)

    def one(rank):
        traffic, piece = Traffic(), np.full((rows[rank.rank], width), np.nan)
        group = Group(rank, SciPyKernel(np.float64), traffic, Phases())
        mine = whole * (rank.rank + 1)
        group.reduce_scatter(mine, piece, rows)
        counted = traffic["setup"]
        group.all_reduce(mine)
        return piece, counted, mine

    pieces, traffic, sums = zip(*on_ranks(one), strict=True)
    assert np.array_equal(np.concatenate(pieces), 6 * whole)
    assert all(np.array_equal(found, 6 * whole) for found in sums)
    for piece, counted in zip(pieces, traffic, strict=True):
        assert counted == volume.reduce_scatter(piece.nbytes, whole.nbytes, SIZE)


# The cores that a rank may use.


class Node:
    """A node of so many ranks, all of which may run on the same cores."""

    rank = 0

    def __init__(self, ranks):
        self.size = ranks

    def allgather(self, mine):
        return [mine] * self.size


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
    [(4, 2, False, "start fewer ranks, or set threads", "bind"),
     (9, 1, False, "start fewer ranks", "set threads"),
     (3, 2, True, "set threads, or let the launcher bind ranks to more cores", "nothing")],
)  # fmt: skip
def test_the_hint_of_a_crowded_node_helps_there(monkeypatch, ranks, threads, bound, says, never):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1} if bound else set(range(7)))
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(hosts, "host_name", lambda: "here")  # MPI's, which has not begun
    monkeypatch.setattr(hosts, "of_node", lambda comm: contextlib.nullcontext(Node(ranks)))
    warning = hosts.crowded_node(Node(1), threads)
    advice = warning.partition(": ")[2]
    assert f"use {ranks * threads} threads, but may run on {2 if bound else 7} of its 7" in warning
    assert says in advice
    assert never not in advice
    assert hosts.crowded_node(Node(1), 0) is None


def test_groups_that_lie_on_several_hosts_without_need():
    for named, size, torn in (("aabb", 2, 0), ("aabb", 4, 0), ("aaabbb", 2, 1), ("abcabc", 2, 3)):
        assert hosts.torn_groups(list(named), size) == torn


def test_what_another_thread_collects_is_freed_by_the_main_one(monkeypatch):
    owners, freed_by = [Mock()], []
    main = {"Is_thread_main": lambda: current_thread() is main_thread()}
    monkeypatch.setattr(comm, "MPI", Mock(Is_finalized=lambda: False, **main))
    comm.when_collected(owners[0], lambda: freed_by.append(current_thread()))
    with ThreadPoolExecutor(1) as threads:
        threads.submit(owners.clear)
    comm.do_due()
    assert freed_by == [main_thread()]
