"""Refinement for the mixed exchange: best assignment of entries, refine, repeat.

Which entries partial sums serve is a minimum vertex cover for each pair of parts, and one move may
change it anywhere. So a round fixes it: connectivity−1 of the medium-grain hypergraph of the best
assignment is the mixed volume at these parts, and an upper bound of it after every move. Annealing
on it is that of :mod:`partition.refinement.search`. Then the cover is computed anew, which makes no
pair of parts send more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partition.graph.graph import Graph
from partition.models.hypergraph import HypergraphModel
from partition.models.medium_grain import medium_grain_model
from partition.refinement.levels import finest_level, new_state
from partition.refinement.objective import Objective
from partition.refinement.search import rebalance, refine, value

# The effort of each round: a heated one, since an assignment holds on to the parts that it was
# made for, then cold ones, which move little and let the assignment follow.
CYCLE = (0.2, 0.05, 0.05)
CYCLES = 4  # at effort 1
REPAIRS = 8  # rounds that restore the balance afterwards, at most


def refine_mixed(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    *,
    direction: str = "in",
    imbalance: float = 0.01,
    objective: Objective | None = None,
    seed: int = 0,
    effort: float = 1.0,
    time_limit: float | None = None,
    fixed: np.ndarray | None = None,
    counted: tuple[bool, ...] = (True,),
) -> np.ndarray:
    """Move rows between the parts so that the mixed exchange gets smaller, within the balance.

    The work is balanced where it is done: entries under a partial sum are the sender's, and each
    sum that arrives weighs as much as an entry.

    Parameters
    ----------
    fixed : (n, m) integers, optional
        What vertices weigh beside their work, for each of m weights that are balanced; default:
        nothing, for one weight.
    counted : tuple of m bool
        Which of the weights the work is added to.

    Others, and the errors, are those of :func:`partition.refinement.search.refine`.

    Returns
    -------
    (n,) int32
        Not worse than the start by the objective, unless the start was out of balance.
    """
    objective = objective or Objective(exchange="mixed")
    end = np.inf if time_limit is None else time.monotonic() + time_limit

    base = np.zeros((graph.n, 1), np.int64) if fixed is None else fixed

    def stand(parts: np.ndarray) -> _Standing:
        return _standing(graph, parts, k, direction, imbalance, objective, base, counted)

    start = now = stand(np.asarray(parts, np.int32))
    if k == 1 or not now.model.nets:
        return now.parts
    common: dict[str, Any] = {"objective": objective, "seed": seed}
    shares = [share * min(1.0, CYCLES * effort) for share in CYCLE]
    for share in shares * max(1, round(CYCLES * effort)):
        left = end - time.monotonic()
        if left > 0:
            limit = None if left == np.inf else left
            common["seed"] += 1
            moved = refine(
                **now.hypergraph(), imbalance=imbalance, effort=share, time_limit=limit, **common
            )
            now = stand(moved)
    best = min(start, now, key=_Standing.rank)
    # What is moved for the balance changes assignments and so the work again, so a little more
    # is asked for each time.
    for asked in np.linspace(imbalance, 0, REPAIRS + 1)[:-1]:
        if now.excess > 0:
            now = stand(rebalance(**now.hypergraph(), imbalance=float(asked), **common))
            best = min(best, now, key=_Standing.rank)
    return best.parts


@dataclass(frozen=True)
class _Standing:
    """Parts, the hypergraph of their best assignment, and how good they are.

    Attributes
    ----------
    burden : (k, m) int64
        The sums that arrive at each part, where they weigh.
    excess : float
        The heaviest load over its limit, less 1; 0 within the limits.
    cost : float
        The objective.
    """

    parts: np.ndarray
    k: int
    model: HypergraphModel
    extra: np.ndarray
    burden: np.ndarray
    excess: float
    cost: float

    def hypergraph(self) -> dict[str, Any]:
        """The first arguments of a refinement from here."""
        return {
            "model": self.model, "parts": self.parts, "k": self.k,
            "extra_weights": self.extra, "burden": self.burden,
        }  # fmt: skip

    def rank(self) -> tuple[float, float]:
        """Of two, the one with the lower rank is better."""
        return self.excess, self.cost


def _standing(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    direction: str,
    imbalance: float,
    objective: Objective,
    fixed: np.ndarray,
    counted: tuple[bool, ...],
) -> _Standing:
    model = medium_grain_model(graph, direction, parts)
    weights = fixed + np.outer(model.weights, counted)
    model, extra = replace(model, weights=weights[:, 0]), weights[:, 1:]
    level = finest_level(model, extra)
    average = level.weights.sum(axis=0) / k
    state = new_state(level, parts, k, average.astype(np.int64), messages=objective.messages > 0)
    folds = state.facts[state.facts["fold"]]
    sums = np.bincount(folds["home"], folds["cost"] * (folds["touched"] - 1), minlength=k)
    burden = np.outer(sums, counted).astype(np.int64)
    limits = (1 + imbalance) * (average + burden.sum(axis=0) / k)
    limits = np.maximum(limits, level.weights.max(axis=0, initial=0))
    excess = ((state.loads + burden) / np.maximum(limits, 1)).max() - 1
    return _Standing(
        parts, k, model, extra, burden, max(0.0, float(excess)), value(objective, state)
    )
