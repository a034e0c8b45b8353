"""Collectives among the ranks that share a row, column or fiber of a process grid, counted.

All arrays are C-contiguous, of NumPy or of the kernel. Counts may pass 2³¹: arrays travel in units
of rows. Reductions are made in pieces, because an MPI library takes memory of its own for one, up
to twice the size of what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gcnmpi.core import volume
from gcnmpi.core.arrays import Array, Memory
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.mpi.comm import (
    IN_PLACE,
    MAX,
    MIN,
    REDUCED_AT_ONCE,
    SUM,
    Comm,
    Op,
    Request,
    reduce_in_place,
    row_type,
    slice_of,
    wait_all,
)

LONGEST = 1 << 30  # numbers that are reduced at once in the background


class Group:
    """The ranks of ``comm``, which call every method here together.

    Arrays of the kernel travel, or NumPy's. Bytes are counted in ``traffic``, waiting in
    ``phases`` as "wait".
    """

    def __init__(self, comm: Comm, kernel: Memory[Array], traffic: Traffic, phases: Phases) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self._kernel, self._traffic, self._phases = kernel, traffic, phases

    def broadcast(self, array: Array, root: int) -> None:
        """Bring the root's array to all ranks."""
        if self.size > 1 and array.nbytes:
            message = self._to_broadcast(array, root)
            with self._phases("wait"), row_type(message) as row:
                self.comm.Bcast([message, len(message), row], root)
            if self.rank != root:
                self._take(message, array)

    def start_broadcast(self, array: Array, root: int) -> Pending:
        """Begin a broadcast: the array is not touched until the wait is over."""
        if self.size == 1 or not array.nbytes:
            return Pending([], self._phases)
        message = self._to_broadcast(array, root, staged=True)
        with self._phases("wait"), row_type(message) as row:
            request = self.comm.Ibcast([message, len(message), row], root)
        if self.rank == root:
            return Pending([request], self._phases)
        return Pending([request], self._phases, lambda: self._take(message, array))

    def reduce(self, array: Array, root: int) -> None:
        """The sum of all arrays on the root, in place; those of others stay."""
        if self.size > 1 and array.nbytes:
            self._traffic.count(volume.reduction(array.nbytes, self.size, self.rank == root))
            message = self._filled(array)
            with self._phases("wait"):
                reduce_in_place(self.comm, message, SUM, root)
            if self.rank == root:
                self._take(message, array)

    def all_gather(self, piece: Array, whole: Array, rows: Sequence[int]) -> None:
        """Put the pieces, (rows[rank], …), one below the other: ``whole``, (sum(rows), …)."""
        if self.size == 1:
            self._kernel.copy(piece, whole)
            return
        self._traffic.count(volume.all_gather(piece.nbytes, whole.nbytes, self.size))
        sent, received = self._filled(piece), self._kernel.message(whole)
        with self._phases("wait"), row_type(received) as row:
            places = np.cumsum(rows) - rows
            self.comm.Allgatherv([sent, len(sent), row], [received, (rows, places), row])
        self._take(received, whole)

    def all_to_all(self, leaving: Sequence[Array], arriving: Sequence[Array]) -> None:
        """Send ``leaving[q]`` to each rank q, which receives it as its ``arriving[rank]``.

        Matrices, (…, columns). Empty ones do not travel, and the own one is copied.
        """
        self._kernel.copy(leaving[self.rank], arriving[self.rank])
        # Each rank begins with another one, so that no rank hears all others at once.
        others = [(self.rank + step) % self.size for step in range(1, self.size)]
        sent = [(q, self._filled(leaving[q])) for q in others if leaving[q].nbytes]
        received = [
            (q, self._kernel.message(arriving[q])) for q in reversed(others) if arriving[q].nbytes
        ]
        out, into = (sum(message.nbytes for _, message in some) for some in (sent, received))
        self._traffic.count(volume.Volume(out, into, len(sent)))
        requests: list[Request] = []
        with self._phases("wait"):
            for moves, start in ((received, self.comm.Irecv), (sent, self.comm.Isend)):
                for q, message in moves:
                    with row_type(message) as row:
                        requests.append(start([message, len(message), row], q))
            wait_all(requests)
        for q, message in received:
            self._take(message, arriving[q])

    def all_reduce(self, array: Array, op: Op = SUM) -> None:
        """The sum of all arrays (or MAX, MIN), in place."""
        if self.size > 1:
            self._traffic.count(volume.all_reduce(array.nbytes, self.size))
            message = self._filled(array)
            with self._phases("wait"):
                reduce_in_place(self.comm, message, op)
            self._take(message, array)

    def start_all_reduce(self, array: Array, op: Op = SUM) -> Pending:
        """Begin the sum of all arrays (or MAX, MIN), in place."""
        if self.size == 1:
            return Pending([], self._phases)
        self._traffic.count(volume.all_reduce(array.nbytes, self.size))
        message = self._filled(array, staged=True)
        with self._phases("wait"):
            flat = message.reshape(-1)
            starts = range(0, max(1, len(flat)), LONGEST)
            pieces = [flat[start : start + LONGEST] for start in starts]
            requests = [self.comm.Iallreduce(IN_PLACE, piece, op) for piece in pieces]
        return Pending(requests, self._phases, lambda: self._take(message, array))

    def reduce_scatter(self, whole: Array, piece: Array, rows: Sequence[int]) -> None:
        """Sum the arrays ``whole``, (sum(rows), …); each rank gets a piece, (rows[rank], …)."""
        if self.size == 1:
            self._kernel.copy(whole, piece)
            return
        self._traffic.count(volume.reduce_scatter(piece.nbytes, whole.nbytes, self.size))
        # The host packs pieces: a device would still be at it when MPI reads them.
        staged = whole.nbytes > REDUCED_AT_ONCE
        sent, received = self._filled(whole, staged), self._kernel.message(piece, staged)
        with self._phases("wait"):
            self._reduce_scatter(sent, received, rows)
        self._take(received, piece)

    def _reduce_scatter(self, whole: Array, piece: Array, rows: Sequence[int]) -> None:
        """In pieces: some rows of every rank's share, packed one below the other, at once."""
        width = whole[:1].size if len(whole) else 0
        pieces = -(-whole.nbytes // REDUCED_AT_ONCE)
        if pieces <= 1:
            self.comm.Reduce_scatter(whole, piece, [count * width for count in rows])
            return
        starts = np.cumsum(rows) - rows
        packed = whole[: sum(-(-count // pieces) for count in rows)].copy()
        for number in range(pieces):
            parts = [slice_of(count, number, pieces) for count in rows]
            counts = [part.stop - part.start for part in parts]
            first = 0
            for start, part, count in zip(starts, parts, counts, strict=True):
                packed[first : first + count] = whole[start + part.start : start + part.stop]
                first += count
            sizes = [count * width for count in counts]
            self.comm.Reduce_scatter(packed[:first], piece[parts[self.rank]], sizes)

    def _to_broadcast(self, array: Array, root: int, staged: bool = False) -> Array:
        self._traffic.count(volume.broadcast(array.nbytes, self.size, self.rank == root))
        if self.rank == root:
            return self._filled(array, staged)
        return self._kernel.message(array, staged)

    def _filled(self, array: Array, staged: bool = False) -> Array:
        """The message of an array, to be sent; ``staged`` for collectives in the background."""
        with self._phases("pack"):
            message = self._kernel.message(array, staged)
            self._kernel.to_message(array, message)
            self._kernel.before_sending()
        return message

    def _take(self, message: Array, array: Array) -> None:
        with self._phases("pack"):
            self._kernel.from_message(message, array)


def reduction_scratch(nbytes: int, scatter: bool = False) -> int:
    """Bytes that the sum of an array of ``nbytes`` over ranks takes beside it, about.

    Open MPI takes half of a piece for an all-reduce, and 1.5 times a piece for a reduce-scatter
    (``scatter``), for which several pieces are packed before.
    """
    piece = min(nbytes, REDUCED_AT_ONCE)
    if not scatter:
        return piece // 2
    return 3 * piece // 2 + (piece if nbytes > REDUCED_AT_ONCE else 0)


class Pending:
    """A collective under way; ``then`` is called when what it brings is there."""

    def __init__(
        self, requests: Sequence[Request], phases: Phases, then: Callable[[], None] = lambda: None
    ) -> None:
        self._requests, self._phases, self._then = requests, phases, then

    def wait(self) -> None:
        """Wait until the collective is complete."""
        with self._phases("wait"):
            wait_all(self._requests)
        self._requests = []
        self._then()

    def progress(self) -> None:
        """Let the library work on it for a moment."""
        for request in self._requests:
            request.Test()


__all__ = ["LONGEST", "MAX", "MIN", "SUM", "Group", "Pending", "reduction_scratch"]
