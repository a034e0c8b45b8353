"""Which rows of others a part keeps, since mini-batches read them often.

In the layer that reads the inputs, a part may keep input rows of other parts: it computes with them
as with its own, so that no batch has to send it these rows, nor gradients back. How often a row is
read is observed in batches that no run trains on. The trainer decides by the same functions for
its own rows, and so counts the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.graph.batch_metrics import Drawn, draw_batch, pairs_of
from partition.graph.sampling import Sampler

OBSERVED = 16  # batches
EPOCH = 1 << 31  # their first one: no run gets there
INDEX_BYTES = 4  # of a column's number in a sparse row


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


def observe(
    sampler: Sampler, side: tuple[np.ndarray, np.ndarray], seeds: np.ndarray | None
) -> list[Drawn]:
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
