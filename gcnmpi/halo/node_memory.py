"""The transport within a node: a rank reads the rows it needs where their owner has them.

Matrices to be exchanged live in memory that the ranks of a node have all mapped. Nothing is packed
and no message carries rows: the receiver takes the rows from its neighbour's memory, in one copy.
Two empty notes a pair of neighbours keep order: "my rows are there" and "I have read them". Rows
of other nodes travel in persistent messages as ever; only those ``comm.precision`` rounds.

The memory is that of files that never had a name: the system takes it back with the last process
that has it mapped, however that ends, and the size of ``/dev/shm`` does not matter. A window of
MPI would have to be freed by all ranks together, and matrices end when Python collects them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from gcnmpi.core.volume import Kept, Volume
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.transports import Ends, PersistentRoute, Route, Rows, Transport
from gcnmpi.kernels.interface.kernel import Array, Kernel, Sparse
from gcnmpi.mpi.comm import Comm, Prequest, agreed, free_with, persistent, start_all, wait_all
from gcnmpi.mpi.hosts import node_of
from partition.errors import UserError

READY_TAG, READ_TAG = 2, 3


class Shared(Transport):
    """Neighbours of one node read each other's memory; others send messages."""

    own_anywhere = False
    packs_sums = False

    def __init__(self, comm: Comm, plan: Plan, kernel: Kernel) -> None:
        super().__init__(comm, plan, kernel)
        mates = node_of(comm)
        sends = Rows.of(plan.send_rows, plan.send_peers, plan.send_offsets).only(mates)
        receives = Rows.of(plan.halo, plan.recv_peers, plan.recv_offsets).only(mates)
        self._near = sorted({*sends.places, *receives.places})
        self.kept = Kept(
            sum(len(rows) for _, rows in sends.blocks()), len(sends.places),
            sum(len(rows) for _, rows in receives.blocks()), len(receives.places),
        )  # fmt: skip
        # To those it sends to, a rank tells which rows; to those it receives from, where they go.
        rows, first = dict(sends.blocks()), plan.nown
        halo = {p: slice(first + h.start, first + h.stop) for p, h in receives.places.items()}
        self._there = _tell(comm, {p: (rows.get(p), halo.get(p)) for p in self._near})
        # A matrix takes a descriptor a neighbour, and many ranks may share a node.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    @classmethod
    def check(cls, comm: Comm, kernel: Kernel) -> None:
        """The kernel computes on the host, and ranks of a node can map each other's memory."""
        with agreed(comm):
            if not isinstance(kernel.empty(0, 0), np.ndarray):
                raise UserError(f"the kernel {kernel.name!r} does not compute in the host's memory")
        map_together(comm, 1, [rank for rank in node_of(comm) if rank != comm.rank])

    def buffer(self, rows: int, width: int) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """This rank's buffer, and those of its neighbours of this node."""
        dtype = self.kernel.dtype
        mapped = map_together(self.comm, rows * width * dtype.itemsize, self._near)
        arrays = {rank: memory.view(dtype).reshape(-1, width) for rank, memory in mapped.items()}
        return arrays.pop(self.comm.rank), arrays

    def pack(self, exchange: Ends, packing: Sparse | None = None) -> None:
        """The rows for other nodes only."""
        rows = self.plan.send_rows
        places = Rows.of(rows, self.plan.send_peers, self.plan.send_offsets).places
        for peer, place in places.items():
            if peer not in self._near:
                self.kernel.take_rows(exchange.own, rows[place], exchange.packed[place])

    def in_messages(self, peers: np.ndarray, offsets: np.ndarray) -> list[slice]:
        """The places of rows of other nodes."""
        places = Rows.of(offsets, peers, offsets).places
        return [place for peer, place in places.items() if peer not in self._near]

    def routes(self, exchange: Ends, outer: Rows, inner: Rows) -> tuple[Route, Route]:
        """Expand: single rows of the neighbour's own ones; fold: a block of its halo."""
        near, there, kernel = exchange.near, self._there, self.kernel
        halo, packed = Rows(exchange.halo, inner.places), Rows(exchange.packed, outer.places)

        def expand(peer: int, block: Array) -> None:
            kernel.take_rows(near[peer], there[peer][0], block)

        def fold(peer: int, block: Array) -> None:
            kernel.copy(near[peer][there[peer][1]], block)

        return (
            _SharedRoute(self.comm, outer, inner, halo, self._near, expand),
            _SharedRoute(self.comm, inner, outer, packed, self._near, fold),
        )


class _SharedRoute:
    """Messages to other nodes; on this one notes, between which rows are read.

    ``rows`` are those of the target in the end; ``read(peer, block)`` fills those that come from
    one of the neighbours of this node, ``near``.
    """

    def __init__(
        self,
        comm: Comm,
        source: Rows,
        target: Rows,
        rows: Rows,
        near: list[int],
        read: Callable[[int, Array], None],
    ) -> None:
        far = [peer for peer in {**source.places, **target.places} if peer not in near]
        self._far = PersistentRoute(comm, source.only(far), target.only(far))
        self._target, self._read = rows.only(near), read
        self.moved = self._far.moved + Volume(shared=self._target.nbytes)
        readers, owners = source.only(near).places, self._target.places
        self._said_ready, self._say_ready = _notes(comm, READY_TAG, owners, readers)
        self._said_read, self._say_read = _notes(comm, READ_TAG, readers, owners)
        notes = self._said_ready + self._say_ready + self._said_read + self._say_read
        free_with(self, notes)

    def receive(self) -> None:
        self._far.receive()
        start_all(self._said_ready + self._said_read)

    def send(self) -> None:
        start_all(self._say_ready)
        self._far.send()

    def wait(self) -> None:
        wait_all(self._said_ready)
        for peer, block in self._target.blocks():
            self._read(peer, block)
        start_all(self._say_read)
        self._far.wait()
        wait_all(self._say_ready + self._said_read + self._say_read)


def map_together(comm: Comm, nbytes: int, others: list[int]) -> dict[int, np.ndarray]:
    """``nbytes`` of memory of this rank that others of its node map too, and theirs: rank → bytes.

    The others name this rank among theirs. A UserError is raised on all ranks if one has not got
    the memory, or cannot map that of another.
    """
    with contextlib.ExitStack() as stack:
        with agreed(comm), _explained():
            file = stack.enter_context(open(os.memfd_create("gcnmpi"), "r+b"))
            os.ftruncate(file.fileno(), max(1, nbytes))  # nothing cannot be mapped
            memory = {comm.rank: _mapped(file, nbytes)}
        mine = (os.getpid(), file.fileno(), os.fstat(file.fileno()).st_ino, nbytes)
        told = _tell(comm, dict.fromkeys(others, mine))
        with agreed(comm), _explained():
            for peer, (process, number, inode, size) in told.items():
                with open(f"/proc/{process}/fd/{number}", "r+b") as opened:
                    # In containers of their own, two processes may have one number.
                    if os.fstat(opened.fileno()).st_ino != inode:
                        raise ValueError("another process has the number of its process")
                    memory[peer] = _mapped(opened, size)
    return memory


def _mapped(file: BinaryIO, nbytes: int) -> np.ndarray:
    memory = mmap.mmap(file.fileno(), max(1, nbytes))
    with contextlib.suppress(OSError):  # not every system has them
        memory.madvise(mmap.MADV_HUGEPAGE)  # as NumPy asks for its own
    return np.frombuffer(memory, np.uint8)[:nbytes]


def _notes(
    comm: Comm, tag: int, sources: Iterable[int], targets: Iterable[int]
) -> tuple[list[Prequest], list[Prequest]]:
    """Requests for messages of no bytes from some ranks, and to others."""
    empty: np.ndarray = np.empty((0, 1), np.uint8)
    return (
        persistent(comm, ((peer, empty) for peer in sources), receive=True, tag=tag),
        persistent(comm, ((peer, empty) for peer in targets), receive=False, tag=tag),
    )


def _tell(comm: Comm, what: dict[int, Any]) -> dict[int, Any]:
    """Send each of some ranks something; what each of the same ranks sent."""
    requests = [comm.isend(value, peer, READY_TAG) for peer, value in what.items()]
    told = {peer: comm.recv(source=peer, tag=READY_TAG) for peer in what}
    wait_all(requests)
    return told


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise UserError(f"ranks of a node cannot map each other's memory ({error})") from error
