"""Devices, of which FAKE_DEVICES tells the number, streams and events."""

from cupy.cuda import device, runtime
from cupy.cuda.runtime import used
from cupy.queue import another, main

__all__ = [
    "Device",
    "Event",
    "Stream",
    "device",
    "get_current_stream",
    "get_elapsed_time",
    "runtime",
    "used",
]


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

    def synchronize(self):
        self.queue.wait()

    def wait_event(self, event):
        self.queue.add(event.mark.run)


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.mark = None

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


of_pointer = {}
_first = Stream(null=True)


def get_current_stream():
    return _first
