"""Mini-batches: which vertices, and which entries of M, one step of training touches.

Who is in a batch is a pure function of (seed, epoch, batch, global vertex), made of 64-bit integer
hashes only. So every process decides for the vertices that it holds, both ends of an exchange
agree without a message, and the batches are the same for every partition and number of processes.

A sampler is one class here and one line in ``SAMPLERS``. Imported by the trainer, too: NumPy only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from partition.errors import UserError
from partition.graph.graph import Graph, columns
from partition.graph.hashing import key, mixed, permuted
from partition.registry import Registry

SAMPLERS = Registry(
    "sampler",
    {
        "vertex": "partition.graph.sampling:VertexSampler",
        "neighbor": "partition.graph.sampling:NeighborSampler",
        "labor": "partition.graph.sampling:LaborSampler",
    },
)
# Batches for different purposes are unrelated even under one seed (see stream_seed).
TRAINING, MODEL, SIMULATION = 0, 1, 2


@dataclass(frozen=True)
class Pattern:
    """The entries of M that one exchange of a mini-batch serves, by columns.

    Attributes
    ----------
    columns : (m,) int64
        Global columns, increasing: the vertices whose rows of H are read.
    indptr : (m + 1,) int64
    rows : integers
        ``rows[indptr[c]:indptr[c+1]]`` are the global rows with an entry in column
        ``columns[c]``, as A has it: the diagonal only where A stores a loop.
    """

    columns: np.ndarray
    indptr: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class VertexSampler:
    """The subgraph that uniformly drawn vertices induce.

    Each epoch shuffles the vertices by a permutation π of 0..n−1 that can be evaluated, and
    inverted, for a single vertex (a Feistel network on ⌈log₂ n⌉ bits, walked along its cycles
    until it is back below n: Black and Rogaway 2002). Vertex v is in batch ⌊π(v) / size⌋. So
    every vertex is in exactly one batch of an epoch, every batch but the last has exactly
    ``size`` vertices, and the first batches of different epochs are independent uniform draws.

    Attributes
    ----------
    n : int
        Vertices of the graph.
    size : int
        Vertices in a batch, 1 ≤ size ≤ n.
    seed : int
        0 ≤ seed < 2^64.
    """

    n: int
    size: int
    seed: int
    fanouts: tuple[int, ...] = ()
    side: ClassVar[str] = "columns"
    layered: ClassVar[bool] = False

    @property
    def batches(self) -> int:
        """Batches in an epoch; the last may be smaller than the others."""
        return -(-self.n // self.size)

    def count(self, batch: int) -> int:
        """How many vertices a batch has."""
        return min(self.size, self.n - batch * self.size)

    def contains(self, epoch: int, batch: int, vertices: np.ndarray) -> np.ndarray:
        """Whether each of ``vertices`` (any shape, global numbers) is in a batch: bool."""
        return self.batch_of(epoch, vertices) == batch

    def batch_of(self, epoch: int, vertices: np.ndarray) -> np.ndarray:
        """The batch of an epoch that each of ``vertices`` is in, int64."""
        places = permuted(vertices, self.n, key(self.seed, epoch))
        return places // self.size

    def members(self, epoch: int, batch: int) -> np.ndarray:
        """All vertices of a batch, increasing, (size,) int64: O(size), whatever n is."""
        places = np.arange(batch * self.size, min((batch + 1) * self.size, self.n))
        return np.sort(permuted(places, self.n, key(self.seed, epoch), inverse=True))

    def entries(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of M a batch keeps, and by what their values are multiplied.

        Given that i is in a batch of s vertices, j is with probability (s − 1) / (n − 1). Divided
        by that, a row's product with the batch's rows of H has the expectation of its product with
        all of them (the aggregator's normalisation of Zeng et al. 2020, for this sampler).

        Parameters
        ----------
        row, column : (m,) integers
            Global row and column of all entries of rows of the batch.

        Returns
        -------
        kept : (m,) bool
        factor : (kept,) float64
        """
        kept = self.contains(epoch, batch, column)
        factor = (self.n - 1) / max(1, self.count(batch) - 1)
        return kept, np.where(row[kept] == column[kept], 1.0, factor)

    def patterns(
        self, indptr: np.ndarray, rows: np.ndarray, epoch: int, batch: int
    ) -> list[Pattern]:
        """The exchange of every layer of a mini-batch: one pattern, since all layers share it.

        Parameters
        ----------
        indptr, rows
            M by columns: :func:`sides` of the graph.
        """
        chosen = self.members(epoch, batch)
        place, counts = segments(indptr, chosen)
        row = rows[place]
        inside = np.zeros(self.n, bool)
        inside[chosen] = True
        kept = inside[row]
        column = np.repeat(np.arange(len(chosen)), counts)[kept]
        return [Pattern(chosen, pointers(np.bincount(column, minlength=len(chosen))), row[kept])]


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
        sizes = _run_lengths(row)
        long = np.repeat(sizes > fanout, sizes)
        row, column, sizes = row[long], column[long], sizes[sizes > fanout]
        base = key(self.seed, epoch, batch, hop)
        code = mixed(mixed(row, base) ^ column.astype(np.uint64), base)
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

    def _factors(self, hop: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """1 / the probability that an entry is kept."""
        proper = np.flatnonzero(row != column)
        factors = np.ones(len(row))
        fanout = self.fanouts[hop]
        if fanout >= 0:
            sizes = _run_lengths(row[proper])
            factors[proper] = np.repeat(np.maximum(sizes / fanout, 1.0), sizes)
        return factors

    def patterns(
        self, indptr: np.ndarray, indices: np.ndarray, epoch: int, batch: int
    ) -> list[Pattern]:
        """The exchanges of a mini-batch, one per layer, that of the seeds first.

        Parameters
        ----------
        indptr, indices
            M by rows: :func:`sides` of the graph.
        """
        frontier = self.members(epoch, batch)
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


Sampler = VertexSampler | NeighborSampler


@dataclass(frozen=True)
class LaborSampler(NeighborSampler):
    """Seed vertices, and neighbours that the rows of a layer share wherever they can.

    LABOR-0 (Balın and Çatalyürek 2023, section 3.2): a layer draws one number r in [0, 1) for each
    column, a hash of (seed, epoch, batch, h, column), and a row with d entries beside its diagonal
    keeps those with r < fanout / d. So each entry is kept with the probability that it has with
    :class:`NeighborSampler`, independently of others in its row, and a column that one row reads is
    one that others are likely to read: fewer vertices are reached.
    """

    def kept(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> np.ndarray:
        """Which entries of M a layer keeps: bool. See :meth:`NeighborSampler.kept`."""
        fanout = self.fanouts[hop]
        kept = np.ones(len(row), bool)
        if fanout < 0:
            return kept
        proper = np.flatnonzero(row != column)
        sizes = _run_lengths(row[proper])
        # As integers: the comparison has one outcome everywhere.
        limits = np.full(int(sizes.max(initial=0)) + 1, 2**64 - 1, np.uint64)
        long = np.unique(sizes[sizes > fanout])
        limits[long] = [(fanout << 64) // size for size in long.tolist()]
        base = key(self.seed, epoch, batch, hop)
        code = mixed(column[proper], base)
        kept[proper] = (code < np.repeat(limits[sizes], sizes)) | np.repeat(sizes <= fanout, sizes)
        return kept


def make_sampler(
    name: str, n: int, batch: int | str, seed: int, fanouts: str | Sequence[int] = ""
) -> Sampler:
    """The sampler of that name in ``SAMPLERS``, its arguments checked.

    Parameters
    ----------
    batch : int or str
        Vertices (seeds) in a batch, or a share of all, such as "6%".
    fanouts : str or sequence of int
        "10,5": neighbours per row, layer by layer from the seeds on; −1 for all. Empty: the
        sampler's default; an error for a sampler without fan-outs.

    Raises
    ------
    UserError
        If the name is unknown, the batch is not in 1..n, or the fan-outs are malformed.
    """
    kind = SAMPLERS.get(name)
    size = batch_size(batch, n)
    if not 0 <= seed < 2**64:
        raise UserError(f"seed {seed} is outside 0..2^64-1")
    counts = parse_fanouts(fanouts)
    if counts and not kind.fanouts:
        raise UserError(f"the sampler {name!r} has no fan-outs, {fanouts!r} was given")
    return kind(n, size, seed, counts or kind.fanouts)


def sides(graph: Graph, direction: str, side: str) -> tuple[np.ndarray, np.ndarray]:
    """The pattern of M by columns or by rows, what :meth:`patterns` of a sampler needs.

    Parameters
    ----------
    direction : {"in", "out"}
        Direction of M.
    side : {"columns", "rows"}
        A sampler's ``side``.
    """
    other = {"in": "out", "out": "in"}
    # A row of M is a column of M for the reversed graph.
    return columns(graph, direction if side == "columns" else other[direction])


def batch_size(text: int | str, n: int) -> int:
    """Vertices in a batch, from a number or a share of n such as "6%" (at least one vertex).

    Raises
    ------
    UserError
        If it is neither, or not in 1..n.
    """
    given = str(text).strip()
    share = re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", given)
    if share:
        size = max(round(float(share[1]) / 100 * n), int(float(share[1]) > 0))
    elif re.fullmatch(r"[+-]?\d+", given):
        size = int(given)
    else:
        raise UserError(f"batch {given!r} is neither a number of vertices nor a share such as 6%")
    if not 1 <= size <= n:
        raise UserError(f"a batch of {size} vertices ({given}): the graph has {n}")
    return size


def parse_fanouts(text: str | Sequence[int]) -> tuple[int, ...]:
    """Fan-outs from "10,5" or numbers; empty if there are none.

    Raises
    ------
    UserError
        If one is neither a positive number nor −1.
    """
    words = [] if text == "" else text.split(",") if isinstance(text, str) else text
    try:
        counts = tuple(int(word) for word in words)
    except ValueError:
        counts = (0,)
    if any(count < -1 or count == 0 for count in counts):
        raise UserError(
            f"fan-outs {text!r}: they are numbers of neighbours, layer by layer",
            "such as 10,5; -1 takes all neighbours",
        )
    return counts


def stream_seed(seed: int, purpose: int) -> int:
    """A seed for one purpose (``TRAINING``, ``MODEL``, ``SIMULATION``): that of training is itself.

    A model that is made of sampled batches is not tried on those very batches.
    """
    return seed if purpose == TRAINING else key(seed, purpose)


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
    lengths = _run_lengths(row[entry])
    rank = np.arange(len(entry)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    smallest = np.zeros(len(code), bool)
    smallest[entry[rank < count]] = True
    return smallest


def _run_lengths(values: np.ndarray) -> np.ndarray:
    """How often each value stands in a row: [4 4 7 4] → [2 1 1]."""
    new = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.diff(np.concatenate(([0], new, [len(values)]))) if len(values) else new


def segments(indptr: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of the chosen rows of a CSR pattern are, and how many each has."""
    counts = np.asarray(indptr[chosen + 1] - indptr[chosen], dtype=np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(indptr[chosen] - (ends - counts), counts), counts


def pointers(sizes: np.ndarray) -> np.ndarray:
    """Where rows of these sizes start and end: one number more than sizes, int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
