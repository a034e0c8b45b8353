"""Metrics of an order: area under the ROC curve, and average precision; ties count as ties.

The scores of all vertices have to be brought in order, and no rank may hold all of them. So ranks
sort their own, equal scores as one with a count; samples of all give bounds between which a rank
gets the scores of all others (sample sort: Shi and Schaeffer 1992). Counts of what is below, from
one prefix sum over ranks, then make each rank's share of the metric. A rank gets at most twice its
share of different scores.

Of classes, each is told from all others by the logarithm of its odds in float64,
z[c] − log Σ exp(z[others]): the order of the softmax, but without the ties of what is rounded to 1.
Columns in which the metric is not defined are left out.

Scores that are equal but for rounding errors, which depend on the order of sums, are ties: those
next to each other in the order that are apart by no more than ``TIES`` of the largest logit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.mpi.comm import Comm, maximum, redistribute, reduce_in_place
from gcnmpi.nn.metrics.scored import Scored, mean_of_known

MAX_BYTES = 64 * 2**20  # of scores that are sent at once
TIES = 2.0**-36  # apart, relative to the largest logit: those of float32 are 2⁻²⁴ of their size


def roc_auc(comm: Comm, scored: Scored) -> float | None:
    """Probability that a positive has a higher score than a negative, a tie counting one half.

    The mean over columns (``average="macro"``).
    """
    order = in_order(comm, scored)
    # Twice the number of pairs in the right order: integers, so that nothing is rounded.
    pairs = np.zeros(order.width, np.int64)
    of_groups = order.ones * (2 * order.zeros_below + order.zeros)
    np.add.at(pairs, order.columns, of_groups)
    reduce_in_place(comm, pairs)
    found = []
    for twice, ones, zeros in zip(*(a.tolist() for a in (pairs, *order.totals)), strict=True):
        if ones and zeros:
            found.append(twice / (2 * ones * zeros))
    return mean_of_known(found)


def average_precision(comm: Comm, scored: Scored) -> float | None:
    """Sum over thresholds of the precision times the gain in recall; the mean over columns."""
    order = in_order(comm, scored)
    ones, zeros = (totals[order.columns] for totals in order.totals)
    hits, misses = ones - order.ones_below, zeros - order.zeros_below  # at or above the score
    some = order.ones > 0
    share = order.ones[some] * (hits[some] / (hits[some] + misses[some]))
    sums = np.zeros(order.width)
    np.add.at(sums, order.columns[some], share)
    reduce_in_place(comm, sums)
    there = order.totals[0]
    # A column without negatives says as little as one without positives, but is defined.
    return mean_of_known((sums[there > 0] / there[there > 0]).tolist())


@dataclass(frozen=True)
class _InOrder:
    """A rank's stretch of the order of all scores of all ranks: by column, then by score.

    Attributes
    ----------
    width : int
        Number of columns.
    columns : (g,) int32
        Of each different score; one that ranks share is the first one's.
    ones, zeros : (g,) int64
        Positives and negatives that have the score.
    ones_below, zeros_below : (g,) int64
        Those of the same column with a lower score, of all ranks.
    totals : (2, width) int64
        Positives and negatives of each column, of all ranks.
    """

    width: int
    columns: np.ndarray
    ones: np.ndarray
    zeros: np.ndarray
    ones_below: np.ndarray
    zeros_below: np.ndarray
    totals: np.ndarray


def in_order(comm: Comm, scored: Scored) -> _InOrder:
    """Bring the scores of all ranks in order; each rank gets a stretch of them."""
    width, *lists = _scores(scored)
    columns, scores, ones, zeros = _combined(*lists)
    if comm.size > 1:
        destination = _destinations(comm, columns, scores)
        arrays = [columns, scores, ones, zeros]
        received, _ = redistribute(comm, destination, arrays, MAX_BYTES)
        columns, scores, ones, zeros = _combined(*received)
    largest = np.abs(scored.logits[np.isfinite(scored.logits)]).max(initial=0.0)
    close = TIES * maximum(comm, float(largest))
    columns, ones, zeros = _tied(comm, close, columns, scores, ones, zeros)
    mine = np.zeros((2, width), np.int64)
    for counts, total in zip((ones, zeros), mine, strict=True):
        np.add.at(total, columns, counts)
    before, totals = np.zeros_like(mine), mine.copy()
    comm.Exscan(mine, before)
    if comm.rank == 0:
        before[...] = 0  # MPI leaves it undefined
    reduce_in_place(comm, totals)
    below: list[np.ndarray] = []
    for counts, lower in zip((ones, zeros), before, strict=True):
        upto = np.cumsum(counts) - counts
        first = np.searchsorted(columns, columns, side="left")
        below.append(upto - upto[first] + lower[columns] if len(columns) else upto)
    ones_below, zeros_below = below
    return _InOrder(width, columns, ones, zeros, ones_below, zeros_below, totals)


def _scores(scored: Scored) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Number of columns; column, score and whether it is a positive, of each that is known."""
    z = scored.logits
    if not scored.of_classes:
        rows, columns = np.nonzero(scored.known)
        return z.shape[1], columns, z[rows, columns], scored.labels[rows, columns] > 0.5
    z, width = z.astype(np.float64), z.shape[1]
    if width == 2:  # the second class, whose odds are the reciprocals of the first one's
        return 1, np.zeros(len(z), np.int64), z[:, 1] - z[:, 0], scored.labels == 1
    columns = np.tile(np.arange(width), len(z))
    odds = _log_odds(z) if width > 2 else z  # of a single class, nothing is defined
    return width, columns, odds.ravel(), columns == np.repeat(scored.labels, width)


def _log_odds(z: np.ndarray) -> np.ndarray:
    """Of each of several classes, z[c] − log Σ exp(z[others])."""
    first, largest = z.argmax(axis=1, keepdims=True), z.max(axis=1, keepdims=True)
    exponentials = np.exp(z - largest)
    others = np.log(exponentials.sum(axis=1, keepdims=True) - exponentials) + largest
    # Of the largest, which the difference would lose all digits of.
    rest = z.copy()
    np.put_along_axis(rest, first, -np.inf, axis=1)
    second = rest.max(axis=1, keepdims=True)
    of_first = np.log(np.exp(rest - second).sum(axis=1, keepdims=True)) + second
    np.put_along_axis(others, first, of_first, axis=1)
    return z - others


def _combined(
    columns: np.ndarray, scores: np.ndarray, ones: np.ndarray, zeros: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """In order, with equal scores of a column as one, and how many of each kind there are."""
    scores = scores + 0.0  # of −0 it makes 0, which is its equal
    order = np.lexsort((scores, columns))
    columns, scores, ones = columns[order].astype(np.int32), scores[order], ones[order]
    zeros = ~ones if zeros is None else zeros[order]
    first = np.ones(len(scores), bool)
    first[1:] = (columns[1:] != columns[:-1]) | (scores[1:] != scores[:-1])
    start = np.flatnonzero(first)
    if not len(start):
        none = np.zeros(0, np.int64)
        return columns, scores, none, none
    counts = [np.add.reduceat(c.astype(np.int64), start) for c in (ones, zeros)]
    return columns[start], scores[start], counts[0], counts[1]


def _tied(
    comm: Comm,
    close: float,
    columns: np.ndarray,
    scores: np.ndarray,
    ones: np.ndarray,
    zeros: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column and counts of what is apart by more than ``close`` from what is before it.

    The first of a rank's may belong to the last of a rank before, which then has them all.
    """
    first = np.ones(len(scores), bool)
    first[1:] = (columns[1:] != columns[:-1]) | ~(np.diff(scores) <= close)
    start = np.flatnonzero(first)
    counts = np.zeros((2, len(start)), np.int64)
    ends = None
    if len(start):
        counts = np.stack([np.add.reduceat(c, start) for c in (ones, zeros)])
        low, high = ((int(columns[at]), float(scores[at])) for at in (0, -1))
        ends = low, high, len(start), counts[:, 0].copy()
    holder, before, gone = -1, (-1, 0.0), 0
    for rank, of_rank in enumerate(comm.allgather(ends)):
        if of_rank is None:
            continue
        low, high, groups, of_first = of_rank
        if holder >= 0 and low[0] == before[0] and low[1] - before[1] <= close:
            if holder == comm.rank:
                counts[:, -1] += of_first
            gone = 1 if rank == comm.rank else gone
            holder = holder if groups == 1 else rank
        else:
            holder = rank
        before = high
    return columns[start[gone:]], counts[0, gone:], counts[1, gone:]


def _destinations(comm: Comm, columns: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The rank of each of the different scores of a rank: equal ones have the same rank.

    Each rank shows P of its own, evenly spread, which stand for equally many each.
    """
    count, size = len(scores), comm.size
    shown = (np.arange(size) * count) // size if count else np.zeros(0, np.int64)
    every = comm.allgather((columns[shown], scores[shown], count))
    weights = np.concatenate([np.full(len(c), n / size) for c, _, n in every])
    sample_columns = np.concatenate([c for c, _, _ in every])
    sample_scores = np.concatenate([s for _, s, _ in every])
    order = np.lexsort((sample_scores, sample_columns))
    upto = np.cumsum(weights[order])
    bounds = []
    for rank in range(1, size):
        if not len(order):
            break
        at = order[min(np.searchsorted(upto, upto[-1] * rank / size), len(order) - 1)]
        low, high = np.searchsorted(columns, [sample_columns[at], sample_columns[at] + 1])
        bounds.append(low + np.searchsorted(scores[low:high], sample_scores[at]))
    return np.searchsorted(np.array(bounds, np.int64), np.arange(count), side="right")
