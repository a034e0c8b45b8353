"""Random rows: what every other partition is compared with."""

from __future__ import annotations

import numpy as np

from partition.backends import Tool
from partition.models.rows import RowModel


def partition(model: RowModel, k: int, *, imbalance: float, seed: int) -> np.ndarray:
    """Cut a random order of the rows into k pieces whose sizes differ by at most one."""
    n = len(model.weights)
    parts = np.empty(n, dtype=np.int32)
    parts[np.random.default_rng(seed).permutation(n)] = np.arange(n, dtype=np.int64) * k // n
    return parts


TOOL = Tool(partition, balanced=False)
