"""The transport of puts: a rank writes rows straight into the buffers of its neighbours.

A dynamic window is made once for a plan; buffers are attached to it and detached by each rank
alone. An exchange is an epoch between neighbours only (post, start, complete, wait): nobody else
takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcnmpi.comm import Comm, address_of, attach_with, dynamic_window, row_type
from gcnmpi.exchange import Exchange, Route, Rows
from gcnmpi.volume import Volume


class OneSided(Exchange):
    """Rows are put into the halo, or into the room for packed rows, of their receiver."""

    on_host = True

    def _connect(self) -> Any:
        return dynamic_window(self._comm)

    def _packed_room(self, width: int, sibling: Any) -> Any:
        """Its own: memory is attached to a window once."""
        return self._kernel.empty(self._plan.nsend, width)

    def _routes(self, inner: Rows, outer: Rows) -> tuple[Route, Route]:
        comm, window = self._comm, self._link
        attach_with(self, comm, window, [inner.array, outer.array])
        return _PutRoute(comm, window, outer, inner), _PutRoute(comm, window, inner, outer)


class _PutRoute:
    def __init__(self, comm: Comm, window: Any, source: Rows, target: Rows) -> None:
        self.moved = Volume(source.nbytes, target.nbytes, len(source.peers))
        self._window, self._source, self._addresses = window, source, _addresses(comm, target)
        group = comm.Get_group()
        self._from, self._to = (group.Incl(rows.peers.tolist()) for rows in (target, source))

    def receive(self) -> None:
        self._window.Post(self._from)

    def send(self) -> None:
        self._window.Start(self._to)
        with row_type(self._source.array) as row:
            for peer, block in self._source.blocks():
                place = [self._addresses[peer], len(block), row]
                self._window.Put([block, len(block), row], peer, place)

    def wait(self) -> None:
        self._window.Complete()
        self._window.Wait()


def _addresses(comm: Comm, target: Rows) -> list[int]:
    """Where the rows of this rank go, in the memory of every rank."""
    here, there = np.zeros((2, comm.size), np.int64)
    for peer, block in target.blocks():
        here[peer] = address_of(block)
    comm.Alltoall(here, there)
    return there.tolist()
