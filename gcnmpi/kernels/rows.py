"""Rows of sparse matrices, made of entries that come in any order: counted, then placed.

And items in groups, such as those that go to one rank. Compiled where the extension was built, with
NumPy and SciPy elsewhere. Local numbers of rows and columns have 32 bits, places of entries 64.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.kernels.threads import sleeping_soon
from partition.graph.graph import distinct

try:
    with sleeping_soon():
        import gcnmpi.kernels._native as _compiled
except ImportError:
    _compiled = None
# None, too, of older sources
_native: Any = _compiled if hasattr(_compiled, "places_by_columns") else None

SHORT = np.iinfo(np.int32).max
PERMUTED_AT_ONCE = 16  # the share of the columns that change places, without compiled code
STEP = 1 << 20  # numbers that are looked up at once: what takes 8 bytes meanwhile, are few


class Places:
    """Where numbers are in a list of distinct ones, which is in any order.

    >>> Places(np.array([30, 10, 20])).of(np.array([10, 20, 40])).tolist()
    [1, 2, -1]

    Raises
    ------
    ValueError
        If a number is twice in the list.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self._dtype = np.dtype(np.int32 if numbers.dtype.itemsize <= 4 else np.int64)
        numbers = np.ascontiguousarray(numbers, self._dtype)
        self._compiled = None
        if _native is not None and len(numbers) < SHORT:
            made = _native.Places32 if self._dtype.itemsize == 4 else _native.Places64
            self._compiled = made(numbers)
            return
        kind = np.int32 if len(numbers) < SHORT else np.int64
        self._order = np.argsort(numbers, kind="stable").astype(kind)
        self._sorted = numbers[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            raise ValueError("numbers that are not distinct")

    def of(self, some: np.ndarray) -> np.ndarray:
        """The places of some numbers, −1 where one is not in the list; int32 where that reaches."""
        return self._found(some)[0]

    def all_of(self, some: np.ndarray) -> np.ndarray:
        """The same where all are in the list; ValueError if one is not."""
        found, missing = self._found(some)
        if missing:
            raise ValueError("a row that this rank neither owns nor receives")
        return found

    def _found(self, some: np.ndarray) -> tuple[np.ndarray, int]:
        """The places, and how many are not in the list."""
        some = np.ascontiguousarray(some, self._dtype)
        if self._compiled is not None:
            found = np.empty(len(some), np.int32)
            return found, self._compiled.of(some, found)
        found = np.empty(len(some), self._order.dtype)
        for start in range(0, len(some), STEP):
            piece = some[start : start + STEP]
            at = np.minimum(np.searchsorted(self._sorted, piece), max(len(self._sorted) - 1, 0))
            there = self._sorted[at] == piece if len(self._sorted) else np.zeros(len(piece), bool)
            found[start : start + STEP] = np.where(there, self._order[at] if there.any() else 0, -1)
        return found, int(np.count_nonzero(found < 0))


class Distinct:
    """Numbers of 0 or more, each once, of some that come a piece at a time.

    >>> found = Distinct(np.int32)
    >>> found.add(np.array([7, 3, 7], np.int32))
    >>> found.add(np.array([3, 5], np.int32))
    >>> found.numbers().tolist()
    [3, 5, 7]
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._compiled = None
        if _native is not None:
            short = self._dtype.itemsize <= 4
            self._dtype = np.dtype(np.int32 if short else np.int64)
            self._compiled = (_native.Distinct32 if short else _native.Distinct64)()
        self._found, self._pending = [np.empty(0, self._dtype)], 0

    def add(self, numbers: np.ndarray) -> None:
        """Take some more numbers."""
        if self._compiled is not None:
            self._compiled.add(np.ascontiguousarray(numbers, self._dtype))
            return
        self._found.append(distinct(numbers))
        self._pending += len(self._found[-1])
        if self._pending > len(self._found[0]):  # as often as it doubles
            self._found, self._pending = [distinct(np.concatenate(self._found))], 0

    def numbers(self) -> np.ndarray:
        """All of them, increasing."""
        if self._compiled is None:
            return distinct(np.concatenate(self._found))
        out = np.empty(self._compiled.count(), self._dtype)
        self._compiled.numbers(out)
        out.sort()
        return out


class Grouped:
    """Items in the order of their groups, those of one group in the order in which they are.

    >>> of = Grouped(np.array([1, 0, 1]), 3)
    >>> of.counts.tolist(), of.take(np.array([10, 20, 30])).tolist()
    ([1, 2, 0], [20, 10, 30])

    Parameters
    ----------
    groups : (m,) integers
    count : int
        How many groups there are.
    """

    def __init__(self, groups: np.ndarray, count: int) -> None:
        self._groups = np.ascontiguousarray(groups, np.int32)
        self.counts = group_counts(self._groups, count)

    def take(self, items: Any) -> np.ndarray:
        """Items, (m, …), in that order; they may be in a file, or computed where they are picked.

        Of a single group, they may be the same array.
        """
        plain = isinstance(items, np.ndarray) and items.flags.c_contiguous
        if plain and len(self.counts) == 1:
            return items
        if _native is None or not plain or not items.size:
            return np.ascontiguousarray(items[self._order])
        found = np.empty(items.shape, items.dtype)
        rows = (array.reshape(len(items), -1).view(np.uint8) for array in (items, found))
        _native.group_rows(self._groups, np.cumsum(self.counts) - self.counts, *rows)
        return found

    @cached_property
    def _order(self) -> np.ndarray:
        count = len(self.counts)
        # By radix where numbers have 16 bits, in a time that grows with the items.
        short = np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.int32
        return np.argsort(self._groups.astype(short), kind="stable")


def group_counts(groups: np.ndarray, count: int) -> np.ndarray:
    """How many items each of so many groups has, (count,) int64; ``groups``, (m,), are theirs."""
    counts = np.zeros(count, np.int64)
    for start in range(0, len(groups), STEP):
        count_entries(np.ascontiguousarray(groups[start : start + STEP], np.int32), counts)
    return counts


def looked_up(table: np.ndarray, places: np.ndarray) -> np.ndarray:
    """table[places], int32; both have integers, all places are there."""
    if _native is None or table.dtype != np.int32 or places.dtype.name not in ("int32", "int64"):
        return table[places].astype(np.int32, copy=False)
    out = np.empty(len(places), np.int32)
    _native.look_up(np.ascontiguousarray(table), np.ascontiguousarray(places), out)
    return out


def look_up_in_place(table: np.ndarray, places: np.ndarray) -> None:
    """places = table[places], (m,) int32."""
    for start in range(0, len(places), STEP):
        some = slice(start, start + STEP)
        places[some] = looked_up(table, places[some])


def entry_rows(starts: np.ndarray, some: slice = slice(None)) -> np.ndarray:
    """The row of each entry, or of some of them that follow each other, int32.

    >>> entry_rows(np.array([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    >>> entry_rows(np.array([0, 2, 2, 5]), slice(1, 4)).tolist()
    [0, 2, 2]

    Parameters
    ----------
    starts : (rows + 1,) integers
        Where the entries of each row begin.
    """
    start, stop, _ = some.indices(int(starts[-1]))
    first, last = np.searchsorted(starts, (start, max(start, stop - 1)), side="right") - 1
    ends = np.clip(starts[first : last + 2], start, stop)
    return np.repeat(np.arange(first, first + len(ends) - 1, dtype=np.int32), np.diff(ends))


def inverse(places: np.ndarray, count: int) -> np.ndarray:
    """Where each number below ``count`` is among ``places``, (count,) int32 where that reaches.

    >>> inverse(np.array([2, -1, 0, 1]), 3).tolist()
    [2, 3, 0]

    Parameters
    ----------
    places : (m,) integers
        Each number once, and negative ones.
    """
    out = np.empty(count, np.int32 if len(places) <= SHORT else np.int64)
    for start in range(0, len(places), STEP):
        some = places[start : start + STEP]
        there = np.flatnonzero(some >= 0)
        out[some[there]] = start + there
    return out


def count_entries(rows: np.ndarray, counts: np.ndarray) -> None:
    """Add how many entries each row has to ``counts``, (rows,) int64; negative ones have no row.

    ``rows``, (m,) int32, are those of the entries.
    """
    if _native is not None:
        _native.count_entries(rows, counts)
    else:
        counts += np.bincount(rows[rows >= 0], minlength=len(counts))


def note_entries(
    rows: np.ndarray,
    columns: np.ndarray,
    lengths: np.ndarray,
    column_lengths: np.ndarray,
    lonely: np.ndarray,
    distance: float,
) -> tuple[int, int]:
    """Count entries by rows, and by columns where these are the same vertices: not negative.

    Parameters
    ----------
    rows, columns : (m,) int32
    lengths, column_lengths : (rows,) int64
        Are added to.
    lonely : (rows,) bool
        Set to False where an entry is on the diagonal.

    Returns
    -------
    inside, far : int
        How many columns are not negative; how many of these entries have at least that distance
        from the diagonal.
    """
    if _native is not None:
        arrays = rows, columns, lengths, column_lengths, lonely.view(np.uint8)
        return _native.note_entries(*arrays, distance)
    count_entries(rows, lengths)
    count_entries(columns, column_lengths)
    lonely[rows[rows == columns]] = False
    there = columns >= 0
    away = np.abs(rows[there] - columns[there]) >= distance
    return len(away), int(np.count_nonzero(away))


def place_entries(
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray | None,
    next_place: np.ndarray,
    ends: np.ndarray,
    out: np.ndarray,
    out_values: np.ndarray | None,
) -> None:
    """Put some entries behind those that their rows already have, in their order.

    Parameters
    ----------
    rows, columns : (m,) int32
    values, out_values : (m,) and (entries,) float64, or None
    next_place : (rows,) int64
        Where the next entry of each row goes; it is moved on.
    ends : (rows,) int64
        Where the entries of each row end.
    out : (entries,) int32
        The columns of all entries.

    Raises
    ------
    IndexError
        If a row is not there, or has more entries than room.
    """
    if _native is not None:
        _native.place_entries(rows, columns, values, next_place, ends, out, out_values)
        return
    order = np.argsort(rows, kind="stable")
    row = rows[order]
    counts = np.bincount(row, minlength=len(next_place))
    if (next_place + counts > ends).any():
        raise IndexError("a row has more entries than were counted")
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = next_place[row] + within
    out[place] = columns[order]
    if values is not None and out_values is not None:
        out_values[place] = values[order]
    next_place += counts


def sort_rows(
    starts: np.ndarray, indices: np.ndarray, values: np.ndarray | None, threads: int
) -> None:
    """Put the columns of each row in order, in place, and the values, float64, along.

    Equal ones stay in their order. Values are moved only: they may be any eight bytes.
    """
    if _native is not None:
        _native.sort_rows(starts, indices, values, threads)
        return
    order = np.lexsort((indices, entry_rows(starts)))
    indices[:] = indices[order]
    if values is not None:
        values[:] = values[order]


def transposed(
    starts: np.ndarray, indices: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the transpose of a pattern, each in increasing order.

    Returns
    -------
    starts : (columns + 1,) int64
    indices : (entries,) int32
    """
    if _native is not None:
        out_starts, out = np.empty(columns + 1, np.int64), np.empty(len(indices), np.int32)
        _native.transpose(starts, indices, out_starts, out, None, None)
        return out_starts, out
    numbers = np.broadcast_to(np.int8(1), len(indices))
    turned = sp.csr_array((numbers, indices, starts), shape=(len(starts) - 1, columns)).tocsc()
    return turned.indptr.astype(np.int64), turned.indices.astype(np.int32)


def places_by_columns(
    indices: np.ndarray, column_starts: np.ndarray, back: bool = False
) -> np.ndarray:
    """Where each entry of a pattern is in its transpose; or the way back.

    ``column_starts``, (columns + 1,) int64, are those of the transpose. The result is (entries,)
    int32, or int64 where there are too many.
    """
    count = len(indices)
    kind = np.int32 if count <= SHORT else np.int64
    if _native is not None:
        out = np.empty(count, kind)
        _native.places_by_columns(indices, column_starts[:-1].copy(), out, back)
        return out
    order = np.argsort(indices, kind="stable").astype(kind)
    if back:
        return order
    out = np.empty(count, kind)
    out[order] = np.arange(count, dtype=kind)
    return out


def permute_rows(rows: np.ndarray, first: np.ndarray) -> None:
    """rows = rows[first], in place; ``rows`` are C-contiguous.

    >>> rows = np.array([10, 11, 12, 13])
    >>> permute_rows(rows, np.array([1, 0, 3, 2]))
    >>> rows.tolist()
    [11, 10, 13, 12]
    """
    if not rows.size:
        return
    if _native is not None:
        _native.permute_rows(rows.reshape(len(rows), -1).view(np.uint8), first)
        return
    columns = rows.reshape(len(rows), -1)
    step = max(1, columns.shape[1] // PERMUTED_AT_ONCE)
    for start in range(0, columns.shape[1], step):
        some = slice(start, start + step)
        columns[:, some] = columns[first, some]


def bandwidth_order(
    starts: np.ndarray, indices: np.ndarray, count: int, symmetric: bool
) -> np.ndarray:
    """Reverse Cuthill–McKee: breadth first along entries, so that rows are near their columns.

    Of the ``count`` rows of a pattern and their columns; those from ``count`` are left out. One
    that is not symmetric is followed both ways.

    Returns
    -------
    (count,) int64
        Which row comes first, second, …
    """
    width = max(count, int(indices.max(initial=-1)) + 1)
    if _native is not None:
        out = np.empty(count, np.int64)
        turned = (None, None) if symmetric else transposed(starts, indices, width)[:2]
        _native.bandwidth_order(starts, indices, *turned, out)
        return out
    # Here, because it takes half a second to import on every rank, and most orders do without.
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    entries = np.ones(len(indices), bool), indices, starts
    pattern = sp.csr_array(entries, shape=(count, width))[:, :count]
    pattern = pattern + pattern.T
    # SciPy sorts the neighbours of each row by insertion: quadratic in those of a hub, unless they
    # are in the order of their degrees, which are its numbers of entries, the diagonal twice.
    degrees = np.diff(pattern.indptr) + (pattern.diagonal() != 0)
    first = np.argsort(degrees, kind="stable")
    pattern = pattern[first][:, first]
    pattern.sort_indices()
    return first[reverse_cuthill_mckee(sp.csr_matrix(pattern), symmetric_mode=True)]
