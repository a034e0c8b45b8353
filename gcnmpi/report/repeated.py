"""What several runs gave: each one's metrics, and their mean and standard deviation."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from gcnmpi.nn.metrics import is_better
from gcnmpi.run.repeated import Outcome
from partition.errors import shown
from partition.terminal import print_wide


def summaries(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """For each point of the grid: the mean of validation and test metric, and their deviations.

    The standard deviation is that of a sample, divided by one less than the number of runs; None of
    a single run.
    """
    points: dict[str, list[Outcome]] = {}
    for outcome in found:
        points.setdefault(outcome.point, []).append(outcome)
    return [
        {
            "point": point,
            "runs": len(runs),
            "metric": runs[0].metric,
            **_spread("val", [run.val for run in runs]),
            **_spread("test", [run.test for run in runs]),
        }
        for point, runs in points.items()
    ]


def print_repeated(found: Sequence[Outcome], as_json: bool = False) -> None:
    """Print a line for each run, and one for each point of the grid."""
    points = summaries(found)
    if as_json:
        print(json.dumps({"runs": [asdict(outcome) for outcome in found], "points": points}))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("run", "epoch", "val", "test"):
        table.add_column(title, justify="left" if title == "run" else "right", no_wrap=True)
    for run in found:
        table.add_row(shown(run.name), str(run.epoch), _figure(run.val), _figure(run.test))
    print_wide(table)
    metric = found[0].metric
    print(f"{metric} of {len(found)} runs, each in its epoch of the best validation {metric}")
    best = None
    for point in points:
        if best is None or is_better(metric, point["val_mean"], best["val_mean"]):
            best = point
    for point in points:
        named = f"{shown(point['point'])}: " if point["point"] else ""
        mark = "  (best validation)" if len(points) > 1 and point is best else ""
        values = "  ".join(
            f"{mask} {_figure(point[f'{mask}_mean'])} ± {_figure(point[f'{mask}_deviation'])}"
            for mask in ("val", "test")
        )
        print(f"{named}{values}{mark}")


def _spread(mask: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    whole = bool(known) and len(known) == len(values)
    return {
        f"{mask}_mean": statistics.fmean(known) if whole else None,
        f"{mask}_deviation": statistics.stdev(known) if whole and len(known) > 1 else None,
    }


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
