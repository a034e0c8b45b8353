"""The metrics of several runs, and their mean and standard deviation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gcnmpi.options.task import is_better
from gcnmpi.report.groups import spread
from gcnmpi.run.repeated import Outcome
from partition.errors import shown
from partition.terminal import print_wide, table_of


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
    table = table_of(["run"], ["epoch", "val", "test"])
    for run in found:
        table.add_row(shown(run.name), str(run.epoch), _figure(run.val), _figure(run.test))
    print_wide(table)
    metrics = " or ".join(dict.fromkeys(run.metric for run in found))
    print(f"{metrics} of {len(found)} runs, each in its epoch of the best validation {metrics}")
    best: dict[str, dict[str, Any]] = {}  # of the points that are chosen by one metric
    for point in points:
        metric, before = point["metric"], best.get(point["metric"], {}).get("val_mean")
        if metric not in best or is_better(metric, point["val_mean"], before):
            best[metric] = point
    for point in points:
        named = f"{shown(point['point'])}: " if point["point"] else ""
        alone = sum(other["metric"] == point["metric"] for other in points) == 1
        mark = "  (best validation)" if not alone and point is best[point["metric"]] else ""
        values = "  ".join(
            f"{mask} {_figure(point[f'{mask}_mean'])} ± {_figure(point[f'{mask}_deviation'])}"
            for mask in ("val", "test")
        )
        print(f"{named}{values}{mark}")


def _spread(mask: str, values: Sequence[float | None]) -> dict[str, float | None]:
    return dict(zip((f"{mask}_mean", f"{mask}_deviation"), spread(values), strict=True))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
