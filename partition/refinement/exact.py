"""The compiled search of the refinement for a mixed exchange: moves at what they really cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from partition.refinement.core import below, compiled, crowding, draw, height, set_prices
from partition.refinement.matching import bit, move, settle


class Desk(NamedTuple):
    """Scratch memory of :func:`survey`.

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

    common: np.ndarray
    touched: np.ndarray
    mark: np.ndarray
    near: np.ndarray
    sends: np.ndarray
    receives: np.ndarray


@compiled
def new_desk(k, words):
    """A desk for k parts, all zero."""
    return Desk(
        np.zeros((k, words), np.uint64), np.zeros(k, np.int64), np.zeros(k, np.int64),
        np.zeros(k), np.zeros(k, np.int64), np.zeros(k, np.int64),
    )  # fmt: skip


@compiled
def gather(side, other, v, desk, visit, state):
    """For each part that the vertex has entries with, where all their other ends are needed."""
    ptr, needed, n, words = side.ptr, other.needed, 0, desk.common.shape[1]
    state.looks[0] += ptr[v + 1] - ptr[v]
    for e in range(ptr[v], ptr[v + 1]):
        y = side.others[e]
        p = state.parts[y]
        if desk.mark[p] != visit:
            desk.mark[p] = visit
            desk.touched[n] = p
            n += 1
            for w in range(words):
                desk.common[p, w] = needed[y, w]
        else:
            for w in range(words):
                desk.common[p, w] &= needed[y, w]
    return n


@compiled
def survey(state, v, desk, visit):
    """The cost of the vertex on each part; and the costs that its own part would be rid of."""
    desk.near[:] = 0.0
    desk.sends[:] = 0
    desk.receives[:] = 0
    columns, rows = state.columns, state.rows
    gain, sent = survey_side(
        columns, rows, state.recv_price, desk.sends, 0.0, v, desk, visit, state
    )
    gain, received = survey_side(
        rows, columns, state.send_price, desk.receives, gain, v, desk, visit + 1, state
    )
    return gain, sent, received


@compiled
def survey_side(side, other, prices, counts, gain, v, desk, visit, state):
    """The same of the vertex's column, along which it sends, or its row, along which it receives.

    ``counts`` are its rows on each part; to ``gain`` is added what its own part would be rid of.
    """
    fewer = 0
    for t in range(gather(side, other, v, desk, visit, state)):
        p = desk.touched[t]
        for b in range(len(state.sizes)):
            if b != p and not desk.common[p, b >> 6] & bit(b):
                desk.near[b] += prices[p]
                counts[b] += 1
        if p != state.parts[v] and side.needed[v, p >> 6] & bit(p):
            gain += prices[p]
            fewer += 1
    return gain, fewer


@compiled
def has_room(state, v, b, most):
    """Whether the part can take the vertex within every limit, or stay below ``most`` times it."""
    for m in range(len(state.limits)):
        load, limit = state.loads[b, m] + state.weights[v, m], state.limits[m]
        if load > limit and load >= most * limit:
            return False
    return True


@compiled
def fullness(state, p):
    """The load of a part over its limit, for the weight of which that is largest."""
    most = 0.0
    for m in range(len(state.limits)):
        most = max(most, state.loads[p, m] / max(1, state.limits[m]))
    return most


@compiled
def rise(volume, rows, strength, norm, doublings):
    """The cost of so many rows more, or less, for a part beside the total."""
    if strength == 0 or rows == 0:
        return 0.0
    return height(volume + rows, strength, norm, doublings) - height(
        volume, strength, norm, doublings
    )


@compiled
def choose(state, v, desk, lost, energy, relieving, random):
    """The best other part that has room, −1 if there is none, and what the move would cost.

    Where parts are relieved, one that is less full than the vertex's own has room: of several
    weights, each move can bring one nearer to its limit that brings another beyond it.
    """
    a = np.int64(state.parts[v])
    most = fullness(state, a) if relieving else 1.0
    gain, fewer_sent, fewer_received = lost
    base = -gain - energy.total * fewer_sent
    base += rise(
        state.send[a], -fewer_sent, energy.send_strength, energy.send_norm, energy.doublings
    )
    base += rise(
        state.recv[a], -fewer_received, energy.recv_strength, energy.recv_norm, energy.doublings
    )
    for m in range(len(state.limits)):
        over = state.loads[a, m] - state.limits[m]
        base -= energy.pressure * max(0, min(over, state.weights[v, m]))
        base -= crowding(state, v, state.loads[a, m] - state.weights[v, m], m, energy)
    best, least, ties = np.int64(-1), np.inf, 0
    for b in range(len(state.sizes)):
        if b == a:
            continue
        delta = base + desk.near[b] + energy.total * desk.sends[b]
        for m in range(len(state.limits)):
            delta += crowding(state, v, state.loads[b, m], m, energy)
        if delta > least:  # the rest only adds
            continue
        delta += rise(
            state.send[b], desk.sends[b], energy.send_strength, energy.send_norm, energy.doublings
        )
        delta += rise(
            state.recv[b], desk.receives[b], energy.recv_strength, energy.recv_norm,
            energy.doublings,
        )  # fmt: skip
        if delta > least or not has_room(state, v, b, most):
            continue
        if relieving:
            for m in range(len(state.limits)):
                over = state.loads[b, m] + state.weights[v, m] - state.limits[m]
                delta += energy.pressure * max(0, min(over, state.weights[v, m]))
            if delta > least:
                continue
        # Of equals a random one, so that plateaus are crossed in all directions.
        ties = ties + 1 if delta == least else 1
        if ties == 1 or below(random, ties) == 0:
            best, least = np.int64(b), delta
    return best, least


@compiled
def sweep(state, vertices, temperature, energy, relieving, random, imbalance, every, most):
    """Offer each vertex of a list, in random order, its best other part.

    As :func:`partition.refinement.moves.sweep`; with a negative temperature, only moves that gain
    more than its amount are made. All is counted anew when ``every`` entries have
    been looked at since the last time, and at the end. It ends early when ``most`` have been in
    all, or ``state.stop`` is set.
    """
    k = len(state.sizes)
    desk = new_desk(k, state.sums.shape[1])
    moves = 0
    for p in range(k):
        set_prices(state, p, energy)
    for position in range(len(vertices)):
        if state.stop[0] or state.looks[0] > most:
            break
        other = position + below(random, len(vertices) - position)
        v = np.int64(vertices[other])
        vertices[other] = vertices[position]
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        lost = survey(state, v, desk, 2 * position + 1)
        b, delta = choose(state, v, desk, lost, energy, relieving, random)
        if b < 0:
            continue
        # A random tolerance for Δ, with the probabilities above.
        tolerance = temperature
        if temperature > 0:
            tolerance *= -np.log(1.0 - draw(random))
        if delta > tolerance:
            continue
        messages = state.messages[0]
        move(state, v, b, energy)
        moves += 1
        if energy.messages > 0:
            delta += energy.messages * (state.messages[0] - messages)
            if delta > tolerance:
                move(state, v, a, energy)
        if state.looks[0] - state.looks[1] > every:
            settle(state, imbalance)
            for p in range(k):
                set_prices(state, p, energy)
    settle(state, imbalance)
    return moves
