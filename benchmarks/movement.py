"""How many bytes a sparse × dense product moves between memory and cache, by three counts.

**compulsory**: everything once, as with a cache that holds all: M, the rows of X that M touches,
and the result. **gathered**: a row of X again for every entry of M, as without a cache.
**cached**: a row of X again where the cache has lost it since its last use.

The cache of the last count is one fully associative LRU cache, empty at first, that sees the rows
of M one after the other. A row of X is still there if what passed through since its last use fits:
other rows of X, M and the result, which stream by and are used once. How many distinct rows of X
pass is taken from the average over the whole product of windows of that many entries, the
*footprint* (Xiang, Ding, Luo and Bao, HOTL, ASPLOS 2013), which needs one sort instead of a
simulation. Rows take whole lines of the cache; where a line holds several rows, lines are what is
counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

LINE = 64  # bytes of a cache line
INDEX, POINTER = 4, 8  # bytes of a column number and of a row pointer, whatever a kernel takes


@dataclass(frozen=True)
class Movement:
    """Bytes of a product by each count, and the share of gathered lines that miss the cache."""

    compulsory: int
    gathered: int
    cached: int
    missed: float


def movement(matrix: sp.csr_array, width: int, itemsize: int, cache_bytes: float) -> Movement:
    """Bytes of ``matrix`` · X with X of ``width`` columns."""
    rows, entries = matrix.shape[0], matrix.nnz
    row_bytes = width * itemsize
    streamed = csr_bytes(rows, entries, itemsize) + rows * row_bytes
    rows_a_line = max(1, LINE // row_bytes)
    line_bytes = -(-rows_a_line * row_bytes // LINE) * LINE
    lines = matrix.indices // rows_a_line
    passing = streamed / max(1, entries)
    missed = misses(lines, line_bytes, passing, cache_bytes)
    touched = len(np.unique(matrix.indices))
    return Movement(
        compulsory=streamed + touched * row_bytes,
        gathered=streamed + entries * row_bytes,
        cached=streamed + missed * line_bytes,
        missed=missed / max(1, entries),
    )


def beside_gathers(matrix: sp.csr_array, width: int, itemsize: int) -> int:
    """Bytes that move besides the rows of X and the column numbers that say which."""
    rows, entries = matrix.shape[0], matrix.nnz
    return csr_bytes(rows, entries, itemsize) - entries * INDEX + rows * width * itemsize


def csr_bytes(rows: int, entries: int, itemsize: int) -> int:
    """Bytes of a matrix of so many entries."""
    return entries * (INDEX + itemsize) + (rows + 1) * POINTER


def misses(ids: np.ndarray, size: float, passing: float, cache_bytes: float) -> int:
    """How many accesses to ``ids``, (N,) integers, one after the other, the cache does not serve.

    Each is of ``size`` bytes, and ``passing`` bytes stream through the cache with every access.
    """
    if not len(ids):
        return 0
    order = np.argsort(ids, kind="stable")
    gaps = np.diff(order)
    same = np.diff(ids[order]) == 0
    reused = gaps[same]
    first = order[np.append(True, ~same)]
    last = order[np.append(~same, True)]
    # A window misses what is accessed before and after it, but not in it: it lies in a gap.
    idle = np.sort(np.concatenate((reused, first + 1, len(ids) - last)))
    below = np.append(0, np.cumsum(idle))

    def fits(window: int) -> bool:
        at = np.searchsorted(idle, window, side="right")
        absent = below[-1] - below[at] - window * (len(idle) - at)
        footprint = len(first) - absent / (len(ids) - window + 1)
        return footprint * size + window * passing <= cache_bytes

    low, high = 0, len(ids) + 1  # the longest window that fits, by bisection
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return len(first) + int(np.count_nonzero(reused > low))
