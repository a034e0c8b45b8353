"""The signals that ask ``gcn-partition`` to end: in good order, or at once.

A handler in Python runs between two steps of Python alone, so not while compiled code computes,
which may take minutes. Such work leaves nothing behind that has to be deleted, and locks end with
the process, so that signals may end it by themselves meanwhile. Where a tool runs, or files are
written, the handler deletes what is temporary and stops the tool.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """Let signals end this program as Ctrl-C does, with the exit code that a shell would give."""
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let signals end the process by themselves meanwhile, Ctrl-C too, whatever it computes.

    Only in a program that has called :func:`end_in_order`: others have their own ways.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not _end
    ):
        yield
        return
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGINT)}
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
