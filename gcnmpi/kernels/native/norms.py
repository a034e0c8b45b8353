"""Norms and entry-wise arithmetic in C++, each in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from gcnmpi.kernels.host.elementwise import Elementwise, sum_of
from gcnmpi.kernels.host.norms import Norms
from gcnmpi.kernels.interface.norms import Rows

Array = np.ndarray
COMPILED = ("gelu", "sigmoid", "tanh")  # of ``core.functions.FUNCTIONS``


class NativeNorms(Norms, Elementwise):
    """:class:`Norms` and :class:`Elementwise`, compiled; ``_native`` is the compiled kernel."""

    _native: ModuleType

    def row_sum(self, x: Array) -> Array:
        return self._row_sums(x, None, False)

    def row_square_sum(self, x: Array, mean: Array | None) -> Array:
        return self._row_sums(x, mean, True)

    def _row_sums(self, x: Array, mean: Array | None, square: bool) -> Array:
        out = np.empty((len(x), 1), self.dtype)
        self._native.row_sums(x, mean, square, out)
        return out

    def normalise_rows(self, of: Rows[Array], bias: Array | None, out: Array) -> None:
        self._native.normalise_rows(of.x, of.mean, of.rstd, of.weight, bias, out)

    def normalise_rows_sums(self, of: Rows[Array], grad: Array) -> Array:
        out = np.empty((len(of.x), 2), self.dtype)
        self._native.normalise_rows_sums(of.x, of.mean, of.rstd, of.weight, grad, out)
        return out

    def normalise_rows_backward(
        self, of: Rows[Array], grad: Array, centre: Array | None, along: Array, out: Array
    ) -> None:
        centre = None if centre is None else np.ascontiguousarray(centre)
        along = np.ascontiguousarray(along)  # may be columns of the sums
        rows = of.x, of.mean, of.rstd, of.weight
        self._native.normalise_rows_backward(*rows, grad, centre, along, out)

    def normalised_column_sums(
        self, of: Rows[Array], grad: Array, dweight: Array, dbias: Array
    ) -> None:
        """In groups of rows: the same bits for every number of threads."""
        self._native.normalised_column_sums(of.x, of.mean, of.rstd, grad, dweight, dbias)

    def layer_norm(self, of: Rows[Array], bias: Array, eps: float, out: Array) -> None:
        """A row at a time."""
        self._native.layer_norm(of.x, of.weight, bias, eps, out, of.mean, of.rstd)

    def layer_norm_backward(
        self, of: Rows[Array], grad: Array, out: Array, dweight: Array, dbias: Array
    ) -> None:
        """Two passes: over the columns, over the rows."""
        rows = of.x, of.mean, of.rstd, of.weight
        self._native.layer_norm_backward(*rows, grad, out, dweight, dbias)

    def column_moments(self, x: Array, pivot: Array, out: Array) -> None:
        """One pass, in groups of rows."""
        self._native.column_moments(x, pivot, out)

    def scale_columns(self, x: Array, scale: Array, shift: Array, out: Array) -> None:
        self._native.scale_columns(x, scale, None, None, shift, out)

    def column_grad_sums(self, x: Array, mean: Array, rstd: Array, grad: Array, out: Array) -> None:
        """One pass, in groups of rows."""
        self._native.column_grad_sums(x, mean, rstd, grad, out)

    def scale_columns_backward(self, grad: Array, x: Array, slopes: Array, out: Array) -> None:
        a, b, c = slopes
        self._native.scale_columns(grad, a, x, b, c, out)

    # Entry by entry.

    def add(self, x: Array, y: Array, out: Array) -> None:
        self._native.combine(x, 1.0, y, 1.0, out)

    def scale(self, x: Array, factor: float, out: Array, plus: Array | None = None) -> None:
        self._native.combine(x, sum_of(factor, plus), None, 0.0, out)

    def axpy(self, x: Array, factor: float, out: Array) -> None:
        self._native.combine(out, 1.0, x, factor, out)

    def dot(self, x: Array, y: Array) -> float:
        """In groups of rows: the same bits for every number of threads."""
        return self._native.dot(x, y)

    def maximum(self, xs: Sequence[Array], out: Array) -> None:
        self._native.maximum(list(xs), out)

    def maximum_backward(
        self, grad: Array, out: Array, xs: Sequence[Array], i: int, dx: Array
    ) -> None:
        self._native.maximum_backward(grad, out, list(xs), i, dx)

    def function(self, kind: str, x: Array, out: Array) -> None:
        if kind in COMPILED:
            self._native.function(kind, x, None, out)
        else:
            super().function(kind, x, out)

    def function_backward(self, kind: str, x: Array, grad: Array, out: Array) -> None:
        if kind in COMPILED:
            self._native.function(kind, x, grad, out)
        else:
            super().function_backward(kind, x, grad, out)

    def prelu_backward(
        self, x: Array, grad: Array, slope: Array, out: Array, of_slope: Array
    ) -> None:
        of_slope.fill(self._native.leaky_backward(x, grad, float(slope[0]), out))

    def mean_of_heads(self, x: Array, heads: int, out: Array) -> None:
        self._native.mean_of_heads(x, heads, out)

    def mean_of_heads_backward(self, grad: Array, heads: int, out: Array) -> None:
        self._native.mean_of_heads_backward(grad, heads, out)
