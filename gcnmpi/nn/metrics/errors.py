"""Metrics of numbers: mean absolute error, root of the mean squared error, R².

Of several columns the mean of each one's, as scikit-learn's ``uniform_average``.
"""

from __future__ import annotations

import math

import numpy as np

from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.nn.metrics.scored import Scored, mean_of_columns


def mae(comm: Comm, scored: Scored) -> float | None:
    """Mean of |z − y| over what is known."""
    error, known = _errors(scored)
    total, count = _sums(comm, known, np.abs(error), known)
    return mean_of_columns([t / c for t, c in zip(total, count, strict=True) if c])


def rmse(comm: Comm, scored: Scored) -> float | None:
    """√ of the mean of (z − y)² over what is known."""
    error, known = _errors(scored)
    total, count = _sums(comm, known, error**2, known)
    return mean_of_columns([math.sqrt(t / c) for t, c in zip(total, count, strict=True) if c])


def r2(comm: Comm, scored: Scored) -> float | None:
    """1 − Σ (z − y)² / Σ (y − mean of y)².

    Of a column that is constant: 1 where it is met, else 0; it is not defined of a single number.
    """
    error, known = _errors(scored)
    labels = np.where(known, scored.labels, 0).astype(np.float64)
    total, count = _sums(comm, known, labels, known)
    mean = total / np.maximum(count, 1)
    left, spread = _sums(comm, known, error**2, (labels - mean) ** 2)
    found = []
    for residual, variation, c in zip(left, spread, count, strict=True):
        if c > 1:
            constant = 1.0 if residual == 0 else 0.0
            found.append(float(1 - residual / variation) if variation else constant)
    return mean_of_columns(found)


def _errors(scored: Scored) -> tuple[np.ndarray, np.ndarray]:
    """z − y in float64, and which of them are known."""
    known = scored.known
    labels = np.where(known, scored.labels, 0).astype(np.float64)
    return scored.logits.astype(np.float64) - labels, known


def _sums(comm: Comm, known: np.ndarray, *values: np.ndarray) -> np.ndarray:
    """Sums over all ranks of what is known of each of ``values``, (values, columns) float64."""
    sums = np.array([np.sum(v, axis=0, where=known, dtype=np.float64) for v in values])
    reduce_in_place(comm, sums)
    return sums
