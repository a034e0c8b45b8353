"""Memory and cores of this process, and of the tools that it started: what they may take."""

import contextlib
import mmap
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partition.errors import require

# Files of a control group, by version: its limit, and what it takes; and what of that can be given
# back, in its statistics.
_GROUP_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
               2: ("memory.max", "memory.current")}  # fmt: skip
_OF_FILES = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file")}
_QUOTA_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
# Limits of a process, and the line of its status that says how much of it is taken.
_PROCESS_LIMITS = {resource.RLIMIT_AS: "VmSize:", resource.RLIMIT_DATA: "VmData:"}
_UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system counts in


def let_go(*arrays: np.ndarray | None) -> None:
    """Have no pages of mapped files in memory; what is used again is read from the file again.

    Pages count as the memory of a process although the system may take them back at any time. Of
    arrays that are not mapped nothing happens.
    """
    for array in arrays:
        base: object = array
        while base is not None and not isinstance(base, mmap.mmap):
            base = getattr(base, "base", None)
        if base is not None and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def forget_pages(array: np.ndarray) -> None:
    """The same of a file that was only read: a private copy would lose what was written to it."""
    if not array.flags.writeable:
        let_go(array)


def taken() -> tuple[int, int]:
    """The most bytes that this process has had in memory, and the largest one that it started."""
    own, other = (
        resource.getrusage(who).ru_maxrss * _UNIT
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    # ``getrusage`` begins with the memory of the process that started this one.
    return status_bytes("VmHWM:") or own, other


def status_bytes(name: str) -> int:
    """A line of /proc/self/status, by its first word, in bytes; 0 where the system has none."""
    with contextlib.suppress(OSError):
        text = Path("/proc/self/status").read_bytes().decode("ascii", "replace")
        if found := re.search(rf"^{name}\s*(\d+)", text, re.M):
            return int(found[1]) * 1024
    return 0


def check_memory(nbytes: int, what: str) -> None:
    """Refuse an array larger than the memory of this machine or job, before it is allocated."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = min([machine, *(limit for limit, _ in (*group_limits(), *process_limits()))])
    need, have = (f"{size / 2**30:.3g}" for size in (nbytes, memory))
    require(nbytes <= memory, f"{what} takes {need} GiB of memory, this machine or job has {have}")


def group_limits(root: Path = Path("/")) -> Iterator[tuple[int, int]]:
    """Limit and bytes taken of each control group that this process is in, of both versions.

    Groups above count too. Pages of files do not count, as the system gives them back.
    """
    for folder, version in _groups("memory", root):
        # "max" is no limit; others may have none.
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit, taken = (int((folder / name).read_text()) for name in _GROUP_FILES[version])
            lines = (folder / "memory.stat").read_text().splitlines()
            facts = dict(line.split() for line in lines)
            yield limit, taken - sum(int(facts[name]) for name in _OF_FILES[version])


def core_quotas(root: Path = Path("/")) -> dict[str, float]:
    """Cores' worth of time that each control group of this process, or above, may take.

    By the folder of the group: processes of the same group share its quota.
    """
    found = {}
    for folder, version in _groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # "max" is none; others may have none
            texts = ((folder / name).read_text() for name in _QUOTA_FILES[version])
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:
                found[str(folder)] = quota / period
    return found


def usable_cores() -> int:
    """Cores that this process may run on, or fewer where a quota leaves less; at least 1."""
    return max(1, round_half_up(min(len(os.sched_getaffinity(0)), *core_quotas().values(), 1e9)))


def round_half_up(cores: float) -> int:
    """Threads for so many cores' worth of time: a quota of 1.5 is used best by two threads."""
    return int(cores + 0.5)


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Folder and version of the control groups of this process that may limit something."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, own = line.split(":", 2)
            mounts = root / "sys/fs/cgroup"
            if controllers and controller not in controllers.split(","):
                continue
            # Of version 1, "cpu" is a link to "cpu,cpuacct".
            for mount in (mounts / controller,) if controllers else (mounts, mounts / "unified"):
                # In a container the group is at the mount, whatever it is called outside.
                inner = mount / own.lstrip("/")
                folders = [inner, *inner.parents]
                for folder in folders[: folders.index(mount) + 1] if mount in folders else [mount]:
                    yield folder, 1 if controllers else 2


def process_limits() -> Iterator[tuple[int, str]]:
    """Each limit of this process on memory, and the line of /proc/self/status of what is taken."""
    for kind, name in _PROCESS_LIMITS.items():
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit, name
