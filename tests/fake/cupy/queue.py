"""The work of the device, a queue a stream, and the memory that it may still touch."""

import os
from collections import deque

# What was begun, by what it is, and how often somebody waited for work that was not done.
counts = {"launches": 0, "copies": 0, "waits": 0}
_memory, _queues = [], []


class Queue:
    """Work that is done in order."""

    def __init__(self, early=False):
        self._work, self._begun, self._done, self._early = deque(), 0, 0, early
        _queues.append(self)

    def add(self, call):
        self._work.append(call)
        self._begun += 1
        if self._early:
            self.run_until(self._begun)

    def event(self):
        return Mark(self, self._begun)

    def done(self, number):
        return self._done >= number

    def run_until(self, number):
        while self._done < number:
            self._work.popleft()()
            self._done += 1
        if not any(queue._work for queue in _queues):
            _memory.clear()

    def wait(self, number=None):
        number = self._begun if number is None else number
        counts["waits"] += not self.done(number)
        self.run_until(number)


class Mark:
    """A place in a queue."""

    def __init__(self, queue, number):
        self.queue, self.number = queue, number

    def run(self):
        self.queue.run_until(self.number)


main = Queue()


def another():
    return Queue(early=os.environ.get("FAKE_STREAMS") != "late")


def begin(call, queue=main, kind="launches"):
    counts[kind] += 1
    queue.add(call)


def keep(array):
    if any(queue._work for queue in _queues):
        _memory.append(array)
