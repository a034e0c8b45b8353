"""Operations entry by entry: activations, dropout, sums of matrices, heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

A = TypeVar("A")


class EntryOperations(Protocol[A]):
    """Operations on each entry by itself; a result may be one of the operands, unless said.

    Keys of rows and columns are those of :mod:`gcnmpi.core.rng`; ``p`` is the probability of
    being dropped. Derivatives at 0 are those from below, as in PyTorch.
    """

    def row_keys(self, seed: int, epoch: int, layer: int, vertices: np.ndarray) -> A:
        """Keys of global vertices for ``dropout``; see :func:`gcnmpi.core.rng.row_keys`."""

    def dropout(self, x: A, rows: A, columns: np.ndarray, p: float, out: A) -> None:
        """out = x / (1 − p) where the hash of (row key, column key) keeps it, 0 elsewhere.

        Parameters
        ----------
        rows : (rows,) uint64
            Keys of the global rows of x, from :meth:`row_keys`.
        columns : (columns,) uint32, on the host
            Keys of the global columns of x.
        """

    def add(self, x: A, y: A, out: A) -> None:
        """out = x + y."""

    def scale(self, x: A, factor: float, out: A, plus: A | None = None) -> None:
        """out = factor · x, or (factor + plus) · x with one number ``plus``, (1,)."""

    def axpy(self, x: A, factor: float, out: A) -> None:
        """out += factor · x."""

    def dot(self, x: A, y: A) -> float:
        """Sum of x · y over all entries, accumulated in float64."""

    def dot_to(self, x: A, y: A, out: A) -> None:
        """out = that sum, (1,): nobody waits for it."""

    def maximum(self, xs: Sequence[A], out: A) -> None:
        """out = entry-wise maximum of all of ``xs``."""

    def maximum_backward(self, grad: A, out: A, xs: Sequence[A], i: int, dx: A) -> None:
        """dx = grad where xs[i] is the first of ``xs`` that is ``out``, 0 elsewhere."""

    def elu(self, x: A, out: A) -> None:
        """out = x where that is positive, eˣ − 1 elsewhere (Clevert et al. 2016, α = 1)."""

    def function(self, kind: str, x: A, out: A) -> None:
        """out = f(x), with f one of ``core.functions.FUNCTIONS``."""

    def function_backward(self, kind: str, x: A, grad: A, out: A) -> None:
        """out = grad·f′(x), the gradient of x."""

    def leaky(self, x: A, slope: float, out: A) -> None:
        """out = x where that is positive, slope · x elsewhere; slopes of any sign."""

    def prelu(self, x: A, slope: A, out: A) -> None:
        """The same with a slope that is an array, (1,) (He et al. 2015)."""

    def prelu_backward(self, x: A, grad: A, slope: A, out: A, of_slope: A) -> None:
        """out = grad where x is positive, slope · grad elsewhere.

        ``of_slope``, (1,), becomes the gradient of the slope: the sum of grad · x where x is
        negative, accumulated in float64.
        """

    def mean_of_heads(self, x: A, heads: int, out: A) -> None:
        """out = (x⁰ + x¹ + …) / heads, from x = [x⁰ | x¹ | …]."""

    def mean_of_heads_backward(self, grad: A, heads: int, out: A) -> None:
        """out = [grad | grad | …] / heads."""
