"""Metrics of numbers: mean absolute error, root of the mean squared error, R².

Of several columns the mean of each one's, as scikit-learn's ``uniform_average``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.nn.metrics.scored import Scored, mean_of_known

_AT_ONCE = 1 << 16  # numbers that are looked at at once: they stay in the cache


@dataclass(frozen=True)
class ErrorSums:
    """Sums over the known numbers y of each column, with predictions z, (columns,) float64.

    Attributes
    ----------
    count : array
        How many they are.
    squares, sizes, spread : array
        Σ (z − y)², Σ |z − y| and Σ (y − mean of y)², those that a metric needs.
    """

    count: np.ndarray
    squares: np.ndarray | None = None
    sizes: np.ndarray | None = None
    spread: np.ndarray | None = None

    @classmethod
    def of_moments(
        cls, count: np.ndarray, squares: np.ndarray, sizes: np.ndarray, *sums: np.ndarray
    ) -> ErrorSums:
        """Of Σ y and Σ y² in place of the spread, which one pass over samples gives."""
        total, of_squares = sums
        return cls(count, squares, sizes, of_squares - total * total / np.maximum(count, 1))

    def metric(self, name: str, unit: np.ndarray | None = None) -> list[float | None]:
        """A metric of each column, None where it is not defined; numbers are in so many units."""
        unit = np.ones(len(self.count)) if unit is None else unit
        if name == "r2":
            assert self.squares is not None
            assert self.spread is not None
            return list(map(_r2, self.count, self.squares, self.spread))
        sums = self.squares if name == "rmse" else self.sizes
        assert sums is not None

        def of_column(count: float, total: float, one: float) -> float | None:
            if not count:
                return None
            return float(one * np.sqrt(total / count) if name == "rmse" else one * total / count)

        return list(map(of_column, self.count, sums, unit))


def _r2(count: float, squares: float, spread: float) -> float | None:
    if count <= 1:
        return None
    constant = 1.0 if squares == 0 else 0.0
    return float(1 - squares / spread) if spread > 0 else constant


def mae(comm: Comm, scored: Scored) -> float | None:
    """Mean of |z − y| over what is known."""
    error, known = _errors(scored)
    total, count = _sums(comm, known, np.abs(error), known)
    return mean_of_known(ErrorSums(count, sizes=total).metric("mae"))


def rmse(comm: Comm, scored: Scored) -> float | None:
    """√ of the mean of (z − y)² over what is known."""
    error, known = _errors(scored)
    total, count = _sums(comm, known, error**2, known)
    return mean_of_known(ErrorSums(count, squares=total).metric("rmse"))


def r2(comm: Comm, scored: Scored) -> float | None:
    """1 − Σ (z − y)² / Σ (y − mean of y)².

    Of a column that is constant: 1 where it is met, else 0; it is not defined of a single number.
    """
    error, known = _errors(scored)
    labels = np.where(known, scored.labels, 0).astype(np.float64)
    total, count = _sums(comm, known, labels, known)
    mean = total / np.maximum(count, 1)
    left, spread = _sums(comm, known, error**2, (labels - mean) ** 2)
    return mean_of_known(ErrorSums(count, left, spread=spread).metric("r2"))


def sums_of_errors(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many are known, Σ (z − y)², Σ |z − y|, Σ y, Σ y² of each column, (5, columns) float64."""
    sums, step = np.zeros((5, outputs.shape[1])), max(1, _AT_ONCE // max(1, outputs.shape[1]))
    for start in range(0, len(labels), step):
        some = slice(start, start + step)
        known = ~np.isnan(labels[some])
        y = np.where(known, labels[some], 0).astype(np.float64)
        error = np.where(known, outputs[some] - y, 0)
        terms = known, error * error, np.abs(error), y, y * y
        sums += [np.sum(term, axis=0, dtype=np.float64) for term in terms]
    return sums


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
