"""Mini-batches of seeds and sampled neighbours, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from partition.graph.hashing import key, mixed
from partition.graph.sampling import Pattern, Rule, VertexSampler, pointers, run_lengths, segments


@dataclass(frozen=True)
class NeighborSampler:
    """Seed vertices, and a bounded number of neighbours of each, layer by layer.

    The seeds are a batch of :class:`VertexSampler`. Layer by layer, starting with the last of
    the network, each row of the frontier keeps its diagonal entry and at most ``fanouts[h]`` of its
    other entries of M, those with the smallest hash of (seed, epoch, batch, h, row, column); what
    it reads joins the frontier of the layer before (Hamilton et al. 2017).

    Attributes
    ----------
    n, size, seed
        As for :class:`VertexSampler`; ``size`` counts the seeds.
    fanouts : tuple of int
        Neighbours per row for each layer, that of the seeds first; −1 keeps all.
    """

    n: int
    size: int
    seed: int
    fanouts: tuple[int, ...] = (10, 10)
    side: ClassVar[str] = "rows"
    layered: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    @property
    def batches(self) -> int:
        """Batches in an epoch; the last may be smaller than the others."""
        return self._seeds.batches

    def count(self, batch: int) -> int:
        """How many seeds a batch has."""
        return self._seeds.count(batch)

    def contains(self, epoch: int, batch: int, vertices: np.ndarray) -> np.ndarray:
        """Whether each of ``vertices`` is a seed of a batch: bool."""
        return self._seeds.contains(epoch, batch, vertices)

    def batch_of(self, epoch: int, vertices: np.ndarray) -> np.ndarray:
        """The batch of an epoch that has each of ``vertices`` as a seed, int64."""
        return self._seeds.batch_of(epoch, vertices)

    def members(self, epoch: int, batch: int) -> np.ndarray:
        """The seeds of a batch, increasing."""
        return self._seeds.members(epoch, batch)

    def kept(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> np.ndarray:
        """Which entries of M a layer keeps: bool.

        Parameters
        ----------
        hop : int
            0 for the layer of the seeds.
        row, column : (m,) integers
            Global row and column of each entry: whole rows, the entries of a row together, in
            any order.
        """
        fanout = self.fanouts[hop]
        if fanout < 0:
            return np.ones(len(row), bool)
        proper = np.flatnonzero(row != column)
        everything = len(row)
        row, column = row[proper], column[proper]
        sizes = run_lengths(row)
        long = np.repeat(sizes > fanout, sizes)
        row, column, sizes = row[long], column[long], sizes[sizes > fanout]
        base = key(self.seed, epoch, batch, hop)
        first = row[np.cumsum(sizes) - sizes]
        code = mixed(np.repeat(mixed(first, base), sizes) ^ column.astype(np.uint64), base)
        chosen = np.ones(len(proper), bool)
        chosen[long] = _smallest(code, row, column, sizes, fanout)
        kept = np.ones(everything, bool)
        kept[proper] = chosen
        return kept

    def entries(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of M a layer keeps, and by what their values are multiplied.

        Where f of d entries of a row are kept, by d / f: the expectation is that of all.

        Parameters
        ----------
        hop, row, column
            As for :meth:`kept`.

        Returns
        -------
        kept : (m,) bool
        factor : (kept,) float64
        """
        kept = self.kept(epoch, batch, hop, row, column)
        return kept, self._factors(hop, row, column)[kept]

    def rule(self, epoch: int, batch: int, hop: int) -> Rule | None:
        """What :meth:`kept` does."""
        return Rule(self.fanouts[hop], key(self.seed, epoch, batch, hop), self.shared)

    def _factors(self, hop: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """1 / the probability that an entry is kept."""
        proper = np.flatnonzero(row != column)
        factors = np.ones(len(row))
        fanout = self.fanouts[hop]
        if fanout >= 0:
            sizes = run_lengths(row[proper])
            factors[proper] = np.repeat(np.maximum(sizes / fanout, 1.0), sizes)
        return factors

    def patterns(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        epoch: int,
        batch: int,
        seeds: np.ndarray | None = None,
    ) -> list[Pattern]:
        """The exchanges of a mini-batch, one per layer, that of the seeds first.

        Parameters
        ----------
        indptr, indices
            M by rows: :func:`sides` of the graph.
        seeds : (n,) integers, optional
            What the sampler numbers, increasing vertices; without it, all vertices.
        """
        frontier = self.members(epoch, batch)
        if seeds is not None:
            frontier = seeds[frontier]
        found = []
        for hop in range(len(self.fanouts)):
            place, counts = segments(indptr, frontier)
            row, column = np.repeat(frontier, counts), indices[place].astype(np.int64)
            kept = self.kept(epoch, batch, hop, row, column)
            row, column = row[kept], column[kept]
            reached = np.union1d(frontier, column)
            order = np.argsort(column, kind="stable")
            column = np.searchsorted(reached, column[order])
            sizes = np.bincount(column, minlength=len(reached))
            found.append(Pattern(reached, pointers(sizes), row[order]))
            frontier = reached
        return found

    @property
    def _seeds(self) -> VertexSampler:
        return VertexSampler(self.n, self.size, self.seed)


@dataclass(frozen=True)
class LaborSampler(NeighborSampler):
    """Seed vertices, and neighbours that the rows of a layer share wherever they can.

    LABOR-0 (Balın and Çatalyürek 2023, section 3.2): a layer draws one number r in [0, 1) for each
    column, a hash of (seed, epoch, batch, h, column), and a row with d entries beside its diagonal
    keeps those with r < fanout / d. So each entry is kept with the probability that it has with
    :class:`NeighborSampler`, independently of others in its row, and a column that one row reads is
    one that others are likely to read: fewer vertices are reached.
    """

    shared: ClassVar[bool] = True

    def kept(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> np.ndarray:
        """Which entries of M a layer keeps: bool. See :meth:`NeighborSampler.kept`."""
        fanout = self.fanouts[hop]
        kept = np.ones(len(row), bool)
        if fanout < 0:
            return kept
        proper = np.flatnonzero(row != column)
        sizes = run_lengths(row[proper])
        # As integers: the comparison has one outcome everywhere.
        limits = np.full(int(sizes.max(initial=0)) + 1, 2**64 - 1, np.uint64)
        long = np.unique(sizes[sizes > fanout])
        limits[long] = [(fanout << 64) // size for size in long.tolist()]
        base = key(self.seed, epoch, batch, hop)
        code = mixed(column[proper], base)
        kept[proper] = (code < np.repeat(limits[sizes], sizes)) | np.repeat(sizes <= fanout, sizes)
        return kept


def _smallest(
    code: np.ndarray, row: np.ndarray, column: np.ndarray, sizes: np.ndarray, count: int
) -> np.ndarray:
    """Which entries have one of the ``count`` smallest codes of their row (of more entries)."""
    if not len(code):
        return np.zeros(0, bool)
    # Of a long row sort only what is below a code that some more than ``count`` entries are below;
    # where fewer than ``count`` turn out to be, sort all of the row.
    share = np.minimum((count + 4 * count**0.5 + 4) / sizes, 1.0 - 2**-11)
    few = code < np.repeat((share * 2.0**64).astype(np.uint64), sizes)
    starts = np.cumsum(sizes) - sizes
    scarce = np.add.reduceat(few, starts, dtype=np.int64) < count
    if scarce.any():
        few |= np.repeat(scarce, sizes)

    entry = np.flatnonzero(few)
    entry = entry[np.lexsort((column[entry], code[entry], np.searchsorted(starts, entry, "right")))]
    lengths = run_lengths(row[entry])
    rank = np.arange(len(entry)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    smallest = np.zeros(len(code), bool)
    smallest[entry[rank < count]] = True
    return smallest
