"""Where the time goes (named phases) and what is handed to MPI (named traffic)."""

from __future__ import annotations

import contextlib
import statistics
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from gcnmpi.core.volume import Volume

# The phases of epochs, of evaluations and checkpoints; "load" is before the first epoch.
EPOCH_PHASES = (
    "sample", "spmm", "gemm", "loss", "update", "other", "pack", "wait", "reduce", "scratch",
    "eval", "checkpoint",
)  # fmt: skip
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

    def begin(self) -> None:
        """Forget the phases of epochs, which an earlier run in this process may have had."""
        for name in EPOCH_PHASES:
            self.seconds.pop(name, None)

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


@dataclass
class Error:
    """The effect of rounding on the rows that a rank sent in one exchange.

    Exchanges of an epoch count from 1. ``changed`` and ``size`` are sums of squares over the rows:
    of what rounding changed, and of all numbers.
    """

    epoch: int
    exchange: int
    width: int
    changed: float
    size: float


class Timed(Protocol):
    """An exchange whose ways of moving rows can be timed."""

    def time_alone(self, way: Any, /) -> float:
        """Seconds that one of its ways takes when nobody computes."""


class Traffic:
    """The volume that this rank handed to MPI, by purpose, and how much of its time was hidden.

    ``purpose`` says what traffic is for at the moment: "setup", "train" or "eval" for exchanges;
    reductions are counted apart, under "train_reduce" and so on.

    Attributes
    ----------
    epoch : int
        Of training; 0 in an evaluation.
    measured : bool
        Whether errors of rounded messages are to be measured.
    errors : list of Error
        What was measured.
    """

    def __init__(self) -> None:
        self.purpose, self.epoch, self.measured = "setup", 0, False
        self.errors: list[Error] = []
        self._rounded = 0
        self._volumes: defaultdict[str, Volume] = defaultdict(Volume)
        self._timed: defaultdict[
            str, weakref.WeakKeyDictionary[Timed, dict[object, deque[float]]]
        ] = defaultdict(weakref.WeakKeyDictionary)

    def __getitem__(self, purpose: str) -> Volume:
        """The volume that was counted under a purpose so far."""
        return self._volumes[purpose]

    def begin(self) -> None:
        """Take what an earlier run in this process has counted as "train" for "setup"."""
        for kind in ("", "_reduce"):
            self.count(self._volumes.pop(f"train{kind}", Volume()), f"setup{kind}")

    def count(self, volume: Volume, purpose: str | None = None) -> None:
        """Add what an operation moves."""
        self._volumes[purpose or self.purpose] += volume

    def took(self, exchange: Timed, route: object, exposed: float) -> None:
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
    def during(self, purpose: str, epoch: int = 0, measured: bool = False) -> Iterator[None]:
        """Count what is sent in a block under ``purpose``."""
        before = self.purpose, self.epoch, self.measured
        self.purpose, self.epoch, self.measured, self._rounded = purpose, epoch, measured, 0
        try:
            yield
        finally:
            self.purpose, self.epoch, self.measured = before

    # Messages in fewer bits: ``comm.precision``.

    @property
    def rounds(self) -> bool:
        """Whether messages may be rounded: not what is sent once, as for M·H⁰ or inference."""
        return self.purpose != "setup"

    def round(self) -> int:
        """The number of the rounded exchange that begins, of an epoch or an evaluation, from 1."""
        self._rounded += 1
        return self._rounded

    def add_error(self, exchange: int, width: int, changed: float, size: float) -> None:
        """Keep what rounding did; fields of :class:`Error`."""
        self.errors.append(Error(self.epoch, exchange, width, changed, size))
