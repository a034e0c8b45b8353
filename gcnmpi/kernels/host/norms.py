"""Norms in NumPy: see :mod:`gcnmpi.kernels.interface.norms`."""

from __future__ import annotations

import numpy as np

from gcnmpi.kernels.interface.norms import EQUAL

Array = np.ndarray


class Norms:
    """:class:`~gcnmpi.kernels.interface.norms.NormOperations`."""

    dtype: np.dtype

    # Over the columns of a row; numbers of rows are (rows, 1) arrays of the kernel.

    def row_sum(self, x: Array) -> Array:
        return x.sum(axis=1, keepdims=True)

    def row_square_sum(self, x: Array, mean: Array | None) -> Array:
        return np.square(x if mean is None else x - mean).sum(axis=1, keepdims=True)

    def normalise_rows(
        self,
        x: Array,
        mean: Array | None,
        rstd: Array,
        weight: Array | None,
        bias: Array | None,
        out: Array,
    ) -> None:
        np.multiply(x if mean is None else x - mean, rstd, out=out)
        if weight is not None:
            out *= weight
        if bias is not None:
            out += bias

    def normalise_rows_sums(
        self, x: Array, mean: Array | None, rstd: Array, weight: Array | None, grad: Array
    ) -> Array:
        g = grad if weight is None else grad * weight
        sums = g.sum(axis=1), (g * _normalised(x, mean, rstd)).sum(axis=1)
        return np.stack(sums, axis=1)

    def normalise_rows_backward(
        self,
        x: Array,
        mean: Array | None,
        rstd: Array,
        weight: Array | None,
        grad: Array,
        centre: Array | None,
        along: Array,
        out: Array,
    ) -> None:
        back = _normalised(x, mean, rstd) * along
        np.subtract(grad if weight is None else grad * weight, back, out=out)
        if centre is not None:
            out -= centre
        out *= rstd

    def normalised_column_sums(
        self,
        x: Array,
        mean: Array | None,
        rstd: Array,
        grad: Array,
        dweight: Array,
        dbias: Array,
    ) -> None:
        dweight[...] = (grad * _normalised(x, mean, rstd)).sum(axis=0, dtype=np.float64)
        dbias[...] = grad.sum(axis=0, dtype=np.float64)

    def layer_norm(
        self,
        x: Array,
        weight: Array,
        bias: Array,
        eps: float,
        out: Array,
        mean: Array,
        rstd: Array,
    ) -> None:
        width = max(1, x.shape[1])
        mean[...] = self.row_sum(x) / width
        rstd[...] = 1 / np.sqrt(self.row_square_sum(x, mean) / width + self.dtype.type(eps))
        self.normalise_rows(x, mean, rstd, weight, bias, out)

    def layer_norm_backward(
        self,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array,
        grad: Array,
        out: Array,
        dweight: Array,
        dbias: Array,
    ) -> None:
        self.normalised_column_sums(x, mean, rstd, grad, dweight, dbias)
        sums = self.normalise_rows_sums(x, mean, rstd, weight, grad) / max(1, x.shape[1])
        centre, along = sums[:, :1], sums[:, 1:]
        self.normalise_rows_backward(x, mean, rstd, weight, grad, centre, along, out)

    # Over the rows of a column.

    def column_moments(self, x: Array, pivot: Array, out: Array) -> None:
        apart = x - pivot
        out[0], out[1] = apart.sum(axis=0), np.square(apart).sum(axis=0)

    def move_moments(
        self, sums: Array, n: int, momentum: float, mean: Array, variance: Array, moments: Array
    ) -> None:
        shift = sums[0] / n
        centre, spread = moments[0] + shift, sums[1] / n - shift**2
        equal = spread <= (EQUAL[np.dtype(self.dtype)] * centre) ** 2
        new = centre, np.where(equal, 0, spread)
        # In float64, and only then rounded.
        for running, now in ((mean, centre), (variance, new[1] * (n / max(1, n - 1)))):
            before = running.astype(np.float64)
            running[...] = before + momentum * (now - before)
        moments[...] = new

    def moment_factors(
        self,
        moments: Array,
        eps: float,
        exact: bool,
        weight: Array,
        bias: Array,
        scale: Array,
        shift: Array,
    ) -> None:
        moments[1] = np.where(exact & (moments[1] == 0), 0, 1 / np.sqrt(moments[1] + eps))
        factor = weight * moments[1]
        scale[...], shift[...] = factor, bias - moments[0] * factor

    def scale_columns(self, x: Array, scale: Array, shift: Array, out: Array) -> None:
        np.multiply(x, scale, out=out)
        out += shift

    def column_grad_sums(self, x: Array, mean: Array, rstd: Array, grad: Array, out: Array) -> None:
        out[0] = grad.sum(axis=0, dtype=np.float64)
        out[1] = (grad * ((x - mean) * rstd)).sum(axis=0, dtype=np.float64)

    def moment_slopes(
        self,
        sums: Array,
        n: int,
        moments: Array,
        eps: float,
        weight: Array,
        a: Array,
        b: Array,
        c: Array,
    ) -> None:
        mean, rstd = moments
        factor = weight * rstd
        along = -factor * rstd * sums[1] / n
        if n == 2:
            factor, along = factor * eps * rstd**2, 0 * along
        a[...], b[...], c[...] = factor, along, -factor * sums[0] / n - along * mean

    def scale_columns_backward(
        self, grad: Array, x: Array, a: Array, b: Array, c: Array, out: Array
    ) -> None:
        np.add(a * grad, b * x + c, out=out)


def _normalised(x: Array, mean: Array | None, rstd: Array) -> Array:
    return (x if mean is None else x - mean) * rstd
