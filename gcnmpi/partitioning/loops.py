"""The compiled loops of the partitioning: one pass over the nets or the vertices of a rank.

Numbers are integers of 64 bits, hashes of global ids stand in for random numbers, and ties are
broken by them: so a decision is the same whichever rank makes it.

Of each net a rank has a row of *facts*, (1 + 2·words) uint64: its cost and the part of its owner;
the bits of the parts that it touches; and the bits of those in which it has one pin only. That is
all that is needed to know what a vertex gains by a move.
"""

from __future__ import annotations

import numpy as np

from partition.refinement.core import compiled

SCALE = 256  # of prices and costs of moves: what a row costs
TIE = 1 << 20  # what a net of two pins ties them together by
LOW = np.uint64(0xFFFFFFFF)
ONE, ZERO = np.uint64(1), np.uint64(0)
STAY = -1


@compiled
def mix(number, key):
    """A 64-bit hash: :func:`partition.graph.hashing.mixed`."""
    x = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def bits(x):
    """How many bits are set."""
    x = x - ((x >> ONE) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def look(net_ptr, pins, owners, costs, parts, facts, changed, send):
    """Bring the facts of a rank's own nets up to date, and add up the rows that parts send.

    Marks in ``changed`` those that differ from before.
    """
    words = (facts.shape[1] - 1) // 2
    row = np.zeros(facts.shape[1], np.uint64)
    for net in range(len(owners)):
        row[:] = ZERO
        seen, again = ZERO, ZERO
        if words == 1:  # in registers
            for i in range(net_ptr[net], net_ptr[net + 1]):
                bit = ONE << np.uint64(parts[pins[i]])
                again |= seen & bit
                seen |= bit
            row[1], row[2] = seen, seen & ~again
        for i in range(net_ptr[net], net_ptr[net + 1] if words > 1 else 0):
            p = np.int64(parts[pins[i]])
            bit = ONE << np.uint64(p & 63)
            word = 1 + (p >> 6)
            # Set once: alone; set before: no longer.
            row[words + word] = (row[words + word] | bit) & ~(row[word] & bit)
            row[word] |= bit
        home = np.int64(parts[owners[net]])
        row[0] = np.uint64(costs[net]) << np.uint64(32) | np.uint64(home)
        touched = np.int64(0)
        differs = False
        for w in range(len(row)):
            if facts[net, w] != row[w]:
                facts[net, w] = row[w]
                differs = True
            if 0 < w <= words:
                touched += bits(row[w])
        changed[net] = differs
        send[home] += costs[net] * (touched - 1)


@compiled
def spread(out, first, last, x, value):
    """Add a value where the bits of a word are set."""
    for p in range(last - first):
        out[first + p] += value & -np.int64((x >> np.uint64(p)) & ONE)


@compiled
def propose(
    vertices, keys, vertex_ptr, vertex_nets, owned_ptr, facts, parts, weights,
    prices, loads, limit, crowd, temperature, salt, targets, costs, forced,
):  # fmt: skip
    """The best move of each of some vertices: its target, or STAY, and what it would cost.

    A move that costs Δ is wanted with probability exp(−Δ / temperature); out of parts beyond the
    limit, the others are told too, and marked as ``forced``.
    """
    k, words = len(prices), (facts.shape[1] - 1) // 2
    near, own_near = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for i in range(len(vertices)):
        v = vertices[i]
        a = np.int64(parts[v])
        targets[i], costs[i], forced[i] = STAY, 0, False
        base, alone, sent = np.int64(0), np.int64(0), np.int64(0)
        own, own_alone = np.int64(0), np.int64(0)
        aw, ab = 1 + (a >> 6), np.uint64(a & 63)
        inside = True
        for e in range(vertex_ptr[v], vertex_ptr[v + 1]):
            net = vertex_nets[e]
            for w in range(words):
                if facts[net, 1 + w] != ((ONE << ab) if 1 + w == aw else ZERO):
                    inside = False
            if not inside:
                break
        over = loads[a] - limit
        if inside and over <= 0:
            continue
        near[:] = 0
        own_near[:] = 0
        for e in range(vertex_ptr[v], vertex_ptr[v + 1]):
            net = vertex_nets[e]
            head = facts[net, 0]
            cost = np.int64(head >> np.uint64(32))
            single = np.int64((facts[net, words + aw] >> ab) & ONE)
            if owned_ptr[v] <= net < owned_ptr[v + 1]:
                touched = np.int64(0)
                for w in range(words):
                    x = facts[net, 1 + w]
                    touched += bits(x)
                    if x != ZERO:
                        spread(own_near, 64 * w, min(64 * w + 64, k), x, cost)
                own += cost
                own_alone += cost * single
                sent += cost * (touched - 1)
            else:
                worth = cost * prices[np.int64(head & LOW)]
                for w in range(words):
                    x = facts[net, 1 + w]
                    if x != ZERO:
                        spread(near, 64 * w, min(64 * w + 64, k), x, worth)
                base += worth
                alone += worth * single
        weight = weights[v]
        key = mix(keys[i], salt)
        turn = np.int64(key % np.uint64(k))
        best, least, order = np.int64(STAY), np.int64(0), np.int64(0)
        start = base - alone - sent * prices[a] - crowd[a] * weight
        for b in range(k):
            if b == a or loads[b] + weight > limit:
                continue
            delta = start - near[b] + (sent + own - own_near[b] - own_alone) * prices[b]
            delta += crowd[b] * weight
            place = (b + turn) % k
            if best < 0 or delta < least or (delta == least and place < order):
                best, least, order = np.int64(b), delta, place
        if best < 0:
            continue
        allowed = np.int64(0)
        if temperature > 0:
            chance = (np.float64(mix(key, salt) >> np.uint64(11)) + 0.5) / 9007199254740992.0
            allowed = np.int64(-temperature * np.log(chance))
        wanted = least < allowed or (least == 0 and key >> np.uint64(63) == ONE)
        if wanted or over > 0:
            targets[i], costs[i], forced[i] = best, least, not wanted


@compiled
def rate(
    vertices, keys, vertex_ptr, vertex_nets, owned_ptr, net_ptr, pins, costs, sizes,
    labels, homes, parts, home_parts, refused, salt, wanted, scores, table,
):  # fmt: skip
    """The cluster that its nets tie each of some vertices to most: ``wanted``, and how much.

    A vertex is tied to the owners of its nets, and to the pins of those that it owns, as far as
    they are in its part. ``table``,
    (slots, 2) int64 with a power of two of slots, more than twice the ties of a vertex, is free
    (−1) between two vertices.
    """
    used = np.empty(len(table), np.int64)
    for i in range(len(vertices)):
        v = vertices[i]
        n, ties = 0, vertex_ptr[v + 1] - vertex_ptr[v]
        ties += net_ptr[owned_ptr[v + 1]] - net_ptr[owned_ptr[v]]
        mask = np.int64(1)
        while mask <= 2 * ties:  # as few slots as will do: they stay in the cache
            mask *= 2
        mask -= 1
        for e in range(vertex_ptr[v], vertex_ptr[v + 1]):
            net = vertex_nets[e]
            if sizes[net] < 2 or owned_ptr[v] <= net < owned_ptr[v + 1]:
                continue
            if home_parts[net] != parts[v]:
                continue
            tie = costs[net] * TIE // (sizes[net] - 1)
            n = put(table, mask, used, n, homes[net], tie)
        for net in range(owned_ptr[v], owned_ptr[v + 1]):
            if sizes[net] < 2:
                continue
            tie = costs[net] * TIE // (sizes[net] - 1)
            for e in range(net_ptr[net], net_ptr[net + 1]):
                if pins[e] != v and parts[pins[e]] == parts[v]:
                    n = put(table, mask, used, n, labels[pins[e]], tie)
        best, score, order = labels[v], np.int64(0), ZERO
        for j in range(n):
            slot = used[j]
            c, s = table[slot, 0], table[slot, 1]
            table[slot, 0] = -1
            if c == refused[v]:
                continue
            place = mix(c, salt)
            if s > score or (s == score and place < order):
                best, score, order = c, s, place
        wanted[i], scores[i] = best, score


@compiled
def put(table, mask, used, n, key, value):
    """Add to the value of a key in a table of :func:`rate`; how many keys it has."""
    slot = np.int64(mix(key, 0) & np.uint64(mask))
    while table[slot, 0] != -1:
        if table[slot, 0] == key:
            table[slot, 1] += value
            return n
        slot = (slot + 1) & mask
    table[slot, 0], table[slot, 1] = key, value
    used[n] = slot
    return n + 1


@compiled
def digest(net_ptr, pins, labels, sizes, digests):
    """How many clusters each net has for pins, and a digest of them."""
    for net in range(len(sizes)):
        some = np.sort(labels[pins[net_ptr[net] : net_ptr[net + 1]]])
        value, size = ZERO, 0
        for i in range(len(some)):
            if i == 0 or some[i] != some[i - 1]:
                value += mix(some[i], 1)
                size += 1
        sizes[net], digests[net] = size, mix(value, size)


@compiled
def squeeze(net_ptr, pins, labels, chosen, new_pins):
    """Some nets with clusters for pins, increasing, each once."""
    end = 0
    for net in chosen:
        some = np.sort(labels[pins[net_ptr[net] : net_ptr[net + 1]]])
        for i in range(len(some)):
            if i == 0 or some[i] != some[i - 1]:
                new_pins[end] = some[i]
                end += 1


@compiled
def tally(numbers, first, counts):
    """Count numbers, which are ``first`` and larger."""
    for number in numbers:
        counts[number - first] += 1


@compiled
def bucket(keys, first, values, starts, out):
    """Put each value into the range of its key, in their order; ``starts`` moves to the ends.

    Keys are ``first`` and larger.
    """
    for i in range(len(keys)):
        key = keys[i] - first
        out[starts[key]] = values[i]
        starts[key] += 1


@compiled
def sort_rows(ptr, numbers):
    """Sort the numbers of each row."""
    for row in range(len(ptr) - 1):
        some = numbers[ptr[row] : ptr[row + 1]]
        some[:] = np.sort(some)


@compiled
def with_diagonal(indptr, indices, first, new_ptr, out):
    """Sorted rows with the number ``first + row`` in each, and each number once; how many."""
    end = 0
    for row in range(len(indptr) - 1):
        missing, last = True, np.int64(-1)
        for i in range(indptr[row], indptr[row + 1]):
            c = np.int64(indices[i])
            if c == last:
                continue
            last = c
            if missing and c >= first + row:
                missing = False
                if c > first + row:
                    out[end] = first + row
                    end += 1
            out[end] = c
            end += 1
        if missing:
            out[end] = first + row
            end += 1
        new_ptr[row + 1] = end
    return end
