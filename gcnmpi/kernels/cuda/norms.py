"""Norms, activations and entry-wise arithmetic on a GPU: see ``kernels.cuda.text.norms``."""

from __future__ import annotations

from collections.abc import Sequence

import cupy as cp
import numpy as np
from cupy import ndarray as Array

from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.kernels.cuda.launches import CupyLaunches
from gcnmpi.kernels.interface.norms import EQUAL, ColumnNorm, Rows, RunningMoments


class CupyNorms(CupyLaunches):
    """``NormOperations`` and most ``EntryOperations``, on a GPU.

    Numbers of rows are contiguous (rows, 1) arrays, but for what is subtracted in a backward pass.
    """

    def row_sum(self, x: Array) -> Array:
        return self._row_sums(x, None, 0)

    def row_square_sum(self, x: Array, mean: Array | None) -> Array:
        return self._row_sums(x, mean, 1)

    def _row_sums(self, x: Array, mean: Array | None, square: int) -> Array:
        out = self.empty(len(x), 1)
        self._launch_rows("row_sums", x, mean, square, out)
        return out

    def normalise_rows(self, of: Rows[Array], bias: Array | None, out: Array) -> None:
        given = of.x, of.mean, of.rstd, of.weight, bias
        self._launch("normalise_by_rows", *of.x.shape, *given, out)

    def normalise_rows_sums(self, of: Rows[Array], grad: Array) -> Array:
        out, given = self.empty(len(of.x), 2), (of.x, of.mean, of.rstd, of.weight, grad)
        self._launch_rows("normalised_row_sums", *given, out, 0.0, None)
        return out

    def normalise_rows_backward(
        self, of: Rows[Array], grad: Array, centre: Array | None, along: Array, out: Array
    ) -> None:
        given = of.x, of.mean, of.rstd, of.weight, grad, centre, along
        self._launch("normalise_rows_backward", *of.x.shape, *given, out)

    def normalised_column_sums(
        self, of: Rows[Array], grad: Array, dweight: Array, dbias: Array
    ) -> None:
        width = of.x.shape[1]
        partial = self._grad_partials(of, grad, by_columns=False)
        self._add_partials(partial[:, :width], dbias)
        self._add_partials(partial[:, width:], dweight)

    def _grad_partials(self, of: Rows[Array], grad: Array, by_columns: bool) -> Array:
        rows, width = of.x.shape
        partial = self._partial_array(rows, 2 * width)
        given = of.x, of.mean, of.rstd, by_columns, grad
        self._launch("grad_partials", len(partial), width, *given, width, rows, partial)
        return partial

    def layer_norm(self, of: Rows[Array], bias: Array, eps: float, out: Array) -> None:
        given = 1 / max(1, of.x.shape[1]), eps, of.weight, bias, of.mean, of.rstd
        self._launch_rows("layer_norm", of.x, *given, out)

    def layer_norm_backward(
        self, of: Rows[Array], grad: Array, out: Array, dweight: Array, dbias: Array
    ) -> None:
        self.normalised_column_sums(of, grad, dweight, dbias)
        given, factor = (of.mean, of.rstd, of.weight, grad), 1 / max(1, of.x.shape[1])
        self._launch_rows("normalised_row_sums", of.x, *given, None, factor, out)

    def column_moments(self, x: Array, pivot: Array, out: Array) -> None:
        width = x.shape[1]
        partial = self._partial_array(len(x), 2 * width)
        self._launch("moment_partials", len(partial), width, x, pivot, width, len(x), partial)
        self._add_partials(partial, out.reshape(-1))

    def move_moments(
        self, sums: Array, n: int, running: RunningMoments[Array], moments: Array
    ) -> None:
        equal, kept = EQUAL[np.dtype(self.dtype)], (running.mean, running.variance)
        given = sums, n, running.momentum, equal, *kept
        self._launch("move_moments", len(running.mean), 1, *given, moments)

    def moment_factors(
        self, of: ColumnNorm[Array], exact: bool, scale: Array, shift: Array
    ) -> None:
        given = of.moments, of.eps, exact, of.weight, of.bias
        self._launch("moment_factors", len(of.weight), 1, *given, scale, shift)

    def scale_columns(self, x: Array, scale: Array, shift: Array, out: Array) -> None:
        self._launch("scale_columns", *x.shape, x, scale, None, None, shift, out)

    def column_grad_sums(self, x: Array, mean: Array, rstd: Array, grad: Array, out: Array) -> None:
        partial = self._grad_partials(Rows(x, mean, rstd), grad, by_columns=True)
        self._add_partials(partial, out.reshape(-1))

    def moment_slopes(self, of: ColumnNorm[Array], sums: Array, n: int, slopes: Array) -> None:
        given = sums, n, of.moments, of.eps, of.weight, *slopes
        self._launch("moment_slopes", len(of.weight), 1, *given)

    def scale_columns_backward(self, grad: Array, x: Array, slopes: Array, out: Array) -> None:
        a, b, c = slopes
        self._launch("scale_columns", *x.shape, grad, a, x, b, c, out)

    # Entry by entry.

    def add(self, x: Array, y: Array, out: Array) -> None:
        self._combine(x, 1.0, y, 1.0, out)

    def scale(self, x: Array, factor: float, out: Array, plus: Array | None = None) -> None:
        if plus is None:
            self._combine(x, factor, None, 0.0, out)
        else:
            self._launch("scale_by_sum", *x.shape, x, factor, plus, out)

    def axpy(self, x: Array, factor: float, out: Array) -> None:
        self._combine(out, 1.0, x, factor, out)

    def _combine(self, x: Array, a: float, y: Array | None, b: float, out: Array) -> None:
        self._launch("combine", *x.shape, x, a, y, b, out)

    def dot(self, x: Array, y: Array) -> float:
        out = cp.empty((1,), np.float64)
        self.dot_to(x, y, out)
        return float(cp.asnumpy(out)[0])

    def dot_to(self, x: Array, y: Array, out: Array) -> None:
        self._dot(x, y, 0, out)

    def _dot(self, x: Array, y: Array, negative: int, out: Array) -> None:
        if len(x) == 1:  # partial sums are of rows
            x, y = x.T, y.T
        partial = self._partial_array(*x.shape)
        self._launch("dot_partials", len(partial), x.shape[1], x, y, negative, len(x), partial)
        if out.dtype == np.float64:
            self._add_all(partial, out)
            return
        total = cp.empty((1,), np.float64)
        self._add_all(partial, total)
        self.copy(total, out)

    def maximum(self, xs: Sequence[Array], out: Array) -> None:
        self.copy(xs[0], out)
        for x in xs[1:]:
            self._launch("larger", *x.shape, x, out)

    def maximum_backward(
        self, grad: Array, out: Array, xs: Sequence[Array], i: int, dx: Array
    ) -> None:
        for before, x in ((0, xs[i]), *((1, x) for x in xs[:i])):
            self._launch("where_largest", *x.shape, x, out, grad, before, dx)

    def elu(self, x: Array, out: Array) -> None:
        self._activate(x, 0, 0.0, None, None, out)

    def function(self, kind: str, x: Array, out: Array) -> None:
        if kind == "gelu":
            self._activate(x, 2, 0.0, None, None, out)
        else:
            self.copy(FUNCTIONS[kind][0](x), out)

    def function_backward(self, kind: str, x: Array, grad: Array, out: Array) -> None:
        if kind == "gelu":
            self._activate(x, 2, 0.0, None, grad, out)
        else:
            self.copy(grad * FUNCTIONS[kind][1](x), out)

    def leaky(self, x: Array, slope: float, out: Array) -> None:
        self._activate(x, 1, slope, None, None, out)

    def prelu(self, x: Array, slope: Array, out: Array) -> None:
        self._activate(x, 1, 0.0, slope, None, out)

    def prelu_backward(
        self, x: Array, grad: Array, slope: Array, out: Array, of_slope: Array
    ) -> None:
        self._dot(x, grad, 1, of_slope)
        self._activate(x, 1, 0.0, slope, grad, out)

    def _activate(
        self,
        x: Array,
        kind: int,
        slope: float,
        trained: Array | None,
        grad: Array | None,
        out: Array,
    ) -> None:
        self._launch("activate_more", *x.shape, x, kind, slope, trained, grad, out)

    # Heads, next to each other in a row.

    def mean_of_heads(self, x: Array, heads: int, out: Array) -> None:
        self._launch("mean_of_heads", *out.shape, x, heads, 1 / heads, out)

    def mean_of_heads_backward(self, grad: Array, heads: int, out: Array) -> None:
        width = grad.shape[1]
        self._launch("mean_of_heads_backward", *out.shape, grad, width, 1 / heads, out)
