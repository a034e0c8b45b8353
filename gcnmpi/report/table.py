"""Runs side by side on the terminal: those that finished, and those of repeat and sweep."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gcnmpi.options.task import is_better
from gcnmpi.report.comparison import (
    FACTS,
    all_further,
    as_text,
    different_facts,
    different_keys,
    fact,
    further_metrics,
    groups,
    label_of,
    short_names,
    spread,
    told_pairs,
)
from gcnmpi.report.progress import print_rows
from gcnmpi.report.run_facts import RunFacts, facts_of
from gcnmpi.run.record import RECORD, Start, read_run
from partition.charts.figures import check_figure, save_figures
from partition.errors import UserError, shown
from partition.graph.vertex_pairs import HELD_OUT
from partition.records import make_room_for

if TYPE_CHECKING:
    from gcnmpi.run.repeated import Outcome

LEADS = 12  # columns of a table by lead; of more leads, some that are as far apart


def print_runs(
    paths: Sequence[Path],
    *,
    as_json: bool = False,
    as_csv: bool = False,
    page: Path | None = None,
    figures: Path | None = None,
) -> None:
    """Print one line a run: how it differs, what it sent, how long it took, how good it is.

    Facts that all runs have in common are said once, above the table. Runs that differ in their
    seed or split only are shown together below it, too, with means and standard deviations.

    The paths are records, folders of runs, or folders with runs somewhere below them. ``as_json``
    and ``as_csv`` print a JSON array, or CSV with a heading. ``page`` is an HTML file for all that
    is known of the runs, ``figures`` a folder for the figures of such a page, as PDF and PNG; both
    also show runs that did not finish.

    A UserError if there is no run, or a path that was named holds no record, a damaged one or,
    without ``page`` and ``figures``, that of a run that did not finish. Unfinished and damaged runs
    somewhere below a folder are named on the standard error stream and left out.
    """
    if as_json and as_csv:
        raise UserError("--json and --csv exclude each other")
    if figures is not None:
        check_figure(figures / "figure.pdf")
    if page is not None:
        make_room_for(page)
    drawn = page is not None or figures is not None
    every: list[RunFacts] = []
    for run, named in _runs(paths):
        try:
            facts = facts_of("", str(run), read_run(run))
            if drawn or facts.end.finished:
                every.append(facts)
            if not facts.end.finished:
                last = facts.epochs[-1].epoch
                raise UserError(f"{run}: the run did not finish (last epoch {last})")
        except UserError as error:
            if named and not (drawn and every and every[-1].path == str(run)):
                raise
            print(f"left out: {error.message}", file=sys.stderr)
    if drawn and every:
        _draw(_named(every), page, figures)
    runs = _named([run for run in every if run.end.finished])
    if not runs:
        if every:
            return
        raise UserError(f"no finished run below {', '.join(map(str, paths))}")
    rows = _together(runs)
    if as_json:
        print(json.dumps(rows))
    elif as_csv:
        heads = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: as_text(v) if isinstance(v, list) else v for k, v in row.items()})
    else:
        _print_table(runs, rows)
        _print_leads(runs)


def _named(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """Runs with the shortest names that tell them apart."""
    names = short_names([Path(run.path) for run in runs])
    return [replace(run, name=shown(name)) for run, name in zip(runs, names, strict=True)]


def _draw(runs: Sequence[RunFacts], page: Path | None, folder: Path | None) -> None:
    """The page and the figures of runs."""
    from gcnmpi.report.page import report_figures, write_report  # which take a while to import

    if page is not None:
        write_report(page, runs)
    if folder is not None:
        save_figures(report_figures(runs), folder)


def _together(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Rows with the keys that differ, and with means over runs that differ by chance only."""
    starts, rows = [run.start for run in runs], [_row(run) for run in runs]
    keys, more = different_keys(starts), [dict(row) for row in rows]
    for number, places in enumerate(groups(starts), 1):
        means: dict[str, object] = {"group": number, "group_runs": len(places)}
        of_best = (name for name in rows[places[0]] if name.startswith(("best_val", "best_test")))
        for name in of_best:
            values = spread([rows[place].get(name) for place in places])
            means |= dict(zip((f"{name}_mean", f"{name}_deviation"), values, strict=True))
        for place in places:
            more[place] |= means | {name: of[place] for name, of in keys.items()}
    return more


def _row(run: RunFacts) -> dict[str, Any]:
    """The facts of a run in JSON and CSV."""
    last, end, metric = run.epochs[-1], run.end, run.metric
    sent, messages = (
        [float(x) for x in of] if of is not None else [] for of in (run.sent, run.messages)
    )
    return {
        "run": run.path,
        **{name: fact(run.start, name) for name in FACTS if name not in ("dtype", "metric")},
        "metric": metric,
        "dtype": run.start.config.get("dtype"),
        "bytes_per_epoch": sum(sent),
        "max_bytes_per_epoch": max(sent, default=0.0),
        "messages_per_epoch": sum(messages),
        "seconds_per_epoch": run.seconds
        if end.seconds_per_epoch is None
        else end.seconds_per_epoch,
        "loss": last.loss,
        "val": last.of("val", metric),
        "test": last.of("test", metric),
        "best_epoch": run.best_epoch,
        "best_val": run.of_best("val", metric),
        "best_test": run.of_best("test", metric),
        **{
            f"best_{mask}_{other}": run.of_best(mask, other)
            for other in further_metrics(run.start)
            for mask in HELD_OUT
        },
        **{
            f"{mask}_{other}_by_lead": values
            for mask in HELD_OUT
            for other in (end.leads or {}).get(mask, {})
            if (values := run.leads(mask, other))
        },
    }


def _print_table(runs: Sequence[RunFacts], rows: Sequence[Mapping[str, Any]]) -> None:
    starts = [run.start for run in runs]
    different = [*different_facts(starts), *different_keys(starts)]
    numbers = ("MB/epoch", "busiest", "s/epoch", "loss", "val", "test", "best val", "its test")
    further = all_further(starts)
    heads = [f"its {label_of(metric)}" for metric in further]
    common = [name for name in FACTS if name not in different]
    print(", ".join(f"{name} {_text(fact(starts[0], name))}" for name in common))
    for line in told_pairs(starts):
        print(line)
    print_rows(("run", *different), (*numbers, *heads), (
        (
            run.name,
            *(_text(row[name]) for name in different),
            f"{row['bytes_per_epoch'] / 1e6:.3f}",
            f"{row['max_bytes_per_epoch'] / 1e6:.3f}",
            f"{row['seconds_per_epoch']:.4f}",
            f"{row['loss']:.4f}",
            *(_fraction(row[name]) for name in ("val", "test", "best_val", "best_test")),
            *(_fraction(row.get(f"best_test_{metric}")) for metric in further),
        )
        for run, row in zip(runs, rows, strict=True)
    ))  # fmt: skip
    print("MB/epoch: what all ranks sent in the exchanges of a training epoch; busiest: one rank")
    print(
        "val, test: after the last epoch; best val, its test: in the epoch of the best validation"
    )
    if further:
        print(f"{', '.join(heads)}: of the test part, in that epoch")
    if any(row["group_runs"] > 1 for row in rows):
        _print_means(starts, rows)


def _print_means(starts: Sequence[Start], rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each group of runs."""
    firsts = [places[0] for places in groups(starts)]
    each = [starts[place] for place in firsts]
    different = [*different_facts(each), *different_keys(each, chance=False)]
    further = all_further(each)
    heads = (f"its {label_of(metric)}" for metric in further)
    names = ("best_val", "best_test", *(f"best_test_{metric}" for metric in further))
    print("\nmean ± standard deviation of runs that differ in seed or split only:")
    print_rows(different, ("runs", "best val", "its test", *heads), (
        (
            *(_text(row[name]) for name in different),
            str(row["group_runs"]),
            *(
                f"{_fraction(row.get(f'{name}_mean'))} ± {_fraction(row.get(f'{name}_deviation'))}"
                for name in names
            ),
        )
        for row in (rows[place] for place in firsts)
    ))  # fmt: skip


def _print_leads(runs: Sequence[RunFacts]) -> None:
    """The metric of the test part by how many states ahead is predicted, if any run has it."""
    found = {run: values for run in runs if (values := run.leads("test", run.metric))}
    if not found:
        return
    most = max(map(len, found.values()))
    numbers = np.unique(np.linspace(1, most, min(most, LEADS)).round().astype(int)).tolist()
    labels = ", ".join(dict.fromkeys(label_of(run.metric) for run in runs))
    print(f"\ntest {shown(labels)} after the last epoch, by how many states ahead is predicted:")
    print_rows(("run",), map(str, numbers), (
        (run.name, *(_fraction(of[n - 1] if n <= len(of) else None) for n in numbers))
        for run, of in found.items()
    ))  # fmt: skip


def _runs(paths: Sequence[Path]) -> list[tuple[Path, bool]]:
    """The runs at, or else below, the paths, each once, and whether each was named itself."""
    found: dict[Path, tuple[Path, bool]] = {}
    for path in paths:
        below: list[Path] = []
        if path.is_dir() and not (path / RECORD).exists():
            below = sorted(record.parent for record in path.rglob(RECORD))
        for run in below or [path]:
            folder = (run.parent if run.name == RECORD else run).resolve()
            found[folder] = run, not below
    return list(found.values())


def _text(value: object) -> str:
    return "-" if value is None else shown(as_text(value))


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _summaries(found: Sequence[Outcome]) -> list[dict[str, Any]]:
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
    points = _summaries(found)
    if as_json:
        print(json.dumps({"runs": [asdict(outcome) for outcome in found], "points": points}))
        return
    print_rows(["run"], ["epoch", "val", "test"], (
        (shown(run.name), str(run.epoch), _figure(run.val), _figure(run.test)) for run in found
    ))  # fmt: skip
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
