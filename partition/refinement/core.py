"""The compiled part of the refinement: counts of the pins of each net by part, and moves.

A net keeps how many of its pins each part holds. Two forms, so that the memory is O(pins):

* *table*: one count per part, for nets of at least k / 4 pins; read in one step, and all parts
  at once by vector instructions;
* *list*: (part, count) pairs in no order, for the others, which touch few parts.

Everything is in arrays of one tuple, ``State``, which the functions here change in place. One
record has all that a visit to a net needs: visits jump from net to net, and each array would be
fetched from memory on its own. The numbers of nets and parts are made int64 before they are
passed on: a function is compiled for every combination of types that it is called with.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

NET = np.dtype(
    {
        "names": ("where", "cost", "owner", "home", "touched", "table", "fold"),
        "formats": ("i8", "i8", "i4", "i4", "i4", "?", "?"),
    },
    align=True,
)

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


class State(NamedTuple):
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

    net_ptr: np.ndarray
    pins: np.ndarray
    vertex_ptr: np.ndarray
    nets: np.ndarray
    facts: np.ndarray
    parts: np.ndarray
    cells: np.ndarray
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
    stop: np.ndarray


class Energy(NamedTuple):
    """A sum for a sweep to lower: total·Σ cost·(λ−1) + Σ f(send_p) + Σ g(recv_p) + messages·pairs.

    f(s) = strength · norm / q · (s / norm)^q with q = 2^doublings, whose slope where s is the
    norm is ``strength``; g likewise. ``pressure`` is what a unit of weight beyond the limit costs.
    Σ ½·evenness·(load_p / limit)² is added for each weight: without a price of full parts nearly
    all would be at their limits, and hardly any vertex could move.
    """

    total: float
    send_strength: float
    send_norm: float
    recv_strength: float
    recv_norm: float
    doublings: int
    pressure: float
    messages: float
    evenness: float = 0.0


@compiled
def height(volume, strength, norm, doublings):
    """The function f of :class:`Energy`: the price of all that a part sends."""
    x = volume / norm
    for _ in range(doublings):
        x *= x
    return strength * norm * x / (1 << doublings)


@compiled
def slope(volume, strength, norm, doublings):
    """The derivative of :func:`height`."""
    if volume <= 0:
        return 0.0
    return height(volume, strength, norm, doublings) * (1 << doublings) / volume


@compiled
def set_prices(state, part, energy):
    """Set the prices of one more row that a part sends, or receives."""
    state.send_price[part] = energy.total + slope(
        state.send[part], energy.send_strength, energy.send_norm, energy.doublings
    )
    state.recv_price[part] = slope(
        state.recv[part], energy.recv_strength, energy.recv_norm, energy.doublings
    )


@compiled
def crowding(state, v, load, m, energy):
    """The cost of a weight of a vertex in a part with such a load of it."""
    limit = max(1, state.limits[m])
    return energy.evenness * state.weights[v, m] / limit * load / limit


@compiled
def add_pin(state, net, part):
    """Count one more pin; whether the part is new to the net."""
    facts, cells = state.facts[net], state.cells
    at = facts.where
    if facts.table:
        cells[at + part] += 1
        if cells[at + part] > 1:
            return False
    else:
        end = at + 2 * facts.touched
        for i in range(at, end, 2):
            if cells[i] == part:
                cells[i + 1] += 1
                return False
        cells[end], cells[end + 1] = part, 1
    facts.touched += 1
    return True


@compiled
def remove_pin(state, net, part):
    """Count one pin less; whether the part has left the net."""
    facts, cells = state.facts[net], state.cells
    at = facts.where
    if facts.table:
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
        last = at + 2 * (facts.touched - 1)
        cells[i], cells[i + 1] = cells[last], cells[last + 1]
    facts.touched -= 1
    return True


@compiled
def listed(state, net, found):
    """Write the parts that a net touches to ``found``; how many."""
    facts, n = state.facts[net], 0
    if not facts.table:
        for i in range(facts.touched):
            found[i] = state.cells[facts.where + 2 * i]
        return facts.touched
    for p in range(len(state.sizes)):
        if state.cells[facts.where + p] > 0:
            found[n] = p
            n += 1
    return n


@compiled
def send_to(state, home, part, nets, fold):
    """Let so many nets more, or less, go between a home and another part."""
    if fold:
        home, part = part, home
    before = state.pairs[home, part]
    state.pairs[home, part] = before + nets
    state.messages[0] += (before + nets > 0) - (before > 0)


@compiled
def ends(state, fold):
    """The volumes that homes of nets of a kind carry, and those that the other parts carry."""
    if fold:
        return state.recv, state.send
    return state.send, state.recv


@compiled
def fill(state):
    """Count everything from ``parts``."""
    found = np.empty(len(state.sizes), np.int32)
    count = np.zeros(len(state.sizes), np.int32)
    for v in range(len(state.parts)):
        p = state.parts[v]
        state.sizes[p] += 1
        for m in range(len(state.limits)):
            state.loads[p, m] += state.weights[v, m]
    for net in range(len(state.facts)):
        facts, cells = state.facts[net], state.cells
        # Counted here first, where it stays in the cache.
        touched = 0
        for i in range(state.net_ptr[net], state.net_ptr[net + 1]):
            p = state.parts[state.pins[i]]
            if count[p] == 0:
                found[touched] = p
                touched += 1
            count[p] += 1
        home = np.int64(state.parts[facts.owner])
        facts.home, facts.touched = home, touched
        near, far = ends(state, facts.fold)
        near[home] += facts.cost * (touched - 1)
        for i in range(touched):
            p = np.int64(found[i])
            if facts.table:
                cells[facts.where + p] = count[p]
            else:
                cells[facts.where + 2 * i], cells[facts.where + 2 * i + 1] = p, count[p]
            count[p] = 0
            if p != home:
                far[p] += facts.cost
                if len(state.pairs):
                    send_to(state, home, p, 1, facts.fold)


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
        net = np.int64(state.nets[i])
        facts = state.facts[net]
        cost, fold = facts.cost, facts.fold
        near, far = ends(state, fold)
        if facts.owner == v:
            if len(state.pairs):
                for j in range(listed(state, net, found)):
                    if found[j] != a:
                        send_to(state, a, np.int64(found[j]), -1, fold)
            near[a] -= cost * (facts.touched - 1)
            if not remove_pin(state, net, a):
                far[a] += cost
            if not add_pin(state, net, b):
                far[b] -= cost
            near[b] += cost * (facts.touched - 1)
            facts.home = b
            if len(state.pairs):
                for j in range(listed(state, net, found)):
                    if found[j] != b:
                        send_to(state, b, np.int64(found[j]), 1, fold)
            continue
        home = np.int64(facts.home)
        left, new = remove_pin(state, net, a), add_pin(state, net, b)
        if left:
            far[a] -= cost
            near[home] -= cost
        if new:
            far[b] += cost
            near[home] += cost
        if len(state.pairs):
            if left:
                send_to(state, home, a, -1, fold)
            if new:
                send_to(state, home, b, 1, fold)
        if left != new:
            set_prices(state, home, energy)
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
