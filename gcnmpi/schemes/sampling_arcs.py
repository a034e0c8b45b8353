"""Which arcs the rows of a mini-batch keep, of a network that tells relations apart.

Every arc is an entry of its own. The arcs of one relation into a vertex, a group, are thinned out
together, as a row is where there are no relations: with the same estimate of the whole group's sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gcnmpi.layout.entries import EntryRows, Groups
from gcnmpi.schemes import sampling
from partition.graph.sampling import Place, Rule, Sampler, pointers, run_lengths, segments, units

MOST = 2**31  # numbers that compiled sampling gives
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of each arc that is kept: the place of its group among some, its number, and its factor."""


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
        Of what is kept; relations that keep no arc of a row have none. ``total`` is this rank's,
        ``parts`` are those of all arcs.
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

    def __init__(self, every: EntryRows, n: int, dtype: np.dtype) -> None:
        assert every.groups is not None, "arcs are in no groups"
        self.matrix, self.ids = every.pattern(), every.ids.astype(np.int64)
        self._every, self._n = every, n
        self._groups, self._dtype = every.groups, dtype
        self._first = np.searchsorted(self._groups.starts, self.matrix.indptr)

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
        rule = sampler.rule(place)
        if rule is None or sampling._native is None or self._too_many:
            at, some, factors = self._in_numpy(sampler, place, np.repeat(rows, counts), groups)
        else:
            at, some, factors = self._by_rule(sampler, place[2], rule, groups)
        kept, group = run_lengths(at), groups[at]
        begins = pointers(kept)
        held = group[begins[:-1]]
        sizes = self._groups.starts[held + 1] - self._groups.starts[held]
        of_rows = np.repeat(np.arange(len(rows)), counts)[at]
        indptr = pointers(np.bincount(of_rows, minlength=len(rows)))
        relations = self._groups.relations[held]
        facts = begins, len(held), self._groups.parts[held]
        found = Groups(self._groups.rows[held], relations, *facts)
        columns = self.matrix.indices[some].astype(np.int32)
        values = (factors / np.repeat(sizes, kept)).astype(self._dtype)
        return (indptr, columns, values), Arcs(self._every, some, found)

    def _in_numpy(
        self, sampler: Sampler, place: Place, rows: np.ndarray, groups: np.ndarray
    ) -> Drawn:
        """The arcs that some groups keep, of ``rows``."""
        entry, sizes = segments(self._groups.starts, groups)
        at = np.repeat(np.arange(len(groups)), sizes)
        relation = self._groups.relations[groups][at]
        ends = self.ids[rows[at]], relation, self.ids[self.matrix.indices[entry]]
        kept, factors = sampler.arcs(place, *ends)
        return at[kept], entry[kept], factors

    def _by_rule(self, sampler: Sampler, hop: int, rule: Rule, groups: np.ndarray) -> Drawn:
        """The same, compiled: a group is a row, and each arc a column with the id of its own."""
        columns, ones, ids, starts = self._compiled
        count = len(self._groups.relations)
        fanouts = sampler.fanouts_of(hop, self._groups.relations[groups])
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        for fanout in np.unique(fanouts[fanouts != 0]).tolist():
            alike = np.flatnonzero(fanouts == fanout)
            arrays = starts, columns, ones, ids, groups[alike]
            begins, kept, times = sampling._native.sample(*arrays, fanout, rule.base, rule.shared)
            found.append((np.repeat(alike, np.diff(begins)), kept.astype(np.int64) - count, times))
        at, some, factors = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
        order = np.lexsort((some, at))
        return at[order], some[order], factors[order]

    @cached_property
    def _compiled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Numbers of arcs, 1 for each, ids of groups and then of arcs, and where groups start."""
        count, groups, arcs = len(self._groups.relations), self._groups, self.matrix.nnz
        of_groups = units(self._n, groups.rows, groups.relations)
        ids = np.append(of_groups, self.ids[self.matrix.indices])
        columns = np.arange(count, count + arcs, dtype=np.int32)
        return columns, np.ones(arcs), ids, groups.starts.astype(np.int32)

    @property
    def _too_many(self) -> bool:
        return len(self._groups.relations) + self.matrix.nnz >= MOST
