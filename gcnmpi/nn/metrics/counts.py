"""Metrics of decisions, from counts that are summed over ranks: accuracy and F1.

The class decided on is that of the largest logit, the lowest of equals; of several labels, those
with a logit above 0.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.nn.metrics.scored import Scored


def accuracy(comm: Comm, scored: Scored) -> float | None:
    """The share of vertices, or of known labels, that are decided right."""
    if scored.of_classes:
        right = scored.logits.argmax(axis=1) == scored.labels
        counts = np.array([np.count_nonzero(right), len(right)])
    else:
        known = scored.known
        right = known & ((scored.logits > 0) == (scored.labels > 0.5))
        counts = np.array([np.count_nonzero(right), np.count_nonzero(known)])
    reduce_in_place(comm, counts)
    return int(counts[0]) / int(counts[1]) if counts[1] else None


def f1_micro(comm: Comm, scored: Scored) -> float | None:
    """2·TP / (2·TP + FP + FN) of all columns together; of classes, the accuracy.

    0 where no label is there or decided on.
    """
    both, decided, there = _counts(comm, scored).sum(axis=1).tolist()
    if not decided + there:
        return _without_any(comm, scored)
    return 2 * both / (decided + there)


def f1_macro(comm: Comm, scored: Scored) -> float | None:
    """The mean over columns of the same of each.

    0 for a label that is neither there nor decided on. As scikit-learn, a class that is neither is
    left out.
    """
    both, decided, there = _counts(comm, scored)
    seen = decided + there
    if not seen.any():
        return _without_any(comm, scored)
    found = np.divide(2 * both, seen, out=np.zeros(len(seen)), where=seen > 0)
    return float(np.mean(found[seen > 0] if scored.of_classes else found))


def _without_any(comm: Comm, scored: Scored) -> float | None:
    """0 of several labels of which any is known; of classes, or if nothing is known, undefined."""
    known = np.array([0 if scored.of_classes else np.count_nonzero(scored.known)])
    reduce_in_place(comm, known)
    return 0.0 if known[0] else None


def _counts(comm: Comm, scored: Scored) -> np.ndarray:
    """(3, c) int64: for each column true positives, positives decided on, and positives."""
    width = scored.logits.shape[1]
    if scored.of_classes:
        decided = scored.logits.argmax(axis=1) if width else np.zeros(0, np.int64)
        right = decided[decided == scored.labels]
        found = [np.bincount(ids, minlength=width) for ids in (right, decided, scored.labels)]
    else:
        known = scored.known
        decided, there = known & (scored.logits > 0), known & (scored.labels > 0.5)
        found = [np.count_nonzero(hits, axis=0) for hits in (decided & there, decided, there)]
    counts = np.array(found, np.int64).reshape(3, width)
    reduce_in_place(comm, counts)
    return counts
