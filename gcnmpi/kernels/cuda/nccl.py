"""Sums over, and messages between, processes with a GPU each, by NCCL through CuPy.

This module is a :class:`gcnmpi.core.arrays.Network`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import cupy as cp
import numpy as np
from cupy import ndarray as Array

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.cuda.copies import DeviceNumber, recorded
from partition.errors import UserError

# Where NCCL cannot be loaded, CuPy says so in a warning of many lines for each rank. Who asked for
# it is told once, and by us.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from cupy.cuda import nccl

AVAILABLE = nccl.available


def version() -> int:
    """Of the library, such as 22705."""
    return nccl.get_version()


def new_name() -> object:
    """A name under which processes find each other, once; to be passed on as it is."""
    try:
        return nccl.get_unique_id()
    except nccl.NcclError as error:
        raise _failed(error) from error


class PointToPoint:
    """Messages between processes, on a stream of their own; arguments are as for Summation."""

    def __init__(self, size: int, name: object, rank: int) -> None:
        self._comm, self._stream = _join(size, name, rank), cp.cuda.Stream(non_blocking=True)

    def start(
        self, outgoing: Sequence[tuple[int, Array]], incoming: Sequence[tuple[int, Array]]
    ) -> None:
        """Send contiguous arrays to processes, and receive some: one group."""
        self._stream.wait_event(recorded(cp.cuda.get_current_stream()))
        nccl.groupStart()
        for function, messages in ((self._comm.send, outgoing), (self._comm.recv, incoming)):
            for peer, array in messages:
                if array.nbytes:
                    address, stream = array.data.ptr, self._stream.ptr
                    function(address, array.nbytes, nccl.NCCL_UINT8, peer, stream)
        nccl.groupEnd()

    def wait(self) -> None:
        """The current stream waits, not the host."""
        cp.cuda.get_current_stream().wait_event(recorded(self._stream))


class Summation:
    """Sums over processes of arrays that never leave the device, and of a number with one.

    All processes make it together, and call it together.

    Parameters
    ----------
    size : int
        How many processes there are.
    name : bytes
        The name that :func:`new_name` gave to one of them.
    rank : int
        Which of them this one is.

    Raises
    ------
    UserError
        If NCCL does not bring the processes together.
    """

    def __init__(self, size: int, name: object, rank: int) -> None:
        self._comm, self._buffer = _join(size, name, rank), cp.empty((0,), np.float64)
        self._number: Number | None = (
            None  # whose copy to the host may be going on until the next call
        )

    def __call__(self, number: Number, array: Array) -> DeviceNumber:
        """Sum an array over processes, in place, and the number, which is returned.

        In float64 and in the order of the current stream: nobody waits for it. The array has the
        same length each time.
        """
        if not self._buffer.size:
            self._buffer = cp.empty((len(array) + 1,), np.float64)
        buffer, self._number = self._buffer, number
        cp.copyto(buffer[:-1], array, casting="same_kind")
        if isinstance(number, DeviceNumber):
            cp.copyto(buffer[-1:], number.array * number.factor, casting="same_kind")
        else:
            buffer[-1:].fill(float(number))
        self.add(buffer)
        cp.copyto(array, buffer[:-1], casting="same_kind")
        return DeviceNumber(buffer[-1:])

    def add(self, array: Array) -> None:
        """Sum a contiguous array of float64 over processes, in place."""
        address, stream = array.data.ptr, cp.cuda.get_current_stream().ptr
        self._comm.allReduce(address, address, array.size, nccl.NCCL_FLOAT64, nccl.NCCL_SUM, stream)


def _join(size: int, name: object, rank: int) -> nccl.NcclCommunicator:
    try:
        return nccl.NcclCommunicator(size, name, rank)
    except nccl.NcclError as error:
        raise _failed(error) from error


def _failed(error: Exception) -> UserError:
    return UserError(
        f"NCCL does not start: {error}",
        "NCCL_DEBUG=INFO makes it say more; comm.nccl=no does without it",
    )
