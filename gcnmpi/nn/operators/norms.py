"""Normalisation of rows and of columns, exact over all ranks that share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.interface.norms import ColumnNorm, Rows, RunningMoments
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.columns import pivot, put_columns, sum_of_columns, sums_of_columns
from gcnmpi.nn.program import Instruction, Program, Step
from gcnmpi.nn.tape import Rule, one_step
from gcnmpi.schemes.operations import Operation


@dataclass(frozen=True)
class Norm(Operator):
    """(x − mean)/√(variance + eps)·weight + bias, with weight and bias of (columns,)."""

    weight: str = ""
    bias: str = ""
    eps: float = 1e-5
    reads: ClassVar[tuple[str, ...]] = ("weight", "bias")
    told = "eps {eps:g}"

    @property
    def last_bias(self) -> str:
        """The parameter that shifts the result."""
        return self.bias


@dataclass(frozen=True)
class LayerNorm(Norm):
    """The same with moments over the columns of a row (biased)."""

    title = "layer norm"


@dataclass(frozen=True)
class BatchNorm(Norm):
    """The same with moments over all n rows of a column (biased).

    An evaluation takes the running moments, which training moves after each epoch by
    ``momentum``·(moment − running), the variance unbiased, n/(n − 1), as PyTorch does.

    In training, numbers of a column that differ by rounding errors only are equal: where √variance
    is at most 2⁻³⁷ (in float32: 2⁻²⁰) times |mean|, the variance is 0. The value is then the bias,
    to the bit. The input has no gradient: the weights in front of equal numbers, which they are
    equal for, have none. It has one where features are trained, which need it to differ.
    """

    mean: str = ""
    variance: str = ""
    momentum: float = 0.1
    reads = ("weight", "bias", "mean", "variance")
    title = "batch norm"
    told = "eps {eps:g} momentum {momentum:g}"


@dataclass(frozen=True)
class Normalize(Operator):
    """x[i] / max(‖x[i]‖₂, eps)."""

    eps: float = 1e-12
    told = "eps {eps:g}"


def _layer_norm(norm: LayerNorm, binding: Binding, step: Step) -> Run:
    """Moments of each row; two sums over the ranks that share it."""
    kernel, scheme = binding.kernel, binding.scheme
    x, out = binding.read(step), binding.written(step)
    columns, k, width, eps = binding.block(step).columns, step.k, norm.width, norm.eps
    weight = binding.parameters[norm.weight][columns]
    bias = binding.parameters[norm.bias][columns]
    mean, rstd = _of_rows(binding, step, "mean"), _of_rows(binding, step, "rstd")
    if scheme.whole_rows:
        return lambda epoch: kernel.layer_norm(Rows(x, mean, rstd, weight), bias, eps, out)

    def run(epoch: int) -> None:
        kernel.scale(scheme.row_sum(k, kernel.row_sum(x)), 1 / width, mean)
        squares = scheme.row_sum(k, kernel.row_square_sum(x, mean))
        kernel.copy((squares * (1 / width) + eps) ** -0.5, rstd)
        kernel.normalise_rows(Rows(x, mean, rstd, weight), bias, out)

    return run


def _layer_norm_backward(norm: LayerNorm, binding: Binding, step: Step) -> Run:
    """Its gradient, and those of weight and bias; one sum over the ranks that share a row."""
    kernel, scheme = binding.kernel, binding.scheme
    grad, x, out = binding.read(step), binding.read(step, 1), binding.written(step)
    block, k, width = binding.block(step), step.k, norm.width
    weight = binding.parameters[norm.weight][block.columns]
    mean, rstd = _of_rows(binding, step, "mean"), _of_rows(binding, step, "rstd")
    of_weight, of_bias = binding.gradients[norm.weight], binding.gradients[norm.bias]

    of = Rows(x, mean, rstd, weight)

    def run(epoch: int) -> None:
        of_weight.fill(0)
        of_bias.fill(0)
        if block.counts_entries:
            mine = of_weight[block.columns], of_bias[block.columns]
            kernel.normalised_column_sums(of, grad, *mine)
        sums = scheme.row_sum(k, kernel.normalise_rows_sums(of, grad))
        centre, along = sums[:, :1] / width, sums[:, 1:] / width
        kernel.normalise_rows_backward(of, grad, centre, along, out)

    return run


def _normalize(norm: Normalize, binding: Binding, step: Step) -> Run:
    """Rows divided by their length."""
    kernel, scheme = binding.kernel, binding.scheme
    x, out, k = binding.read(step), binding.written(step), step.k
    rstd = _of_rows(binding, step, "rstd")

    def run(epoch: int) -> None:
        squares = scheme.row_sum(k, kernel.row_square_sum(x, None))
        kernel.copy(1 / (squares**0.5).clip(norm.eps), rstd)
        kernel.normalise_rows(Rows(x, None, rstd), None, out)

    return run


def _normalize_backward(norm: Normalize, binding: Binding, step: Step) -> Run:
    """(g − x̂·(x̂·g)) / length; g / eps where the length is not above eps."""
    kernel, scheme = binding.kernel, binding.scheme
    grad, x, out, k = binding.read(step), binding.read(step, 1), binding.written(step), step.k
    of = Rows(x, None, _of_rows(binding, step, "rstd"))

    def run(epoch: int) -> None:
        sums = kernel.normalise_rows_sums(of, grad)
        along = kernel.empty(len(x), 1)
        kernel.copy(sums[:, 1:], along)
        along = scheme.row_sum(k, along)
        along *= of.rstd < 1 / norm.eps
        kernel.normalise_rows_backward(of, grad, None, along, out)

    return run


def _batch_norm(norm: BatchNorm, binding: Binding, step: Step) -> Run:
    """Moments of each column over all rows: two reductions of two numbers a column.

    They are summed about the mean of one row of each rank, which the first one gives: however
    large a mean is against its deviation, no digits cancel, and of equal rows nothing is left.
    """
    kernel, scheme = binding.kernel, binding.scheme
    x, out, block = binding.read(step), binding.written(step), binding.block(step)
    columns, n = block.columns, binding.rows(step)
    weight, bias, mean, variance = (binding.parameters[name] for name in norm.parameters)
    moments, sums, mine = sums_of_columns(binding, step)
    scale, shift = _factors(binding, step)
    running = RunningMoments(mean, variance, norm.momentum)
    of, find_pivot = ColumnNorm(moments, norm.eps, weight, bias), pivot(binding, step, x)
    trained, kept = binding.program.trained_features, kernel.from_host64(np.zeros((2, norm.width)))
    unread = kernel.empty(2, norm.width)

    def run(epoch: int) -> None:
        if epoch:
            find_pivot()
            kernel.column_moments(x, moments[0][columns], mine)
            put_columns(kernel, block, mine, sums)
            scheme.reduce(sums.reshape(-1))
            kernel.move_moments(sums, n, running, moments)
        else:
            kernel.copy(mean, moments[0])
            kernel.copy(variance, moments[1])
        if trained:
            kernel.copy(moments, kept)
        kernel.moment_factors(of, epoch > 0, scale, shift)
        if trained:  # features make equal rows differ, so that those rows need a gradient
            kernel.copy(kept, moments)
            kernel.moment_factors(of, False, unread[0], unread[1])
        kernel.scale_columns(x, scale[columns], shift[columns], out)

    return run


def _batch_norm_again(norm: BatchNorm, binding: Binding, step: Step) -> Run:
    """Its value by the factors that were found: no sums, and no running moments are moved."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    scale, shift = (factor[binding.block(step).columns] for factor in _factors(binding, step))
    return lambda epoch: kernel.scale_columns(x, scale, shift, out)


def _batch_norm_backward(norm: BatchNorm, binding: Binding, step: Step) -> Run:
    """Its gradient, and those of weight and bias: one more such reduction."""
    kernel, scheme = binding.kernel, binding.scheme
    grad, x, out = binding.read(step), binding.read(step, 1), binding.written(step)
    block, width, n = binding.block(step), norm.width, binding.rows(step)
    columns, weight = block.columns, binding.parameters[norm.weight]
    of_weight, of_bias = binding.gradients[norm.weight], binding.gradients[norm.bias]
    moments, sums, mine = sums_of_columns(binding, step)
    of = ColumnNorm(moments, norm.eps, weight, binding.parameters[norm.bias])
    rounded, slopes = kernel.empty(2, width), kernel.empty(3, width)

    def run(epoch: int) -> None:
        kernel.copy(moments, rounded)
        kernel.column_grad_sums(x, rounded[0, columns], rounded[1, columns], grad, mine)
        put_columns(kernel, block, mine, sums)
        kernel.copy(sums[0], of_bias)
        kernel.copy(sums[1], of_weight)
        scheme.reduce(sums.reshape(-1))
        kernel.moment_slopes(of, sums, n, slopes)
        kernel.scale_columns_backward(grad, x, slopes[:, columns], out)

    return run


def _sums(*numbers: int) -> Callable[[Program, Step, int], list[tuple[int, ...]]]:
    """Sums over the ranks that share a row, each of so many numbers a row."""
    return lambda program, step, rows: [(number * rows,) for number in numbers]


def _factors(binding: Binding, step: Step) -> tuple[Array, Array]:
    """x·scale + shift is the value of a batch norm: a number for each column."""
    width = step.operator.width
    make = partial(binding.kernel.empty, width)
    return binding.kept(step, "scale", make), binding.kept(step, "shift", make)


def _of_rows(binding: Binding, step: Step, name: str) -> Array:
    rows = binding.block(step).count
    return binding.kept(step, name, lambda: binding.kernel.empty(rows, 1))


LAYER_NORM = Instruction(
    "layer_norm",
    _layer_norm,
    Operation.ROW_SUM,
    _sums(1, 1),
    4,
    lambda step, rows, *_: 2 * rows,
    rowwise=True,
)
LAYER_NORM_BACKWARD = Instruction(
    "layer_norm_backward", _layer_norm_backward, Operation.ROW_SUM, _sums(2), passes=6, rowwise=True
)
NORMALIZE = Instruction(
    "normalize", _normalize, Operation.ROW_SUM, _sums(1), passes=3, rowwise=True
)
NORMALIZE_BACKWARD = Instruction(
    "normalize_backward", _normalize_backward, Operation.ROW_SUM, _sums(1), passes=5, rowwise=True
)
BATCH_NORM = Instruction(  # sums of the pivot, and of moments about it
    "batch_norm",
    _batch_norm,
    passes=3,
    summed=lambda step: sum_of_columns(step) * 2,
    again=Instruction("batch_norm_again", _batch_norm_again, passes=2),
)
BATCH_NORM_BACKWARD = Instruction(
    "batch_norm_backward", _batch_norm_backward, passes=5, summed=sum_of_columns
)

RULES = {
    BatchNorm: Rule(
        BATCH_NORM, one_step(BATCH_NORM_BACKWARD, reads_input=True), ends_shifts=True, once=True
    ),
    LayerNorm: Rule(LAYER_NORM, one_step(LAYER_NORM_BACKWARD, reads_input=True)),
    Normalize: Rule(NORMALIZE, one_step(NORMALIZE_BACKWARD, reads_input=True), whole_rows=True),
}
