"""A partition that is not there: rows that are dealt to ranks at random, and what that costs."""

from __future__ import annotations

import numpy as np

from partition.graph.metrics import Metrics
from partition.graph.store import Partition, StoredGraph

RANDOM = "random rows"  # the partition that is assumed where there is none


def random_partition(
    stored: StoredGraph, direction: str, k: int, needs: tuple[np.ndarray, np.ndarray]
) -> Partition:
    """Expected metrics of rows that are dealt to k parts at random.

    ``needs`` are the numbers of entries off the diagonal that columns of M have, and how many
    columns have each. A column with m entries off the diagonal misses a part other than its owner's
    with probability (1 − 1/k)ᵐ, so that (k − 1)·Σ over columns of (1 − (1 − 1/k)ᵐ) rows are sent, a
    k-th of them by each part. A pair of parts exchanges a message unless it exchanges no row,
    e^(−rows/pairs) of them. Parts are taken as equal; the largest of many is above that.
    """
    manifest = stored.manifest
    sizes, counts = needs
    missed = np.exp(sizes * np.log1p(-1 / k)) if k > 1 else np.ones(len(sizes))
    volume = (k - 1) * float(counts @ (1 - missed))
    pairs = k * (k - 1)
    messages = pairs * (1 - np.exp(-volume / pairs)) if pairs else 0.0
    entries = int(counts @ sizes) + manifest.n
    rows, sent = _even(manifest.n, k), _even(round(volume), k)
    each = _even(round(messages), k)
    metrics = Metrics(k, direction, rows, _even(entries, k), sent, sent, each, each)
    nothing = np.empty(0, np.int32)
    return Partition(
        RANDOM, nothing, k, manifest.id, "rp", "", "", direction, metrics={direction: metrics}
    )


def random_parts(n: int, k: int) -> np.ndarray:
    """The part of each of n vertices, dealt as evenly as can be; the same in each call."""
    return np.random.default_rng(0).permutation(np.arange(n) % k)


def _even(total: int, k: int) -> list[int]:
    """So many dealt to k, as evenly as can be."""
    return [total // k + (part < total % k) for part in range(k)]
