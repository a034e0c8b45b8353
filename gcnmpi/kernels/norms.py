"""Norms in NumPy: over the columns of a row (layer, L2) and over the rows of a column (batch).

Norms over rows come in two forms: in one pass where a rank has whole rows, and split where the
columns of a row are spread over ranks, whose sums the caller adds. In what follows x̂ is
(x − mean)·rstd, with mean 0 where it is None; w, b and g are weight, bias and gradient.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


class Norms:
    """Sums over rows and columns, and what becomes of x by them.

    Where a result is an array of x's shape, it may be x itself, or the gradient.
    """

    dtype: np.dtype

    # Over the columns of a row; numbers of rows are (rows, 1) arrays of the kernel.

    def row_sum(self, x: Array) -> Array:
        """Sum of each row, (rows, 1)."""
        return x.sum(axis=1, keepdims=True)

    def row_square_sum(self, x: Array, mean: Array | None) -> Array:
        """Sum of (x − mean)² of each row, (rows, 1)."""
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
        """out = x̂·w + b; weight and bias (columns,) are those of x's columns."""
        np.multiply(x if mean is None else x - mean, rstd, out=out)
        if weight is not None:
            out *= weight
        if bias is not None:
            out += bias

    def normalise_rows_sums(
        self, x: Array, mean: Array | None, rstd: Array, weight: Array | None, grad: Array
    ) -> Array:
        """Sums of g·w and of g·w·x̂ of each row, (rows, 2)."""
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
        """out = rstd·(g·w − centre − x̂·along), with centre (0 where None) and along (rows, 1).

        For a layer norm over d columns they are the sums of :meth:`normalise_rows_sums`, over d.
        """
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
        """dweight = sum over rows of g·x̂, dbias = sum over rows of g, both (columns,)."""
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
        """out = x̂·w + b over whole rows; mean and rstd = 1/√(variance + eps) of each, (rows, 1).

        Ba, Kiros and Hinton 2016, with the biased variance.
        """
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
        """Gradients of x (to ``out``), weight and bias of :meth:`layer_norm`, all overwritten."""
        self.normalised_column_sums(x, mean, rstd, grad, dweight, dbias)
        sums = self.normalise_rows_sums(x, mean, rstd, weight, grad) / max(1, x.shape[1])
        centre, along = sums[:, :1], sums[:, 1:]
        self.normalise_rows_backward(x, mean, rstd, weight, grad, centre, along, out)

    # Over the rows of a column. What ranks add to each other is float64 on the host.

    def column_moments(self, x: Array, pivot: np.ndarray, out: np.ndarray) -> None:
        """Sums over rows of x − pivot and of (x − pivot)².

        Parameters
        ----------
        pivot : (columns,) float64, on the host
            About the mean, so that no digits cancel.
        out : (2, columns) float64, on the host
        """
        apart = x - pivot
        out[0], out[1] = apart.sum(axis=0), np.square(apart).sum(axis=0)

    def scale_columns(self, x: Array, scale: Array, shift: Array, out: Array) -> None:
        """out = x·scale + shift, both (columns,) arrays of the kernel."""
        np.multiply(x, scale, out=out)
        out += shift

    def column_grad_sums(
        self, x: Array, mean: Array, rstd: Array, grad: Array, out: np.ndarray
    ) -> None:
        """Sums over rows of g and of g·x̂, to ``out``: (2, columns) float64, on the host.

        ``mean`` and ``rstd`` are (columns,) arrays of the kernel.
        """
        out[0] = grad.sum(axis=0, dtype=np.float64)
        out[1] = (grad * ((x - mean) * rstd)).sum(axis=0, dtype=np.float64)

    def scale_columns_backward(
        self, grad: Array, x: Array, a: Array, b: Array, c: Array, out: Array
    ) -> None:
        """out = a·g + b·x + c, with a, b and c (columns,) arrays of the kernel."""
        np.add(a * grad, b * x + c, out=out)


def _normalised(x: Array, mean: Array | None, rstd: Array) -> Array:
    return (x if mean is None else x - mean) * rstd
