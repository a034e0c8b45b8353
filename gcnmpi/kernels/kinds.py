"""Products of rows of several kinds, for kernels without an operation of their own for these.

Rows of a kind are brought together, multiplied at once, and put back, some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Generic, TypeVar

from gcnmpi.kernels.interface.kinds import KindProduct

A = TypeVar("A", bound=Any)

AT_ONCE = 4096  # rows that are multiplied at once


class OneKindAfterTheOther(Generic[A]):
    """:class:`~gcnmpi.kernels.interface.kinds.KindOperations` by dense products."""

    gemm: Callable[..., None]
    empty: Callable[..., Any]
    take_rows: Callable[..., None]
    put_rows: Callable[..., None]

    def multiply_kinds(self, of: KindProduct[A]) -> None:
        for some, x, out, weight in self._pieces(of):
            self.take_rows(of.x, some, x)
            for left, right, part in _blocks(of, x, out, weight):
                self.gemm(left, part, right)
            self.put_rows(out, some, of.out)

    def multiply_kinds_t(self, of: KindProduct[A]) -> None:
        for some, x, out, weight in self._pieces(of):
            self.take_rows(of.out, some, out)
            for left, right, part in _blocks(of, x, out, weight):
                self.gemm(right, part, left, tb=True)
            self.put_rows(x, some, of.x)

    def kinds_gradient(self, of: KindProduct[A]) -> None:
        of.weights.fill(0)
        for some, x, out, weight in self._pieces(of):
            self.take_rows(of.x, some, x)
            self.take_rows(of.out, some, out)
            for left, right, part in _blocks(of, x, out, weight):
                self.gemm(left, right, part, ta=True, accumulate=True)

    def _pieces(self, of: KindProduct[A]) -> Iterator[tuple[Any, A, A, A]]:
        """Numbers of some rows of a kind, memory for these rows of x and of out, and its weight."""
        inner, starts = of.x.shape[1], of.kinds.starts
        most = min(AT_ONCE, int((starts[1:] - starts[:-1]).max(initial=0)))
        x, out = self.empty(most, inner), self.empty(most, of.out.shape[1])
        for kind, (first, last) in enumerate(pairwise(starts)):
            weight = of.weights[kind * inner : (kind + 1) * inner]
            for start in range(int(first), int(last), AT_ONCE):
                some = of.kinds.order[start : min(start + AT_ONCE, int(last))]
                yield some, x[: len(some)], out[: len(some)], weight


def _blocks(of: KindProduct[A], x: A, out: A, weight: A) -> Iterator[tuple[A, A, A]]:
    """The columns of x and out that belong to each block of a weight, and this."""
    inner, width = x.shape[1] // of.blocks, out.shape[1] // of.blocks
    for block in range(of.blocks):
        rows, columns = (slice(block * n, (block + 1) * n) for n in (inner, width))
        yield x[:, rows], out[:, columns], weight[rows]
