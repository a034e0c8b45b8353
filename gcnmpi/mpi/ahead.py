"""Work whose results are wanted later: it goes on in a thread, and between other steps.

Such work is a generator. Its steps between two ``yield``s need no message, so a thread may do them.
It yields functions that start an operation of MPI; the main thread calls each, as MPI is told that
no other thread will, and the generator goes on when the operation is complete. All ranks yield the
same operations in the same order, on a communicator that nothing else uses; which of them do the
work ahead, each may choose for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

import numpy as np

from gcnmpi.mpi.comm import Comm, Request

T = TypeVar("T")
Start = Callable[[], Request]
Work = Generator[Start, None, T]


def done_now(work: Work[T]) -> T:
    """Do the work at once, with nothing done meanwhile; returns its result."""
    while True:
        try:
            start = next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        start().Wait()


class Ahead(Generic[T]):
    """Work that is under way; made, asked and ended on the main thread.

    Its steps that need no message run in ``threads``.
    """

    def __init__(self, work: Work[T], threads: Executor) -> None:
        self._work, self._threads = work, threads
        self._request: Request | None = None
        self._made: list[T] = []
        # At last: the thread may be through with it before the next line here.
        self._next: Future[Start | None] | None = threads.submit(self._to_next_start)

    def proceed(self) -> None:
        """Start and complete what can be without waiting."""
        while True:
            if self._next is not None:
                if not self._next.done():
                    return
                self._begin(self._next.result())
            if self._request is None or not self._request.Test():
                return
            self._request = None
            self._next = self._threads.submit(self._to_next_start)

    def result(self) -> T:
        """Wait for the work; returns its result."""
        if self._next is not None:
            self._begin(self._next.result())
        if self._request is not None:
            self._request.Wait()
            self._request = None
        if not self._made:
            self._made.append(done_now(self._work))
        return self._made[0]

    def _begin(self, start: Start | None) -> None:
        self._next = None
        if start is not None:
            self._request = start()

    def _to_next_start(self) -> Start | None:
        try:
            return next(self._work)
        except StopIteration as end:
            self._made.append(end.value)
            return None


class InTurn(Generic[T]):
    """Works of a series, of which each may be under way while the one before is used.

    ``threads`` do their steps that need no message; None: each work is done when it is asked for.
    """

    def __init__(self, threads: Executor | None) -> None:
        self._threads = threads
        self._ahead: Ahead[T] | None = None

    def take(self, work: Callable[[], Work[T]], following: Callable[[], Work[T]] | None) -> T:
        """The result of a work, which may be under way; ``following`` is begun, if there is one."""
        if self._ahead is None:
            result = done_now(work())
        else:
            result = self._ahead.result()
            self._ahead = None
        if self._threads is not None and following is not None:
            self._ahead = Ahead(following(), self._threads)
        return result

    @property
    def under_way(self) -> bool:
        """Whether a work was begun and not taken."""
        return self._ahead is not None

    def proceed(self) -> None:
        """Go on with the work that is under way, without waiting."""
        if self._ahead is not None:
            self._ahead.proceed()

    def end(self) -> None:
        """Complete what is under way, so that no message is left; it may be taken later."""
        if self._ahead is not None:
            self._ahead.result()


def asking(
    comm: Comm, owners: np.ndarray, items: np.ndarray
) -> Work[tuple[np.ndarray, np.ndarray]]:
    """Send item i to rank ``owners[i]``, which increase, as work that may be done ahead.

    Its result are the items that came here, by sending rank, and how many came from each, (P,)
    int64.
    """
    sent = np.bincount(owners, minlength=comm.size).astype(np.int64)
    counts = np.empty_like(sent)
    if comm.size == 1:
        return items, sent
    yield lambda: comm.Ialltoall(sent, counts)
    asked = np.empty(counts.sum(), items.dtype)
    places = np.cumsum(sent) - sent, np.cumsum(counts) - counts
    yield lambda: comm.Ialltoallv([items, (sent, places[0])], [asked, (counts, places[1])])
    return asked, counts
