"""Finished runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gcnmpi.trainer import RECORD
from partition.errors import UserError
from partition.records import read_records


def print_runs(runs: Sequence[Path], *, as_json: bool) -> None:
    """Print one line a run: what ran, what it sent, how long it took, how good it is.

    Raises
    ------
    UserError
        If a folder holds no record, or the record of a run that did not finish.
    """
    rows = [_row(run) for run in runs]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("run", "scheme", "kernel", "ranks", "partition"):
        table.add_column(title)
    for title in ("MB sent/epoch", "busiest rank", "messages", "s/epoch", "loss", "val", "test"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["run"],
            row["scheme"],
            row["kernel"],
            str(row["ranks"]),
            row["partition"] or "-",
            f"{row['bytes_per_epoch'] / 1e6:.3f}",
            f"{row['max_bytes_per_epoch'] / 1e6:.3f}",
            f"{row['messages_per_epoch']:.0f}",
            f"{row['seconds_per_epoch']:.4f}",
            f"{row['loss']:.4f}",
            _fraction(row["val_accuracy"]),
            _fraction(row["test_accuracy"]),
        )
    Console(width=max(120, Console().width)).print(table)


def _row(run: Path) -> dict[str, Any]:
    path = run / RECORD if run.is_dir() else run
    records = read_records(path)
    start = next((r for r in records if r.get("event") == "start"), None)
    end = next((r for r in records if r.get("event") == "end"), None)
    epochs = [r for r in records if r.get("event") == "epoch"]
    if start is None or not epochs:
        raise UserError(f"{path} is not the record of a run")
    if end is None:
        raise UserError(f"{path}: the run did not finish (last epoch {epochs[-1]['epoch']})")
    count = end["epochs"]
    return {
        "run": str(run),
        "scheme": start["scheme"],
        "kernel": start["kernel"],
        "ranks": start["ranks"],
        "partition": start["partition"],
        "bytes_per_epoch": sum(end["bytes_sent"]) / count,
        "max_bytes_per_epoch": max(end["bytes_sent"]) / count,
        "messages_per_epoch": sum(end["messages_sent"]) / count,
        "seconds_per_epoch": end["seconds_per_epoch"],
        **{name: epochs[-1][name] for name in ("loss", "val_accuracy", "test_accuracy")},
    }


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
