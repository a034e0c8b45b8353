"""The mixed exchange of a partition that changes: largest matchings, kept while vertices move.

A pair of parts (s, r) sends as many rows and sums as a largest matching has edges in the bipartite
graph of its entries (``partition.graph.cover``). In all these graphs together, column j of M is a
vertex (j, r) for each part r that has entries of it, and row i a vertex (i, s) for each part s that
owns columns of them. One that leaves its graph takes its edge of the matching along, and a search
for an augmenting path from the mate it leaves says whether the matching gets smaller; one that
comes makes it larger if there is an augmenting path from it. So the counts are exact after every
move of a vertex of the graph, which is a column and a row.

To guess what a move will cost, *needed* vertices are marked, which all largest matchings
touch (Dulmage and Mendelsohn 1958). One that leaves makes the matching smaller if and only if it is
needed; one that comes makes it larger if and only if one of its neighbours is not. Marks that no
longer hold are found in passing; those that are missing, since vertices have become needed
meanwhile, by :func:`settle`: until then, moves seem to cost more than they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from partition.refinement.core import compiled, set_prices


class Side(NamedTuple):
    """The columns of M, or its rows, and their edges of the matching.

    Attributes
    ----------
    ptr, others : (n + 1,) int64, (m,) int32
        The other ends of the entries of M beside the diagonal: rows of columns, columns of rows.
    mate : (n, k) int32
        The row of part r that column j is matched with, or the column of part s that row i is
        matched with; −1: none.
    needed : (n, words) uint64
        Parts r for which (j, r) is needed, or parts s for which (i, s) is. A bit may be missing.
    """

    ptr: np.ndarray
    others: np.ndarray
    mate: np.ndarray
    needed: np.ndarray


class Matching(NamedTuple):
    """A partition of the rows and columns of M, and what its mixed exchange sends.

    Masks have a bit for each part, in words of 64.

    Attributes
    ----------
    columns, rows : Side
    parts : (n,) int32
        −1 for a vertex between two parts.
    sums : (n, words) uint64
        Of row i, the parts s whose partial sum was received when the marks were last complete.
    work : (n,) int64
        Entries of M that are multiplied where vertex i is, and sums that are added, at that time.
    fixed, counted : (n, m) int64, (m,) int64
        ``weights`` without the work, and how often it counts there.
    weights, loads, limits : (n, m), (k, m), (m,) int64
    sizes, send, recv, pairs, messages, send_price, recv_price
        Those of :class:`partition.refinement.core.State`.
    stamp, came, queue, mark, clock
        Scratch memory of searches.
    looks : (3,) int64
        Ends of entries looked at so far, a measure of time that is the same everywhere; when
        everything was last counted anew; and how many that took.
    stop : (1,) bool
        Set when the time is over: sweeps end where they are.
    """

    columns: Side
    rows: Side
    parts: np.ndarray
    sums: np.ndarray
    work: np.ndarray
    fixed: np.ndarray
    counted: np.ndarray
    weights: np.ndarray
    loads: np.ndarray
    limits: np.ndarray
    sizes: np.ndarray
    send: np.ndarray
    recv: np.ndarray
    pairs: np.ndarray
    messages: np.ndarray
    send_price: np.ndarray
    recv_price: np.ndarray
    stamp: np.ndarray
    came: np.ndarray
    queue: np.ndarray
    mark: np.ndarray
    clock: np.ndarray
    looks: np.ndarray
    stop: np.ndarray


@compiled
def bit(part):
    """The bit of a part in its word of a mask."""
    return np.uint64(1) << np.uint64(part & 63)


@compiled
def augment(side, other, closed, closing, start, here, there, state):
    """Look for an augmenting path from an unmatched vertex ``start``, and use it.

    ``start`` is a row or a column, as ``side`` is, of part ``here``, in the graph of its entries in
    ``there``; ``other`` is the other side. Vertices of the other side that are ``closed`` lead
    nowhere. With ``closing``, those that were found to do so are marked. Returns 0 if the matching
    has grown; otherwise how many vertices of this side, ``start`` included, were found: the first
    of ``state.queue``.
    """
    ptr, others, mate, other_mate = side.ptr, side.others, side.mate, other.mate
    parts = state.parts
    state.clock[0] += 1
    now = state.clock[0]
    queue, stamp, came = state.queue, state.stamp, state.came
    word, flag = here >> 6, bit(here)
    queue[0], head, tail = start, 0, 1
    while head < tail:
        x = queue[head]
        head += 1
        state.looks[0] += ptr[x + 1] - ptr[x]
        for e in range(ptr[x], ptr[x + 1]):
            y = others[e]
            if parts[y] != there or stamp[y] == now or closed[y, word] & flag:
                continue
            stamp[y] = now
            came[y] = x
            z = other_mate[y, here]
            if z >= 0:
                queue[tail] = z
                tail += 1
                continue
            while True:
                x = came[y]
                before = mate[x, there]
                mate[x, there], other_mate[y, here] = y, x
                if x == start:
                    return 0
                y = before
    if closing:
        for t in range(1, tail):
            closed[mate[queue[t], there], word] |= flag
    return tail


@compiled
def spread(side, other, start, here, there, state):
    """Clear the marks of ``start``, which stays unmatched, and of what such paths join to it.

    Parameters are those of :func:`augment`.
    """
    ptr, others, needed, other_mate = side.ptr, side.others, side.needed, other.mate
    parts, word, flag, queue = state.parts, there >> 6, bit(there), state.queue
    needed[start, word] &= ~flag
    queue[0], head, tail = start, 0, 1
    while head < tail:
        x = queue[head]
        head += 1
        state.looks[0] += ptr[x + 1] - ptr[x]
        for e in range(ptr[x], ptr[x + 1]):
            y = others[e]
            if parts[y] != there:
                continue
            z = other_mate[y, here]
            if z >= 0 and needed[z, word] & flag:
                needed[z, word] &= ~flag
                queue[tail] = z
                tail += 1


@compiled
def complete(side, other, closed, state):
    """Make the matching a largest one, and the marks of one side complete.

    ``closed`` receives the vertices of the other side that are in a cover instead of those of this
    side that are not needed.
    """
    ptr, others, mate, needed, parts = side.ptr, side.others, side.mate, side.needed, state.parts
    n, k = mate.shape
    needed[:] = np.uint64(0)
    closed[:] = np.uint64(0)
    for x in range(n):
        here = parts[x]
        for e in range(ptr[x], ptr[x + 1]):
            p = parts[others[e]]
            if p != here:
                needed[x, p >> 6] |= bit(p)
    for x in range(n):
        here = np.int64(parts[x])
        for w in range(needed.shape[1]):
            if not needed[x, w]:
                continue
            for p in range(64 * w, min(k, 64 * w + 64)):
                if mate[x, p] >= 0 or not needed[x, w] & bit(p):
                    continue
                tail = augment(side, other, closed, True, np.int64(x), here, p, state)
                for t in range(tail):
                    needed[state.queue[t], w] &= ~bit(p)


@compiled
def settle(state, imbalance):
    """Count everything anew: matching, marks, volumes, work and loads."""
    parts, k = state.parts, len(state.sizes)
    before = state.looks[0]
    columns = state.columns
    complete(state.rows, columns, state.sums, state)
    # The columns last: rows that cover columns which are not needed get sums.
    complete(columns, state.rows, state.sums, state)
    state.pairs[:] = 0
    state.send[:] = 0
    state.recv[:] = 0
    state.messages[0] = 0
    state.sizes[:] = 0
    state.loads[:] = 0
    state.work[:] = 1
    for j in range(len(parts)):
        s = parts[j]
        state.sizes[s] += 1
        for e in range(columns.ptr[j], columns.ptr[j + 1]):
            i = columns.others[e]
            r = parts[i]
            if r == s or columns.needed[j, r >> 6] & bit(r):
                state.work[i] += 1
            else:
                state.work[j] += 1
        for r in range(k):
            if columns.mate[j, r] >= 0:
                state.pairs[s, r] += 1
        for w in range(state.sums.shape[1]):
            mask = state.sums[j, w]
            while mask:
                mask &= mask - np.uint64(1)
                state.work[j] += 1
    state.looks[0] += 3 * (len(columns.others) + len(parts))
    state.looks[1] = state.looks[0]
    state.looks[2] = state.looks[0] - before
    for s in range(k):
        for r in range(k):
            state.send[s] += state.pairs[s, r]
            state.recv[r] += state.pairs[s, r]
            state.messages[0] += state.pairs[s, r] > 0
    for m in range(len(state.limits)):
        heaviest, total = np.int64(0), np.int64(0)
        for v in range(len(parts)):
            weight = state.fixed[v, m] + state.counted[m] * state.work[v]
            state.weights[v, m] = weight
            state.loads[parts[v], m] += weight
            heaviest = max(heaviest, weight)
            total += weight
        state.limits[m] = max(np.int64((1 + imbalance) * total / k), heaviest)


@compiled
def count(state, s, r, rows):
    """Let a pair of parts send so many rows more, or less."""
    before = state.pairs[s, r]
    state.pairs[s, r] = before + rows
    state.send[s] += rows
    state.recv[r] += rows
    state.messages[0] += (before + rows > 0) - (before > 0)


@compiled
def take_out(side, other, by_row, v, a, state):
    """Remove a row or a column from the graphs of part a, which ``parts`` no longer names."""
    ptr, mate, needed = side.ptr, side.mate, side.needed
    state.clock[0] += 1
    state.looks[0] += ptr[v + 1] - ptr[v]
    mark, now = state.mark, state.clock[0]
    for e in range(ptr[v], ptr[v + 1]):
        p = np.int64(state.parts[side.others[e]])
        if p == a or mark[p] == now:
            continue
        mark[p] = now
        y = np.int64(mate[v, p])
        if y < 0:
            continue
        mate[v, p] = -1
        other.mate[y, a] = -1
        marked = needed[v, p >> 6] & bit(p)
        if not marked and not augment(other, side, needed, False, y, p, a, state):
            continue
        spread(other, side, y, p, a, state)
        if by_row:
            count(state, p, a, -1)
        else:
            count(state, a, p, -1)
    needed[v, :] = np.uint64(0)


@compiled
def put_in(side, other, by_row, v, b, state):
    """Add a row or a column to the graphs of its new part b."""
    ptr, mate = side.ptr, side.mate
    state.clock[0] += 1
    state.looks[0] += ptr[v + 1] - ptr[v]
    mark, now = state.mark, state.clock[0]
    for e in range(ptr[v], ptr[v + 1]):
        y = side.others[e]
        p = np.int64(state.parts[y])
        if p == b:
            continue
        if mark[p] != now:
            mark[p] = now
            side.needed[v, p >> 6] |= bit(p)
        if mate[v, p] < 0 and other.mate[y, b] < 0:
            mate[v, p], other.mate[y, b] = y, v
    for part in range(len(mark)):
        if mark[part] != now:
            continue
        alone = mate[v, part] < 0
        if alone and augment(side, other, other.needed, False, v, b, part, state):
            spread(side, other, v, b, part, state)
        elif by_row:
            count(state, part, b, 1)
        else:
            count(state, b, part, 1)


@compiled
def move(state, v, b, energy):
    """Move a vertex to part b; every count and price follows, and marks that no longer hold."""
    a = np.int64(state.parts[v])
    state.sizes[a] -= 1
    state.sizes[b] += 1
    for m in range(len(state.limits)):
        state.loads[a, m] -= state.weights[v, m]
        state.loads[b, m] += state.weights[v, m]
    state.parts[v] = -1
    take_out(state.columns, state.rows, False, v, a, state)
    take_out(state.rows, state.columns, True, v, a, state)
    state.parts[v] = b
    put_in(state.columns, state.rows, False, v, b, state)
    put_in(state.rows, state.columns, True, v, b, state)
    for p in range(len(state.sizes)):
        set_prices(state, p, energy)


@compiled
def boundary(state):
    """The vertices with an entry whose other end is on another part."""
    marked = np.zeros(len(state.parts), np.bool_)
    for j in range(len(state.parts)):
        for e in range(state.columns.ptr[j], state.columns.ptr[j + 1]):
            i = state.columns.others[e]
            if state.parts[i] != state.parts[j]:
                marked[j] = marked[i] = True
    return np.flatnonzero(marked).astype(np.int32)


def new_matching(
    column_ptr: np.ndarray,
    rows: np.ndarray,
    parts: np.ndarray,
    k: int,
    fixed: np.ndarray,
    counted: Sequence[bool],
    imbalance: float,
    stop: np.ndarray | None = None,
) -> Matching:
    """The tables of :class:`Matching`, settled, for M by columns, whose diagonal is left out."""
    n = len(parts)
    column = np.repeat(np.arange(n, dtype=np.int32), np.diff(column_ptr))
    proper = rows != column
    shape, ones = (n, n), np.ones(int(proper.sum()), np.int8)
    by_column = sp.coo_array((ones, (column[proper], rows[proper])), shape=shape).tocsr()
    words = -(-k // 64)

    def side(entries: sp.csr_array) -> Side:
        ptr, others = entries.indptr.astype(np.int64), entries.indices.astype(np.int32, copy=False)
        return Side(ptr, others, np.full((n, k), -1, np.int32), np.zeros((n, words), np.uint64))

    weights: np.ndarray = np.zeros(fixed.shape, np.int64)
    state = Matching(
        columns=side(by_column),
        rows=side(by_column.T.tocsr()),
        parts=parts.astype(np.int32),
        sums=np.zeros((n, words), np.uint64),
        work=np.zeros(n, np.int64),
        fixed=fixed.astype(np.int64, order="C"),  # for another order all is compiled again
        counted=np.asarray(counted, np.int64),
        weights=weights,
        loads=np.zeros((k, weights.shape[1]), np.int64),
        limits=np.zeros(weights.shape[1], np.int64),
        sizes=np.zeros(k, np.int64),
        send=np.zeros(k, np.int64),
        recv=np.zeros(k, np.int64),
        pairs=np.zeros((k, k), np.int64),
        messages=np.zeros(1, np.int64),
        send_price=np.zeros(k),
        recv_price=np.zeros(k),
        stamp=np.zeros(n, np.int64),
        came=np.zeros(n, np.int32),
        queue=np.zeros(n + 1, np.int64),
        mark=np.zeros(k, np.int64),
        clock=np.zeros(1, np.int64),
        looks=np.zeros(3, np.int64),
        stop=np.zeros(1, np.bool_) if stop is None else stop,
    )
    settle(state, imbalance)
    return state


def place(state: Matching, parts: np.ndarray) -> None:
    """Other parts for all vertices: what is matched has to be found anew, by :func:`settle`."""
    state.parts[:] = parts
    state.columns.mate[:] = -1
    state.rows.mate[:] = -1
