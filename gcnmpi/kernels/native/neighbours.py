"""Maximum and attention in C++: in one gather of rows for each direction, with threads."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.epilogues import Activation
from gcnmpi.kernels.host.neighbours import Neighbours, Pattern, make_pattern
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
)

Array = np.ndarray


@dataclass(frozen=True)
class NativePattern(Pattern):
    """A pattern, and what the compiled functions take for it.

    Attributes
    ----------
    compiled : object
        Holds the same arrays.
    """

    compiled: Any


class NativeNeighbours(Neighbours):
    """:class:`Neighbours`, compiled; ``_native`` is the compiled kernel."""

    _native: Any
    _patterns: Any
    """Makes the compiled form of a pattern."""

    @abstractmethod
    def _arrays_of(self, epilogue: Any) -> Any:
        """An epilogue as the compiled kernel takes it."""

    def pattern(self, matrix: sp.csr_array, order: Array) -> NativePattern:
        arrays = vars(make_pattern(matrix, order))
        return NativePattern(**arrays, compiled=type(self)._patterns(**arrays))

    def max_aggregate(self, pattern: Any, x: Array, out: Array, arg: Array) -> None:
        """In one gather."""
        self._native.max_aggregate(pattern.compiled, x, out, arg)

    def max_aggregate_backward(self, pattern: Any, grad: Array, arg: Array, out: Array) -> None:
        """Every number of ``grad`` is added where it belongs, in the order of the rows."""
        self._native.max_aggregate_backward(grad, arg, out)

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        self._native.head_dots(x, vector, out)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array
    ) -> None:
        self._native.head_dots_backward(x, vector, dout, dx, dvector, True)

    def attend(self, of: Attention[Array, Any]) -> None:
        """In one gather of rows of x."""
        self._native.attend(
            of.pattern.compiled, of.x, of.t, of.s, of.slope, self._drop(of),
            of.out, of.shift, of.total,
        )  # fmt: skip

    def attend_backward(self, of: AttentionBackward[Array, Any]) -> None:
        """In one gather of rows of ``grad``."""
        f = of.forward
        self._native.attend_backward(
            f.pattern.compiled, f.x, f.t, f.s, f.slope, self._drop(f), f.shift, f.total, f.out,
            of.grad, of.dx, of.dt, of.ds, of.scratch,
        )  # fmt: skip

    def attend_v2(self, of: AttentionV2[Array, Any]) -> None:
        """A row's neighbours are read from memory once, unless they are more than a cache holds."""
        self._native.attend_v2(
            of.pattern.compiled, of.x, of.target, of.vector, of.slope, self._drop(of),
            of.out, of.shift, of.total, of.scratch,
        )  # fmt: skip

    def attend_v2_backward(self, of: AttentionV2Backward[Array, Any]) -> None:
        """By columns, then by rows."""
        f = of.forward
        self._native.attend_v2_backward(
            f.pattern.compiled, f.x, f.target, f.vector, f.slope, self._drop(f), f.shift, f.total,
            f.out, of.grad, of.dx, of.dtarget, of.dvector, f.scratch,
        )  # fmt: skip

    def _drop(self, of: Attention[Array, Any] | AttentionV2[Array, Any]) -> Any:
        drop = of.drop
        if drop is None:
            return None
        return self._arrays_of(Activation(None, "none", drop.rows, drop.columns, drop.p))
