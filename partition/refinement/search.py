"""Communication-aware refinement: lower volume and a lower busiest part, from any partition.

The job of Graph-VB (Acer, Selvitopi and Aykanat, Parallel Computing 59, 2016) by other means:
simulated annealing on the column-net hypergraph, over several levels. Clusters of vertices of
one part move first, since single vertices cannot cross the valleys between good partitions of
meshes and web graphs; then ever smaller ones.

On a level, sweeps over the boundary offer every vertex its best other part, and take a loss Δ
with probability exp(−Δ / temperature). The temperature rises until the partition is a little
worse than it was at first, then falls to 0: so a graph whose start is far from a good partition
is melted and one whose start is good is only shaken. A level that ends worse than it began is
undone. Of very large hypergraphs there is time for a few sweeps only: where clusters do not make
the hypergraph smaller, all of them are spent on single vertices.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partition.deadline import Deadline
from partition.graph.graph import first_of_equals
from partition.graph.sparse import sp
from partition.models.descriptions import HypergraphModel, of_nets
from partition.refinement import core
from partition.refinement.objective import OBJECTIVES, TABLE_SHARE, Objective, cells, sweeps_for

_HEATED = 6  # sweeps from which on it pays to heat
_DENSE = 0.7  # coarser levels with more of the pins are no easier: the sweeps are not spent there
_ALONE = 3  # times as many sweeps on a level that has no coarser ones for that reason
_FLAT = 3  # sweeps at temperature 0 that end a level, at most
COLDEST, HOTTEST = 0.08, 4.0  # temperatures, in net costs
_TOLERANCE = 0.02  # how much worse heating may make the partition, per unit of weight
_SLACK = 0.2  # mean clusters by which a part may be too heavy while clusters move
_COARSEST = 30  # vertices per part
_SHRINK = 0.9  # coarsening ends when it shrinks less
_RATED = 100  # nets of more pins do not tie vertices together
_DOUBLINGS = 4  # the norm that stands for the maximum has the exponent 2^DOUBLINGS
_EVENNESS = 10.0  # Energy.evenness over the mean volume that a part sends, while annealing
_PRESSURE = (1.0, 100.0)  # what a unit of weight beyond the limit costs, while annealing and after


def refine(
    model: HypergraphModel, parts: np.ndarray, k: int, *, extra_weights: np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:  # fmt: skip
    """Move rows between the parts so that the communication falls, within the balance.

    Parameters
    ----------
    model : HypergraphModel
        With optional ``costs`` and ``owners`` of the nets; 1 and the vertex of the same number
        where it has none. An owner is a pin of its net.
    parts : (n,) integers
        Where to start from, 0..k−1.
    k : int
        Number of parts.
    extra_weights : (n, m) integers, optional
        Further weights of the vertices, balanced like the model's own.
    options
        Fields of :class:`Annealing`.

    Returns
    -------
    (n,) int32
        Not worse than the start by the objective, unless the start was out of balance; parts
        that were not empty are not.

    Raises
    ------
    ValueError
        If ``parts`` is not n numbers in 0..k−1.
    """
    start, n = np.asarray(parts), len(model.weights)
    if start.shape != (n,):
        raise ValueError(f"{start.shape} parts for {n} vertices")
    if n and not 0 <= start.min() <= start.max() < k:
        raise ValueError(f"a part number is outside 0..{k - 1}")
    start = start.astype(np.int32)
    level = finest_level(model, extra_weights)
    del model  # the level has what it needs of it
    if k == 1 or not len(level.owners):
        return start
    return _Search(k, **options).run(level, start)


@dataclass(kw_only=True)
class Annealing:
    """Settings of every search, and its random numbers.

    Attributes
    ----------
    imbalance : float
        What the heaviest part may weigh above the average. A vertex that weighs more than that
        raises the limit; a part that weighs more at the start only gets lighter.
    objective : Objective
    seed : int
        The same arguments give the same parts, unless the clock decides.
    effort : float
        How often to go through all levels; below 1 once, with that share of the sweeps.
    deadline : Deadline
        When it is over, sweeps end where they are, but for a few that restore the balance. Where
        the time is short, and the deadline paces, the search cools faster.
    """

    imbalance: float = 0.01
    objective: Objective = OBJECTIVES["rows"]
    seed: int = 0
    effort: float = 1.0
    deadline: Deadline = field(default_factory=Deadline)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self.random = random.integers(1, 2**63, 1, dtype=np.uint64)

    def energy_at(self, state: Any, pressure: float, evenness: float = 0.0) -> core.Energy:
        """The objective's slopes at a partition, times the volume: the cost of a row, in rows."""
        objective, k = self.objective, len(state.send)
        total = max(1.0, float(state.send.sum()))
        send, recv = max(1.0, _norm(state.send)), max(1.0, _norm(state.recv))
        return core.Energy(
            total=float(objective.total),  # another type would be compiled anew
            send=core.Price(objective.max_send * total / (k * send), send, _DOUBLINGS),
            recv=core.Price(objective.max_recv * total / (k * recv), recv, _DOUBLINGS),
            pressure=float(pressure * objective.sum()),
            messages=objective.messages * total / max(1, state.messages[0]),
            evenness=evenness * objective.sum() * total / k,
        )

    def value(self, state: Any, smooth: bool = False) -> float:
        """The objective; or a smooth one, with norms for the maxima."""
        largest: Callable[..., float] = _norm if smooth else np.max
        figures = (state.send.sum(), largest(state.send), largest(state.recv), state.messages[0])
        # 1 is added so that partitions without communication can be compared too.
        return sum(
            weight * float(np.log1p(figure))
            for weight, figure in zip(self.objective.weights(), figures, strict=True)
        )


@dataclass
class _Search(Annealing):
    """The search of :func:`refine` into k parts."""

    k: int
    tolerance, hottest = _TOLERANCE, HOTTEST

    def run(self, finest: _Level, start: np.ndarray) -> np.ndarray:
        """Down to a coarse level and back; the start where that was for nothing."""
        average = finest.weights.sum(axis=0) / self.k
        limits = np.maximum((1 + self.imbalance) * average, finest.weights.max(axis=0))
        self.limits = limits.astype(np.int64)
        self.grain = np.maximum(average / (2 * _COARSEST), 1).astype(np.int64)
        self.unit = float(finest.costs.mean()) * self.objective.sum()
        with self.deadline.flag() as self.stop:
            state = self.state(finest, start, 0)
            before, heaviest = self.value(state), state.loads.max(axis=0)
            # Compiled before shares of the time are given out: it makes no move.
            self._sweep(state._replace(stop=np.ones_like(self.stop)), 0.0)
            for _ in range(max(1, round(self.effort))):
                state = self._descend(finest, state, 0)
        reached = state.loads.max(axis=0)
        if (reached > np.maximum(self.limits, heaviest)).any():
            return start
        # A start out of balance is left whatever that costs.
        lighter = (heaviest > self.limits).any() and (reached < heaviest).any()
        return state.parts if lighter or self.value(state) <= before else start

    def _descend(self, level: _Level, state: core.State, depth: int, finer: int = 0) -> core.State:
        """Search on the coarser levels, then on this one; ``finer``: pins of those to come."""
        pins = len(level.pins)
        sweeps = sweeps_for(pins)
        if len(level.weights) > _COARSEST * self.k and not self.deadline.over():
            labels = np.empty(len(level.weights), np.int32)
            clusters = cluster(state, labels, self.grain, _RATED, self.random)
            if clusters < _SHRINK * len(level.weights):
                coarse = contract(level, labels, clusters)
                if sweeps < _HEATED and len(coarse.pins) > _DENSE * pins:
                    sweeps *= _ALONE
                else:
                    parts = np.empty(clusters, np.int32)
                    parts[labels] = state.parts
                    below = self.state(coarse, parts, depth + 1)
                    below = self._descend(coarse, below, depth + 1, finer + pins)
                    state = self.state(level, below.parts[labels], depth)
                    del below
                del coarse  # as large as the level itself, where it was no use
        return self._anneal(level, state, sweeps, depth, pins / max(1, pins + finer))

    def _anneal(
        self, level: _Level, state: core.State, sweeps: int, depth: int = 0, share: float = 1.0
    ) -> core.State:
        """Heat, cool, and undo it if that was for nothing, in a share of the time that is left."""
        part = self.deadline.part(share if self.deadline.paced else 1.0)
        sweeps = max(1, round(sweeps * min(1.0, self.effort)))
        kept, before, feasible = state.parts.copy(), self.value(state), self._feasible(state)
        ceiling = self.value(state, smooth=True) + self.tolerance * self.objective.sum()
        # Up, in a quarter of the sweeps at most, as long as the partition bears it; not at all
        # where there are too few to come down again.
        temperature, step = COLDEST, (self.hottest / COLDEST) ** (4 / sweeps)
        while sweeps >= _HEATED and temperature < self.hottest and not self._late(part, 0.25):
            self._sweep(state, temperature)
            if self.value(state, smooth=True) > ceiling:
                break
            temperature *= step
        # Slowly down; faster where the time would not do.
        done = 1 / sweeps
        while done < 1 and not self._late(part, 0.9):
            self._sweep(state, temperature * (COLDEST / temperature) ** done)
            done += 1 / sweeps
            if part.paced and part.spent() / 0.9 > done:
                part.decide()
                done = part.spent() / 0.9
        # Late too where the coarser levels' slack is still in the parts.
        for _ in range(min(_FLAT, max(1, sweeps // 3))):
            if not part.over():
                self._sweep(state, 0.0)
            elif depth == 0 and not self._feasible(state):
                self._sweep(state._replace(stop=np.zeros_like(self.stop)), 0.0)

        worse = self.value(state) > before and self._feasible(state) <= feasible
        return self.state(level, kept, depth) if worse else state

    def _late(self, part: Deadline, share: float) -> bool:
        """Whether so much of the time is over, where it paces; otherwise, whether all is."""
        late = part.spent() >= share if part.paced else part.over()
        if late:
            part.decide()
        return late

    def _sweep(self, state: core.State, temperature: float) -> None:
        """Offer each vertex of the boundary a move."""
        evenness = _EVENNESS if temperature > 0 else 0.0
        energy = self.energy_at(state, _PRESSURE[temperature == 0], evenness)
        core.sweep(state, core.boundary(state), self.unit * temperature, energy, self.random)

    def _feasible(self, state: core.State) -> bool:
        return bool((state.loads <= state.limits).all())

    def state(self, level: _Level, parts: np.ndarray, depth: int) -> core.State:
        """The counts of a partition of a level."""
        # Clusters are too coarse a grain for the balance asked for.
        slack = np.minimum(self.grain, _SLACK * level.weights.mean(axis=0)) if depth else 0
        limits = (self.limits + slack).astype(np.int64)
        counted = {"messages": self.objective.messages > 0, "stop": self.stop}
        return new_state(level, parts, self.k, limits, **counted)


def _norm(volumes: np.ndarray) -> float:
    """The generalised mean of exponent 2^DOUBLINGS: near the maximum, but smooth."""
    largest = float(volumes.max())
    if not largest:
        return 0.0
    exponent = 2**_DOUBLINGS
    return largest * float(np.mean((volumes / largest) ** exponent)) ** (1 / exponent)


class _Level(namedtuple("Level", "weights indptr pins vertex_ptr nets costs owners folds")):
    """A hypergraph whose vertices are those of the model, or clusters of them.

    Attributes
    ----------
    weights : (n, m) int64
    indptr, pins : (nets + 1,) int64, (pins,) int32
        The vertices of each net.
    vertex_ptr, nets : (n + 1,) int64, (pins,) int32
        The nets of each vertex.
    costs, owners, folds : (nets,) int64, (nets,) int32, (nets,) bool
    """


def finest_level(model: HypergraphModel, extra_weights: np.ndarray | None) -> _Level:
    """The model itself, less the nets of one pin, which cost nothing. Each net pins its owner."""
    n = len(model.weights)
    extra = np.empty((n, 0), np.int64) if extra_weights is None else extra_weights
    weights = np.hstack((np.reshape(model.weights, (n, 1)), extra)).astype(np.int64)
    return _level(of_nets(model, np.flatnonzero(np.diff(model.indptr) > 1)), weights)


def contract(level: _Level, labels: np.ndarray, clusters: int) -> _Level:
    """The hypergraph of the clusters: nets of one pin vanish, equal nets of one owner merge.

    Nets are taken for equal by a digest of 64 bits, their size, their owner and their kind.
    """
    nets = len(level.owners)
    indptr = np.zeros(nets + 1, np.int64)
    pins = np.empty(len(level.pins), np.int32)
    digest = np.empty(nets, np.uint64)
    _squeeze(level.indptr, level.pins, labels, clusters, indptr, pins, digest)
    sizes, owners = np.diff(indptr), labels[level.owners]

    kept = np.flatnonzero(sizes > 1)
    kept = kept[np.lexsort((level.folds[kept], owners[kept], digest[kept]))]
    first = first_of_equals(*(key[kept] for key in (digest, owners, sizes, level.folds)))
    costs = np.zeros(nets, np.int64)
    leaders = kept[first]
    np.add.at(costs, leaders[np.cumsum(first) - 1], level.costs[kept])

    weights = np.zeros((clusters, level.weights.shape[1]), np.int64)
    np.add.at(weights, labels, level.weights)
    every = HypergraphModel(weights, indptr, pins, costs, owners, level.folds)
    return _level(of_nets(every, np.sort(leaders)), weights)


def new_state(
    level: _Level, parts: np.ndarray, k: int, limits: np.ndarray, **more: Any
) -> core.State:
    """The tables of :class:`State` for a partition of a level; ``more`` as of ``counters``."""
    sizes = np.diff(level.indptr)
    facts = np.zeros(len(sizes), core.NET)
    facts["cost"], facts["owner"], facts["fold"] = level.costs, level.owners, level.folds
    facts["table"] = sizes * TABLE_SHARE >= k
    where = np.concatenate(([0], np.cumsum(cells(sizes, k))))
    facts["where"] = where[:-1]
    hypergraph = level.indptr, level.pins, level.vertex_ptr, level.nets, facts
    of_parts = parts.astype(np.int32), np.zeros(where[-1], np.int32)
    counts = core.counters(k, level.weights, **more)
    state = core.State(*hypergraph, *of_parts, limits=limits, **counts)
    core.fill(state)
    return state


def _level(model: HypergraphModel, weights: np.ndarray) -> _Level:
    """A level with the nets of each vertex, too."""
    indptr, pins = model.indptr.astype(np.int64, copy=False), np.asarray(model.pins, np.int32)
    shape = (model.nets, len(weights))
    incidence = sp.csr_array((np.ones(len(pins), np.int8), pins, indptr), shape=shape).tocsc()
    vertex_ptr = incidence.indptr.astype(np.int64)
    nets = incidence.indices.astype(np.int32, copy=False)
    _, owners, folds = model.facts_of(np.arange(model.nets))
    folds = np.zeros(model.nets, bool) if folds is None else folds.astype(bool)
    facts = model.net_costs().astype(np.int64), owners.astype(np.int32), folds
    return _Level(weights, indptr, pins, vertex_ptr, nets, *facts)


@core.compiled
def cluster(state, labels, heaviest, largest, random):
    """Join each vertex to the cluster, in its own part, that its small nets tie it to most.

    ``labels``, (n,) int32, receives the cluster of each vertex, numbered without gaps. A cluster
    weighs at most ``heaviest``, (m,) int64; nets of more than ``largest`` pins are not looked at.
    Returns the number of clusters.
    """
    n = len(state.parts)
    weight = state.weights.copy()
    alone = np.ones(n, np.bool_)
    score = np.zeros(n)
    met = np.empty(n, np.int32)
    order = np.arange(n, dtype=np.int32)
    for v in range(n):
        labels[v] = v
    for position in range(n):
        v = core.take(order, position, random)
        if not alone[v]:
            continue
        nmet = 0
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            net = state.nets[i]
            first, last = state.net_ptr[net], state.net_ptr[net + 1]
            if last - first > largest or last - first < 2:
                continue
            tie = state.facts[net].cost / (last - first - 1.0)
            for j in range(first, last):
                u = state.pins[j]
                if u != v and state.parts[u] == state.parts[v]:
                    c = labels[u]
                    if score[c] == 0.0:
                        met[nmet] = c
                        nmet += 1
                    score[c] += tie
        best, rating = -1, 0.0
        for i in range(nmet):
            c = met[i]
            fits = True
            for m in range(len(state.limits)):
                if weight[c, m] + weight[v, m] > heaviest[m]:
                    fits = False
            if fits and score[c] > rating:
                best, rating = c, score[c]
            score[c] = 0.0
        if best >= 0:
            labels[v] = best
            alone[v] = alone[best] = False
            for m in range(len(state.limits)):
                weight[best, m] += weight[v, m]
    # The label of a cluster is its first member; number them.
    number = np.full(n, -1, np.int32)
    clusters = 0
    for v in range(n):
        if number[labels[v]] < 0:
            number[labels[v]] = clusters
            clusters += 1
        labels[v] = number[labels[v]]
    return clusters


@core.compiled
def _squeeze(net_ptr, pins, labels, clusters, new_ptr, new_pins, digest):
    """The nets with clusters for vertices, each once, and digests that no order of them changes."""
    mark = np.full(clusters, -1, np.int32)
    end = 0
    for net in range(len(net_ptr) - 1):
        value = np.uint64(0)
        for i in range(net_ptr[net], net_ptr[net + 1]):
            c = labels[pins[i]]
            if mark[c] != net:
                mark[c] = net
                new_pins[end] = c
                end += 1
                mixed = (np.uint64(c) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                value += mixed ^ (mixed >> np.uint64(27))
        new_ptr[net + 1] = end
        digest[net] = value


# While annealing: how much worse heating may make the partition, the highest temperature in costs
# of a cut arc, and Energy.evenness over the mean expected volume of a part.
_BATCH_TOLERANCE, _BATCH_HOTTEST, _BATCH_EVENNESS = 0.1, 10.0, 20.0


def refine_for_batches(
    model: HypergraphModel, parts: np.ndarray, k: int, share: float, *, effort: int = 1,
    extra_weights: np.ndarray | None = None, **options: Any,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """Move rows between the parts so that batches communicate less, within the balance.

    Where each vertex is in a batch with probability q whoever else is (the sampler ``vertex``), a
    batch with j sends j's row to a part that holds c of its readers with probability 1 − (1 − q)^c.
    So the expected volume is q · Σ_j Σ_p (1 − (1 − q)^c_jp) over the parts p that j is not in:
    between the edge cut (q → 0) and the volume of a full batch (q = 1), with no sampling error.
    Demirci et al. 2022, section 4.3.3, estimate it by sampled hypergraphs.

    ``model`` is the column-net hypergraph of full batches, ``share`` the probability q, 0 < q ≤ 1,
    that a vertex is in a batch. There are ``effort`` times as many sweeps, and heating may go so
    many times as far. All else is as for :func:`refine`; the rows that a batch exchanges in the
    mean are returned too.
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
class _BatchSearch(_Search):
    """Annealing of single vertices at what a move costs batches."""

    cost: np.ndarray
    longer: int
    hottest = _BATCH_HOTTEST

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tolerance = self.longer * _BATCH_TOLERANCE

    def volume(self, state: core.State) -> float:
        """The expected volume in units of what one cut arc costs."""
        return float(_expected(state, self.cost))

    def _descend(self, level: _Level, state: core.State, depth: int, finer: int = 0) -> core.State:
        # A cluster is several readers for one net and one for another: vertices move alone.
        return self._anneal(level, state, self.longer * sweeps_for(len(level.pins)))

    def _sweep(self, state: core.State, temperature: float) -> None:
        energy = self.energy_at(state, _PRESSURE[temperature == 0])
        if temperature > 0:
            energy = energy._replace(evenness=_BATCH_EVENNESS * self.volume(state) / self.k)
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
