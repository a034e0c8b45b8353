"""Mini-batches of seeds and sampled neighbours, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from partition.errors import UserError
from partition.graph.hashing import key, mixed
from partition.graph.relations import Relation, place_of
from partition.graph.sampling import (
    Pattern,
    Place,
    Rule,
    Sampler,
    Side,
    parse_fanouts,
    pointers,
    run_lengths,
    segments,
    units,
)


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

    def kept(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> np.ndarray:
        """Which of the entries (of a row together, in any order) a layer keeps: bool."""
        fanout = self.fanouts[hop]
        if fanout < 0:
            return np.ones(len(row), bool)
        kept = np.ones(len(row), bool)
        proper = np.flatnonzero(row != column)
        sizes = run_lengths(row[proper])
        proper = proper[np.repeat(sizes > fanout, sizes)]
        sizes = sizes[sizes > fanout]
        starts = np.cumsum(sizes) - sizes
        which = np.repeat(np.arange(len(sizes)), sizes)
        base = key(self.seed, epoch, batch, hop)
        drawn = starts[:, np.newaxis] + _drawn(row[proper[starts]], sizes, fanout, base)
        kept[proper] = False
        kept[proper[np.lexsort((column[proper], which))[drawn]]] = True
        return kept

    def entries(
        self, epoch: int, batch: int, hop: int, row: np.ndarray, column: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of M a layer keeps, and the factors of their values.

        Where f of d entries of a row are kept, it is d / f: the expectation is that of all.
        """
        proper = np.flatnonzero(row != column)
        factors = np.ones(len(row))  # 1 / the probability that an entry is kept
        fanout = self.fanouts[hop]
        if fanout >= 0:
            sizes = run_lengths(row[proper])
            factors[proper] = np.repeat(np.maximum(sizes / fanout, 1.0), sizes)
        kept = self.kept(epoch, batch, hop, row, column)
        return kept, factors[kept]

    def rule(self, epoch: int, batch: int, hop: int) -> Rule | None:
        """The rule by which :meth:`kept` thins out rows."""
        return Rule(self.fanouts[hop], key(self.seed, epoch, batch, hop), self.shared)

    def arcs(
        self, place: Place, row: np.ndarray, relation: np.ndarray, column: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Arcs of each row and relation are drawn as those of a row are; loops are like others."""
        epoch, batch, hop = place
        fanouts = self.fanouts_of(hop, relation)
        unit, kept = units(self.vertices, row, relation), np.zeros(len(row), bool)
        factors = np.ones(len(row))
        for fanout in np.unique(fanouts[fanouts != 0]).tolist():
            some = np.flatnonzero(fanouts == fanout)
            alike = replace(self, fanouts=(fanout,) * len(self.fanouts))
            here, times = alike.entries(epoch, batch, hop, unit[some], column[some])
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
                kept = self.kept(epoch, batch, hop, row, column)
            else:
                kept, _ = self.arcs((epoch, batch, hop), row, side.relation[place], column)
            row, column = row[kept], column[kept]
            groups = side.groups(row, place[kept])
            reached = np.union1d(frontier, column)
            order = np.argsort(column, kind="stable")
            column = np.searchsorted(reached, column[order])
            sizes = np.bincount(column, minlength=len(reached))
            found.append(Pattern(reached, pointers(sizes), row[order], groups))
            frontier = reached
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
            raise UserError(
                f"{where}: {word!r} gives no {len(fanouts)} numbers of neighbours",
                "name=numbers, one for each layer or one for all, such as "
                f"{relations[0].name}={','.join(map(str, fanouts))}",
            )
        found[place_of(name, relations, where)] = given
    return tuple(found.values()) if text else ()
