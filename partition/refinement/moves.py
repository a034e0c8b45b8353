"""The compiled search of the refinement: a vertex looks at its nets, chooses a part, and moves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from partition.refinement.core import below, compiled, crowding, draw, height, move, set_prices

WIDE = 128  # up to so many parts, a vertex looks at all


class Desk(NamedTuple):
    """Scratch memory of :func:`survey`, all zero between two vertices.

    Attributes
    ----------
    near, own, plain : (k,) float64
        Cost of the nets that a part touches: those of other owners, at their homes' prices;
        those that the vertex owns; those of other owners, without prices.
    own_folds, plain_folds : (k,) float64
        The same for folds, which ``own`` and ``plain`` leave out.
    seen, candidates : (k,) bool, (k,) int64
        Parts that the vertex may move to.
    sums : (10,) float64
        ``sums[:5]``: all nets, in the five ways above, in their order; ``sums[5:]``: those that
        would leave the vertex' part with it.
    """

    near: np.ndarray
    own: np.ndarray
    plain: np.ndarray
    own_folds: np.ndarray
    plain_folds: np.ndarray
    seen: np.ndarray
    candidates: np.ndarray
    sums: np.ndarray


@compiled
def new_desk(k):
    """A desk for k parts, all zero."""
    return Desk(
        np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k),
        np.zeros(k, np.bool_), np.empty(k, np.int64), np.zeros(10),
    )  # fmt: skip


@compiled
def survey(state, v, desk, wide, receiving, random):
    """Look at all nets of a vertex; how many candidates, and what its own nets and folds carry.

    With few parts (``wide``) all are candidates. With many they are those in the nets that have
    lists, and a random one; nets that have tables, which touch most parts, are only asked.
    ``desk.plain`` matters, and is filled, where receiving has a price.
    """
    k, a = len(state.sizes), state.parts[v]
    ncandidates, ntables, sent, folded = 0, 0, 0, 0
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        facts = state.facts[state.nets[i]]
        at, cost, mine = facts.where, facts.cost, facts.owner == v
        weight, target, plain = price_of(state, facts, mine, desk)
        far = not mine and (receiving or facts.fold)
        if mine and facts.fold:
            folded += cost * (facts.touched - 1)
        elif mine:
            sent += cost * (facts.touched - 1)
        if not facts.table:
            alone = False
            for c in range(at, at + 2 * facts.touched, 2):
                p = state.cells[c]
                target[p] += weight
                if not mine:
                    plain[p] += cost
                if not desk.seen[p]:
                    desk.seen[p] = True
                    desk.candidates[ncandidates] = p
                    ncandidates += 1
                if p == a:
                    alone = state.cells[c + 1] == 1
        else:
            alone = state.cells[at + a] == 1
            ntables += 1
            if wide:
                for p in range(k):
                    target[p] += weight if state.cells[at + p] > 0 else 0.0
                if far:
                    for p in range(k):
                        plain[p] += cost if state.cells[at + p] > 0 else 0.0
        kind = (3 if facts.fold else 1) if mine else 0
        desk.sums[kind] += weight
        if alone:
            desk.sums[5 + kind] += weight
        if not mine:
            kind = 4 if facts.fold else 2
            desk.sums[kind] += cost
            if alone:
                desk.sums[5 + kind] += cost
    if wide:
        return k, sent, folded

    extra = below(random, k)
    if not desk.seen[extra]:
        desk.seen[extra] = True
        desk.candidates[ncandidates] = extra
        ncandidates += 1
    if ntables:
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            facts = state.facts[state.nets[i]]
            if facts.table:
                at, cost, mine = facts.where, facts.cost, facts.owner == v
                weight, target, plain = price_of(state, facts, mine, desk)
                for c in range(ncandidates):
                    p = desk.candidates[c]
                    if state.cells[at + p] > 0:
                        target[p] += weight
                        if not mine:
                            plain[p] += cost
    return ncandidates, sent, folded


@compiled
def price_of(state, facts, mine, desk):
    """The weight of a net for a part that touches it, and where on the desk that is noted."""
    plain = desk.plain_folds if facts.fold else desk.plain
    if mine:
        return float(facts.cost), desk.own_folds if facts.fold else desk.own, plain
    price = state.recv_price if facts.fold else state.send_price
    return facts.cost * price[facts.home], desk.near, plain


@compiled
def has_room(state, v, b):
    """Whether the part can take the vertex within every limit."""
    for m in range(len(state.limits)):
        if state.loads[b, m] + state.weights[v, m] > state.limits[m]:
            return False
    return True


@compiled
def choose(state, v, desk, ncandidates, sent, folded, wide, energy, random):
    """The best other part that has room, −1 if there is none, and what the move would cost.

    Volumes of other owners are taken at their prices; the vertex' own nets, which change the
    volumes of two parts by a large step, at the difference of heights.
    """
    a = np.int64(state.parts[v])
    near, own, plain = desk.sums[0], desk.sums[1], desk.sums[2]
    own_folds, plain_folds = desk.sums[3], desk.sums[4]
    send, recv, q = state.send, state.recv, energy.doublings
    base = near - desk.sums[5]
    if energy.send_strength > 0:
        base += height(send[a] - sent, energy.send_strength, energy.send_norm, q)
        base -= height(send[a], energy.send_strength, energy.send_norm, q)
    if energy.recv_strength > 0 and folded > 0:
        base += height(recv[a] - folded, energy.recv_strength, energy.recv_norm, q)
        base -= height(recv[a], energy.recv_strength, energy.recv_norm, q)
    base += state.recv_price[a] * (own - desk.sums[6] - desk.sums[7])
    base += state.send_price[a] * (own_folds - desk.sums[8] - desk.sums[9])
    for m in range(len(state.limits)):
        over = state.loads[a, m] - state.limits[m]
        base -= energy.pressure * max(0, min(over, state.weights[v, m]))
        base -= crowding(state, v, state.loads[a, m] - state.weights[v, m], m, energy)

    best, least, ties = np.int64(-1), np.inf, 0
    for c in range(ncandidates):
        b = np.int64(c) if wide else desk.candidates[c]
        if b == a:
            continue
        rise = own - desk.own[b] - desk.sums[6]
        delta = base - desk.near[b] + energy.total * rise
        delta += state.recv_price[b] * (plain - desk.plain[b] - desk.own[b])
        delta += state.send_price[b] * (plain_folds - desk.plain_folds[b] - desk.own_folds[b])
        for m in range(len(state.limits)):
            delta += crowding(state, v, state.loads[b, m], m, energy)
        if delta > least:  # the rest only adds
            continue
        if energy.send_strength > 0 and sent + rise > 0:
            delta += height(send[b] + sent + rise, energy.send_strength, energy.send_norm, q)
            delta -= height(send[b], energy.send_strength, energy.send_norm, q)
        rise = own_folds - desk.own_folds[b] - desk.sums[8]
        if energy.recv_strength > 0 and folded + rise > 0:
            delta += height(recv[b] + folded + rise, energy.recv_strength, energy.recv_norm, q)
            delta -= height(recv[b], energy.recv_strength, energy.recv_norm, q)
        if delta > least or not has_room(state, v, b):
            continue
        # Of equals a random one, so that plateaus are crossed in all directions.
        ties = ties + 1 if delta == least else 1
        if ties == 1 or below(random, ties) == 0:
            best, least = b, delta
    return best, least


@compiled
def clear(desk, ncandidates, wide):
    """Make the desk zero again."""
    desk.sums[:] = 0.0
    if wide:
        desk.near[:] = 0.0
        desk.own[:] = 0.0
        desk.plain[:] = 0.0
        desk.own_folds[:] = 0.0
        desk.plain_folds[:] = 0.0
        desk.seen[:] = False
        return
    for i in range(ncandidates):
        p = desk.candidates[i]
        desk.near[p] = desk.own[p] = desk.plain[p] = 0.0
        desk.own_folds[p] = desk.plain_folds[p] = 0.0
        desk.seen[p] = False


@compiled
def sweep(state, vertices, temperature, energy, random):
    """Offer each vertex of a list, in random order, its best other part.

    A move that costs Δ is made with probability exp(−Δ / temperature); at 0, if Δ ≤ 0. The last
    vertex of a part stays. It ends early when ``state.stop`` is set. Returns the moves made.
    """
    k = len(state.sizes)
    wide, receiving = k <= WIDE, energy.recv_strength > 0
    desk = new_desk(k)
    found = np.empty(k, np.int32)
    moves = 0
    for p in range(k):
        set_prices(state, p, energy)
    for position in range(len(vertices)):
        if state.stop[0]:
            break
        other = position + below(random, len(vertices) - position)
        v = np.int64(vertices[other])
        vertices[other] = vertices[position]
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        ncandidates, sent, folded = survey(state, v, desk, wide, receiving, random)
        b, delta = choose(state, v, desk, ncandidates, sent, folded, wide, energy, random)
        clear(desk, ncandidates, wide)
        if b < 0:
            continue
        # A random tolerance for Δ, with the probabilities above.
        tolerance = -temperature * np.log(1.0 - draw(random)) if temperature > 0 else 0.0
        if delta > tolerance:
            continue
        messages = state.messages[0]
        move(state, v, b, energy, found)
        moves += 1
        if energy.messages > 0:
            delta += energy.messages * (state.messages[0] - messages)
            if delta > tolerance:
                move(state, v, a, energy, found)
                moves -= 1
    return moves
