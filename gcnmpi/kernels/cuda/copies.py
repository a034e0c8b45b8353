"""Copies between a GPU and messages on the host, on a stream of their own.

Kernels of the device and copies wait for each other by events, and the host only where MPI is to
send what was copied, or to overwrite what is being copied. MPI gets addresses on the device where
its library takes them; see ``comm.cuda_aware``.
"""

from __future__ import annotations

from typing import ClassVar

import cupy as cp
import cupyx
import numpy as np
from cupy import ndarray as Array
from numpy.typing import DTypeLike

_KEPT = 1 << 24  # bytes of an array that is copied to page-locked memory first


class CupyCopies:
    """Arrays and messages of :class:`~gcnmpi.core.arrays.Memory`, on a GPU."""

    dtype: np.dtype
    host_visible: bool

    def open_copies(self) -> None:
        """Make the stream of copies."""
        self._stream = cp.cuda.Stream(non_blocking=True)
        self._sends, self._sends_directly = False, False
        # Copies to the device under way, with their sources: the pool of page-locked memory gives
        # away at once what is let go.
        self._arriving: list[tuple[cp.cuda.Event, np.ndarray]] = []

    def empty(self, *shape: int) -> Array:
        return cp.empty(shape, self.dtype)

    def empty_integers(self, *shape: int) -> Array:
        return cp.empty(shape, np.int32)

    def empty_columnwise(self, rows: int, columns: int) -> Array:
        return cp.empty((columns, rows), self.dtype).T

    def zeros(self, *shape: int) -> Array:
        return cp.zeros(shape, self.dtype)

    def from_host(self, array: np.ndarray) -> Array:
        return upload(array, self.dtype if array.dtype.kind == "f" else array.dtype)

    def from_host64(self, array: np.ndarray) -> Array:
        return upload(array, np.dtype(np.float64))

    def resident(self, numbers: np.ndarray, dtype: DTypeLike) -> Array:
        return upload(numbers, dtype)

    def to_host(self, array: Array) -> np.ndarray:
        return cp.asnumpy(array)

    def copy(self, x: Array, out: Array) -> None:
        cp.copyto(out, x, casting="same_kind")

    # Messages.

    def finish(self) -> None:
        cp.cuda.get_current_stream().synchronize()  # which waits for all copies to the device
        self._arriving.clear()

    def message(self, array: Array, staged: bool = False) -> Array | np.ndarray:
        """Page-locked memory of the host, unless MPI reads and writes the device."""
        if isinstance(array, np.ndarray):
            return array
        if self.host_visible and not staged:
            self.finish()
            return array
        if not array.size:
            return np.empty(array.shape, array.dtype)
        self._copies_wait()
        return cupyx.empty_pinned(array.shape, array.dtype)

    def to_message(self, array: Array, message: Array | np.ndarray) -> None:
        if isinstance(array, np.ndarray):
            return
        if message is array:
            self._sends_directly = True
        elif array.size:
            self._copies_wait()
            array.get(stream=self._stream, out=message, blocking=False)
            self._sends = True

    def before_sending(self) -> None:
        if self._sends_directly:
            self.finish()
        if self._sends:
            self._stream.synchronize()
        self._sends = self._sends_directly = False

    def before_receiving(self) -> None:
        if self.host_visible:
            self.finish()
            return
        self._copies_wait()
        for event, _ in self._arriving:
            if not event.done:
                event.synchronize()
        self._arriving.clear()

    def from_message(self, message: Array | np.ndarray, array: Array) -> None:
        """Copy after all work begun before the message arrived, and before all later work."""
        if message is array or not array.size:
            return
        array.set(message, stream=self._stream)
        event = recorded(self._stream)
        cp.cuda.get_current_stream().wait_event(event)
        self._arriving.append((event, message))

    def _copies_wait(self) -> None:
        """Later copies wait for all work that was begun so far."""
        self._stream.wait_event(recorded(cp.cuda.get_current_stream()))


def upload(array: np.ndarray, dtype: DTypeLike | None = None) -> Array:
    """A copy on the device; the host's array may change once this returns.

    CuPy keeps a small one in page-locked memory until the device has it, so that nobody waits for
    what the device has to do before. For a large one, much memory would stay page-locked. It gets
    an array of its own, since it may send what is page-locked already from where it is.
    """
    dtype = array.dtype if dtype is None else np.dtype(dtype)
    if array.size * dtype.itemsize <= _KEPT:
        return cp.asarray(np.array(array, dtype, order="C"))
    copied = cp.empty(array.shape, dtype)
    copied.set(np.ascontiguousarray(array, dtype))
    cp.cuda.get_current_stream().synchronize()
    return copied


def recorded(stream: cp.cuda.Stream) -> cp.cuda.Event:
    """An event after all that was begun on a stream."""
    event = cp.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


class DeviceNumber:
    """A number that the device computes, times a factor; a float once somebody asks for it.

    It is copied to the host behind the work that computes it, so that asking after a later wait is
    free.
    Of a number in a graph, ``fetch`` copies it after each time that the graph has run. ``array`` is
    (1,) float64 on the device.
    """

    # Copies under way: the pool of page-locked memory gives away at once what is let go. They are
    # listed as they begin. When a number in a cycle is collected, so may its event have been.
    _under_way: ClassVar[list[tuple[cp.cuda.Event, np.ndarray]]] = []

    def __init__(self, array: Array, factor: float = 1.0) -> None:
        self.array, self.factor = array, factor
        self._host: np.ndarray | None = None  # where it is copied to
        if not cp.cuda.get_current_stream().is_capturing():
            self.fetch()

    def fetch(self) -> None:
        """Begin the copy to the host."""
        self._under_way[:] = [one for one in self._under_way if not one[0].done]
        if self._host is None:
            self._host = cupyx.empty_pinned((1,), np.float64)
        self.array.get(out=self._host, blocking=False)
        self._event = recorded(cp.cuda.get_current_stream())
        self._under_way.append((self._event, self._host))

    def __mul__(self, factor: float) -> DeviceNumber:
        """The same times a number; nothing is computed yet."""
        product = object.__new__(DeviceNumber)
        product.__dict__.update(self.__dict__, factor=self.factor * factor)
        return product

    def __float__(self) -> float:
        """Wait for it, if it is not there."""
        if not self._event.done:
            self._event.synchronize()
        assert self._host is not None, "nobody has fetched it"
        return float(self._host[0]) * self.factor
