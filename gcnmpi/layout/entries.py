"""Rows of arcs: which entry of a rank's rows of M stands for which arc, and data of arcs.

Every arc of the graph folder is an entry, parallel ones too; with self-loops, a vertex without one
has an entry that stands for no arc. Entries are in the order of the rank's rows, in a row by the
global id of the column, and parallel ones in the order of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.rows import Places
from gcnmpi.layout.arcs import own_arcs
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.runtime import Demand, Source, vertices_of
from gcnmpi.mpi.comm import Comm, redistribute, reduce_in_place
from partition.graph.graph import UNLABELLED, index_dtype
from partition.graph.hashing import key, mixed

Owners = Callable[[np.ndarray], Sequence[np.ndarray]]
"""From rows of M, global ids, to the ranks that have them: an array for each copy of the rows."""

NO_ARC = -1
"""The number of the arc of an entry that stands for none."""

UNKNOWN = "unknown"
RELATION, GROUP, SHARE, PART, TYPE, WHOLE_TYPE = OF_RELATIONS = (
    "relation", "group", "share", "part", "type", "type of whole",
)  # fmt: skip
OF_GROUPS = (GROUP, PART)  # what has a row for each group, not for each entry
ABSENT = {"i": UNLABELLED, "f": np.nan, "b": False}
"""The label of an entry that stands for no arc, and whether a mask has it, by the kind of array."""


def entry_keys(rows: np.ndarray, columns: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Keys of entries for dropout, uint64: hashes of both ends and the number among parallel ones.

    >>> one = np.array([1])
    >>> bool(entry_keys(one, one + 1, 0 * one) == entry_keys(one + 1, one, 0 * one))
    False
    """
    first, second, third = (key(place) for place in range(3))
    return mixed(
        mixed(mixed(rows, first) ^ columns.astype(np.uint64), second) ^ numbers.astype(np.uint64),
        third,
    )


@dataclass(frozen=True)
class Groups:
    """The entries of a rank's rows in groups of one row and relation.

    Attributes
    ----------
    rows, relations : (groups,) integers
        The global id of the vertex, and the relation.
    starts : (groups + 1,) int64
        Where the entries of each begin.
    total : int
        Groups of all ranks' rows, each row counted once.
    parts : (groups,) float64
        The part that the entries of each make of those of all groups of its vertex that go the same
        way, along relations or along reverses of these.
    """

    rows: np.ndarray
    relations: np.ndarray
    starts: np.ndarray
    total: int
    parts: np.ndarray

    @property
    def keys(self) -> np.ndarray:
        """The keys of dropout: see :func:`entry_keys`."""
        return entry_keys(self.rows, self.rows, 1 + self.relations)

    @property
    def shares(self) -> np.ndarray:
        """For each entry one over the entries of its group, float64."""
        counts = np.diff(self.starts)
        return np.repeat(1 / counts, counts)


@dataclass(frozen=True)
class EntryRows:
    """The entries of a rank's rows of M, for matrices that have a row for each.

    Attributes
    ----------
    rows, columns : (entries,) integers
        Global ids of the vertices that an arc leads to and comes from, in the direction of M.
    numbers : (entries,) integers
        Which of the parallel arcs of its two vertices each one is, from 0.
    arcs : (entries,) int64
        Numbers of the arcs in the folder, or ``NO_ARC``.
    total : int
        Entries of all ranks' rows, each row counted once.
    stored : int
        Arcs of the folder.
    groups : Groups or None
        Where entries are in the order of groups.
    of_type : range
        The vertices of all ranks that :attr:`Space.OF_TYPE` is about.
    """

    rows: np.ndarray
    columns: np.ndarray
    numbers: np.ndarray
    arcs: np.ndarray
    total: int
    stored: int
    _bring: Callable[[Readable], np.ndarray]
    groups: Groups | None = None
    of_type: range = range(0)

    @property
    def keys(self) -> np.ndarray:
        """The keys of dropout: see :func:`entry_keys`."""
        return entry_keys(self.rows, self.columns, self.numbers)

    def some_keys(self, some: np.ndarray) -> np.ndarray:
        """The keys of some entries."""
        return entry_keys(self.rows[some], self.columns[some], self.numbers[some])

    def load(self, array: Readable, loops: str) -> np.ndarray:
        """The entries' rows of an array on disk with a row for each arc, (entries, columns).

        All ranks call it together. An entry that stands for no arc has zeros; with ``loops`` of
        "mean", all self-loops have the mean of the other entries of their row, as float64; with
        ``UNKNOWN``, which is for labels and masks, it has none and is in none. ``GROUP`` gives the
        relation of each group instead, ``PART`` the part that each makes, and ``SHARE`` of each
        entry one over those of its group.
        """
        if loops in (GROUP, PART, SHARE):
            groups = self.groups
            assert groups is not None, "entries are in no groups"
            return {GROUP: groups.relations, PART: groups.parts, SHARE: groups.shares}[loops]
        found = self._bring(array)
        if loops == UNKNOWN:
            found[self.arcs == NO_ARC] = ABSENT[found.dtype.kind]
        if loops != "mean" or not len(found):
            return found
        found, loop = found.astype(np.float64), self.rows == self.columns
        found[loop] = 0
        # Entries are in the order of rows: those of one follow each other.
        first = np.flatnonzero(np.append(True, self.rows[1:] != self.rows[:-1]))
        sums, counts = (np.add.reduceat(each, first) for each in (found, 1 - loop))
        means = sums / np.maximum(counts, 1)[:, np.newaxis]
        found[loop] = np.repeat(means, np.diff(np.append(first, len(loop))), axis=0)[loop]
        return found

    def pattern(self, own: int, ids: np.ndarray) -> sp.csr_array:
        """The entries over local vertices, (own, len(ids)); all of its values are 1.

        Parameters
        ----------
        ids : (own + halo,) integers
            Global ids of the local vertices, own ones first, in any order.
        """
        places = Places(ids)
        row, column = places.all_of(self.rows), places.all_of(self.columns)
        # As scipy has it, columns have the type of the numbers of entries.
        short = index_dtype(max(len(ids), len(row), 1))
        starts = np.zeros(own + 1, short)
        np.cumsum(np.bincount(row, minlength=own), out=starts[1:])
        values = np.ones(len(row), np.int8)
        column = column.astype(short)
        return sp.csr_array((values, column, starts), shape=(own, len(ids)))


def load_entry_rows(
    comm: Comm,
    source: Source,
    self_loops: bool,
    own: np.ndarray,
    owners: Owners,
    max_bytes: float,
    demand: Demand = Demand(),  # noqa: B008 (it is frozen)
) -> EntryRows:
    """Bring the ends of arcs to the ranks that have their row of M.

    Parameters
    ----------
    own : (own rows,) integers
        Global ids of this rank's rows, in its order.
    owners : callable
        See :data:`Owners`.
    demand : Demand
        Says whether entries are in groups of the relations of arcs, which the graph has then, and
        which type of vertices is looked at.
    """
    arcs = own_arcs(comm, source.stored, source.direction, parallel=True)
    read, mine = arcs.row, arcs.number  # all that is needed of them later
    assert mine is not None

    def bring(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The rows of arrays with a row for each arc that this rank reads."""
        rounds = [redistribute(comm, to, arrays, max_bytes)[0] for to in owners(read)]
        return [np.concatenate(pieces) for pieces in zip(*rounds, strict=True)]

    row, column, number = bring([arcs.row, arcs.column, mine])
    received = len(number)

    def rows_of(array: Readable) -> np.ndarray:
        """The rows of an array of the entries, which ``order`` says by what was received."""
        first = int(mine[0]) if len(mine) else 0
        some = array[first : int(mine[-1]) + 1 if len(mine) else 0]  # not read before it is sent
        (found,) = bring([some if len(some) == len(mine) else some[mine - first]])
        out = np.zeros((len(order), *found.shape[1:]), found.dtype)
        there = order < received
        out[there] = found[order[there]]
        return out

    if self_loops:
        lonely = np.setdiff1d(own, row[row == column]).astype(row.dtype)
        row, column = np.append(row, lonely), np.append(column, lonely)
        number = np.append(number, np.full(len(lonely), NO_ARC))
    local = Places(own)
    order = np.lexsort((number, column, local.all_of(row)))
    row, column, number = row[order], column[order], number[order]
    again = np.append(False, (row[1:] == row[:-1]) & (column[1:] == column[:-1]))[: len(row)]
    places = np.arange(len(row))
    numbers = places - np.maximum.accumulate(np.where(again, 0, places))
    relations: Any = source.stored.graph.arc_type
    starts, relation, parts = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0)
    if demand.groups:
        relation = rows_of(relations)
        by_group = np.lexsort((relation, local.all_of(row)))  # stable
        order, relation = order[by_group], relation[by_group]
        row, column, number, numbers = (a[by_group] for a in (row, column, number, numbers))
        begins = np.append(True, (row[1:] != row[:-1]) | (relation[1:] != relation[:-1]))
        starts = np.append(np.flatnonzero(begins[: len(row)]), len(row))
        relation = relation[starts[:-1]]
        turned = np.array(source.stored.graph.schema.turned)[relation]
        parts = parts_of(local.all_of(row[starts[:-1]]), turned, starts)
    everything = np.array([len(row), len(relation)])
    reduce_in_place(comm, everything)
    total, total_groups = (everything // len(owners(read[:0]))).tolist()
    of_groups = row[starts[:-1]], relation, starts, total_groups, parts
    groups = Groups(*of_groups) if demand.groups else None
    stored = source.stored.graph.nnz
    of_type = vertices_of(source.stored, demand.type)
    return EntryRows(row, column, numbers, number, total, stored, rows_of, groups, of_type)


def parts_of(vertex: np.ndarray, turned: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """:attr:`Groups.parts` of groups of entries, of which each is turned or not.

    >>> parts_of(np.array([0, 0, 0, 1]), np.array([False, True, False, True]), np.arange(5))
    array([0.5, 1. , 0.5, 1. ])
    """
    way, counts = 2 * vertex + turned, np.diff(starts)
    return counts / np.bincount(way, weights=counts)[way]
