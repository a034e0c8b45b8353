"""Pairs of vertices on the ranks that score them: each needs the rows of both ends.

Every rank has some pairs, whoever owns their ends. A pair whose ends two ranks own is scored by one
of the two, to which the other sends the row of its end; a row that is sent serves all pairs of the
two ranks that it is in. So the pairs of two ranks are the edges of a bipartite graph between their
vertices, and the rows that are sent a vertex cover of it, as in a mixed exchange
(:mod:`partition.graph.cover`): the smallest one for pairs that are scored again and again. For
pairs of one step it is found in linear time, and the ranks score about as many pairs each: with
many pairs, all rows of one of the two ranks are the smallest cover, and the other one would have
all the work. Where the score tells the first vertex from the second, the owner of the first one
scores.

One of two ranks finds the cover and tells the other which pairs that scores. The scores can go back
to where the pairs were, and gradients of them the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.timing import Traffic
from gcnmpi.core.volume import Volume
from gcnmpi.halo.plan import Plan, plan_of
from gcnmpi.mpi.comm import Comm, redistribute
from partition.graph.cover import numbered, rows_in_cover
from partition.graph.graph import distinct, index_dtype
from partition.graph.hashing import GOLDEN

FIRST, FAST, LEAST = "first", "fast", "least"
"""Who scores: the owner of the first vertex; the end of a cover found fast, or of the least one."""

_ALIKE = 1.25  # so many times as many rows are as good as fewer, where work is shared evenly
_FEW = 0.4  # share of the rows that are worth it that one rank has the work of two
_HALF = np.uint64(1 << 63)  # of all hashes


@dataclass(frozen=True)
class Home:
    """The way of scores to the ranks where the pairs were, and of their gradients back.

    Attributes
    ----------
    order : (scored,) int64
        The pairs that this rank scores, by the rank where they were and their number there.
    sent : (P,) int64
        How many of them were on each rank.
    places, came : (pairs,) and (P,) int64
        The number here of each pair that others and this rank score, in the order in which scores
        come; how many each rank scores.
    """

    comm: Comm
    traffic: Traffic
    order: np.ndarray
    sent: np.ndarray
    places: np.ndarray
    came: np.ndarray

    def bring(self, scores: np.ndarray) -> np.ndarray:
        """Scores, (scored,) → (pairs,) float64, in the order of the pairs that this rank had."""
        found = np.empty(len(self.places))
        found[self.places] = self._moved(scores[self.order], self.sent, self.came)
        return found

    def back(self, gradients: np.ndarray) -> np.ndarray:
        """The adjoint: (pairs,) → (scored,) float64."""
        found = np.empty(len(self.order))
        found[self.order] = self._moved(gradients[self.places], self.came, self.sent)
        return found

    def volume(self, back: bool) -> Volume:
        """The volume of a way."""
        out, into = (self.came, self.sent) if back else (self.sent, self.came)
        others = np.arange(self.comm.size) != self.comm.rank
        sent, received = (8 * int(counts[others].sum()) for counts in (out, into))
        return Volume(sent, received, int(np.count_nonzero(out[others])))

    def _moved(self, numbers: np.ndarray, out: np.ndarray, into: np.ndarray) -> np.ndarray:
        numbers, found = np.ascontiguousarray(numbers, np.float64), np.empty(into.sum())
        places = np.cumsum(out) - out, np.cumsum(into) - into
        self.comm.Alltoallv([numbers, (out, places[0])], [found, (into, places[1])])
        self.traffic.count(self.volume(back=out is self.came))
        return found


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs that a rank scores, and the exchange that brings the rows that they need.

    Attributes
    ----------
    plan : Plan
        Of the rows of others.
    pattern : (nown, nown + nhalo) csr_array
        A pair is an entry: the row is that end which is the rank's own, the first vertex where the
        score tells them apart. Entries of a row are by column; several may be of the same two
        vertices.
    ids : (nown + nhalo,) integers
        Global ids of the local vertices.
    given : list of (entries, …) arrays
        What came along with each pair.
    home : Home or None
        The way of scores back, where it was asked for.
    """

    plan: Plan
    pattern: sp.csr_array
    ids: np.ndarray
    given: list[np.ndarray]
    home: Home | None


def place_pairs(
    comm: Comm,
    own: np.ndarray,
    parts: np.ndarray,
    places: np.ndarray,
    pairs: np.ndarray,
    given: Sequence[np.ndarray],
    who: str,
    max_bytes: float,
    traffic: Traffic | None = None,
) -> ScoredPairs:
    """Bring pairs to the ranks that score them; all ranks call it together.

    Parameters
    ----------
    own : (nown,) integers
        Global ids of the rows that this rank has.
    parts, places : (n,) integers
        The owner of every vertex, and the local number that it has there.
    pairs : (m, 2) integers
        Those that this rank has: global ids of the first and second vertex.
    given : sequence of (m, …) arrays
        What goes along.
    who : str
        ``FIRST``, ``FAST`` or ``LEAST``.
    max_bytes : float
        Of the buffers in which pairs travel.
    traffic : Traffic, optional
        Where the scores are counted that go back; None: they do not.
    """
    first, second = pairs[:, 0], pairs[:, 1]
    arrays = [first, second, *given]
    if traffic is not None:
        arrays += [np.full(len(pairs), comm.rank, np.int32), np.arange(len(pairs))]
    if comm.size > 1:
        decides = deciding(parts[first], parts[second], who, comm.size)
        arrays, _ = redistribute(comm, decides, arrays, max_bytes)
    if who != FIRST and comm.size > 1:
        here = scored_here(comm.rank, comm.size, parts, arrays[0], arrays[1], who)
        away = np.flatnonzero(~here)
        r, s = (parts[ends[away]] for ends in arrays[:2])
        other = np.where(r == comm.rank, s, r)
        moved, _ = redistribute(comm, other, [array[away] for array in arrays], max_bytes)
        for i in range(len(arrays)):  # one after the other: less memory
            arrays[i] = np.concatenate((arrays[i][here], moved[i]))
        del moved
    first, second, *given = arrays
    drawn = [] if traffic is None else [given.pop(), given.pop()]

    plan, row, column = _plan(comm, own, parts, places, first, second, max_bytes)
    del arrays, first, second
    if who != FIRST:
        swapped = row >= len(own)
        row[swapped], column[swapped] = column[swapped], row[swapped]
    order = in_order(column)
    order = order[in_order(row[order])]
    starts = np.zeros(len(own) + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=len(own)), out=starts[1:])
    ids = np.concatenate((own, plan.halo))
    columns = column[order].astype(index_dtype(max(len(ids), 1)))
    shape = len(own), len(ids)
    pattern = sp.csr_array((np.ones(len(order), np.int8), columns, starts), shape=shape)
    home = None
    if traffic is not None:
        number, rank = drawn
        home = _home(comm, rank[order], number[order], max_bytes, traffic)
    return ScoredPairs(plan, pattern, ids, [array[order] for array in given], home)


def in_order(numbers: np.ndarray) -> np.ndarray:
    """The order that sorts m < 2³² integers of 0..2³¹−1, (m,) int64; equal ones stay in theirs.

    A number and its place in one integer are sorted several times as fast as by ``argsort``.
    """
    both = numbers.astype(np.int64) << 32
    both |= np.arange(len(numbers))
    both.sort()
    both &= 0xFFFFFFFF
    return both


def _plan(
    comm: Comm,
    own: np.ndarray,
    parts: np.ndarray,
    places: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    max_bytes: float,
) -> tuple[Plan, np.ndarray, np.ndarray]:
    """The exchange that brings the rows of both ends of pairs, and these as local numbers."""
    away = [np.flatnonzero(parts[ends] != comm.rank) for ends in (first, second)]
    others = np.concatenate((first[away[0]], second[away[1]]))
    by_id = distinct(others)
    owners = parts[by_id]
    order = in_order(owners)
    halo, owners = by_id[order], owners[order]
    (asked,), counts = redistribute(comm, owners, [halo], max_bytes)
    plan = plan_of(own, halo, owners, places[asked].astype(np.int64), counts)
    number = np.empty(len(halo), np.int64)
    number[order] = len(own) + np.arange(len(halo))
    local = []
    for ends, some in zip((first, second), away, strict=True):
        found = places[ends].astype(np.int64)
        found[some] = number[np.searchsorted(by_id, ends[some])]
        local.append(found)
    return plan, *local


def who_scores(symmetric: bool, lasts: bool) -> str:
    """Who scores pairs, where a score is the same both ways, and where they stay for many steps."""
    if not symmetric:
        return FIRST
    return LEAST if lasts else FAST


def deciding(r: np.ndarray, s: np.ndarray, who: str, size: int) -> np.ndarray:
    """The rank that decides who scores each pair, of the owners of its first and second vertex.

    Each of ``size`` ranks decides for as many others, the next ones in a circle; of two that are
    opposite, the lower one.
    """
    if who == FIRST:
        return r
    ahead = 2 * ((s - r) % size)
    return np.where((ahead < size) | ((ahead == size) & (r < s)), r, s)


def scored_here(
    rank: int, size: int, parts: np.ndarray, first: np.ndarray, second: np.ndarray, who: str
) -> np.ndarray:
    """Which pairs a rank scores, (m,) bool, of all those that it decides on: it owns an end."""
    r, s = parts[first], parts[second]
    cut = np.flatnonzero(r != s)
    here = np.ones(len(first), bool)
    if not len(cut) or who == FIRST:
        return here
    is_mine = r[cut] == rank
    mine = np.where(is_mine, first[cut], second[cut])
    theirs = np.where(is_mine, second[cut], first[cut])
    other = np.where(is_mine, s[cut], r[cut])
    left, (_, of_left) = numbered(theirs, other)
    right, (of_right, _) = numbered(mine, other)
    if who == LEAST:
        here[cut] = _least(left, right, len(of_left), len(of_right))
    else:
        # Any half of all pairs, but always the same: of pairs, not of vertices.
        even = (mine.astype(np.uint64) + theirs.astype(np.uint64)) * np.uint64(GOLDEN) < _HALF
        halves = 2 * ((np.arange(size) - rank) % size) == size
        here[cut] = _fast(left, right, other, even, halves)
    return here


def _least(left: np.ndarray, right: np.ndarray, nleft: int, nright: int) -> np.ndarray:
    """By the minimum vertex cover: a pair is scored here if the row of the other end comes."""
    edges = distinct(left.astype(np.int64) * max(nright, 1) + right)
    rows, columns = edges // max(nright, 1), edges % max(nright, 1)
    return rows_in_cover(rows, columns, nleft, nright)[left]


def _fast(
    left: np.ndarray, right: np.ndarray, other: np.ndarray, even: np.ndarray, halves: np.ndarray
) -> np.ndarray:
    """By a cover in linear time: of each pair the end that is in more pairs is sent.

    Or, for another rank, all ends on one side, where that takes fewer rows: those of the others
    unless they are far more, so that every rank scores the pairs with half of the others. With one
    for which ``halves`` is true, the work would be this rank's alone: there it must be few rows.
    """
    of_left, of_right = np.bincount(left), np.bincount(right)
    more = of_left[left].astype(np.int64) - of_right[right]
    comes = (more > 0) | ((more == 0) & even)

    def rows(ends: np.ndarray, some: np.ndarray, count: int) -> np.ndarray:
        """How many different ends of some pairs there are, by the other rank."""
        owner = np.full(count, -1)
        owner[ends[some]] = other[some]
        return np.bincount(owner[owner >= 0], minlength=len(halves))

    every, nleft, nright = np.ones(len(left), bool), len(of_left), len(of_right)
    mixed = rows(left, comes, nleft) + rows(right, ~comes, nright)
    lefts, rights = rows(left, every, nleft), rows(right, every, nright)
    only = np.minimum(lefts, rights) <= mixed * np.where(halves, _FEW, 1.0)
    return np.where(only[other], (lefts <= _ALIKE * rights)[other], comes)


def _home(
    comm: Comm, rank: np.ndarray, number: np.ndarray, max_bytes: float, traffic: Traffic
) -> Home:
    order = in_order(rank)  # those of a rank are in its order
    sent = np.bincount(rank, minlength=comm.size).astype(np.int64)
    (places,), came = redistribute(comm, rank[order], [number[order]], max_bytes)
    return Home(comm, traffic, order, sent, places, came)
