#!/usr/bin/env python
"""Ranjan et al. 2025 (Plexus): grids of 64 ranks (figure 5), and balance of blocks (table 3).

python scripts/reproduce/plexus.py USA-road-d.NY.mtx.gz cnr-2000.mtx.gz
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reproducing import (
    begin,
    end_with,
    finish,
    graphs,
    markdown,
    setting_of,
    write_figure,
    write_rows,
)

from gcnmpi.layout.tiling import COLUMNS_SEED, ROWS_SEED, Ordering, block_balance
from gcnmpi.planner.ranking import rank_schemes
from partition.charts.figures import COLOURS, new_figure
from partition.graph.store import open_graph

BLOCKS, SCHEMES = 8, ("tensor3d",)
FEATURES, CLASSES, PER_NODE = 128, 32, 4  # of the paper's larger graphs; GPUs of a node
MODEL = {"model.hidden": [128, 128], "model.cache_input": False, "model.train_features": True}
# Table 3 of the paper, europe_osm: fullest of 8 × 8 blocks over the average.
PAPER = {"graph": "europe_osm (paper)", "original": 7.70, "single": 3.24, "double": 1.001}
KINDS = ("1D", "2D", "3D")


def main(words: list[str] | None = None) -> None:
    task = begin(__doc__ or "", "plexus", (64,), (8,), words)
    folders = graphs(task, undirected=True)
    balances = [balance(folder) for folder in folders]
    grids = [row for folder in folders for size in task.sizes for row in costs(folder, size)]
    write_rows(task, balances + grids)
    write_figure(task, figure_of(grids))
    text = f"Fullest of {BLOCKS} × {BLOCKS} blocks over the average, by permutation:\n\n"
    text += markdown([*balances, PAPER])
    text += (
        "\nGrids, the fastest and the slowest (ms of an epoch; MB that the busiest rank receives):"
    )
    text += f"\n\n{markdown(ends(grids))}"
    text += "\nFastest grid of each kind, ms:\n\n" + markdown(by_kind(grids))
    finish(task, text, folders)


def balance(folder: Path) -> dict[str, Any]:
    """Balance of blocks with the original order, one random permutation, and two."""
    graph = open_graph(folder).graph
    plain = Ordering(graph.n)
    rows, columns = (
        Ordering(graph.n, np.random.default_rng(seed).permutation(graph.n))
        for seed in (ROWS_SEED, COLUMNS_SEED)
    )
    pairs = {"original": (plain, plain), "single": (rows, rows), "double": (rows, columns)}
    found = {name: block_balance(graph, *pair, BLOCKS, BLOCKS) for name, pair in pairs.items()}
    return {"graph": folder.stem, **found}


def costs(folder: Path, size: int) -> list[dict[str, Any]]:
    """The cost model's prediction for every grid of so many ranks."""
    setting = setting_of(
        folder, MODEL, features=FEATURES, classes=CLASSES, ranks_per_node=PER_NODE, schemes=SCHEMES
    )
    best: dict[str, dict[str, Any]] = {}
    for line in rank_schemes(setting, size, schemes=SCHEMES)[0]:  # the fastest first
        grid, cost = line.candidate.scheme.grid, line.cost
        sides = sum(int(side) > 1 for side in grid.split("x"))
        best.setdefault(
            grid,
            {"graph": folder.stem, "P": size, "grid": grid, "kind": KINDS[max(sides, 1) - 1],
             "ms": 1e3 * cost.seconds, "sparse": 1e3 * cost.phases["sparse"],
             "dense": 1e3 * cost.phases["dense"], "transfer": 1e3 * cost.phases["transfer"],
             "other": 1e3 * (cost.phases["passes"] + cost.phases["reduce"]),
             "MB": cost.received / 1e6, "MB of memory": cost.memory / 1e6},
        )  # fmt: skip
    return list(best.values())


def ends(grids: Sequence[dict[str, Any]], fast: int = 6, slow: int = 3) -> list[dict[str, Any]]:
    """The fastest and the slowest grids of each graph and P; the CSV has all of them."""
    rows = []
    for case in dict.fromkeys((row["graph"], row["P"]) for row in grids):
        some = [row for row in grids if (row["graph"], row["P"]) == case]
        rows += some if len(some) <= fast + slow else [*some[:fast], *some[-slow:]]
    return rows


def by_kind(grids: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest grid of each kind, a row for each graph and number of ranks."""
    rows = []
    for graph, size in dict.fromkeys((row["graph"], row["P"]) for row in grids):
        row: dict[str, Any] = {"graph": graph, "P": size}
        for kind in KINDS:
            some = [g for g in grids if (g["graph"], g["P"], g["kind"]) == (graph, size, kind)]
            fastest = min(some, key=lambda grid: grid["ms"], default=None)
            row[kind] = fastest and f"{fastest['ms']:.4g} ({fastest['grid']})"
        rows.append(row)
    return rows


def figure_of(grids: Sequence[dict[str, Any]]) -> Any:
    """Predicted time of each grid: arithmetic and transfer, the fastest grid first."""
    cases = list(dict.fromkeys((row["graph"], row["P"]) for row in grids))
    figure = new_figure(9, 3.2 * len(cases))
    axes = figure.subplots(len(cases), 1, squeeze=False)[:, 0]
    for axis, case in zip(axes, cases, strict=True):
        some = [row for row in grids if (row["graph"], row["P"]) == case]
        at, bottom = np.arange(len(some)), np.zeros(len(some))
        parts = ("transfer", "sparse", "dense", "other")
        for colour, key in zip(COLOURS, parts, strict=False):
            height = np.array([row[key] for row in some])
            axis.bar(at, height, bottom=bottom, color=colour, label=key)
            bottom += height
        axis.set_xticks(at, [row["grid"] for row in some], fontsize=6, rotation=60)
        axis.set_ylabel("ms of an epoch, predicted", fontsize=8)
        axis.set_title(f"{case[0]}, {case[1]} ranks", fontsize=9)
    axes[0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    end_with(main)
