"""Where the time goes (named phases) and what is handed to MPI (named traffic)."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator


class Phases:
    """Seconds spent in named, nested phases of this rank; an inner phase's time is its own.

    Timing has no barriers: waiting for others is a phase like any other.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._closed = False
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Attribute the time of a block to ``name``."""
        if self._closed:
            yield
            return
        self._switch()
        self._stack.append(name)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    @contextlib.contextmanager
    def as_one(self, name: str) -> Iterator[None]:
        """Attribute all of a block to ``name``, whatever phases are named within."""
        with self(name):
            before, self._closed = self._closed, True
            try:
                yield
            finally:
                self._closed = before

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now


class Traffic:
    """Bytes and messages that this rank handed to MPI, by purpose.

    ``purpose`` says what traffic is for at the moment: "setup", "train" or "eval" for exchanges;
    reductions are counted apart, under "train_reduce" and so on.
    """

    def __init__(self) -> None:
        self.purpose = "setup"
        self.bytes: defaultdict[str, int] = defaultdict(int)
        self.messages: defaultdict[str, int] = defaultdict(int)

    def count(self, nbytes: int, messages: int, purpose: str | None = None) -> None:
        """Add a sending of ``nbytes`` in ``messages`` messages."""
        self.bytes[purpose or self.purpose] += nbytes
        self.messages[purpose or self.purpose] += messages

    @contextlib.contextmanager
    def during(self, purpose: str) -> Iterator[None]:
        """Count what is sent in a block under ``purpose``."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before
