"""Rows of vertices and of entries, in NumPy and SciPy: compiled kernels are compared with these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gcnmpi.kernels.epilogues import EpilogueOf
from gcnmpi.kernels.host.neighbours import Pattern, columns_of, reduced, split, with_values
from gcnmpi.kernels.interface.arcs import LEAST_VARIANCE, Reduction, Taken
from gcnmpi.kernels.rows import entry_rows

Array = np.ndarray


class Arcs(ABC):
    """:class:`~gcnmpi.kernels.interface.arcs.ArcOperations` on the host."""

    @abstractmethod
    def follow(self, x: Array, epilogue: EpilogueOf[Array] | None) -> None:
        """Apply an epilogue in place: see the interface of dense operations."""

    def cuts(self, starts: Array, entries: int) -> Sequence[tuple[int, int]]:
        """Each of whole rows, so that one may have more entries."""
        rows = len(starts) - 1
        return [(0, rows)] if starts[rows] <= entries else _pieces(starts, entries)

    def some_rows(self, pattern: Pattern, rows: slice) -> Pattern:
        """Its columns have no entries, unless it is the whole pattern."""
        return pattern if rows.stop - rows.start == pattern.rows else pattern.some_rows(rows)

    def take(self, of: Taken[Array, Pattern]) -> None:
        rows, out = entry_rows(of.pattern.starts), of.out
        if of.source is not None:
            np.take(of.source, of.pattern.indices, axis=0, out=out)
            if of.target is not None:
                out += of.target[rows]
        elif of.target is not None:
            np.take(of.target, rows, axis=0, out=out)
        self.follow(out, of.epilogue)

    def sum_sources(self, pattern: Pattern, x: Array, out: Array) -> None:
        starts = pattern.column_starts
        for first, last in _pieces(starts, _AT_ONCE):  # without a copy of all rows
            some = x[pattern.places_back[starts[first] : starts[last]]]
            out[first:last] = reduced(np.add, some, starts[first : last + 1] - starts[first])

    def reduce_targets(self, of: Reduction[Array, Pattern]) -> None:
        starts, rows, width = of.pattern.starts, entry_rows(of.pattern.starts), of.x.shape[1]
        for number, kind in enumerate(of.kinds):
            out = of.out[:, number * width : (number + 1) * width]
            if kind in _EXTREMES:
                out[...] = reduced(_EXTREMES[kind], of.x, starts)
            elif kind == "sum":
                out[...] = reduced(np.add, of.x, starts)
            else:
                mean = reduced(np.add, of.x, starts) / _counts(of.pattern, of.x)
                if kind == "std":
                    mean = _deviation(of, mean[rows])
                out[...] = mean

    def reduce_targets_backward(
        self, of: Reduction[Array, Pattern], grad: Array, dx: Array
    ) -> None:
        starts, rows, width = of.pattern.starts, entry_rows(of.pattern.starts), of.x.shape[1]
        counts = _counts(of.pattern, of.x)
        dx.fill(0)
        for number, kind in enumerate(of.kinds):
            own = slice(number * width, (number + 1) * width)
            g, out = grad[:, own], of.out[:, own]
            if kind in _EXTREMES:
                filled = np.flatnonzero(np.diff(starts))
                if len(filled) and width:
                    hit = (of.x == out[rows]) | np.isnan(of.x)
                    place = np.where(hit, np.arange(len(rows))[:, np.newaxis], len(rows))
                    first = np.minimum.reduceat(place, starts[filled], axis=0)
                    dx[first, np.arange(width)] += g[filled]
            elif kind == "std":
                mean = reduced(np.add, of.x, starts) / counts
                slope = np.divide(g, out * counts, out=np.zeros_like(g), where=out > 0)
                dx += (of.x - mean[rows]) * slope[rows]
            else:
                dx += (g if kind == "sum" else g / counts)[rows]

    def softmax_targets(self, pattern: Pattern, x: Array, out: Array) -> None:
        rows = entry_rows(pattern.starts)
        np.exp(x - reduced(np.maximum, x, pattern.starts)[rows], out=out)
        out /= reduced(np.add, out, pattern.starts)[rows]

    def softmax_targets_backward(self, pattern: Pattern, y: Array, grad: Array, out: Array) -> None:
        along = reduced(np.add, y * grad, pattern.starts)
        np.multiply(y, grad - along[entry_rows(pattern.starts)], out=out)

    def spmm_values(self, pattern: Pattern, values: Array, x: Array, out: Array) -> None:
        for head, columns in enumerate(columns_of(x, values.shape[1])):
            out[:, columns] = with_values(pattern, values[:, head]) @ x[:, columns]

    def spmm_values_t(self, pattern: Pattern, values: Array, x: Array, out: Array) -> None:
        for head, columns in enumerate(columns_of(x, values.shape[1])):
            out[:, columns] = with_values(pattern, values[:, head]).T @ x[:, columns]

    def sddmm(self, pattern: Pattern, target: Array, source: Array, out: Array) -> None:
        self.row_dots(target[entry_rows(pattern.starts)], source[pattern.indices], out)

    def row_dots(self, x: Array, y: Array, out: Array) -> None:
        heads = out.shape[1]
        out[...] = np.einsum("mhc,mhc->mh", split(x, heads), split(y, heads))

    def scale_heads(self, values: Array, x: Array, out: Array) -> None:
        heads = values.shape[1]
        np.multiply(values[:, :, np.newaxis], split(x, heads), out=split(out, heads))


_EXTREMES = {"max": np.maximum, "min": np.minimum}
_AT_ONCE = 1 << 15  # entries


def _pieces(starts: Array, entries: int) -> list[tuple[int, int]]:
    """Ranges of rows that have about so many entries each."""
    inner = np.searchsorted(starts, np.arange(entries, starts[-1], entries), "right") - 1
    return list(pairwise(np.unique([0, *inner, len(starts) - 1]).tolist()))


def _counts(pattern: Pattern, x: Array) -> Array:
    """Entries of each row, at least 1, (rows, 1) of x's dtype."""
    return np.maximum(np.diff(pattern.starts), 1)[:, np.newaxis].astype(x.dtype)


def _deviation(of: Reduction[Array, Pattern], mean: Array) -> Array:
    """The standard deviation of each row's entries about their mean, which is given for each."""
    variance = reduced(np.add, (of.x - mean) ** 2, of.pattern.starts) / _counts(of.pattern, of.x)
    variance[variance <= LEAST_VARIANCE] = 0
    return np.sqrt(variance)
