#!/usr/bin/env python
"""Mukhodopadhyay et al. 2024: what METIS parts send (table 2), and volumes beside CAGNET's.

python scripts/reproduce/sparsity_aware.py email-Enron.mtx.gz ca-CondMat-lcc.mtx.gz
"""

from __future__ import annotations

from collections.abc import Sequence
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

from gcnmpi.planner.ranking import Ranked, rank_schemes
from partition.charts.figures import COLOURS, new_figure
from partition.reporting.comparison import parse_recipe, study

WIDTH, ITEM = 300, 4  # the table's columns of H; bytes of a number
# Three layers with 16 hidden units, as in their experiments; Amazon's features and labels.
MODEL = {"model.hidden": [16, 16], "scheme.exchange": "rows", "scheme.replication": 2}
SCHEMES = ("bcast", "p2p", "replicated")
# Table 2 of the paper: Amazon, parts by METIS, MB of one product, imbalance of what is sent.
PAPER = [
    {"P": 16, "average MB": 199.6, "max MB": 333.5, "load imbalance": "67.1 %"},
    {"P": 32, "average MB": 132.9, "max MB": 241.6, "load imbalance": "81.8 %"},
    {"P": 64, "average MB": 83.9, "max MB": 164.0, "load imbalance": "95.4 %"},
    {"P": 128, "average MB": 52.5, "max MB": 117.3, "load imbalance": "123.3 %"},
    {"P": 256, "average MB": 32.6, "max MB": 86.4, "load imbalance": "164.9 %"},
]
LINES = {
    "bcast": "CAGNET 1D: broadcasts",
    "p2p, random rows": "sparsity-aware, random rows",
    "p2p, gp": "sparsity-aware, METIS",
    "p2p, gp+refined": "sparsity-aware, METIS refined",
    "replicated dense": "CAGNET 1.5D, c = 2",
    "replicated, gp+refined": "sparsity-aware 1.5D, c = 2, METIS refined",
}


def main(words: list[str] | None = None) -> None:
    task = begin(__doc__ or "", "sparsity_aware", (4, 16, 64), (2,), words)
    folders = graphs(task, undirected=True)
    sizes = sorted({k for size in task.sizes for k in (size, size // 2) if k > 1})
    recipes = [parse_recipe(text) for text in ("gp", "gp+refined")]
    parts = study(folders, recipes, sizes, direction="in", seed=task.seed)
    sent = [
        {
            "graph": row["graph"], "P": row["k"], "parts": row["label"],
            "average MB": row["volume_avg"] * WIDTH * ITEM / 1e6,
            "max MB": row["max_send"] * WIDTH * ITEM / 1e6,
            "load imbalance": f"{100 * (row['max_send'] / max(row['volume_avg'], 1e-9) - 1):.1f} %",
        }
        for row in parts if row["k"] in task.sizes and row["label"] != "rp"
    ]  # fmt: skip
    received = [row for folder in folders for row in volumes(task, folder)]
    write_rows(task, sent + received)
    write_figure(task, figure_of(received))
    text = f"Sent in one product of width {WIDTH}, by METIS and refined parts:\n\n{markdown(sent)}"
    text += f"\nThe paper's table 2, Amazon, METIS:\n\n{markdown(PAPER)}"
    text += (
        "\nMB of an epoch (16 hidden units, 3 layers), received or sent by the busiest rank:\n\n"
    )
    text += markdown(by_line(received, task.sizes))
    finish(task, text, folders)


def volumes(task: Task, folder: Path) -> list[dict[str, Any]]:
    """Bytes of an epoch, with every scheme and partition of ``LINES``."""
    options = {"features": WIDTH, "classes": 24, "ranks_per_node": 4, "schemes": SCHEMES}
    aware, dense = (
        setting_of(folder, MODEL | {"scheme.sparse": sparse}, **options) for sparse in (True, False)
    )
    rows = []
    for size in task.sizes:
        found = rank_schemes(aware, size, schemes=SCHEMES, estimate="always")[0]
        lines = {name_of(line): line for line in found}
        # Blocks of equal size, as CAGNET has them: random rows are expected to be so.
        for line in rank_schemes(dense, size, schemes=["replicated"], estimate="always")[0]:
            if line.candidate.estimated or line.candidate.partition is None:
                lines["replicated dense"] = line
        rows += [
            {"graph": folder.stem, "P": size, "line": LINES[name], "received": line.cost.received,
             "sent": line.cost.sent, "most": max(line.cost.received, line.cost.sent)}
            for name, line in lines.items() if name in LINES
        ]  # fmt: skip
    return rows


def name_of(line: Ranked) -> str:
    """The scheme, and how its partition was made: the key of ``LINES``."""
    partition = line.candidate.partition
    if partition is None:
        return line.candidate.scheme.name
    made = (
        partition.name
        if line.candidate.estimated
        else partition.name.rsplit(f"-{partition.k}", 1)[0]
    )
    return f"{line.candidate.scheme.name}, {made}"


def by_line(rows: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each graph and line, a column in MB for each number of ranks."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        empty = {f"P = {size}": None for size in sizes}
        line = found.setdefault(
            (row["graph"], row["line"]), {"graph": row["graph"], "": row["line"], **empty}
        )
        line[f"P = {row['P']}"] = row["most"] / 1e6
    return list(found.values())


def figure_of(rows: Sequence[dict[str, Any]]) -> Any:
    """Bytes over the number of ranks: a panel per graph."""
    names = list(dict.fromkeys(row["graph"] for row in rows))
    figure = new_figure(4 * len(names) + 0.6, 4)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for colour, title in zip(COLOURS, LINES.values(), strict=False):
            line = sorted((r["P"], r["most"] / 1e6) for r in rows
                          if (r["graph"], r["line"]) == (name, title))  # fmt: skip
            if line:
                axis.plot(*zip(*line, strict=True), "o-", color=colour, label=title)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.grid(color="0.9")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("ranks P", fontsize=8)
    axes[0].set_ylabel("MB of an epoch, received or sent by the busiest rank", fontsize=8)
    axes[0].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    end_with(main)
