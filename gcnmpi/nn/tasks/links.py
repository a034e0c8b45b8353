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
from dataclasses import replace

import numpy as np

from gcnmpi.nn.tasks.interface import Loss, Made, Task
from gcnmpi.options.config import Config
from gcnmpi.options.task import OF_RELATIONS, LinkOptions, tells_relations
from partition.errors import UserError
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT, PairSet, list_pairs, read_pairs

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


def pairs_of(stored: StoredGraph, task: LinkOptions) -> PairSet | None:
    """The pairs that a task names; None where the folder has none that are called so."""
    if stored.pairs is not None or task.pairs not in list_pairs(stored.path):
        return stored.pairs
    return read_pairs(stored.path, task.pairs)


def with_relations(config: Config, pairs: PairSet | None) -> Config:
    """The configuration with the relations of the pairs, where its decoder tells these apart.

    Of another task, and without pairs, it stays as it is. A UserError if the pairs have more
    relations than are configured, or what is asked of them knows no relations.
    """
    task = config.task
    if not isinstance(task, LinkOptions) or task.decoder not in OF_RELATIONS or pairs is None:
        return config
    found = pairs.kinds if pairs.relations else 1
    task = replace(task, decoder_relations=task.decoder_relations or found)
    if not tells_relations(task):
        return replace(config, task=task)
    if found > task.decoder_relations:
        raise UserError(
            f"the pairs {pairs.name!r} have {found} relations, and task.decoder_relations = "
            f"{task.decoder_relations}",
            "leave it out; with 1, the decoder tells none apart",
        )
    if found == 1 and not pairs.relations:
        raise UserError(
            f"task.decoder = {task.decoder}: the pairs {pairs.name!r} have no relations",
            "import them with --columns source,relation,target",
        )
    if any(
        len(pairs.negatives.get(mask, ())) and f"{mask}_negatives" not in pairs.relations
        for mask in HELD_OUT
    ):
        raise UserError(
            f"the pairs {pairs.name!r} have negatives to validate or test on, which are of no "
            "relation",
            "leave these out (--negatives 0 of a split), or set task.decoder_relations=1",
        )
    return replace(config, task=task)


def _labels(stored: StoredGraph, options: LinkOptions) -> np.ndarray:
    """No labels of vertices; a UserError unless the folder has the pairs, and some to train on."""
    pairs = read_pairs(stored.path, options.pairs)
    if not len(pairs.positives["train"]):
        raise UserError(f"{stored.path}: the pairs {options.pairs!r} have none to train on")
    return np.zeros(stored.manifest.n, np.int32)


def _loss(made: Made[LinkOptions]) -> Loss:
    raise AssertionError("the loss is one of pairs, see gcnmpi.run.links")


TASK = Task(_labels, _loss)
