"""Maximum and attention on a GPU: see ``kernels.cuda.text.neighbours``."""

from __future__ import annotations

from dataclasses import dataclass

import cupy as cp
import numpy as np
import scipy.sparse as sp
from cupy import ndarray as Array

from gcnmpi.core import rng
from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.cuda.launches import lanes
from gcnmpi.kernels.cuda.pieces import CupyPieces, Pieces, per_head
from gcnmpi.kernels.host.neighbours import make_pattern
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
    scratch_rows,
)
from gcnmpi.kernels.rows import entry_rows


@dataclass(frozen=True)
class DevicePattern:
    """A pattern on the device.

    Attributes
    ----------
    rows, columns, entries : int
    by_rows, by_columns : Pieces
    ends : pair of (entries,) int32
        The row and the column of each entry, by rows.
    column_rows : (entries,) int32
        The rows of entries by columns.
    places_back : (entries,) int64
        Where each entry by columns is among those by rows.
    """

    rows: int
    columns: int
    entries: int
    by_rows: Pieces
    by_columns: Pieces
    ends: tuple[Array, Array]
    column_rows: Array
    places_back: Array

    @property
    def scratch_rows(self) -> int:
        return scratch_rows(self.rows, self.entries)


_Attention = Attention[Array, DevicePattern] | AttentionV2[Array, DevicePattern]


class CupyNeighbours(CupyPieces):
    """``NeighbourOperations``, on a GPU.

    Attention takes temporary arrays of a number for each entry and head, from CuPy's pool.
    """

    def pattern(self, matrix: sp.csr_array, order: np.ndarray | None) -> DevicePattern:
        host = make_pattern(matrix, order)
        targets = entry_rows(host.starts)
        return DevicePattern(
            host.rows, host.columns, host.entries,
            Pieces(host.starts), Pieces(host.column_starts),
            (upload(targets), upload(host.indices)),
            upload(host.column_rows),
            upload(host.places_back, np.dtype(np.int64)),
        )  # fmt: skip

    def max_aggregate(self, pattern: DevicePattern, x: Array, out: Array, arg: Array) -> None:
        _, indices = pattern.ends
        self._fold("max_rows", pattern.by_rows, x.shape[1], 2, indices, x, out, arg)

    def max_aggregate_backward(
        self, pattern: DevicePattern, grad: Array, arg: Array, out: Array
    ) -> None:
        given = pattern.column_rows, grad, arg, out
        self._fold("max_columns", pattern.by_columns, out.shape[1], 1, *given)

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        width = per_head(x, out)
        many = lanes(width)
        given = x, vector, width, many, out
        self._launch("head_dots", len(out), out.shape[1] * many, *given)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array
    ) -> None:
        width = per_head(x, dout)
        self._launch("head_dots_backward", *dx.shape, dout, vector, width, True, dx)
        partial, of = self._partial_array(*x.shape), (dout, x, width, len(x))
        self._launch("head_dots_partials", len(partial), x.shape[1], *of, partial)
        added = cp.empty(dvector.shape, self.dtype)
        self._add_partials(partial, added)
        dvector += added

    def attend(self, of: Attention[Array, DevicePattern]) -> None:
        self._weigh(of, self._scores(of))

    def attend_backward(self, of: AttentionBackward[Array, DevicePattern]) -> None:
        f, pattern, de = of.forward, of.forward.pattern, self._scores(of.forward)
        self._back(f, de, of.grad, of.dx, f.t, f.s)
        self.sum_entries(pattern.by_rows, None, de, of.ds)
        self.sum_entries(pattern.by_columns, pattern.places_back, de, of.dt)

    def attend_v2(self, of: AttentionV2[Array, DevicePattern]) -> None:
        self._weigh(of, self._scores_v2(of))

    def attend_v2_backward(self, of: AttentionV2Backward[Array, DevicePattern]) -> None:
        f, pattern, de = of.forward, of.forward.pattern, self._scores_v2(of.forward)
        self._back(f, de, of.grad, of.dx, None, None)
        heads, width = f.shift.shape[1], per_head(f.x, f.shift)
        moved = self.empty(*f.x.shape)
        _, columns = pattern.ends
        for pieces, ends, places, mine, other, out in (
            (pattern.by_columns, pattern.column_rows, pattern.places_back, f.x, f.target, of.dx),
            (pattern.by_rows, columns, None, f.target, f.x, of.dtarget),
        ):
            scores = ends, places, de, heads, width, mine, other, f.vector, f.slope
            self._fold("bend_v2", pieces, out.shape[1], 2, *scores, out, moved)
        added = self.empty(len(of.dvector))
        self.column_sum(moved, added)
        vector = of.dvector
        vector += added

    def _scores(self, of: Attention[Array, DevicePattern]) -> Array:
        e = self.empty(of.pattern.entries, of.s.shape[1])
        self._launch("scores", *e.shape, *of.pattern.ends, of.t, of.s, of.slope, e)
        return e

    def _scores_v2(self, of: AttentionV2[Array, DevicePattern]) -> Array:
        e, width = self.empty(of.pattern.entries, of.shift.shape[1]), per_head(of.x, of.shift)
        given = of.x, of.target, of.vector, width, lanes(width), of.slope
        threads = len(e), e.shape[1] * lanes(width)
        self._launch("scores_v2", *threads, *of.pattern.ends, *given, e)
        return e

    def _weigh(self, of: _Attention, e: Array) -> None:
        given = e, -np.inf, of.shift, of.total
        self._fold("softmax_of_rows", of.pattern.by_rows, e.shape[1], 2, *given)
        self.spmm_values(of.pattern, self._weights(of, e), of.x, of.out)

    def _weights(self, of: _Attention, e: Array) -> Array:
        """Weights after dropout; before it, in place of e."""
        kept, drop = self.empty(*e.shape), of.drop
        p, *keys = (0.0, None, None) if drop is None else (drop.p, drop.rows, drop.columns)
        given = of.shift, of.total, drop is not None, *keys, rng.threshold(p), 1 / (1 - p)
        self._launch("weights_of_entries", *e.shape, *of.pattern.ends, *given, e, kept)
        return kept

    def _back(
        self, of: _Attention, e: Array, grad: Array, dx: Array, t: Array | None, s: Array | None
    ) -> None:
        """In place of e its gradient; to dx, that of x by which it is summed."""
        kept, width = self._weights(of, e), per_head(of.x, of.shift)
        along, many = self.empty(*of.shift.shape), lanes(width)
        of_rows = grad, of.out, width, many, along
        self._launch("row_dots", len(along), along.shape[1] * many, *of_rows)
        given = of.x, grad, width, many, along, kept, t, s, of.slope
        threads = len(e), e.shape[1] * many
        self._launch("gradients_of_scores", *threads, *of.pattern.ends, *given, e)
        self.spmm_values_t(of.pattern, kept, grad, dx)

    # Sums over entries.

    def spmm_values(self, pattern: DevicePattern, values: Array, x: Array, out: Array) -> None:
        of = pattern.by_rows, pattern.ends[1], None
        self._weigh_pieces(*of, values, x, out)

    def spmm_values_t(self, pattern: DevicePattern, values: Array, x: Array, out: Array) -> None:
        of = pattern.by_columns, pattern.column_rows, pattern.places_back
        self._weigh_pieces(*of, values, x, out)

    def _weigh_pieces(
        self, of: Pieces, ends: Array, places: Array | None, values: Array, x: Array, out: Array
    ) -> None:
        width = per_head(x, values)
        self._sum("weigh_pieces", of, width, x, out, ends, places, values, width, x, out)

    def sum_entries(self, of: Pieces, places: Array | None, x: Array, out: Array) -> None:
        """The sums of rows of entries."""
        self._sum("sum_pieces", of, x.shape[1], x, out, places, x, out)
