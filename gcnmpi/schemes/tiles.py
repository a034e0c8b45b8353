"""A sparse tile as one message: its CSR arrays one after the other, in the smallest types.

Sizes and types follow from rows, columns and entries, which both ends know. A message is an array
of 8-byte words, so that one of more than 2 GB is still counted in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.kernels.interface.kernel import Sparse

WORD = 8  # bytes; each of the three arrays begins at a multiple of it


@dataclass(frozen=True)
class StagedMatrix:
    """A matrix as it takes part in stages.

    Attributes
    ----------
    entries : sequence of int
        How many a stage's columns have in this process row.
    own : mapping of stage number to the kernel's form
        The stages whose columns are this rank's.
    messages : mapping of stage number to array
        The same in the form that travels.
    """

    entries: Sequence[int]
    own: Mapping[int, Sparse]
    messages: Mapping[int, np.ndarray]


def message_bytes(rows: int, columns: int, entries: int, itemsize: int) -> int:
    """Bytes of a tile that travel: values, column numbers, row pointers; none of an empty one."""
    return _bounds(rows, columns, entries, itemsize)[-1] if entries else 0


def pack(tile: sp.csr_array, dtype: DTypeLike) -> np.ndarray:
    """The message of a tile, (bytes / 8,) uint64, with values of that dtype."""
    dtype, (rows, columns) = np.dtype(dtype), tile.shape
    size = message_bytes(rows, columns, tile.nnz, dtype.itemsize)
    message = np.zeros(size // WORD, np.uint64)
    if tile.nnz:
        parts = _parts(message, rows, columns, tile.nnz, dtype)
        for part, array in zip(parts, (tile.data, tile.indices, tile.indptr), strict=True):
            part[...] = array
    return message


def unpack(
    message: np.ndarray,
    rows: int,
    columns: int,
    entries: int,
    dtype: DTypeLike,
    scratch: Callable[[str, int, DTypeLike], np.ndarray] = lambda role, count, dtype: np.empty(
        count, dtype
    ),
) -> sp.csr_array:
    """The tile of a message; values share its memory.

    Parameters
    ----------
    scratch : callable
        ``scratch(role, count, dtype)``: memory for column numbers and row pointers, by turns.
    """
    values, *counted = _parts(message, rows, columns, entries, np.dtype(dtype))
    # In a type that SciPy computes with, as cheaply as it could convert them itself.
    kind = np.int32 if max(columns, entries) <= np.iinfo(np.int32).max else np.int64
    arrays = [values]
    for role, numbers in zip(("indices", "indptr"), counted, strict=True):
        arrays.append(scratch(f"{role} {np.dtype(kind)}", len(numbers), kind))
        arrays[-1][...] = numbers
    return sp.csr_array(tuple(arrays), shape=(rows, columns))


def _parts(
    message: np.ndarray, rows: int, columns: int, entries: int, dtype: np.dtype
) -> list[np.ndarray]:
    """Views of values, column numbers and row pointers."""
    memory = message.view(np.uint8)
    bounds = _bounds(rows, columns, entries, dtype.itemsize)
    lengths = (entries, entries, rows + 1)
    types = (dtype, _count_type(columns), _count_type(entries + 1))
    return [
        memory[start:stop].view(kind)[:length]
        for (start, stop), length, kind in zip(pairwise(bounds), lengths, types, strict=True)
    ]


def _bounds(rows: int, columns: int, entries: int, itemsize: int) -> list[int]:
    """Bytes at which each of the three arrays begins, and the last one ends."""
    sizes = (
        entries * itemsize,
        entries * _count_type(columns).itemsize,
        (rows + 1) * _count_type(entries + 1).itemsize,
    )
    return list(accumulate((-(-size // WORD) * WORD for size in sizes), initial=0))


def _count_type(count: int) -> np.dtype:
    """The smallest unsigned type of 0 … count − 1, of two bytes or more."""
    return next(kind for kind in map(np.dtype, "HIQ") if count - 1 <= np.iinfo(kind).max)
