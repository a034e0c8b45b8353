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

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partition.deadline import Deadline
from partition.graph.aggregation import columns
from partition.graph.graph import Graph
from partition.graph.sparse import sp
from partition.models.descriptions import medium_grain_model
from partition.refinement import core
from partition.refinement.objective import OBJECTIVES
from partition.refinement.search import COLDEST, HOTTEST, Annealing, refine


class _Side(namedtuple("Side", "ptr others mate needed")):
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


class _Matching(
    namedtuple(
        "Matching",
        "columns rows parts sums work fixed counted weights loads limits sizes send recv pairs "
        "messages send_price recv_price stamp came queue mark clock looks stop",
    )
):
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


@core.compiled
def _bit(part):
    """The bit of a part in its word of a mask."""
    return np.uint64(1) << np.uint64(part & 63)


@core.compiled
def _augment(side, other, closed, closing, start, here, there, state):
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
    word, flag = here >> 6, _bit(here)
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


@core.compiled
def _spread(side, other, start, here, there, state):
    """Clear the marks of ``start``, which stays unmatched, and of what such paths join to it.

    Parameters are those of :func:`_augment`.
    """
    ptr, others, needed, other_mate = side.ptr, side.others, side.needed, other.mate
    parts, word, flag, queue = state.parts, there >> 6, _bit(there), state.queue
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


@core.compiled
def _complete(side, other, closed, state):
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
                needed[x, p >> 6] |= _bit(p)
    for x in range(n):
        here = np.int64(parts[x])
        for w in range(needed.shape[1]):
            if not needed[x, w]:
                continue
            for p in range(64 * w, min(k, 64 * w + 64)):
                if mate[x, p] >= 0 or not needed[x, w] & _bit(p):
                    continue
                tail = _augment(side, other, closed, True, np.int64(x), here, p, state)
                for t in range(tail):
                    needed[state.queue[t], w] &= ~_bit(p)


@core.compiled
def settle(state, imbalance):
    """Count everything anew: matching, marks, volumes, work and loads."""
    parts, k = state.parts, len(state.sizes)
    before = state.looks[0]
    columns = state.columns
    _complete(state.rows, columns, state.sums, state)
    # The columns last: rows that cover columns which are not needed get sums.
    _complete(columns, state.rows, state.sums, state)
    state.pairs[:] = 0
    state.sizes[:] = 0
    state.loads[:] = 0
    state.work[:] = 1
    for j in range(len(parts)):
        s = parts[j]
        state.sizes[s] += 1
        for e in range(columns.ptr[j], columns.ptr[j + 1]):
            i = columns.others[e]
            r = parts[i]
            if r == s or columns.needed[j, r >> 6] & _bit(r):
                state.work[i] += 1
            else:
                state.work[j] += 1
        for r in range(k):
            state.pairs[s, r] += columns.mate[j, r] >= 0
        for w in range(state.sums.shape[1]):
            mask = state.sums[j, w]
            while mask:
                mask &= mask - np.uint64(1)
                state.work[j] += 1
    state.looks[0] += 3 * (len(columns.others) + len(parts))
    state.looks[1] = state.looks[0]
    state.looks[2] = state.looks[0] - before
    state.send[:] = state.pairs.sum(axis=1)
    state.recv[:] = state.pairs.sum(axis=0)
    state.messages[0] = np.count_nonzero(state.pairs)
    for m in range(len(state.limits)):
        weights = state.weights[:, m]
        weights[:] = state.fixed[:, m] + state.counted[m] * state.work
        for v in range(len(parts)):
            state.loads[parts[v], m] += weights[v]
        state.limits[m] = max(np.int64((1 + imbalance) * weights.sum() / k), weights.max())


@core.compiled
def _count(state, by_row, s, r, rows):
    """Let part s send so many rows more, or less, to part r; the other way round for a row of s."""
    core.send_to(state, s, r, rows, by_row)
    if by_row:
        s, r = r, s
    state.send[s] += rows
    state.recv[r] += rows


@core.compiled
def _take_out(side, other, by_row, v, a, state):
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
        marked = needed[v, p >> 6] & _bit(p)
        if not marked and not _augment(other, side, needed, False, y, p, a, state):
            continue
        _spread(other, side, y, p, a, state)
        _count(state, by_row, a, p, -1)
    needed[v, :] = np.uint64(0)


@core.compiled
def _put_in(side, other, by_row, v, b, state):
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
            side.needed[v, p >> 6] |= _bit(p)
        if mate[v, p] < 0 and other.mate[y, b] < 0:
            mate[v, p], other.mate[y, b] = y, v
    for part in range(len(mark)):
        if mark[part] != now:
            continue
        alone = mate[v, part] < 0
        if alone and _augment(side, other, other.needed, False, v, b, part, state):
            _spread(side, other, v, b, part, state)
        else:
            _count(state, by_row, b, part, 1)


@core.compiled
def move(state, v, b, energy):
    """Move a vertex to part b; every count and price follows, and marks that no longer hold."""
    a = np.int64(state.parts[v])
    core.move_weights(state, v, a, b)
    state.parts[v] = -1
    _take_out(state.columns, state.rows, False, v, a, state)
    _take_out(state.rows, state.columns, True, v, a, state)
    state.parts[v] = b
    _put_in(state.columns, state.rows, False, v, b, state)
    _put_in(state.rows, state.columns, True, v, b, state)
    for p in range(len(state.sizes)):
        core.set_prices(state, p, energy)


@core.compiled
def _boundary(state):
    """The vertices with an entry whose other end is on another part."""
    marked = np.zeros(len(state.parts), np.bool_)
    for j in range(len(state.parts)):
        for e in range(state.columns.ptr[j], state.columns.ptr[j + 1]):
            i = state.columns.others[e]
            if state.parts[i] != state.parts[j]:
                marked[j] = marked[i] = True
    return np.flatnonzero(marked).astype(np.int32)


def new_matching(
    columns: tuple[np.ndarray, np.ndarray], parts: np.ndarray, k: int, fixed: np.ndarray,
    counted: Sequence[bool], imbalance: float, stop: np.ndarray | None = None,
) -> _Matching:  # fmt: skip
    """The tables of :class:`_Matching`, settled, for M by columns, whose diagonal is left out."""
    n, (column_ptr, rows) = len(parts), columns
    column = np.repeat(np.arange(n, dtype=np.int32), np.diff(column_ptr))
    proper = rows != column
    ones = np.ones(int(proper.sum()), np.int8)
    by_column = sp.coo_array((ones, (column[proper], rows[proper])), shape=(n, n)).tocsr()
    words = -(-k // 64)

    def side(entries: sp.csr_array) -> _Side:
        ptr, others = entries.indptr.astype(np.int64), entries.indices.astype(np.int32, copy=False)
        return _Side(ptr, others, np.full((n, k), -1, np.int32), np.zeros((n, words), np.uint64))

    scratch = {"work": n, "stamp": n, "queue": n + 1, "mark": k, "clock": 1, "looks": 3}
    state = _Matching(
        columns=side(by_column),
        rows=side(by_column.T.tocsr()),
        parts=parts.astype(np.int32),
        sums=np.zeros((n, words), np.uint64),
        fixed=fixed.astype(np.int64, order="C"),  # for another order all is compiled again
        counted=np.asarray(counted, np.int64),
        limits=np.zeros(fixed.shape[1], np.int64),
        came=np.zeros(n, np.int32),
        **{name: np.zeros(size, np.int64) for name, size in scratch.items()},
        **core.counters(k, np.zeros(fixed.shape, np.int64), True, stop),
    )
    settle(state, imbalance)
    return state


class _PartDesk(namedtuple("PartDesk", "common touched mark near sends receives")):
    """Scratch memory of :func:`survey`, for each part.

    Attributes
    ----------
    common : (k, words) uint64
        For a part that the vertex has entries with: the parts where its own row, or column, would
        be sent at no cost.
    touched : (k,) int64
        Those parts.
    mark : (k,) int64
        Which entry of ``common`` is of which visit.
    near, sends, receives : (k,) float64, (k,) int64, (k,) int64
        If the vertex were on that part: the price of what others would send and receive more, and
        how many rows the part itself would.
    """


@core.compiled
def new_desk(k, words):
    """A desk for k parts, all zero."""
    return _PartDesk(
        np.zeros((k, words), np.uint64), np.zeros(k, np.int64), np.zeros(k, np.int64),
        np.zeros(k), np.zeros(k, np.int64), np.zeros(k, np.int64),
    )  # fmt: skip


@core.compiled
def survey(state, v, desk, visit):
    """The cost of the vertex on each part; and the costs that its own part would be rid of."""
    desk.near[:] = 0.0
    desk.sends[:] = 0
    desk.receives[:] = 0
    of_column = state.columns, state.rows, state.recv_price
    of_row = state.rows, state.columns, state.send_price
    gain, sent = _survey_side(of_column, desk.sends, 0.0, v, desk, visit, state)
    gain, received = _survey_side(of_row, desk.receives, gain, v, desk, visit + 1, state)
    return gain, sent, received


@core.compiled
def _survey_side(sides, counts, gain, v, desk, visit, state):
    """The same of the vertex's column, along which it sends, or its row, along which it receives.

    ``counts`` are its rows on each part; to ``gain`` is added what its own part would be rid of.
    """
    side, other, prices = sides
    ptr, needed, met, fewer = side.ptr, other.needed, 0, 0
    state.looks[0] += ptr[v + 1] - ptr[v]
    # For each part that the vertex has entries with, where all their other ends are needed.
    for e in range(ptr[v], ptr[v + 1]):
        y = side.others[e]
        p = state.parts[y]
        if desk.mark[p] != visit:
            desk.mark[p] = visit
            desk.touched[met] = p
            met += 1
            desk.common[p, :] = needed[y, :]
        else:
            for w in range(desk.common.shape[1]):
                desk.common[p, w] &= needed[y, w]
    for t in range(met):
        p = desk.touched[t]
        for b in range(len(state.sizes)):
            if b != p and not desk.common[p, b >> 6] & _bit(b):
                desk.near[b] += prices[p]
                counts[b] += 1
        if p != state.parts[v] and side.needed[v, p >> 6] & _bit(p):
            gain += prices[p]
            fewer += 1
    return gain, fewer


@core.compiled
def _fullness(state, p):
    """The load of a part over its limit, for the weight of which that is largest."""
    most = 0.0
    for m in range(len(state.limits)):
        most = max(most, state.loads[p, m] / max(1, state.limits[m]))
    return most


@core.compiled
def _rise(volume, rows, price):
    """The cost of so many rows more, or less, for a part beside the total."""
    if price.strength == 0 or rows == 0:
        return 0.0
    return core.height(volume + rows, price) - core.height(volume, price)


@core.compiled
def choose(state, v, desk, lost, energy, relieving, random):
    """The best other part that has room, −1 if there is none, and what the move would cost.

    Where parts are relieved, one that is less full than the vertex's own has room: of several
    weights, each move can bring one nearer to its limit that brings another beyond it.
    """
    a = np.int64(state.parts[v])
    most = _fullness(state, a) if relieving else 1.0
    gain, fewer_sent, fewer_received = lost
    base = -gain - energy.total * fewer_sent
    base += _rise(state.send[a], -fewer_sent, energy.send)
    base += _rise(state.recv[a], -fewer_received, energy.recv)
    base = core.leaving(state, v, energy, base)
    best, least, ties = np.int64(-1), np.inf, 0
    for b in range(len(state.sizes)):
        if b == a:
            continue
        delta = base + desk.near[b] + energy.total * desk.sends[b]
        delta = core.arriving(state, v, b, energy, delta)
        if delta > least:  # the rest only adds
            continue
        delta += _rise(state.send[b], desk.sends[b], energy.send)
        delta += _rise(state.recv[b], desk.receives[b], energy.recv)
        if delta > least or not core.has_room(state, v, b, most):
            continue
        if relieving:
            for m in range(len(state.limits)):
                over = state.loads[b, m] + state.weights[v, m] - state.limits[m]
                delta += energy.pressure * max(0, min(over, state.weights[v, m]))
            if delta > least:
                continue
        # Of equals a random one, so that plateaus are crossed in all directions.
        ties = ties + 1 if delta == least else 1
        if ties == 1 or core.below(random, ties) == 0:
            best, least = np.int64(b), delta
    return best, least


@core.compiled
def _sweep(state, vertices, temperature, energy, relieving, random, imbalance, every, most):
    """Offer each vertex of a list, in random order, its best other part.

    As :func:`partition.refinement.core.sweep`; with a negative temperature, only moves that gain
    more than its amount are made. All is counted anew when ``every`` entries have
    been looked at since the last time, and at the end. It ends early when ``most`` have been in
    all, or ``state.stop`` is set.
    """
    k = len(state.sizes)
    desk = new_desk(k, state.sums.shape[1])
    for p in range(k):
        core.set_prices(state, p, energy)
    for position in range(len(vertices)):
        if state.stop[0] or state.looks[0] > most:
            break
        v = core.take(vertices, position, random)
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        lost = survey(state, v, desk, 2 * position + 1)
        b, delta = choose(state, v, desk, lost, energy, relieving, random)
        if b < 0:
            continue
        loss = core.tolerance(temperature, random) if temperature > 0 else temperature
        if delta > loss:
            continue
        messages = state.messages[0]
        move(state, v, b, energy)
        if energy.messages > 0:
            delta += energy.messages * (state.messages[0] - messages)
            if delta > loss:
                move(state, v, a, energy)
        if state.looks[0] - state.looks[1] > every:
            settle(state, imbalance)
            for p in range(k):
                core.set_prices(state, p, energy)
    settle(state, imbalance)


_CLUSTERS = 0.01  # effort of a round of the first step: it only goes downhill
_ROUNDS = 12  # of them, at most
_ROUND = 0.2  # of the time that is left, for one of them at most
_BEFORE_LAST = 0.8  # of what is left then, for annealing
_AHEAD = 0.05  # of that time, by which the clock may be ahead of the work before it decides
_LOOKS = 1_200_000_000  # at ends of entries, while annealing: about a minute,
_FEWEST, _MOST = 4, 200  # and sweeps
_RELIEVING = 0.25  # of as many looks, whatever the effort, each time that the balance is restored
_FLAT = 3  # of them that only make moves that gain, at most
_TOLERANCE = 0.04  # how much worse heating may make the partition, per unit of weight
_HOPELESS = 0.5  # of the cooling, after which a partition that is still worse will remain so
_SETTLED = 12  # looks at each entry after which all is counted anew: three times what that takes,
_RELIEVED = 0.25  # and while the balance is restored; or this share of what it took the last time
_CELLS = 1 << 28  # vertices times parts beyond which there is no memory to match them
_LAST = 3  # further sweeps, each after the balance is restored, for an effort of 1
_GAIN = 1e-6  # what their moves gain at least: others would change the balance for nothing
_REPAIRS = 8  # rounds that restore the balance, at most
# What a unit of weight beyond the limit costs, in rows that are sent for a unit of work:
_RELIEF = (1.0, 5.0, 20.0)  # one after the other while the balance is restored, then
_PRESSED = 100.0  # whole rows
_PRESSURE = 10.0  # in all other sweeps
_EVENNESS = 5.0  # Energy.evenness over the mean volume that a part sends, while annealing
_WORTH = 5.0  # per cent of the objective that one per cent of weight beyond the limit counts as


def refine_mixed(
    graph: Graph, parts: np.ndarray, k: int, fixed: np.ndarray | None = None,
    counted: Sequence[bool] = (True,), *, direction: str = "in", **options: Any,
) -> np.ndarray:  # fmt: skip
    """Move rows between the parts so that the mixed exchange gets smaller, within the balance.

    The work is balanced where it is done: entries under a partial sum are the sender's, and each
    sum that arrives weighs as much as an entry. ``fixed``, (n, m) integers, are the weights of the
    vertices beside their work, by default nothing for one weight; ``counted`` says which of the m
    weights the work is added to. All else is as for :func:`partition.refinement.search.refine`.
    """
    start = np.asarray(parts, np.int32)
    if k == 1 or not graph.nnz:
        return start
    wanted: dict[str, Any] = {"objective": OBJECTIVES["mixed"], "deadline": Deadline()} | options
    asked = Annealing(**wanted)
    deadline, effort = asked.deadline, min(1.0, asked.effort)
    base = np.zeros((graph.n, 1), np.int64) if fixed is None else np.asarray(fixed, np.int64)

    def move_clusters(parts: np.ndarray, weights: np.ndarray | None, **changes: Any) -> np.ndarray:
        model = medium_grain_model(graph, direction, parts)
        if weights is None:
            weights = base + np.outer(model.weights, counted)
        model = replace(model, weights=weights[:, 0])
        return refine(model, parts, k, extra_weights=weights[:, 1:], **wanted | changes)

    if graph.n * k > _CELLS:
        return move_clusters(start, None)
    with deadline.flag() as stop:
        entries = columns(graph, direction)
        matching = new_matching(entries, start, k, base, counted, asked.imbalance, stop)
        search = _MixedSearch(matching, **wanted)
        for i in range(max(1, round(_ROUNDS * effort))):
            kept, before = matching.parts.copy(), search.worth()
            changes = {"seed": asked.seed + i, "deadline": deadline.part(_ROUND, paced=False)}
            search.place(move_clusters(kept, matching.weights, effort=_CLUSTERS, **changes))
            search.improve()
            if search.worth() >= before:
                search.place(kept)
                break
            if deadline.over():
                break
        search.relieve()
        if search.excess() > search.rank[0]:  # several weights may leave no way back to balance
            search.place(search.best)
        search.anneal(deadline.part(_BEFORE_LAST))
        for _ in range(max(1, round(_LAST * effort))):
            if deadline.over():
                break
            search.relieve()
            search.improve()
        search.relieve()
        return search.best


@dataclass
class _MixedSearch(Annealing):
    """A matching, what it is improved by, and the best parts it has had."""

    state: _Matching
    sweeps = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.best, self.rank = self.state.parts.copy(), self._rank()

    def place(self, parts: np.ndarray) -> None:
        """Begin with other parts: what is matched has to be found anew."""
        self.state.parts[:] = parts
        self.state.columns.mate[:] = -1
        self.state.rows.mate[:] = -1
        self._settle()

    def anneal(self, deadline: Deadline) -> None:
        """Up, in a quarter of the sweeps at most; slowly down, or faster where time is short."""
        state, work = self.state, _LOOKS * self.effort
        first, done = int(state.looks[0]), self.sweeps
        most = first + int(work)

        def spent() -> float:
            sweeps = (self.sweeps - done) / max(_FEWEST, _MOST * self.effort)
            share = max((int(state.looks[0]) - first) / work, sweeps)
            clock = deadline.spent() - _AHEAD if deadline.paced else float(deadline.over())
            if clock > share:
                deadline.decide()
            return max(clock, share)

        kept, before = state.parts.copy(), self.value(state)
        ceiling = self.value(state, smooth=True) + _TOLERANCE * self.objective.sum()
        temperature = COLDEST
        while temperature < HOTTEST and spent() < 0.25:
            self._sweep(temperature, most)
            if self.value(state, smooth=True) > ceiling:
                break
            temperature = COLDEST * (HOTTEST / COLDEST) ** (4 * spent())
        hot = spent()
        while spent() < 0.9:
            cooled = (spent() - hot) / (0.9 - hot)
            self._sweep(temperature * (COLDEST / temperature) ** cooled, most)
            if cooled > _HOPELESS and self.value(state, smooth=True) > ceiling:
                break
        if self.value(state) > before:
            # Of web graphs, single vertices cannot find the way back.
            self.place(kept)
        for _ in range(_FLAT):
            if spent() < 1:
                self._sweep(-_GAIN, most)
        self._settle()

    def relieve(self) -> None:
        """Move vertices out of the parts that are too heavy, as cheaply as may be.

        A move changes covers, and so the work of others: a little more is asked for each time.
        """
        looks = self.state.looks
        most = looks[0] + int(_RELIEVING * _LOOKS)
        for asked in np.linspace(self.imbalance, 0, _REPAIRS + 1)[:-1]:
            if not self._rank()[0] or looks[0] > most or self.deadline.over():
                return
            settle(self.state, float(asked))
            every = int(_RELIEVED * max(len(self.state.rows.others), looks[2]))
            # Cheap moves first.
            for pressure in (*(self._rows_for_work() * rate for rate in _RELIEF), _PRESSED):
                heavy = np.asarray((self.state.loads > self.state.limits).any(axis=1))
                vertices = np.flatnonzero(heavy[self.state.parts]).astype(np.int32)
                if len(vertices) and not self.state.stop[0] and looks[0] <= most:
                    energy = self.energy_at(self.state, pressure)
                    numbers = (self.random, float(asked), every, most)
                    _sweep(self.state, vertices, -_GAIN, energy, True, *numbers)
            self._settle()

    def improve(self) -> None:
        """A sweep that makes only moves that gain something: others would change the balance."""
        self._sweep(-_GAIN)
        self._settle()

    def _sweep(self, temperature: float, most: int = np.iinfo(np.int64).max) -> None:
        self.sweeps += 1
        evenness = _EVENNESS if temperature > 0 else 0.0
        energy = self.energy_at(self.state, _PRESSURE * self._rows_for_work(), evenness)
        every = int(max(_SETTLED * len(self.state.rows.others), 3 * self.state.looks[2]))
        numbers = (self.random, self.imbalance, every, most)
        heat = self.objective.sum() * temperature
        _sweep(self.state, _boundary(self.state), heat, energy, False, *numbers)

    def _settle(self) -> None:
        """Count what no longer changes, and keep it if it is the best."""
        settle(self.state, self.imbalance)
        rank = self._rank()
        if rank < self.rank:
            self.best, self.rank = self.state.parts.copy(), rank

    def _rows_for_work(self) -> float:
        """Rows that are sent for a unit of weight, on average."""
        return float(self.state.send.sum() / max(1, self.state.loads.sum()))

    def worth(self) -> float:
        """The objective, and about what it takes to restore the balance: less is better."""
        return self.value(self.state) + _WORTH * self.objective.sum() * self.excess()

    def excess(self) -> float:
        """How far the heaviest part is over its limit."""
        loads, limits = self.state.loads, self.state.limits
        return max(0.0, float((loads / np.maximum(limits, 1)).max()) - 1)

    def _rank(self) -> tuple[float, float]:
        """The excess and the objective: less is better."""
        return self.excess(), self.value(self.state)
