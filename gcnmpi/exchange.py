"""The exchange of rows itself, between the neighbours of a plan, over any of several transports.

An :class:`Exchange` owns one buffer ``[own | halo]``. **Expand**: owners pack the rows that
others need and every neighbour's rows land in its slice of the halo. **Fold**, the adjoint:
the halo holds partial sums, which travel back and are added to the owners' rows, in the order of
ranks whatever the order of arrival. So all transports give the same bits.

What carries the rows is a :class:`Route`, one for each direction:

=============  ===================================================================
persistent     messages whose requests are made once (the table's first entry)
isend          messages whose requests are made in every exchange
neighbor       one neighbourhood collective on a graph communicator
alltoallv      one all-to-all of the whole communicator
onesided       puts into the neighbour's buffer: :mod:`gcnmpi.one_sided`
shared         ranks of a node read each other's memory: :mod:`gcnmpi.node_memory`
=============  ===================================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gcnmpi.comm import (
    EXCHANGE_TAG,
    Comm,
    agreed,
    free_with,
    persistent,
    row_type,
    start_all,
    wait_all,
)
from gcnmpi.plan import Plan
from gcnmpi.schemes import TRANSPORTS
from gcnmpi.timing import Phases, Traffic
from gcnmpi.volume import Kept, Volume
from partition.errors import UserError

TRIALS = 3  # exchanges that are timed alone


def resolve_transport(comm: Comm, plan: Plan, kernel: Any, wanted: str) -> str:
    """``scheme.transport`` resolved: "auto" is "shared" where nothing would travel otherwise.

    Raises
    ------
    UserError
        On all ranks, if the transport needs arrays of the host, and the kernel has others.
    """
    on_host = isinstance(kernel.empty(0, 0), np.ndarray)
    if wanted == "auto":
        shared = TRANSPORTS.get("shared")
        suits = on_host and shared.kept(comm, plan).send_rows == plan.nsend and shared.has_room()
        return "shared" if all(comm.allgather(suits)) else "persistent"
    with agreed(comm):
        if not on_host and TRANSPORTS.get(wanted).on_host:
            raise UserError(
                f"scheme.transport = {wanted!r} needs a kernel that computes on the host",
                f"the kernel is {kernel.name!r}: use scheme.transport = 'persistent'",
            )
    return wanted


@dataclass(frozen=True)
class Rows:
    """A matrix whose row blocks go to, or come from, one rank each.

    Attributes
    ----------
    array : (rows, width) array
        Contiguous.
    peers, starts, stops : (p,) integers
        Rows ``starts[i]:stops[i]`` belong to rank ``peers[i]``.
    """

    array: Any
    peers: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Each rank and its rows."""
        for peer, start, stop in zip(self.peers, self.starts, self.stops, strict=True):
            yield int(peer), self.array[start:stop]

    def only(self, chosen: np.ndarray) -> Rows:
        """The same with some of the ranks only."""
        return Rows(self.array, self.peers[chosen], self.starts[chosen], self.stops[chosen])

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for _, block in self.blocks())


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


class Exchange:
    """Moves rows of one ``[own | halo]`` buffer between ranks; made by all ranks together.

    Parameters
    ----------
    comm : communicator
    plan : Plan
    kernel : kernel
        Makes the buffer and packs the rows.
    width : int
        Columns of the buffer.
    sibling : Exchange, optional
        Another exchange by this transport and plan. What does not depend on the width is shared
        with it, and so is the room for packed rows if the width is the same.
    timed : bool
        Whether to find out, before the first use, how long the exchange takes alone.

    Attributes
    ----------
    whole, own, halo : arrays of nown + nhalo, nown and nhalo rows
        The buffer and its two halves (views).
    packed : (nsend, width) array
    """

    on_host = False
    """Whether the transport needs arrays of NumPy."""

    def __init__(
        self,
        comm: Comm,
        plan: Plan,
        kernel: Any,
        width: int,
        traffic: Traffic,
        phases: Phases,
        sibling: Any = None,
        timed: bool = False,
    ) -> None:
        self._comm, self._plan, self._kernel = comm, plan, kernel
        self._traffic, self._phases, self._timed = traffic, phases, timed
        self._alone: dict[Route, float] = {}
        self._exposed = 0.0
        self._link = self._connect() if sibling is None else sibling._link
        self.whole = self._room(plan.nown + plan.nhalo, width)
        self.own, self.halo = self.whole[: plan.nown], self.whole[plan.nown :]
        self.packed = self._packed_room(width, sibling)
        inner = Rows(self.halo, plan.recv_peers, plan.recv_offsets[:-1], plan.recv_offsets[1:])
        outer = Rows(self.packed, plan.send_peers, plan.send_offsets[:-1], plan.send_offsets[1:])
        self._expand, self._fold = self._routes(inner, outer)

    def start_expand(self) -> None:
        """Send the own rows that others need."""
        self._start(self._expand)

    def finish_expand(self) -> None:
        """Wait until the halo is complete and the own rows may be overwritten."""
        self._finish(self._expand)

    def start_fold(self) -> None:
        """Send the partial sums in the halo to the owners of their rows."""
        self._start(self._fold)

    def finish_fold(self) -> None:
        """Wait for the partial sums of others; they lie in ``packed``, grouped by rank."""
        self._finish(self._fold)

    def progress(self) -> None:
        """Let the library work on what is under way."""
        # A probe advances whatever is pending, in O(1), where a test looks at every request.
        self._comm.Iprobe(tag=EXCHANGE_TAG)

    @classmethod
    def kept(cls, comm: Comm, plan: Plan) -> Kept:
        """Rows that need no message because both ranks have them in memory: none."""
        return Kept()

    # What a transport defines.

    def _connect(self) -> Any:
        """What all exchanges of a plan share."""
        return None

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        """The way of packed rows to halos, and the way back."""
        raise NotImplementedError

    def _room(self, rows: int, width: int) -> Any:
        return self._kernel.empty(rows, width)

    def _packed_room(self, width: int, sibling: Any) -> Any:
        if sibling is not None and sibling.packed.shape[1] == width:
            return sibling.packed
        return self._kernel.empty(self._plan.nsend, width)

    def _pack(self) -> None:
        self._kernel.take_rows(self.own, self._plan.send_rows, self.packed)

    # The same for all.

    def _start(self, route: Route) -> None:
        if self._timed and route not in self._alone:
            self._alone[route] = self._time_alone(route)
        began = time.perf_counter()
        with self._phases("pack"):
            self._begin(route)
        self._traffic.count(route.moved)
        self._exposed = time.perf_counter() - began

    def _finish(self, route: Route) -> None:
        began = time.perf_counter()
        with self._phases("wait"):
            route.wait()
        if self._timed:
            exposed = self._exposed + time.perf_counter() - began
            self._traffic.took(self._alone[route], exposed)

    def _begin(self, route: Route) -> None:
        route.receive()
        if route is self._expand:
            self._pack()
        route.send()

    def _time_alone(self, route: Route) -> float:
        """Seconds from start to end when all start together and nobody computes: the best try.

        Exchanging again what is there already changes nothing.
        """
        times = []
        with self._phases.as_one("load"):
            for _ in range(TRIALS):
                self._comm.Barrier()
                began = time.perf_counter()
                self._begin(route)
                route.wait()
                times.append(time.perf_counter() - began)
        self._traffic.count(route.moved * TRIALS, "setup")
        return min(times)


class Persistent(Exchange):
    """Point-to-point messages, whose requests are made once."""

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        comm = self._comm
        return PersistentRoute(comm, outer, inner), PersistentRoute(comm, inner, outer)


class Isend(Exchange):
    """Point-to-point messages, whose requests are made in every exchange."""

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        return _IsendRoute(self._comm, outer, inner), _IsendRoute(self._comm, inner, outer)


class Neighbor(Exchange):
    """A neighbourhood collective; the library knows the whole pattern at once."""

    def _connect(self) -> Any:
        sources, targets = self._plan.recv_peers.tolist(), self._plan.send_peers.tolist()
        make = self._comm.Create_dist_graph_adjacent
        return make(sources, targets), make(targets, sources)

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        forth, back = self._link
        return (
            _CollectiveRoute(forth.Ineighbor_alltoallv, outer, inner),
            _CollectiveRoute(back.Ineighbor_alltoallv, inner, outer),
        )


class Alltoallv(Exchange):
    """The collective of all ranks, to most of which nothing is sent."""

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        begin, everyone = self._comm.Ialltoallv, self._comm.size
        return (
            _CollectiveRoute(begin, outer, inner, everyone),
            _CollectiveRoute(begin, inner, outer, everyone),
        )


class PersistentRoute:
    """A request for every neighbour, started again in every exchange."""

    def __init__(self, comm: Comm, source: Rows, target: Rows) -> None:
        self.moved = Volume(source.nbytes, target.nbytes, len(source.peers))
        self._incoming = persistent(comm, target.blocks(), receive=True)
        self._outgoing = persistent(comm, source.blocks(), receive=False)
        free_with(self, self._incoming + self._outgoing)

    def receive(self) -> None:
        """Post the receives."""
        start_all(self._incoming)

    def send(self) -> None:
        """Start the sends."""
        start_all(self._outgoing)

    def wait(self) -> None:
        """For all of both."""
        wait_all(self._incoming)
        wait_all(self._outgoing)


class _IsendRoute:
    def __init__(self, comm: Comm, source: Rows, target: Rows) -> None:
        self.moved = Volume(source.nbytes, target.nbytes, len(source.peers))
        self._comm, self._source, self._target = comm, source, target
        self._requests: list = []

    def receive(self) -> None:
        self._begin(self._comm.Irecv, self._target)

    def send(self) -> None:
        self._begin(self._comm.Isend, self._source)

    def wait(self) -> None:
        wait_all(self._requests)
        self._requests = []

    def _begin(self, function: Any, rows: Rows) -> None:
        with row_type(rows.array) as row:
            for peer, block in rows.blocks():
                self._requests.append(function([block, len(block), row], peer, tag=EXCHANGE_TAG))


class _CollectiveRoute:
    """One collective: over the peers in their order, or over ``everyone``."""

    def __init__(self, function: Any, source: Rows, target: Rows, everyone: int = 0) -> None:
        self.moved = Volume(source.nbytes, target.nbytes, len(source.peers))
        self._function = function
        self._requests: list = []
        self._ends = [(rows.array, _layout(rows, everyone)) for rows in (source, target)]

    def receive(self) -> None:
        """Sending and receiving begin together."""

    def send(self) -> None:
        (source, outgoing), (target, incoming) = self._ends
        with row_type(source) as row:
            self._requests = [self._function([source, outgoing, row], [target, incoming, row])]

    def wait(self) -> None:
        wait_all(self._requests)


def _layout(rows: Rows, everyone: int) -> tuple[np.ndarray, np.ndarray]:
    """Number and place of the rows of each peer, or of each of ``everyone``."""
    counts, places = rows.stops - rows.starts, rows.starts
    if not everyone:
        return counts, places
    spread = np.zeros((2, everyone), np.int64)
    spread[:, rows.peers] = counts, places
    return spread[0], spread[1]


def addition_matrix(plan: Plan) -> sp.csr_array:
    """The matrix that adds packed rows to the own rows they belong to, (nown, nsend).

    Its entries are ones; a row's columns increase with the sending rank, so the order of the
    additions is fixed.
    """
    entries = (np.ones(plan.nsend), (plan.send_rows, np.arange(plan.nsend)))
    matrix = sp.coo_array(entries, shape=(plan.nown, plan.nsend)).tocsr()
    matrix.sort_indices()
    return matrix


__all__ = [
    "TRANSPORTS",
    "Alltoallv",
    "Exchange",
    "Isend",
    "Neighbor",
    "Persistent",
    "PersistentRoute",
    "Route",
    "Rows",
    "addition_matrix",
    "resolve_transport",
]
