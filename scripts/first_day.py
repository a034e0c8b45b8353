"""Write down a step of gpu_first_day.sh: OUT NAME STATUS SECONDS WHY OUTPUT COMMAND….

Adds what it measured to OUT/results.jsonl, and makes OUT/summary.txt and OUT/tables.md anew from
the last record of each step. ``WHY``: it was not run; ``OUTPUT``: the file of what it printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
WIDE = 120  # characters of what a step said, in the summary


def main(
    out: str, name: str, status: str, seconds: str, why: str, output: str, *command: str
) -> None:
    """Add a record, and tell it in a line."""
    lines = Path(output).read_text(errors="replace").splitlines()
    measured, words = [*objects(lines)], [line.strip() for line in lines if line.strip()]
    said = f"{len(measured)} measured" if measured else words[-1] if words else ""
    record: Record = {
        "step": name, "status": status, "seconds": int(seconds), "command": " ".join(command),
        "measured": measured, "said": why or said,
    }  # fmt: skip
    if status == "passed" and "--out" in command:
        end = last_record(Path(command[command.index("--out") + 1]))
        record["measured"].append(end)
        record["said"] = f"{1000 * end['seconds_per_epoch']:.4g} ms an epoch"
    elif status not in ("passed", "skipped"):
        record["last"] = lines[-5:]
    folder = Path(out)
    with open(folder / "results.jsonl", "a") as results:
        results.write(json.dumps(record) + "\n")
    records = latest((folder / "results.jsonl").read_text().splitlines())
    (folder / "summary.txt").write_text("".join(map(line_of, records)))
    (folder / "tables.md").write_text("\n".join(tables(records)))
    print(line_of(record), end="", flush=True)


def objects(lines: Sequence[str]) -> Iterator[Record]:
    """Lines that are objects of JSON."""
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def last_record(folder: Path) -> Record:
    """Seconds, phases and bytes of a run."""
    end = json.loads((folder / "run.jsonl").read_text().splitlines()[-1])
    return {key: end[key] for key in ("seconds_per_epoch", "phases", "bytes_sent")}


def latest(lines: Sequence[str]) -> list[Record]:
    """The last record of each step, in the order in which steps were first taken."""
    return list({record["step"]: record for record in map(json.loads, lines)}.values())


def line_of(record: Record) -> str:
    """A step in the summary."""
    step, status, seconds = record["step"], record["status"], record["seconds"]
    return f"{step:21} {status:12} {seconds:>4} s  {record['said'][:WIDE]}\n"


def tables(records: Sequence[Record]) -> Iterator[str]:
    """Steps, epochs and products as tables of Markdown."""
    yield from table(["step", "result", "seconds", "said"], [
        [one["step"], one["status"], one["seconds"], one["said"][:WIDE].replace("|", "/")]
        for one in records
    ])  # fmt: skip
    epochs = [
        [one["step"], *([measured["form"]] if "form" in measured else [""]),
         f"{1000 * measured['seconds_per_epoch']:.4g}"]
        for one in records for measured in one["measured"] if "seconds_per_epoch" in measured
    ]  # fmt: skip
    if epochs:
        yield from table(["epoch", "form", "ms"], epochs)
    products = [
        measured for one in records for measured in one["measured"] if "own" in measured
    ]  # fmt: skip
    if products:
        yield from table(
            ["width", "own, ms", "best of cuSPARSE", "PyTorch", "GB/s", "of a copy's"],
            map(product, products),
        )


def product(measured: Record) -> list[object]:
    """Milliseconds at a width, and the rate at which what must move did, beside that of a copy."""
    others = [one["ms"] for name, one in measured.items() if name.startswith("cusparse")]
    own, torch = measured["own"]["ms"], measured["torch"].get("ms")
    copied = 2 * 4 * measured["rows"] * measured["width"] / measured["copy"]["ms"]
    rate = measured["bytes"] / own
    cells = f"{own:.4g}", f"{min(others):.4g}", "" if torch is None else f"{torch:.4g}"
    return [measured["width"], *cells, f"{rate / 1e6:.4g}", f"{rate / copied:.2f}"]


def table(titles: Sequence[str], rows: Iterator[list[object]] | list[list[object]]) -> list[str]:
    """A table's lines, and an empty one."""
    lines = [titles, ["---"] * len(titles), *rows]
    return [*(f"| {' | '.join(map(str, cells))} |" for cells in lines), ""]


if __name__ == "__main__":
    main(*sys.argv[1:])
