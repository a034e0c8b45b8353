"""The exchange of rows itself: persistent messages between the neighbours of a plan.

An :class:`Exchange` owns one buffer ``[own | halo]``, or its halo only. **Expand**: owners pack
the rows that others need and every neighbour's message lands in its slice of the halo. **Fold**,
the adjoint: the halo holds partial sums, which travel back and are added to the owners' rows, in
the order of ranks whatever the order of arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.comm import Comm, free_with, persistent, start_all, wait_all
from gcnmpi.plan import Plan
from gcnmpi.timing import Phases, Traffic
from gcnmpi.volume import Volume


class Exchange:
    """Moves rows of one ``[own | halo]`` buffer between ranks.

    Parameters
    ----------
    comm : communicator
    plan : Plan
    kernel : kernel
        Makes the buffer and packs the rows.
    width : int
        Columns of the buffer.
    packed : (nsend, width) array, optional
        Room for the packed rows, which exchanges of one width may share.
    own : (nown, width) array, optional
        Own rows that lie elsewhere; others may take their place between two exchanges.

    Attributes
    ----------
    whole, own, halo : arrays of nown + nhalo, nown and nhalo rows
        The buffer and its two halves (views); with ``own``, the buffer is the halo.
    packed : (nsend, width) array
    """

    def __init__(
        self,
        comm: Comm,
        plan: Plan,
        kernel: Any,
        width: int,
        traffic: Traffic,
        phases: Phases,
        packed: Any = None,
        own: Any = None,
    ) -> None:
        head = plan.nown if own is None else 0
        self.whole = kernel.empty(head + plan.nhalo, width)
        self.halo = self.whole[head:]
        self.own = self.whole[:head] if own is None else own
        self.packed = kernel.empty(plan.nsend, width) if packed is None else packed
        self._plan, self._kernel, self._traffic, self._phases = plan, kernel, traffic, phases
        # What MPI works on: these arrays, or a copy on the host where it does not see them.
        self._packed_message, self._halo_message = map(kernel.message, (self.packed, self.halo))
        inner = (plan.recv_peers, plan.recv_offsets)
        outer = (plan.send_peers, plan.send_offsets)
        self._expand = (
            persistent(comm, self._halo_message, *inner, receive=True),
            persistent(comm, self._packed_message, *outer, receive=False),
        )
        self._fold = (
            persistent(comm, self._packed_message, *outer, receive=True),
            persistent(comm, self._halo_message, *inner, receive=False),
        )
        free_with(self, [r for pair in (self._expand, self._fold) for r in (*pair[0], *pair[1])])

    def start_expand(self) -> None:
        """Post the receives, pack the own rows that others need, send them."""
        with self._phases("pack"):
            self._kernel.finish()  # with what was received before
            start_all(self._expand[0])
            self._kernel.take_rows(self.own, self._plan.send_rows, self.packed)
            self._kernel.to_message(self.packed, self._packed_message)
            start_all(self._expand[1])
        self._count(self.packed, self.halo, self._expand[1])

    def finish_expand(self) -> None:
        """Wait until the halo is complete and the packed rows may be overwritten."""
        self._finish(self._expand)
        with self._phases("pack"):
            self._kernel.from_message(self._halo_message, self.halo)

    def start_fold(self) -> None:
        """Send the partial sums in the halo to the owners of their rows."""
        with self._phases("pack"):
            self._kernel.finish()
            start_all(self._fold[0])
            self._kernel.to_message(self.halo, self._halo_message)
            start_all(self._fold[1])
        self._count(self.halo, self.packed, self._fold[1])

    def finish_fold(self) -> None:
        """Wait for the partial sums of others; they lie in ``packed``, grouped by rank."""
        self._finish(self._fold)
        with self._phases("pack"):
            self._kernel.from_message(self._packed_message, self.packed)

    def _finish(self, requests: tuple[list, list]) -> None:
        with self._phases("wait"):
            wait_all(requests[0])
            wait_all(requests[1])

    def _count(self, sent: Any, received: Any, requests: list) -> None:
        self._traffic.count(Volume(sent.nbytes, received.nbytes, len(requests)))


def addition_matrix(plan: Plan) -> sp.csr_array:
    """The matrix that adds packed rows to the own rows they belong to, (nown, nsend).

    Its entries are ones; a row's columns increase with the sending rank, so the order of the
    additions is fixed.
    """
    entries = (np.ones(plan.nsend), (plan.send_rows, np.arange(plan.nsend)))
    matrix = sp.coo_array(entries, shape=(plan.nown, plan.nsend)).tocsr()
    matrix.sort_indices()
    return matrix
