"""Epilogues: entry-wise operations after a product, in the same pass over memory if possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from gcnmpi.kernels.interface.dense import DenseOperations
from gcnmpi.kernels.interface.entries import EntryOperations
from gcnmpi.kernels.interface.sparse import SparseProducts

KINDS = ("none", "relu", "elu", "leaky_relu")
"""Activations whose derivative is known from their result."""


@dataclass(frozen=True)
class Activation:
    """x = dropout(f(x + plus + 1·biasᵀ)).

    Attributes
    ----------
    bias : (columns,) array of the kernel, or None
    kind : str
        f: one of ``KINDS``.
    rows, columns : uint64, uint32 arrays
        Keys of the global rows and columns of x, from :mod:`gcnmpi.core.rng`; without ``rows``,
        nothing is dropped.
    p : float
        Probability of being dropped.
    slope : float
        Of "leaky_relu" below 0; not negative.
    plus : (rows, columns) array of the kernel, or None
        Not x itself.
    """

    bias: Any = None
    kind: str = "relu"
    rows: Any = None
    columns: Any = None
    p: float = 0.0
    slope: float = field(default=0.01, kw_only=True)
    plus: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """A kind that is known."""
        _check(self.kind, self.slope)

    def apply(self, kernel: EntryOperations, x: Any) -> None:
        """In place, by itself."""
        if self.plus is not None:
            kernel.add(x, self.plus, x)
        if self.kind == "relu":
            kernel.activate(x, self.bias, self.rows, self.columns, self.p)
            return
        if self.bias is not None:
            kernel.add_bias(x, self.bias)
        if self.kind == "elu":
            kernel.elu(x, x)
        elif self.kind == "leaky_relu":
            kernel.leaky(x, self.slope, x)
        if self.rows is not None:
            kernel.dropout(x, self.rows, self.columns, self.p, x)


@dataclass(frozen=True)
class ActivationBackward:
    """The gradient x before activation and dropout, in place, from what they gave.

    Attributes
    ----------
    output : (rows, columns) array of the kernel
        What :class:`Activation` gave. After ReLU it is positive exactly where the input was, and
        was kept, so its mask need not be made again.
    kind : str
        One of ``KINDS``.
    slope : float
        Of "leaky_relu".
    scale : float
        1 / (1 − p).
    rows, columns, p
        As for :class:`Activation`; not looked at after ReLU.
    plus : (rows, columns) array of the kernel, or None
        Another part of the gradient, which is added to x first.
    """

    output: Any
    kind: str = "relu"
    slope: float = field(default=0.01, kw_only=True)
    scale: float = 1.0
    rows: Any = None
    columns: Any = None
    p: float = 0.0
    plus: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """A kind that is known."""
        _check(self.kind, self.slope)

    def apply(self, kernel: EntryOperations, x: Any) -> None:
        """In place, by itself."""
        if self.plus is not None:
            kernel.add(x, self.plus, x)
        if self.kind == "relu":
            kernel.relu_backward(x, self.output, self.scale)
            return
        rows = self.rows if self.p else None
        numbers = self.kind, self.slope, self.scale
        kernel.activation_backward(x, self.output, *numbers, rows, self.columns, self.p)


def _check(kind: str, slope: float) -> None:
    if kind not in KINDS:
        raise ValueError(f"no activation {kind!r} after a product: {', '.join(KINDS)}")
    if slope < 0:
        raise ValueError(f"a slope of {slope}: the sign of a result would not be its input's")


Epilogue = Activation | ActivationBackward


class Separate(EntryOperations[Any], DenseOperations[Any], SparseProducts[Any, Any], Protocol):
    """What a kernel has that does one after the other."""


class Epilogues:
    """Products together with what goes along, for a kernel that does one after the other."""

    def follow(self: Separate, x: Any, epilogue: Epilogue | None) -> None:
        if epilogue is not None:
            epilogue.apply(self, x)

    def gemm_then(
        self: Separate,
        a: Any,
        b: Any,
        out: Any,
        tb: bool,
        epilogue: Epilogue | None,
        accumulate: bool = False,
        also: tuple[Any, Any] | None = None,
    ) -> None:
        self.gemm(a, b, out, tb=tb, accumulate=accumulate)
        if also is not None:
            self.gemm(*also, out, tb=tb, accumulate=True)
        if epilogue is not None:
            epilogue.apply(self, out)

    def gemm_and_sums(self: Separate, a: Any, b: Any, out: Any, sums: Any) -> None:
        self.gemm(a, b, out, ta=True)
        self.column_sum(b, sums)

    def spmm_then(
        self: Separate, matrix: Any, x: Any, out: Any, accumulate: bool, epilogue: Epilogue | None
    ) -> None:
        self.spmm(matrix, x, out, accumulate)
        if epilogue is not None:
            epilogue.apply(self, out)
