"""Limits of time and signals, which end a computation early.

A limit says how much is left, to compiled code too, and whether the clock decided. A handler of
signals in Python runs between two steps of Python alone, so not while compiled code computes, which
may take minutes. Such work leaves nothing behind that has to be deleted, and locks end with the
process, so that signals may end it by themselves meanwhile. Where a tool runs, or files are
written, the handler deletes what is temporary and stops the tool.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np

from partition.errors import UserError

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Deadline:
    """A span of time, possibly endless, and whether it ended, or hurried, what was done in it.

    Parameters
    ----------
    seconds : float, optional
        From now on; without end if None.
    paced : bool
        Whether a search should cool faster where the time is short; otherwise it goes its own pace
        until it is stopped.

    Attributes
    ----------
    decided : bool
        Whether the clock changed what was done: it may be something else next time.
    """

    def __init__(
        self, seconds: float | None = None, *, paced: bool = True, whole: Deadline | None = None
    ) -> None:
        self.seconds = math.inf if seconds is None else max(0.0, seconds)
        self.paced = paced
        self.decided = False
        self._begun, self._whole = time.monotonic(), whole

    def left(self) -> float:
        """Seconds that are left; 0 at the end."""
        return max(0.0, self.seconds - (time.monotonic() - self._begun))

    def timeout(self) -> float | None:
        """The same for those who take None for no limit."""
        return None if self.seconds == math.inf else self.left()

    def spent(self) -> float:
        """How much of it is over: 0 at first, 1 at the end."""
        return 1 - self.left() / self.seconds if 0 < self.seconds < math.inf else float(self.over())

    def over(self) -> bool:
        """Whether it has ended; the clock has decided then."""
        if self.left() > 0:
            return False
        self.decide()
        return True

    def decide(self) -> None:
        """Note that the clock has changed what is done."""
        self.decided = True
        if self._whole is not None:
            self._whole.decide()

    def part(self, share: float, *, paced: bool | None = None) -> Deadline:
        """A share of the time that is left."""
        seconds = None if self.seconds == math.inf else share * self.left()
        return Deadline(seconds, paced=self.paced if paced is None else paced, whole=self)

    @contextlib.contextmanager
    def flag(self) -> Iterator[np.ndarray]:
        """An array of one bool that is set when the time is over: compiled code can look at it."""
        flag = np.zeros(1, np.bool_)
        if self.seconds == math.inf:
            yield flag
            return
        timer = threading.Timer(self.left(), flag.fill, (True,))
        timer.daemon = True
        timer.start()
        try:
            yield flag
        finally:
            timer.cancel()


def deadline_for(time_limit: float | None, *, paced: bool = True) -> Deadline:
    """A deadline from now on; a UserError unless the limit is a time."""
    if time_limit is not None and not 0 < time_limit < math.inf:
        raise UserError(f"time limit = {time_limit}: it is in seconds")
    return Deadline(time_limit, paced=paced)


def end_in_order() -> None:
    """Let signals end this program as Ctrl-C does, with the exit code that a shell would give."""
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let signals end the process by themselves meanwhile, Ctrl-C too, whatever it computes.

    Only in a program that has called :func:`end_in_order`: others have their own ways.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not _end:
        yield
        return
    before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGINT)}
    ours = [n for n, handler in before.items() if handler in (_end, signal.default_int_handler)]
    try:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end(number: int, _: object) -> None:
    """End as on Ctrl-C: temporary files are deleted and other processes stopped on the way out."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)
