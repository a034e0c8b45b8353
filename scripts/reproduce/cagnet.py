#!/usr/bin/env python
"""Tripathy et al. 2020 (CAGNET): how volumes of 1D, 1.5D, 2D and 3D scale with P.

python scripts/reproduce/cagnet.py cnr-2000.mtx.gz
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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

from gcnmpi.planner.ranking import rank_schemes
from partition.charts.figures import COLOURS, new_figure
from partition.graph.store import open_graph

WIDTH, LAYERS, COPIES, ITEM = 64, 3, 4, 4
# Layers of equal width, of which nothing is kept from one epoch to the next: the paper's premises.
MODEL = {
    "model.hidden": [WIDTH] * (LAYERS - 1),
    "model.cache_input": False,
    "model.train_features": True,
    "scheme.replication": COPIES,
    "scheme.sparse": False,
}
# Numbers that a rank receives for one layer, forward and backward, without the gradient of W, f²:
# sections IV-A to IV-D of the paper. "exponent": of P, as P grows.
PAPER: dict[str, tuple[str, Callable[[float, float, float, int], float], str]] = {
    "bcast": ("1D", lambda n, nnz, f, p: 2 * n * f, "0"),
    "replicated": (
        f"1.5D, c = {COPIES}",
        lambda n, nnz, f, p: 2 * n * f / COPIES + 2 * n * f * COPIES / p,
        "0, at a c-th",
    ),
    "summa": ("2D", lambda n, nnz, f, p: (8 * n * f + 2 * nnz) / math.sqrt(p), "-1/2"),
    "split3d": ("3D", lambda n, nnz, f, p: (12 * n * f + 2 * nnz) / p ** (2 / 3), "-2/3"),
}


def main(words: list[str] | None = None) -> None:
    task = begin(__doc__ or "", "cagnet", (16, 64, 256, 1024, 4096), (4, 16), words)
    folders = graphs(task, undirected=True)
    rows = [row for folder in folders for row in volumes(task, folder)]
    write_rows(task, rows)
    write_figure(task, figure_of(rows))
    text = f"MB that the busiest rank receives in an epoch, {LAYERS} layers of width {WIDTH}:\n\n"
    text += markdown(table(rows, task.sizes))
    finish(task, text, folders)


def volumes(task: Task, folder: Path) -> list[dict[str, Any]]:
    """Bytes received in an epoch: forecasts of this program, and the paper's closed forms."""
    manifest = open_graph(folder).manifest
    setting = setting_of(
        folder, MODEL, features=WIDTH, classes=WIDTH, ranks_per_node=4, schemes=list(PAPER)
    )
    rows = []
    for size in task.sizes:
        ranked, _ = rank_schemes(setting, size, schemes=list(PAPER))
        for scheme, (label, numbers, _) in PAPER.items():
            # A 2D grid of the paper is a square; of the other grids, that which receives least.
            lines = [line for line in ranked if line.candidate.scheme.name == scheme]
            root = math.isqrt(size)
            square = [line for line in lines if line.candidate.scheme.grid == f"{root}x{root}"]
            if not lines:
                continue
            best = min(square or lines, key=lambda line: line.cost.received)
            closed = LAYERS * ITEM * numbers(manifest.n, manifest.nnz + manifest.n, WIDTH, size)
            rows.append(
                {"graph": folder.stem, "scheme": scheme, "label": label, "P": size,
                 "grid": best.candidate.scheme.grid, "received": best.cost.received,
                 "closed form": closed}
            )  # fmt: skip
    return rows


def table(rows: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each graph, scheme and source; with the exponent between the last two P."""
    found = []
    for graph, scheme in dict.fromkeys((row["graph"], row["scheme"]) for row in rows):
        some = {r["P"]: r for r in rows if (r["graph"], r["scheme"]) == (graph, scheme)}
        label, _, exponent = PAPER[scheme]
        for source, key in (("forecast", "received"), ("closed form", "closed form")):
            cells = {f"P = {p}": some[p][key] / 1e6 if p in some else None for p in sizes}
            slope = None
            if len(some) > 1:
                last, before = sorted(some, reverse=True)[:2]
                ratio = math.log(some[last][key] / some[before][key])
                slope = round(ratio / math.log(last / before), 2)
            found.append(
                {"graph": graph, "algorithm": f"{label} ({scheme})", "source": source, **cells,
                 "exponent": slope, "in the limit": exponent}
            )  # fmt: skip
    return found


def figure_of(rows: Sequence[dict[str, Any]]) -> Any:
    """Bytes over P: forecasts as lines, closed forms dashed."""
    names = list(dict.fromkeys(row["graph"] for row in rows))
    figure = new_figure(4 * len(names) + 0.6, 4)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for colour, scheme in zip(COLOURS, PAPER, strict=False):
            some = [row for row in rows if (row["graph"], row["scheme"]) == (name, scheme)]
            at = [row["P"] for row in some]
            label = PAPER[scheme][0]
            axis.plot(at, [r["received"] / 1e6 for r in some], "o-", color=colour, label=label)
            axis.plot(at, [r["closed form"] / 1e6 for r in some], "--", color=colour)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.grid(color="0.9")
        axis.set_title(f"{name}; dashed: the paper's closed forms", fontsize=8)
        axis.set_xlabel("ranks P", fontsize=8)
    axes[0].set_ylabel("MB received in an epoch, busiest rank", fontsize=8)
    axes[0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    end_with(main)
