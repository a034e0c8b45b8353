"""Where the time goes (named phases) and what is handed to MPI (named traffic)."""

from __future__ import annotations

import contextlib
import statistics
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from gcnmpi.core.volume import Volume

REMEMBERED = 1000  # times of an exchange, the last ones: a long run must not grow


class Phases:
    """Seconds spent in named, nested phases of this rank; an inner phase's time is its own.

    Timing has no barriers: waiting for others is a phase like any other.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._closed = False
        self._since = time.perf_counter()

    def __call__(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Attribute the time of a block to ``name``."""
        return _NOTHING if self._closed else _Phase(self, name)

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


class _Phase:
    """A block of a phase; a class, since an epoch of a small graph enters hundreds of them."""

    __slots__ = ("_name", "_phases")

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases, self._name = phases, name

    def __enter__(self) -> None:
        self._phases._switch()
        self._phases._stack.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._phases._switch()
        self._phases._stack.pop()


_NOTHING = contextlib.nullcontext()


class Traffic:
    """What this rank handed to MPI, by purpose, and how much of the exchanges' time was hidden.

    ``purpose`` says what traffic is for at the moment: "setup", "train" or "eval" for exchanges;
    reductions are counted apart, under "train_reduce" and so on.
    """

    def __init__(self) -> None:
        self.purpose = "setup"
        self._volumes: defaultdict[str, Volume] = defaultdict(Volume)
        self._timed: defaultdict[str, Any] = defaultdict(weakref.WeakKeyDictionary)

    def __getitem__(self, purpose: str) -> Volume:
        """What was counted under a purpose so far."""
        return self._volumes[purpose]

    def count(self, volume: Volume, purpose: str | None = None) -> None:
        """Add what an operation moves."""
        self._volumes[purpose or self.purpose] += volume

    def took(self, exchange: Any, route: Any, exposed: float) -> None:
        """Add the seconds spent on one way of an exchange, packing and waiting."""
        routes = self._timed[self.purpose].setdefault(exchange, {})
        routes.setdefault(route, deque(maxlen=REMEMBERED)).append(exposed)

    def hidden(self, purpose: str) -> float | None:
        """Share of the exchanges' time that computing hid, in the median; None if none was timed.

        To be asked by all ranks together, since the exchanges are made again, to see what they take
        when nobody computes. Waiting for a rank that is late counts as exposed, so the share may
        be 0 where all data moved in time.
        """
        alone = exposed = 0.0
        for exchange, routes in self._timed[purpose].items():
            for route, times in routes.items():
                alone += len(times) * exchange.time_alone(route)
                exposed += len(times) * statistics.median(times)
        return max(0.0, 1 - exposed / alone) if alone else None

    @contextlib.contextmanager
    def during(self, purpose: str) -> Iterator[None]:
        """Count what is sent in a block under ``purpose``."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before
