"""Early ends of a run: signals that ask it to stop, and a time-out for ranks that hang.

A rank that waits for one that hangs, or that somebody has stopped, must end, wherever it waits.
Three alarms see to it:

* a thread in Python looks whether the main thread moves, and says where it stands;
* faulthandler's thread in C, set again and again by the first, ends the process where the main
  thread waits in C and holds the interpreter's lock (GIL), as in ``MPI_Init`` and ``MPI_Finalize``:
  no thread in Python runs then;
* a timer of the kernel ends a process that is stopped when all others have gone.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from types import FrameType, FunctionType
from typing import TypeVar

T = TypeVar("T")

# EX_TEMPFAIL of sysexits.h: try again. A batch script puts the job back in the queue on it.
EXIT_REQUEUE = 75
# Of batch systems and users before a time limit; they mean nothing else, and would end the process.
NOTICES = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
ENDINGS = (signal.SIGTERM, signal.SIGINT)  # which launchers may follow with SIGKILL
STOP_SIGNALS = (*NOTICES, *ENDINGS)
_INTERRUPTED = b"\nstopping with a checkpoint after this epoch; interrupted once more: at once\n"
_OVER = b"\0"  # no signal has this number
_LOOKS_A_SECOND = 10
_BEFORE_KILLED = 3.0  # seconds; mpirun leaves one between SIGCONT and SIGKILL
_LATER = 1.0  # seconds that each alarm leaves to the one before it


@contextlib.contextmanager
def stop_requests(launcher: int | None = None, tell: bool = True) -> Iterator[Callable[[], int]]:
    """Catch signals that ask for a checkpoint and an end: ``asked()`` is the last one, or 0.

    SIGTERM and SIGINT end the process as ever until ``asked`` is called for the first time: before
    that nobody looks, and there is nothing to keep. The others, which mean nothing else, wait.
    Whoever presses Ctrl-C once more does not want to wait: a second SIGINT interrupts as ever.
    Only the main thread can catch signals; in another one, none is.

    ``launcher`` is the parent process without which nobody waits for this one: its end asks too, as
    SIGHUP. With ``tell``, this process answers SIGINT with a line on stderr.
    """
    caught = [0]
    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def heed(*numbers: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            handler = signal.getsignal(number)
            # A shell has what it starts in the background ignore SIGINT: that stays so.
            if number not in before and handler not in (None, signal.SIG_IGN):
                before[number] = handler
                signal.signal(number, catch)

    def catch(number: int, _: FrameType | None) -> None:
        caught[0] = number
        if number == signal.SIGINT:
            signal.signal(number, before[signal.SIGINT])
            if tell:
                os.write(2, _INTERRUPTED)  # print may be what was interrupted

    def asked() -> int:
        heed(*STOP_SIGNALS)
        alone = launcher is not None and os.getppid() != launcher
        return caught[0] or (signal.SIGHUP if alone else 0)

    heed(*NOTICES)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def on_ending(call: Callable[[], object]) -> Iterator[None]:
    """Have another thread call ``call()`` as soon as SIGTERM or SIGINT is caught.

    A handler of Python waits until the main thread comes back from compiled code and from MPI. An
    mpirun that was interrupted kills its ranks half a second later, which may be sooner.
    Only in the main thread, and where signals have handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)

    def listen() -> None:
        while (number := os.read(read, 1)) not in (b"", _OVER):
            if ord(number) in ENDINGS:
                call()

    listener = threading.Thread(target=listen, name="on-ending", daemon=True)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(write, _OVER)
        listener.join()
        os.close(read)
        os.close(write)


@contextlib.contextmanager
def watchdog(
    seconds: float, rank: int, end: Callable[[int], object] = os._exit
) -> Iterator[Callable[[], None]]:
    """End this process if its main thread has made no progress for so many seconds; 0: never.

    It has moved if it is found at another place of the program, or says so by calling what this
    context gives. A rank that waits for a message that never comes stays where it is; one that
    reads a large graph does not. The process ends without MPI, which may be what hangs; the
    launcher then ends the others. So it does a second later if no other thread of Python can run
    meanwhile, with all that faulthandler can say then. ``end`` takes the exit code.
    """
    said = [0]

    def say() -> None:
        said[0] += 1

    if not seconds:
        yield say
        return
    thread, over = threading.get_ident(), threading.Event()

    def rearm() -> None:
        faulthandler.dump_traceback_later(seconds + _LATER, exit=True, file=2)

    def look() -> None:
        with _Stacks(thread) as stacks:
            place, since = None, time.monotonic()
            alarm = since
            while not over.wait(1 / _LOOKS_A_SECOND):
                if time.monotonic() - alarm > _LATER / 4:
                    alarm = time.monotonic()
                    rearm()
                now = (said[0], *stacks.now())
                if now != place:
                    place, since = now, time.monotonic()
                elif time.monotonic() - since > seconds:
                    where = f", in {' < '.join(_ours(now[1:])[:3])}\n  hint: {_HINT}"
                    print(f"error: {_still(rank, seconds)}{where}", file=sys.stderr, flush=True)
                    end(1)
                    return

    watcher = threading.Thread(target=_named(look, rank, seconds), name="watchdog", daemon=True)
    rearm()  # before it looks for the first time
    watcher.start()
    try:
        yield say
    finally:
        over.set()
        watcher.join()
        faulthandler.cancel_dump_traceback_later()


def within(seconds: float, rank: int, call: Callable[[], T]) -> T:
    """The result of a call that holds the GIL; this process ends if it takes so long; 0: never.

    Needs no other thread of Python, and so works in what is called at the exit, too.
    """
    if not seconds:
        return call()
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    try:
        return _named(lambda: call(), rank, seconds)()
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def waking_slowly() -> Iterator[None]:
    """A process that was stopped in this block, and is woken, stands still for some seconds first.

    The launcher wakes a rank that it is about to end. A rank that went on and were ended while it
    introduces itself in ``MPI_Init`` would leave Open MPI's mpirun waiting for a lock for ever.
    Only the main thread can see to this; in another one, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCONT, lambda *_: time.sleep(_BEFORE_KILLED))
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before or signal.SIG_DFL)


def end_within(seconds: float) -> None:
    """Have this process killed if it is there so many seconds and a few later; 0: never.

    For one that has nothing left to do, nor anybody who waits for it but the launcher: only the
    kernel can end it if it is stopped then. Where there are no such timers, nothing happens.
    """
    if seconds:
        kernel_timer(seconds + 3 * _LATER, signal.SIGKILL)


def kernel_timer(seconds: float, number: int) -> None:
    """Have the kernel send a signal to this process after so many seconds, whatever it does then.

    Where there are no such timers, nothing happens.
    """
    whole, part = divmod(seconds, 1)
    moment = (ctypes.c_long * 4)(0, 0, int(whole), int(part * 1e9))  # no interval; when
    timer, event = ctypes.c_void_p(), _Sigevent(signal=number)
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        if libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0:
            libc.timer_settime(timer, 0, moment, None)


class _Sigevent(ctypes.Structure):
    """``struct sigevent`` of 64 bytes, with SIGEV_SIGNAL, which is 0."""

    _fields_ = (
        ("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )  # fmt: skip


class _Stacks:
    """Where a thread is, as often as is asked: lines of faulthandler, the innermost call first.

    Frames of a thread that runs are not to be walked from Python: it goes on in between, and
    CPython 3.11 was seen to crash. faulthandler reads them in one piece, into a pipe here.
    """

    def __init__(self, thread: int) -> None:
        self._header = f"Thread 0x{thread:016x} "  # Python 3.14 adds a name

    def __enter__(self) -> _Stacks:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)  # what does not fit the pipe is left out
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._read)
        os.close(self._write)

    def now(self) -> list[str]:
        """The calls of the thread at this moment."""
        faulthandler.dump_traceback(self._write, all_threads=True)
        text = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                text += os.read(self._read, 1 << 16)
        _, _, after = text.decode(errors="replace").partition(self._header)
        return after.partition("\n\n")[0].splitlines()[1:]


def _named(function: Callable[..., T], rank: int, seconds: float) -> Callable[..., T]:
    """A function whose name says that a rank stands still.

    faulthandler writes the names of the functions that run, and no words of ours.
    """
    assert isinstance(function, FunctionType)
    words = f"error: {_still(rank, seconds)}; {_HINT}"
    return FunctionType(
        function.__code__.replace(co_name=words), function.__globals__, closure=function.__closure__
    )


def _still(rank: int, seconds: float) -> str:
    return f"rank {rank} on {socket.gethostname()} has made no progress for {seconds:g} s"


_HINT = (
    "a rank or the network hangs, or comm.timeout is shorter than a step; "
    "training goes on from the last checkpoint with the same command"
)


def _ours(calls: Sequence[object]) -> list[str]:
    """Places in this package, among lines of faulthandler."""
    folder = Path(__file__).parents[1]
    ours = []
    for call in calls:
        found = re.fullmatch(r'\s*File "(.*)", line (\d+) in (.*)', str(call))
        if found and folder in (file := Path(found[1])).parents:
            module = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
            ours.append(f"{module}.{found[3]}:{found[2]}")
    return ours
