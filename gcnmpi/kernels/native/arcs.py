"""Rows of vertices and of entries in C++: every operation is one pass over memory."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from gcnmpi.core.functions import REDUCTIONS
from gcnmpi.kernels.host.arcs import Arcs
from gcnmpi.kernels.host.neighbours import Pattern
from gcnmpi.kernels.interface.arcs import LEAST_VARIANCE, Reduction, Taken
from gcnmpi.kernels.interface.kinds import KindProduct

Array = np.ndarray


class NativeArcs(Arcs):
    """:class:`Arcs`, compiled; ``_native`` is the compiled kernel.

    Patterns are those of :class:`~gcnmpi.kernels.native.kernel.NativeKernel`.
    """

    _native: ModuleType
    _arrays_of: Callable[..., Any]

    def take(self, of: Taken[Array, Pattern]) -> None:
        then = self._arrays_of(of.epilogue)
        self._native.take(of.pattern.compiled, of.source, of.target, of.out, then)

    def sum_sources(self, pattern: Pattern, x: Array, out: Array) -> None:
        self._native.sum_sources(pattern.compiled_with_way_back, x, out)

    def reduce_targets(self, of: Reduction[Array, Pattern]) -> None:
        """A row's entries are read from memory once, for all kinds."""
        self._native.reduce(of.pattern.compiled, *_numbers(of), of.x, of.out)

    def reduce_targets_backward(
        self, of: Reduction[Array, Pattern], grad: Array, dx: Array
    ) -> None:
        numbers = _numbers(of)
        self._native.reduce_backward(of.pattern.compiled, *numbers, of.x, of.out, grad, dx)

    def softmax_targets(self, pattern: Pattern, x: Array, out: Array) -> None:
        self._native.softmax(pattern.compiled, x, out)

    def softmax_targets_backward(self, pattern: Pattern, y: Array, grad: Array, out: Array) -> None:
        self._native.softmax_backward(pattern.compiled, y, grad, out)

    def spmm_values(self, pattern: Pattern, values: Array, x: Array, out: Array) -> None:
        self._native.spmm_values(pattern.compiled, values, x, out, False)

    def spmm_values_t(self, pattern: Pattern, values: Array, x: Array, out: Array) -> None:
        """By columns, each of which gathers the rows at the other ends of its entries."""
        self._native.spmm_values(pattern.compiled_with_way_back, values, x, out, True)

    def sddmm(self, pattern: Pattern, target: Array, source: Array, out: Array) -> None:
        self._native.sddmm(pattern.compiled, target, source, out)

    def row_dots(self, x: Array, y: Array, out: Array) -> None:
        self._native.row_dots(x, y, out)

    def scale_heads(self, values: Array, x: Array, out: Array) -> None:
        self._native.scale_heads(values, x, out)

    def multiply_kinds(self, of: KindProduct[Array]) -> None:
        kinds = of.kinds.order, of.kinds.starts
        self._native.multiply_kinds(*kinds, of.x, of.weights, of.blocks, of.out)

    def multiply_kinds_t(self, of: KindProduct[Array]) -> None:
        """With the weights of all kinds the other way round, which are few beside the rows."""
        count, inner, width = of.blocks * (len(of.kinds.starts) - 1), of.x.shape[1], of.out.shape[1]
        blocks = of.weights.reshape(count, inner // of.blocks, width // of.blocks)
        turned = np.ascontiguousarray(blocks.transpose(0, 2, 1))
        turned = turned.reshape(count * (width // of.blocks), inner // of.blocks)
        kinds = of.kinds.order, of.kinds.starts
        self._native.multiply_kinds(*kinds, of.out, turned, of.blocks, of.x)

    def kinds_gradient(self, of: KindProduct[Array]) -> None:
        kinds = of.kinds.order, of.kinds.starts
        self._native.kinds_gradient(*kinds, of.x, of.out, of.blocks, of.weights)


def _numbers(of: Reduction[Array, Pattern]) -> tuple[list[int], float]:
    """The kinds as the sources count them, and the variance that counts as 0."""
    return [REDUCTIONS.index(kind) for kind in of.kinds], LEAST_VARIANCE
