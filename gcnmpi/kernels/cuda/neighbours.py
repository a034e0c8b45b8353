"""Maximum and attention on a GPU: see ``kernels.cuda_neighbours``."""

from __future__ import annotations

from dataclasses import dataclass

import cupy as cp
import numpy as np
import scipy.sparse as sp
from cupy import ndarray as Array

from gcnmpi.core import rng
from gcnmpi.kernels import cuda
from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.cuda.launches import CupyLaunches
from gcnmpi.kernels.host.neighbours import make_pattern
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
    scratch_rows,
)


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


_Attention = Attention[Array, DevicePattern] | AttentionV2[Array, DevicePattern]


class CupyNeighbours(CupyLaunches):
    """``NeighbourOperations``, on a GPU.

    Attention takes temporary arrays of a number for each entry and head, from CuPy's pool.
    """

    def pattern(self, matrix: sp.csr_array, order: np.ndarray | None) -> DevicePattern:
        host = make_pattern(matrix, order)
        return DevicePattern(
            host.rows, host.columns, host.entries,
            (upload(host.starts), upload(host.indices)),
            (upload(host.column_starts), upload(host.column_rows)),
            upload(host.places_back, np.dtype(np.int64)),
        )  # fmt: skip

    def max_aggregate(self, pattern: DevicePattern, x: Array, out: Array, arg: Array) -> None:
        self._launch("max_rows", *out.shape, *pattern.by_rows, x, out, arg)

    def max_aggregate_backward(
        self, pattern: DevicePattern, grad: Array, arg: Array, out: Array
    ) -> None:
        self._launch("max_columns", *out.shape, *pattern.by_columns, grad, arg, out)

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        self._launch("head_dots", *out.shape, x, vector, per_head(x, out), out)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array
    ) -> None:
        width = per_head(x, dout)
        self._launch("head_dots_backward", *dx.shape, dout, vector, width, True, dx)
        partial, of = self._partial_array(x.shape[1]), (dout, x, width, len(x))
        self._launch("head_dots_partials", cuda.PARTIALS, x.shape[1], *of, partial)
        added = cp.empty(dvector.shape, self.dtype)
        self._add_partials(partial, added)
        dvector += added

    def attend(self, of: Attention[Array, DevicePattern]) -> None:
        self._weigh(of, self._scores(of))

    def attend_backward(self, of: AttentionBackward[Array, DevicePattern]) -> None:
        f, pattern, de = of.forward, of.forward.pattern, self._scores(of.forward)
        self._back(f, de, of.grad, of.dx)
        self._launch("bend_scores", *f.s.shape, *pattern.by_rows, f.t, f.s, f.slope, de, of.ds)
        starts, _ = pattern.by_columns
        self._launch("sum_columns", *f.t.shape, starts, pattern.places_back, de, of.dt)

    def attend_v2(self, of: AttentionV2[Array, DevicePattern]) -> None:
        self._weigh(of, self._scores_v2(of))

    def attend_v2_backward(self, of: AttentionV2Backward[Array, DevicePattern]) -> None:
        f, pattern, de = of.forward, of.forward.pattern, self._scores_v2(of.forward)
        self._back(f, de, of.grad, of.dx)
        heads, width = f.shift.shape[1], per_head(f.x, f.shift)
        moved = self.empty(*f.x.shape)
        for back, sparse, mine, other, out in (
            (1, pattern.by_columns, f.x, f.target, of.dx),
            (0, pattern.by_rows, f.target, f.x, of.dtarget),
        ):
            scores = *sparse, pattern.places_back, back, de, heads, width, mine, other, f.vector
            self._launch("bend_v2", *out.shape, *scores, f.slope, back, out, moved)
        added = self.empty(len(of.dvector))
        self.column_sum(moved, added)
        vector = of.dvector
        vector += added

    def _scores(self, of: Attention[Array, DevicePattern]) -> Array:
        e = self.empty(of.pattern.entries, of.s.shape[1])
        self._launch("scores", *of.s.shape, *of.pattern.by_rows, of.t, of.s, of.slope, e)
        return e

    def _scores_v2(self, of: AttentionV2[Array, DevicePattern]) -> Array:
        pattern, heads = of.pattern, of.shift.shape[1]
        e, width = self.empty(pattern.entries, heads), per_head(of.x, of.shift)
        given = *pattern.by_rows, of.x, of.target, of.vector, width, of.slope
        self._launch("scores_v2", pattern.rows, heads, *given, e)
        return e

    def _weigh(self, of: _Attention, e: Array) -> None:
        starts, _ = of.pattern.by_rows
        self._launch("softmax_of_rows", *of.shift.shape, starts, e, -np.inf, of.shift, of.total)
        given = self._weights(of, e), per_head(of.x, of.shift), of.x
        self._launch("weighted_rows", *of.out.shape, *of.pattern.by_rows, *given, of.out)

    def _weights(self, of: _Attention, e: Array) -> Array:
        """Weights after dropout; before it, in place of e."""
        kept, drop = self.empty(of.pattern.entries, of.shift.shape[1]), of.drop
        p, *keys = (0.0, None, None) if drop is None else (drop.p, drop.rows, drop.columns)
        given = of.shift, of.total, drop is not None, *keys, rng.threshold(p), 1 / (1 - p)
        self._launch("weights_of_rows", *of.shift.shape, *of.pattern.by_rows, *given, e, kept)
        return kept

    def _back(self, of: _Attention, e: Array, grad: Array, dx: Array) -> None:
        """In place of e its gradient; to dx, that of x by which it is summed."""
        kept, width, pattern = self._weights(of, e), per_head(of.x, of.shift), of.pattern
        given = *pattern.by_rows, of.x, of.out, grad, width, kept
        self._launch("gradients_of_scores", *of.shift.shape, *given, e)
        columns = *pattern.by_columns, pattern.places_back, kept, width
        self._launch("weighted_columns", *dx.shape, *columns, grad, dx)


def per_head(x: Array, heads: Array) -> int:
    """Columns of a head, of x (m, heads · c) and an array with a number for each head."""
    return x.shape[1] // heads.shape[1]
