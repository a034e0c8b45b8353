"""Epilogues: entry-wise operations after a product, in the same pass over memory if possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gcnmpi.core.arrays import Array

A = TypeVar("A")

KINDS = ("none", "relu", "elu", "leaky_relu")
"""Activations whose derivative is known from their result."""


@dataclass(frozen=True)
class Activation(Generic[A]):
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

    bias: A | None = None
    kind: str = "relu"
    rows: A | None = None
    columns: A | None = None
    p: float = 0.0
    slope: float = field(default=0.01, kw_only=True)
    plus: A | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check(self.kind, self.slope)


@dataclass(frozen=True)
class ActivationBackward(Generic[A]):
    """The gradient x before activation and dropout, in place, from their result.

    Attributes
    ----------
    output : (rows, columns) array of the kernel, or None
        The result of :class:`Activation`; None: of dropout alone. After ReLU it is positive exactly
        where the input was, and was kept, so its mask need not be made again.
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

    output: A | None
    kind: str = "relu"
    slope: float = field(default=0.01, kw_only=True)
    scale: float = 1.0
    rows: A | None = None
    columns: A | None = None
    p: float = 0.0
    plus: A | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check(self.kind, self.slope)

    @property
    def drops(self) -> bool:
        """Whether the hash of dropout has to be made again."""
        return self.rows is not None and self.p > 0 and self.kind != "relu"


def _check(kind: str, slope: float) -> None:
    if kind not in KINDS:
        raise ValueError(f"no activation {kind!r} after a product: {', '.join(KINDS)}")
    if slope < 0:
        raise ValueError(f"a slope of {slope}: the sign of a result would not be its input's")


EpilogueOf = Activation[A] | ActivationBackward[A]
Epilogue = EpilogueOf[Array]


@dataclass(frozen=True)
class Product(Generic[A]):
    """out = epilogue(a · b), the product of rows and a weight.

    Attributes
    ----------
    a : (rows, inner) array
    b : (inner, columns) array, or (columns, inner) if it is ``transposed``
    out : (rows, columns) array
    epilogue : Epilogue or None
    accumulate : bool
        Whether the product is added to ``out`` before the epilogue.
    also : (array, array) or None
        Two other factors like a and b, whose product is added too.
    """

    a: A
    b: A
    out: A
    transposed: bool = False
    epilogue: EpilogueOf[A] | None = None
    accumulate: bool = False
    also: tuple[A, A] | None = None


class OneAfterTheOther(Generic[A]):
    """Dense products with what follows them, for a kernel that does one after the other."""

    gemm: Callable[..., None]
    column_sum: Callable[[A, A], None]
    follow: Callable[[A, EpilogueOf[A] | None], None]

    def gemm_then(self, of: Product[A]) -> None:
        self.gemm(of.a, of.b, of.out, tb=of.transposed, accumulate=of.accumulate)
        if of.also is not None:
            self.gemm(*of.also, of.out, tb=of.transposed, accumulate=True)
        self.follow(of.out, of.epilogue)

    def gemm_and_sums(self, a: A, b: A, out: A, sums: A) -> None:
        self.gemm(a, b, out, ta=True)
        self.column_sum(b, sums)
