"""Norms in NumPy: see :mod:`gcnmpi.kernels.interface.norms`."""

from __future__ import annotations

import numpy as np

from gcnmpi.kernels.interface.norms import EQUAL, ColumnNorm, Rows, RunningMoments

Array = np.ndarray


class Norms:
    """:class:`~gcnmpi.kernels.interface.norms.NormOperations` on the host."""

    dtype: np.dtype

    # Over the columns of a row; numbers of rows are (rows, 1) arrays of the kernel.

    def row_sum(self, x: Array) -> Array:
        return x.sum(axis=1, keepdims=True)

    def row_square_sum(self, x: Array, mean: Array | None) -> Array:
        return np.square(x if mean is None else x - mean).sum(axis=1, keepdims=True)

    def normalise_rows(self, of: Rows[Array], bias: Array | None, out: Array) -> None:
        np.multiply(of.x if of.mean is None else of.x - of.mean, of.rstd, out=out)
        if of.weight is not None:
            out *= of.weight
        if bias is not None:
            out += bias

    def normalise_rows_sums(self, of: Rows[Array], grad: Array) -> Array:
        g = grad if of.weight is None else grad * of.weight
        sums = g.sum(axis=1), (g * _normalised(of)).sum(axis=1)
        return np.stack(sums, axis=1)

    def normalise_rows_backward(
        self, of: Rows[Array], grad: Array, centre: Array | None, along: Array, out: Array
    ) -> None:
        back = _normalised(of) * along
        np.subtract(grad if of.weight is None else grad * of.weight, back, out=out)
        if centre is not None:
            out -= centre
        out *= of.rstd

    def normalised_column_sums(
        self, of: Rows[Array], grad: Array, dweight: Array, dbias: Array
    ) -> None:
        dweight[...] = (grad * _normalised(of)).sum(axis=0, dtype=np.float64)
        dbias[...] = grad.sum(axis=0, dtype=np.float64)

    def layer_norm(self, of: Rows[Array], bias: Array, eps: float, out: Array) -> None:
        assert of.mean is not None
        width, squares = max(1, of.x.shape[1]), self.row_square_sum
        of.mean[...] = self.row_sum(of.x) / width
        of.rstd[...] = 1 / np.sqrt(squares(of.x, of.mean) / width + self.dtype.type(eps))
        self.normalise_rows(of, bias, out)

    def layer_norm_backward(
        self, of: Rows[Array], grad: Array, out: Array, dweight: Array, dbias: Array
    ) -> None:
        self.normalised_column_sums(of, grad, dweight, dbias)
        sums = self.normalise_rows_sums(of, grad) / max(1, of.x.shape[1])
        self.normalise_rows_backward(of, grad, sums[:, :1], sums[:, 1:], out)

    # Over the rows of a column.

    def column_moments(self, x: Array, pivot: Array, out: Array) -> None:
        apart = x - pivot
        out[0], out[1] = apart.sum(axis=0), np.square(apart).sum(axis=0)

    def move_moments(
        self, sums: Array, n: int, running: RunningMoments[Array], moments: Array
    ) -> None:
        shift = sums[0] / n
        centre, spread = moments[0] + shift, sums[1] / n - shift**2
        equal = spread <= (EQUAL[np.dtype(self.dtype)] * centre) ** 2
        new = centre, np.where(equal, 0, spread)
        unbiased = new[1] * (n / max(1, n - 1))
        # In float64, and only then rounded.
        for kept, now in ((running.mean, centre), (running.variance, unbiased)):
            before = kept.astype(np.float64)
            kept[...] = before + running.momentum * (now - before)
        moments[...] = new

    def moment_factors(
        self, of: ColumnNorm[Array], exact: bool, scale: Array, shift: Array
    ) -> None:
        moments = of.moments
        moments[1] = np.where(exact & (moments[1] == 0), 0, 1 / np.sqrt(moments[1] + of.eps))
        factor = of.weight * moments[1]
        scale[...], shift[...] = factor, of.bias - moments[0] * factor

    def scale_columns(self, x: Array, scale: Array, shift: Array, out: Array) -> None:
        np.multiply(x, scale, out=out)
        out += shift

    def column_grad_sums(self, x: Array, mean: Array, rstd: Array, grad: Array, out: Array) -> None:
        out[0] = grad.sum(axis=0, dtype=np.float64)
        out[1] = (grad * ((x - mean) * rstd)).sum(axis=0, dtype=np.float64)

    def moment_slopes(self, of: ColumnNorm[Array], sums: Array, n: int, slopes: Array) -> None:
        mean, rstd = of.moments
        factor = of.weight * rstd
        along = -factor * rstd * sums[1] / n
        if n == 2:
            factor, along = factor * of.eps * rstd**2, 0 * along
        slopes[0], slopes[1], slopes[2] = factor, along, -factor * sums[0] / n - along * mean

    def scale_columns_backward(self, grad: Array, x: Array, slopes: Array, out: Array) -> None:
        a, b, c = slopes
        np.add(a * grad, b * x + c, out=out)


def _normalised(of: Rows[Array]) -> Array:
    return (of.x if of.mean is None else of.x - of.mean) * of.rstd
