"""Finished runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gcnmpi.record import RECORD, read_run
from partition.errors import UserError


def print_runs(runs: Sequence[Path], *, as_json: bool) -> None:
    """Print one line a run: what it sent, how long it took, how good it is.

    What all runs have in common is said once, above the table.

    Raises
    ------
    UserError
        If a folder holds no record, or the record of a run that did not finish.
    """
    rows = [_row(run) for run in runs]
    if as_json:
        print(json.dumps(rows))
        return
    common = [name for name in FACTS if len({row[name] for row in rows}) == 1]
    table = Table(box=None, pad_edge=False)
    names = _short_names(runs)
    different = [name for name in FACTS if name not in common]
    for title in ("run", *different):
        table.add_column(title, no_wrap=True)
    for title in ("MB/epoch", "busiest", "s/epoch", "loss", "val", "test"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in zip(names, rows, strict=True):
        table.add_row(
            name,
            *(_text(row[fact]) for fact in different),
            f"{row['bytes_per_epoch'] / 1e6:.3f}",
            f"{row['max_bytes_per_epoch'] / 1e6:.3f}",
            f"{row['seconds_per_epoch']:.4f}",
            f"{row['loss']:.4f}",
            _fraction(row["val_accuracy"]),
            _fraction(row["test_accuracy"]),
        )
    print(", ".join(f"{name} {_text(rows[0][name])}" for name in common))
    # Lines longer than a terminal are better than columns cut off.
    Console(width=1000, highlight=False, markup=False).print(table)
    print("MB/epoch: what all ranks sent in the exchanges of a training epoch; busiest: one rank")


FACTS = ("graph", "partition", "ranks", "scheme", "kernel", "dtype")


def _short_names(runs: Sequence[Path]) -> list[str]:
    """The folders' own names, where those tell the runs apart."""
    names = [run.parent.name if run.name == RECORD else run.name for run in runs]
    return names if len(set(names)) == len(names) and all(names) else [str(run) for run in runs]


def _row(run: Path) -> dict[str, Any]:
    record = read_run(run)
    start, epochs, end = record.start, record.epochs, record.end
    if not epochs:
        raise UserError(f"{run} is not the record of a run")
    if end is None:
        raise UserError(f"{run}: the run did not finish (last epoch {epochs[-1]['epoch']})")
    count = max(1, end["epochs_run"])
    return {
        "run": str(run),
        **{name: start[name] for name in FACTS if name != "dtype"},
        "dtype": start["config"]["dtype"],
        "bytes_per_epoch": sum(end["bytes_sent"]) / count,
        "max_bytes_per_epoch": max(end["bytes_sent"]) / count,
        "messages_per_epoch": sum(end["messages_sent"]) / count,
        "seconds_per_epoch": end["seconds_per_epoch"],
        **{name: epochs[-1][name] for name in ("loss", "val_accuracy", "test_accuracy")},
    }


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
