"""Mini-batches: which vertices, and which entries of M, one step of training touches.

Who is in a batch is a pure function of (seed, epoch, batch, global vertex), made of 64-bit integer
hashes only. So every process decides for the vertices that it holds, both ends of an exchange
agree without a message, and the batches are the same for every partition and number of processes.

A sampler is one class here and one line in ``SAMPLERS``. Imported by the trainer, too: NumPy only.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from partition.errors import UserError, require
from partition.graph.aggregation import columns
from partition.graph.graph import REVERSED, Graph, segments
from partition.graph.graph import arcs as arcs_of
from partition.graph.hashing import key, mixed, permuted
from partition.graph.relations import Relation, place_of
from partition.registry import Registry

SAMPLERS = Registry(
    "sampler",
    {
        "vertex": "partition.graph.sampling:VertexSampler",
        "neighbor": "partition.graph.sampling:NeighborSampler",
        "labor": "partition.graph.sampling:LaborSampler",
        "cluster": "partition.graph.sampling:ClusterSampler",
    },
)
Place = tuple[int, int, int]
"""Epoch, number of the batch, and layer, 0 for that of the seeds."""
_Chosen = tuple[np.ndarray, np.ndarray]  # which of some entries, and the factors of these

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
    groups : integers or None
        The row of each group of arcs of one relation, where entries are arcs with relations.
    """

    columns: np.ndarray
    indptr: np.ndarray
    rows: np.ndarray
    groups: np.ndarray | None = None


@dataclass(frozen=True)
class Side:
    """M by rows or by columns.

    Attributes
    ----------
    indptr : (n + 1,) int64
    other : integers
        ``other[indptr[i]:indptr[i+1]]`` are the columns of row i, or the rows of column i.
    relation : integers or None
        That of each entry, where entries are arcs; these are in its order first.
    """

    indptr: np.ndarray
    other: np.ndarray
    relation: np.ndarray | None = None

    def groups(self, rows: np.ndarray, entries: np.ndarray) -> np.ndarray | None:
        """The row of each group of one row and relation that some entries, of ``rows``, are in."""
        if self.relation is None:
            return None
        n = len(self.indptr) - 1
        return np.unique(units(n, rows, self.relation[entries])) % n


def units(n: int, row: np.ndarray, relation: np.ndarray) -> np.ndarray:
    """A number for each row and relation, (m,) int64; none is that of one of the n vertices.

    Samplers draw of the arcs of a row and relation as of those of a row of such a number.

    >>> units(10, np.array([3, 3]), np.array([0, 1], np.uint8))
    array([13, 23])
    """
    return row.astype(np.int64) + n * (1 + relation.astype(np.int64))


@dataclass(frozen=True)
class Rule:
    """How the entries of a row beside its diagonal are thinned out, where there are more.

    Attributes
    ----------
    fanout : int
        How many are kept, the others count for them; −1: all.
    base : int
        Key of the hashes.
    shared : bool
        Whether an entry is kept if the hash of its column is below the share that is to be kept,
        and not by draws for the row.
    """

    fanout: int
    base: int
    shared: bool


@dataclass(frozen=True)
class Sampler(ABC):
    """The decision who is in a batch, and which entries of M it keeps.

    Each epoch shuffles the vertices by a permutation π of 0..n−1 that can be evaluated, and
    inverted, for a single number (a Feistel network on ⌈log₂ n⌉ bits, walked along its cycles
    until it is back below n: Black and Rogaway 2002). Vertex v is in batch ⌊π(v) / size⌋. So
    every vertex is in exactly one batch of an epoch, every batch but the last has exactly
    ``size`` vertices, and the first batches of different epochs are independent uniform draws.

    Attributes
    ----------
    n : int
        How many vertices, or clusters, batches are drawn from.
    size : int
        How many of these a batch has, 1 ≤ size ≤ n.
    seed : int
        0 ≤ seed < 2^64.
    fanouts : tuple of int
        Neighbours per row for each layer, that of the seeds first; empty: layers are alike.
    side : {"columns", "rows"}
        Which form of M :meth:`patterns` takes.
    layered : bool
        Whether each layer keeps entries of its own, beginning with the rows of seeds.
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
        """How many of the n a batch has."""
        return min(self.size, self.n - batch * self.size)

    def contains(self, epoch: int, batch: int, vertices: np.ndarray) -> np.ndarray:
        """Whether each of ``vertices`` is in a batch, or one of its seeds: bool."""
        return self.batch_of(epoch, vertices) == batch

    def batch_of(self, epoch: int, vertices: np.ndarray) -> np.ndarray:
        """The batch of an epoch for which :meth:`contains` is true of each of ``vertices``."""
        return permuted(vertices, self.n, key(self.seed, epoch)) // self.size

    def members(self, epoch: int, batch: int) -> np.ndarray:
        """All vertices for which :meth:`contains` is true, increasing: O(size), whatever n is."""
        places = np.arange(batch * self.size, min((batch + 1) * self.size, self.n))
        return np.sort(permuted(places, self.n, key(self.seed, epoch), inverse=True))

    @abstractmethod
    def entries(self, place: Place, row: np.ndarray, column: np.ndarray) -> _Chosen:
        """Which entries of M a layer keeps, bool, and the factors of the values of these.

        The expectation of the product of a row with H is that of the whole row.

        Parameters
        ----------
        place : (epoch, batch, hop)
        row, column : (m,) integers
            Global row and column of each entry: whole rows of the batch, the entries of a row
            together.
        """

    def arcs(
        self, place: Place, row: np.ndarray, relation: np.ndarray, column: np.ndarray
    ) -> _Chosen:
        """As :meth:`entries`, of arcs with relations; those of a row and relation are together."""
        return self.entries(place, row, column)

    def fanouts_of(self, hop: int, relations: np.ndarray) -> np.ndarray:
        """How many arcs of each of some relations a layer draws into a row; −1: all."""
        return np.full(len(relations), -1)

    def rule(self, place: Place) -> Rule | None:
        """The thinning rule of a layer, or None if it cannot be expressed as a :class:`Rule`."""
        return None

    @abstractmethod
    def patterns(
        self, side: Side, epoch: int, batch: int, seeds: np.ndarray | None = None
    ) -> list[Pattern]:
        """The exchanges of a mini-batch, one for each pattern that its layers have.

        Samplers of seeds number ``seeds``, increasing vertices; without them, all vertices.
        """


@dataclass(frozen=True)
class VertexSampler(Sampler):
    """The subgraph that uniformly drawn vertices induce."""

    def entries(self, place: Place, row: np.ndarray, column: np.ndarray) -> _Chosen:
        """Which entries of M a batch keeps, and the factors of their values.

        Given that i is in a batch of s vertices, j is with probability (s − 1) / (n − 1). Divided
        by that, a row's product with the batch's rows of H has the expectation of its product with
        all of them (the aggregator's normalisation of Zeng et al. 2020, for this sampler).
        """
        kept = self.contains(*place[:2], column)
        return kept, self.factors(place[1], row[kept], column[kept])

    def factors(self, batch: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The factors of the values of entries of M, both of whose ends are in a batch."""
        factor = (self.n - 1) / max(1, self.count(batch) - 1)
        return np.where(self._drawn(row) == self._drawn(column), 1.0, factor)

    def patterns(
        self, side: Side, epoch: int, batch: int, seeds: np.ndarray | None = None
    ) -> list[Pattern]:
        """The exchange of every layer of a mini-batch: one pattern, since all layers share it."""
        chosen = self.members(epoch, batch)
        place, counts = segments(side.indptr, chosen)
        inside = np.zeros(len(side.indptr) - 1, bool)
        inside[chosen] = True
        kept = inside[side.other[place]]
        column = np.repeat(np.arange(len(chosen)), counts)[kept]
        sizes, place = np.bincount(column, minlength=len(chosen)), place[kept]
        rows = side.other[place]
        return [Pattern(chosen, pointers(sizes), rows, side.groups(rows, place))]

    def _drawn(self, vertices: np.ndarray) -> np.ndarray:
        """Which of the n brings each vertex into a batch."""
        return vertices


@dataclass(frozen=True)
class ClusterSampler(VertexSampler):
    """The subgraph that some clusters induce: parts of a finer partition (Chiang et al. 2019).

    Values are multiplied by 1 within a cluster; between two of C clusters, of which a batch has q,
    by (C − 1) / (q − 1). With q = 1 no such entry is ever kept, and products are those of the
    clusters alone.

    Attributes
    ----------
    clusters : (vertices,) integers
        The cluster of every vertex.
    """

    clusters: np.ndarray = field(kw_only=True)

    def batch_of(self, epoch: int, vertices: np.ndarray) -> np.ndarray:
        """The batch of an epoch that each of ``vertices`` is in, int64."""
        return super().batch_of(epoch, self._drawn(vertices))

    def members(self, epoch: int, batch: int) -> np.ndarray:
        """All vertices of a batch, increasing."""
        return np.flatnonzero(np.isin(self.clusters, super().members(epoch, batch)))

    def _drawn(self, vertices: np.ndarray) -> np.ndarray:
        return self.clusters[vertices]


def make_sampler(
    name: str, n: int, batch: int | str, seed: int, fanouts: str | Sequence[int] = "",
    clusters: np.ndarray | None = None,
) -> Sampler:  # fmt: skip
    """The sampler of that name in ``SAMPLERS``, its arguments checked.

    ``batch`` is the number of vertices (seeds) in a batch, or a share of all, such as "6%";
    ``fanouts`` the neighbours per row, layer by layer from the seeds on, such as "10,5", −1 for
    all; empty: the sampler's default. ``clusters`` is the cluster of every vertex, for the sampler
    "cluster", whose batches are so many clusters.

    A UserError if the name is unknown, the batch is not in 1..n, or the fan-outs are malformed, or
    given to a sampler without.
    """
    kind, more = SAMPLERS.get(name), {}
    if kind is ClusterSampler:
        if clusters is None:
            raise UserError("the sampler 'cluster' needs a partition into clusters")
        n, more = int(clusters.max(initial=0)) + 1, {"clusters": clusters}
    size = batch_size(batch, n)
    require(0 <= seed < 2**64, f"seed {seed} is outside 0..2^64-1")
    counts = parse_fanouts(fanouts)
    if counts and not kind.fanouts:
        raise UserError(f"the sampler {name!r} has no fan-outs, {fanouts!r} was given")
    return kind(n, size, seed, counts or kind.fanouts, **more)


def sides(graph: Graph, direction: str, side: str, relations: bool = False) -> Side:
    """The pattern of M by columns or by rows, which a sampler of that ``side`` takes.

    With ``relations``, entries are arcs, in the order of relations first.
    """
    # A row of M is a column of M for the reversed graph.
    by_columns = direction if side == "columns" else REVERSED[direction]
    if not relations or graph.arc_type is None:
        return Side(*columns(graph, by_columns))
    ends, relation = (arcs_of(graph), np.asarray(graph.indices)), np.asarray(graph.arc_type)
    first, other = ends if by_columns == "in" else ends[::-1]
    order = np.lexsort((other, relation, first))
    return Side(pointers(np.bincount(first, minlength=graph.n)), other[order], relation[order])


def batch_size(text: int | str, n: int) -> int:
    """Vertices in a batch, from a number or a share of n such as "6%" (at least one vertex)."""
    given = str(text).strip()
    share = re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", given)
    if share:
        size = max(round(float(share[1]) / 100 * n), int(float(share[1]) > 0))
    elif re.fullmatch(r"[+-]?\d+", given):
        size = int(given)
    else:
        raise UserError(f"batch {given!r} is neither a number of vertices nor a share such as 6%")
    if not 1 <= size <= n:
        what = f"a batch of {size} vertices ({given}): it is drawn from {n}"
        raise UserError(what, f"from 1 to {n}, or a share such as 6%")
    return size


def parse_fanouts(text: str | Sequence[int], none: bool = False) -> tuple[int, ...]:
    """Fan-outs from "10,5" or numbers, positive ones or −1; empty if there are none.

    With ``none``, 0 is one too.
    """
    words = [] if text == "" else text.split(",") if isinstance(text, str) else text
    try:
        counts = tuple(int(word) for word in words)
    except ValueError:
        counts = (-2,)
    if any(not -1 <= count < 2**31 or (count == 0 and not none) for count in counts):
        what = f"fan-outs {text!r}: they are numbers of neighbours, layer by layer"
        raise UserError(what, "such as 10,5; -1 takes all neighbours")
    return counts


def stream_seed(seed: int, purpose: int) -> int:
    """A seed for one purpose (``TRAINING``, ``MODEL``, ``SIMULATION``): that of training is itself.

    A model that is made of sampled batches is not tried on those very batches.
    """
    return seed if purpose == TRAINING else key(seed, purpose)


def pointers(sizes: np.ndarray) -> np.ndarray:
    """Where rows of these sizes start and end: one number more than sizes, int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def run_lengths(values: np.ndarray) -> np.ndarray:
    """How often each value stands in a row: [4 4 7 4] → [2 1 1]."""
    new = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.diff(np.concatenate(([0], new, [len(values)]))) if len(values) else new


@dataclass(frozen=True)
class NeighborSampler(Sampler):
    """Seed vertices, and a bounded number of neighbours of each, layer by layer.

    Batches have ``size`` seeds. Layer by layer, starting with the last of
    the network, each row of the frontier keeps its diagonal entry and at most ``fanouts[h]`` of its
    other entries of M; their columns join the frontier of the layer before (Hamilton et al. 2017).
    Of d entries in the order of their columns, f are drawn without replacement as Floyd does it
    (Bentley and Floyd 1987): for j = d − f … d − 1, one of 0 … j, a hash of (seed, epoch, batch, h,
    row, j), and j itself if that is taken. So the work grows with f, not with d.

    Attributes
    ----------
    vertices : int
        Of the graph, where arcs have relations: see :meth:`arcs`.
    of_relations : tuple of tuple of int
        The fan-outs of each relation, layer by layer, 0 for none; empty: all have ``fanouts``.
    """

    fanouts: tuple[int, ...] = (10, 10)
    vertices: int = field(default=0, kw_only=True)
    of_relations: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)
    side: ClassVar[str] = "rows"
    layered: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    def kept(self, place: Place, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Which of the entries (of a row together, in any order) a layer keeps: bool."""
        fanout, kept = self.fanouts[place[2]], np.ones(len(row), bool)
        if fanout >= 0:
            proper = np.flatnonzero(row != column)
            sizes = run_lengths(row[proper])
            proper, sizes = proper[np.repeat(sizes > fanout, sizes)], sizes[sizes > fanout]
            base = key(self.seed, *place)
            kept[proper] = self._thinned(row[proper], column[proper], sizes, fanout, base)
        return kept

    @staticmethod
    def _thinned(
        row: np.ndarray, column: np.ndarray, sizes: np.ndarray, fanout: int, base: int
    ) -> np.ndarray:
        """Which entries are kept of rows with more than ``fanout``, so many each: bool."""
        starts, kept = np.cumsum(sizes) - sizes, np.zeros(len(row), bool)
        which = np.repeat(np.arange(len(sizes)), sizes)
        drawn = starts[:, np.newaxis] + _drawn(row[starts], sizes, fanout, base)
        kept[np.lexsort((column, which))[drawn]] = True
        return kept

    def entries(self, place: Place, row: np.ndarray, column: np.ndarray) -> _Chosen:
        """Which entries of M a layer keeps, and the factors of their values.

        Where f of d entries of a row are kept, it is d / f: the expectation is that of all.
        """
        fanout, factors = (
            self.fanouts[place[2]],
            np.ones(len(row)),
        )  # 1 / the probability to be kept
        if fanout >= 0:
            proper = np.flatnonzero(row != column)
            sizes = run_lengths(row[proper])
            factors[proper] = np.repeat(np.maximum(sizes / fanout, 1.0), sizes)
        kept = self.kept(place, row, column)
        return kept, factors[kept]

    def rule(self, place: Place) -> Rule | None:
        """The rule by which :meth:`kept` thins out rows."""
        return Rule(self.fanouts[place[2]], key(self.seed, *place), self.shared)

    def arcs(
        self, place: Place, row: np.ndarray, relation: np.ndarray, column: np.ndarray
    ) -> _Chosen:
        """Arcs of each row and relation are drawn as those of a row are; loops are like others."""
        fanouts, factors = self.fanouts_of(place[2], relation), np.ones(len(row))
        unit, kept = units(self.vertices, row, relation), np.zeros(len(row), bool)
        for fanout in np.unique(fanouts[fanouts != 0]).tolist():
            some = np.flatnonzero(fanouts == fanout)
            alike = replace(self, fanouts=(fanout,) * len(self.fanouts))
            here, times = alike.entries(place, unit[some], column[some])
            kept[some[here]], factors[some[here]] = True, times
        return kept, factors[kept]

    def fanouts_of(self, hop: int, relations: np.ndarray) -> np.ndarray:
        """The fan-outs of the relations, or the same for all."""
        if not self.of_relations:
            return np.full(len(relations), self.fanouts[hop])
        return np.array([fanouts[hop] for fanouts in self.of_relations])[relations]

    def patterns(
        self, side: Side, epoch: int, batch: int, seeds: np.ndarray | None = None
    ) -> list[Pattern]:
        """The exchanges of a mini-batch, one per layer, that of the seeds first.

        The sampler numbers ``seeds``, increasing vertices; without them, all vertices.
        """
        frontier = self.members(epoch, batch)
        if seeds is not None:
            frontier = seeds[frontier]
        found = []
        for hop in range(len(self.fanouts)):
            place, counts = segments(side.indptr, frontier)
            row, column = np.repeat(frontier, counts), side.other[place].astype(np.int64)
            if side.relation is None:
                kept = self.kept((epoch, batch, hop), row, column)
            else:
                kept, _ = self.arcs((epoch, batch, hop), row, side.relation[place], column)
            row, column = row[kept], column[kept]
            groups, order = side.groups(row, place[kept]), np.argsort(column, kind="stable")
            frontier = np.union1d(frontier, column)
            sizes = np.bincount(np.searchsorted(frontier, column), minlength=len(frontier))
            found.append(Pattern(frontier, pointers(sizes), row[order], groups))
        return found


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

    @staticmethod
    def _thinned(
        row: np.ndarray, column: np.ndarray, sizes: np.ndarray, fanout: int, base: int
    ) -> np.ndarray:
        # As integers: the comparison has one outcome everywhere.
        distinct, place = np.unique(sizes, return_inverse=True)
        limits = np.array([(fanout << 64) // size for size in distinct.tolist()], np.uint64)
        return mixed(column, base) < np.repeat(limits[place], sizes)


def _drawn(rows: np.ndarray, sizes: np.ndarray, count: int, base: int) -> np.ndarray:
    """``count`` different numbers below the size of each row, which is larger: (rows, count)."""
    of_row = mixed(rows, base)
    found = np.empty((len(rows), count), np.int64)
    for i in range(count):
        last = sizes - count + i
        # The upper half of a hash, as a fraction of 2^32, times how many there are.
        half = mixed(of_row ^ last.astype(np.uint64), base) >> np.uint64(32)
        drawn = ((half * (last + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        taken = (found[:, :i] == drawn[:, np.newaxis]).any(axis=1)
        found[:, i] = np.where(taken, last, drawn)
    return found


def by_relation(
    sampler: Sampler, n: int, relations: Sequence[Relation], text: str, where: str
) -> Sampler:
    """The sampler of a graph of n vertices that draws neighbours by relation, if there are some.

    For ``text`` and ``where`` see :func:`fanouts_of_relations`.
    """
    if not relations or not isinstance(sampler, NeighborSampler):
        return sampler
    own = fanouts_of_relations(text, sampler.fanouts, relations, where)
    return replace(sampler, vertices=n, of_relations=own)


def fanouts_of_relations(
    text: str, fanouts: Sequence[int], relations: Sequence[Relation], where: str
) -> tuple[tuple[int, ...], ...]:
    """The fan-outs of each relation, layer by layer, where ``text`` gives some others than most.

    Empty if it is empty. A UserError, which begins with ``where`` it stands, if it is malformed.

    >>> fanouts_of_relations("cites=3", (10, 5), [Relation("p", "cites", "p")], "train.fanouts")
    ((3, 3),)
    """
    found = dict.fromkeys(range(len(relations)), tuple(fanouts))
    for word in filter(None, map(str.strip, text.split(";"))):
        name, equals, numbers = (part.strip() for part in word.rpartition("="))
        given = parse_fanouts(numbers, none=True) if equals else ()
        if len(given) == 1:
            given *= len(fanouts)
        if len(given) != len(fanouts):
            such = f"{relations[0].name}={','.join(map(str, fanouts))}"
            what = f"{where}: {word!r} gives no {len(fanouts)} numbers of neighbours"
            hint = f"name=numbers, one for each layer or one for all, such as {such}"
            raise UserError(what, hint)
        found[place_of(name, relations, where)] = given
    return tuple(found.values()) if text else ()
