"""Refinement on all ranks: fewer rows sent, in total and by the busiest part, within the balance.

Simulated annealing as :mod:`partition.refinement.search` does it, but with moves made together. A
sweep offers every vertex of the boundary a move, a class of the vertices at a time; classes are
drawn by hashes of global ids. In a turn each rank computes what its vertices of the class would
gain, as the partition is; one sum over the ranks of k histograms of the weights that want to enter
each part says how many may: those that gain most, and of equals those that hashes say. Then ranks
tell each other which of their vertices and nets have changed. Nothing depends on who owns what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.mpi.comm import reduce_in_place
from gcnmpi.partitioning import loops
from gcnmpi.partitioning.levels import Level
from partition.graph.hashing import key, mixed
from partition.refinement.objective import Objective

TURNS = 8  # classes of the vertices in a sweep
GAINS, DRAWS = 8, 8  # classes of moves in a histogram: by what they gain, and by hash
PASSES = 4  # in which moves are admitted
COLDEST, HOTTEST = 0.08, 4.0  # temperatures, in net costs
TOLERANCE = 0.02  # how much worse heating may make the partition, per unit of weight
FLAT = 3  # sweeps at temperature 0 that end a level
EVENNESS = 10.0  # the price of load over the mean volume that a part sends, while annealing
COSTS, SLOTS = 32, 64  # classes of forced moves: by what a unit of weight costs, and by hash
EXPONENT = 8  # of the norm that stands for the maximum


@dataclass(frozen=True)
class Wanted:
    """The demands on a partition into k parts: what is to be small, the most a part may weigh."""

    k: int
    objective: Objective
    limit: int
    seed: int
    imbalance: float


class Partitioned:
    """A level and its parts on all ranks: what every rank knows of them, and moves.

    ``parts`` are those of the own vertices and ghosts; ``send``, ``loads`` and ``counts``, (k,)
    int64, the rows that each part sends, its weight and its vertices.
    """

    def __init__(
        self, level: Level, wanted: Wanted, own: np.ndarray, slack: int, seed: int
    ) -> None:
        k = wanted.k
        self.level, self.wanted, self._seed = level, wanted, seed
        self.limit = wanted.limit + slack
        self.parts = np.zeros(level.vertices.local, np.int32)
        self._keys = mixed(level.numbers, key(seed))
        self._facts = np.zeros((level.nets.local, 1 + 2 * (-(-k // 64))), np.uint64)
        self._changed = np.zeros(level.nets.count, bool)
        self.send, self.loads, self.counts = np.zeros((3, k), np.int64)
        self._turn = 0
        self.set(own)

    @property
    def own(self) -> np.ndarray:
        """The parts of the own vertices."""
        return self.parts[: self.level.vertices.count]

    def set(self, own: np.ndarray) -> None:
        """Begin with other parts."""
        self.own[:] = own
        self._follow(np.ones(len(own), bool))

    def _follow(self, moved: np.ndarray) -> None:
        """Let ghosts, nets and sums follow the own vertices that have moved."""
        level, k = self.level, self.wanted.k
        level.vertices.tell(self.parts, moved)
        sums = np.zeros((3, k), np.int64)
        loops.look(
            level.net_ptr, level.pins, level.owners, level.costs, self.parts, self._facts,
            self._changed, sums[0],
        )  # fmt: skip
        level.nets.tell(self._facts, self._changed)
        np.add.at(sums[1], self.own, level.weights)
        sums[2] = np.bincount(self.own, minlength=k)
        reduce_in_place(level.comm, sums)
        self.send, self.loads, self.counts = sums

    def value(self, smooth: bool = False) -> float:
        """The objective: see :class:`partition.refinement.objective.Objective`.

        It is that of rank 0: all decide alike, even on processors that round in other ways.
        """
        found = value_of(self.wanted.objective, self.send, smooth)
        return float(self.level.comm.bcast(found))

    @property
    def figures(self) -> str:
        """Rows sent by all parts, and by the busiest."""
        return f"{self.send.sum():,} and {self.send.max():,}"

    @property
    def feasible(self) -> bool:
        """Whether no part is too heavy."""
        return bool(self.loads.max() <= self.limit)

    def sweep(self, temperature: float) -> int:
        """Offer each vertex a move; how many are made."""
        made = 0
        classes = mixed(self.level.numbers, key(self._seed, self._turn, 1))
        classes %= np.uint64(TURNS)
        for turn in range(TURNS):
            made += self._move(np.flatnonzero(classes == turn).astype(np.int32), temperature)
        return made

    def _move(self, vertices: np.ndarray, temperature: float) -> int:
        level = self.level
        self._turn += 1
        salt = key(self._seed, self._turn)
        prices, crowd = self._prices(temperature)
        targets, costs = np.empty(len(vertices), np.int32), np.empty(len(vertices), np.int64)
        forced = np.empty(len(vertices), bool)
        loops.propose(
            vertices, self._keys[vertices], level.vertex_ptr, level.vertex_nets, level.owned_ptr,
            self._facts, self.parts, level.weights, prices, self.loads, np.int64(self.limit), crowd,
            float(temperature * loops.SCALE * self.wanted.objective.sum()), np.uint64(salt),
            targets, costs, forced,
        )  # fmt: skip
        moves = Moves(vertices, targets, costs, level.weights[vertices], forced)
        moves = moves.some(targets >= 0)
        drawn = mixed(self._keys[moves.vertices], key(salt, 1))
        if (self.loads > self.limit).any():
            moves, drawn = self._relieved(moves, drawn)
        moves = moves.some(self._admitted(moves, drawn))
        moved = np.zeros(len(self.own), bool)
        moved[moves.vertices] = True
        self.parts[moves.vertices] = moves.targets
        self._follow(moved)
        return int(np.count_nonzero(moved))

    def _prices(self, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Prices of a row that each part sends, and of a unit of weight more in it."""
        aim, k = self.wanted.objective, self.wanted.k
        rows, largest = max(1.0, float(self.send.sum())), max(1.0, norm(self.send))
        steep = aim.max_send * rows / (k * largest)
        slopes = aim.total + steep * (self.send / largest) ** (EXPONENT - 1)
        even = EVENNESS * aim.sum() * rows / k / max(1, self.limit) ** 2 if temperature else 0.0
        prices = np.rint(loops.SCALE * slopes).astype(np.int64)
        return prices, np.rint(loops.SCALE * even * self.loads).astype(np.int64)

    def _relieved(self, moves: Moves, drawn: np.ndarray) -> tuple[Moves, np.ndarray]:
        """Without forced moves that are not needed: the cheapest ones bring parts to the limit."""
        k, left = self.wanted.k, moves.forced
        steps = _logarithm(moves.costs // np.maximum(1, moves.weights), COSTS)
        rank = steps * SLOTS + (drawn & np.uint64(SLOTS - 1)).astype(np.int64)
        sources = self.parts[moves.vertices]
        leaving = np.zeros((k, COSTS * SLOTS), np.int64)
        np.add.at(leaving, (sources[left], rank[left]), moves.weights[left])
        reduce_in_place(self.level.comm, leaving)
        before = np.cumsum(leaving, axis=1) - leaving
        over = self.loads - self.limit
        last = (before < over[:, np.newaxis]).sum(axis=1)
        kept = ~left | (rank < last[sources])
        return moves.some(kept), drawn[kept]

    def _admitted(self, moves: Moves, drawn: np.ndarray) -> np.ndarray:
        """Which moves are made: as many as there is room for, and no part is emptied.

        Room that some moves make is given to others, a few times.
        """
        k, weights = self.wanted.k, moves.weights
        gains = GAINS - 1 - _logarithm(-moves.costs * 4 // loops.SCALE, GAINS)
        rank = gains * DRAWS + (drawn >> np.uint64(61)).astype(np.int64)
        sources = self.parts[moves.vertices]
        leaving = np.bincount(sources, minlength=k)
        made, room = np.zeros(len(rank), bool), self.limit - self.loads
        change = np.zeros(k, np.int64)
        for _ in range(PASSES):
            sums = np.zeros((k, GAINS * DRAWS + 2), np.int64)
            np.add.at(sums, (moves.targets[~made], rank[~made]), weights[~made])
            sums[:, -2], sums[:, -1] = change, leaving
            reduce_in_place(self.level.comm, sums)
            if not sums[:, :-2].any():
                break
            room = room + sums[:, -2]
            # Classes that may enter; of parts that all want to leave, nobody does.
            last = (np.cumsum(sums[:, :-2], axis=1) <= room[:, np.newaxis]).sum(axis=1)
            enters = ~made & (rank < last[moves.targets]) & (sums[:, -1] < self.counts)[sources]
            change = np.zeros(k, np.int64)
            np.add.at(change, sources[enters], weights[enters])
            np.subtract.at(change, moves.targets[enters], weights[enters])
            made |= enters
        return made


@dataclass(frozen=True)
class Moves:
    """Moves of own vertices: targets, what they cost and weigh, and which are forced."""

    vertices: np.ndarray
    targets: np.ndarray
    costs: np.ndarray
    weights: np.ndarray
    forced: np.ndarray

    def some(self, which: np.ndarray) -> Moves:
        """The moves that are marked."""
        return Moves(*(each[which] for each in vars(self).values()))


def _logarithm(numbers: np.ndarray, classes: int) -> np.ndarray:
    """Classes 0 … classes − 1 of integers by the bits they take, the last one for all larger."""
    return np.clip(np.frexp(np.maximum(numbers, 0).astype(np.float64))[1], 0, classes - 1)


def value_of(objective: Objective, send: np.ndarray, smooth: bool = False) -> float:
    """The objective of parts that send so many rows each; if smooth, with a norm for the most."""
    largest = norm(send) if smooth else float(send.max())
    return float(objective.total * np.log1p(send.sum()) + objective.max_send * np.log1p(largest))


def norm(volumes: np.ndarray) -> float:
    """The generalised mean with a large exponent: near the maximum, but smooth."""
    largest = float(volumes.max())
    if not largest:
        return 0.0
    return largest * float(np.mean((volumes / largest) ** EXPONENT)) ** (1 / EXPONENT)


def anneal(state: Partitioned, sweeps: int) -> np.ndarray:
    """Heat, cool, and keep the best: the own parts of the best partition that was met."""
    aim = state.wanted.objective
    best = (not state.feasible, state.value()), state.own.copy()

    def step(temperature: float) -> int:
        nonlocal best
        made = state.sweep(temperature)
        now = not state.feasible, state.value()
        if now < best[0]:
            best = now, state.own.copy()
        return made

    ceiling = state.value(smooth=True) + TOLERANCE * aim.sum()
    temperature, factor, heated = COLDEST, (HOTTEST / COLDEST) ** (4 / sweeps), 0
    while temperature < HOTTEST and heated < sweeps / 4:
        step(temperature)
        heated += 1
        if state.value(smooth=True) > ceiling:
            break
        temperature *= factor
    for number in range(1, sweeps - heated):
        step(temperature * (COLDEST / temperature) ** (number / (sweeps - heated)))
    for _ in range(FLAT):
        step(0.0)
    if best[0] < (not state.feasible, state.value()):
        state.set(best[1])
    return state.own
