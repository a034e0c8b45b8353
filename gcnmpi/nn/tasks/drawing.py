"""The pairs of a step: positives of a batch, and negatives that hashes draw.

Everything is a function of the seed, the epoch or step, and the number of a positive among all: so
it depends on no number of ranks, and every rank can draw for any pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.mpi.comm import slice_of
from gcnmpi.options.task import LinkOptions, Negatives, negatives_of
from partition.errors import UserError
from partition.graph.hashing import key, mixed
from partition.graph.relations import VertexTypes
from partition.graph.sampling import VertexSampler
from partition.graph.vertex_pairs import PairSet

# Purposes of hashes.
FIRST, SECOND, POOL, SIDE, POSITIVES, NEGATIVES, END = range(7)
_PURPOSE = 0x6C696E6B  # of all of them: no other stream of the seed has it
CANDIDATES_AT_ONCE = 1 << 22  # of some positives, in an evaluation
# Where all vertices are candidates: positives, and scores of some of them with some vertices.
RANKED_AT_ONCE, TILE = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Drawn:
    """Some positives, and K negatives for each.

    Attributes
    ----------
    pairs : (m, 2) int64
    negatives : (m, K, 2) int64
    counts : (m, K) bool
        Which negatives count: not those that are the pair itself, or a vertex with itself.
    keys, negative_keys : (m,) and (m, K) uint64
        Keys of the pairs for dropout.
    relations : (m,) integers, or None
        Of the positives; a negative is of that of its positive. None: pairs have none.
    """

    pairs: np.ndarray
    negatives: np.ndarray
    counts: np.ndarray
    keys: np.ndarray
    negative_keys: np.ndarray
    relations: np.ndarray | None

    @property
    def every(self) -> np.ndarray:
        """Positives, then the negatives of one after the other, (m · (1 + K), 2) int64."""
        return np.concatenate((self.pairs, self.negatives.reshape(-1, 2)))

    @property
    def every_relation(self) -> np.ndarray | None:
        """The relations of :attr:`every`, (m · (1 + K),)."""
        if self.relations is None:
            return None
        return np.append(self.relations, np.repeat(self.relations, self.counts.shape[1]))


@dataclass(frozen=True)
class Drawer:
    """Draws the pairs of steps.

    Attributes
    ----------
    n : int
        Vertices.
    pairs : PairSet
    seed : int
    sampler : VertexSampler
        Which positives are in which batch of an epoch.
    negatives : Negatives
        With K, or the size of the pool.
    types : VertexTypes
        Of the vertices: one that is drawn is of the type of that whose place it takes.
    """

    n: int
    pairs: PairSet
    seed: int
    sampler: VertexSampler
    negatives: Negatives
    types: VertexTypes

    def batches_of(self, epoch: int, numbers: np.ndarray) -> np.ndarray:
        """The batch that each of some positives is in."""
        return self.sampler.batch_of(epoch, numbers)

    @property
    def fixed(self) -> bool:
        """Whether all steps have the same pairs."""
        return self.sampler.batches == 1 and self.negatives.kind == "given"

    def draw(self, epoch: int, batch: int, numbers: np.ndarray) -> Drawn:
        """The pairs of some positives of a batch, by their numbers, (m,) int64."""
        step = (epoch - 1) * self.sampler.batches + batch + 1
        pairs = np.asarray(self.pairs.positives["train"][numbers], np.int64)
        relations = self.pairs.relations.get("train")
        count, kind = self.negatives.count, self.negatives.kind
        of = numbers[:, np.newaxis] * count + np.arange(count)
        if kind == "given":
            given = self.pairs.negatives["train"]
            negatives = np.asarray(given[of.reshape(-1)], np.int64).reshape(*of.shape, 2)
        elif kind == "uniform":
            negatives = self._uniform(epoch, pairs, of)
        elif kind == "corrupt":
            negatives = self._corrupt(epoch, pairs, of)
        else:
            pairs = self._turned(epoch, numbers, pairs)
            pool = self._hashes(POOL, step, np.arange(count))
            negatives = np.empty((*of.shape, 2), np.int64)
            negatives[..., 0], negatives[..., 1] = pairs[:, :1], self._alike(pairs[:, 1:], pool)
        u, v = negatives[..., 0], negatives[..., 1]
        first, second = pairs[:, :1], pairs[:, 1:]
        same = (u == first) & (v == second)
        if not self.pairs.directed:
            same |= (u == second) & (v == first)
        return Drawn(
            pairs, negatives, ~same & (u != v),
            mixed(numbers, key(self.seed, _PURPOSE, POSITIVES)),
            mixed(of, key(self.seed, _PURPOSE, NEGATIVES)),
            None if relations is None else np.asarray(relations[numbers]),
        )  # fmt: skip

    def _uniform(self, epoch: int, pairs: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Two different vertices for each number, (…, 2) int64."""
        first = self._alike(pairs[:, :1], self._hashes(FIRST, epoch, of))
        hashes = self._hashes(SECOND, epoch, of)
        low, count = self._ranges(pairs)
        # Of one type, so many behind the first one, which is left out.
        step = (hashes % np.maximum(count[:, 1:] - np.uint64(1), 1)).astype(np.int64)
        behind = (first - low[:, 1:] + step + 1) % count[:, 1:].astype(np.int64) + low[:, 1:]
        same = low[:, :1] == low[:, 1:]
        return np.stack((first, np.where(same, behind, self._alike(pairs[:, 1:], hashes))), axis=-1)

    def _corrupt(self, epoch: int, pairs: np.ndarray, of: np.ndarray) -> np.ndarray:
        """For each number its positive with a vertex in place of one end, (…, 2) int64."""
        end = (self._hashes(END, epoch, of) % np.uint64(2)).astype(np.int64)
        found = np.repeat(pairs[:, np.newaxis], of.shape[1], axis=1)
        replaced = np.take_along_axis(found, end[..., np.newaxis], axis=2)[..., 0]
        vertex = self._alike(replaced, self._hashes(FIRST, epoch, of))
        np.put_along_axis(found, end[..., np.newaxis], vertex[..., np.newaxis], axis=2)
        return found

    def _turned(self, epoch: int, numbers: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Pairs without a direction, half of them the other way round."""
        if self.pairs.directed:
            return pairs
        turned = self._hashes(SIDE, epoch, numbers) % np.uint64(2) > 0
        return np.where(turned[:, np.newaxis], pairs[:, ::-1], pairs)

    def _alike(self, vertices: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """A vertex of the type of each, which a hash says; int64, of shapes that fit."""
        low, count = self._ranges(vertices)
        return low + (hashes % count).astype(np.int64)

    def _ranges(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first vertex of the type of each, int64, and how many there are, uint64."""
        offsets, kinds = np.array(self.types.offsets), self.types.of(vertices)
        return offsets[kinds], np.diff(offsets)[kinds].astype(np.uint64)

    def _hashes(self, purpose: int, time: int, numbers: np.ndarray) -> np.ndarray:
        return mixed(numbers, key(self.seed, _PURPOSE, purpose, time))


def drawer_of(
    task: LinkOptions, pairs: PairSet, n: int, seed: int, types: VertexTypes | None
) -> Drawer:
    """The drawer of a task; a UserError if the pairs do not have the negatives that it wants."""
    count = len(pairs.positives["train"])
    size = task.batch or -(-count * min(1.0, task.supervise) // 1)
    size = min(count, max(1, int(size)))
    negatives = negatives_of(task)
    if negatives.kind == "given":
        given = len(pairs.negatives.get("train", ()))
        if not given or given % count:
            raise UserError(
                f"task.negatives = given: the pairs {pairs.name!r} have {given:,} negatives to "
                f"train on, for {count:,} positives",
                "give K for each, one positive after the other, or set task.negatives=uniform,1",
            )
        negatives = Negatives("given", given // count)
    elif n < 2:
        raise UserError("task.negatives: a graph of one vertex has no pairs to draw")
    of = VertexTypes(("",), (0, n)) if types is None else types
    return Drawer(n, pairs, seed, VertexSampler(count, size, seed), negatives, of)


def share_of_held_out(
    pairs: PairSet, mask: str, rank: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A rank's share of the positives of "val" or "test", and of the negatives in common.

    (m, 2) int64 pairs, which of them are positives, and their relations, where pairs have some: −1
    of negatives that have none.
    """
    none, negatives = np.zeros((0, 2), np.int64), f"{mask}_negatives"
    both = pairs.positives[mask], pairs.negatives.get(mask, none)
    mine = [np.asarray(every[slice_of(len(every), rank, size)], np.int64) for every in both]
    found, positive = np.concatenate(mine), np.repeat([True, False], [len(of) for of in mine])
    if not pairs.relations:
        return found, positive, None
    unknown = np.full(len(both[1]), -1, np.int32)
    kinds = pairs.relations[mask], pairs.relations.get(negatives, unknown)
    relations = np.concatenate([every[slice_of(len(every), rank, size)] for every in kinds])
    return found, positive, relations
