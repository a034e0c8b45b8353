"""Bytes that a rank receives under every scheme, by number of ranks: predicted, and counted."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gcnmpi.planner.random_rows import RANDOM
from gcnmpi.planner.ranking import Ranked, Setting, Skipped, rank_schemes
from partition.errors import UserError
from partition.records import atomic_file

Row = dict[str, Any]  # by the fields
FIELDS = ("ranks", "scheme", "options", "partition", "source", "received", "messages", "seconds")


def predicted_rows(
    setting: Setting, sizes: Iterable[int], schemes: Sequence[str] | None = None
) -> tuple[list[Row], list[Skipped]]:
    """A row for each number of ranks, scheme and model of its partition.

    Of several variants (grids, partitions of one model) the one that receives least. Random rows
    are among the models at every number of ranks. ``received`` (bytes), ``messages`` and
    ``seconds`` of an epoch are those of the rank that has most.
    """
    rows, missing = [], []
    for size in sizes:
        ranked, skipped = rank_schemes(setting, size, schemes=schemes, estimate="always")
        missing += skipped
        best: dict[tuple[str, str], Ranked] = {}
        for line in ranked:
            kind = (line.candidate.scheme.name, _model(line))
            if kind not in best or line.cost.received < best[kind].cost.received:
                best[kind] = line
        for (scheme, model), line in best.items():
            options, cost = _text(line.candidate.options), line.cost
            figures = cost.received, cost.messages, cost.seconds
            row = (size, scheme, options, model, "predicted", *figures)
            rows.append(dict(zip(FIELDS, row, strict=True)))
    return rows, missing


def counted_rows(files: Iterable[str | os.PathLike]) -> list[Row]:
    """The rows of runs: a row for each line of ``gcnmpi bench-schemes --json``."""
    rows = []
    for file in files:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
            # mpirun may have put words of its own between them.
            found = [json.loads(line) for line in lines if line.startswith("{")]
            rows += [_counted(line) for line in found if "skipped" not in line]
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{file} is not what 'gcnmpi bench-schemes --json' prints: {error}"
            ) from error
    return rows


def crossovers(rows: Sequence[Row], scheme: str = "p2p") -> list[Row]:
    """From how many ranks on another scheme receives less than ``scheme`` does.

    For each partition model of ``scheme`` and each other scheme: ``from_ranks``, the smallest
    number from which on, up to the largest ``compared``, the other receives less; None if it does
    not there.
    """
    received: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows:
        if row["source"] == "predicted":
            pair = (row["scheme"], row["partition"])
            received.setdefault(pair, {})[row["ranks"]] = row["received"]
    found = []
    for (mine, model), ours in received.items():
        for (other, other_model), theirs in received.items():
            common = sorted(set(ours) & set(theirs))
            if mine != scheme or other == scheme or not common:
                continue
            first = None
            for size in reversed(common):
                if theirs[size] >= ours[size]:
                    break
                first = size
            line = {"partition": model, "other": " ".join(filter(None, (other, other_model)))}
            found.append(line | {"from_ranks": first, "compared": common[-1]})
    return found


def table(rows: Sequence[Row]) -> str:
    """Received MB of an epoch as Markdown: a line a scheme, a column a number of ranks."""
    sizes = sorted({row["ranks"] for row in rows})
    lines: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        kind = (row["scheme"], row["partition"], row["source"])
        cells = lines.setdefault(kind, {})
        cells[row["ranks"]] = min(row["received"], cells.get(row["ranks"], float("inf")))
    text = io.StringIO()
    text.write(f"| scheme | partition | | {' | '.join(f'P = {size}' for size in sizes)} |\n")
    text.write(f"|---|---|---|{'---:|' * len(sizes)}\n")
    for kind, cells in lines.items():
        shown = [f"{cells[size] / 1e6:.4g}" if size in cells else "" for size in sizes]
        text.write(f"| {' | '.join([*kind, *shown])} |\n")
    return text.getvalue()


def as_text(rows: Sequence[Row]) -> str:
    """The table, and from how many ranks on other schemes receive less than p2p."""
    lines = ["MB that the busiest rank receives in an epoch", "", table(rows)]
    for cross in crossovers(rows):
        when = f"nowhere up to {cross['compared']} ranks"
        if cross["from_ranks"]:
            when = f"from {cross['from_ranks']} ranks on"
        lines.append(f"{cross['other']} receives less than p2p {cross['partition']}: {when}")
    return "\n".join(lines) + "\n"


def write_csv(rows: Sequence[Row], path: str | os.PathLike) -> None:
    """All rows, with a heading; whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows(rows)
    with atomic_file(path, "w") as file:
        file.write(text.getvalue())


def _model(line: Ranked) -> str:
    partition = line.candidate.partition
    if partition is None:
        return ""
    return RANDOM if line.candidate.estimated else partition.model


def _counted(line: Row) -> Row:
    row = {name: line[name] for name in FIELDS if name != "source"}
    found = {"options": _text(row["options"]), "partition": row["partition"] or ""}
    return row | found | {"source": "counted"}


def _text(options: Mapping[str, object]) -> str:
    return " ".join(f"{name} {value}" for name, value in options.items())
