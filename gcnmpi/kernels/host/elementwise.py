"""Entry-wise arithmetic of two or more matrices, and activations beyond ReLU, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcnmpi.core import rng
from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.kernels.epilogues import ActivationBackward

Array = np.ndarray


class Elementwise:
    """Most operations of :class:`~gcnmpi.kernels.interface.entries.EntryOperations`."""

    dtype: np.dtype

    def add(self, x: Array, y: Array, out: Array) -> None:
        np.add(x, y, out=out)

    def scale(self, x: Array, factor: float, out: Array, plus: Array | None = None) -> None:
        np.multiply(x, self.dtype.type(sum_of(factor, plus)), out=out)

    def axpy(self, x: Array, factor: float, out: Array) -> None:
        out += self.dtype.type(factor) * x

    def dot(self, x: Array, y: Array) -> float:
        return float(np.multiply(x, y, dtype=np.float64).sum())

    def dot_to(self, x: Array, y: Array, out: Array) -> None:
        out.fill(self.dot(x, y))

    def maximum(self, xs: Sequence[Array], out: Array) -> None:
        np.copyto(out, xs[0])
        for x in xs[1:]:
            np.maximum(out, x, out=out)

    def maximum_backward(
        self, grad: Array, out: Array, xs: Sequence[Array], i: int, dx: Array
    ) -> None:
        first = xs[i] == out
        for x in xs[:i]:
            first &= x != out
        np.multiply(grad, first, out=dx)

    # Activations. Their derivatives at 0 are those from below, as in PyTorch.

    def elu(self, x: Array, out: Array) -> None:
        np.copyto(out, np.where(x > 0, x, np.expm1(np.minimum(x, 0))))

    def function(self, kind: str, x: Array, out: Array) -> None:
        np.copyto(out, FUNCTIONS[kind][0](x))

    def function_backward(self, kind: str, x: Array, grad: Array, out: Array) -> None:
        np.multiply(grad, FUNCTIONS[kind][1](x), out=out)

    def leaky(self, x: Array, slope: float, out: Array) -> None:
        np.copyto(out, np.where(x > 0, x, self.dtype.type(slope) * x))

    def prelu(self, x: Array, slope: Array, out: Array) -> None:
        self.leaky(x, float(slope[0]), out)

    def prelu_backward(
        self, x: Array, grad: Array, slope: Array, out: Array, of_slope: Array
    ) -> None:
        along = self.dot(grad, np.minimum(x, 0))
        np.copyto(out, np.where(x > 0, grad, slope * grad))
        of_slope.fill(along)

    def _activate_backward(self, grad: Array, of: ActivationBackward[Array]) -> None:
        """The gradient before activation and dropout; the plus has been added."""
        if of.kind != "none":
            np.multiply(grad, self._slopes(of), out=grad)
        if of.drops:
            assert of.rows is not None
            assert of.columns is not None
            hashes, scratch = np.empty((2, *grad.shape), np.uint32)
            rng.hash_block(of.rows, of.columns, hashes, scratch)
            grad *= hashes >= rng.threshold(of.p)
        if of.scale != 1:
            grad *= self.dtype.type(of.scale)

    def _slopes(self, of: ActivationBackward[Array]) -> Array:
        """The derivative of an activation, from its result after dropout."""
        output, one = of.output, self.dtype.type
        assert output is not None, "dropout alone has no slope"
        if of.kind == "relu":
            return output > 0
        below = one(of.slope) if of.kind == "leaky_relu" else output / one(of.scale) + 1
        return np.where(output > 0, 1, below)

    # Heads, next to each other in a row.

    def mean_of_heads(self, x: Array, heads: int, out: Array) -> None:
        np.mean(x.reshape(len(x), heads, x.shape[1] // heads), axis=1, out=out)

    def mean_of_heads_backward(self, grad: Array, heads: int, out: Array) -> None:
        out[...] = np.tile(grad * self.dtype.type(1 / heads), heads)


def sum_of(factor: float, plus: Array | None) -> float:
    """A factor and what is added to it, if anything is: an array of one number."""
    return factor if plus is None else factor + float(plus[0])
