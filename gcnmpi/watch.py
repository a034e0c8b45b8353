"""Early ends of a run: signals that ask it to stop, and a time-out for ranks that hang."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

# EX_TEMPFAIL of sysexits.h: try again. A batch script puts the job back in the queue on it.
EXIT_REQUEUE = 75
STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
_INTERRUPTED = b"\nstopping with a checkpoint after this epoch; interrupted once more: at once\n"
_LOOKS_A_SECOND = 10


@contextlib.contextmanager
def stop_requests(launcher: int | None = None, tell: bool = True) -> Iterator[Callable[[], int]]:
    """Catch signals that ask for a checkpoint and an end: ``asked()`` is the last one, or 0.

    Whoever presses Ctrl-C once more does not want to wait: a second SIGINT interrupts as ever.

    Parameters
    ----------
    launcher : int, optional
        Parent process without which nobody waits for this one: its end asks too, as SIGHUP.
    tell : bool
        Whether this process answers SIGINT with a line on stderr.
    """
    caught = [0]

    def catch(number: int, _: FrameType | None) -> None:
        caught[0] = number
        if number == signal.SIGINT:
            signal.signal(number, before[signal.SIGINT])
            if tell:
                os.write(2, _INTERRUPTED)  # print may be what was interrupted

    def asked() -> int:
        alone = launcher is not None and os.getppid() != launcher
        return caught[0] or (signal.SIGHUP if alone else 0)

    handlers = {int(number): signal.getsignal(number) for number in STOP_SIGNALS}
    # What this process was started to ignore, as a shell has it ignore SIGINT in the background.
    before = {n: h for n, h in handlers.items() if h not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, catch)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def watchdog(
    seconds: float, rank: int, end: Callable[[int], object] = os._exit
) -> Iterator[Callable[[], None]]:
    """End this process if its main thread has made no progress for so many seconds; 0: never.

    It has moved if it is found at another place of the program, or says so by calling what this
    context gives. A rank that waits for a message that never comes stays where it is; one that
    reads a large graph does not. The process ends without MPI, which may be what hangs; the
    launcher then ends the others.

    Parameters
    ----------
    end : callable
        Takes the exit code.
    """
    said = [0]

    def say() -> None:
        said[0] += 1

    if not seconds:
        yield say
        return
    thread, over = threading.get_ident(), threading.Event()

    def look() -> None:
        place, since = None, time.monotonic()
        while not over.wait(1 / _LOOKS_A_SECOND):
            frame = sys._current_frames()[thread]
            now = (said[0], *((f.f_code, f.f_lasti) for f in _stack(frame)))
            if now != place:
                place, since = now, time.monotonic()
            elif time.monotonic() - since > seconds:
                print(_message(rank, seconds, frame), file=sys.stderr, flush=True)
                end(1)
                return

    watcher = threading.Thread(target=look, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield say
    finally:
        over.set()
        watcher.join()


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _message(rank: int, seconds: float, frame: FrameType) -> str:
    own = __name__.partition(".")[0]
    ours = [f for f in _stack(frame) if f.f_globals.get("__name__", "").startswith(own)][:3]
    where = " < ".join(f"{f.f_globals['__name__']}.{f.f_code.co_name}:{f.f_lineno}" for f in ours)
    return (
        f"error: rank {rank} on {socket.gethostname()} has made no progress for {seconds:g} s, "
        f"in {where}\n"
        "  hint: a rank or the network hangs, or comm.timeout is shorter than a step; "
        "training goes on from the last checkpoint with the same command"
    )
