"""Operations on the neighbours of a vertex beside products, in NumPy.

Compiled kernels are compared with these; they take temporary arrays of one number for each
entry and head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionDropout,
    AttentionV2,
    AttentionV2Backward,
    scratch_rows,
)
from gcnmpi.kernels.rows import entry_rows, places_by_columns, sort_rows, transposed

Array = np.ndarray
_SHORT = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Pattern:
    """Which columns a row has, by rows and by columns.

    Attributes
    ----------
    starts : (rows + 1,) int64
    indices : (entries,) int32
        Columns of each row, in the global order of the columns.
    column_starts : (columns + 1,) int64
    column_rows : (entries,) int32
        Rows of each column, in increasing order.
    compile : callable or None
        Makes what compiled functions take of these arrays, and of :attr:`places` and
        :attr:`places_back`, each of which may be None.
    """

    starts: Array
    indices: Array
    column_starts: Array
    column_rows: Array
    compile: Callable[..., object] | None = None

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def columns(self) -> int:
        return len(self.column_starts) - 1

    @property
    def entries(self) -> int:
        return len(self.indices)

    @property
    def scratch_rows(self) -> int:
        return scratch_rows(self.rows, self.entries)

    # Few operations need these: each is made when it is first asked for.

    @cached_property
    def places(self) -> Array:
        """Where each entry, by rows, is among the entries by columns, (entries,) int32 or int64."""
        return places_by_columns(self.indices, self.column_starts)

    @cached_property
    def places_back(self) -> Array:
        """Where each entry, by columns, is among the entries by rows."""
        return places_by_columns(self.indices, self.column_starts, back=True)

    @cached_property
    def compiled(self) -> object:
        """The argument of compiled functions that need neither."""
        return self._compiled(None, None)

    @cached_property
    def compiled_with_places(self) -> object:
        """The same with ``places``."""
        return self._compiled(self.places, None)

    @cached_property
    def compiled_with_way_back(self) -> object:
        """The same with ``places_back``."""
        return self._compiled(None, self.places_back)

    def _compiled(self, places: Array | None, back: Array | None) -> object:
        assert self.compile is not None, "a pattern of another kernel"
        by_rows, by_columns = (self.starts, self.indices), (self.column_starts, self.column_rows)
        return self.compile(*by_rows, *by_columns, places, back)

    def some_rows(self, rows: slice) -> Pattern:
        """Some of the rows, for operations by rows: columns have no entries."""
        starts, none = self.starts[rows.start : rows.stop + 1], np.empty(0, np.int32)
        of_rows = starts - starts[0], self.indices[starts[0] : starts[-1]]
        return Pattern(*of_rows, _zeros(self.columns + 1), none, self.compile)


@lru_cache(maxsize=8)
def _zeros(count: int) -> Array:
    """So many zeros, which the patterns of all slices share: columns may be millions."""
    return np.zeros(count, np.int64)


def make_pattern(matrix: sp.csr_array, order: Array | None) -> Pattern:
    """The pattern of a matrix; its values are not looked at.

    Parameters
    ----------
    order : (columns,) int64, or None
        Global numbers of the columns, all different, by which entries of a row are put in order;
        the maximum takes the lowest of equals. None: entries stay in their order.

    Raises
    ------
    ValueError
        If an index is out of range, or there are more than 2³¹ − 1 rows or columns.
    """
    matrix.check_format()
    rows, columns = matrix.shape
    if max(rows, columns) > _SHORT:
        raise ValueError(f"a pattern of {rows} × {columns} does not have 32-bit indices")
    indices = matrix.indices.astype(np.int32, copy=False)
    if order is not None:
        indices = _in_order(matrix, order)
    starts = np.ascontiguousarray(matrix.indptr, np.int64)
    indices = np.ascontiguousarray(indices[: starts[-1]])
    return Pattern(starts, indices, *transposed(starts, indices, columns))


def _in_order(matrix: sp.csr_array, order: Array) -> Array:
    """The columns of the entries, those of a row by their global numbers."""
    columns = matrix.shape[1]
    if len(order) != columns:
        raise ValueError(f"{len(order)} global numbers for {columns} columns")
    by_order = np.argsort(order, kind="stable")
    rank = np.empty(columns, np.int32)
    rank[by_order] = np.arange(columns, dtype=np.int32)
    ordered = rank[matrix.indices]
    sort_rows(np.ascontiguousarray(matrix.indptr, np.int64), ordered, None, threads=1)
    return by_order.astype(np.int32)[ordered]


_Attention = Attention[Array, Pattern] | AttentionV2[Array, Pattern]


class Neighbours:
    """:class:`~gcnmpi.kernels.interface.neighbours.NeighbourOperations` on the host."""

    dtype: np.dtype

    def pattern(self, matrix: sp.csr_array, order: Array | None) -> Pattern:
        return make_pattern(matrix, order)

    # Maximum.

    def max_aggregate(self, pattern: Pattern, x: Array, out: Array, arg: Array) -> None:
        out.fill(0)
        arg.fill(-1)
        filled = np.flatnonzero(np.diff(pattern.starts))
        if not len(filled) or not x.shape[1]:
            return
        taken = x[pattern.indices]
        largest = reduced(np.maximum, taken, pattern.starts)
        out[...] = largest
        of = entry_rows(pattern.starts)
        hit = (taken == largest[of]) | np.isnan(taken)
        place = np.where(hit, np.arange(len(of))[:, np.newaxis], len(of))
        first = np.minimum.reduceat(place, pattern.starts[filled], axis=0)
        arg[filled] = pattern.indices[first]

    def max_aggregate_backward(self, pattern: Pattern, grad: Array, arg: Array, out: Array) -> None:
        out.fill(0)
        rows, columns = np.nonzero(arg >= 0)
        np.add.at(out, (arg[rows, columns], columns), grad[rows, columns])

    # Scores of vertices.

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        heads = out.shape[1]
        out[...] = np.einsum("mhc,hc->mh", split(x, heads), vector.reshape(heads, -1))

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array
    ) -> None:
        dx += _outer(dout, vector).reshape(x.shape)
        wide = np.einsum("mh,mhc->hc", dout.astype(np.float64), split(x, dout.shape[1]))
        dvector += wide.reshape(dvector.shape).astype(self.dtype)

    # Attention.

    def attend(self, of: Attention[Array, Pattern]) -> None:
        e = _leaky(of.s[entry_rows(of.pattern.starts)] + of.t[of.pattern.indices], self._slope(of))
        self._weigh(of, e)

    def attend_backward(self, of: AttentionBackward[Array, Pattern]) -> None:
        forward = of.forward
        pattern, slope = forward.pattern, self._slope(forward)
        z = forward.s[entry_rows(pattern.starts)] + forward.t[pattern.indices]
        de = self._back(forward, _leaky(z, slope), of.grad, of.dx)
        de *= np.where(z > 0, self.dtype.type(1), slope)
        of.ds[...] = reduced(np.add, de, pattern.starts)
        of.dt.fill(0)
        np.add.at(of.dt, pattern.indices, de)

    def attend_v2(self, of: AttentionV2[Array, Pattern]) -> None:
        scratch = of.scratch[: of.pattern.entries]
        z = of.x[of.pattern.indices] + of.target[entry_rows(of.pattern.starts)]
        self.head_dots(_leaky(z, self._slope(of)), of.vector, scratch)
        self._weigh(of, scratch)

    def attend_v2_backward(self, of: AttentionV2Backward[Array, Pattern]) -> None:
        forward, pattern, slope = of.forward, of.forward.pattern, self._slope(of.forward)
        scratch = forward.scratch[: pattern.entries]
        z = forward.x[pattern.indices] + forward.target[entry_rows(pattern.starts)]
        e, dz = np.empty_like(scratch), np.zeros_like(z)
        bent = _leaky(z, slope)
        self.head_dots(bent, forward.vector, e)
        scratch[...] = self._back(forward, e, of.grad, of.dx)
        self.head_dots_backward(bent, forward.vector, scratch, dz, of.dvector)
        dz *= np.where(z > 0, self.dtype.type(1), slope)
        of.dtarget[...] = reduced(np.add, dz, pattern.starts)
        np.add.at(of.dx, pattern.indices, dz)

    def _slope(self, of: _Attention) -> np.floating:
        return self.dtype.type(of.slope)

    def _weigh(self, of: _Attention, e: Array) -> None:
        """Softmax of e (entries, heads) over the entries of each row, and the sums weighted so."""
        pattern, rows = of.pattern, entry_rows(of.pattern.starts)
        of.shift[...] = reduced(np.maximum, e, pattern.starts)
        weights = np.exp(e - of.shift[rows])
        of.total[...] = reduced(np.add, weights, pattern.starts)
        weights /= of.total[rows]
        if of.drop is not None:
            weights *= self._kept(pattern, of.drop, of.total.shape[1])
        for head, columns in enumerate(columns_of(of.x, of.total.shape[1])):
            of.out[:, columns] = with_values(pattern, weights[:, head]) @ of.x[:, columns]

    def _back(self, of: _Attention, e: Array, grad: Array, dx: Array) -> Array:
        """Gradient of e, (entries, heads); to dx, that of x by which it is summed."""
        pattern, rows, heads = of.pattern, entry_rows(of.pattern.starts), of.total.shape[1]
        weights = np.exp(e - of.shift[rows]) / of.total[rows]
        kept = self.dtype.type(1) if of.drop is None else self._kept(pattern, of.drop, heads)
        alpha = weights * kept
        along = np.einsum("mhc,mhc->mh", split(grad, heads), split(of.out, heads))
        back, ahead = split(grad[rows], heads), split(of.x[pattern.indices], heads)
        de = weights * (kept * np.einsum("ehc,ehc->eh", back, ahead) - along[rows])
        for head, columns in enumerate(columns_of(of.x, heads)):
            dx[:, columns] = with_values(pattern, alpha[:, head]).T @ grad[:, columns]
        return de

    def _kept(self, pattern: Pattern, drop: AttentionDropout[Array], heads: int) -> Array:
        """1 / (1 − p) for what is kept, 0 for what is dropped, (entries, heads)."""
        rows = drop.rows[entry_rows(pattern.starts)]
        columns = drop.columns.reshape(-1, heads)[pattern.indices]
        hashes, scratch = np.empty((2, *columns.shape), np.uint32)
        rng.hash_block(rows, columns, hashes, scratch)
        return (hashes >= rng.threshold(drop.p)) * self.dtype.type(1 / (1 - drop.p))


def reduced(reduce: np.ufunc, values: Array, starts: Array) -> Array:
    """The values (entries, width) of each row reduced to one, (rows, width); 0 without any."""
    filled = np.flatnonzero(np.diff(starts))
    out = np.zeros((len(starts) - 1, values.shape[1]), values.dtype)
    if len(filled) and values.shape[1]:
        out[filled] = reduce.reduceat(values, starts[filled], axis=0)
    return out


def with_values(pattern: Pattern, values: Array) -> sp.csr_array:
    """A matrix of the pattern with a value for each entry."""
    shape = pattern.rows, pattern.columns
    return sp.csr_array((values, pattern.indices, pattern.starts), shape)


def split(x: Array, heads: int) -> Array:
    """x (m, heads · c) as (m, heads, c)."""
    return x.reshape(len(x), heads, x.shape[1] // heads)


def _outer(scores: Array, vector: Array) -> Array:
    """scores[:, h] · vector[h], (m, heads, c)."""
    return scores[:, :, np.newaxis] * vector.reshape(scores.shape[1], -1)


def columns_of(x: Array, heads: int) -> list[slice]:
    """The columns of each head."""
    c = x.shape[1] // heads
    return [slice(h * c, (h + 1) * c) for h in range(heads)]


def _leaky(x: Array, slope: np.floating) -> Array:
    return np.where(x > 0, x, slope * x)
