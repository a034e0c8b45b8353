"""Memory of this process, as the operating system counts it."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from pathlib import Path

KILOBYTE = 1024
LARGE = 8 << 20
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def resident_bytes() -> int:
    """What is in memory now; the peak where the system does not say."""
    return _status("VmRSS:") or peak_bytes()


def peak_bytes() -> int:
    """The most that was in memory since the process began, or since :func:`forget_peak`."""
    return _status("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE


def forget_peak() -> None:
    """Begin to count the peak anew, where the system lets us."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def return_large_arrays() -> None:
    """Have the C library give arrays of 8 MiB and more back to the system when they are freed.

    glibc moves its own limit up to 32 MiB as such arrays are freed, and keeps what is below: after
    loading a graph, gaps that nothing fits into. Other libraries have no such call.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def _status(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * KILOBYTE
    return 0
