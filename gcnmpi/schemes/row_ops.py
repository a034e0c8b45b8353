"""Row operations where the columns of a matrix are cut over a group of ranks.

All ranks of the group have the same rows. Each operation is one all-reduce of a number a row;
``row_argmax`` one more, of 8 bytes a row.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.core import volume
from gcnmpi.core.volume import Volume
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.mpi.collectives import MAX, MIN, Group
from gcnmpi.schemes.operations import Operation


def row_max(kernel: Kernel, group: Group, x: Array) -> Array:
    """Largest entry of each row over all columns, (rows, 1)."""
    largest = kernel.row_max(x)
    group.all_reduce(largest, MAX)
    return largest


def row_sum(group: Group, sums: Array) -> Array:
    """The sum of this rank's row sums (rows, 1) and those of the others, in place."""
    group.all_reduce(sums)
    return sums


def row_pick(kernel: Kernel, group: Group, x: Array, columns: np.ndarray, mine: slice) -> Array:
    """The entry of each row in a global column, (rows, 1).

    Parameters
    ----------
    columns : (rows,) integers
        Each of them on one rank of the group, which contributes it; the others 0.
    mine : slice
        Global columns of this rank.
    """
    picked = kernel.pick(x, columns, mine.start)
    group.all_reduce(picked)
    return picked


def row_argmax(kernel: Kernel, group: Group, x: Array, mine: slice, width: int) -> np.ndarray:
    """Global column of the largest entry of each row, the lowest on a tie, (rows,) int64."""
    own = kernel.to_host(kernel.row_max(x))
    largest = own.copy()
    group.all_reduce(largest, MAX)
    column = kernel.to_host(kernel.row_argmax(x)).astype(np.int64) + mine.start
    has_columns = mine.stop > mine.start  # without any, a rank's maximum is −∞ and nowhere
    column[(own < largest)[:, 0] | (not has_columns)] = width
    group.all_reduce(column, MIN)
    return column


def row_volume(product: Operation, rows: int, itemsize: int, size: int) -> Volume:
    """What one of these operations moves over a group of ``size`` ranks."""
    moved = volume.all_reduce(rows * itemsize, size)
    if product == Operation.ROW_ARGMAX:
        moved += volume.all_reduce(rows * np.dtype(np.int64).itemsize, size)
    return moved
