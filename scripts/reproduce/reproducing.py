"""Shared by the scripts of this folder: arguments, graphs, and the files that they write."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bter import bter, power_law

from gcnmpi.options.config import read_config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Setting
from partition.charts.figures import check_figure, save_figure
from partition.errors import UserError
from partition.graph.store import list_partitions, open_graph, read_partition, write_graph
from partition.importing.assemble import import_graph
from partition.records import atomic_file, make_room_for, to_json

PACKAGES = ("gcnmpi", "numpy", "scipy", "pymetis", "mtkahypar", "matplotlib")


@dataclass
class Task:
    """A table that is made again.

    Attributes
    ----------
    name : str
        Of the script, and of its files.
    out : Path
        Folder of the files; the graph folders are in ``out/graphs``.
    sources : list of Path
        Graph files, or graph folders.
    sizes : list of int
        Numbers of ranks.
    seed : int
    quick : bool
        Small graphs and few ranks, for tests.
    began : float
    files : dict
        What was written, and its SHA-256.
    """

    name: str
    out: Path
    sources: list[Path]
    sizes: list[int]
    seed: int
    quick: bool
    began: float = field(default_factory=time.perf_counter)
    files: dict[str, str] = field(default_factory=dict)


def begin(
    about: str, name: str, sizes: Sequence[int], quick_sizes: Sequence[int], words: list[str] | None
) -> Task:
    """The arguments of a script.

    Raises
    ------
    UserError
        If the files cannot be written.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "sources", nargs="*", type=Path, metavar="GRAPH",
        help="graph files (.mtx.gz and others) or graph folders; none: a generated graph",
    )  # fmt: skip
    parser.add_argument("-P", "--ranks", dest="sizes", type=int, action="append", metavar="P")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="small graphs and few ranks")
    given = parser.parse_args(words)
    chosen = given.sizes or list(quick_sizes if given.quick else sizes)
    task = Task(name, given.out, given.sources, chosen, given.seed, given.quick)
    make_room_for(task.out / f"{name}.csv")
    check_figure(task.out / f"{name}.png")
    return task


def graphs(task: Task, *, undirected: bool = False, vertices: int = 20_000) -> list[Path]:
    """The graph folders of a task, imported where they are not there yet.

    Without graphs, a BTER graph of a power law with so many vertices; 600 where it is to be quick.
    """
    found = []
    for source in task.sources:
        if source.suffix == ".graph":
            found.append(source)
            continue
        name = Path(source.name.removesuffix(".gz")).stem + ("-sym" if undirected else "")
        folder = task.out / "graphs" / f"{name}.graph"
        if not folder.exists():
            import_graph(source, folder, undirected=undirected, direction="out")
        found.append(folder)
    return found or [generated(task, "bter", 600 if task.quick else vertices)]


def generated(task: Task, name: str, vertices: int) -> Path:
    """A BTER graph of a power law, undirected."""
    folder = task.out / "graphs" / f"{name}-{vertices}.graph"
    if not folder.exists():
        made = bter(power_law(vertices), seed=task.seed)
        source = {"synthetic": "bter", "vertices": vertices, "seed": task.seed}
        write_graph(folder, made, source=source)
    return folder


def setting_of(
    folder: Path, settings: Mapping[str, Any], *, features: int, classes: int,
    ranks_per_node: int, schemes: Sequence[str],
) -> Setting:  # fmt: skip
    """A graph with a configuration on a machine with the default constants, for the cost model."""
    config, given = read_config(values=dict(settings), schemes=schemes)
    return Setting(
        open_graph(folder), config, Machine(), ranks_per_node, features, classes, given,
        locality=False,
    )  # fmt: skip


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table with the columns of the first; numbers with four digits."""
    head = list(rows[0])

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
        return "" if value is None else str(value)

    lines = [head, ["---"] * len(head), *([cell(row.get(key)) for key in head] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_text(task: Task, ending: str, text: str) -> None:
    """One of the task's files, whole or not at all."""
    file = task.out / f"{task.name}{ending}"
    with atomic_file(file, "w") as out:
        out.write(text)
    _note(task, file)


def write_rows(task: Task, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows behind the tables, as CSV; a column for every key of any row."""
    text = io.StringIO(newline="")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(task, ".csv", text.getvalue())


def write_figure(task: Task, figure: Any) -> None:
    """The figure, as pdf and png."""
    for ending in (".pdf", ".png"):
        file = task.out / f"{task.name}{ending}"
        save_figure(figure, file)
        _note(task, file)


def finish(task: Task, text: str, folders: Iterable[Path]) -> None:
    """Write the tables and the record, and print the tables."""
    write_text(task, ".md", text)
    record = {
        "script": task.name,
        "arguments": {key: getattr(task, key) for key in ("sources", "sizes", "seed", "quick")},
        "seconds": round(time.perf_counter() - task.began, 2),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "graphs": [_graph_facts(folder) for folder in folders],
        "files": task.files,
    }
    write_text(task, ".json", json.dumps(record, indent=1, default=_json) + "\n")
    print(text)
    print(f"{task.out / task.name}.md, .csv, .pdf, .png, .json: {record['seconds']} s")


def end_with(main: Callable[[], None]) -> None:
    """Run a script; a user's mistake ends it with one line and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _graph_facts(folder: Path) -> dict[str, Any]:
    manifest = open_graph(folder).manifest
    partitions = [read_partition(folder, name, parts=False) for name in list_partitions(folder)]
    keys = ("name", "id", "k", "model", "tool", "tool_version", "seed", "imbalance", "direction")
    return {
        **{key: getattr(manifest, key) for key in ("name", "id", "n", "nnz", "source")},
        "partitions": [{key: getattr(one, key) for key in keys} for one in partitions],
    }


def _note(task: Task, file: Path) -> None:
    task.files[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()


def _json(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else to_json(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
