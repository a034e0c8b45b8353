"""The transport of puts: a rank writes rows straight into the buffers of its neighbours.

A dynamic window is made once for a plan; buffers are attached to it and detached by each rank
alone. An exchange is an epoch between neighbours only (post, start, complete, wait): nobody else
takes part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from gcnmpi.halo.plan import Plan
from gcnmpi.halo.transports import Ends, OneWay, Route, Rows, messages
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.mpi import comm as mpi
from partition.errors import UserError


class OneSided(OneWay):
    """Rows are put into the halo, or into the buffer of packed rows, of their receiver."""

    shares_packed = False  # memory is attached to a window once

    def __init__(self, comm: mpi.Comm, plan: Plan, kernel: Kernel) -> None:
        super().__init__(comm, plan, kernel)
        self._window = _window(comm)

    @classmethod
    def check(cls, comm: mpi.Comm, kernel: Kernel) -> None:
        """The library has windows to which memory can be attached."""
        window, memory = _window(comm), np.zeros(1, kernel.dtype)
        with mpi.agreed(comm), _explained():
            window.Attach(memory)
            window.Detach(memory)
        window.Free()

    def routes(self, exchange: Ends, outer: Rows, inner: Rows) -> tuple[Route, Route]:
        """Both matrices are attached as long as the exchange lives."""
        _attach_with(exchange, self.comm, self._window, inner.array, outer.array)
        return super().routes(exchange, outer, inner)

    def route(self, source: Rows, target: Rows) -> Route:
        """A put for every neighbour."""
        return _PutRoute(self.comm, self._window, source, target)


class _PutRoute:
    def __init__(self, comm: mpi.Comm, window: mpi.Window, source: Rows, target: Rows) -> None:
        self.moved = messages(source, target)
        self._window, self._source = window, source
        self._addresses = _addresses(comm, target)
        group = comm.Get_group()
        self._from, self._to = (group.Incl(list(rows.places)) for rows in (target, source))
        mpi.free_with(self, [group, self._from, self._to])

    def receive(self) -> None:
        self._window.Post(self._from)

    def send(self) -> None:
        self._window.Start(self._to)
        with mpi.row_type(self._source.array) as row:
            for peer, block in self._source.blocks():
                place = [self._addresses[peer], len(block), row]
                self._window.Put([block, len(block), row], peer, place)

    def wait(self) -> None:
        self._window.Complete()
        self._window.Wait()


def _window(comm: mpi.Comm) -> mpi.Window:
    # All ranks have to make it together; a library that cannot says so on all of them.
    with mpi.agreed(comm), _explained():
        return mpi.Window.Create_dynamic(comm=comm)


def _attach_with(owner: Ends, comm: mpi.Comm, window: mpi.Window, *arrays: Array) -> None:
    mpi.do_due()
    filled = [array for array in arrays if array.nbytes]
    with mpi.agreed(comm), _explained():
        for array in filled:
            window.Attach(array)

    def detach() -> None:
        for array in filled:
            window.Detach(array)

    mpi.when_collected(owner, detach)


def _addresses(comm: mpi.Comm, target: Rows) -> list[int]:
    """Where the rows of this rank go, in the memory of every rank."""
    here, there = np.zeros((2, comm.size), np.int64)
    for peer, block in target.blocks():
        here[peer] = mpi.address_of(block)
    comm.Alltoall(here, there)
    return there.tolist()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    # mpi4py raises the second where the library has no such function.
    except (mpi.MPIError, NotImplementedError) as error:
        raise UserError(
            f"the MPI library lets no memory, or no more, be attached to a window ({error})",
            "take another scheme.transport; Open MPI: export OMPI_MCA_osc_rdma_max_attach=1024",
        ) from error
