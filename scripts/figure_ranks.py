#!/usr/bin/env python3
"""The figure of README.md: one loss for every number of ranks, its seconds, and the bytes sent.

Usage: python scripts/figure_ranks.py G.graph FIGURE.svg, with a G.graph that has labels and masks.

It partitions the graph at random and by its hypergraph, trains with dropout in float64 on 1, 2, 4
and 8 ranks, one thread each, and writes the figure, then its numbers as a table of Markdown. They
are those of the records of the runs, which stay in runs/ranks: bytes as counted, and of the seconds
of the epochs the lower quartile, which other programs on the machine change least.
"""

from __future__ import annotations

import datetime
import os
import sys
from html import escape
from pathlib import Path

import numpy as np

import gcnmpi

RANKS = (1, 2, 4, 8)
MODELS = {"hp": "hypergraph partition", "rp": "random rows"}
SETTINGS = {
    "dtype": "float64", "threads": 1, "graph": {"feature_norm": "row"},
    "model": {"hidden": [64], "dropout": 0.5},
    "train": {"epochs": 100, "lr": 0.01, "eval_every": 0},
}  # fmt: skip
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328 } .faint { fill: #59636e }
  .axis { stroke: #59636e } .grid { stroke: #d0d7de; stroke-dasharray: 2 4 }
  .p1 { stroke: #9ecae1 } .p2 { stroke: #3182bd } .p4 { stroke: #e6550d } .p8 { stroke: #1f2328 }
  .hp { fill: #3182bd } .rp { fill: #fdae6b } .curve { fill: none; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) {
    .card { fill: #151b23; stroke: #3d444d } text { fill: #f0f6fc } .faint { fill: #9198a1 }
    .axis { stroke: #9198a1 } .grid { stroke: #3d444d }
    .p1 { stroke: #2f5f8a } .p2 { stroke: #6cb6ff } .p4 { stroke: #ff9a57 } .p8 { stroke: #f0f6fc }
    .hp { fill: #6cb6ff } .rp { fill: #b3662a }
  }
"""


def trained(graph: str, model: str, ranks: int) -> gcnmpi.Run:
    """A run on so many ranks; a run that has finished is taken from its record."""
    partition = f"{model}-{ranks}" if ranks > 1 else None
    arguments = {"graph": graph, "partition": partition, "settings": SETTINGS,
                 "out": f"runs/ranks/{model}-{ranks}"}  # fmt: skip
    return gcnmpi.launch(on_ranks, ranks, arguments)


def on_ranks(graph: str, partition: str | None, settings: dict, out: str) -> gcnmpi.Run:
    """Train on each rank of the launch."""
    return gcnmpi.train(graph, partition, config=settings, out=out)


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    """The element of a text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def curves(losses: dict[int, np.ndarray], difference: float) -> list[str]:
    """All curves in one place, from a wide line for one rank to a thin one for the most."""
    left, right, top, bottom = 52, 400, 62, 232
    most = max(loss.max() for loss in losses.values())
    pieces = [text(left, 28, "Loss of every epoch, with dropout", kind="head")]
    for value in np.arange(0, most + 0.01, 0.5):
        y = bottom - value / most * (bottom - top)
        pieces.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
        pieces.append(text(left - 8, y + 4, f"{value:.1f}", kind="faint", anchor="end"))
    for width, (ranks, loss) in zip((11, 6.5, 3, 1), losses.items(), strict=True):
        x = np.linspace(left, right, len(loss))
        y = bottom - loss / most * (bottom - top)
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
        pieces.append(f'<path class="curve p{ranks}" stroke-width="{width}" d="M{path}"/>')
    for row, (width, ranks) in enumerate(zip((11, 6.5, 3, 1), losses, strict=True)):
        y = top + 12 + 19 * row
        path = f'<path class="curve p{ranks}" stroke-width="{width}" d="M262 {y}H290"/>'
        pieces += [path, text(300, y + 4, f"{ranks} rank{'s' * (ranks > 1)}")]
    pieces.append(text(262, top + 96, f"largest difference: {difference:.0e}", kind="strong"))
    pieces.append(text(left, bottom + 20, "epoch 1", kind="faint"))
    pieces.append(text(right, bottom + 20, str(len(losses[1])), kind="faint", anchor="end"))
    return pieces


def bars(left: float, title: str, rows: list[tuple[str, str, float, str]]) -> list[str]:
    """Horizontal bars: label, class, value and its text each; a label is said once."""
    pieces = [text(left, 28, title, kind="head")]
    longest = max(value for _, _, value, _ in rows)
    y, before, height = 56.0, None, (148 if len(rows) < 5 else 144) / len(rows) - 4
    for label, kind, value, said in rows:
        y += 8 if before not in (None, label) and len(rows) > 4 else 0
        if label != before:
            pieces.append(text(left + 10, y + height / 2 + 4, label, kind="faint", anchor="end"))
        width = value / longest * 118
        shape = f'x="{left + 18:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        pieces.append(f'<rect class="{kind}" {shape}/>')
        pieces.append(text(left + 24 + width, y + height / 2 + 4, said))
        y, before = y + height + 4, label
    return pieces


def main() -> None:
    """Partition, train, draw and print the table."""
    source, out = (os.path.abspath(name) for name in sys.argv[1:])
    os.chdir(Path(__file__).parents[1])
    graph = gcnmpi.graph.open(source)
    for model in MODELS:
        for ranks in RANKS[1:]:
            graph.add_partition(model, ranks, if_missing=True)
    runs = {(m, r): trained(source, m, r) for r in RANKS for m in MODELS if (m, r) != ("rp", 1)}
    losses = {key: run.epochs["loss"] for key, run in runs.items()}
    difference = max(np.abs(loss - losses["hp", 1]).max() for loss in losses.values())
    seconds = {key: np.quantile(run.epochs["seconds"][1:], 0.25) for key, run in runs.items()}
    sent = {key: sum(run.summary["bytes_sent"]) / len(losses[key]) for key, run in runs.items()}
    time_bars = [(str(r), "hp", seconds["hp", r], f"{1e3 * seconds['hp', r]:.0f}") for r in RANKS]
    byte_bars = [(str(r), m, sent[m, r] / 1e6, f"{sent[m, r] / 1e6:.3g}")
                 for r in RANKS[1:] for m in MODELS]  # fmt: skip
    pieces = curves({r: losses["hp", r] for r in RANKS}, difference)
    pieces += bars(460, f"ms an epoch, {os.cpu_count()} cores", time_bars)
    pieces += bars(672, "MB sent an epoch", byte_bars)
    for x, (model, name) in zip((680, 680), MODELS.items(), strict=True):
        y = 238 + 18 * list(MODELS).index(model)
        pieces += [f'<rect class="{model}" x="{x}" y="{y}" width="10" height="10"/>',
                   text(x + 16, y + 9, name)]  # fmt: skip
    pieces += [text(450, 248, "ranks, one thread each;", kind="faint"),
               text(450, 266, "more than cores take turns", kind="faint")]  # fmt: skip
    today = datetime.date.today().isoformat()
    made = f"python scripts/figure_ranks.py {Path(source).name} {Path(out).name}, {today}"
    title = (
        f"The loss of 100 epochs on 1, 2, 4 and 8 ranks differs by {difference:.0e} at most; a "
        "partition of the hypergraph sends a part of the bytes that random rows do."
    )
    style = STYLE + "  .head, .strong { font-weight: bold }\n"
    Path(out).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 282" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" '
        f'aria-labelledby="title">\n<title id="title">{title}</title>\n<desc>{escape(made)}</desc>'
        f'\n<style>{style}</style>\n<rect class="card" x="0.5" y="0.5" width="879" height="281" '
        f'rx="6"/>\n' + "\n".join(pieces) + "\n</svg>\n",
        encoding="utf-8",
    )
    print("| ranks | partition | ms an epoch | MB sent an epoch | loss of the last epoch |")
    print("|---|---|---|---|---|")
    for (model, ranks), loss in losses.items():
        name = MODELS[model] if ranks > 1 else ""
        row = f"{1e3 * seconds[model, ranks]:.1f} | {sent[model, ranks] / 1e6:.3f}"
        print(f"| {ranks} | {name} | {row} | {loss[-1]:.15f} |")


if __name__ == "__main__":
    main()
