"""Collectives among the ranks that share a row, column or fiber of a process grid, counted.

All arrays are C-contiguous, of NumPy or of the kernel. Counts may pass 2³¹: arrays travel in units
of rows, and reductions in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    kernel : kernel
        Whose arrays travel, or NumPy's.
    traffic, phases
        Where bytes are counted, and the time of waiting ("wait").
    """

    def __init__(self, comm: Comm, kernel: Any, traffic: Traffic, phases: Phases) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._kernel, self._traffic, self._phases = kernel, traffic, phases

    def broadcast(self, array: Any, root: int) -> None:
        """The root's array to all."""
        if self.size > 1 and array.nbytes:
            message = self._to_broadcast(array, root)
            with self._phases("wait"), row_type(message) as row:
                self.comm.Bcast([message, len(message), row], root)
            if self.rank != root:
                self._take(message, array)

    def start_broadcast(self, array: Any, root: int) -> Pending:
        """The same, in the background: the array is not touched until the wait is over."""
        if self.size == 1 or not array.nbytes:
            return Pending([], self._phases)
        message = self._to_broadcast(array, root)
        with self._phases("wait"), row_type(message) as row:
            request = self.comm.Ibcast([message, len(message), row], root)
        if self.rank == root:
            return Pending([request], self._phases)
        return Pending([request], self._phases, lambda: self._take(message, array))

    def all_gather(self, piece: Any, whole: Any, rows: Sequence[int]) -> None:
        """The pieces of all, one below the other.

        Parameters
        ----------
        piece : (rows[rank], …) array
        whole : (sum(rows), …) array
        rows : sequence of int
            Rows of every rank's piece.
        """
        if self.size == 1:
            self._kernel.copy(piece, whole)
            return
        self._traffic.count(volume.all_gather(piece.nbytes, whole.nbytes, self.size))
        sent, received = self._filled(piece), self._kernel.message(whole)
        with self._phases("wait"), row_type(received) as row:
            places = np.cumsum(rows) - rows
            self.comm.Allgatherv([sent, len(sent), row], [received, (rows, places), row])
        self._take(received, whole)

    def all_reduce(self, array: Any, op: Any = SUM) -> None:
        """The sum of all arrays (or MAX, MIN), in place."""
        if self.size > 1:
            self._traffic.count(volume.all_reduce(array.nbytes, self.size))
            message = self._filled(array)
            with self._phases("wait"):
                for piece in _pieces(message):
                    self.comm.Allreduce(IN_PLACE, piece, op)
            self._take(message, array)

    def start_all_reduce(self, array: Any, op: Any = SUM) -> Pending:
        """The same, in the background."""
        if self.size == 1:
            return Pending([], self._phases)
        self._traffic.count(volume.all_reduce(array.nbytes, self.size))
        message = self._filled(array)
        with self._phases("wait"):
            requests = [self.comm.Iallreduce(IN_PLACE, piece, op) for piece in _pieces(message)]
        return Pending(requests, self._phases, lambda: self._take(message, array))

    def reduce_scatter(self, whole: Any, piece: Any, rows: Sequence[int]) -> None:
        """The sum of all arrays, of which every rank gets its rows.

        Parameters
        ----------
        whole : (sum(rows), …) array
        piece : (rows[rank], …) array
        rows : sequence of int
            Rows that each rank gets.
        """
        if self.size == 1:
            self._kernel.copy(whole, piece)
            return
        self._traffic.count(volume.reduce_scatter(piece.nbytes, whole.nbytes, self.size))
        sent, received = self._filled(whole), self._kernel.message(piece)
        with self._phases("wait"):
            self._reduce_scatter(sent, received, rows)
        self._take(received, piece)

    def _reduce_scatter(self, whole: Any, piece: Any, rows: Sequence[int]) -> None:
        if whole.size <= LONGEST:
            width = whole[:1].size if len(whole) else 0
            self.comm.Reduce_scatter(whole, piece, [count * width for count in rows])
            return
        bounds = np.cumsum([0, *rows])
        for root, (start, stop) in enumerate(pairwise(bounds)):
            targets = _pieces(piece) if root == self.rank else repeat(None)
            for source, target in zip(_pieces(whole[start:stop]), targets, strict=False):
                self.comm.Reduce(source, target, SUM, root)

    def _to_broadcast(self, array: Any, root: int) -> Any:
        self._traffic.count(volume.broadcast(array.nbytes, self.size, self.rank == root))
        return self._filled(array) if self.rank == root else self._kernel.message(array)

    def _filled(self, array: Any) -> Any:
        """What MPI sends for an array."""
        with self._phases("pack"):
            message = self._kernel.message(array)
            self._kernel.to_message(array, message)
        return message

    def _take(self, message: Any, array: Any) -> None:
        with self._phases("pack"):
            self._kernel.from_message(message, array)


def _pieces(array: Any) -> list[Any]:
    """The numbers of an array, cut so that a reduction counts them in 32 bits."""
    flat = array.reshape(-1)
    return [flat[start : start + LONGEST] for start in range(0, max(1, len(flat)), LONGEST)]


class Pending:
    """A collective under way; ``then`` is called when what it brings is there."""

    def __init__(
        self, requests: list, phases: Phases, then: Callable[[], None] = lambda: None
    ) -> None:
        self._requests, self._phases, self._then = requests, phases, then

    def wait(self) -> None:
        """Complete it."""
        with self._phases("wait"):
            wait_all(self._requests)
        self._requests = []
        self._then()

    def progress(self) -> None:
        """Let the library work on it for a moment."""
        for request in self._requests:
            request.Test()


__all__ = ["LONGEST", "MAX", "MIN", "SUM", "Group", "Pending"]
