"""Rows of vertices and rows of entries on a GPU: see ``kernels.cuda.text.arcs``."""

from __future__ import annotations

import numpy as np
from cupy import ndarray as Array

from gcnmpi.core.functions import REDUCTIONS
from gcnmpi.kernels.cuda.launches import Given, lanes
from gcnmpi.kernels.cuda.neighbours import CupyNeighbours, DevicePattern
from gcnmpi.kernels.cuda.pieces import per_head
from gcnmpi.kernels.cuda.products import CupyProducts
from gcnmpi.kernels.epilogues import EpilogueOf
from gcnmpi.kernels.interface.arcs import LEAST_VARIANCE, Reduction, Taken


class CupyArcs(CupyProducts, CupyNeighbours):
    """``ArcOperations``, on a GPU: a launch each, and one more where ``take`` adds a matrix."""

    def cuts(self, starts: np.ndarray, entries: int) -> list[tuple[int, int]]:
        """One: many rows at once keep a device busy."""
        return [(0, len(starts) - 1)]

    def some_rows(self, pattern: DevicePattern, rows: slice) -> DevicePattern:
        """All rows: there is one slice."""
        return pattern

    def take(self, of: Taken[Array, DevicePattern]) -> None:
        later = of.epilogue is not None and of.epilogue.plus is not None
        now: EpilogueOf[Array] | None = None if later else of.epilogue
        given = *of.pattern.ends, of.source, of.target, of.out, *self._epilogue(of.out, now)
        self._launch("take_ends", *of.out.shape, *given)
        self.follow(of.out, of.epilogue if later else None)

    def sum_sources(self, pattern: DevicePattern, x: Array, out: Array) -> None:
        self.sum_entries(pattern.by_columns, pattern.places_back, x, out)

    def reduce_targets(self, of: Reduction[Array, DevicePattern]) -> None:
        given = of.x, *_places(of), LEAST_VARIANCE, of.out
        self._fold("reduce_rows", of.pattern.by_rows, of.x.shape[1], 5, *given)

    def reduce_targets_backward(
        self, of: Reduction[Array, DevicePattern], grad: Array, dx: Array
    ) -> None:
        given = of.x, *_places(of), of.out, grad, dx
        self._spread("reduce_rows_backward", of.pattern, of.x, 6, *given)

    def softmax_targets(self, pattern: DevicePattern, x: Array, out: Array) -> None:
        self._spread("softmax_entries", pattern, x, 2, x, -np.inf, out)

    def softmax_targets_backward(
        self, pattern: DevicePattern, y: Array, grad: Array, out: Array
    ) -> None:
        self._spread("softmax_entries_backward", pattern, y, 1, y, grad, out)

    def _spread(
        self, name: str, pattern: DevicePattern, x: Array, numbers: int, *given: Given
    ) -> None:
        """To the entries of each row, from what is found of all of them."""
        self._fold_back(name, pattern.by_rows, pattern.rows, x.shape[1], numbers, *given)

    def sddmm(self, pattern: DevicePattern, target: Array, source: Array, out: Array) -> None:
        width = per_head(source, out)
        given = *pattern.ends, target, source, width, lanes(width), out
        self._launch("dots_of_ends", len(out), out.shape[1] * lanes(width), *given)

    def row_dots(self, x: Array, y: Array, out: Array) -> None:
        width = per_head(x, out)
        given = x, y, width, lanes(width), out
        self._launch("row_dots", len(out), out.shape[1] * lanes(width), *given)

    def scale_heads(self, values: Array, x: Array, out: Array) -> None:
        self._launch("scale_heads", *out.shape, values, per_head(x, values), x, out)


def _places(of: Reduction[Array, DevicePattern]) -> list[int]:
    """The first column of each of all reductions in the result; −1 for those not asked for."""
    width = of.x.shape[1]
    return [of.kinds.index(k) * width if k in of.kinds else -1 for k in REDUCTIONS]
