"""The multilevel method: down to few clusters and back, refined on every level; then once more.

The first cycle clusters freely, and a serial tool partitions the quotient on one rank. The others
cluster within the parts, so that whole clusters move between them (Walshaw 2004: iterated
multilevel refinement). A level with few pins is brought to one rank, which does the rest by itself:
the parts are the same, since nothing depends on who owns a vertex.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from gcnmpi.mpi.comm import Comm, by_rank_0, redistribute, split
from gcnmpi.partitioning.annealing import Partitioned, Wanted, anneal
from gcnmpi.partitioning.coarsening import Coarser, coarser
from gcnmpi.partitioning.levels import Level, assembled, on_root
from gcnmpi.partitioning.quotient import first_parts
from partition.graph.hashing import key
from partition.graph.sampling import pointers

COARSEST = 60  # vertices per part
SHRINK = 0.9  # coarsening ends when it shrinks less
SLACK = 0.2  # mean clusters by which a part may be too heavy while clusters move
CYCLES = 2
MOST = 1 << 23  # pins of coarser levels: of more, a sample
ENOUGH = 48  # pins of a sample for each vertex, if it is to say what moves gain
SWEEPS, FEWEST, WORK = (
    20,
    6,
    1_200_000_000,
)  # on a level: most and fewest, and pins that are visited


@dataclass(frozen=True)
class Effort:
    """How much is done.

    Attributes
    ----------
    quotient : int
        Pins of the largest hypergraph that one rank has alone. The coarsest one is partitioned on
        one rank: if it has more, without some of its nets.
    alone : float
        Bytes in which one rank may refine the whole graph, if that takes no more.
    effort : float
        Factor of the sweeps on each level.
    """

    quotient: int = 1 << 19
    alone: float = 2e8
    effort: float = 1.0

    def sweeps_for(self, pins: int) -> int:
        """Sweeps on a level with so many pins."""
        most = max(FEWEST, min(SWEEPS, WORK // max(1, pins)))
        return max(1, round(self.effort * most))


def partitioned(
    level: Level, wanted: Wanted, effort: Effort, tell: Callable[[str], None]
) -> np.ndarray:
    """Parts of the own vertices of a hypergraph, (own vertices,) int32."""
    alone = split(level.comm, level.comm.rank)
    own = None
    for number in range(CYCLES):
        own = _Cycle(wanted, effort, number, alone, tell).run(level, own)
    assert own is not None
    return own


@dataclass(frozen=True)
class _Cycle:
    """One way down and back; ``alone`` is the communicator of this rank only."""

    wanted: Wanted
    effort: Effort
    number: int
    alone: Comm
    tell: Callable[[str], None]

    def run(self, level: Level, own: np.ndarray | None, depth: int = 0) -> np.ndarray:
        """Better parts of the own vertices of a level; or first ones."""
        comm, few = level.comm, level.pin_count <= self.effort.quotient
        if few and comm.size > 1:
            return self._on_one_rank(level, own, depth)
        made = None
        if level.vertices.total > COARSEST * self.wanted.k and not (few and own is None):
            made = self._coarser(level, own, depth)
        if made is not None:
            parts = None if own is None else _lifted(made, own)
            parts = self.run(made.level, parts, depth + 1)
            parts = made.level.vertices.asked(made.up, parts)
        elif own is None:
            parts = first_parts(level, self.wanted, self.effort.quotient)
        else:
            parts = own
        del made
        return self._annealed(level, parts, depth)

    @property
    def _grain(self) -> int:
        """The most that a cluster weighs."""
        return max(1, self.wanted.limit // COARSEST)

    def _coarser(self, level: Level, own: np.ndarray | None, depth: int) -> Coarser | None:
        """The next level, if it is coarser by more than a little."""
        parts = np.zeros(level.vertices.count, np.int32) if own is None else own
        made = coarser(level, parts, self._grain, MOST, key(self.wanted.seed, self.number, depth))
        found = made.level
        if found.vertices.total > SHRINK * level.vertices.total:
            return None
        self.tell(
            f"cycle {self.number + 1}: {found.vertices.total:,} clusters, {found.pin_count:,} pins"
        )
        return made

    def _annealed(self, level: Level, parts: np.ndarray, depth: int) -> np.ndarray:
        if level.sampled and level.pin_count < ENOUGH * level.vertices.total:
            return parts
        mean = self.wanted.limit * self.wanted.k / max(1, level.vertices.total)
        slack = min(self._grain, int(SLACK * mean)) if depth else 0
        seed = key(self.wanted.seed, self.number, depth, 1)
        state = Partitioned(level, self.wanted, parts, slack, seed)
        before = state.figures
        anneal(state, self.effort.sweeps_for(level.pin_count))
        self.tell(
            f"cycle {self.number + 1}, {level.vertices.total:,} vertices: rows sent, and by the "
            f"busiest part: {before} → {state.figures}"
        )
        return state.own.copy()

    def _on_one_rank(self, level: Level, own: np.ndarray | None, depth: int) -> np.ndarray:
        """The same by rank 0, while the others sleep."""
        comm = level.comm
        whole, mine = _on_root(level, self.alone), None if own is None else on_root(comm, own)
        parts = by_rank_0(comm, lambda: self.run(cast(Level, whole), mine, depth))
        first = level.vertices.first
        return parts[first : first + level.vertices.count]


def _lifted(made: Coarser, own: np.ndarray) -> np.ndarray:
    """The parts of clusters: those of any vertex in them."""
    space = made.level.vertices
    (number, part), _ = redistribute(
        space.comm, space.rank_of(made.up), [made.up, own], space.max_bytes
    )
    parts = np.zeros(space.count, np.int32)
    parts[number - space.first] = part
    return parts


def _on_root(level: Level, alone: Comm) -> Level | None:
    """The whole level on rank 0, whose communicator is ``alone``; None elsewhere."""
    comm, count = level.comm, level.nets.count
    numbers = np.concatenate([level.numbers, level.vertices.ghosts])
    of_nets = level.sizes[:count], level.numbers[level.owners], level.costs[:count]
    pieces = (numbers[level.pins], level.weights, *of_nets)
    pins, weights, sizes, owners, costs = (on_root(comm, piece) for piece in pieces)
    if comm.rank:
        return None
    bounds = np.array([0, level.vertices.total])
    ptr, max_bytes = pointers(sizes), level.vertices.max_bytes
    made = assembled(alone, bounds, ptr, pins, owners.astype(np.int32), costs, weights, max_bytes)
    return replace(made, sampled=level.sampled)
