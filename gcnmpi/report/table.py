"""Finished runs side by side."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcnmpi.report.groups import (
    FACTS,
    Record,
    all_further,
    as_text,
    different_facts,
    different_keys,
    fact,
    further_metrics,
    groups,
    short_names,
    spread,
)
from gcnmpi.report.leads import print_leads
from gcnmpi.report.pairs import label_of, told_pairs
from gcnmpi.report.run_facts import facts_of, leads_of
from gcnmpi.run.record import RECORD, RunRecord, metric_of, read_run
from partition.charts.figures import check_figure, save_figures
from partition.errors import UserError, shown
from partition.records import make_room_for
from partition.terminal import print_wide, table_of


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
    found: list[tuple[Path, dict[str, Any], RunRecord]] = []
    every: list[tuple[Path, RunRecord]] = []
    for run, named in _runs(paths):
        try:
            record = read_run(run)
            if drawn and record.epochs:
                every.append((run, record))
            found.append((run, _row(run, record), record))
        except UserError as error:
            if named and not (drawn and every and every[-1][0] == run):
                raise
            print(f"left out: {error.message}", file=sys.stderr)
    if drawn:
        _draw(every, page, figures)
    if not found and every:
        return
    if not found:
        raise UserError(f"no finished run below {', '.join(map(str, paths))}")
    names = short_names([run for run, _, _ in found])
    starts = [record.start for _, _, record in found]
    rows = _together([row for _, row, _ in found], starts)
    if as_json:
        print(json.dumps(rows))
    elif as_csv:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: as_text(v) if isinstance(v, list) else v for k, v in row.items()})
    else:
        _print_table(names, rows, starts)
        print_leads(names, starts, [record.end or {} for _, _, record in found])


def _draw(runs: Sequence[tuple[Path, RunRecord]], page: Path | None, folder: Path | None) -> None:
    """The page and the figures of runs."""
    from gcnmpi.report.page import report_figures, write_report  # which take a while to import

    names = short_names([run for run, _ in runs])
    facts = [
        facts_of(shown(name), str(run), record)
        for name, (run, record) in zip(names, runs, strict=True)
    ]
    if facts and page is not None:
        write_report(page, facts)
    if facts and folder is not None:
        save_figures(report_figures(facts), folder)


def _together(rows: Sequence[Record], starts: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows with the keys that differ, and with means over runs that differ by chance only."""
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


def _print_table(names: Sequence[str], rows: Sequence[Record], starts: Sequence[Record]) -> None:
    different = [*different_facts(starts), *different_keys(starts)]
    numbers = ("MB/epoch", "busiest", "s/epoch", "loss", "val", "test", "best val", "its test")
    further = all_further(starts)
    heads = [f"its {label_of(metric)}" for metric in further]
    table = table_of(("run", *different), (*numbers, *heads))
    for name, row in zip(names, rows, strict=True):
        table.add_row(
            shown(name),
            *(_text(row[name]) for name in different),
            f"{row['bytes_per_epoch'] / 1e6:.3f}",
            f"{row['max_bytes_per_epoch'] / 1e6:.3f}",
            f"{row['seconds_per_epoch']:.4f}",
            f"{row['loss']:.4f}",
            *(_fraction(row[name]) for name in ("val", "test", "best_val", "best_test")),
            *(_fraction(row.get(f"best_test_{metric}")) for metric in further),
        )
    common = [name for name in FACTS if name not in different]
    print(", ".join(f"{name} {_text(fact(starts[0], name))}" for name in common))
    for line in told_pairs(starts):
        print(line)
    print_wide(table)
    print("MB/epoch: what all ranks sent in the exchanges of a training epoch; busiest: one rank")
    print(
        "val, test: after the last epoch; best val, its test: in the epoch of the best validation"
    )
    if further:
        print(f"{', '.join(heads)}: of the test part, in that epoch")
    if any(row["group_runs"] > 1 for row in rows):
        _print_means(rows, starts)


def _print_means(rows: Sequence[Record], starts: Sequence[Record]) -> None:
    """A line for each group of runs."""
    firsts = [places[0] for places in groups(starts)]
    each = [starts[place] for place in firsts]
    different = [*different_facts(each), *different_keys(each, chance=False)]
    further = all_further(each)
    heads = (f"its {label_of(metric)}" for metric in further)
    table = table_of(different, ("runs", "best val", "its test", *heads))
    names = ("best_val", "best_test", *(f"best_test_{metric}" for metric in further))
    for row in (rows[place] for place in firsts):
        table.add_row(
            *(_text(row[name]) for name in different),
            str(row["group_runs"]),
            *(
                f"{_fraction(row.get(f'{name}_mean'))} ± {_fraction(row.get(f'{name}_deviation'))}"
                for name in names
            ),
        )
    print("\nmean ± standard deviation of runs that differ in seed or split only:")
    print_wide(table)


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


def _row(run: Path, record: RunRecord) -> dict[str, Any]:
    if not record.epochs:
        raise UserError(f"{run} is not the record of a run")
    last, end = record.epochs[-1], record.end
    if end is None:
        raise UserError(f"{run}: the run did not finish (last epoch {last['epoch']})")
    metric = metric_of(record.start)
    best = next((e for e in record.epochs if e["epoch"] == end.get("best_epoch")), {})
    try:  # the types of fields are checked where the record is read
        count = max(1, end["epochs_run"])
        sent, messages = _a_rank(end, "bytes_sent"), _a_rank(end, "messages_sent")
        return {
            "run": str(run),
            **{name: record.start[name] for name in FACTS if name not in ("dtype", "metric")},
            "metric": metric,
            "dtype": str(record.start["config"]["dtype"]),
            "bytes_per_epoch": sum(sent) / count,
            "max_bytes_per_epoch": max(sent) / count,
            "messages_per_epoch": sum(messages) / count,
            "seconds_per_epoch": end["seconds_per_epoch"],
            "loss": last["loss"],
            "val": last.get(f"val_{metric}"),
            "test": last.get(f"test_{metric}"),
            "best_epoch": best["epoch"] if best else None,
            "best_val": best.get(f"val_{metric}"),
            "best_test": best.get(f"test_{metric}"),
            **{
                f"best_{mask}_{other}": best.get(f"{mask}_{other}")
                for other in further_metrics(record.start)
                for mask in ("val", "test")
            },
            **{
                f"{mask}_{other}_by_lead": values
                for mask in ("val", "test")
                for other, values in leads_of(end, mask).items()
            },
        }
    except KeyError as error:
        raise UserError(f"{run} is damaged: its record has no {error}") from error
    except (ValueError, OverflowError) as error:
        raise UserError(f"{run} is damaged: {error}") from error


def _a_rank(end: Record, name: str) -> list[float]:
    numbers = end[name]
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{name} is {str(numbers)[:80]}, not one number a rank")
    return numbers


def _text(value: object) -> str:
    return "-" if value is None else shown(as_text(value))


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
