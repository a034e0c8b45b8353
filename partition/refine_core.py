"""The compiled part of the refinement: what the parts look like to each net, and moves.

A net keeps how many of its pins each part holds. Two forms, so that the memory is O(pins):

* *table*: one count per part, for nets of at least k / 4 pins; read in one step, and all parts
  at once by vector instructions;
* *list*: (part, count) pairs in no order, for the others, which touch few parts.

Everything is in arrays of one tuple, ``State``, which the functions here change in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

TABLE_SHARE = 4  # a net of at least k / TABLE_SHARE pins has a table
WIDE = 128  # up to so many parts, a vertex looks at all


def compiled(function: Callable) -> Any:
    """Compile on the first call, and keep the code on disk where that is possible."""
    # No division by zero is checked for; sums may be fused, not reordered.
    settings: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
    try:
        return numba.njit(cache=True, **settings)(function)
    except RuntimeError:  # there is no folder to write to
        return numba.njit(**settings)(function)


class State(NamedTuple):
    """A hypergraph and its partition.

    Attributes
    ----------
    net_ptr, pins : (nets + 1,) int64, (pins,) int32
        The vertices of each net.
    vertex_ptr, nets : (n + 1,) int64, (pins,) int32
        The nets of each vertex.
    cost : (nets,) int64
    owner : (nets,) int32
        The vertex whose part sends along the net, one of its pins.
    parts : (n,) int32
    cells, where, table : (cells,) int32, (nets,) int64, (nets,) bool
        Pins per part: the cells of a net begin at ``where`` and are a table, or a list.
    touched : (nets,) int32
        The parts that hold pins of the net: λ.
    home : (nets,) int32
        The part of the owner.
    weights, loads, limits : (n, m), (k, m), (m,) int64
        Balance: m weights of each vertex, their sums over the parts, and the most allowed.
    sizes : (k,) int64
        Vertices of each part.
    send, recv : (k,) int64
    pairs, messages : (k, k) int64, (1,) int64
        Nets along which one part sends to another, and how many pairs have any; ``pairs`` is
        empty where messages are not counted.
    send_price, recv_price : (k,) float64
        What one more row sent, or received, by a part costs.
    """

    net_ptr: np.ndarray
    pins: np.ndarray
    vertex_ptr: np.ndarray
    nets: np.ndarray
    cost: np.ndarray
    owner: np.ndarray
    parts: np.ndarray
    cells: np.ndarray
    where: np.ndarray
    table: np.ndarray
    touched: np.ndarray
    home: np.ndarray
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


class Energy(NamedTuple):
    """What a sweep makes small: total·Σ cost·(λ−1) + Σ f(send_p) + Σ g(recv_p) + messages·pairs.

    f(s) = strength · norm / q · (s / norm)^q with q = 2^doublings, whose slope where s is the
    norm is ``strength``; g likewise. ``pressure`` is what a unit of weight beyond the limit costs.
    """

    total: float
    send_strength: float
    send_norm: float
    recv_strength: float
    recv_norm: float
    doublings: int
    pressure: float
    messages: float


@compiled
def height(volume, strength, norm, doublings):
    x = volume / norm
    for _ in range(doublings):
        x *= x
    return strength * norm * x / (1 << doublings)


@compiled
def slope(volume, strength, norm, doublings):
    if volume <= 0:
        return 0.0
    return height(volume, strength, norm, doublings) * (1 << doublings) / volume


@compiled
def set_prices(state, part, energy):
    """What one more row sent, or received, by a part costs."""
    state.send_price[part] = energy.total + slope(
        state.send[part], energy.send_strength, energy.send_norm, energy.doublings
    )
    state.recv_price[part] = slope(
        state.recv[part], energy.recv_strength, energy.recv_norm, energy.doublings
    )


@compiled
def add_pin(state, net, part):
    """Count one more pin; whether the part is new to the net."""
    at, cells = state.where[net], state.cells
    if state.table[net]:
        cells[at + part] += 1
        if cells[at + part] > 1:
            return False
    else:
        end = at + 2 * state.touched[net]
        for i in range(at, end, 2):
            if cells[i] == part:
                cells[i + 1] += 1
                return False
        cells[end], cells[end + 1] = part, 1
    state.touched[net] += 1
    return True


@compiled
def remove_pin(state, net, part):
    """Count one pin less; whether the part has left the net."""
    at, cells = state.where[net], state.cells
    if state.table[net]:
        cells[at + part] -= 1
        if cells[at + part] > 0:
            return False
    else:
        i = at
        while cells[i] != part:
            i += 2
        cells[i + 1] -= 1
        if cells[i + 1] > 0:
            return False
        last = at + 2 * (state.touched[net] - 1)
        cells[i], cells[i + 1] = cells[last], cells[last + 1]
    state.touched[net] -= 1
    return True


@compiled
def listed(state, net, found):
    """Write the parts that a net touches to ``found``; how many."""
    at, n = state.where[net], 0
    if not state.table[net]:
        for i in range(state.touched[net]):
            found[i] = state.cells[at + 2 * i]
        return state.touched[net]
    for p in range(len(state.sizes)):
        if state.cells[at + p] > 0:
            found[n] = p
            n += 1
    return n


@compiled
def send_to(state, home, part, nets):
    """Let so many nets more, or less, go from one part to another."""
    before = state.pairs[home, part]
    state.pairs[home, part] = before + nets
    state.messages[0] += (before + nets > 0) - (before > 0)


@compiled
def fill(state):
    """Count everything from ``parts``."""
    found = np.empty(len(state.sizes), np.int32)
    for v in range(len(state.parts)):
        p = state.parts[v]
        state.sizes[p] += 1
        for m in range(len(state.limits)):
            state.loads[p, m] += state.weights[v, m]
    for net in range(len(state.owner)):
        for i in range(state.net_ptr[net], state.net_ptr[net + 1]):
            add_pin(state, net, state.parts[state.pins[i]])
        home = state.parts[state.owner[net]]
        state.home[net] = home
        state.send[home] += state.cost[net] * (state.touched[net] - 1)
        for i in range(listed(state, net, found)):
            if found[i] != home:
                state.recv[found[i]] += state.cost[net]
                if len(state.pairs):
                    send_to(state, home, found[i], 1)


@compiled
def move(state, v, b, energy, found):
    """Move a vertex to part b; every count and price follows."""
    a = np.int64(state.parts[v])
    state.parts[v] = b
    state.sizes[a] -= 1
    state.sizes[b] += 1
    for m in range(len(state.limits)):
        state.loads[a, m] -= state.weights[v, m]
        state.loads[b, m] += state.weights[v, m]
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        net = state.nets[i]
        cost = state.cost[net]
        if state.owner[net] == v:
            if len(state.pairs):
                for j in range(listed(state, net, found)):
                    if found[j] != a:
                        send_to(state, a, found[j], -1)
            state.send[a] -= cost * (state.touched[net] - 1)
            if not remove_pin(state, net, a):
                state.recv[a] += cost
            if not add_pin(state, net, b):
                state.recv[b] -= cost
            state.send[b] += cost * (state.touched[net] - 1)
            state.home[net] = b
            if len(state.pairs):
                for j in range(listed(state, net, found)):
                    if found[j] != b:
                        send_to(state, b, found[j], 1)
            continue
        home = np.int64(state.home[net])
        left, new = remove_pin(state, net, a), add_pin(state, net, b)
        if left:
            state.recv[a] -= cost
            state.send[home] -= cost
        if new:
            state.recv[b] += cost
            state.send[home] += cost
        if len(state.pairs):
            if left:
                send_to(state, home, a, -1)
            if new:
                send_to(state, home, b, 1)
        if left != new:
            set_prices(state, home, energy)
    set_prices(state, a, energy)
    set_prices(state, b, energy)


@compiled
def boundary(state):
    """The vertices of nets that touch several parts."""
    marked = np.zeros(len(state.parts), np.bool_)
    for net in range(len(state.owner)):
        if state.touched[net] > 1:
            for i in range(state.net_ptr[net], state.net_ptr[net + 1]):
                marked[state.pins[i]] = True
    return np.flatnonzero(marked).astype(np.int32)


@compiled
def draw(random):
    """The next number of a generator (xorshift64*), as a float in [0, 1)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@compiled
def below(random, n):
    """A random number in 0..n−1."""
    return np.int64(draw(random) * n)


class Desk(NamedTuple):
    """Room to work in for :func:`survey`, all zero between two vertices.

    Attributes
    ----------
    near, own, plain : (k,) float64
        Cost of the nets that a part touches: those of other owners, at their owners' prices;
        those that the vertex owns; those of other owners, without prices.
    seen, candidates : (k,) bool, (k,) int64
        Parts that the vertex may move to.
    sums : (6,) float64
        ``sums[:3]``: all nets, in the three ways above; ``sums[3:]``: those that would leave the
        vertex' part with it.
    """

    near: np.ndarray
    own: np.ndarray
    plain: np.ndarray
    seen: np.ndarray
    candidates: np.ndarray
    sums: np.ndarray


@compiled
def survey(state, v, desk, wide, random):
    """Look at all nets of a vertex; how many candidates, and what its own nets send.

    With few parts (``wide``) all are candidates. With many they are those in the nets that have
    lists, and a random one; nets that have tables, which touch most parts, are only asked.
    """
    k, a = len(state.sizes), state.parts[v]
    ncandidates, ntables, sent = 0, 0, 0
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        net = state.nets[i]
        at, cost, mine = state.where[net], state.cost[net], state.owner[net] == v
        weight = cost if mine else cost * state.send_price[state.home[net]]
        target = desk.own if mine else desk.near
        if mine:
            sent += cost * (state.touched[net] - 1)
        if not state.table[net]:
            alone = False
            for c in range(at, at + 2 * state.touched[net], 2):
                p = state.cells[c]
                target[p] += weight
                if not mine:
                    desk.plain[p] += cost
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
                if not mine:
                    for p in range(k):
                        desk.plain[p] += cost if state.cells[at + p] > 0 else 0.0
        kind = 1 if mine else 0
        desk.sums[kind] += weight
        desk.sums[2] += 0 if mine else cost
        if alone:
            desk.sums[3 + kind] += weight
            desk.sums[5] += 0 if mine else cost
    if wide:
        return k, sent

    extra = below(random, k)
    if not desk.seen[extra]:
        desk.seen[extra] = True
        desk.candidates[ncandidates] = extra
        ncandidates += 1
    if ntables:
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            net = state.nets[i]
            if state.table[net]:
                at, cost, mine = state.where[net], state.cost[net], state.owner[net] == v
                weight = cost if mine else cost * state.send_price[state.home[net]]
                target = desk.own if mine else desk.near
                for c in range(ncandidates):
                    p = desk.candidates[c]
                    if state.cells[at + p] > 0:
                        target[p] += weight
                        if not mine:
                            desk.plain[p] += cost
    return ncandidates, sent


@compiled
def has_room(state, v, b):
    for m in range(len(state.limits)):
        if state.loads[b, m] + state.weights[v, m] > state.limits[m]:
            return False
    return True


@compiled
def choose(state, v, desk, ncandidates, sent, wide, energy, random):
    """The best other part that has room, −1 if there is none, and what the move would cost.

    Volumes of other owners are taken at their prices; the vertex' own nets, which change the
    volumes of two parts by a large step, at the difference of heights.
    """
    a = np.int64(state.parts[v])
    near, own, plain = desk.sums[0], desk.sums[1], desk.sums[2]
    send, q = state.send, energy.doublings
    base = near - desk.sums[3]
    if energy.send_strength > 0:
        base += height(send[a] - sent, energy.send_strength, energy.send_norm, q)
        base -= height(send[a], energy.send_strength, energy.send_norm, q)
    base += state.recv_price[a] * (own - desk.sums[4] - desk.sums[5])
    for m in range(len(state.limits)):
        over = state.loads[a, m] - state.limits[m]
        base -= energy.pressure * max(0, min(over, state.weights[v, m]))

    best, least, ties = np.int64(-1), np.inf, 0
    for c in range(ncandidates):
        b = np.int64(c) if wide else desk.candidates[c]
        if b == a:
            continue
        rise = own - desk.own[b] - desk.sums[4]
        delta = base - desk.near[b] + energy.total * rise
        delta += state.recv_price[b] * (plain - desk.plain[b] - desk.own[b])
        if delta > least:  # the rest only adds
            continue
        if energy.send_strength > 0 and sent + rise > 0:
            delta += height(send[b] + sent + rise, energy.send_strength, energy.send_norm, q)
            delta -= height(send[b], energy.send_strength, energy.send_norm, q)
        if delta > least or not has_room(state, v, b):
            continue
        # Of equals a random one, so that plateaus are crossed in all directions.
        ties = ties + 1 if delta == least else 1
        if ties == 1 or below(random, ties) == 0:
            best, least = b, delta
    return best, least


@compiled
def clear(desk, ncandidates, wide):
    desk.sums[:] = 0.0
    if wide:
        desk.near[:] = 0.0
        desk.own[:] = 0.0
        desk.plain[:] = 0.0
        desk.seen[:] = False
        return
    for i in range(ncandidates):
        p = desk.candidates[i]
        desk.near[p] = desk.own[p] = desk.plain[p] = 0.0
        desk.seen[p] = False


@compiled
def sweep(state, vertices, temperature, energy, random):
    """Offer each vertex of a list, in random order, its best other part.

    A move that costs Δ is made with probability exp(−Δ / temperature); at 0, if Δ ≤ 0. The last
    vertex of a part stays.

    Returns
    -------
    int
        Moves made.
    """
    k = len(state.sizes)
    wide = k <= WIDE
    desk = Desk(
        np.zeros(k), np.zeros(k), np.zeros(k),
        np.zeros(k, np.bool_), np.empty(k, np.int64), np.zeros(6),
    )  # fmt: skip
    found = np.empty(k, np.int32)
    moves = 0
    for p in range(k):
        set_prices(state, p, energy)
    for position in range(len(vertices)):
        other = position + below(random, len(vertices) - position)
        v = np.int64(vertices[other])
        vertices[other] = vertices[position]
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        ncandidates, sent = survey(state, v, desk, wide, random)
        b, delta = choose(state, v, desk, ncandidates, sent, wide, energy, random)
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


@compiled
def cluster(state, labels, heaviest, largest, random):
    """Join each vertex to the cluster, in its own part, that its small nets tie it to most.

    Parameters
    ----------
    labels : (n,) int32
        Receives the cluster of each vertex, numbered without gaps.
    heaviest : (m,) int64
        The most a cluster may weigh.
    largest : int
        Nets of more pins are not looked at.

    Returns
    -------
    int
        Number of clusters.
    """
    n = len(state.parts)
    weight = state.weights.copy()
    alone = np.ones(n, np.bool_)
    score = np.zeros(n)
    met = np.empty(n, np.int32)
    order = np.arange(n, dtype=np.int32)
    for v in range(n):
        labels[v] = v
    for position in range(n):
        other = position + int(draw(random) * (n - position))
        v = order[other]
        order[other] = order[position]
        if not alone[v]:
            continue
        nmet = 0
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            net = state.nets[i]
            first, last = state.net_ptr[net], state.net_ptr[net + 1]
            if last - first > largest or last - first < 2:
                continue
            tie = state.cost[net] / (last - first - 1.0)
            for j in range(first, last):
                u = state.pins[j]
                if u != v and state.parts[u] == state.parts[v]:
                    c = labels[u]
                    if score[c] == 0.0:
                        met[nmet] = c
                        nmet += 1
                    score[c] += tie
        best, rating = -1, 0.0
        for i in range(nmet):
            c = met[i]
            fits = True
            for m in range(len(state.limits)):
                if weight[c, m] + weight[v, m] > heaviest[m]:
                    fits = False
            if fits and score[c] > rating:
                best, rating = c, score[c]
            score[c] = 0.0
        if best >= 0:
            labels[v] = best
            alone[v] = alone[best] = False
            for m in range(len(state.limits)):
                weight[best, m] += weight[v, m]
    # The label of a cluster is its first member; number them.
    number = np.full(n, -1, np.int32)
    clusters = 0
    for v in range(n):
        if number[labels[v]] < 0:
            number[labels[v]] = clusters
            clusters += 1
        labels[v] = number[labels[v]]
    return clusters


@compiled
def squeeze(net_ptr, pins, labels, clusters, new_ptr, new_pins, digest):
    """The nets with clusters for vertices, each once, in increasing order, and their digests."""
    mark = np.full(clusters, -1, np.int32)
    end = 0
    for net in range(len(net_ptr) - 1):
        begin = end
        for i in range(net_ptr[net], net_ptr[net + 1]):
            c = labels[pins[i]]
            if mark[c] != net:
                mark[c] = net
                new_pins[end] = c
                end += 1
        new_pins[begin:end].sort()
        new_ptr[net + 1] = end
        value = np.uint64(end - begin)
        for i in range(begin, end):
            value = (value ^ np.uint64(new_pins[i])) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        digest[net] = value
