"""Records of ``gcnmpi bench``: printed as JSON lines or as a table, and kept in a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box

from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.report.progress import print_warnings
from partition.errors import system_errors
from partition.records import append_record
from partition.terminal import print_wide, table_of

Record = dict[str, Any]


class Report(contextlib.AbstractContextManager):
    """Takes records, on every rank; rank 0 keeps and prints them: a table at the end, and warnings.

    They are appended to the file ``out``; as JSON, each is printed when it is there, without a
    table. If the file cannot be written, all ranks raise a UserError.
    """

    def __init__(self, comm: Comm, out: Path | None, as_json: bool) -> None:
        self._prints, self._as_json = comm.rank == 0, as_json
        self._records: list[Record] = []
        self._warnings: list[str] = []
        with agreed(comm), system_errors(f"cannot write {out}"):
            self._file = open(out, "a") if out is not None and self._prints else None  # noqa: SIM115

    def __call__(self, event: str, **values: Any) -> None:
        if not self._prints:
            return
        if self._file is not None:
            append_record(self._file, event, **values)
        self._warnings += values.get("warnings", ())
        if self._as_json:
            append_record(sys.stdout, event, **values)
        else:
            self._records.append({"event": event, **values})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is not None:
            return
        if self._records:
            print_records(self._records)
        print_warnings(self._warnings)


def print_records(records: list[Record]) -> None:
    """Print a line about the machine, and a table of what was measured."""
    machine, *rows = records
    print(
        f"{', '.join(machine['hosts'])}: {machine['processor']}; ranks {machine['ranks']}, "
        f"threads per rank {machine['threads']}"
        f"{''.join(f', {name}={value}' for name, value in machine.get('waiting', {}).items())}; "
        f"load before {machine['load']:.2f}"
    )
    columns = COLUMNS[rows[0]["event"]]
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


TIMES = {"ms (quartiles)": _spread("seconds", 1e3), "of reference": _spread("ratio")}
COLUMNS: dict[str, dict[str, Callable[[Record], str]]] = {
    "spmm": {
        "width": _of("width"),
        "kernel": _of("kernel"),
        **TIMES,
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
        **TIMES,
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
        **TIMES,
        "MB": lambda row: f"{row['bytes'] / 1e6:.4g}",
        "MB shared": lambda row: f"{row['shared_bytes'] / 1e6:.4g}",
        "messages": _of("messages"),
        "GB/s": lambda row: f"{row['bandwidth'] / 1e9:.3g}",
    },
}
