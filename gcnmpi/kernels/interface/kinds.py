"""Products of rows of several kinds, each kind with a weight of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

A = TypeVar("A")


@dataclass(frozen=True)
class Kinds:
    """The rows of each kind.

    Attributes
    ----------
    order : (rows,) int64, as the kernel's ``resident`` gives it
        The numbers of the rows of kind 0, increasing, then those of kind 1, and so on.
    starts : (kinds + 1,) int64
        Where those of each kind begin there.
    """

    order: Any
    starts: np.ndarray


def kinds_of(numbers: np.ndarray, count: int, resident: Callable[..., Any]) -> Kinds:
    """The rows of each of ``count`` kinds, from the kind of each row, (rows,) integers."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=count), out=starts[1:])
    return Kinds(resident(np.argsort(numbers, kind="stable"), np.int64), starts)


@dataclass(frozen=True)
class KindProduct(Generic[A]):
    """out[r] = x[r] · W(kind of r).

    Attributes
    ----------
    kinds : Kinds
    x : (rows, inner) array
    weights : (kinds · inner, width / blocks) array
        Those of the kinds, on top of each other; each of them blocks on its diagonal, on top of
        each other.
    out : (rows, width) array
    blocks : int
    """

    kinds: Kinds
    x: A
    weights: A
    out: A
    blocks: int = 1


class KindOperations(Protocol[A]):
    """Products with the weight of each row's kind; in all of them, rows are contiguous."""

    def multiply_kinds(self, of: KindProduct[A]) -> None:
        """Write the product to ``out``."""

    def multiply_kinds_t(self, of: KindProduct[A]) -> None:
        """Its adjoint: x[r] = out[r] · W(kind of r)ᵀ."""

    def kinds_gradient(self, of: KindProduct[A]) -> None:
        """The gradient of the weights: W(k) = the sum of x[r]ᵀ · out[r] over the rows of kind k."""
