"""Rows without a look at the arcs: contiguous, or random, what every other one is compared with."""

import numpy as np

from partition.backends import Tool
from partition.models.descriptions import RowModel


def _contiguous(model: RowModel, k: int, *, imbalance: float, seed: int) -> np.ndarray:
    """Cut the rows, in the order of the graph, into k pieces whose sizes differ by at most one."""
    n = len(model.weights)
    return (np.arange(n, dtype=np.int64) * k // n).astype(np.int32)


def _random(model: RowModel, k: int, *, imbalance: float, seed: int) -> np.ndarray:
    """Cut a random order of the rows into such pieces."""
    parts = np.empty(len(model.weights), dtype=np.int32)
    order = np.random.default_rng(seed).permutation(len(parts))
    parts[order] = _contiguous(model, k, imbalance=imbalance, seed=seed)
    return parts


BLOCK = Tool(_contiguous, balanced=False, seeded=False)
RANDOM = Tool(_random, balanced=False)
