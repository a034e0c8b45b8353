#!/usr/bin/env python
"""Balın et al. 2021 (MG-GCN): memory of a rank by layers, ranks and density; buffers L + 3.

    python scripts/reproduce/mg_gcn.py cit-HepPh.mtx.gz

Denser copies of the graph are BTER graphs, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bter import bter, profile_of, resized
from reproducing import (
    Task,
    begin,
    end_with,
    finish,
    graphs,
    markdown,
    setting_of,
    write_figure,
    write_rows,
)

from gcnmpi.options.scheme import OverlapOptions
from gcnmpi.planner.memory import matrices
from gcnmpi.planner.ranking import Candidate, rank_schemes
from partition.charts.figures import COLOURS, new_figure
from partition.graph.store import open_graph, write_graph

WIDTH, CLASSES, ITEM = 512, 40, 4  # the paper's synthetic graphs, and its first model
FACTORS, LAYERS = (1, 4, 16), (2, 3, 4, 6, 8)
SCHEMES = ("bcast",)  # 1D rows in stages of broadcasts with two buffers, as MG-GCN


def main(words: list[str] | None = None) -> None:
    task = begin(__doc__ or "", "mg_gcn", (1, 2, 4, 8), (1, 2), words)
    folders = [copy for folder in graphs(task) for copy in denser(task, folder)]
    layers = [row for folder in folders[:1] for row in by_layers(task, folder)]
    ranks = [row for folder in folders for row in by_ranks(task, folder)]
    write_rows(task, layers + ranks)
    write_figure(task, figure_of(ranks, layers))
    text = f"Matrices of n rows that a GCN of L layers of width {WIDTH} keeps, on one rank:\n\n"
    text += markdown(layers)
    text += f"\nMemory of a rank, 2 layers, hidden width {WIDTH}, {WIDTH} features, MB:\n\n"
    text += markdown(by_graph(ranks, task.sizes))
    finish(task, text, folders)


def denser(task: Task, folder: Path) -> list[Path]:
    """BTER graphs with the degrees of a graph, times each factor."""
    profile = profile_of(open_graph(folder).graph, seed=task.seed)
    made = []
    for factor in FACTORS[:2] if task.quick else FACTORS:
        path = task.out / "graphs" / f"{folder.stem}-{factor}x.graph"
        if not path.exists():
            source = {"synthetic": "bter", "like": folder.stem, "factor": factor}
            write_graph(path, bter(resized(profile, factor=factor), seed=task.seed), source=source)
        made.append(path)
    return made


def by_layers(task: Task, folder: Path) -> list[dict[str, Any]]:
    """How many matrices the compiler keeps for L layers, the features among them; and L + 3."""
    rows = []
    for count in LAYERS:
        # Equal widths, every product M·(H·W), nothing kept between epochs: the paper's premises.
        model = {"model.hidden": [WIDTH] * (count - 1), "model.order": "combine",
                 "model.cache_input": False}  # fmt: skip
        setting = setting_of(
            folder, model, features=WIDTH, classes=WIDTH, ranks_per_node=8, schemes=SCHEMES
        )
        scheme = OverlapOptions(name="bcast")
        program = setting.case(Candidate(scheme, {}, 1, None), 1).program
        kept = [value for value in matrices(program) if value.width == WIDTH]
        n = setting.work.n
        rows.append(
            {"L": count, "matrices kept": len(kept), "L + 3": count + 3,
             "MB kept": len(kept) * n * WIDTH * ITEM / 1e6,
             "MB of 4 a layer": 4 * count * n * WIDTH * ITEM / 1e6}
        )  # fmt: skip
    return rows


def by_ranks(task: Task, folder: Path) -> list[dict[str, Any]]:
    """Predicted memory of the busiest rank, for each number of ranks."""
    setting = setting_of(
        folder, {"model.hidden": [WIDTH]}, features=WIDTH, classes=CLASSES, ranks_per_node=8,
        schemes=SCHEMES,
    )  # fmt: skip
    rows = []
    for size in task.sizes:
        ranked, _ = rank_schemes(setting, size, schemes=SCHEMES)
        cost = min((line.cost for line in ranked), key=lambda cost: cost.memory)
        rows.append(
            {"graph": folder.stem, "arcs": setting.stored.manifest.nnz, "P": size,
             "memory": cost.memory - int(setting.machine.process_bytes)}
        )  # fmt: skip
    return rows


def by_graph(rows: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each graph, a column in MB for each number of ranks."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        empty = {f"P = {size}": None for size in sizes}
        line = found.setdefault(row["graph"], {"graph": row["graph"], "arcs": row["arcs"], **empty})
        line[f"P = {row['P']}"] = row["memory"] / 1e6
    return list(found.values())


def figure_of(ranks: Sequence[dict[str, Any]], layers: Sequence[dict[str, Any]]) -> Any:
    """Memory over ranks, a line a graph; matrices over layers."""
    figure = new_figure(8, 3.6)
    left, right = figure.subplots(1, 2)
    for colour, name in zip(COLOURS, dict.fromkeys(row["graph"] for row in ranks), strict=False):
        some = [(row["P"], row["memory"] / 1e6) for row in ranks if row["graph"] == name]
        left.plot(*zip(*some, strict=True), "o-", color=colour, label=name)
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xlabel("ranks P")
    left.set_ylabel("MB of a rank, without the process")
    left.legend(fontsize=7)
    at = [row["L"] for row in layers]
    right.plot(at, [row["matrices kept"] for row in layers], "o-", color=COLOURS[0], label="kept")
    right.plot(at, [row["L + 3"] for row in layers], "--", color=COLOURS[1], label="L + 3")
    right.set_xlabel("layers L")
    right.set_ylabel("matrices of n rows")
    right.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(color="0.9")
    return figure


if __name__ == "__main__":
    end_with(main)
