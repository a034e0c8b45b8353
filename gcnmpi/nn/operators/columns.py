"""Sums of columns over all ranks, about a number that makes none of their digits cancel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Block
from gcnmpi.nn.binding import Binding
from gcnmpi.nn.program import Step


def sum_of_columns(step: Step) -> tuple[int, ...]:
    """One sum over ranks, of two numbers a column."""
    return (2 * step.operator.width,)


def sums_of_columns(binding: Binding, step: Step) -> tuple[Array, Array, Array]:
    """Moments, sums of all columns, and sums of this rank's, each (2, columns) in float64."""
    width, columns = step.operator.width, binding.block(step).columns

    def pairs(name: str, count: int) -> Array:
        return binding.kept(step, name, lambda: binding.kernel.from_host64(np.zeros((2, count))))

    sums, own = pairs("sums", width), columns.stop - columns.start
    return pairs("moments", width), sums, sums if own == width else pairs("mine", own)


def pivot(binding: Binding, step: Step, x: Array) -> Callable[[], None]:
    """Puts the mean of a row of each rank into ``moments[0]``: one sum over ranks.

    Equal numbers in a column are equal to it, to the bit, for every number of ranks.
    """
    kernel, scheme, block = binding.kernel, binding.scheme, binding.block(step)
    moments, sums, mine = sums_of_columns(binding, step)
    zero, some = kernel.from_host64(np.zeros(mine.shape[1])), float(len(x) > 0)

    def run() -> None:
        kernel.column_moments(x[:1], zero, mine)
        mine[1].fill(some)
        put_columns(kernel, block, mine, sums)
        scheme.reduce(sums.reshape(-1))
        kernel.copy(sums[0], moments[0])
        moments[0] /= sums[1]

    return run


def put_columns(kernel: Kernel, block: Block, mine: Array, sums: Array) -> None:
    """This rank's contribution to sums over ranks."""
    if mine is not sums or not block.counts_entries:
        sums.fill(0)
        if block.counts_entries:
            kernel.copy(mine, sums[:, block.columns])
