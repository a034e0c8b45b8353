"""A rank's share of the machine: memory bandwidth, caches, and a description for records."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.linalg.blas import daxpy

from gcnmpi import __version__
from gcnmpi.kernels.threads import waiting
from gcnmpi.mpi.comm import Comm, versions
from gcnmpi.mpi.hosts import host_names, most_ranks_a_node
from gcnmpi.planner.machine import Machine

CPUS = Path("/sys/devices/system/cpu")
LEAST_BYTES = 1 << 26  # of each vector of the bandwidth test; and four times the cache
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def axpy(cache_bytes: float) -> tuple[Callable[[], object], int]:
    """y += a·x on vectors that no cache holds, like STREAM's triad; and the bytes a call moves.

    Two reads and a write a number, none of them hidden: y has been read when it is written.
    """
    size = int(max(LEAST_BYTES, 4 * cache_bytes)) // 8
    x, y = np.ones(size), np.zeros(size)
    return lambda: daxpy(x, y, a=1e-3), 3 * 8 * size


def cache_share(threads: int, cpus: Path = CPUS) -> float:
    """Bytes of cache that belong to so many threads, each on a core of its own.

    Of every level from the second on, a core's part of what it shares with others. Where the
    system does not tell, the cost model's usual constant for each thread.
    """
    levels = list(_levels(cpus / f"cpu{min(os.sched_getaffinity(0))}" / "cache"))
    return threads * (sum(levels) if levels else Machine().cache_bytes)


def describe(comm: Comm, threads: int) -> dict[str, object]:
    """Hosts, processor, versions, and how busy the machine of rank 0 was before."""
    return {
        "hosts": sorted(set(host_names(comm))),
        "ranks": comm.size,
        "ranks_per_node": most_ranks_a_node(comm),
        "threads": threads,
        "waiting": waiting(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {"gcnmpi": __version__, "numpy": np.__version__, **versions()},
    }


def _levels(folder: Path) -> Iterator[float]:
    for cache in sorted(folder.glob("index*")):
        try:
            level, kind, size, sharing = (
                (cache / name).read_text().strip()
                for name in ("level", "type", "size", "shared_cpu_map")
            )
        except OSError:
            continue
        if int(level) > 1 and kind != "Instruction":
            cores = sum(int(word, 16).bit_count() for word in sharing.split(","))
            yield int(size[:-1]) * UNITS[size[-1]] / max(1, cores)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
