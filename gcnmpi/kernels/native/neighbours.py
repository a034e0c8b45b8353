"""Maximum and attention in C++: in one gather of rows for each direction, with threads."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.epilogues import Activation
from gcnmpi.kernels.host.neighbours import Neighbours, Pattern, make_pattern
from gcnmpi.kernels.interface.neighbours import AttentionDropout

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
        """One pass."""
        self._native.head_dots(x, vector, out)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array, accumulate: bool
    ) -> None:
        """One pass."""
        self._native.head_dots_backward(x, vector, dout, dx, dvector, accumulate)

    def attend(
        self,
        pattern: Any,
        x: Array,
        t: Array,
        s: Array,
        slope: float,
        drop: AttentionDropout | None,
        out: Array,
        shift: Array,
        total: Array,
    ) -> None:
        """In one gather of rows of x."""
        dropout = self._drop(drop)
        self._native.attend(pattern.compiled, x, t, s, slope, dropout, out, shift, total)

    def attend_backward(
        self,
        pattern: Any,
        x: Array,
        t: Array,
        s: Array,
        slope: float,
        drop: AttentionDropout | None,
        shift: Array,
        total: Array,
        y: Array,
        grad: Array,
        dx: Array,
        dt: Array,
        ds: Array,
        scratch: Array,
    ) -> None:
        """In one gather of rows of ``grad``."""
        self._native.attend_backward(
            pattern.compiled, x, t, s, slope, self._drop(drop), shift, total, y, grad,
            dx, dt, ds, scratch,
        )  # fmt: skip

    def attend_v2(
        self,
        pattern: Any,
        x1: Array,
        x2: Array,
        vector: Array,
        slope: float,
        drop: AttentionDropout | None,
        out: Array,
        shift: Array,
        total: Array,
        scratch: Array,
    ) -> None:
        """A row's neighbours are read from memory once, unless they are more than a cache holds."""
        dropout = self._drop(drop)
        self._native.attend_v2(
            pattern.compiled, x1, x2, vector, slope, dropout, out, shift, total, scratch
        )

    def attend_v2_backward(
        self,
        pattern: Any,
        x1: Array,
        x2: Array,
        vector: Array,
        slope: float,
        drop: AttentionDropout | None,
        shift: Array,
        total: Array,
        y: Array,
        grad: Array,
        dx1: Array,
        dx2: Array,
        dvector: Array,
        scratch: Array,
    ) -> None:
        """By columns, then by rows."""
        self._native.attend_v2_backward(
            pattern.compiled, x1, x2, vector, slope, self._drop(drop), shift, total, y, grad,
            dx1, dx2, dvector, scratch,
        )  # fmt: skip

    def _drop(self, drop: AttentionDropout | None) -> Any:
        if drop is None:
            return None
        return self._arrays_of(Activation(None, "none", drop.rows, drop.columns, drop.p))
