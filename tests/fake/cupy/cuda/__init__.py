"""Devices, of which FAKE_DEVICES tells the number, and the stream."""

from cupy.cuda import device, runtime
from cupy.cuda.runtime import used
from cupy.queue import wait

__all__ = ["Device", "device", "get_current_stream", "runtime", "used"]


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        used.append(self.number)


class _Stream:
    ptr = 0

    def synchronize(self):
        wait()


def get_current_stream():
    return _Stream()
