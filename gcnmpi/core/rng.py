"""Random numbers that depend on what they are for, never on who computes them.

Initial weights are a function of (seed, layer); a dropout decision is a function of (seed,
epoch, layer, global vertex, global column), computed in 32- and 64-bit integers only. So they are
the same for every number of ranks, partition, scheme, kernel and floating-point type.
"""

from __future__ import annotations

import numpy as np

_MASK64 = 0xFFFFFFFFFFFFFFFF
# Step and multipliers of SplitMix64, and multipliers of the 32-bit mixer; kernels that compute the
# hash themselves use the same.
GOLDEN = 0x9E3779B97F4A7C15
SPLIT1, SPLIT2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MIX1, MIX2 = 0x7FEB352D, 0x846CA68B
_STEP = 1 << 13  # keys that are made at a time: what that takes fits the L2 cache


def glorot(seed: int, layer: int, d_in: int, d_out: int) -> np.ndarray:
    """Initial weights of a layer: uniform in ±√(6 / (d_in + d_out)), (d_in, d_out) float64.

    Glorot and Bengio 2010, equation 16, as in PyTorch Geometric's ``GCNConv``.
    """
    return uniform(seed, layer, np.sqrt(6.0 / (d_in + d_out)), (d_in, d_out))


def uniform(seed: int, stream: int, bound: float, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers in ±bound that depend on (seed, stream) only, float64."""
    generator = np.random.Generator(np.random.Philox(key=[seed, stream]))
    return generator.uniform(-bound, bound, size=shape)


def row_keys(seed: int, epoch: int, layer: int, vertices: np.ndarray) -> np.ndarray:
    """Dropout keys of global vertices, (rows,) uint64, different for each epoch and layer."""
    start = np.uint64(first_key(seed, epoch, layer))
    keys = np.empty(len(vertices), np.uint64)
    for first in range(0, len(keys), _STEP):
        piece = slice(first, first + _STEP)
        keys[piece] = _splitmix(vertices[piece].astype(np.uint64) * np.uint64(GOLDEN) + start)
    return keys


def first_key(seed: int, epoch: int, layer: int) -> int:
    """The start of the keys of an epoch and layer: key v is splitmix(v·GOLDEN + this)."""
    base = seed
    for number in (epoch, layer):
        base = _splitmix_int(base) ^ number
    return _splitmix_int(base)


def column_keys(columns: np.ndarray) -> np.ndarray:
    """Dropout keys of global columns, (columns,) uint32."""
    return (_splitmix(columns.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def threshold(p: float) -> np.uint32:
    """The integer below which a hash means "dropped", for a dropout probability p < 1."""
    return np.uint32(min(round(p * 2**32), 2**32 - 1))


def hash_block(rows: np.ndarray, columns: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """Hash of every (row key, column key) pair into ``out``, (rows, columns) uint32.

    The column key is xored with the low half of the row key and mixed; the high half comes in
    between the two multiplications, so that equal columns of two rows stay unrelated.
    ``scratch`` is a second array of that shape.
    """
    low = (rows & np.uint64(0xFFFFFFFF)).astype(np.uint32)[:, np.newaxis]
    high = (rows >> np.uint64(32)).astype(np.uint32)[:, np.newaxis]
    np.bitwise_xor(low, columns, out=out)
    _xor_shift(out, 16, scratch)
    np.multiply(out, np.uint32(MIX1), out=out)
    np.add(out, high, out=out)
    _xor_shift(out, 15, scratch)
    np.multiply(out, np.uint32(MIX2), out=out)
    _xor_shift(out, 16, scratch)


def _xor_shift(x: np.ndarray, bits: int, scratch: np.ndarray) -> None:
    np.right_shift(x, np.uint32(bits), out=scratch)
    np.bitwise_xor(x, scratch, out=x)


def _splitmix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(SPLIT1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SPLIT2)
    return x ^ (x >> np.uint64(31))


def _splitmix_int(x: int) -> int:
    x = (x + GOLDEN) & _MASK64
    x = ((x ^ (x >> 30)) * SPLIT1) & _MASK64
    x = ((x ^ (x >> 27)) * SPLIT2) & _MASK64
    return x ^ (x >> 31)
