"""The exchange of rows itself, between the neighbours of a plan.

An :class:`Exchange` owns one buffer ``[own | halo]``, or its halo only. **Expand**: owners pack
the rows that others need and every neighbour's rows land in its slice of the halo. **Fold**, the
adjoint: the halo holds partial sums, which travel back and are added to the owners' rows, in the
order of ranks whatever the order of arrival. So all transports (:mod:`gcnmpi.halo.transports`),
which carry the rows, give the same bits.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.plan import Plan, make_plan
from gcnmpi.halo.transports import Route, Rows, Transport
from gcnmpi.kernels.interface import Array, Sparse
from gcnmpi.mpi.comm import Comm, redistribute

TRIALS = 3  # exchanges that are timed alone


class Exchange:
    """Moves rows of one ``[own | halo]`` buffer between ranks; made by all ranks together.

    Parameters
    ----------
    transport : Transport
        Carries the rows of its plan.
    width : int
        Columns of the buffer.
    packed : (nsend, width) array, optional
        A buffer for the packed rows, which exchanges of one width may share.
    own : (nown, width) array, optional
        Own rows that lie elsewhere; others may take their place between two exchanges. Only where
        the transport takes them from anywhere.
    timed : bool
        Whether ``traffic`` is to tell how much of its time is hidden; only for an exchange that
        lives as long on all ranks.

    Attributes
    ----------
    transport : Transport
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
        packed: Array | None = None,
        own: Array | None = None,
        timed: bool = False,
    ) -> None:
        plan, kernel = transport.plan, transport.kernel
        self.transport, self._kernel = transport, kernel
        self._traffic, self._phases = traffic, phases
        head = plan.nown if own is None else 0
        self.whole, self.near = transport.buffer(head + plan.nhalo, width)
        self.halo = self.whole[head:]
        self.own = self.whole[:head] if own is None else own
        self.packed = kernel.empty(plan.nsend, width) if packed is None else packed
        # What MPI works on: these arrays, or a copy on the host where it does not see them.
        self._packed_message, self._halo_message = map(kernel.message, (self.packed, self.halo))
        outer = Rows.of(self._packed_message, plan.send_peers, plan.send_offsets)
        inner = Rows.of(self._halo_message, plan.recv_peers, plan.recv_offsets)
        self._expand, self._fold = transport.routes(self, outer, inner)
        self._timed, self._exposed = timed and transport.comm.size > 1, 0.0
        self._packing: Sparse | None = None

    def start_expand(self, packing: Sparse | None = None) -> None:
        """Send the own rows that others need, or ``packing`` times the own rows."""
        self._packing = packing
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

    def time_alone(self, route: Route) -> float:
        """Seconds from start to end when all start together and nobody computes: the best try.

        What travels is what happens to be there; the own rows stay as they are.
        """
        times = []
        for _ in range(TRIALS):
            self.transport.comm.Barrier()
            began = time.perf_counter()
            self._begin(route)
            route.wait()
            self._unpack(route)
            times.append(time.perf_counter() - began)
        self._traffic.count(route.moved * TRIALS, "timing")
        return min(times)

    def _start(self, route: Route) -> None:
        began = time.perf_counter()
        with self._phases("pack"):
            self._begin(route)
        self._traffic.count(route.moved)
        self._exposed = time.perf_counter() - began

    def _finish(self, route: Route) -> None:
        began = time.perf_counter()
        with self._phases("wait"):
            route.wait()
        with self._phases("pack"):
            self._unpack(route)
        if self._timed:
            self._traffic.took(self, route, self._exposed + time.perf_counter() - began)

    def _begin(self, route: Route) -> None:
        self._kernel.finish()  # with what was received before
        route.receive()
        if route is self._expand:
            self.transport.pack(self, self._packing)
            self._kernel.to_message(self.packed, self._packed_message)
        else:
            self._kernel.to_message(self.halo, self._halo_message)
        route.send()

    def _unpack(self, route: Route) -> None:
        if route is self._expand:
            self._kernel.from_message(self._halo_message, self.halo)
        else:
            self._kernel.from_message(self._packed_message, self.packed)


def agree_on_plan(
    comm: Comm, own: np.ndarray, halo: np.ndarray, owners: np.ndarray, max_bytes: float
) -> Plan:
    """The plan of every rank: each tells the owners of its halo what it needs.

    Parameters
    ----------
    own, halo, owners
        As for :func:`~gcnmpi.halo.plan.make_plan`.
    max_bytes : float
        Bound of the send buffer.
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
