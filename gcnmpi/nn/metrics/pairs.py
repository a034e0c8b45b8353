"""Metrics of pairs, by the rules of the Open Graph Benchmark (Hu et al. 2020), over all ranks.

Hits@K is the share of positives with a score above the K-th best of the common negatives: a tie
loses. With candidates for each positive, it is the share of those with a rank of at most K. The
rank of a positive among its candidates is ½(#> + #≥) + 1, the mean of the best and the worst that
ties allow; MRR is the mean of its reciprocal. Without candidates of its own, a positive has the
common negatives for candidates. Filtered, it has two ranks, one for each end that is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.mpi.comm import Comm, maximum, reduce_in_place
from gcnmpi.nn.metrics.ranking import TIES, average_precision, roc_auc
from gcnmpi.nn.metrics.scored import Scored


@dataclass(frozen=True)
class ScoredPairs:
    """The scores of one mask on this rank, floating-point numbers; each pair is on one rank.

    Attributes
    ----------
    positives : (m,)
    negatives : (q,)
        Those that all positives have in common; empty where each has candidates of its own.
    ranks : (r,), or None
        Ranks of positives among candidates of their own, each on one rank of the job.
    of_all : (m,), or None
        Ranks of the positives among the common negatives.
    """

    positives: np.ndarray
    negatives: np.ndarray
    ranks: np.ndarray | None = None
    of_all: np.ndarray | None = None


def auc(comm: Comm, scored: ScoredPairs) -> float | None:
    """Probability that a positive has a higher score than a negative, a tie counting one half."""
    return roc_auc(comm, _as_labels(scored))


def ap(comm: Comm, scored: ScoredPairs) -> float | None:
    """Average precision: see :func:`gcnmpi.nn.metrics.ranking.average_precision`."""
    positives, negatives = _total(comm, len(scored.positives), len(scored.negatives))
    return average_precision(comm, _as_labels(scored)) if positives and negatives else None


def mrr(comm: Comm, scored: ScoredPairs) -> float | None:
    """The mean over positives of 1 / rank."""
    ranks = scored.of_all if scored.ranks is None else scored.ranks
    if ranks is None:
        return None
    total, count = _total(comm, float((1 / ranks).sum()), len(ranks))
    return total / count if count else None


def hits(comm: Comm, scored: ScoredPairs, k: int) -> float | None:
    """Hits@K: the share of positives that are among the best."""
    if scored.ranks is not None:
        there, count = _total(comm, int(np.count_nonzero(scored.ranks <= k)), len(scored.ranks))
        return there / count if count else None
    best = _best(comm, scored.negatives, k)
    close = tolerance(comm, scored.positives, scored.negatives)
    above = len(scored.positives)
    if best is not None:
        above = int(np.count_nonzero(scored.positives > best + close))
    there, count = _total(comm, above, len(scored.positives))
    return there / count if count else None


def ranks_among(comm: Comm, positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """The ranks of positives among the negatives of all ranks, which each rank holds meanwhile."""
    close = tolerance(comm, positives, negatives)
    every = np.sort(np.concatenate(comm.allgather(negatives.astype(np.float64))))
    scores = positives.astype(np.float64)
    better = len(every) - np.searchsorted(every, scores + close, side="right")
    equal = len(every) - np.searchsorted(every, scores - close, side="left")
    return ranks_of(better, equal)


def ranks_of(better: np.ndarray, no_worse: np.ndarray) -> np.ndarray:
    """Ranks of positives, from how many candidates are better, and how many are no worse."""
    ranks: np.ndarray = (better + no_worse) / 2 + 1
    return ranks


def tolerance(comm: Comm, *scores: np.ndarray) -> float:
    """How far apart scores are that count as equal: rounding depends on the number of ranks."""
    finite = (each[np.isfinite(each)] for each in scores)
    largest = max((float(np.abs(each).max(initial=0.0)) for each in finite), default=0.0)
    return TIES * maximum(comm, largest)


def _best(comm: Comm, scores: np.ndarray, k: int) -> float | None:
    """The k-th largest score of all ranks; None if there are fewer."""
    own = scores if len(scores) <= k else np.partition(scores, len(scores) - k)[-k:]
    every = np.concatenate(comm.allgather(own.astype(np.float64)))
    return None if len(every) < k else float(np.partition(every, len(every) - k)[-k])


def _as_labels(scored: ScoredPairs) -> Scored:
    scores = np.concatenate((scored.positives, scored.negatives))
    labels = np.repeat((1.0, 0.0), (len(scored.positives), len(scored.negatives)))
    return Scored(scores[:, np.newaxis], labels[:, np.newaxis])


def _total(comm: Comm, *numbers: float) -> list[float]:
    sums = np.array(numbers, np.float64)
    reduce_in_place(comm, sums)
    return sums.tolist()
