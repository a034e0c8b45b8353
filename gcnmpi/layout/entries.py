"""Rows of arcs: which entry of a rank's rows of M stands for which arc, and data of arcs.

Every arc of the graph folder is an entry, parallel ones too, unless a network takes one self-loop
of a vertex (:attr:`Demand.one_loop`); with self-loops, a vertex without one has an entry that
stands for no arc. Entries are in the order of the rank's rows, in a row by the global id of the
column, and parallel ones in the order of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.kernels.rows import (
    STEP,
    Places,
    count_entries,
    entry_rows,
    inverse,
    look_up_in_place,
    sort_rows,
)
from gcnmpi.layout.arcs import Entries
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.placing import Arriving, Piece, put
from gcnmpi.layout.runtime import Demand, vertices_of
from gcnmpi.mpi.comm import reduce_in_place
from partition.graph.graph import UNLABELLED, index_dtype
from partition.graph.hashing import key, mixed

NO_ARC = -1
"""The number of the arc of an entry that stands for none."""

UNKNOWN = "unknown"
MEAN = "mean"
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
    ids : (own + halo,) integers
        Global ids of the local vertices, own ones first.
    starts : (own + 1,) int64
        Where the entries of each own row begin.
    places : (entries,) int32
        The local vertex that each arc comes from, in the direction of M.
    numbers : (entries,) integers
        Which of the parallel arcs of its two vertices each one is, from 0.
    groups : Groups or None
        Where entries are in the order of groups.
    total : int
        Entries of all ranks' rows, each row counted once.
    of_type : range
        The vertices of all ranks that :attr:`Space.OF_TYPE` is about.
    arriving : Arriving or None
        The arcs that entries stand for; None: there are none in a folder.
    order : (arcs,) integers
        The entries in the order in which their arcs arrive.
    loops : (loops,) int64
        The entries that stand for no arc.
    """

    ids: np.ndarray
    starts: np.ndarray
    places: np.ndarray
    numbers: np.ndarray
    groups: Groups | None = None
    total: int = 0
    of_type: range = range(0)
    arriving: Arriving | None = None
    order: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))
    loops: np.ndarray = field(default_factory=partial(np.empty, 0, np.int64))

    @property
    def stored(self) -> int:
        """Arcs of the folder."""
        assert self.arriving is not None, "entries of no folder"
        return self.arriving.source.stored.graph.nnz

    @property
    def local_rows(self) -> np.ndarray:
        """The own row of each entry, (entries,) int32."""
        return entry_rows(self.starts)

    @property
    def rows(self) -> np.ndarray:
        """Global ids of the vertices that arcs lead to, (entries,) integers."""
        return np.repeat(self.ids[: len(self.starts) - 1], np.diff(self.starts))

    @property
    def columns(self) -> np.ndarray:
        """Global ids of the vertices that arcs come from, (entries,) integers."""
        return self.ids[self.places]

    @cached_property
    def keys(self) -> np.ndarray:
        """The keys of dropout, made when they are first asked for: see :func:`entry_keys`."""
        found = np.empty(len(self.places), np.uint64)
        for start in range(0, len(found), STEP):
            some = slice(start, start + STEP)
            ends = self.ids[entry_rows(self.starts, some)], self.ids[self.places[some]]
            found[some] = entry_keys(*ends, self.numbers[some])
        return found

    def some_keys(self, some: np.ndarray) -> np.ndarray:
        """The keys of some entries."""
        row = np.searchsorted(self.starts, some, side="right") - 1
        return entry_keys(self.ids[row], self.ids[self.places[some]], self.numbers[some])

    def arcs(self) -> np.ndarray:
        """Numbers of the arcs in the folder, or ``NO_ARC``, (entries,) int64.

        All ranks call it together, as :meth:`load`.
        """
        found = self._taken(lambda numbers: numbers, (), np.int64)
        found[self.loops] = NO_ARC
        return found

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
        found = self._taken(partial(_rows_at, array), array.shape[1:], array.dtype)
        if loops == UNKNOWN:
            found[self.loops] = ABSENT[found.dtype.kind]
        if loops != MEAN or not len(found):
            return found
        found, loop = found.astype(np.float64), self.local_rows == self.places
        found[loop] = 0
        first = self.starts[:-1][np.diff(self.starts) > 0]
        sums, counts = (np.add.reduceat(each, first) for each in (found, 1 - loop))
        means = sums / np.maximum(counts, 1)[:, np.newaxis]
        found[loop] = np.repeat(means, np.diff(np.append(first, len(loop))), axis=0)[loop]
        return found

    def _taken(
        self, take: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], dtype: DTypeLike
    ) -> np.ndarray:
        """Rows of the entries: those that ``take`` gives for the numbers of some arcs; or 0."""
        assert self.arriving is not None, "entries of no folder"
        found, done = np.zeros((len(self.places), *shape), dtype), 0

        def wanted(piece: Entries) -> list[np.ndarray]:
            return [take(_numbers(piece))]

        for (rows,) in self.arriving.pieces(wanted, parallel=True):
            found[self.order[done : done + len(rows)]] = rows
            done += len(rows)
        return found

    def pattern(self) -> sp.csr_array:
        """The entries over local vertices, (own, own + halo); all of its values are 1."""
        count, width = len(self.places), len(self.ids)
        # As scipy has it, columns have the type of the numbers of entries.
        short = index_dtype(max(width, count, 1))
        arrays = np.ones(count, np.int8), self.places.astype(short, copy=False)
        return sp.csr_array(
            (*arrays, self.starts.astype(short)), shape=(len(self.starts) - 1, width)
        )


def load_entry_rows(
    arriving: Arriving,
    self_loops: bool,
    own: np.ndarray,
    halo: np.ndarray,
    demand: Demand = Demand(),  # noqa: B008 (it is frozen)
) -> EntryRows:
    """Bring the ends of arcs to the ranks that have their row of M: counted, placed, done.

    Parameters
    ----------
    own, halo : (own rows,) and (halo rows,) integers
        Global ids of this rank's rows, and of those of others that its entries refer to.
    demand : Demand
        Says whether entries are in groups of the relations of arcs, which the graph has then, which
        type of vertices is looked at, and whether all self-loops of a vertex are one entry.
    """
    arriving = replace(arriving, one_loop=demand.one_loop)
    comm, stored = arriving.comm, arriving.source.stored
    rows, lengths = Places(own), np.zeros(len(own), np.int64)
    lonely = np.full(len(own), self_loops)

    def ends(piece: Entries) -> Sequence[np.ndarray]:
        return piece.row, piece.column

    for row, column in arriving.pieces(ends, check=True, parallel=True):
        here = rows.all_of(row)
        count_entries(here, lengths)
        lonely[here[row == column]] = False
    ids = np.concatenate((own, halo))
    local = np.argsort(ids, kind="stable").astype(np.int32)  # columns come by their global ids
    columns = Places(ids[local])
    count = 0

    def pieces() -> Iterator[Piece]:
        """With the place of each in the order of arrival; bits of floats are moved, no more."""
        nonlocal count
        loops = np.flatnonzero(lonely).astype(np.int32)
        of_loops = np.full(len(loops), NO_ARC, np.int64)
        yield loops, columns.all_of(own[loops]), of_loops.view(np.float64)
        for row, column in arriving.pieces(ends, parallel=True):
            came = np.arange(count, count + len(row))
            count += len(row)
            yield rows.all_of(row), columns.all_of(column), came.view(np.float64)

    starts, places, values = put(comm, lengths + lonely, pieces(), valued=True)
    assert values is not None
    came = values.view(np.int64)
    order, loops = inverse(came, count), np.flatnonzero(came == NO_ARC)
    del values, came
    numbers = np.broadcast_to(np.int32(0), len(places))
    if stored.manifest.parallel:
        numbers = run_numbers(starts, places)
    look_up_in_place(local, places)
    found = EntryRows(
        ids, starts, places, numbers,
        total=_over_ranks(len(places), arriving), of_type=vertices_of(stored, demand.type),
        arriving=arriving, order=order, loops=loops,
    )  # fmt: skip
    return _in_groups(found, arriving) if demand.groups else found


def _over_ranks(count: int, arriving: Arriving) -> int:
    """The sum over ranks of a number, where each copy of a row is counted."""
    total = np.array([count])
    reduce_in_place(arriving.comm, total)
    return int(total[0]) // len(arriving.owners(np.empty(0, np.int64)))


def _in_groups(of: EntryRows, arriving: Arriving) -> EntryRows:
    """The same entries, those of each row by their relations."""
    graph, starts = arriving.source.stored.graph, of.starts
    assert graph.arc_type is not None, "the graph has no relations"
    relation = of.load(graph.arc_type, "zero").astype(np.int32)
    moved = np.arange(len(relation))
    sort_rows(starts, relation, moved.view(np.float64), threads=1)
    now = inverse(moved, len(moved))
    begins = np.append(True, relation[1:] != relation[:-1])[: len(relation)]
    begins[starts[:-1][np.diff(starts) > 0]] = True
    first = np.flatnonzero(begins)
    row, kinds = np.searchsorted(starts, first, side="right") - 1, relation[first]
    ends = np.append(first, len(relation))
    parts = parts_of(row, np.array(graph.schema.turned)[kinds], ends)
    total = _over_ranks(len(kinds), arriving)
    return replace(
        of,
        places=of.places[moved],
        numbers=of.numbers[moved],
        order=now[of.order],
        loops=now[of.loops],
        groups=Groups(of.ids[row], kinds, ends, total, parts),
    )


def run_numbers(starts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which of the equal columns of its row each entry is, (entries,) int32; columns rise.

    >>> run_numbers(np.array([0, 3, 5]), np.array([4, 4, 5, 5, 5])).tolist()
    [0, 1, 0, 0, 1]
    """
    again = np.append(False, columns[1:] == columns[:-1])[: len(columns)]
    again[starts[:-1][np.diff(starts) > 0]] = False
    places = np.arange(len(columns))
    return (places - np.maximum.accumulate(np.where(again, 0, places))).astype(np.int32)


def _numbers(piece: Entries) -> np.ndarray:
    assert piece.number is not None, "arcs come one by one"
    return piece.number


def _rows_at(array: Readable, numbers: np.ndarray) -> np.ndarray:
    """Rows of an array on disk with rising numbers, which are not read before they are sent."""
    first, last = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
    some = array[first:last]
    return some if len(some) == len(numbers) else some[numbers - first]


def parts_of(vertex: np.ndarray, turned: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """:attr:`Groups.parts` of groups of entries, of which each is turned or not.

    >>> parts_of(np.array([0, 0, 0, 1]), np.array([False, True, False, True]), np.arange(5))
    array([0.5, 1. , 0.5, 1. ])
    """
    way, counts = 2 * vertex + turned, np.diff(starts)
    return counts / np.bincount(way, weights=counts)[way]
