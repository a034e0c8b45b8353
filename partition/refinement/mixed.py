"""Refinement for the mixed exchange: annealing at what moves really cost.

First clusters of vertices move, in the hypergraph that fixes which entries partial sums serve: the
medium-grain one of minimum covers, whose connectivity−1 is the mixed volume at the parts that these
were made for, and an upper bound of it after every move. They only go downhill, a few times, each
time with the covers of the parts reached: where a graph has locality, a partition that was heated
is not found again. Then single vertices move, by :mod:`partition.refinement.matching`, which keeps
the sizes of covers. The temperature rises until the partition is a little worse than it was, and
falls to 0, as in :mod:`partition.refinement.search`. Meanwhile parts that are fuller than others
cost more: if one were left half empty, all others would be full, and no vertex could move between
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partition.deadline import Deadline
from partition.graph.aggregation import columns
from partition.graph.graph import Graph
from partition.models.medium_grain import medium_grain_model
from partition.refinement.matching import Matching, boundary, new_matching, place, settle, sweep
from partition.refinement.objective import OBJECTIVES
from partition.refinement.search import COLDEST, HOTTEST, Annealing, refine

CLUSTERS = 0.01  # effort of a round of the first step: it only goes downhill
ROUNDS = 12  # of them, at most
ROUND = 0.2  # of the time that is left, for one of them at most
BEFORE_LAST = 0.8  # of what is left then, for annealing
AHEAD = 0.05  # of that time, by which the clock may be ahead of the work before it decides
LOOKS = 1_200_000_000  # at ends of entries, while annealing: about a minute,
FEWEST, MOST = 4, 200  # and sweeps
RELIEVING = 0.25  # of as many looks, whatever the effort, each time that the balance is restored
FLAT = 3  # of them that only make moves that gain, at most
TOLERANCE = 0.04  # how much worse heating may make the partition, per unit of weight
HOPELESS = 0.5  # of the cooling, after which a partition that is still worse will remain so
SETTLED = 12  # looks at each entry after which all is counted anew: three times what that takes,
RELIEVED = 0.25  # and while the balance is restored; or this share of what it took the last time
CELLS = 1 << 28  # vertices times parts beyond which there is no memory to match them
LAST = 3  # further sweeps, each after the balance is restored, for an effort of 1
GAIN = 1e-6  # what their moves gain at least: others would change the balance for nothing
REPAIRS = 8  # rounds that restore the balance, at most
# What a unit of weight beyond the limit costs, in rows that are sent for a unit of work:
RELIEF = (1.0, 5.0, 20.0)  # one after the other while the balance is restored, then
PRESSED = 100.0  # whole rows
PRESSURE = 10.0  # in all other sweeps
EVENNESS = 5.0  # Energy.evenness over the mean volume that a part sends, while annealing
WORTH = 5.0  # per cent of the objective that one per cent of weight beyond the limit counts as


def refine_mixed(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    *,
    direction: str = "in",
    fixed: np.ndarray | None = None,
    counted: tuple[bool, ...] = (True,),
    **options: Any,
) -> np.ndarray:
    """Move rows between the parts so that the mixed exchange gets smaller, within the balance.

    The work is balanced where it is done: entries under a partial sum are the sender's, and each
    sum that arrives weighs as much as an entry. ``fixed``, (n, m) integers, are the weights of the
    vertices beside their work, by default nothing for one weight; ``counted`` says which of the m
    weights the work is added to. All else is as for :func:`partition.refinement.search.refine`.
    """
    start = np.asarray(parts, np.int32)
    if k == 1 or not graph.nnz:
        return start
    wanted: dict[str, Any] = {"objective": OBJECTIVES["mixed"], "deadline": Deadline()} | options
    asked = Annealing(**wanted)
    deadline, effort = asked.deadline, min(1.0, asked.effort)
    base = np.zeros((graph.n, 1), np.int64) if fixed is None else np.asarray(fixed, np.int64)

    def move_clusters(parts: np.ndarray, weights: np.ndarray | None, **changes: Any) -> np.ndarray:
        model = medium_grain_model(graph, direction, parts)
        if weights is None:
            weights = base + np.outer(model.weights, counted)
        model = replace(model, weights=weights[:, 0])
        return refine(model, parts, k, extra_weights=weights[:, 1:], **wanted | changes)

    if graph.n * k > CELLS:
        return move_clusters(start, None)
    with deadline.flag() as stop:
        entries = columns(graph, direction)
        matching = new_matching(*entries, start, k, base, counted, asked.imbalance, stop)
        search = _MixedSearch(matching, **wanted)
        for i in range(max(1, round(ROUNDS * effort))):
            kept, before = matching.parts.copy(), search.worth()
            changes = {"seed": asked.seed + i, "deadline": deadline.part(ROUND, paced=False)}
            search.place(move_clusters(kept, matching.weights, effort=CLUSTERS, **changes))
            search.improve()
            if search.worth() >= before:
                search.place(kept)
                break
            if deadline.over():
                break
        search.relieve()
        if search.excess() > search.rank[0]:  # several weights may leave no way back to balance
            search.place(search.best)
        search.anneal(deadline.part(BEFORE_LAST))
        for _ in range(max(1, round(LAST * effort))):
            if deadline.over():
                break
            search.relieve()
            search.improve()
        search.relieve()
        return search.best


@dataclass
class _MixedSearch(Annealing):
    """A matching, what it is improved by, and the best parts it has had."""

    state: Matching
    sweeps = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.best, self.rank = self.state.parts.copy(), self._rank()

    def place(self, parts: np.ndarray) -> None:
        """Begin with other parts."""
        place(self.state, parts)
        self._settle()

    def anneal(self, deadline: Deadline) -> None:
        """Up, in a quarter of the sweeps at most; slowly down, or faster where time is short."""
        state, work = self.state, LOOKS * self.effort
        first, done = int(state.looks[0]), self.sweeps
        most = first + int(work)

        def spent() -> float:
            sweeps = (self.sweeps - done) / max(FEWEST, MOST * self.effort)
            share = max((int(state.looks[0]) - first) / work, sweeps)
            clock = deadline.spent() - AHEAD if deadline.paced else float(deadline.over())
            if clock > share:
                deadline.decide()
            return max(clock, share)

        kept, before = state.parts.copy(), self.value(state)
        temperature, ceiling = (
            COLDEST,
            self.value(state, smooth=True) + TOLERANCE * self.objective.sum(),
        )
        while temperature < HOTTEST and spent() < 0.25:
            self._sweep(temperature, most)
            if self.value(state, smooth=True) > ceiling:
                break
            temperature = COLDEST * (HOTTEST / COLDEST) ** (4 * spent())
        hot = spent()
        while spent() < 0.9:
            cooled = (spent() - hot) / (0.9 - hot)
            self._sweep(temperature * (COLDEST / temperature) ** cooled, most)
            if cooled > HOPELESS and self.value(state, smooth=True) > ceiling:
                break
        if self.value(state) > before:
            # Of web graphs, single vertices cannot find the way back.
            self.place(kept)
        for _ in range(FLAT):
            if spent() < 1:
                self._sweep(-GAIN, most)
        self._settle()

    def relieve(self) -> None:
        """Move vertices out of the parts that are too heavy, as cheaply as may be.

        A move changes covers, and so the work of others: a little more is asked for each time.
        """
        looks = self.state.looks
        most = looks[0] + int(RELIEVING * LOOKS)
        for asked in np.linspace(self.imbalance, 0, REPAIRS + 1)[:-1]:
            if not self._rank()[0] or looks[0] > most or self.deadline.over():
                return
            settle(self.state, float(asked))
            every = int(RELIEVED * max(len(self.state.rows.others), looks[2]))
            # Cheap moves first.
            for pressure in (*(self._rows_for_work() * rate for rate in RELIEF), PRESSED):
                heavy = np.asarray((self.state.loads > self.state.limits).any(axis=1))
                vertices = np.flatnonzero(heavy[self.state.parts]).astype(np.int32)
                if len(vertices) and not self.state.stop[0] and looks[0] <= most:
                    energy = self.energy_at(self.state, pressure)
                    numbers = (self.random, float(asked), every, most)
                    sweep(self.state, vertices, -GAIN, energy, True, *numbers)
            self._settle()

    def improve(self) -> None:
        """A sweep that makes only moves that gain something: others would change the balance."""
        self._sweep(-GAIN)
        self._settle()

    def _sweep(self, temperature: float, most: int = np.iinfo(np.int64).max) -> None:
        self.sweeps += 1
        evenness = EVENNESS if temperature > 0 else 0.0
        energy = self.energy_at(self.state, PRESSURE * self._rows_for_work(), evenness)
        every = int(max(SETTLED * len(self.state.rows.others), 3 * self.state.looks[2]))
        numbers = (self.random, self.imbalance, every, most)
        heat = self.objective.sum() * temperature
        sweep(self.state, boundary(self.state), heat, energy, False, *numbers)

    def _settle(self) -> None:
        """Count what no longer changes, and keep it if it is the best."""
        settle(self.state, self.imbalance)
        rank = self._rank()
        if rank < self.rank:
            self.best, self.rank = self.state.parts.copy(), rank

    def _rows_for_work(self) -> float:
        """Rows that are sent for a unit of weight, on average."""
        return float(self.state.send.sum() / max(1, self.state.loads.sum()))

    def worth(self) -> float:
        """The objective, and about what it takes to restore the balance: less is better."""
        return self.value(self.state) + WORTH * self.objective.sum() * self.excess()

    def excess(self) -> float:
        """How far the heaviest part is over its limit."""
        loads, limits = self.state.loads, self.state.limits
        return max(0.0, float((loads / np.maximum(limits, 1)).max()) - 1)

    def _rank(self) -> tuple[float, float]:
        """The excess and the objective: less is better."""
        return self.excess(), self.value(self.state)
