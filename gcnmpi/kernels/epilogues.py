"""Epilogues: entry-wise operations after a product, in the same pass over memory if possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Activation:
    """x = dropout(max(x + 1·biasᵀ, 0)): after a hidden layer; after the last, the bias only.

    Attributes
    ----------
    bias : (columns,) array of the kernel, or None
    relu : bool
    rows, columns : uint64, uint32 arrays
        Keys of the global rows and columns of x, from :mod:`gcnmpi.core.rng`; without ``rows``,
        nothing is dropped.
    p : float
        Probability of being dropped.
    """

    bias: Any = None
    relu: bool = True
    rows: Any = None
    columns: Any = None
    p: float = 0.0

    def apply(self, kernel: Any, x: Any) -> None:
        """In place, by itself."""
        if self.relu:
            kernel.activate(x, self.bias, self.rows, self.columns, self.p)
            return
        if self.bias is not None:
            kernel.add_bias(x, self.bias)
        if self.rows is not None:
            kernel.dropout(x, self.rows, self.columns, self.p, x)


@dataclass(frozen=True)
class ReluBackward:
    """x = x · scale where ``output`` is positive, and 0 elsewhere: before a hidden layer.

    Attributes
    ----------
    output : (rows, columns) array of the kernel
        What :class:`Activation` gave: positive exactly where the input was, and was kept, so the
        mask need not be stored.
    scale : float
        1 / (1 − p).
    """

    output: Any
    scale: float

    def apply(self, kernel: Any, x: Any) -> None:
        """In place, by itself."""
        kernel.relu_backward(x, self.output, self.scale)


Epilogue = Activation | ReluBackward


class Epilogues:
    """Products together with what goes along, for a kernel that does one after the other."""

    def follow(self, x: Any, then: Epilogue | None) -> None:
        """What follows a product, alone: where a scheme does something in between."""
        if then is not None:
            then.apply(self, x)

    def gemm_then(self, a: Any, b: Any, out: Any, tb: bool, then: Epilogue | None) -> None:
        """out = then(a · b), or then(a · bᵀ)."""
        self.gemm(a, b, out, tb=tb)  # type: ignore[attr-defined]
        self.follow(out, then)

    def gemm_and_sums(self, a: Any, b: Any, out: Any, sums: Any) -> None:
        """out = aᵀ · b, and sums (columns,) = the sums of the columns of b."""
        self.gemm(a, b, out, ta=True)  # type: ignore[attr-defined]
        self.column_sum(b, sums)  # type: ignore[attr-defined]

    def spmm_then(
        self, matrix: Any, x: Any, out: Any, accumulate: bool, then: Epilogue | None
    ) -> None:
        """out = then(matrix · x), or then(out + matrix · x)."""
        self.spmm(matrix, x, out, accumulate)  # type: ignore[attr-defined]
        self.follow(out, then)
