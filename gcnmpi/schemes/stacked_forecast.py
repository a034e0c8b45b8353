"""A scheme on paper, for several samples at once: see :mod:`gcnmpi.halo.stacked`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from gcnmpi.core.volume import Volume
from gcnmpi.layout.place import Place
from gcnmpi.schemes.forecast import Dense, Forecast, Span, Sparse
from gcnmpi.schemes.operations import EXCHANGES, ROWS, Operation


class StackedForecast(Forecast):
    """The forecast of a scheme, with ``count`` rows for each row that it has.

    Rows that are exchanged or multiplied with M are so many times as wide; entries that are visited
    one by one are so many times as many.
    """

    def __init__(self, inner: Forecast, count: int) -> None:
        self._inner, self.samples, self.facts = inner, count, inner.facts
        self.orders, self.whole_rows = inner.orders, inner.whole_rows
        self.own_buffers = inner.own_buffers

    def layout_of(self, place: Place) -> Hashable:
        """That of the scheme."""
        return self._inner.layout_of(place)

    def ranks(self) -> Sequence[int]:
        """The busiest ones of the scheme."""
        return self._inner.ranks()

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """Messages of wider rows."""
        return self._inner.volume(rank, product, k, *self._wide(product, sizes))

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """The spans of the scheme."""
        return self._inner.span(product, k)

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """Products of wider rows with M, or of more rows with a weight."""
        if product in EXCHANGES and product not in ROWS:
            return self._inner.work(rank, product, k, *self._wide(product, sizes))
        return [self._more(part) for part in self._inner.work(rank, product, k, *sizes)]

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """So many times the rows."""
        rows, columns = self._inner.shape(rank, place, width)
        return self.samples * rows, columns

    def entries(self, rank: int) -> int:
        """One M serves all samples."""
        return self._inner.entries(rank)

    def loaded(self, rank: int) -> int:
        """One M serves all samples."""
        return self._inner.loaded(rank)

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Buffers of wider rows."""
        return self._inner.buffers(rank, product, k, *self._wide(product, sizes))

    def reduction_scratch(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """That of the scheme, of wider rows."""
        return self._inner.reduction_scratch(rank, product, k, *self._wide(product, sizes))

    def weight_numbers(self, rank: int, k: int, d_in: int, d_out: int) -> int:
        """Weights are the same for all samples."""
        return self._inner.weight_numbers(rank, k, d_in, d_out)

    def _wide(self, product: Operation, sizes: Sequence[int]) -> tuple[int, ...]:
        times = self.samples if product in EXCHANGES else 1
        return tuple(times * size for size in sizes)

    def _more(self, part: Sparse | Dense) -> Sparse | Dense:
        """A local product for all samples; rows of both factors, where these are of vertices."""
        count = self.samples
        if isinstance(part, Sparse):
            shape = count * part.rows, count * part.inner, count * part.entries
            return replace(part, rows=shape[0], inner=shape[1], entries=shape[2])
        return replace(part, rows=count * part.rows)
