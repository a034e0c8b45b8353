"""Early ends of a run: signals that ask it to stop, and a time-out for ranks that hang."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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
    Only the main thread can catch signals; in another one, none is.

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
    if threading.current_thread() is not threading.main_thread():
        before = {}
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
        with _Stacks(thread) as stacks:
            place, since = None, time.monotonic()
            while not over.wait(1 / _LOOKS_A_SECOND):
                now = (said[0], *stacks.now())
                if now != place:
                    place, since = now, time.monotonic()
                elif time.monotonic() - since > seconds:
                    print(_message(rank, seconds, now[1:]), file=sys.stderr, flush=True)
                    end(1)
                    return

    watcher = threading.Thread(target=look, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield say
    finally:
        over.set()
        watcher.join()


class _Stacks:
    """Where a thread is, as often as is asked: lines of faulthandler, the innermost call first.

    Frames of a thread that runs are not to be walked from Python: it goes on in between, and
    CPython 3.11 was seen to crash. faulthandler reads them in one piece, into a pipe here.
    """

    def __init__(self, thread: int) -> None:
        self._header = f"Thread 0x{thread:016x} (most recent call first):"

    def __enter__(self) -> _Stacks:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)  # what does not fit the pipe is left out
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._read)
        os.close(self._write)

    def now(self) -> list[str]:
        """Its calls."""
        faulthandler.dump_traceback(self._write, all_threads=True)
        text = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                text += os.read(self._read, 1 << 16)
        _, _, after = text.decode(errors="replace").partition(self._header + "\n")
        return after.partition("\n\n")[0].splitlines()


def _message(rank: int, seconds: float, calls: Sequence[object]) -> str:
    folder = Path(__file__).parents[1]
    ours = []
    for call in calls:
        found = re.fullmatch(r'\s*File "(.*)", line (\d+) in (.*)', str(call))
        if found and folder in (file := Path(found[1])).parents:
            module = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
            ours.append(f"{module}.{found[3]}:{found[2]}")
    return (
        f"error: rank {rank} on {socket.gethostname()} has made no progress for {seconds:g} s, "
        f"in {' < '.join(ours[:3])}\n"
        "  hint: a rank or the network hangs, or comm.timeout is shorter than a step; "
        "training goes on from the last checkpoint with the same command"
    )
