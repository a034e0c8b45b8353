"""The sum of loss and gradients over ranks: on the host by MPI, or on the devices by NCCL.

It is made in float64 for all dtypes, in one buffer whose last number is the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from gcnmpi.core.arrays import Array, Memory, Network, Number, Summation
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.core.volume import all_reduce
from gcnmpi.mpi.comm import (
    IN_PLACE,
    SUM,
    Comm,
    Op,
    Request,
    agreed,
    from_root,
    host_name,
    minimum,
    reduce_in_place,
)
from partition.errors import UserError

MPI, NCCL = "mpi", "nccl"
T = TypeVar("T")


def reduce_over_ranks(
    comm: Comm, contributions: np.ndarray, phases: Phases, traffic: Traffic, op: Op = SUM
) -> None:
    """Reduce a flat float64 array of the host over ranks, in place: one all-reduce, counted."""
    with phases("reduce"):
        reduce_in_place(comm, contributions, op)
    _count(traffic, contributions.nbytes, comm.size)


def sum_array_over_ranks(
    comm: Comm,
    memory: Memory[Array],
    summation: Summation | None,
    array: Array,
    phases: Phases,
    traffic: Traffic,
) -> None:
    """Sum an array that may be a kernel's over ranks, in place; a rank alone leaves it as it is.

    ``summation`` sums arrays of devices; without one MPI sums them, on the host.
    """
    if isinstance(array, np.ndarray):
        reduce_over_ranks(comm, array, phases, traffic)
    elif summation is not None:
        with phases("reduce"):
            summation.add(array)
        _count(traffic, array.nbytes, comm.size)
    elif comm.size > 1:
        on_host = memory.to_host(array)
        reduce_over_ranks(comm, on_host, phases, traffic)
        memory.copy(memory.from_host64(on_host), array)


def start_sum(comm: Comm, contributions: np.ndarray, traffic: Traffic) -> Request:
    """Begin the sum of a flat float64 array: at most ``REDUCED_AT_ONCE`` bytes, counted."""
    _count(traffic, contributions.nbytes, comm.size)
    return comm.Iallreduce(IN_PLACE, contributions, SUM)


def usable_reduction(comm: Comm, kernel: Memory[Array], wanted: str) -> str:
    """The library that sums gradients: "nccl" where ``comm.nccl`` asks for it and it can, or "mpi".

    ``wanted`` is that key: with "auto", a rank alone, which has nothing to send, takes "mpi"; with
    "yes", a UserError is raised on all ranks if NCCL cannot be used.
    """
    if wanted == "no" or (wanted == "auto" and comm.size == 1):
        return MPI
    obstacle = no_network(comm, kernel)
    with agreed(comm):
        if obstacle is not None and wanted == "yes":
            hint = f"{obstacle.hint}, or set comm.nccl=auto"
            raise UserError(f"comm.nccl is 'yes', and {obstacle.message}", hint)
    return NCCL if obstacle is None else MPI


def no_network(comm: Comm, kernel: Memory[Array]) -> UserError | None:
    """Why NCCL cannot connect the ranks' devices; None if it can. All ranks ask together."""
    obstacle = shared_device(comm.allgather((host_name(), kernel.device_address)))
    if obstacle is None and not minimum(comm, kernel.network() is not None):
        hint = "pip install nvidia-nccl-cu12 (nvidia-nccl-cu13 with CuPy for CUDA 13)"
        obstacle = UserError("CuPy finds no NCCL", hint)
    return obstacle


def shared_device(seats: Sequence[tuple[str, str | None]]) -> UserError | None:
    """Why the ranks do not all have a device of their own; None if they do.

    ``seats``: the host of each rank, and the address of its device there, if it has one.
    """
    first: dict[tuple[str, str | None], int] = {}
    for rank, (host, address) in enumerate(seats):
        if address is None:
            return UserError("the kernel does not compute on a GPU", "set kernel=cupy")
        other = first.setdefault((host, address), rank)
        if other != rank:
            return UserError(
                f"ranks {other} and {rank} share the GPU {address} of {host}",
                "start no more ranks per node than it has GPUs",
            )
    return None


class HostSum:
    """Loss and gradients go to the host, are summed there by the scheme, and come back.

    ``reduce`` sums a flat float64 array over ranks, in place; this rank has ``count`` gradients.
    """

    def __init__(
        self, reduce: Callable[[np.ndarray], None], kernel: Memory[Array], count: int
    ) -> None:
        self._reduce, self._kernel = reduce, kernel
        self._sums = np.zeros(count + 1)
        self._message: np.ndarray | None = None  # of the gradients, always in the same memory

    def __call__(self, loss: Number, gradients: Array) -> float:
        """Sum an array of the kernel over ranks, in place; returns the sum of their losses."""
        kernel = self._kernel
        if self._message is None:
            message = kernel.message(gradients, staged=True)
            assert isinstance(message, np.ndarray)  # of the host, as it is staged
            self._message = message
        kernel.before_receiving()
        kernel.to_message(gradients, self._message)
        kernel.before_sending()
        self._sums[:-1], self._sums[-1] = self._message, float(loss)
        self._reduce(self._sums)
        self._message[...] = self._sums[:-1]
        kernel.from_message(self._message, gradients)
        return float(self._sums[-1])


class NoSum:
    """A rank alone: its loss and gradients are those of all, and stay where they are."""

    def __call__(self, loss: Number, gradients: Array) -> Number:
        """Sum as :class:`HostSum` does."""
        return loss


class DeviceSum:
    """The gradients stay where they are: only the sum of the losses comes to the host."""

    def __init__(
        self, size: int, summation: Summation, phases: Phases, traffic: Traffic, count: int
    ) -> None:
        self._phases, self._traffic, self._size = phases, traffic, size
        self._sum, self._bytes = summation, 8 * (count + 1)

    def __call__(self, loss: Number, gradients: Array) -> Number:
        """Sum as :class:`HostSum` does."""
        with self._phases("reduce"):
            total = self._sum(loss, gradients)
        _count(self._traffic, self._bytes, self._size)
        return total


def joined(
    comm: Comm, kernel: Memory[Array], make: Callable[[Network], Callable[[int, object, int], T]]
) -> T:
    """A communicator of NCCL, which all ranks make together: each has a device of its own.

    ``make(network)`` is the class of it, a sum or messages.
    """
    network = kernel.network()
    assert network is not None  # see no_network
    name = from_root(comm, network.new_name)
    # Not agreed on: while one rank fails to join, others may wait for it without end. So its
    # error, and it may be that of each, takes the job down.
    return make(network)(comm.size, name, comm.rank)


def _count(traffic: Traffic, nbytes: int, size: int) -> None:
    traffic.count(all_reduce(nbytes, size), f"{traffic.purpose}_reduce")
