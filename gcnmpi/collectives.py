"""Collectives among the ranks that share a row, column or fiber of a process grid, counted.

All arrays are C-contiguous NumPy arrays. Counts may pass 2³¹: arrays travel in units of rows, and
reductions in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from gcnmpi import volume
from gcnmpi.comm import IN_PLACE, MAX, MIN, SUM, Comm, row_type, wait_all
from gcnmpi.timing import Phases, Traffic

LONGEST = 1 << 30  # numbers that are reduced at once


class Group:
    """Some ranks, which call every method here together.

    Parameters
    ----------
    comm : communicator
        Of these ranks only.
    traffic, phases
        Where bytes are counted, and the time of waiting ("wait").
    """

    def __init__(self, comm: Comm, traffic: Traffic, phases: Phases) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._traffic, self._phases = traffic, phases

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """The root's array to all."""
        if self.size > 1 and array.nbytes:
            self._count_broadcast(array, root)
            with self._phases("wait"), row_type(array) as row:
                self.comm.Bcast([array, len(array), row], root)

    def start_broadcast(self, array: np.ndarray, root: int) -> Pending:
        """The same, in the background: the array is not touched until the wait is over."""
        if self.size == 1 or not array.nbytes:
            return Pending([], self._phases)
        self._count_broadcast(array, root)
        with self._phases("wait"), row_type(array) as row:
            request = self.comm.Ibcast([array, len(array), row], root)
        return Pending([request], self._phases)

    def all_gather(self, piece: np.ndarray, whole: np.ndarray, rows: Sequence[int]) -> None:
        """The pieces of all, one below the other.

        Parameters
        ----------
        piece : (rows[rank], …) array
        whole : (sum(rows), …) array
        rows : sequence of int
            Rows of every rank's piece.
        """
        if self.size == 1:
            np.copyto(whole, piece)
            return
        self._traffic.count(volume.all_gather(piece.nbytes, whole.nbytes, self.size))
        with self._phases("wait"), row_type(whole) as row:
            places = np.cumsum(rows) - rows
            self.comm.Allgatherv([piece, len(piece), row], [whole, (rows, places), row])

    def all_reduce(self, array: np.ndarray, op: Any = SUM) -> None:
        """The sum of all arrays (or MAX, MIN), in place."""
        if self.size > 1:
            self._traffic.count(volume.all_reduce(array.nbytes, self.size))
            with self._phases("wait"):
                for piece in _pieces(array):
                    self.comm.Allreduce(IN_PLACE, piece, op)

    def start_all_reduce(self, array: np.ndarray, op: Any = SUM) -> Pending:
        """The same, in the background."""
        if self.size == 1:
            return Pending([], self._phases)
        self._traffic.count(volume.all_reduce(array.nbytes, self.size))
        with self._phases("wait"):
            requests = [self.comm.Iallreduce(IN_PLACE, piece, op) for piece in _pieces(array)]
        return Pending(requests, self._phases)

    def reduce_scatter(self, whole: np.ndarray, piece: np.ndarray, rows: Sequence[int]) -> None:
        """The sum of all arrays, of which every rank gets its rows.

        Parameters
        ----------
        whole : (sum(rows), …) array
        piece : (rows[rank], …) array
        rows : sequence of int
            Rows that each rank gets.
        """
        if self.size == 1:
            np.copyto(piece, whole)
            return
        self._traffic.count(volume.reduce_scatter(piece.nbytes, whole.nbytes, self.size))
        with self._phases("wait"):
            if whole.size <= LONGEST:
                width = whole[:1].size if len(whole) else 0
                self.comm.Reduce_scatter(whole, piece, [count * width for count in rows])
                return
            bounds = np.cumsum([0, *rows])
            for root, (start, stop) in enumerate(pairwise(bounds)):
                targets = _pieces(piece) if root == self.rank else repeat(None)
                for source, target in zip(_pieces(whole[start:stop]), targets, strict=False):
                    self.comm.Reduce(source, target, SUM, root)

    def _count_broadcast(self, array: np.ndarray, root: int) -> None:
        self._traffic.count(volume.broadcast(array.nbytes, self.size, self.rank == root))


def _pieces(array: np.ndarray) -> list[np.ndarray]:
    """The numbers of an array, cut so that a reduction counts them in 32 bits."""
    flat = array.reshape(-1)
    return [flat[start : start + LONGEST] for start in range(0, max(1, len(flat)), LONGEST)]


class Pending:
    """A collective under way."""

    def __init__(self, requests: list, phases: Phases) -> None:
        self._requests, self._phases = requests, phases

    def wait(self) -> None:
        """Complete it."""
        with self._phases("wait"):
            wait_all(self._requests)
        self._requests = []

    def progress(self) -> None:
        """Let the library work on it for a moment."""
        for request in self._requests:
            request.Test()


__all__ = ["LONGEST", "MAX", "MIN", "SUM", "Group", "Pending"]
