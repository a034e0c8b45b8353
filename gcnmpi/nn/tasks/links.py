"""Links: positive pairs are told from negative ones by a score of each pair.

The loss of a positive with score s and its K negatives with scores z₁, …:

* bce: log(1 + exp(−s)) + mean of log(1 + exp(zₖ)), binary cross-entropy;
* softmax: −log(exp(s) / (exp(s) + Σ exp(zₖ)));
* auc: mean of (1 − s + zₖ)², which bounds 1 − AUC from above (Gao and Zhou 2015).

The loss of a step is the mean over its positives. A negative that is a pair to be learned itself
does not count where that is asked for: its part of a sum is 0, and K stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.nn.tasks.interface import Loss, Made, Task
from gcnmpi.options.task import LinkOptions
from partition.errors import UserError
from partition.graph.links import read_pairs
from partition.graph.store import StoredGraph

Losses = tuple[np.ndarray, np.ndarray, np.ndarray]
OfGroups = Callable[[np.ndarray, np.ndarray], Losses]
"""Scores (m,) of positives and (m, K) of their negatives, −∞ for those that do not count → the loss
of each positive, and its derivatives by both."""


def each_alone(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Binary cross-entropy of pairs, in which no pair looks at another one.

    Scores (m,), and which are of positives, (m,) bool → loss of each pair, and its derivative. A
    score of −∞ does not count.
    """
    z = np.where(positive, -scores, scores)
    small = np.exp(-np.abs(z))  # it never overflows
    loss = np.maximum(z, 0) + np.log1p(small)
    slope = np.where(z > 0, 1.0, small) / (1 + small)  # σ(z)
    return loss, np.where(positive, -slope, slope)


def softmax(positives: np.ndarray, negatives: np.ndarray) -> Losses:
    """Cross-entropy of a positive among its negatives."""
    largest = np.maximum(positives, negatives.max(axis=1, initial=-np.inf))
    of_positive = np.exp(positives - largest)
    of_negatives = np.exp(negatives - largest[:, np.newaxis])
    total = of_positive + of_negatives.sum(axis=1)
    loss = np.log(total) + largest - positives
    return loss, of_positive / total - 1, of_negatives / total[:, np.newaxis]


def auc(positives: np.ndarray, negatives: np.ndarray) -> Losses:
    """Squared differences of a positive and its negatives from 1."""
    counts = np.isfinite(negatives)
    apart = np.where(counts, 1 - positives[:, np.newaxis] + np.where(counts, negatives, 0), 0.0)
    share = 1 / max(1, negatives.shape[1])
    loss, slope = share * (apart * apart).sum(axis=1), 2 * share * apart
    return loss, -slope.sum(axis=1), slope


GROUPED: dict[str, OfGroups] = {"softmax": softmax, "auc": auc}


def _labels(stored: StoredGraph, options: LinkOptions) -> np.ndarray:
    """No labels of vertices; a UserError unless the folder has the pairs, and some to train on."""
    pairs = read_pairs(stored.path, options.pairs)
    if not len(pairs.positives["train"]):
        raise UserError(f"{stored.path}: the pairs {options.pairs!r} have none to train on")
    return np.zeros(stored.manifest.n, np.int32)


def _loss(made: Made[LinkOptions]) -> Loss:
    raise AssertionError("the loss is one of pairs, see gcnmpi.run.links")


TASK = Task(_labels, _loss)
