"""Transports, which carry the rows of an exchange: ``scheme.transport``.

A :class:`Transport` is made once for a plan; it gives each exchange a :class:`Route` for either
direction. Here are the transports whose neighbours send messages; in :mod:`gcnmpi.halo.one_sided`
they put rows into each other's buffers, in :mod:`gcnmpi.halo.node_memory` ranks of a node read them
there, in :mod:`gcnmpi.halo.on_devices` devices send them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from gcnmpi.core.volume import Kept, Volume
from gcnmpi.halo.messages import Mover
from gcnmpi.halo.plan import Plan
from gcnmpi.kernels.interface.kernel import Array, Kernel, Sparse
from gcnmpi.mpi.comm import (
    EXCHANGE_TAG,
    Comm,
    Request,
    free_with,
    persistent,
    row_type,
    start_all,
    wait_all,
)
from gcnmpi.options.scheme import TRANSPORTS
from partition.errors import UserError

DEFAULT = "persistent"


def usable(comm: Comm, kernel: Kernel, wanted: str) -> tuple[str, str | None]:
    """The name of a transport that works here, and a warning if it is not the one wanted.

    All ranks find it out together; a UserError is raised on all if the one wanted does not work and
    nothing is to take its place.
    """
    error = obstacle(comm, kernel, wanted)
    if error is None:
        return wanted, None
    if TRANSPORTS.get(wanted).required:
        raise error
    return DEFAULT, f"scheme.transport = {wanted!r}: {error.message}: {DEFAULT!r} is used"


def obstacle(comm: Comm, kernel: Kernel, name: str) -> UserError | None:
    """Why a transport does not work here, which all ranks find out together; None: it does."""
    try:
        TRANSPORTS.get(name).check(comm, kernel)
    except UserError as error:
        return error
    return None


@dataclass(frozen=True)
class Rows:
    """A matrix of which some rows go to, or come from, one rank each.

    Attributes
    ----------
    array : (rows, width) array
        Contiguous.
    places : mapping of int to slice
        The rows of each rank.
    """

    array: Array
    places: Mapping[int, slice]

    @classmethod
    def of(cls, array: Array, peers: np.ndarray, offsets: np.ndarray) -> Rows:
        """Rows ``offsets[i]:offsets[i + 1]`` belong to rank ``peers[i]``."""
        starts = offsets.tolist()
        return cls(array, dict(zip(peers.tolist(), map(slice, starts, starts[1:]), strict=True)))

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Each rank and its rows."""
        for peer, place in self.places.items():
            yield peer, self.array[place]

    def only(self, peers: Iterable[int]) -> Rows:
        """The rows of some of the ranks only."""
        return Rows(self.array, {p: place for p, place in self.places.items() if p in peers})

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for _, block in self.blocks())


class Ends(Protocol):
    """The memory of an exchange: see :class:`gcnmpi.halo.exchange.Exchange`."""

    own: Array
    halo: Array
    packed: Array
    near: Mapping[int, Array]


class Route(Protocol):
    """Carries row blocks from one matrix to that of other ranks."""

    moved: Volume
    """What this rank hands to MPI each time."""

    def receive(self) -> None:
        """Be ready for the rows of others."""

    def send(self) -> None:
        """Send what is in the source."""

    def wait(self) -> None:
        """Until the target is complete and the source may be overwritten."""


class Transport(ABC):
    """Carries the rows of a plan; made by all ranks together.

    Attributes
    ----------
    comm : communicator
        Communicator of the ranks that the plan numbers.
    plan : Plan
    kernel : kernel
        Makes the matrices and packs the rows.
    kept : Kept
        Rows that need no message because both ranks have them in memory.
    mover : Mover
        Makes messages of the matrices.
    """

    shares_packed = True
    """Whether exchanges of one width may pack into the same buffer."""
    own_anywhere = True
    """Whether the own rows may lie outside the buffer of an exchange."""
    packs_sums = True
    """Whether what is sent may be computed from own rows, and not only be some of them."""
    takes_devices = False
    """Whether it may give MPI the memory of devices, where the library takes it. Open MPI does for
    messages and blocking collectives only; not for collectives in the background or windows."""
    required = False
    """Whether there is an error where it does not work, and not another transport."""

    def __init__(self, comm: Comm, plan: Plan, kernel: Kernel) -> None:
        self.comm, self.plan, self.kernel, self.kept = comm, plan, kernel, Kept()
        self.mover = Mover(kernel, staged=not self.takes_devices)

    @cached_property
    def _send_rows(self) -> np.ndarray:
        return self.kernel.resident(self.plan.send_rows, np.int64)

    @classmethod  # noqa: B027  # most transports work everywhere
    def check(cls, comm: Comm, kernel: Kernel) -> None:
        """Raise a UserError, on all ranks, if this transport does not work here."""

    def buffer(self, rows: int, width: int) -> tuple[Array, Mapping[int, Array]]:
        """A new buffer, and those of other ranks that this one may read."""
        return self.kernel.empty(rows, width), {}

    def pack(self, exchange: Ends, packing: Sparse | None = None) -> None:
        """Bring what is sent to where it is sent from: some own rows, or ``packing`` times all."""
        if packing is None:
            self.kernel.take_rows(exchange.own, self._send_rows, exchange.packed)
        else:
            self.kernel.spmm(packing, exchange.own, exchange.packed)

    def in_messages(self, peers: np.ndarray, offsets: np.ndarray) -> list[slice]:
        """Which rows travel in messages; those of rank ``peers[i]`` begin at ``offsets[i]``."""
        return [slice(0, int(offsets[-1]))]

    @abstractmethod
    def routes(self, exchange: Ends, outer: Rows, inner: Rows) -> tuple[Route, Route]:
        """The way of packed rows (``outer``) to halos (``inner``), and the way back.

        Both are what MPI works on: see :mod:`gcnmpi.halo.messages`.
        """


class OneWay(Transport):
    """A transport whose two directions are alike."""

    def routes(self, exchange: Ends, outer: Rows, inner: Rows) -> tuple[Route, Route]:
        """The same kind of way there and back."""
        return self.route(outer, inner), self.route(inner, outer)

    @abstractmethod
    def route(self, source: Rows, target: Rows) -> Route:
        """The way from one to the other."""


class Persistent(OneWay):
    """Messages whose requests are made once."""

    takes_devices = True

    def route(self, source: Rows, target: Rows) -> Route:
        """A request for every neighbour."""
        return PersistentRoute(self.comm, source, target)


class Isend(OneWay):
    """Messages whose requests are made in every exchange."""

    takes_devices = True

    def route(self, source: Rows, target: Rows) -> Route:
        """Requests for every neighbour."""
        return _IsendRoute(self.comm, source, target)


class Neighbor(Transport):
    """A neighbourhood collective: the library knows the whole pattern at once."""

    def __init__(self, comm: Comm, plan: Plan, kernel: Kernel) -> None:
        super().__init__(comm, plan, kernel)
        sources, targets = plan.recv_peers.tolist(), plan.send_peers.tolist()
        self._forth = comm.Create_dist_graph_adjacent(sources, targets)
        self._back = comm.Create_dist_graph_adjacent(targets, sources)

    def routes(self, exchange: Ends, outer: Rows, inner: Rows) -> tuple[Route, Route]:
        """Each over a communicator with the edges of its direction."""
        return (
            _CollectiveRoute(self._forth.Ineighbor_alltoallv, outer, inner),
            _CollectiveRoute(self._back.Ineighbor_alltoallv, inner, outer),
        )


class Alltoallv(OneWay):
    """The collective of all ranks, to most of which nothing is sent."""

    def route(self, source: Rows, target: Rows) -> Route:
        """Every rank has a place, mostly an empty one."""
        ranks = range(self.comm.size)
        return _CollectiveRoute(self.comm.Ialltoallv, source, target, ranks)


class PersistentRoute:
    """A request for every neighbour, started again in every exchange."""

    def __init__(self, comm: Comm, source: Rows, target: Rows) -> None:
        self.moved = messages(source, target)
        self._incoming = persistent(comm, target.blocks(), receive=True)
        self._outgoing = persistent(comm, source.blocks(), receive=False)
        free_with(self, self._incoming + self._outgoing)

    def receive(self) -> None:
        """Post the receives from all neighbours."""
        start_all(self._incoming)

    def send(self) -> None:
        """Start the sends to all neighbours."""
        start_all(self._outgoing)

    def wait(self) -> None:
        """For all of both."""
        wait_all(self._incoming)
        wait_all(self._outgoing)


def messages(source: Rows, target: Rows) -> Volume:
    """The volume of one message to, and one from, each neighbour."""
    return Volume(source.nbytes, target.nbytes, len(source.places))


class _IsendRoute:
    def __init__(self, comm: Comm, source: Rows, target: Rows) -> None:
        self.moved = messages(source, target)
        self._comm, self._source, self._target = comm, source, target
        self._requests: list[Request] = []

    def receive(self) -> None:
        self._begin(self._comm.Irecv, self._target)

    def send(self) -> None:
        self._begin(self._comm.Isend, self._source)

    def wait(self) -> None:
        wait_all(self._requests)
        self._requests = []

    def _begin(self, function: Callable[..., Request], rows: Rows) -> None:
        with row_type(rows.array) as row:
            for peer, block in rows.blocks():
                self._requests.append(function([block, len(block), row], peer, tag=EXCHANGE_TAG))


class _CollectiveRoute:
    """One collective; ``ranks``: those that it has places for, if not just the neighbours."""

    def __init__(
        self,
        function: Callable[..., Request],
        source: Rows,
        target: Rows,
        ranks: Iterable[int] | None = None,
    ) -> None:
        self.moved, self._function = messages(source, target), function
        self._ends = [(rows.array, _layout(rows, ranks)) for rows in (source, target)]
        self._requests: list[Request] = []

    def receive(self) -> None:
        """Sending and receiving begin together."""

    def send(self) -> None:
        (source, outgoing), (target, incoming) = self._ends
        with row_type(source) as row:
            self._requests = [self._function([source, outgoing, row], [target, incoming, row])]

    def wait(self) -> None:
        wait_all(self._requests)


def _layout(rows: Rows, ranks: Iterable[int] | None) -> tuple[list[int], list[int]]:
    """Number and place of the rows of each rank."""
    chosen = rows.places if ranks is None else ranks
    places = [rows.places.get(rank, slice(0, 0)) for rank in chosen]
    return [place.stop - place.start for place in places], [place.start for place in places]
