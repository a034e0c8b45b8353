"""Parts of benchmarks: options, bandwidth and caches of the machine, and records of what was timed.

Each round measures all variants in turn. Times are medians with quartiles over rounds. Ratios are
taken within a round, so that disturbances longer than a round affect both sides. Bandwidth is that
of y += a·x on long vectors, in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich import box
from scipy.linalg.blas import daxpy

from gcnmpi import __version__
from gcnmpi.kernels.threads import waiting
from gcnmpi.mpi.comm import Comm, agreed, from_root, versions
from gcnmpi.mpi.hosts import host_names, most_ranks_a_node
from gcnmpi.mpi.process import run
from gcnmpi.options.config import Config, load_config
from gcnmpi.options.kernel import must_be_best
from gcnmpi.planner.machine import Machine
from partition.errors import UserError
from partition.records import append_record, make_room_for, to_json
from partition.terminal import print_wide, table_of

Record = dict[str, Any]
OnRecord = Callable[..., None]
CPUS = Path("/sys/devices/system/cpu")
LEAST_BYTES = 1 << 26  # of each vector of the bandwidth test; and four times the cache
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def words_of(about: str | None, add: Callable[[argparse.ArgumentParser], None]) -> Any:
    """The options of the command line: those that ``add`` adds, and those of all benchmarks."""
    parser = argparse.ArgumentParser(description=about)
    add(parser)
    parser.add_argument("--rounds", type=int, default=10, help="rounds, after one for warm-up")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="append the records to this file")
    parser.add_argument("--json", action="store_true", help="print records, no table")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    """The type of an option that is a list of numbers."""
    return [int(word) for word in text.split(",")]


def names(text: str) -> list[str]:
    """The type of an option that is a list of names."""
    return text.split(",")


def config_of(words: Any, *changes: str) -> Config:
    """The configuration that is asked for, not of a kernel that was fallen back to."""
    config = load_config(words.config, [*words.settings, *changes])
    must_be_best(config.kernel)
    return config


def measured(words: Any, measure: Callable[[Comm, OnRecord], None]) -> NoReturn:
    """Measure, on all ranks; rank 0 prints what was recorded, and appends it to a file."""

    def job(comm: Comm) -> int:
        records: list[Record] = []
        if words.out is not None:
            from_root(comm, lambda: make_room_for(words.out))

        def note(event: str, **values: Any) -> None:
            if comm.rank == 0:
                records.append(json.loads(json.dumps({"event": event, **values}, default=to_json)))

        with agreed(comm):
            if words.rounds < 1:
                raise UserError("--rounds is at least 1")
        measure(comm, note)
        if comm.rank == 0:
            _show(words, records)
        return 0

    run(job)


def _show(words: Any, records: list[Record]) -> None:
    if words.out is not None:
        with open(words.out, "a", encoding="utf-8") as file:
            for record in records:
                append_record(file, **record)
    if words.json:
        print(*map(json.dumps, records), sep="\n")
    else:
        _print_table(records)
    for warning in records[0].get("warnings", ()):
        print(f"warning: {warning}")


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


def _print_table(records: list[Record]) -> None:
    """Print a line about the machine, and a table of what was measured."""
    machine, *rows = records
    print(
        f"{', '.join(machine['hosts'])}: {machine['processor']}; ranks {machine['ranks']}, "
        f"threads per rank {machine['threads']}"
        f"{''.join(f', {name}={value}' for name, value in machine.get('waiting', {}).items())}; "
        f"load before {machine['load']:.2f}"
    )
    columns = _COLUMNS[rows[0]["event"]]
    table = table_of((), columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(show(row) for show in columns.values()))
    print_wide(table)
    if "bandwidth" in rows[0] and "share" in rows[0]:
        low, high = (f(row["bandwidth"] for row in rows) / 1e9 for f in (min, max))
        print(f"bandwidth of y += a·x in the same rounds: {low:.3g} to {high:.3g} GB/s")
    for row in rows:
        if "phases" in row:
            times = ", ".join(f"{name} {1e3 * s:.3g}" for name, s in row["phases"].items())
            print(f"{row['name']}: ms per epoch in {times}")


def _spread(field: str, factor: float = 1.0) -> Callable[[Record], str]:
    def show(row: Record) -> str:
        low, median, high = (factor * row[field][name] for name in ("low", "median", "high"))
        return f"{median:.3g} ({low:.3g} to {high:.3g})"

    return show


def _of(name: str, form: str = "") -> Callable[[Record], str]:
    return lambda row: format(row[name], form)


def _share(count: str) -> Callable[[Record], str]:
    return lambda row: f"{row['share'][count]:.2f}" if count in row["share"] else ""


_TIMES = {"ms (quartiles)": _spread("seconds", 1e3), "of reference": _spread("ratio")}
_COLUMNS: dict[str, dict[str, Callable[[Record], str]]] = {
    "spmm": {
        "width": _of("width"),
        "kernel": _of("kernel"),
        **_TIMES,
        "GFLOP/s": _of("gflops", ".3g"),
        "GB/s cached": lambda row: f"{row['bytes']['cached'] / row['seconds']['median'] / 1e9:.3g}",
        "share compulsory": _share("compulsory"),
        "cached": _share("cached"),
        "gathered": _share("gathered"),
        "measured": _share("measured"),
        "missed": _of("missed", ".2f"),
    },
    "epoch": {
        "configuration": _of("name"),
        **_TIMES,
        "GFLOP/s": _of("gflops", ".3g"),
        "GB/s": lambda row: f"{row['bytes'] / row['seconds']['median'] / 1e9:.3g}",
        "share of bandwidth": _of("share", ".2f"),
        "exchange hidden": lambda row: ", ".join(
            "-" if h is None else f"{h:.2f}" for h in row["hidden"]
        ),
    },
    "exchange": {
        "width": _of("width"),
        "operation": _of("operation"),
        "transport": _of("transport"),
        **_TIMES,
        "MB": lambda row: f"{row['bytes'] / 1e6:.4g}",
        "MB shared": lambda row: f"{row['shared_bytes'] / 1e6:.4g}",
        "messages": _of("messages"),
        "GB/s": lambda row: f"{row['bandwidth'] / 1e9:.3g}",
    },
}
