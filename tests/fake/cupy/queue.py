"""The work of the device, a queue a stream, and the memory that it may still touch.

While a queue is captured, its work is kept and not done, and nothing else may be asked for: no work
of other streams, no waiting, no copy between host and device, no new memory.
"""

import os
from collections import deque

# How many launches and copies were begun, and how often somebody waited for work not yet done.
counts = {"launches": 0, "copies": 0, "waits": 0}
_memory, _busy, _captured = [], set(), set()  # the latter: queues


class Queue:
    """Work that is done in order."""

    def __init__(self, early=False):
        self._work, self._begun, self._done, self._early = deque(), 0, 0, early
        self.captured = None  # the work of the graph that is being made

    def add(self, call):
        if self.captured is not None:
            self.captured.append(call)
            return
        self._work.append(call)
        _busy.add(self)
        self._begun += 1
        if self._early:
            self.run_until(self._begun)

    def event(self):
        refuse_in_capture("an event")
        return Mark(self, self._begun)

    def done(self, number):
        return self._done >= number

    def run_until(self, number):
        while self._done < number:
            self._done += 1
            call = self._work.popleft()
            if not self._work:
                _busy.discard(self)
            call()  # which may fail
        if not _busy:
            _memory.clear()

    def wait(self, number=None):
        refuse_in_capture("waiting")
        number = self._begun if number is None else number
        counts["waits"] += not self.done(number)
        self.run_until(number)

    def begin_capture(self):
        self.captured = []
        _captured.add(self)

    def end_capture(self):
        captured, self.captured = self.captured, None
        _captured.remove(self)
        return captured


class Mark:
    """A place in a queue."""

    def __init__(self, queue, number):
        self.queue, self.number = queue, number

    def run(self):
        self.queue.run_until(self.number)


main = Queue()
current = [main]  # the last one is that of the stream that is in use


def another():
    return Queue(early=os.environ.get("FAKE_STREAMS") != "late")


def begin(call, queue=None, kind="launches"):
    """Work of a kind that is counted, or of None."""
    queue = current[-1] if queue is None else queue
    if queue.captured is None:
        refuse_in_capture("work of another stream")
        if kind is not None:
            counts[kind] += 1
    elif kind == "copies":
        refuse_in_capture("a copy between host and device")
    queue.add(call)


def refuse_in_capture(what):
    """As CUDA does, or CuPy, or where a graph would go on to use what is gone by then."""
    if _captured:
        from cupy.cuda.runtime import CUDARuntimeError

        said = "operation not permitted when stream is capturing"
        raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {said} ({what})")


def keep(array):
    if _busy:
        _memory.append(array)
