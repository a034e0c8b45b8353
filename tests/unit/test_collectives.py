"""Reductions in pieces, among threads that stand in for ranks."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from gcnmpi.core import volume
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.mpi import collectives, comm
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
    with ThreadPoolExecutor(SIZE) as threads:
        ranks = [Rank(r, sent, barrier) for r in range(SIZE)]
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
    for seats, message in (
        ([("a", one)], None),
        ([("a", one), ("a", two)], None),
        ([("a", one), ("b", one), ("b", two)], None),
        (
            [("a", one), *(("b", x) for x in (two, one, two, two))],
            f"ranks 1 and 3 share the GPU {two} of b",
        ),
        ([("a", None)], none),
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
        group, mine = (
            Group(rank, SciPyKernel(np.float64), traffic, Phases()),
            whole * (rank.rank + 1),
        )
        group.reduce_scatter(mine, piece, rows)
        counted = traffic["setup"]
        group.all_reduce(mine)
        return piece, counted, mine

    pieces, traffic, sums = zip(*on_ranks(one), strict=True)
    assert np.array_equal(np.concatenate(pieces), 6 * whole)
    assert all(np.array_equal(found, 6 * whole) for found in sums)
    for piece, counted in zip(pieces, traffic, strict=True):
        assert counted == volume.reduce_scatter(piece.nbytes, whole.nbytes, SIZE)
