"""The transport within a node: a rank reads the rows it needs where their owner has them.

Matrices to be exchanged live in memory that the ranks of a node have all mapped. Nothing is packed
and no message carries rows: the receiver takes the rows from its neighbour's memory, in one copy.
Two empty notes a pair of neighbours keep order: "my rows are there" and "I have read them". Rows
of other nodes travel in persistent messages as ever.

The memory is that of files without names. A window of MPI would do the same, but must be freed by
all ranks together, and matrices end when Python collects them, on each rank in its own time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcnmpi.comm import Comm, agreed, free_with, node_of, persistent, start_all, wait_all
from gcnmpi.exchange import Exchange, PersistentRoute, Route, Rows
from gcnmpi.plan import Plan
from gcnmpi.volume import Kept, Volume
from partition.errors import UserError

FOLDER = "/dev/shm"  # a file system in memory
READY_TAG, READ_TAG = 2, 3


class Shared(Exchange):
    """Neighbours of one node read each other's memory; others send messages."""

    on_host = True

    @classmethod
    def kept(cls, comm: Comm, plan: Plan) -> Kept:
        """The rows of neighbours of this node."""
        mates = node_of(comm)
        sends, receives = np.isin(plan.send_peers, mates), np.isin(plan.recv_peers, mates)
        return Kept(
            int(np.diff(plan.send_offsets)[sends].sum()),
            int(np.count_nonzero(sends)),
            int(np.diff(plan.recv_offsets)[receives].sum()),
            int(np.count_nonzero(receives)),
        )

    @staticmethod
    def has_room() -> bool:
        """Whether a good part of the memory may be shared; in containers it is often little."""
        try:
            file_system = os.statvfs(FOLDER)
        except OSError:
            return False
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return file_system.f_bavail * file_system.f_frsize > memory / 4

    def _connect(self) -> _Neighbourhood:
        return _neighbourhood(self._comm, self._plan)

    def _room(self, rows: int, width: int) -> Any:
        """This rank's buffer; those of its neighbours are mapped as well."""
        dtype = self._kernel.dtype
        buffers = map_together(self._comm, rows * width * dtype.itemsize, self._link.near)
        self._whole_of = {
            rank: memory.view(dtype).reshape(-1, width) for rank, memory in buffers.items()
        }
        return self._whole_of[self._comm.rank]

    def _pack(self) -> None:
        """The rows for other nodes only."""
        plan = self._plan
        for i in np.flatnonzero(~self._link.near_send):
            block = slice(plan.send_offsets[i], plan.send_offsets[i + 1])
            self._kernel.take_rows(self.own, plan.send_rows[block], self.packed[block])

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        link, take = self._link, self._kernel.take_rows
        near_in, near_out = inner.only(link.near_recv), outer.only(link.near_send)
        far_in, far_out = inner.only(~link.near_recv), outer.only(~link.near_send)

        def expand() -> None:
            for (peer, block), rows in zip(near_in.blocks(), link.rows_there, strict=True):
                take(self._whole_of[peer], rows, block)

        def fold() -> None:
            for (peer, block), start in zip(near_out.blocks(), link.halo_there, strict=True):
                np.copyto(block, self._whole_of[peer][start : start + len(block)])

        return (
            _SharedRoute(self._comm, far_out, far_in, near_out.peers, near_in, expand),
            _SharedRoute(self._comm, far_in, far_out, near_in.peers, near_out, fold),
        )


@dataclass(frozen=True)
class _Neighbourhood:
    """What a rank knows of its neighbours on its node.

    Attributes
    ----------
    near : list of int
        Their ranks.
    near_send, near_recv : (q,) and (p,) bool
        Which of the plan's peers they are.
    rows_there : list of integer arrays
        For each of those it receives from, the rows it needs, numbered as there.
    halo_there : list of int
        For each of those it sends to, where the rows begin in the buffer there.
    """

    near: list[int]
    near_send: np.ndarray
    near_recv: np.ndarray
    rows_there: list[np.ndarray]
    halo_there: list[int]


def _neighbourhood(comm: Comm, plan: Plan) -> _Neighbourhood:
    mates = node_of(comm)
    near_send, near_recv = np.isin(plan.send_peers, mates), np.isin(plan.recv_peers, mates)
    # To those it sends to, a rank tells which rows; to those it receives from, where they go.
    out = {
        int(peer): plan.send_rows[start:stop]
        for peer, start, stop in zip(
            plan.send_peers, plan.send_offsets, plan.send_offsets[1:], strict=False
        )
    }
    places = plan.nown + plan.recv_offsets[:-1]
    halo = dict(zip(plan.recv_peers.tolist(), places.tolist(), strict=True))
    near = sorted({*plan.send_peers[near_send].tolist(), *plan.recv_peers[near_recv].tolist()})
    requests = [comm.isend((out.get(peer), halo.get(peer)), peer, READY_TAG) for peer in near]
    told = {peer: comm.recv(source=peer, tag=READY_TAG) for peer in near}
    wait_all(requests)
    return _Neighbourhood(
        near,
        near_send,
        near_recv,
        [told[peer][0] for peer in plan.recv_peers[near_recv].tolist()],
        [told[peer][1] for peer in plan.send_peers[near_send].tolist()],
    )


class _SharedRoute:
    """Messages to other nodes; on this one notes, between which ``read`` copies the rows.

    Parameters
    ----------
    far_source, far_target : Rows
        Sent to and received from ranks of other nodes.
    readers : (q,) integers
        Ranks of this node that read from this one.
    near_target : Rows
        What this rank reads itself.
    """

    def __init__(
        self,
        comm: Comm,
        far_source: Rows,
        far_target: Rows,
        readers: np.ndarray,
        near_target: Rows,
        read: Any,
    ) -> None:
        self._far, self._read = PersistentRoute(comm, far_source, far_target), read
        self.moved = self._far.moved + Volume(shared=near_target.nbytes)

        def notes(peers: np.ndarray, tag: int, receive: bool) -> list:
            empty = np.empty((0, 1), np.uint8)
            return persistent(comm, [(int(peer), empty) for peer in peers], receive, tag)

        owners = near_target.peers
        self._hear_ready, self._say_ready = (
            notes(owners, READY_TAG, receive=True),
            notes(readers, READY_TAG, receive=False),
        )
        self._hear_read, self._say_read = (
            notes(readers, READ_TAG, receive=True),
            notes(owners, READ_TAG, receive=False),
        )
        all_notes = self._hear_ready + self._say_ready + self._hear_read + self._say_read
        free_with(self, all_notes)

    def receive(self) -> None:
        self._far.receive()
        start_all(self._hear_ready + self._hear_read)

    def send(self) -> None:
        start_all(self._say_ready)
        self._far.send()

    def wait(self) -> None:
        wait_all(self._hear_ready)
        self._read()
        start_all(self._say_read)
        self._far.wait()
        wait_all(self._say_ready + self._hear_read + self._say_read)


def map_together(comm: Comm, nbytes: int, others: list[int]) -> dict[int, np.ndarray]:
    """Memory of this rank that others of its node map too, and theirs: rank → bytes.

    It goes back to the system when nobody refers to it any more, also when a rank is killed.

    Parameters
    ----------
    nbytes : int
        Of this rank.
    others : list of int
        Ranks of this node that name this one among their others.

    Raises
    ------
    UserError
        On all ranks, if there is no room for it on one, or the others cannot open it.
    """
    with contextlib.ExitStack() as stack:
        with agreed(comm), _explained(f"for {nbytes:,} bytes a rank"):
            file = stack.enter_context(tempfile.NamedTemporaryFile(dir=FOLDER, prefix="gcnmpi-"))
            # Reserved now: memory that is missing later would end the process without a word.
            os.posix_fallocate(file.fileno(), 0, max(1, nbytes))
            memory = {comm.rank: _mapped(file, nbytes)}
        requests = [comm.isend((file.name, nbytes), peer, READY_TAG) for peer in others]
        told = {peer: comm.recv(source=peer, tag=READY_TAG) for peer in others}
        wait_all(requests)
        with agreed(comm), _explained("that other ranks of this node can open"):
            for peer, (name, size) in told.items():
                with open(name, "r+b") as opened:
                    memory[peer] = _mapped(opened, size)
    return memory


def _mapped(file: Any, nbytes: int) -> np.ndarray:
    # Nothing cannot be mapped, so one byte more is.
    return np.frombuffer(mmap.mmap(file.fileno(), max(1, nbytes)), np.uint8)[:nbytes]


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"no shared memory in {FOLDER} {what}: {error.strerror}",
            "use scheme.transport = 'persistent', or give the job more of it",
        ) from error
