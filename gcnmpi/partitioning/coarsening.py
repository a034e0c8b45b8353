"""Coarser hypergraphs: clusters by size-constrained label propagation, and their contraction.

Vertices join the cluster to whose vertices their nets tie them most (Raghavan, Albert and Kumara
2007; with a largest weight: Meyerhenke, Sanders and Schulz 2014), a class of the vertices at a
time. A cluster has the number of one of its first vertices, and the rank that owns that vertex
admits new members, in an order of what ties them and of hashes. Nets keep their meaning: a net of
clusters is one row that travels to each part that it touches, so the rows sent are exact on all
levels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.mpi.comm import redistribute
from gcnmpi.partitioning import loops
from gcnmpi.partitioning.levels import Level, Spread, assembled, ranges, total
from partition.graph.graph import distinct
from partition.graph.hashing import key, mixed
from partition.graph.sampling import pointers, segments

ROUNDS, TURNS = 3, 4  # of label propagation, and classes of the vertices in each
NO_CLUSTER = -1
SAMPLES = 7  # the key of the hashes that draw nets


@dataclass(frozen=True)
class Coarser:
    """A coarser level, and the number there of each own vertex of the finer one, int64."""

    level: Level
    up: np.ndarray


def coarser(level: Level, parts: np.ndarray, heaviest: int, most: int, seed: int) -> Coarser:
    """A level whose vertices are clusters of this one's, each of at most that weight.

    ``parts`` are those of own vertices: the vertices of a cluster are in one part. It has at most
    so many pins, about: else a sample of the nets.
    """
    clusters = _Clusters(level, parts, heaviest, key(seed, 2))
    for number in range(ROUNDS):
        clusters.propagate(number)
    clusters.group()
    return _contracted(level, most, clusters.labels[: level.vertices.count].copy())


class _Clusters:
    """The clusters of a level: ``labels`` of own vertices and ghosts, weights where they are kept.

    A cluster is called by the number of a vertex, whose rank keeps its weight.
    """

    def __init__(self, level: Level, parts: np.ndarray, heaviest: int, seed: int) -> None:
        self.level, self.heaviest, self.seed = level, heaviest, seed
        count = level.vertices.count
        self.labels = np.zeros(level.vertices.local, np.int64)
        self.labels[:count] = level.numbers
        self._homes = np.zeros(level.nets.local, np.int64)
        self._parts = np.zeros(level.vertices.local, np.int32)
        self._parts[:count] = parts
        level.vertices.tell(self._parts)
        self._home_parts = np.zeros(level.nets.local, np.int32)
        self._home_parts[: level.nets.count] = parts[level.owners]
        level.nets.tell(self._home_parts)
        self._weight = np.array(level.weights, np.int64)
        self._refused = np.full(count, NO_CLUSTER, np.int64)
        pins = np.diff(level.net_ptr)
        ties = np.diff(level.vertex_ptr)
        ties = ties + np.bincount(level.owners, weights=pins, minlength=count).astype(np.int64)
        slots = 1 << (2 * int(ties.max(initial=1)) + 1).bit_length()
        self._table = np.full((slots, 2), NO_CLUSTER, np.int64)
        self._follow(np.ones(count, bool))

    def _follow(self, changed: np.ndarray) -> None:
        level = self.level
        level.vertices.tell(self.labels, changed)
        homes = self.labels[level.owners]
        new = homes != self._homes[: level.nets.count]
        self._homes[: level.nets.count] = homes
        level.nets.tell(self._homes, new)

    def _ratings(self, vertices: np.ndarray, salt: int) -> tuple[np.ndarray, np.ndarray]:
        level = self.level
        wanted, scores = np.empty((2, len(vertices)), np.int64)
        loops.rate(
            vertices, level.numbers[vertices], level.vertex_ptr, level.vertex_nets, level.owned_ptr,
            level.net_ptr, level.pins, level.costs, level.sizes, self.labels,
            self._homes, self._parts, self._home_parts, self._refused, np.uint64(salt), wanted,
            scores, self._table,
        )  # fmt: skip
        return wanted, scores

    def propagate(self, number: int) -> None:
        """Let every vertex join the cluster that it is tied to most, if that has room."""
        level = self.level
        classes = mixed(level.numbers, key(self.seed, number)) % np.uint64(TURNS)
        for turn in range(TURNS):
            vertices = np.flatnonzero(classes == turn)
            salt = key(self.seed, number, turn)
            wanted, scores = self._ratings(vertices, salt)
            some = np.flatnonzero(wanted != self.labels[vertices])
            vertices, wanted, scores = vertices[some], wanted[some], scores[some]
            rows = np.stack(
                [wanted, scores, level.numbers[vertices], level.weights[vertices]], axis=1
            )
            admit = functools.partial(self._admitted, salt=salt)
            joined = level.vertices.answered(wanted, rows, admit)
            self._refused[vertices] = np.where(joined, NO_CLUSTER, wanted)
            vertices, wanted = vertices[joined], wanted[joined]
            self._leave(self.labels[vertices], level.weights[vertices])
            self.labels[vertices] = wanted
            changed = np.zeros(level.vertices.count, bool)
            changed[vertices] = True
            self._follow(changed)

    def _admitted(self, rows: np.ndarray, salt: int) -> np.ndarray:
        """Whether own clusters admit vertices: they do until they are full.

        Rows are the cluster, how much a vertex is tied to it, its number and its weight.
        """
        cluster, score, number, weight = rows.T
        cluster = cluster - self.level.vertices.first
        by = np.lexsort((mixed(number, salt), -score, cluster))
        cluster, weight = cluster[by], weight[by]
        first = np.flatnonzero(np.diff(cluster, prepend=-1))
        entered = np.cumsum(weight)
        before = np.repeat((entered - weight)[first], np.diff(np.append(first, len(cluster))))
        enters = self._weight[cluster] + entered - before <= self.heaviest
        np.add.at(self._weight, cluster[enters], weight[enters])
        answer = np.empty(len(by), bool)
        answer[by] = enters
        return answer

    def _leave(self, clusters: np.ndarray, weights: np.ndarray) -> None:
        space = self.level.vertices
        (cluster, weight), _ = redistribute(
            space.comm, space.rank_of(clusters), [clusters, weights], space.max_bytes
        )
        np.add.at(self._weight, cluster - space.first, -weight)

    def group(self) -> None:
        """Join vertices that are still alone and tied to the same cluster, which had no room.

        Of those that are tied to nothing, some with numbers near each other.
        """
        level, space = self.level, self.level.vertices
        salt = key(self.seed, ROUNDS)
        mine = self.labels[: space.count]
        alone = np.flatnonzero((mine == level.numbers) & (self._weight == level.weights))
        self._refused[alone] = NO_CLUSTER
        wanted, scores = self._ratings(alone, salt)
        block = max(1, min(1 << 20, int(2 * self.heaviest)))
        lonely = scores == 0
        wanted[lonely] = level.numbers[alone][lonely] // block * block
        kind = 2 * self._parts[alone].astype(np.int64) + lonely
        rows = np.stack([wanted, kind, level.numbers[alone], level.weights[alone]], axis=1)
        lead = functools.partial(_leaders, heaviest=self.heaviest)
        self.labels[alone] = space.answered(wanted, rows, lead)
        changed = np.zeros(space.count, bool)
        changed[alone] = True
        self._follow(changed)


def _leaders(rows: np.ndarray, heaviest: int) -> np.ndarray:
    """The vertices that are to lead others which are tied to the same cluster, and of one kind.

    Rows are the cluster, the kind, the vertex and its weight. Groups are cut where their weights
    add up to multiples of half of the heaviest.
    """
    if not len(rows):
        return rows[:, 2]
    by = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    cluster, kind, number, weight = rows[by].T
    new = np.append(True, (np.diff(cluster) != 0) | (np.diff(kind) != 0))
    entered = np.cumsum(weight) - weight
    entered -= np.repeat(entered[new], np.diff(np.append(np.flatnonzero(new), len(by))))
    new |= np.append(True, np.diff(entered // max(1, heaviest // 2)) != 0)
    leader = np.empty(len(by), np.int64)
    leader[by] = np.repeat(number[new], np.diff(np.append(np.flatnonzero(new), len(by))))
    return leader


def _contracted(level: Level, most: int, labels: np.ndarray) -> Coarser:
    """The hypergraph of the clusters: nets of one pin vanish, equal nets of one owner merge.

    Nets are taken for equal by a digest of 64 bits, their size and their owner.
    """
    comm, space = level.comm, level.vertices
    numbers, bounds = _numbers_of(space, labels)
    up = np.zeros(space.local, np.int64)
    up[: space.count] = numbers
    space.tell(up)
    sizes, digests = np.empty(level.nets.count, np.int64), np.empty(level.nets.count, np.uint64)
    loops.digest(level.net_ptr, level.pins, up, sizes, digests)
    kept = np.flatnonzero(sizes > 1)
    (pins_there,) = total(comm, int(sizes[kept].sum()))
    every = max(1, -(-pins_there // most))
    if every > 1:
        kept = kept[_drawn(up[level.owners[kept]], digests[kept], every)]
    net_ptr = pointers(sizes[kept])
    pins = np.empty(int(net_ptr[-1]), np.int64)
    loops.squeeze(level.net_ptr, level.pins, up, kept, pins)
    costs = every * level.costs[kept]
    some = _Nets(net_ptr, pins, up[level.owners[kept]], digests[kept], costs)
    some = some.sent(space, bounds).merged()
    first, count = int(bounds[comm.rank]), int(bounds[comm.rank + 1] - bounds[comm.rank])
    to = (np.searchsorted(bounds, numbers, side="right") - 1).astype(np.int32)
    (number, weight), _ = redistribute(comm, to, [numbers, level.weights], space.max_bytes)
    weights = np.zeros(count, np.int64)
    np.add.at(weights, number - first, weight)
    owners = (some.owners - first).astype(np.int32)
    made = assembled(
        comm, bounds, some.net_ptr, some.pins, owners, some.costs, weights, space.max_bytes
    )
    return Coarser(replace(made, sampled=level.sampled or every > 1), numbers)


@dataclass(frozen=True)
class _Nets:
    """Nets of clusters, on their way to the ranks of their owners."""

    net_ptr: np.ndarray
    pins: np.ndarray
    owners: np.ndarray
    digests: np.ndarray
    costs: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """How many pins each has."""
        return np.diff(self.net_ptr)

    def some(self, chosen: np.ndarray) -> _Nets:
        """The nets of some numbers."""
        place, counts = segments(self.net_ptr, chosen)
        facts = (each[chosen] for each in (self.owners, self.digests, self.costs))
        return _Nets(pointers(counts), self.pins[place], *facts)

    def merged(self) -> _Nets:
        """Without nets of one pin, and equal ones once, with the sum of their costs; in order."""
        sizes = self.sizes
        kept = np.flatnonzero(sizes > 1)
        order = kept[np.lexsort((self.digests[kept], self.owners[kept]))]
        new = np.zeros(len(order), bool)
        for facts in (self.owners, self.digests, sizes):
            new[1:] |= facts[order[1:]] != facts[order[:-1]]
        new[:1] = True
        chosen, costs = order[new], np.zeros(np.count_nonzero(new), np.int64)
        np.add.at(costs, np.cumsum(new) - 1, self.costs[order])
        return replace(self.some(chosen), costs=costs)

    def sent(self, space: Spread, bounds: np.ndarray) -> _Nets:
        """The nets that come to this rank: it has the vertices of a range, by their new numbers."""
        some = self.merged()
        to = (np.searchsorted(bounds, some.owners, side="right") - 1).astype(np.int32)
        sizes = some.sizes
        (pins,), _ = redistribute(space.comm, np.repeat(to, sizes), [some.pins], space.max_bytes)
        facts = [sizes, some.owners, some.digests, some.costs]
        (sizes, *facts), _ = redistribute(space.comm, to, facts, space.max_bytes)
        return _Nets(pointers(sizes), pins, *facts)


def _drawn(owners: np.ndarray, digests: np.ndarray, every: int) -> np.ndarray:
    """Which nets are in a sample: one of so many, drawn by hashes of owners and pins.

    With so many times its cost each, the rows that a partition sends are estimated without bias.
    """
    return mixed(digests + owners.astype(np.uint64), key(SAMPLES)) % np.uint64(every) == 0


def _numbers_of(space: Spread, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the clusters of own vertices, in the order of their names; ranges of them."""
    names = distinct(labels)
    (named,), _ = redistribute(space.comm, space.rank_of(names), [names], space.max_bytes)
    used = np.zeros(space.count, bool)
    used[named - space.first] = True
    bounds = ranges(space.comm, int(np.count_nonzero(used)))
    numbers = bounds[space.comm.rank] + np.cumsum(used) - 1
    return space.asked(names, numbers)[np.searchsorted(names, labels)], bounds
