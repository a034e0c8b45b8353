"""A part of the oracle: metrics of whole outputs in one process, written from their definitions.

They are slow: an area under a curve counts pairs by ranks, a precision is made anew for every
threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from gcnmpi.options.task import hits_of

EQUAL = 1e-11  # how far apart scores of pairs are that count as equal


def score(metric: str, logits: np.ndarray, labels: np.ndarray) -> float | None:
    """A metric of vertices with (m, c) logits; None where it is not defined.

    Labels are (m,) classes, or (m, c) numbers, NaN where unknown.
    """
    labels = np.asarray(labels)
    labels = labels if labels.ndim == 1 else labels.astype(np.float64)
    return SCORES[metric](np.asarray(logits, np.float64), labels)


def _columns(z: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores and truth of each column, of what is known."""
    if y.ndim == 2:
        for column in range(z.shape[1]):
            known = ~np.isnan(y[:, column])
            yield z[known, column], y[known, column]
        return
    for column in range(z.shape[1]) if z.shape[1] > 2 else [z.shape[1] - 1]:
        others = [c for c in range(z.shape[1]) if c != column]
        rest = np.logaddexp.reduce(z[:, others], axis=1) if others else np.zeros(len(z))
        yield z[:, column] - (z[:, others[0]] if len(others) == 1 else rest), y == column


def _decisions(z: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The decisions and the truth of each column, bool."""
    if y.ndim == 1:
        decided = np.array([int(np.argmax(row)) for row in z], np.int64)
        return [(decided == c, y == c) for c in range(z.shape[1])]
    return [(s > 0, t > 0.5) for s, t in _columns(z, y)]


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _accuracy(z: np.ndarray, y: np.ndarray) -> float | None:
    if y.ndim == 1:
        return _mean([float(np.argmax(row) == label) for row, label in zip(z, y, strict=True)])
    return _mean([float(d == t) for pair in _decisions(z, y) for d, t in zip(*pair, strict=True)])


def _f1(decided: np.ndarray, true: np.ndarray) -> float | None:
    """2·precision·recall / (precision + recall), without dividing by 0."""
    both = int(np.sum(decided & true))
    sizes = int(np.sum(decided)) + int(np.sum(true))
    return 2 * both / sizes if sizes else None


def _f1_micro(z: np.ndarray, y: np.ndarray) -> float | None:
    decided, true = (np.concatenate(list(side)) for side in zip(*_decisions(z, y), strict=True))
    return _f1(decided, true) or _mean([0.0] * len(true))


def _f1_macro(z: np.ndarray, y: np.ndarray) -> float | None:
    decisions = _decisions(z, y)
    each = [_f1(*pair) for pair in decisions]
    if y.ndim == 2:
        known = any(len(true) for _, true in decisions)
        return _mean([value or 0.0 for value in each]) if known else None
    return _mean([value for value in each if value is not None])


def _ordered(z: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same, with scores that are equal but for rounding errors made equal."""
    close = 2.0**-36 * np.abs(z[np.isfinite(z)]).max(initial=0)
    for scores, truth in _columns(z, y):
        order = np.argsort(scores)
        level = np.zeros(len(scores))
        level[order] = np.cumsum(~(np.diff(scores[order], prepend=0) <= close))
        yield level, truth


def _roc_auc(z: np.ndarray, y: np.ndarray) -> float | None:
    found = []
    for scores, truth in _ordered(z, y):
        true = truth > 0.5
        ones, zeros = int(true.sum()), int((~true).sum())
        if ones and zeros:
            ranks = _average_ranks(scores)[true]
            found.append((math.fsum(ranks) - ones * (ones + 1) / 2) / (ones * zeros))
    return _mean(found)


def _average_ranks(scores: np.ndarray) -> np.ndarray:
    """Places in ascending order, from 1; equal scores share the mean of theirs."""
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _average_precision(z: np.ndarray, y: np.ndarray) -> float | None:
    found = []
    for scores, truth in _ordered(z, y):
        true = truth > 0.5
        if true.any():
            terms, before = [], 0.0
            for threshold in np.unique(scores)[::-1]:
                chosen = scores >= threshold
                recall = float(np.sum(true & chosen) / true.sum())
                terms.append((recall - before) * float(np.mean(true[chosen])))
                before = recall
            found.append(math.fsum(terms))
    return _mean(found)


def _mae(z: np.ndarray, y: np.ndarray) -> float | None:
    return _mean([float(np.mean(np.abs(s - t))) for s, t in _columns(z, y) if len(s)])


def _rmse(z: np.ndarray, y: np.ndarray) -> float | None:
    return _mean([float(np.sqrt(np.mean((s - t) ** 2))) for s, t in _columns(z, y) if len(s)])


def _r2(z: np.ndarray, y: np.ndarray) -> float | None:
    found = []
    for s, t in _columns(z, y):
        if len(s) > 1:
            left, spread = float(np.sum((s - t) ** 2)), float(np.sum((t - t.mean()) ** 2))
            found.append(1 - left / spread if np.ptp(t) else float(left == 0))
    return _mean(found)


SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float | None]] = {
    "accuracy": _accuracy, "f1_micro": _f1_micro, "f1_macro": _f1_macro, "roc_auc": _roc_auc,
    "average_precision": _average_precision, "mae": _mae, "rmse": _rmse, "r2": _r2,
}  # fmt: skip


def score_pairs(
    metric: str, positives: np.ndarray, negatives: np.ndarray, among: np.ndarray | None
) -> float | None:
    """A metric of scores, by counting; ``among`` are those of each positive's candidates."""
    if not len(positives):
        return None
    if k := hits_of(metric):
        if among is not None:
            return float(np.mean(ranks_of(positives, among) <= k))
        if len(negatives) < k:
            return 1.0
        return float(np.mean(positives > sorted(negatives.tolist())[-k] + EQUAL))
    if metric == "mrr":
        every = np.tile(negatives, (len(positives), 1)) if among is None else among
        return float(np.mean(1 / ranks_of(positives, every)))
    if not len(negatives):
        return None
    if metric == "auc":
        apart = positives[:, np.newaxis] - negatives
        return float(np.mean((apart > EQUAL) + (abs(apart) <= EQUAL) / 2))
    found = []
    for s in positives:  # precision at the threshold of each positive
        hits, misses = np.sum(positives >= s - EQUAL), np.sum(negatives >= s - EQUAL)
        found.append(hits / (hits + misses))
    return float(np.mean(found))


def ranks_of(positives: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The rank of each positive, (m,), among candidates (m, C), by counting."""
    s = positives[:, np.newaxis]
    return ((among > s + EQUAL).sum(axis=1) + (among >= s - EQUAL).sum(axis=1)) / 2 + 1
