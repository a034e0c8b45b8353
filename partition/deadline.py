"""Limits of time: how much is left, also for compiled code, and whether the clock decided."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

import numpy as np

from partition.errors import UserError


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
        ended = self.left() == 0
        if ended:
            self.decide()
        return ended

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
