"""Norms: over the columns of a row (layer, L2) and over the rows of a column (batch).

Norms over rows come in two forms: in one pass where a rank has whole rows, and split where the
columns of a row are spread over ranks, whose sums the caller adds. In what follows x̂ is
(x − mean)·rstd, with mean 0 where it is None; w, b and g are weight, bias and gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

A = TypeVar("A")

EQUAL = {np.dtype(np.float32): 2.0**-20, np.dtype(np.float64): 2.0**-37}
"""Deviation of a column, relative to its mean, that is taken for rounding errors of equal numbers.

Sums of products that are equal in exact arithmetic differ by some units in the last place, 2⁻²⁴ and
2⁻⁵³, and by more where terms cancel: float64 has room for 16 bits of that. A batch norm with its
usual eps of 1e-5 makes less than 2.4e-9 of a deviation of 2⁻³⁷ about a mean of 1, and in float32
less than 3.1e-4 of one of 2⁻²⁰, of which 4 bits or fewer have a meaning.
"""


@dataclass(frozen=True)
class Rows(Generic[A]):
    """x̂·w of the rows of x; ``mean`` and ``rstd`` are (rows, 1), ``weight`` is (columns,)."""

    x: A
    mean: A | None
    rstd: A
    weight: A | None = None


@dataclass(frozen=True)
class RunningMoments(Generic[A]):
    """The moments that an evaluation takes, (columns,) arrays of the kernel each.

    They become (1 − momentum) times themselves + momentum times the new ones, with the variance
    over n − 1.
    """

    mean: A
    variance: A
    momentum: float


@dataclass(frozen=True)
class ColumnNorm(Generic[A]):
    """A norm of columns: x̂·w + b.

    Attributes
    ----------
    moments : (2, columns) float64
        Mean and variance, over n; from ``moment_factors`` on, mean and rstd.
    eps : float
    weight, bias : (columns,) arrays of the kernel
    """

    moments: A
    eps: float
    weight: A
    bias: A


class NormOperations(Protocol[A]):
    """Sums over rows and columns, and norms of x that are made of them.

    Where a result is an array of x's shape, it may be x itself, or the gradient. Numbers of rows
    are (rows, 1) arrays of the kernel.
    """

    # Over the columns of a row.

    def row_sum(self, x: A) -> A:
        """Sum of each row, (rows, 1)."""

    def row_square_sum(self, x: A, mean: A | None) -> A:
        """Sum of (x − mean)² of each row, (rows, 1)."""

    def normalise_rows(self, of: Rows[A], bias: A | None, out: A) -> None:
        """out = x̂·w + b; the bias is that of x's columns, (columns,)."""

    def normalise_rows_sums(self, of: Rows[A], grad: A) -> A:
        """Sums of g·w and of g·w·x̂ of each row, (rows, 2)."""

    def normalise_rows_backward(
        self, of: Rows[A], grad: A, centre: A | None, along: A, out: A
    ) -> None:
        """out = rstd·(g·w − centre − x̂·along), with centre (0 where None) and along (rows, 1).

        For a layer norm over d columns they are the sums of :meth:`normalise_rows_sums`, over d;
        they need not be contiguous.
        """

    def normalised_column_sums(self, of: Rows[A], grad: A, dweight: A, dbias: A) -> None:
        """dweight = sum over rows of g·x̂, dbias = sum over rows of g, both (columns,)."""

    def layer_norm(self, of: Rows[A], bias: A, eps: float, out: A) -> None:
        """out = x̂·w + b over whole rows; writes their mean, and rstd = 1/√(variance + eps).

        Ba, Kiros and Hinton 2016, with the biased variance.
        """

    def layer_norm_backward(self, of: Rows[A], grad: A, out: A, dweight: A, dbias: A) -> None:
        """Gradients of x (to ``out``), weight and bias of :meth:`layer_norm`, all overwritten."""

    # Over the rows of a column. Sums over ranks, and moments, are arrays of ``from_host64``.

    def column_moments(self, x: A, pivot: A, out: A) -> None:
        """Sums over rows of x − pivot and of (x − pivot)².

        Parameters
        ----------
        pivot : (columns,) float64
            About the mean, so that few digits cancel.
        out : (2, columns) float64
        """

    def move_moments(self, sums: A, n: int, running: RunningMoments[A], moments: A) -> None:
        """The moments of n rows from their sums; running ones follow them.

        The variance is exactly 0 where the deviation is not above ``EQUAL`` times the mean.

        Parameters
        ----------
        sums : (2, columns) float64
            Of :meth:`column_moments` about ``moments[0]``, of all rows.
        moments : (2, columns) float64
            The pivot; becomes mean and variance (over n).
        """

    def moment_factors(self, of: ColumnNorm[A], exact: bool, scale: A, shift: A) -> None:
        """x·scale + shift = x̂·w + b, (columns,) arrays; the variances become rstd.

        That is 1/√(variance + eps); with ``exact``, 0 where the variance is 0, so that equal
        numbers become exactly b, and have no gradient.
        """

    def scale_columns(self, x: A, scale: A, shift: A, out: A) -> None:
        """out = x·scale + shift, both (columns,) arrays of the kernel."""

    def column_grad_sums(self, x: A, mean: A, rstd: A, grad: A, out: A) -> None:
        """Sums over rows of g and of g·x̂, to ``out``: (2, columns) float64.

        ``mean`` and ``rstd`` are (columns,) arrays of the kernel.
        """

    def moment_slopes(self, of: ColumnNorm[A], sums: A, n: int, slopes: A) -> None:
        """a·g + b·x + c = w·rstd·(g − Σg/n − x̂·Σg·x̂/n), the gradient of a batch norm.

        Of two rows it is w·rstd·(g − Σg/2)·eps·rstd², where that difference would cancel.

        Parameters
        ----------
        sums : (2, columns) float64
            Of :meth:`column_grad_sums`, of all n rows.
        slopes : (3, columns) array of the kernel
            Becomes a, b and c.
        """

    def scale_columns_backward(self, grad: A, x: A, slopes: A, out: A) -> None:
        """out = a·g + b·x + c, with slopes (3, columns)."""
