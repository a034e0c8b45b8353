"""The compiled search of the refinement: a vertex looks at its nets, chooses a part, and moves.

A net keeps how many of its pins each part holds. Two forms, so that the memory is O(pins):

* *table*: one count per part, for nets of at least k / 4 pins; read in one step, and all parts
  at once by vector instructions;
* *list*: (part, count) pairs in no order, for the others, which touch few parts.

Everything is in arrays of one tuple, ``State``, which the functions here change in place. One
record has all that a visit to a net needs: visits jump from net to net, and each array would be
fetched from memory on its own. The numbers of nets and parts are made int64 before they are
passed on: a function is compiled for every combination of types that it is called with.
"""

import contextlib
import os
import stat
import tempfile
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

_FACTS = "where:i8 cost:i8 owner:i4 home:i4 touched:i4 table:? fold:?"
NET = np.dtype([tuple(fact.split(":")) for fact in _FACTS.split()], align=True)

T = TypeVar("T")


def compiled(function: Callable[..., T]) -> Callable[..., T]:
    """Compile on the first call, and keep the code on disk where that is possible."""
    # No division by zero is checked for; sums may be fused, not reordered. Threads that tell of the
    # progress, and that the time is over, run meanwhile.
    njit = partial(numba.njit, error_model="numpy", fastmath={"contract", "nsz"}, nogil=True)
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # neither beside this file nor at home can anything be written
        settings: Any = numba.config
        settings.CACHE_DIR = _private_folder()
        return njit(cache=bool(settings.CACHE_DIR))(function)


def _private_folder() -> str:
    """A folder for temporary files that nobody else can write to; "" where there is none.

    Numba executes the code that it finds there.
    """
    folder = Path(tempfile.gettempdir()) / f"gcnmpi-numba-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid == os.getuid() and found.st_mode == stat.S_IFDIR | 0o700:
            return str(folder)
    return ""


class State(
    namedtuple(
        "State",
        "net_ptr pins vertex_ptr nets facts parts cells weights loads limits sizes send recv "
        "pairs messages send_price recv_price stop",
    )
):
    """A hypergraph and its partition.

    Attributes
    ----------
    net_ptr, pins : (nets + 1,) int64, (pins,) int32
        The vertices of each net.
    vertex_ptr, nets : (n + 1,) int64, (pins,) int32
        The nets of each vertex.
    facts : (nets,) NET
        Of each net its ``cost``; its ``owner``, the vertex whose part sends along it, one of its
        pins; ``home``, the part of the owner; ``touched``, how many parts hold pins of it: λ;
        ``where`` its cells begin, and whether they are a ``table``, or a list; whether it is a
        ``fold``, along which the other parts send to the home.
    parts : (n,) int32
    cells : (cells,) int32
        Pins per part.
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
    stop : (1,) bool
        Set when the time is over: sweeps end where they are.
    """


class Price(NamedTuple):
    """The price of all that a part sends, or receives: strength · norm / q · (volume / norm)^q.

    Here q is 2^doublings, and the slope where the volume is the norm is ``strength``.
    """

    strength: float
    norm: float
    doublings: int


class Energy(NamedTuple):
    """A sum for a sweep to lower: total·Σ cost·(λ−1) + Σ send(p) + Σ recv(p) + messages·pairs.

    ``pressure`` is what a unit of weight beyond the limit costs. Σ ½·evenness·(load_p / limit)² is
    added for each weight: without a price of full parts nearly all would be at their limits, and
    hardly any vertex could move.
    """

    total: float
    send: Price
    recv: Price
    pressure: float
    messages: float
    evenness: float = 0.0


# Costs of nets on a desk: those of other owners, at their homes' prices; those that the vertex
# owns; those of other owners, without prices; and the last two of folds, which they leave out.
NEAR, _OWN, _PLAIN, _OWN_FOLDS, _PLAIN_FOLDS = range(5)
WIDE = 128  # up to so many parts, a vertex looks at all


class _Desk(namedtuple("Desk", "costs sums seen candidates")):
    """Scratch memory of :func:`survey`, all zero between two vertices.

    Attributes
    ----------
    costs : (5, k) float64
        Cost of the nets that a part touches, in the five ways above.
    sums : (5, 2) float64
        Of all nets, and of those that would leave the vertex' part with it.
    seen, candidates : (k,) bool, (k,) int64
        Parts that the vertex may move to.
    """


def counters(
    k: int, weights: np.ndarray, messages: bool, stop: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Counts of every state, by the names in :class:`State`: all zero."""
    volumes = {name: np.zeros(k, np.int64) for name in ("sizes", "send", "recv")}
    return volumes | {
        "weights": weights,
        "loads": np.zeros((k, weights.shape[1]), np.int64),
        "pairs": np.zeros((k, k) if messages else (0, 0), np.int64),
        "messages": np.zeros(1, np.int64),
        "send_price": np.zeros(k),
        "recv_price": np.zeros(k),
        "stop": np.zeros(1, np.bool_) if stop is None else stop,
    }


@compiled
def height(volume, price):
    """A :class:`Price` of a volume."""
    x = volume / price.norm
    for _ in range(price.doublings):
        x *= x
    return price.strength * price.norm * x / (1 << price.doublings)


@compiled
def _slope(volume, price):
    """The derivative of :func:`height`."""
    if volume <= 0:
        return 0.0
    return height(volume, price) * (1 << price.doublings) / volume


@compiled
def set_prices(state, part, energy):
    """Set the prices of one more row that a part sends, or receives."""
    state.send_price[part] = energy.total + _slope(state.send[part], energy.send)
    state.recv_price[part] = _slope(state.recv[part], energy.recv)


@compiled
def leaving(state, v, energy, cost):
    """A cost, less what the weights of a vertex cost on its part."""
    a = state.parts[v]
    for m in range(len(state.limits)):
        over = state.loads[a, m] - state.limits[m]
        cost -= energy.pressure * max(0, min(over, state.weights[v, m]))
        cost -= _crowding(state, v, state.loads[a, m] - state.weights[v, m], m, energy)
    return cost


@compiled
def arriving(state, v, b, energy, cost):
    """A cost, and what the weights of a vertex cost on a part within its limits."""
    for m in range(len(state.limits)):
        cost += _crowding(state, v, state.loads[b, m], m, energy)
    return cost


@compiled
def _crowding(state, v, load, m, energy):
    """The cost of a weight of a vertex in a part with such a load of it."""
    limit = max(1, state.limits[m])
    return energy.evenness * state.weights[v, m] / limit * load / limit


@compiled
def _count_pin(state, net, part, by):
    """Count a pin more, or less; whether the part is new to the net, or has left it."""
    facts, cells = state.facts[net], state.cells
    at = facts.where
    if facts.table:
        cells[at + part] += by
        if cells[at + part] != (by > 0):
            return False
    else:
        i, end = at, at + 2 * facts.touched
        while i < end and cells[i] != part:
            i += 2
        if i == end:
            cells[i], cells[i + 1] = part, 1
        else:
            cells[i + 1] += by
            if cells[i + 1] > 0:
                return False
            cells[i], cells[i + 1] = cells[end - 2], cells[end - 1]
    facts.touched += by
    return True


@compiled
def send_to(state, home, part, nets, fold):
    """Let so many nets more, or less, go between a home and another part."""
    if fold:
        home, part = part, home
    before = state.pairs[home, part]
    state.pairs[home, part] = before + nets
    state.messages[0] += (before + nets > 0) - (before > 0)


@compiled
def _ends(state, fold):
    """The volumes that homes of nets of a kind carry, and those that the other parts carry."""
    if fold:
        return state.recv, state.send
    return state.send, state.recv


@compiled
def _carry(state, net, home, by):
    """Let a net go, or no longer go, between a home and each other part that it touches."""
    facts = state.facts[net]
    near, far = _ends(state, facts.fold)
    near[home] += by * facts.cost * (facts.touched - 1)
    for i in range(len(state.sizes) if facts.table else facts.touched):
        p = np.int64(i if facts.table else state.cells[facts.where + 2 * i])
        if p != home and (not facts.table or state.cells[facts.where + p] > 0):
            far[p] += by * facts.cost
            if len(state.pairs):
                send_to(state, home, p, by, facts.fold)


@compiled
def fill(state):
    """Count everything from ``parts``."""
    for v in range(len(state.parts)):
        p = state.parts[v]
        state.sizes[p] += 1
        for m in range(len(state.limits)):
            state.loads[p, m] += state.weights[v, m]
    for net in range(len(state.facts)):
        facts = state.facts[net]
        for i in range(state.net_ptr[net], state.net_ptr[net + 1]):
            _count_pin(state, net, np.int64(state.parts[state.pins[i]]), 1)
        facts.home = state.parts[facts.owner]
        _carry(state, net, np.int64(facts.home), 1)


@compiled
def move_weights(state, v, a, b):
    """Count a vertex and its weights in part b, and no longer in part a."""
    state.sizes[a] -= 1
    state.sizes[b] += 1
    for m in range(len(state.limits)):
        state.loads[a, m] -= state.weights[v, m]
        state.loads[b, m] += state.weights[v, m]


@compiled
def move(state, v, b, energy):
    """Move a vertex to part b; every count and price follows."""
    a = np.int64(state.parts[v])
    state.parts[v] = b
    move_weights(state, v, a, b)
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        net = np.int64(state.nets[i])
        facts = state.facts[net]
        home, cost = np.int64(facts.home), facts.cost
        if facts.owner == v:
            _carry(state, net, a, -1)
        left, new = _count_pin(state, net, a, -1), _count_pin(state, net, b, 1)
        if facts.owner == v:
            facts.home = b
            _carry(state, net, b, 1)
            continue
        near, far = _ends(state, facts.fold)
        far[a] -= cost * left
        far[b] += cost * new
        if left != new:
            near[home] += cost * (new - left)
            set_prices(state, home, energy)
        if len(state.pairs):
            if left:
                send_to(state, home, a, -1, facts.fold)
            if new:
                send_to(state, home, b, 1, facts.fold)
    set_prices(state, a, energy)
    set_prices(state, b, energy)


@compiled
def boundary(state):
    """The vertices of nets that touch several parts."""
    marked = np.zeros(len(state.parts), np.bool_)
    for net in range(len(state.facts)):
        if state.facts[net].touched > 1:
            for i in range(state.net_ptr[net], state.net_ptr[net + 1]):
                marked[state.pins[i]] = True
    return np.flatnonzero(marked).astype(np.int32)


@compiled
def _draw(random):
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
    return np.int64(_draw(random) * n)


@compiled
def take(vertices, position, random):
    """A random one of the vertices of a list from a position on, which swaps places with it."""
    other = position + below(random, len(vertices) - position)
    v = np.int64(vertices[other])
    vertices[other] = vertices[position]
    return v


@compiled
def tolerance(temperature, random):
    """A random loss to take: one of Δ is taken with probability exp(−Δ / temperature)."""
    return -temperature * np.log(1.0 - _draw(random)) if temperature > 0 else 0.0


@compiled
def new_desk(k):
    """A desk for k parts, all zero."""
    return _Desk(np.zeros((5, k)), np.zeros((5, 2)), np.zeros(k, np.bool_), np.empty(k, np.int64))


@compiled
def meet(desk, part, ncandidates):
    """Make a part a candidate if it is none; how many there are."""
    if desk.seen[part]:
        return ncandidates
    desk.seen[part] = True
    desk.candidates[ncandidates] = part
    return ncandidates + 1


@compiled
def _note(costs, at, kind, plain, weight, cost):
    """Note a net in a column, by its kind; and without prices, if it is of another owner."""
    costs[kind, at] += weight
    if kind == NEAR:
        costs[plain, at] += cost


@compiled
def survey(state, v, desk, wide, receiving, random):
    """Look at all nets of a vertex; how many candidates, and what its own nets and folds carry.

    With few parts (``wide``) all are candidates. With many they are those in the nets that have
    lists, and a random one; nets that have tables, which touch most parts, are only asked. The
    plain costs matter, and are filled, where receiving has a price.
    """
    k, a = len(state.sizes), state.parts[v]
    ncandidates, ntables, sent, folded = 0, 0, 0, 0
    for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
        facts = state.facts[state.nets[i]]
        at, cost, mine = facts.where, facts.cost, facts.owner == v
        kind, plain, weight = _price_of(state, facts, mine)
        if mine and facts.fold:
            folded += cost * (facts.touched - 1)
        elif mine:
            sent += cost * (facts.touched - 1)
        alone = False
        if not facts.table:
            for c in range(at, at + 2 * facts.touched, 2):
                p = state.cells[c]
                _note(desk.costs, p, kind, plain, weight, cost)
                ncandidates = meet(desk, p, ncandidates)
                if p == a:
                    alone = state.cells[c + 1] == 1
        else:
            alone = state.cells[at + a] == 1
            ntables += 1
            if wide:
                of_kind, of_plain = desk.costs[kind], desk.costs[plain]
                for p in range(k):
                    of_kind[p] += weight if state.cells[at + p] > 0 else 0.0
                if not mine and (receiving or facts.fold):
                    for p in range(k):
                        of_plain[p] += cost if state.cells[at + p] > 0 else 0.0
        _note(desk.sums, 0, kind, plain, weight, cost)
        if alone:
            _note(desk.sums, 1, kind, plain, weight, cost)
    if wide:
        return k, sent, folded

    ncandidates = meet(desk, below(random, k), ncandidates)
    if ntables:
        for i in range(state.vertex_ptr[v], state.vertex_ptr[v + 1]):
            facts = state.facts[state.nets[i]]
            if facts.table:
                kind, plain, weight = _price_of(state, facts, facts.owner == v)
                for c in range(ncandidates):
                    p = desk.candidates[c]
                    if state.cells[facts.where + p] > 0:
                        _note(desk.costs, p, kind, plain, weight, facts.cost)
    return ncandidates, sent, folded


@compiled
def _price_of(state, facts, mine):
    """Where on the desk a net is noted, with prices and without, and its weight with them."""
    plain = _PLAIN_FOLDS if facts.fold else _PLAIN
    if mine:
        return _OWN_FOLDS if facts.fold else _OWN, plain, float(facts.cost)
    price = state.recv_price if facts.fold else state.send_price
    return NEAR, plain, facts.cost * price[facts.home]


@compiled
def has_room(state, v, b, most):
    """Whether the part can take the vertex within every limit, or stay below ``most`` times it."""
    for m in range(len(state.limits)):
        load, limit = state.loads[b, m] + state.weights[v, m], state.limits[m]
        if load > limit and load >= most * limit:
            return False
    return True


@compiled
def choose(state, v, desk, seen, wide, energy, random):
    """The best other part that has room, −1 if there is none, and what the move would cost.

    Volumes of other owners are taken at their prices; the vertex' own nets, which change the
    volumes of two parts by a large step, at the difference of heights. ``seen`` is what
    :func:`survey` returned.
    """
    a = np.int64(state.parts[v])
    ncandidates, sent, folded = seen
    costs, of_all, of_alone = desk.costs, desk.sums[:, 0], desk.sums[:, 1]
    send, recv = state.send, state.recv
    base = of_all[NEAR] - of_alone[NEAR]
    if energy.send.strength > 0:
        base = base + height(send[a] - sent, energy.send) - height(send[a], energy.send)
    if energy.recv.strength > 0 and folded > 0:
        base = base + height(recv[a] - folded, energy.recv) - height(recv[a], energy.recv)
    base += state.recv_price[a] * (of_all[_OWN] - of_alone[_OWN] - of_alone[_PLAIN])
    base += state.send_price[a] * (
        of_all[_OWN_FOLDS] - of_alone[_OWN_FOLDS] - of_alone[_PLAIN_FOLDS]
    )
    base = leaving(state, v, energy, base)

    best, least, ties = np.int64(-1), np.inf, 0
    for c in range(ncandidates):
        b = np.int64(c) if wide else desk.candidates[c]
        if b == a:
            continue
        rise = of_all[_OWN] - costs[_OWN, b] - of_alone[_OWN]
        delta = base - costs[NEAR, b] + energy.total * rise
        delta += state.recv_price[b] * (of_all[_PLAIN] - costs[_PLAIN, b] - costs[_OWN, b])
        delta += state.send_price[b] * (
            of_all[_PLAIN_FOLDS] - costs[_PLAIN_FOLDS, b] - costs[_OWN_FOLDS, b]
        )
        delta = arriving(state, v, b, energy, delta)
        if delta > least:  # the rest only adds
            continue
        if energy.send.strength > 0 and sent + rise > 0:
            delta = (
                delta + height(send[b] + sent + rise, energy.send) - height(send[b], energy.send)
            )
        rise = of_all[_OWN_FOLDS] - costs[_OWN_FOLDS, b] - of_alone[_OWN_FOLDS]
        if energy.recv.strength > 0 and folded + rise > 0:
            delta = (
                delta + height(recv[b] + folded + rise, energy.recv) - height(recv[b], energy.recv)
            )
        if delta > least or not has_room(state, v, b, 1.0):
            continue
        # Of equals a random one, so that plateaus are crossed in all directions.
        ties = ties + 1 if delta == least else 1
        if ties == 1 or below(random, ties) == 0:
            best, least = b, delta
    return best, least


@compiled
def sweep(state, vertices, temperature, energy, random):
    """Offer each vertex of a list, in random order, its best other part.

    A move that costs Δ is made with probability exp(−Δ / temperature); at 0, if Δ ≤ 0. The last
    vertex of a part stays. It ends early when ``state.stop`` is set.
    """
    k = len(state.sizes)
    wide, desk = k <= WIDE, new_desk(k)
    for p in range(k):
        set_prices(state, p, energy)
    for position in range(len(vertices)):
        if state.stop[0]:
            break
        v = take(vertices, position, random)
        a = np.int64(state.parts[v])
        if state.sizes[a] == 1:
            continue
        seen = survey(state, v, desk, wide, energy.recv.strength > 0, random)
        b, delta = choose(state, v, desk, seen, wide, energy, random)
        desk.sums[:] = 0.0
        for c in range(seen[0]):
            p = c if wide else desk.candidates[c]
            desk.seen[p] = False
            desk.costs[:, p] = 0.0
        if b < 0:
            continue
        most = tolerance(temperature, random)
        if delta > most:
            continue
        messages = state.messages[0]
        move(state, v, b, energy)
        if energy.messages > 0:
            delta += energy.messages * (state.messages[0] - messages)
            if delta > most:
                move(state, v, a, energy)
