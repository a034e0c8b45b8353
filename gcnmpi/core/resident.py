"""Memory of this process and its host, as the operating system counts it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import resource
from pathlib import Path

from partition.resident import group_limits, process_limits, status_bytes

KILOBYTE = 1024
LARGE = 8 << 20
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1  # of glibc's malloc.h
LARGEST_KEPT = 32 << 20  # glibc takes no higher limit


def resident_bytes() -> int:
    """Bytes in memory now; the peak where the system does not say."""
    return status_bytes("VmRSS:") or peak_bytes()


def peak_bytes() -> int:
    """The most that was in memory since the process began, or since :func:`forget_peak`."""
    return status_bytes("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE


def forget_peak() -> None:
    """Begin to count the peak anew, where the system lets us."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def return_large_arrays() -> None:
    """Have the C library give arrays of 8 MiB and more back to the system when they are freed.

    glibc moves its own limit up to 32 MiB as such arrays are freed, and keeps what is below: after
    loading a graph, gaps that nothing fits into. Other libraries have no such call.
    """
    _ask_c_library("mallopt", M_MMAP_THRESHOLD, LARGE)


def keep_large_arrays() -> None:
    """Have the C library keep freed arrays of less than 32 MiB, as glibc does of its own accord.

    For programs that free and make matrices all the time, as PyTorch's do.
    """
    _ask_c_library("mallopt", M_MMAP_THRESHOLD, LARGEST_KEPT)
    _ask_c_library("mallopt", M_TRIM_THRESHOLD, 2 * LARGEST_KEPT)


def return_freed_memory() -> None:
    """Have the C library give back what was freed between arrays that live.

    Of arrays that are too small to be given back one by one. Other libraries have no such call.
    """
    _ask_c_library("malloc_trim", 0)


def _ask_c_library(name: str, *arguments: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)


def free_bytes() -> int:
    """Memory that processes of this host can still get; in a control group, what that leaves them.

    Pages of files that the system keeps count as free, as it gives them back when it is asked.
    """
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    groups = (limit - taken for limit, taken in group_limits())
    return min([int(line.split()[1]) * KILOBYTE, *groups])


def allowed_bytes() -> float:
    """Memory that this process may still take by its own limits: ``ulimit -v`` and ``-d``."""
    return min((limit - status_bytes(name) for limit, name in process_limits()), default=math.inf)
