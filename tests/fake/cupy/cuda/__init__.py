"""Devices, of which FAKE_DEVICES tells the number, streams, events, graphs and memory.

A graph does what was begun on a stream while that was captured, with the numbers that were passed
then, at the addresses that were passed. FAKE_GRAPHS=capture or launch: the device cannot do that.
"""

import contextlib
import os
import weakref

import numpy as np

from cupy.cuda import device, runtime
from cupy.cuda.runtime import used
from cupy.queue import another, begin, current, main, refuse_in_capture

__all__ = [
    "Device", "Event", "Graph", "MemoryPool", "Stream", "device", "get_current_stream",
    "get_elapsed_time", "runtime", "set_allocator", "used", "using_allocator",
]  # fmt: skip


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        used.append(self.number)


class Stream:
    def __init__(self, null=False, non_blocking=False, ptds=False):
        assert null or non_blocking, "it would wait for the first stream, and that for it"
        self.queue = main if null else another()
        self.ptr = 0 if null else id(self)
        of_pointer[self.ptr] = self

    def __enter__(self):
        current.append(self.queue)
        return self

    def __exit__(self, *args):
        assert current.pop() is self.queue

    def synchronize(self):
        self.queue.wait()

    def wait_event(self, event):
        refuse_in_capture("waiting for another stream")
        self.queue.add(event.mark.run)

    def begin_capture(self, mode=None):
        if self.queue is main:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        refuse_in_capture("another capture")
        _refuse("capture")
        self.queue.begin_capture()

    def end_capture(self):
        return Graph(self.queue.end_capture())

    def is_capturing(self):
        return self.queue.captured is not None


class Graph:
    def __init__(self, calls):
        self._calls = calls

    def launch(self, stream=None):
        def run():
            for call in self._calls:
                call()

        refuse_in_capture("another graph")
        _refuse("launch")
        begin(run, None if stream is None else stream.queue)


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.mark = None

    def __del__(self):
        self.mark = None  # destroyed, also if somebody has it again

    def record(self, stream=None):
        self.mark = (stream or get_current_stream()).queue.event()

    @property
    def done(self):
        return self.mark.queue.done(self.mark.number)

    def synchronize(self):
        self.mark.queue.wait(self.mark.number)


def get_elapsed_time(start_event, end_event):
    assert end_event.done
    return 1.0


def _refuse(what):
    if os.environ.get("FAKE_GRAPHS") == what:
        raise runtime.CUDARuntimeError("cudaErrorNotSupported: operation not supported")


class MemoryPool:
    """Memory that stays its own; what is given back is given away again at once, as in CuPy.

    So what is begun later on the stream may overwrite what is read earlier, and nothing else may.
    """

    def __init__(self):
        self._free = {}

    def malloc(self, size):
        free = self._free.setdefault(size, [])
        if not free:
            refuse_in_capture("new memory")
            free.append(np.empty(size, np.uint8))
        lease = _Lease()
        lease.block = free.pop()
        weakref.finalize(lease, free.append, lease.block)
        return lease


class _Lease:
    """A block of a pool, for as long as an array has it."""


_allocators = [None]


@contextlib.contextmanager
def using_allocator(allocator=None):
    _allocators.append(allocator)
    try:
        yield
    finally:
        _allocators.pop()


def set_allocator(allocator=None):
    _allocators[0] = allocator


def _leased(size):
    """A block of the pool that is in use; None without one."""
    if _allocators[-1] is None:
        refuse_in_capture("memory that is not the graph's")
        return None
    return _allocators[-1](size)


of_pointer = {}
_first = Stream(null=True)


def get_current_stream():
    return next(stream for stream in of_pointer.values() if stream.queue is current[-1])
