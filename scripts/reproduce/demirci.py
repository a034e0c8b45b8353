#!/usr/bin/env python
"""Demirci et al. 2022, table 2: volume and messages of HP and GP relative to RP; and over P.

python scripts/reproduce/demirci.py soc-Slashdot0902.mtx.gz email-Enron.mtx.gz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reproducing import (
    begin,
    end_with,
    finish,
    graphs,
    markdown,
    write_figure,
    write_rows,
)

from partition.charts.figures import COLOURS, new_figure
from partition.reporting.comparison import parse_recipe, study, table

# Table 2 of the paper, P = 512: volume average and maximum, messages average and maximum.
PAPER = {
    ("amazon0601", "hp"): (0.12, 0.29, 0.22, 0.51),
    ("amazon0601", "gp"): (0.18, 0.31, 0.30, 0.62),
    ("cit-Patents", "hp"): (0.17, 0.29, 0.70, 0.89),
    ("cit-Patents", "gp"): (0.19, 0.50, 0.77, 0.94),
    ("coPapersDBLP", "hp"): (0.07, 0.08, 0.42, 0.71),
    ("coPapersDBLP", "gp"): (0.07, 0.16, 0.57, 0.77),
    ("com-Amazon", "hp"): (0.09, 0.20, 0.14, 0.32),
    ("com-Amazon", "gp"): (0.14, 0.27, 0.19, 0.42),
    ("com-Youtube", "hp"): (0.36, 0.52, 0.72, 0.97),
    ("com-Youtube", "gp"): (0.37, 2.60, 0.90, 0.99),
    ("flickr", "hp"): (0.45, 0.60, 0.79, 1.00),
    ("flickr", "gp"): (0.38, 6.89, 0.96, 1.00),
    ("roadNet-CA", "hp"): (0.01, 0.01, 0.01, 0.03),
    ("roadNet-CA", "gp"): (0.01, 0.02, 0.01, 0.03),
    ("soc-Slashdot0902", "hp"): (0.74, 0.69, 0.86, 0.92),
    ("soc-Slashdot0902", "gp"): (0.85, 4.38, 0.93, 1.00),
    ("mean", "hp"): (0.13, 0.21, 0.29, 0.48),
    ("mean", "gp"): (0.15, 0.56, 0.35, 0.52),
}
COLUMNS = ("volume avg", "volume max", "messages avg", "messages max")
PANELS = {"volume": "rows sent in one exchange", "messages": "messages in one exchange"}


def main(words: list[str] | None = None) -> None:
    task = begin(__doc__ or "", "demirci", (4, 16, 64), (2,), words)
    folders = graphs(task)
    recipes = [parse_recipe(text) for text in ("rp", "hp", "gp")]
    rows = study(folders, recipes, task.sizes, direction="out", seed=task.seed)
    flat = [
        {key: value for key, value in row.items() if key not in ("relative", "nodes", "mixed",
                                                                 "mixed_relative")}
        | {f"relative_{key}": value for key, value in row["relative"].items()}
        for row in rows
    ]  # fmt: skip
    write_rows(task, flat)
    write_figure(task, over_ranks(rows))
    text = "Relative to random rows (RP), this program:\n\n" + table(rows)
    known = {row["graph"] for row in rows} | {"mean"}
    text += "\nThe paper, P = 512:\n\n" + markdown(
        [
            {"graph": graph, "model": model, **dict(zip(COLUMNS, figures, strict=True))}
            for (graph, model), figures in PAPER.items()
            if graph in known
        ]
    )
    finish(task, text, folders)


def over_ranks(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Volume and messages over the number of ranks: a column per graph, a line per model."""
    names = list(dict.fromkeys(row["graph"] for row in rows))
    figure = new_figure(2.8 * len(names) + 0.6, 5)
    axes = figure.subplots(len(PANELS), len(names), squeeze=False, sharex=True)
    for across, name in enumerate(names):
        for down, (key, title) in enumerate(PANELS.items()):
            axis = axes[down][across]
            for colour, model in zip(COLOURS, ("hp", "gp", "rp"), strict=False):
                line = [r for r in rows if (r["graph"], r["label"]) == (name, model)]
                line.sort(key=lambda row: row["k"])
                axis.plot(
                    [r["k"] for r in line], [r[key] for r in line], "o-", color=colour,
                    label=model.upper(),
                )  # fmt: skip
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.grid(color="0.9")
            axis.set_title(name if down == 0 else "", fontsize=9)
            axis.set_ylabel(title if across == 0 else "", fontsize=8)
            axis.set_xlabel("ranks P" if down else "", fontsize=8)
    axes[0][0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    end_with(main)
