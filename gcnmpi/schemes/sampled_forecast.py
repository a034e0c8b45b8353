"""A mini-batch of ``p2p`` on paper: the memory, work and messages of each rank."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Place, Space
from gcnmpi.schemes.forecast import (
    Dense,
    Facts,
    Forecast,
    Span,
    Sparse,
    exchange_volume,
    whole_row_work,
)
from gcnmpi.schemes.operations import EXCHANGES, Operation
from partition.graph.metrics import Metrics

LISTED = 256  # ranks up to which each is looked at: which one is busiest depends on the widths


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of a batch, lists with one number a rank.

    Attributes
    ----------
    first : sequence of int
        Rows that it begins with: its seeds, or all that are in it.
    layers : sequence of Metrics
        Of each layer, that of the seeds first, one where all are alike: the rows that it reads,
        entries of M, rows and messages of an expand.
    looked_at : sequence of sequence of int
        Entries of M of the rows that each layer computes, before these are thinned out.
    layered : bool
        Whether each layer has rows of its own.
    groups : sequence of sequence of int
        Of each layer, groups of arcs of one relation into a row; empty where there are none.
    """

    first: Sequence[int]
    layers: Sequence[Metrics]
    looked_at: Sequence[Sequence[int]]
    layered: bool
    groups: Sequence[Sequence[int]] = ()

    def counts(self, rank: int) -> list[int]:
        """As ``Batch.counts`` of a rank."""
        read = [layer.rows[rank] for layer in self.layers] if self.layered else []
        return [self.first[rank], *read]


@dataclass(frozen=True)
class TileSizes:
    """Sizes of a batch that is cut out of tiles: rows, and entries of M, of all ranks together."""

    rows: int
    entries: int


def count_number(counts: int, layer: int) -> int:
    """Which of so many counts of a batch that of the rows of Hᵏ is, for k = ``layer``."""
    return max(0, counts - 1 - layer)


def busiest(batches: Sequence[BatchSizes], size: int) -> Sequence[int]:
    """All ranks; of many, the ones with most rows, entries, rows to send or receive in a layer."""
    if size <= LISTED:
        return range(size)
    figures = [sum(np.asarray(batch.first) for batch in batches)]
    for layer in zip(*(batch.layers for batch in batches), strict=True):
        for name in ("rows", "nnz", "send_rows", "recv_rows", "send_messages"):
            figures.append(sum(np.asarray(getattr(one, name)) for one in layer))
    return sorted({int(np.argmax(figure)) for figure in figures})


@dataclass(frozen=True)
class BatchForecast(Forecast):
    """Of :class:`gcnmpi.schemes.sampled.BatchScheme`, as other schemes have one.

    Attributes
    ----------
    facts : Facts
        Of the graph that it is cut from.
    busiest : sequence of int
        See :func:`busiest`.
    """

    size: int
    facts: Facts
    sizes: BatchSizes
    busiest: Sequence[int]

    @property
    def own_buffers(self) -> bool:  # type: ignore[override]
        """Where all layers have the same rows."""
        return not self.sizes.layered

    def layout_of(self, place: Place) -> Hashable:
        """One for each layer."""
        return place.layer if self.sizes.layered else None

    def ranks(self) -> Sequence[int]:
        """The ranks that were found to be the busiest."""
        return self.busiest

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """Rows × bytes of a row in a message."""
        if product not in EXCHANGES:
            return NOTHING
        back = product in (Operation.FOLD, Operation.AGGREGATE_T)
        message = self.facts.message_bytes(sizes[0])
        return exchange_volume(vars(self._layer(k)), rank, message, back)

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """All ranks, each with any other."""
        return [Span(self.size, 1, all_pairs=True)] if product in EXCHANGES else []

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """The batch's own rows of a layer; rows of neighbours lie anywhere among those it reads."""
        if product not in EXCHANGES:
            return whole_row_work(self._rows(rank, k), product, *sizes)
        layer, rows = self._layer(k), self._rows(rank, k)
        inner = layer.rows[rank] + layer.recv_rows[rank]
        if product == Operation.AGGREGATE_T:
            rows, inner = inner, rows
        return [Sparse(rows, inner, layer.nnz[rank], sizes[0], shuffled=True)]

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """The batch's own rows at a place, these and the halo, arcs, or groups of these."""
        if place.space is Space.OWN:
            return self._rows(rank, place.layer), width
        layer, groups = self._layer(place.layer), self.sizes.groups
        if place.space is Space.WHOLE:
            return layer.rows[rank] + layer.recv_rows[rank], width
        if place.space is Space.ENTRIES:
            return layer.nnz[rank], width
        return groups[self._number(place.layer)][rank], width

    def entries(self, rank: int) -> int:
        """Of each layer's matrix and its transpose."""
        return 2 * sum(layer.nnz[rank] for layer in self.sizes.layers)

    def loaded(self, rank: int) -> int:
        """None: a batch is cut out of what is there."""
        return 0

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Halo and packed rows."""
        if product not in EXCHANGES:
            return 0
        layer = self._layer(k)
        return self.facts.buffer_bytes(layer.recv_rows[rank] + layer.send_rows[rank], sizes[0])

    def _layer(self, k: int) -> Metrics:
        return self.sizes.layers[self._number(k)]

    def _number(self, k: int) -> int:
        """Which of the layers is layer k; rows of arcs of no layer are those of the first one."""
        return len(self.sizes.layers) - max(1, k) if self.sizes.layered else 0

    def _rows(self, rank: int, layer: int) -> int:
        """Of Hᵏ, for k = ``layer``."""
        counts = self.sizes.counts(rank)
        return counts[count_number(len(counts), layer)]
