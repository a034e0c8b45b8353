"""Maximum and attention on a GPU: see ``kernels.cuda_neighbours``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.kernels import cuda
from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.host.neighbours import make_pattern
from gcnmpi.kernels.interface.neighbours import AttentionDropout, scratch_rows

Array = Any  # of CuPy


@dataclass(frozen=True)
class DevicePattern:
    """A pattern on the device.

    Attributes
    ----------
    rows, columns, entries : int
    by_rows, by_columns : pair of arrays
        Starts, int64, and columns or rows, int32.
    places_back : (entries,) int64
        Where each entry by columns is among those by rows.
    """

    rows: int
    columns: int
    entries: int
    by_rows: tuple[Array, Array]
    by_columns: tuple[Array, Array]
    places_back: Array

    @property
    def scratch_rows(self) -> int:
        return scratch_rows(self.rows, self.entries)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self.by_rows, *self.by_columns, self.places_back))


class CupyNeighbours:
    """``NeighbourOperations``, on a GPU.

    Attention takes temporary arrays of a number for each entry and head, from CuPy's pool.
    """

    dtype: np.dtype
    _launch: Any
    empty: Any
    _partial_array: Any
    _add_partials: Any

    def pattern(self, matrix: sp.csr_array, order: np.ndarray) -> DevicePattern:
        host = make_pattern(matrix, order)
        places = np.empty(host.entries, np.int64)
        places[host.places] = np.arange(host.entries)
        return DevicePattern(
            host.rows, host.columns, host.entries,
            (upload(host.starts), upload(host.indices)),
            (upload(host.column_starts), upload(host.column_rows)),
            upload(places),
        )  # fmt: skip

    def max_aggregate(self, pattern: DevicePattern, x: Array, out: Array, arg: Array) -> None:
        self._launch("max_rows", *out.shape, *pattern.by_rows, x, out, arg)

    def max_aggregate_backward(
        self, pattern: DevicePattern, grad: Array, arg: Array, out: Array
    ) -> None:
        self._launch("max_columns", *out.shape, *pattern.by_columns, grad, arg, out)

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        self._launch("head_dots", *out.shape, x, vector, _per_head(x, out), out)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array, accumulate: bool
    ) -> None:
        width = _per_head(x, dout)
        self._launch("head_dots_backward", *dx.shape, dout, vector, width, accumulate, dx)
        partial, of = self._partial_array(x.shape[1]), (dout, x, width, len(x))
        self._launch("head_dots_partials", cuda.PARTIALS, x.shape[1], *of, partial)
        self._add_to(dvector, partial)

    def _add_to(self, vector: Array, partial: Array) -> None:
        added = cp.empty(vector.shape, self.dtype)
        self._add_partials(partial, added)
        vector += added

    def attend(
        self,
        pattern: DevicePattern,
        x: Array,
        t: Array,
        s: Array,
        slope: float,
        drop: AttentionDropout | None,
        out: Array,
        shift: Array,
        total: Array,
    ) -> None:
        e = self._scores(pattern, t, s, slope)
        self._weigh(pattern, e, x, drop, out, shift, total)

    def attend_backward(
        self,
        pattern: DevicePattern,
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
        de = self._scores(pattern, t, s, slope)
        self._back(pattern, de, x, drop, shift, total, y, grad, dx)
        self._launch("bend_scores", *s.shape, *pattern.by_rows, t, s, slope, de, ds)
        starts, _ = pattern.by_columns
        self._launch("sum_columns", *t.shape, starts, pattern.places_back, de, dt)

    def attend_v2(
        self,
        pattern: DevicePattern,
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
        e = self._scores_v2(pattern, x1, x2, vector, slope, shift.shape[1])
        self._weigh(pattern, e, x1, drop, out, shift, total)

    def attend_v2_backward(
        self,
        pattern: DevicePattern,
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
        de = self._scores_v2(pattern, x1, x2, vector, slope, shift.shape[1])
        self._back(pattern, de, x1, drop, shift, total, y, grad, dx1)
        heads, width = shift.shape[1], _per_head(x1, shift)
        moved = self.empty(*x1.shape)
        for back, sparse, mine, other, out in (
            (1, pattern.by_columns, x1, x2, dx1),
            (0, pattern.by_rows, x2, x1, dx2),
        ):
            of = *sparse, pattern.places_back, back, de, heads, width, mine, other, vector
            self._launch("bend_v2", *out.shape, *of, slope, back, out, moved)
        added = self.empty(len(dvector))
        self.column_sum(moved, added)  # type: ignore[attr-defined]
        dvector += added

    def _scores(self, pattern: DevicePattern, t: Array, s: Array, slope: float) -> Array:
        e = self.empty(pattern.entries, s.shape[1])
        self._launch("scores", *s.shape, *pattern.by_rows, t, s, slope, e)
        return e

    def _scores_v2(
        self, pattern: DevicePattern, x1: Array, x2: Array, vector: Array, slope: float, heads: int
    ) -> Array:
        e, of = self.empty(pattern.entries, heads), (x1, x2, vector, x1.shape[1] // heads, slope)
        self._launch("scores_v2", pattern.rows, heads, *pattern.by_rows, *of, e)
        return e

    def _weigh(
        self,
        pattern: DevicePattern,
        e: Array,
        x: Array,
        drop: AttentionDropout | None,
        out: Array,
        shift: Array,
        total: Array,
    ) -> None:
        starts, _ = pattern.by_rows
        self._launch("softmax_of_rows", *shift.shape, starts, e, -np.inf, shift, total)
        kept = self._weights(pattern, e, drop, shift, total)
        heads, width = shift.shape[1], _per_head(x, shift)
        self._launch("weighted_rows", *out.shape, *pattern.by_rows, kept, heads, width, x, out)

    def _weights(
        self,
        pattern: DevicePattern,
        e: Array,
        drop: AttentionDropout | None,
        shift: Array,
        total: Array,
    ) -> Array:
        """Weights after dropout; before it, in place of e."""
        kept = self.empty(pattern.entries, shift.shape[1])
        p, *keys = (0.0, None, None) if drop is None else (drop.p, drop.rows, drop.columns)
        of = shift, total, drop is not None, *keys, rng.threshold(p), 1 / (1 - p)
        self._launch("weights_of_rows", *shift.shape, *pattern.by_rows, *of, e, kept)
        return kept

    def _back(
        self,
        pattern: DevicePattern,
        e: Array,
        x: Array,
        drop: AttentionDropout | None,
        shift: Array,
        total: Array,
        y: Array,
        grad: Array,
        dx: Array,
    ) -> None:
        """In place of e its gradient; to dx, that of x by which it is summed."""
        kept, width = self._weights(pattern, e, drop, shift, total), _per_head(x, shift)
        rows, columns = pattern.by_rows, (*pattern.by_columns, pattern.places_back)
        self._launch("gradients_of_scores", *shift.shape, *rows, x, y, grad, width, kept, e)
        of = *columns, kept, shift.shape[1], width
        self._launch("weighted_columns", *dx.shape, *of, grad, dx)


def _per_head(x: Array, heads: Array) -> int:
    """Columns of a head, of x (m, heads · c) and what has a number for each head."""
    return x.shape[1] // heads.shape[1]
