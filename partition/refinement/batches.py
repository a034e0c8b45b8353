"""Refinement for mini-batches: fewer rows in the mean over all batches, without drawing any.

Where each vertex is in a batch with probability q whoever else is (the sampler ``vertex``), a batch
with j sends j's row to a part that holds c of its readers with probability 1 − (1 − q)^c. So the
expected volume is q · Σ_j Σ_p (1 − (1 − q)^c_jp) over the parts p that j is not in: between the
edge cut (q → 0) and the volume of a full batch (q = 1), with no sampling error. Demirci et al.
2022, section 4.3.3, estimate it by sampled hypergraphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from partition.models.hypergraph import HypergraphModel
from partition.refinement import core
from partition.refinement.objective import Objective, sweeps_for
from partition.refinement.search import PRESSURE, Level, Search, finest_level

# While annealing: how much worse heating may make the partition, the highest temperature in costs
# of a cut arc, and Energy.evenness over the mean expected volume of a part.
TOLERANCE, HOTTEST, EVENNESS = 0.1, 10.0, 20.0


def refine_for_batches(
    model: HypergraphModel,
    parts: np.ndarray,
    k: int,
    share: float,
    *,
    effort: int = 1,
    extra_weights: np.ndarray | None = None,
    **options: Any,
) -> tuple[np.ndarray, float]:
    """Move rows between the parts so that batches communicate less, within the balance.

    ``model`` is the column-net hypergraph of full batches, ``share`` the probability q, 0 < q ≤ 1,
    that a vertex is in a batch. There are ``effort`` times as many sweeps, and heating may go so
    many times as far. All else is as for :func:`partition.refinement.search.refine`; the rows that
    a batch exchanges in the mean are returned too.
    """
    start = np.asarray(parts).astype(np.int32)
    level = finest_level(model, extra_weights)
    if k == 1 or not len(level.owners):
        return start, 0.0
    # The cost of so many readers, where one costs 1.
    counts = np.arange(int(np.diff(level.indptr).max()) + 2)
    cost = -np.expm1(counts * np.log1p(-share)) / share if share < 1 else counts.clip(0, 1.0)
    search = _BatchSearch(k, cost, effort, objective=Objective(max_send=0.0), **options)
    found = search.run(level, start)
    return found, share**2 * search.volume(search.state(level, found, 0))


@dataclass
class _BatchSearch(Search):
    """Annealing of single vertices at what a move costs batches."""

    cost: np.ndarray
    longer: int
    hottest = HOTTEST

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tolerance = self.longer * TOLERANCE

    def volume(self, state: core.State) -> float:
        """The expected volume in units of what one cut arc costs."""
        return float(_expected(state, self.cost))

    def _descend(self, level: Level, state: core.State, depth: int, finer: int = 0) -> core.State:
        # A cluster is several readers for one net and one for another: vertices move alone.
        return self._anneal(level, state, self.longer * sweeps_for(len(level.pins)))

    def _sweep(self, state: core.State, temperature: float) -> None:
        energy = self.energy_at(state, PRESSURE[temperature == 0])
        if temperature > 0:
            energy = energy._replace(evenness=EVENNESS * self.volume(state) / self.k)
        vertices = core.boundary(state)
        _sweep(state, vertices, self.unit * temperature, energy, self.cost, self.random)

    def value(self, state: Any, smooth: bool = False) -> float:
        """The expected volume, as the objective has it."""
        return float(np.log1p(self.volume(state)))


@core.compiled
def _expected(state, cost):
    """Σ over nets and the parts that they touch but their home, of the cost of the readers."""
    total = 0.0
    for net in range(len(state.facts)):
        facts = state.facts[net]
        at, home = facts.where, facts.home
        if facts.table:
            for p in range(len(state.sizes)):
                if p != home:
                    total += facts.cost * cost[state.cells[at + p]]
        else:
            for c in range(at, at + 2 * facts.touched, 2):
                if state.cells[c] != home:
                    total += facts.cost * cost[state.cells[c + 1]]
    return total


@core.compiled
def _note(desk, p, count, facts, mine, a, cost):
    """Note what one part's readers of a net save a vertex of part ``a`` that would join them."""
    if mine:
        saved = cost[count] if p != a else 0.0
    elif p == facts.home:
        saved = cost[1]
    else:
        saved = cost[1] - (cost[count + 1] - cost[count])
    desk.costs[core.NEAR, p] += facts.cost * saved


@core.compiled
def _survey(state, v, desk, wide, cost, random):
    """Look at all nets of a vertex; how many candidates, and the cost of a part that has none.

    ``desk.costs[NEAR]`` is how much less than there the vertex costs on each part.
    """
    k, a = len(state.sizes), np.int64(state.parts[v])
    ncandidates, ntables, base = 0, 0, 0.0
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        facts = state.facts[state.nets[i]]
        at, mine = facts.where, facts.owner == v
        here = np.int64(0)
        if facts.table:
            ntables += 1
            here = np.int64(state.cells[at + a])
            if wide:
                for p in range(k):
                    if state.cells[at + p] > 0:
                        _note(desk, p, np.int64(state.cells[at + p]), facts, mine, a, cost)
        else:
            for c in range(at, at + 2 * facts.touched, 2):
                part, count = np.int64(state.cells[c]), np.int64(state.cells[c + 1])
                if part == a:
                    here = count
                _note(desk, part, count, facts, mine, a, cost)
                ncandidates = core.meet(desk, part, ncandidates)
        if mine:  # the readers in its part would become remote ones
            base += facts.cost * cost[here - 1]
        else:
            base += facts.cost * cost[1]
            if facts.home != a:
                base -= facts.cost * (cost[here] - cost[here - 1])
    if wide:
        return k, base
    ncandidates = core.meet(desk, core.below(random, k), ncandidates)
    if ntables:
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            facts = state.facts[state.nets[i]]
            if facts.table:
                for c in range(ncandidates):
                    p = desk.candidates[c]
                    count = np.int64(state.cells[facts.where + p])
                    if count > 0:
                        _note(desk, p, count, facts, facts.owner == v, a, cost)
    return ncandidates, base


@core.compiled
def _sweep(state, vertices, temperature, energy, cost, random):
    """Offer each vertex of a list, in random order, its best other part.

    As :func:`partition.refinement.core.sweep`, at what a move costs batches.
    """
    k = len(state.sizes)
    wide, desk = k <= core.WIDE, core.new_desk(k)
    for p in range(k):
        core.set_prices(state, p, energy)
    for position in range(len(vertices)):
        if state.stop[0]:
            break
        v = core.take(vertices, position, random)
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        ncandidates, base = _survey(state, v, desk, wide, cost, random)
        base = core.leaving(state, v, energy, base)
        best, least, ties = np.int64(-1), np.inf, 0
        for c in range(ncandidates):
            b = np.int64(c) if wide else desk.candidates[c]
            delta = base - desk.costs[core.NEAR, b]
            desk.costs[core.NEAR, b] = 0.0
            desk.seen[b] = False
            if b == a:
                continue
            delta = core.arriving(state, v, b, energy, delta)
            if delta > least or not core.has_room(state, v, b, 1.0):
                continue
            ties = ties + 1 if delta == least else 1
            if ties == 1 or core.below(random, ties) == 0:
                best, least = b, delta
        most = core.tolerance(temperature, random)
        if best >= 0 and least <= most:
            core.move(state, v, best, energy)
