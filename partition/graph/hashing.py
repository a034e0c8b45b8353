"""Hashes that stand in for random numbers: the same for the same arguments, wherever computed.

Integers of 64 bits only, so that no process, library or floating-point type changes a decision.
"""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MASK64 = 0xFFFFFFFFFFFFFFFF
_ROUNDS = 10
AT_ONCE = 1 << 15  # numbers that are permuted together: these and their hashes fit into a cache


def key(seed: int, *numbers: int) -> int:
    """A 64-bit key for a purpose: a hash of the seed and the numbers, in their order."""
    state = seed
    for number in numbers:
        state = _splitmix_int(state) ^ (number & MASK64)
    return _splitmix_int(state)


def mixed(numbers: np.ndarray, key_: int) -> np.ndarray:
    """A 64-bit hash of each number under a key (Steele, Lea and Flood 2014: SplitMix): uint64."""
    x = numbers.astype(np.uint64) * np.uint64(GOLDEN)
    x += np.uint64(key_)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def permuted(numbers: np.ndarray, n: int, key_: int, inverse: bool = False) -> np.ndarray:
    """A keyed pseudo-random permutation of 0..n−1, or its inverse, at ``numbers``: int64."""
    bits = max(2, (n - 1).bit_length())
    out = np.array(numbers, dtype=np.uint64)
    flat = out.reshape(-1)
    flat[:] = _feistel(flat, bits, key_, inverse)
    walking = np.flatnonzero(flat >= n)
    while len(walking):
        flat[walking] = _feistel(flat[walking], bits, key_, inverse)
        walking = walking[flat[walking] >= n]
    return out.astype(np.int64)


def _feistel(x: np.ndarray, bits: int, key_: int, inverse: bool) -> np.ndarray:
    """Halves of ⌊bits/2⌋ and ⌈bits/2⌉ bits take turns: each is xored with a hash of the other."""
    if len(x) > AT_ONCE:
        pieces = (x[start : start + AT_ONCE] for start in range(0, len(x), AT_ONCE))
        return np.concatenate([_feistel(piece, bits, key_, inverse) for piece in pieces])
    low = np.uint64(bits // 2)
    ones = np.uint64((1 << (bits // 2)) - 1), np.uint64((1 << (bits - bits // 2)) - 1)
    halves = [x & ones[0], x >> low]
    for turn in reversed(range(_ROUNDS)) if inverse else range(_ROUNDS):
        half = turn % 2
        hashed = mixed(halves[1 - half], key(key_, turn)) >> np.uint64(32)
        halves[half] = halves[half] ^ (hashed & ones[half])
    return halves[0] | (halves[1] << low)


def _splitmix_int(x: int) -> int:
    x = (x + GOLDEN) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)
