"""The exchange of rows itself, between the neighbours of a plan.

An :class:`Exchange` owns one buffer ``[own | halo]``, or its halo only. **Expand**: owners pack
the rows that others need and every neighbour's rows land in its slice of the halo. **Fold**, the
adjoint: the halo holds partial sums, which travel back and are added to the owners' rows, in the
order of ranks whatever the order of arrival. So all transports (:mod:`gcnmpi.halo.transports`),
which carry the rows, give the same bits. In messages, rows may be rounded
(:mod:`gcnmpi.halo.messages`); the rows that a rank multiplies itself never are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.messages import Encoded, End, Rounded, Rounding
from gcnmpi.halo.plan import Plan, make_plan
from gcnmpi.halo.transports import Route, Rows, Transport
from gcnmpi.kernels.interface.kernel import Array, Sparse
from gcnmpi.mpi.comm import Comm, redistribute

TRIALS = 3  # exchanges that are timed alone


@dataclass(frozen=True, eq=False)
class _Way:
    """One direction of an exchange: the route of the rows, where they come from, where they go."""

    route: Route
    source: End
    target: End
    packs: bool


class Buffers:
    """Memory that exchanges of one width may share, one after the other.

    ``packed``, (nsend, width), are the rows that are sent; ``rounding`` says how they are rounded.
    """

    def __init__(self, transport: Transport, width: int, rounding: Rounding | None = None) -> None:
        self._transport, self._width, self.rounding = transport, width, rounding
        self.packed = transport.kernel.empty(transport.plan.nsend, width)

    @cached_property
    def encoded(self) -> tuple[Encoded, Encoded]:
        """Packed rows and halo in messages, where they are rounded; made when asked for."""
        assert self.rounding is not None, "rows are sent as they are"
        transport, width, rounding = self._transport, self._width, self.rounding
        made = partial(Encoded, transport.kernel, transport.mover, transport.comm.rank)
        plan = transport.plan
        return made(plan.nsend, width, rounding), made(plan.nhalo, width, rounding)


class Exchange:
    """Moves rows of one ``[own | halo]`` buffer between ranks; made by all ranks together.

    Parameters
    ----------
    buffers : Buffers, optional
        Those of another exchange of this width; they say whether rows are rounded.
    own : (nown, width) array, optional
        Own rows that lie elsewhere; others may take their place between two exchanges. Only where
        the transport takes them from anywhere.
    timed : bool
        Whether ``traffic`` is to tell how much of its time is hidden; only for an exchange that
        lives as long on all ranks.

    Attributes
    ----------
    whole, own, halo : arrays of nown + nhalo, nown and nhalo rows
        The buffer and its two halves (views); with ``own``, the buffer is the halo.
    packed : (nsend, width) array
    near : mapping of int to array
        The ``whole`` of other ranks, where the transport lets this one read it.
    """

    def __init__(
        self,
        transport: Transport,
        width: int,
        traffic: Traffic,
        phases: Phases,
        buffers: Buffers | None = None,
        own: Array | None = None,
        timed: bool = False,
    ) -> None:
        plan = transport.plan
        self.transport, self._kernel = transport, transport.kernel
        self._traffic, self._phases = traffic, phases
        head = plan.nown if own is None else 0
        self.whole, self.near = transport.buffer(head + plan.nhalo, width)
        self.halo = self.whole[head:]
        self.own = self.whole[:head] if own is None else own
        self.buffers = Buffers(transport, width) if buffers is None else buffers
        self.packed = self.buffers.packed
        self._timed, self._exposed = timed and transport.comm.size > 1, 0.0
        self._packing: Sparse | None = None
        self._unsent: _Way | None = None
        # There and back, with rows as they are and rounded; what may not be needed is made later.
        self._made: dict[bool, tuple[_Way, _Way]] = {}
        if self.buffers.rounding is None:
            self._ways(rounded=False)

    def start_expand(self, packing: Sparse | None = None) -> None:
        """Send the own rows that others need, or ``packing`` times the own rows."""
        self._packing = packing
        self._start(0)

    def send(self) -> None:
        """Send what was packed, if it is not sent yet.

        Where copies to messages go on beside the kernel, whoever has work for that begins it first;
        without a call, messages are sent when the exchange is finished.
        """
        if self._unsent is not None:
            way, self._unsent = self._unsent, None
            with self._phases("pack"):
                self.transport.mover.before_sending()
            way.route.send()

    def start_fold(self) -> None:
        """Send the partial sums in the halo to the owners of their rows."""
        self._start(1)

    def finish(self) -> None:
        """Wait until the exchange is complete: the own rows may be overwritten.

        After an expand, the halo is complete; after a fold, ``packed`` has the partial sums of
        others, grouped by rank.
        """
        began, way = time.perf_counter(), self._under_way
        self.send()
        with self._phases("wait"):
            way.route.wait()
        with self._phases("pack"):
            way.target.read()
        if self._timed:
            self._traffic.took(self, way, self._exposed + time.perf_counter() - began)

    def time_alone(self, way: _Way) -> float:
        """Seconds from start to end when all start together and nobody computes: the best try.

        Rows travel as they happen to be there; the own rows stay as they are.
        """
        times = []
        for _ in range(TRIALS):
            self.transport.comm.Barrier()
            began = time.perf_counter()
            self._begin(way)
            self.send()
            way.route.wait()
            way.target.read()
            self._kernel.finish()
            times.append(time.perf_counter() - began)
        self._traffic.count(way.route.moved * TRIALS, "timing")
        return min(times)

    def _start(self, direction: int) -> None:
        began = time.perf_counter()
        rounding = self.buffers.rounding
        rounded = rounding is not None and (rounding.always or self._traffic.rounds)
        self._under_way = self._ways(rounded)[direction]
        with self._phases("pack"):
            self._begin(self._under_way)
        self._traffic.count(self._under_way.route.moved)
        self._exposed = time.perf_counter() - began

    def _begin(self, way: _Way) -> None:
        mover = self.transport.mover
        mover.before_receiving()
        way.route.receive()
        if way.packs:
            self.transport.pack(self, self._packing)
        way.source.write(self._traffic)
        self._unsent = way
        if not mover.later:
            self.send()

    def _ways(self, rounded: bool) -> tuple[_Way, _Way]:
        """The ways of expand and fold, made when they are first needed."""
        if rounded not in self._made:
            plan = self.transport.plan
            packed, halo = self._ends(rounded)
            outer = Rows.of(packed.message, plan.send_peers, plan.send_offsets)
            inner = Rows.of(halo.message, plan.recv_peers, plan.recv_offsets)
            expand, fold = self.transport.routes(self, outer, inner)
            there, back = _Way(expand, packed, halo, True), _Way(fold, halo, packed, False)
            self._made[rounded] = there, back
        return self._made[rounded]

    def _ends(self, rounded: bool) -> tuple[End, End]:
        kernel, plan, buffers = self._kernel, self.transport.plan, self.buffers
        if not rounded:
            mover = self.transport.mover
            return End(mover, self.packed), End(mover, self.halo)
        outer, inner = buffers.encoded
        sent = self.transport.in_messages(plan.send_peers, plan.send_offsets)
        needed = self.transport.in_messages(plan.recv_peers, plan.recv_offsets)
        return Rounded(kernel, self.packed, outer, sent), Rounded(kernel, self.halo, inner, needed)


def agree_on_plan(
    comm: Comm, own: np.ndarray, halo: np.ndarray, owners: np.ndarray, max_bytes: float
) -> Plan:
    """The plan of every rank, as :func:`make_plan` makes it.

    Each tells the owners of its halo which rows it needs, with a send buffer of ``max_bytes``.
    """
    (asked,), counts = redistribute(comm, owners, [halo], max_bytes)
    return make_plan(own, halo, owners, asked, counts)


def addition_matrix(plan: Plan) -> sp.csr_array:
    """The matrix that adds packed rows to the own rows they belong to, (nown, nsend).

    Its entries are ones; a row's columns increase with the sending rank, so the order of the
    additions is fixed. It is empty for a plan without ``send_rows``.
    """
    count = len(plan.send_rows)
    entries = (np.ones(count), (plan.send_rows, np.arange(count)))
    matrix = sp.coo_array(entries, shape=(plan.nown, plan.nsend)).tocsr()
    matrix.sort_indices()
    return matrix
