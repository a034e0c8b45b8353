"""From one layout of the grid to another: rows and columns go straight to where they belong.

A layer of a network in which matrices of different layers meet (a residual connection, a root
weight) needs one of them in the layout of the other. Every rank sends the part of its piece that
another rank's piece contains, one message a pair of ranks at most; which of several equal copies
sends to a rank follows from that rank's number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import row_type, wait_all
from gcnmpi.schemes.tensor3d_forecast import TensorForecast

MOVE_TAG = 7
Part = tuple[int, np.ndarray, slice]
"""A rank, rows of this rank's piece, columns of it."""


Ids = Callable[[Place], np.ndarray]
Blocks = Callable[[np.ndarray, Place], np.ndarray]


class Mover:
    """The messages between two places.

    ``ids(place)`` are the global ids of this rank's rows at a place, ``blocks(ids, place)`` the
    numbers of the blocks of rows that vertices are in there.
    """

    def __init__(
        self,
        runtime: Runtime,
        forecast: TensorForecast,
        ids: Ids,
        blocks: Blocks,
        before: Place,
        after: Place,
    ) -> None:
        self._comm, self._kernel, self._forecast = runtime.comm, runtime.kernel, forecast
        self._phases, self._traffic = runtime.phases, runtime.traffic
        self._before, self._after = before, after
        # Where the rows of a piece are on the other side: block, and order within.
        self._leaving = _by_block(ids(before), blocks(ids(before), after))
        self._arriving = _by_block(ids(after), blocks(ids(after), before))
        self._parts: dict[int, tuple[list[Part], list[Part]]] = {}
        self._messages: dict[int, list[np.ndarray]] = {}

    def __call__(self, x: Array, width: int, out: Array) -> None:
        """out = x in the other layout."""
        sends, receives = self._parts_of(width)
        host, comm, phases = self._kernel.to_host(x), self._comm, self._phases
        if width not in self._messages:
            self._messages[width] = [
                np.empty((len(r), c.stop - c.start), host.dtype) for _, r, c in receives
            ]
        requests, kept = [], []
        with phases("pack"):
            for (peer, _, _), message in zip(receives, self._messages[width], strict=True):
                if peer != comm.rank:
                    with row_type(message) as row:
                        requests.append(comm.Irecv([message, len(message), row], peer, MOVE_TAG))
            for peer, rows, columns in sends:
                piece = np.ascontiguousarray(host[rows, columns])
                if peer == comm.rank:
                    at = [r[0] for r in receives].index(peer)
                    self._messages[width][at][...] = piece
                    continue
                kept.append(piece)
                with row_type(piece) as row:
                    requests.append(comm.Isend([piece, len(piece), row], peer, MOVE_TAG))
        self._traffic.count(self.volume(width))
        with phases("wait"):
            wait_all(requests)
        with phases("pack"):
            whole = np.empty(out.shape, host.dtype)
            for (_, rows, columns), message in zip(receives, self._messages[width], strict=True):
                whole[rows, columns] = message
            self._kernel.copy(self._kernel.from_host(whole), out)

    def volume(self, width: int) -> Volume:
        """Volume of a move, of this rank."""
        size = self._forecast.facts.itemsize
        sends, receives = self._parts_of(width)

        def numbers(parts: list[Part]) -> list[int]:
            return [len(r) * (c.stop - c.start) for p, r, c in parts if p != self._comm.rank]

        sent, received = numbers(sends), numbers(receives)
        return Volume(sum(sent) * size, sum(received) * size, len(sent))

    def _parts_of(self, width: int) -> tuple[list[Part], list[Part]]:
        """The parts that leave, and arrive; none is empty. Found once for each width."""
        if width not in self._parts:
            self._parts[width] = self._find_parts(width)
        return self._parts[width]

    def _find_parts(self, width: int) -> tuple[list[Part], list[Part]]:
        forecast, me = self._forecast, self._comm.rank
        ranks = range(self._comm.size)
        mine, new = (forecast.columns(me, at, width) for at in (self._before, self._after))
        sends, receives = [], []
        for other in ranks:
            if self._source(other, me):
                rows = self._leaving.get(forecast.coordinates(other, self._after)[0])
                theirs = forecast.columns(other, self._after, width)
                sends += _part(other, rows, mine, theirs)
            if self._source(me, other):
                rows = self._arriving.get(forecast.coordinates(other, self._before)[0])
                theirs = forecast.columns(other, self._before, width)
                receives += _part(other, rows, new, theirs)
        return sends, receives

    def _source(self, target: int, source: int) -> bool:
        """Whether of all copies of a piece it is this one that sends to a rank."""
        copies = self._forecast.holders(self._before).shape[2]
        return self._forecast.coordinates(source, self._before)[2] == target % copies


def _by_block(ids: np.ndarray, block: np.ndarray) -> dict[int, np.ndarray]:
    """Block of another place → rows of this rank's piece that are in it, by global id."""
    by_id = np.argsort(ids, kind="stable")
    return {int(b): by_id[block[by_id] == b] for b in np.unique(block)}


def _part(other: int, rows: np.ndarray | None, mine: slice, theirs: slice) -> list[Part]:
    start, stop = max(mine.start, theirs.start), min(mine.stop, theirs.stop)
    if rows is None or start >= stop:
        return []
    return [(other, rows, slice(start - mine.start, stop - mine.start))]
