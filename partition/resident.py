"""What this process and the tools that it started keep in memory."""

from __future__ import annotations

import contextlib
import mmap
import re
import resource
import sys
from pathlib import Path

import numpy as np

UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system counts in


def let_go(*arrays: np.ndarray | None) -> None:
    """Have no pages of mapped files in memory; what is used again is read from the file again.

    Pages count as the memory of a process although the system may take them back at any time. Of
    arrays that are not mapped nothing happens.
    """
    for array in arrays:
        base: object = array
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def taken() -> tuple[int, int]:
    """The most bytes that this process has had in memory, and the largest one that it started."""
    own, other = (
        resource.getrusage(who).ru_maxrss * UNIT
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    # What ``getrusage`` says begins with what the process that started this one had.
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        own = int(found[1]) * 1024 if found else own
    return own, other
