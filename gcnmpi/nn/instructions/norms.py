"""Normalisation of rows and of columns, exact over all ranks that share them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Block
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operators import BatchNorm, LayerNorm, Normalize, Scale
from gcnmpi.nn.program import Product, Program, Step


def layer_norm(binding: Binding, step: Step) -> Run:
    """Moments of each row; two sums over the ranks that share it."""
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, LayerNorm)
    x, out = binding.read(step), binding.written(step)
    columns, k, width, eps = binding.block(step).columns, step.k, step.operator.width, operator.eps
    weight = binding.parameters[operator.weight][columns]
    bias = binding.parameters[operator.bias][columns]
    mean, rstd = _of_rows(binding, step, "mean"), _of_rows(binding, step, "rstd")
    if scheme.whole_rows:
        return lambda epoch: kernel.layer_norm(x, weight, bias, eps, out, mean, rstd)

    def run(epoch: int) -> None:
        kernel.scale(scheme.row_sum(k, kernel.row_sum(x)), 1 / width, mean)
        squares = scheme.row_sum(k, kernel.row_square_sum(x, mean))
        _reciprocal_root(kernel, squares, 1 / width, eps, rstd)
        kernel.normalise_rows(x, mean, rstd, weight, bias, out)

    return run


def layer_norm_backward(binding: Binding, step: Step) -> Run:
    """Its gradient, and those of weight and bias; one sum over the ranks that share a row."""
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, LayerNorm)
    grad, x, out = binding.read(step), binding.read(step, 1), binding.written(step)
    block, k, width = binding.block(step), step.k, step.operator.width
    weight = binding.parameters[operator.weight][block.columns]
    mean, rstd = _of_rows(binding, step, "mean"), _of_rows(binding, step, "rstd")
    of_weight, of_bias = binding.gradients[operator.weight], binding.gradients[operator.bias]

    def run(epoch: int) -> None:
        of_weight.fill(0)
        of_bias.fill(0)
        if block.counts_entries:
            mine = of_weight[block.columns], of_bias[block.columns]
            kernel.normalised_column_sums(x, mean, rstd, grad, *mine)
        sums = scheme.row_sum(k, kernel.normalise_rows_sums(x, mean, rstd, weight, grad))
        centre, along = sums[:, :1] / width, sums[:, 1:] / width
        kernel.normalise_rows_backward(x, mean, rstd, weight, grad, centre, along, out)

    return run


def layer_norm_products(program: Program, step: Step, rows: int) -> list[Product]:
    """Two sums."""
    return [("row_sum", step.k, rows)] * 2


def two_a_row(step: Step, rows: int, columns: int, entries: int) -> int:
    """Mean and deviation."""
    return 2 * rows


def layer_norm_backward_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One, of two numbers a row."""
    return [("row_sum", step.k, 2 * rows)]


def normalize(binding: Binding, step: Step) -> Run:
    """Rows divided by their length."""
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, Normalize)
    x, out, k = binding.read(step), binding.written(step), step.k
    rstd = _of_rows(binding, step, "rstd")

    def run(epoch: int) -> None:
        squares = scheme.row_sum(k, kernel.row_square_sum(x, None))
        _reciprocal_length(kernel, squares, operator.eps, rstd)
        kernel.normalise_rows(x, None, rstd, None, None, out)

    return run


def normalize_backward(binding: Binding, step: Step) -> Run:
    """(g − x̂·(x̂·g)) / length; g / eps where the length is not above eps."""
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, Normalize)
    grad, x, out, k = binding.read(step), binding.read(step, 1), binding.written(step), step.k
    rstd = _of_rows(binding, step, "rstd")

    def run(epoch: int) -> None:
        sums = kernel.normalise_rows_sums(x, None, rstd, None, grad)
        along = kernel.empty(len(x), 1)
        kernel.copy(sums[:, 1:], along)
        along = scheme.row_sum(k, along)
        along *= rstd < 1 / operator.eps
        kernel.normalise_rows_backward(x, None, rstd, None, grad, None, along, out)

    return run


def normalize_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One sum."""
    return [("row_sum", step.k, rows)]


def batch_norm(binding: Binding, step: Step) -> Run:
    """Moments of each column over all rows: two reductions of two numbers a column.

    They are summed about the mean of one row of each rank, which the first one gives: however
    large a mean is against its deviation, no digits cancel, and of equal rows nothing is left.
    """
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, BatchNorm)
    x, out, block = binding.read(step), binding.written(step), binding.block(step)
    columns, width, n = block.columns, step.operator.width, binding.rows(step)
    weight, bias, mean, variance = (binding.parameters[name] for name in operator.parameters)
    moments, sums, mine = _of_columns(binding, step)
    scale, shift = kernel.empty(width), kernel.empty(width)
    find_pivot = _pivot(binding, step, x)
    # What trained features add to equal rows makes them differ, so they need a gradient.
    constant = not binding.program.trained_features

    def run(epoch: int) -> None:
        if epoch:
            find_pivot()
            kernel.column_moments(x, moments[0][columns], mine)
            _put_columns(kernel, block, mine, sums)
            scheme.reduce(sums.reshape(-1))
            kernel.move_moments(sums, n, operator.momentum, mean, variance, moments)
        else:
            kernel.copy(mean, moments[0])
            kernel.copy(variance, moments[1])
        exact = constant and epoch > 0
        kernel.moment_factors(moments, operator.eps, exact, weight, bias, scale, shift)
        kernel.scale_columns(x, scale[columns], shift[columns], out)

    return run


def batch_norm_backward(binding: Binding, step: Step) -> Run:
    """Its gradient, and those of weight and bias: one more such reduction."""
    operator, kernel, scheme = step.operator, binding.kernel, binding.scheme
    assert isinstance(operator, BatchNorm)
    grad, x, out = binding.read(step), binding.read(step, 1), binding.written(step)
    block, width, n = binding.block(step), step.operator.width, binding.rows(step)
    columns, weight = block.columns, binding.parameters[operator.weight]
    of_weight, of_bias = binding.gradients[operator.weight], binding.gradients[operator.bias]
    moments, sums, mine = _of_columns(binding, step)
    rounded, slopes = kernel.empty(2, width), kernel.empty(3, width)

    def run(epoch: int) -> None:
        kernel.copy(moments, rounded)
        kernel.column_grad_sums(x, rounded[0, columns], rounded[1, columns], grad, mine)
        _put_columns(kernel, block, mine, sums)
        kernel.copy(sums[0], of_bias)
        kernel.copy(sums[1], of_weight)
        scheme.reduce(sums.reshape(-1))
        into = slopes[0], slopes[1], slopes[2]
        kernel.moment_slopes(sums, n, moments, operator.eps, weight, *into)
        a, b, c = slopes[0, columns], slopes[1, columns], slopes[2, columns]
        kernel.scale_columns_backward(grad, x, a, b, c, out)

    return run


def centred_scale_grad(binding: Binding, step: Step) -> Run:
    """The gradient of ε where a constant added to a column of x has no effect: of x − pivot.

    The gradients of a column add up to 0 there, so that the sum of x ⊙ g is that of (x − pivot) ⊙ g
    for the same pivot on all ranks; and of columns of equal numbers nothing is left, as it has to.
    """
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Scale)
    x, grad, block = binding.read(step), binding.read(step, 1), binding.block(step)
    moments, _, mine = _of_columns(binding, step)
    find_pivot, out = _pivot(binding, step, x), binding.gradients[operator.epsilon]
    width, columns = operator.width, block.columns
    pivot, of_columns, ones = (kernel.empty(1, width) for _ in range(3))
    ones.fill(1)

    def run(epoch: int) -> None:
        find_pivot()
        kernel.copy(moments[0], pivot[0])
        about = pivot[0, columns], ones[0, columns]
        kernel.column_grad_sums(x, *about, grad, mine)
        kernel.copy(mine[1], of_columns[0, columns])
        kernel.dot_to(of_columns[:, columns], ones[:, columns], out)
        if not block.counts_entries:
            out.fill(0)

    return run


def sum_of_columns(step: Step) -> tuple[int, ...]:
    """One sum over ranks, of two numbers a column."""
    return (2 * step.operator.width,)


def batch_norm_sums(step: Step) -> tuple[int, ...]:
    """Those of the pivot, and moments about it."""
    return sum_of_columns(step) * 2


def _of_rows(binding: Binding, step: Step, name: str) -> Array:
    rows = len(binding.block(step).rows)
    return binding.kept(step, name, lambda: binding.kernel.empty(rows, 1))


def _of_columns(binding: Binding, step: Step) -> tuple[Array, Array, Array]:
    """Moments, sums of all columns, and sums of this rank's, each (2, columns) in float64."""
    width, columns = step.operator.width, binding.block(step).columns

    def pairs(name: str, count: int) -> Array:
        return binding.kept(step, name, lambda: binding.kernel.from_host64(np.zeros((2, count))))

    sums, own = pairs("sums", width), columns.stop - columns.start
    return pairs("moments", width), sums, sums if own == width else pairs("mine", own)


def _pivot(binding: Binding, step: Step, x: Array) -> Callable[[], None]:
    """Puts the mean of a row of each rank into ``moments[0]``: one sum over ranks.

    Equal numbers in a column are equal to it, to the bit, for every number of ranks.
    """
    kernel, scheme, block = binding.kernel, binding.scheme, binding.block(step)
    moments, sums, mine = _of_columns(binding, step)
    zero, some = kernel.from_host64(np.zeros(mine.shape[1])), float(len(x) > 0)

    def run() -> None:
        kernel.column_moments(x[:1], zero, mine)
        mine[1].fill(some)
        _put_columns(kernel, block, mine, sums)
        scheme.reduce(sums.reshape(-1))
        kernel.copy(sums[0], moments[0])
        moments[0] /= sums[1]

    return run


def _put_columns(kernel: Kernel, block: Block, mine: Array, sums: Array) -> None:
    """This rank's contribution to sums over ranks."""
    if mine is not sums or not block.counts_entries:
        sums.fill(0)
        if block.counts_entries:
            kernel.copy(mine, sums[:, block.columns])


def _reciprocal_root(kernel: Kernel, squares: Array, factor: float, eps: float, out: Array) -> None:
    kernel.copy((squares * factor + eps) ** -0.5, out)


def _reciprocal_length(kernel: Kernel, squares: Array, eps: float, out: Array) -> None:
    kernel.copy(1 / (squares**0.5).clip(eps), out)
