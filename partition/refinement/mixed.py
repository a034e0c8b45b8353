"""Refinement for the mixed exchange: best assignment of entries, refine, repeat.

Which entries partial sums serve is a minimum vertex cover for each pair of parts, and one move may
change it anywhere. So a round fixes it: connectivity−1 of the medium-grain hypergraph of the best
assignment is the mixed volume at these parts, and an upper bound of it after every move. Then the
cover is computed anew, which makes no pair of parts send more.

The first round moves clusters too, by :mod:`partition.refinement.search`. The others are a few
sweeps at one temperature each, which rises until the partition is a little worse than it was at
first and then falls, as there: an assignment holds on to the parts that it was made for, so that
annealing all the way down on one finds less.
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
from partition.refinement.objective import Objective, sweeps_for
from partition.refinement.search import (
    COLDEST,
    FLAT,
    HOTTEST,
    norm,
    rebalance,
    refine,
    shake,
    value,
)

CLUSTERS = 0.15  # effort of the first round
SWEEPS = 2  # in each of the others
HEATED = 12  # rounds from which on it pays to heat
TOLERANCE = 0.04  # how much worse heating may make the partition, per unit of weight
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
    begun = time.monotonic()
    base = np.zeros((graph.n, 1), np.int64) if fixed is None else fixed
    draw = seed

    def stand(parts: np.ndarray) -> _Standing:
        nonlocal draw
        draw += 1
        model = medium_grain_model(graph, direction, parts, draw)
        return _standing(model, parts, k, imbalance, objective, base, counted)

    def spent() -> float:
        return 0.0 if time_limit is None else (time.monotonic() - begun) / time_limit

    start = now = stand(np.asarray(parts, np.int32))
    if k == 1 or not now.model.nets:
        return now.parts
    common: dict[str, Any] = {"imbalance": imbalance, "objective": objective}
    rounds = max(2, round(sweeps_for(len(now.model.pins)) * effort))

    # Clusters first; then hotter and hotter, in a quarter of the rounds at most, or not at all
    # where there are too few to come down again.
    share = CLUSTERS * min(1.0, effort)
    limit = None if time_limit is None else time_limit / 4
    now = stand(refine(**now.hypergraph(), **common, seed=seed, effort=share, time_limit=limit))
    temperature, step = COLDEST, (HOTTEST / COLDEST) ** (4 / rounds)
    kept = now
    ceiling = min(start.smooth, now.smooth) + TOLERANCE * objective.sum()
    common["sweeps"] = SWEEPS
    while rounds >= HEATED and temperature < HOTTEST and spent() < 0.4:
        now = stand(shake(**now.hypergraph(), **common, seed=draw, temperature=temperature))
        if now.smooth > ceiling:
            break
        temperature *= step
    # Down; faster where the time would not do. And cold ones in the end, from what was better.
    done = 1 / rounds
    while done < 1 and spent() < 0.9:
        falling = temperature * (COLDEST / temperature) ** done
        now = stand(shake(**now.hypergraph(), **common, seed=draw, temperature=falling))
        done = max(done + 1 / rounds, (spent() - 0.4) / 0.5)
    if now.cost > kept.cost:  # of web graphs, single vertices cannot find the way back
        now = kept
    for _ in range(min(FLAT, max(1, rounds // 3))):
        if spent() < 1:
            now = stand(shake(**now.hypergraph(), **common, seed=draw, temperature=0.0))

    # What is moved for the balance changes assignments and so the work again, so a little more
    # is asked for each time.
    best = min(start, now, key=_Standing.rank)
    for asked in np.linspace(imbalance, 0, REPAIRS + 1)[:-1]:
        if now.excess > 0:
            now = stand(
                rebalance(
                    **now.hypergraph(), imbalance=float(asked), objective=objective, seed=draw
                )
            )
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
    cost, smooth : float
        The objective, and with norms for the maxima.
    """

    parts: np.ndarray
    k: int
    model: HypergraphModel
    extra: np.ndarray
    burden: np.ndarray
    excess: float
    cost: float
    smooth: float

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
    model: HypergraphModel,
    parts: np.ndarray,
    k: int,
    imbalance: float,
    objective: Objective,
    fixed: np.ndarray,
    counted: tuple[bool, ...],
) -> _Standing:
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
        parts, k, model, extra, burden,
        excess=max(0.0, float(excess)),
        cost=value(objective, state),
        smooth=value(objective, state, norm),
    )  # fmt: skip
