"""PageRank, also personalised: where a walk along the arcs is in the end.

x = d·(Aᵀ·D⁻¹·x + (Σ x over dangling vertices)·v) + (1 − d)·v

with D the weights that leave a vertex, v where the walk begins anew (uniform, or the seeds), and
dangling the vertices that no weight leaves (Page, Brin, Motwani and Winograd 1999; Langville and
Meyer 2004, section 3). The power method: each step reduces the error by d at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.blocks import reciprocal
from gcnmpi.propagation.checkpoint import CheckpointOptions
from gcnmpi.propagation.checks import weights_of
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.space import Space
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class PageRankOptions(CheckpointOptions):
    """The options of ``pagerank``.

    Attributes
    ----------
    damping
        share of the steps that follow an arc
    tolerance
        sum of the changes of a step below which it ends; 0: 1e-15 in float64, 1e-6 in float32
    iterations
        steps at most
    seeds
        file with the vertices where walks begin, one a line, with a weight or without
    """

    damping: float = key(0.85, low=0, below=1)
    tolerance: float = key(0.0, low=0, example=1e-10)
    iterations: int = key(1000, low=1)
    seeds: str = key("", example="seeds.txt")


def check(stored: StoredGraph, options: PageRankOptions) -> None:
    """Check the file of seeds."""
    if options.seeds:
        weights_of(stored, Path(options.seeds))


def run(space: Space, options: PageRankOptions) -> Outcome:
    """Ranks, (n,), which sum to 1."""
    leaving = space.column_sums()
    inverse = reciprocal(leaving)  # 0 where a vertex is dangling
    start = _start(space, options)
    tolerance = options.tolerance or (1e-15 if space.dtype == np.float64 else 1e-6)
    mine, saved = space.counted, space.checkpoints.resume("step")
    if saved is None:
        done, x, change = 0, start.copy(), np.inf
    else:
        done, x = saved.step, space.checkpoints.rows(saved, "x")
        change = float(saved.small["change"])
    for step in range(done + 1, options.iterations + 1):
        followed = options.damping * space.multiply(x * inverse).astype(np.float64)
        # The rest, which did not follow an arc, begins anew: rounding cannot make the sum drift.
        kept = float(space.total(followed[mine].sum()))
        following = followed + (1 - kept) * start
        change = float(space.total(np.abs(following - x)[mine].sum()))
        x = following
        space.progress("step", step, options.iterations, f"change {change:.2g}")
        if change <= tolerance:
            notes = (f"{step} steps, last change {change:.2g}",)
            return Outcome(x.astype(space.dtype), notes=notes)
        done = step
        space.checkpoints.save("step", step, {"x": x}, {"change": change})
    note = f"warning: not converged after {done} steps: the last change was {change:.2g}"
    return Outcome(x.astype(space.dtype), notes=(note,))


def _start(space: Space, options: PageRankOptions) -> np.ndarray:
    """Where walks begin: own entries of a distribution."""
    if not options.seeds:
        return np.full(len(space.vertices), 1 / space.n)
    weights = space.read(lambda: weights_of(space.stored, Path(options.seeds)))
    return space.own(weights / weights.sum())


def holds(stored: StoredGraph, options: PageRankOptions) -> Holds:
    """Vectors: four that stay, and what a step computes."""
    return Holds(1, (Held(arcs=True), Held(doubles=9, product=1)))


METHOD = Method(
    PageRankOptions, Matrix("none", False, fixed=True, direction="in"), run, holds, check,
    dtype="float64",
)  # fmt: skip
