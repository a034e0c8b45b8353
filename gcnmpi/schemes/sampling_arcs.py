"""Which arcs the rows of a mini-batch keep, of a network that tells relations apart.

Every arc is an entry of its own. The arcs of one relation into a vertex, a group, are thinned out
together, as a row is where there are no relations: with the same estimate of the whole group's sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.layout.entries import EntryRows, Groups
from gcnmpi.schemes import sampling
from partition.graph.sampling import Place, Rule, Sampler, pointers, segments, units

MOST = 2**31  # numbers that compiled sampling gives


@dataclass(frozen=True)
class Arcs:
    """The arcs that a layer of a batch keeps, in the order of its rows.

    Attributes
    ----------
    every : EntryRows
        Those of all rows.
    some : (kept,) int64
        Which of these they are.
    groups : Groups
        Of what is kept; relations that keep no arc of a row have none. ``total`` is this rank's.
    """

    every: EntryRows
    some: np.ndarray
    groups: Groups

    @property
    def keys(self) -> np.ndarray:
        """Keys of arcs for dropout, which are the same in every batch."""
        return self.every.some_keys(self.some)

    @property
    def relations(self) -> np.ndarray:
        """The relation of each arc."""
        return np.repeat(self.groups.relations, np.diff(self.groups.starts))


class ArcEntries:
    """A rank's arcs, in groups, of which batches keep some: see :class:`sampling.Entries`."""

    def __init__(
        self, every: EntryRows, own: int, ids: np.ndarray, n: int, dtype: np.dtype
    ) -> None:
        assert every.groups is not None, "arcs are in no groups"
        self.matrix, self.ids, self._every, self._n = every.pattern(own, ids), ids, every, n
        self._groups, self._dtype = every.groups, dtype
        self._first = np.searchsorted(self._groups.starts, self.matrix.indptr)
        self._compiled: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def kept(self, sampler: Sampler, place: Place, rows: np.ndarray) -> tuple[sampling.Rows, Arcs]:
        """The arcs of some rows that a layer of a batch keeps.

        Parameters
        ----------
        place : (epoch, batch, hop)
        rows : (m,) int64
            Some rows, in any order.

        Returns
        -------
        indptr, columns, values
            Of each row; a value is one over the arcs of the whole group times the factor that makes
            up for those that are not kept: the sum of rows times values is an estimate of the mean.
        arcs : Arcs
        """
        groups, counts = segments(self._first, rows)
        rule = sampler.rule(*place)
        if rule is None or sampling._native is None or self._too_many:
            some, factors = self._in_numpy(sampler, place, rows, groups, counts)
        else:
            some, factors = self._by_rule(sampler, place[2], rule, groups)
        starts, relations = self._groups.starts, self._groups.relations
        group = np.searchsorted(starts, some, side="right") - 1
        sizes = (starts[1:] - starts[:-1])[group]
        begins = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
        kept = group[begins]
        of_rows = np.searchsorted(self.matrix.indptr, some, side="right") - 1
        # Rows come in any order, each once: their numbers tell how many arcs each has.
        number = np.zeros(len(self.matrix.indptr), np.int64)
        number[rows] = np.arange(len(rows))
        indptr = pointers(np.bincount(number[of_rows], minlength=len(rows)))
        found = Groups(
            self._groups.rows[kept], relations[kept], np.append(begins, len(some)), len(kept)
        )
        columns = self.matrix.indices[some].astype(np.int32)
        values = (factors / sizes).astype(self._dtype)
        return (indptr, columns, values), Arcs(self._every, some, found)

    def _in_numpy(
        self,
        sampler: Sampler,
        place: Place,
        rows: np.ndarray,
        groups: np.ndarray,
        counts: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which arcs of the groups of some rows are kept, and their factors."""
        entry, sizes = segments(self._groups.starts, groups)
        of_groups = np.repeat(np.repeat(rows, counts), sizes)
        relation = np.repeat(self._groups.relations[groups], sizes)
        ends = self.ids[of_groups], relation, self.ids[self.matrix.indices[entry]]
        kept, factors = sampler.arcs(place, *ends)
        return entry[kept], factors

    def _by_rule(
        self, sampler: Sampler, hop: int, rule: Rule, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same, compiled: a group is a row, and each arc a column with the id of its own."""
        if self._compiled is None:
            starts, relations = self._groups.starts, self._groups.relations
            count, entries = len(relations), int(starts[-1])
            ids = np.append(units(self._n, self._groups.rows, relations), self._ids_of_arcs)
            columns = np.arange(count, count + entries, dtype=np.int32)
            self._compiled = columns, np.ones(entries), ids
        columns, ones, ids = self._compiled
        count = len(self._groups.relations)
        starts = self._groups.starts.astype(np.int32)
        fanouts = sampler.fanouts_of(hop, self._groups.relations[groups])
        found, factors, order = [], [], []
        for fanout in np.unique(fanouts[fanouts != 0]).tolist():
            alike = np.flatnonzero(fanouts == fanout)
            arrays = starts, columns, ones, ids, groups[alike]
            begins, kept, times = sampling._native.sample(*arrays, fanout, rule.base, rule.shared)
            found.append(kept.astype(np.int64) - count)
            factors.append(times)
            order.append(np.repeat(alike, np.diff(begins)))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0)
        some, times = np.concatenate(found), np.concatenate(factors)
        by_group = np.lexsort((some, np.concatenate(order)))
        return some[by_group], times[by_group]

    @property
    def _ids_of_arcs(self) -> np.ndarray:
        return self.ids[self.matrix.indices]

    @property
    def _too_many(self) -> bool:
        return len(self._groups.relations) + self.matrix.nnz >= MOST
