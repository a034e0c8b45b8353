"""The contents and the exchanges of a mini-batch under a partition, counted as for whole graphs.

A run counts the same rows and messages (:mod:`partition.graph.metrics` defines them).

In the layer that reads the inputs, a part may keep input rows of other parts: it computes with them
as with its own, so that no batch has to send it these rows, nor gradients back. How often a row is
read is observed in batches that no run trains on. The trainer decides by the same functions for
its own rows, and so counts the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partition.graph.metrics import Metrics, metrics_of, pattern_exchange
from partition.graph.sampling import Pattern, Sampler, Side, pointers

OBSERVED = 16  # batches in which it is observed how often rows are read
EPOCH = 1 << 31  # their first one: no run gets there
INDEX_BYTES = 4  # of a column's number in a sparse row


@dataclass(frozen=True)
class Drawn:
    """A mini-batch of the whole graph.

    Attributes
    ----------
    first : (m,) integers
        The vertices that it begins with, increasing: its seeds, or all that are in it.
    patterns : list of Pattern
        The entries of M of each layer, that of the seeds first; one, where all layers are alike.
    """

    first: np.ndarray
    patterns: list[Pattern]

    @property
    def computed(self) -> list[np.ndarray]:
        """The rows that each layer computes: those that the layer after it reads."""
        return [self.first, *(pattern.columns for pattern in self.patterns[:-1])]


def draw_batch(
    sampler: Sampler,
    side: Side,
    epoch: int,
    batch: int,
    seeds: np.ndarray | None = None,
) -> Drawn:
    """Draw a mini-batch, of the :func:`partition.graph.sampling.sides` of a graph for its sampler.

    The sampler draws its seeds among ``seeds``, increasing vertices; without them, among all.
    """
    first = sampler.members(epoch, batch)
    if seeds is None:
        return Drawn(first, sampler.patterns(side, epoch, batch))
    # Only samplers of seeds take them.
    return Drawn(seeds[first], sampler.patterns(side, epoch, batch, seeds))  # type: ignore[call-arg]


def pairs_of(pattern: Pattern, parts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows each part reads of others: numbers vertex·k + part, increasing, each once.

    And, for each entry of the pattern, the place of its own, −1 where it is of the part itself.
    """
    column = np.repeat(pattern.columns, np.diff(pattern.indptr))
    reader = parts[pattern.rows]
    away = parts[column] != reader
    pairs, place = np.unique(column[away].astype(np.int64) * k + reader[away], return_inverse=True)
    places = np.full(len(column), -1)
    places[away] = place
    return pairs, places


def measure_batch(
    drawn: Drawn, parts: np.ndarray, k: int, direction: str, kept: np.ndarray | None = None
) -> list[Metrics]:
    """The costs of each layer of a mini-batch under a partition, that of the seeds first.

    ``rows`` of a result are the rows that the layer reads without a message: by their owners, and
    those of :func:`kept_pairs` that parts keep; ``nnz`` its entries,
    with the diagonal of each row that it computes, or its arcs, where they have relations.
    """
    found = []
    for number, (pattern, computed) in enumerate(
        zip(drawn.patterns, drawn.computed, strict=True), 1
    ):
        more = np.zeros(0, np.int64)
        sent = pattern
        if kept is not None and number == len(drawn.patterns):
            sent, more = _without(pattern, computed, parts, k, kept)
        owners = parts[sent.columns]
        exchange = pattern_exchange(sent.indptr, sent.rows, owners, parts, k)
        column = np.repeat(pattern.columns, np.diff(pattern.indptr))
        if pattern.groups is None:
            beside = parts[pattern.rows[pattern.rows != column]]
            worked = np.concatenate((beside, parts[computed]))
        else:
            worked = parts[pattern.rows]
        nnz = np.bincount(worked, minlength=k)
        found.append(metrics_of(exchange, direction, np.concatenate((owners, more)), nnz))
    return found


def _without(
    pattern: Pattern, computed: np.ndarray, parts: np.ndarray, k: int, kept: np.ndarray
) -> tuple[Pattern, np.ndarray]:
    """A pattern without the entries of rows that are kept, and for each of these rows its part.

    Columns remain that an entry or ``computed`` has.
    """
    pairs, place = pairs_of(pattern, parts, k)
    here = np.isin(pairs, kept, assume_unique=True)
    # One number more, which stands for the place −1.
    remains = np.append(~here, True)[place]
    column = np.repeat(np.arange(len(pattern.columns)), np.diff(pattern.indptr))[remains]
    sizes = np.bincount(column, minlength=len(pattern.columns))
    needed = (sizes > 0) | np.isin(pattern.columns, computed)
    left = Pattern(pattern.columns[needed], pointers(sizes[needed]), pattern.rows[remains])
    return left, pairs[here] % k


def observed(sampler: Sampler) -> list[tuple[int, int]]:
    """Epoch and number of each batch that is observed."""
    return [(EPOCH + i // sampler.batches, i % sampler.batches) for i in range(OBSERVED)]


def row_bytes(width: int, entries: int, n: int, itemsize: int) -> float:
    """Bytes of a row of ``width`` features, of numbers of ``itemsize`` bytes.

    If the features are a sparse matrix, ``entries`` are those of all n rows, and a row is taken to
    have as many as the mean; otherwise they are 0.
    """
    return entries / n * (itemsize + INDEX_BYTES) if entries else width * itemsize


def rows_within(megabytes: float, width: int, entries: int, n: int, itemsize: int) -> int:
    """How many rows of features so many MB (2²⁰ bytes) hold; arguments as of `row_bytes`."""
    return int(megabytes * 2**20 / max(row_bytes(width, entries, n, itemsize), 1))


def most_used(uses: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
    """Places, increasing, of the rows that are used most: at most ``rows``, and used at all.

    Of rows that are used equally, that with the smaller global id in ``ids`` is taken.
    """
    used = np.flatnonzero(uses)
    order = np.lexsort((ids[used], -uses[used]))
    return np.sort(used[order[:rows]])


def observe(sampler: Sampler, side: Side, seeds: np.ndarray | None) -> list[Drawn]:
    """Draw the batches that are observed; arguments as of :func:`draw_batch`."""
    return [draw_batch(sampler, side, *place, seeds) for place in observed(sampler)]


def kept_pairs(batches: Sequence[Drawn], parts: np.ndarray, k: int, rows: int) -> np.ndarray:
    """The rows that each of k parts keeps, at most ``rows``: increasing numbers vertex·k + part."""
    pairs, uses = np.unique(
        np.concatenate([pairs_of(batch.patterns[-1], parts, k)[0] for batch in batches]),
        return_counts=True,
    )
    vertices, part = np.divmod(pairs, k)
    kept = []
    for number in range(k):
        mine = np.flatnonzero(part == number)
        kept.append(pairs[mine[most_used(uses[mine], vertices[mine], rows)]])
    return np.sort(np.concatenate(kept))
