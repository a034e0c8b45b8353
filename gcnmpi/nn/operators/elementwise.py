"""Operators that work entry by entry, or on the columns of a row that are on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from gcnmpi.kernels.epilogues import KINDS
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.operators.columns import pivot, sum_of_columns, sums_of_columns
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import ADD, Rule, Tape, one_step


@dataclass(frozen=True)
class Bias(Operator):
    """A bias for each column: x + 1·bᵀ."""

    bias: str = ""
    reads = ("bias",)

    def as_finish(self) -> Operator:
        """A bias can always be added in a product's pass."""
        return Finish(self.inputs, self.width, self.layer, bias=self.bias)


@dataclass(frozen=True)
class Activate(Operator):
    """f(x) with f of ``kind`` "relu", "elu" (α = 1), "leaky_relu", "prelu" or one of the kernels'.

    ``slope`` is that of "leaky_relu" below 0; "prelu" trains it: ``parameter``, (1,). The kernels
    have ``core.functions.FUNCTIONS``: "gelu" (exact, erf).
    """

    kind: str = "relu"
    slope: float = 0.01
    parameter: str = ""
    reads = ("parameter",)

    def as_finish(self) -> Operator:
        """Where the derivative of f follows from its value."""
        if self.kind not in KINDS:
            return self
        return Finish(self.inputs, self.width, self.layer, kind=self.kind, slope=self.slope)


@dataclass(frozen=True)
class Drop(Operator):
    """Dropout: x[i, c]/(1 − p) where a hash of (seed, epoch, stream, vertex i, column c) keeps it.

    Nothing in an evaluation. The entry is kept if ``rng.hash_block`` of ``rng.row_keys(seed, epoch,
    stream, vertices)`` and ``rng.column_keys(columns)`` gives at least ``rng.threshold(p)``.
    """

    p: float = 0.5
    stream: int = 0

    def as_finish(self) -> Operator:
        """Dropout can always be part of a product's pass."""
        return Finish(self.inputs, self.width, self.layer, p=self.p, stream=self.stream)


@dataclass(frozen=True)
class Add(Operator):
    """The sum x₁ + x₂."""


@dataclass(frozen=True)
class Scale(Operator):
    """(factor + ε)·x, with a trained number ε (1,) if there is one."""

    factor: float = 1.0
    epsilon: str = ""
    reads = ("epsilon",)
    told = "{factor:.12g}"


@dataclass(frozen=True)
class Maximum(Operator):
    """Entry-wise maximum of any number of inputs; its gradient goes to the first of equals."""


@dataclass(frozen=True)
class MeanOfHeads(Operator):
    """(x⁰ + x¹ + …) / heads, of x = [x⁰ | x¹ | …]."""

    heads: int = 1
    title = "mean of heads"
    told = "{heads}"


@dataclass(frozen=True)
class Columns(Operator):
    """Some columns of x, from the one of number ``first``."""

    first: int = 0
    told = "{first}"


@dataclass(frozen=True)
class Join(Operator):
    """[x₁ | x₂ | …], the columns of all inputs side by side."""


@dataclass(frozen=True)
class StopGradient(Operator):
    """x, which counts as given in the backward pass: its gradient goes no further."""

    title = "stop gradient"


@dataclass(frozen=True)
class Fill(Operator):
    """The same number everywhere, with the rows of x, of which no number is looked at."""

    value: float = 1.0
    told = "{value:.12g}"


@dataclass(frozen=True)
class Reciprocal(Operator):
    """1/x, entry by entry; 0 where x is 0."""


def _join_gradient(tape: Tape, number: int, gradient: int) -> None:
    for part, x in enumerate(tape.operators[number].inputs):
        if tape.wanted[x]:
            tape.contribute(x, tape.step(JOIN_BACKWARD, number, (gradient,), like=x, part=part))


def _stopped(tape: Tape, number: int, gradient: int) -> None:
    """Nothing before it is told of its gradient."""


def _add_gradient(tape: Tape, number: int, gradient: int) -> None:
    for x in tape.operators[number].inputs:
        tape.contribute(x, gradient)


def _scale_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    if tape.operators[number].parameters:
        centred = tape.unshifted[number]
        tape.of_parameters(CENTRED_SCALE_GRAD if centred else SCALE_GRAD, number, (x, gradient))
    if tape.wanted[x]:
        tape.contribute(x, tape.step(SCALE, number, (gradient,), like=x))


def _maximum_gradient(tape: Tape, number: int, gradient: int) -> None:
    inputs = tape.operators[number].inputs
    for part, x in enumerate(inputs):
        if tape.wanted[x]:
            reads = (gradient, number, *inputs)
            tape.contribute(x, tape.step(MAXIMUM_BACKWARD, number, reads, like=x, part=part))


def _activate_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.contribute(x, tape.step(ACTIVATE_BACKWARD, number, (x, gradient), like=x))


def _scale(scale: Scale, binding: Binding, step: Step) -> Run:
    """(factor + ε)·x; also its gradient."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    if not scale.epsilon:
        return lambda epoch: kernel.scale(x, scale.factor, out)
    epsilon = binding.parameters[scale.epsilon]
    return lambda epoch: kernel.scale(x, scale.factor, out, epsilon)


def _scale_grad(scale: Scale, binding: Binding, step: Step) -> Run:
    """The gradient of ε: the sum of x ⊙ g over entries that count on this rank."""
    kernel, x, grad = binding.kernel, binding.read(step), binding.read(step, 1)
    out, counts = binding.gradients[scale.epsilon], binding.block(step).counts_entries
    return lambda epoch: kernel.dot_to(x, grad, out) if counts else out.fill(0.0)


def _centred_scale_grad(scale: Scale, binding: Binding, step: Step) -> Run:
    """The gradient of ε where a constant added to a column of x has no effect: of x − pivot.

    The gradients of a column add up to 0 there, so that the sum of x ⊙ g is that of (x − pivot) ⊙ g
    for the same pivot on all ranks; and of columns of equal numbers nothing is left, as it has to.
    """
    kernel, block = binding.kernel, binding.block(step)
    x, grad = binding.read(step), binding.read(step, 1)
    moments, _, mine = sums_of_columns(binding, step)
    find_pivot, out = pivot(binding, step, x), binding.gradients[scale.epsilon]
    width, columns = scale.width, block.columns
    found, of_columns, ones = (kernel.empty(1, width) for _ in range(3))
    ones.fill(1)

    def run(epoch: int) -> None:
        find_pivot()
        kernel.copy(moments[0], found[0])
        about = found[0, columns], ones[0, columns]
        kernel.column_grad_sums(x, *about, grad, mine)
        kernel.copy(mine[1], of_columns[0, columns])
        kernel.dot_to(of_columns[:, columns], ones[:, columns], out)
        if not block.counts_entries:
            out.fill(0)

    return run


def _maximum(maximum: Maximum, binding: Binding, step: Step) -> Run:
    """Bind the entry-wise maximum of all inputs."""
    kernel, out = binding.kernel, binding.written(step)
    terms = [binding.read(step, i) for i in range(len(step.reads))]
    return lambda epoch: kernel.maximum(terms, out)


def _maximum_backward(maximum: Maximum, binding: Binding, step: Step) -> Run:
    """The gradient of one of the inputs."""
    kernel, grad, value = binding.kernel, binding.read(step), binding.read(step, 1)
    terms = [binding.read(step, i) for i in range(2, len(step.reads))]
    out, part = binding.written(step), step.part
    return lambda epoch: kernel.maximum_backward(grad, value, terms, part, out)


def _activate(activate: Activate, binding: Binding, step: Step) -> Run:
    """An activation whose derivative does not follow from its value."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    if not activate.parameter:
        return lambda epoch: kernel.function(activate.kind, x, out)
    slope = binding.parameters[activate.parameter]
    return lambda epoch: kernel.prelu(x, slope, out)


def _activate_backward(activate: Activate, binding: Binding, step: Step) -> Run:
    """Bind the gradient of :func:`_activate`, and that of a trained slope."""
    kernel, out = binding.kernel, binding.written(step)
    x, grad = binding.read(step), binding.read(step, 1)
    if not activate.parameter:
        return lambda epoch: kernel.function_backward(activate.kind, x, grad, out)
    slope, counts = binding.parameters[activate.parameter], binding.block(step).counts_entries
    of_slope = binding.gradients[activate.parameter]

    def run(epoch: int) -> None:
        kernel.prelu_backward(x, grad, slope, out, of_slope)
        if not counts:
            of_slope.fill(0.0)

    return run


def _columns(columns: Columns, binding: Binding, step: Step) -> Run:
    """These columns of what is read."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    some = slice(columns.first, columns.first + columns.width)
    return lambda epoch: kernel.copy(x[:, some], out)


def _columns_backward(columns: Columns, binding: Binding, step: Step) -> Run:
    """The gradient in these columns of a matrix of zeros."""
    kernel, grad, out = binding.kernel, binding.read(step), binding.written(step)
    some = slice(columns.first, columns.first + columns.width)

    def run(epoch: int) -> None:
        out.fill(0)
        kernel.copy(grad, out[:, some])

    return run


def _join(join: Join, binding: Binding, step: Step) -> Run:
    """Each input, copied to its columns."""
    kernel, out = binding.kernel, binding.written(step)
    parts = [(binding.array(x), out[:, some]) for x, some in _parts(binding, step.reads)]

    def run(epoch: int) -> None:
        for x, columns in parts:
            kernel.copy(x, columns)

    return run


def _join_backward(join: Join, binding: Binding, step: Step) -> Run:
    """The gradient's columns of one of the inputs."""
    kernel, grad, out = binding.kernel, binding.read(step), binding.written(step)
    some = _parts(binding, binding.program.operators[step.number].inputs)[step.part][1]
    return lambda epoch: kernel.copy(grad[:, some], out)


def _parts(binding: Binding, values: Sequence[int]) -> list[tuple[int, slice]]:
    """Where the columns of each of some values are, if they stand side by side."""
    stops = accumulate(binding.program.values[x].width for x in values)
    widths = (binding.program.values[x].width for x in values)
    parts = zip(values, stops, widths, strict=True)
    return [(x, slice(stop - width, stop)) for x, stop, width in parts]


def _copied(operator: Operator, binding: Binding, step: Step) -> Run:
    """x as it is."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    return (lambda epoch: None) if x is out else (lambda epoch: kernel.copy(x, out))


def _fill(fill: Fill, binding: Binding, step: Step) -> Run:
    """Nothing of what is read."""
    out = binding.written(step)
    return lambda epoch: out.fill(fill.value)


def _reciprocal(operator: Reciprocal, binding: Binding, step: Step) -> Run:
    """x/x², where x² is never 0."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    least = float(np.finfo(kernel.dtype).tiny)
    return lambda epoch: kernel.copy(x / (x * x).clip(least), out)


def _reciprocal_backward(operator: Reciprocal, binding: Binding, step: Step) -> Run:
    """−g·y², from the value y."""
    kernel, out = binding.kernel, binding.written(step)
    grad, y = binding.read(step), binding.read(step, 1)
    return lambda epoch: kernel.copy(grad * y * y * -1.0, out)


def _mean_of_heads(mean: MeanOfHeads, binding: Binding, step: Step) -> Run:
    """The mean of equally wide groups of columns."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    return lambda epoch: kernel.mean_of_heads(x, mean.heads, out)


def _mean_of_heads_backward(mean: MeanOfHeads, binding: Binding, step: Step) -> Run:
    """Bind the gradient of :func:`_mean_of_heads`."""
    kernel, grad, out = binding.kernel, binding.read(step), binding.written(step)
    return lambda epoch: kernel.mean_of_heads_backward(grad, mean.heads, out)


SCALE = Instruction("scale", _scale, passes=2, in_place=True, rowwise=True)
SCALE_GRAD = Instruction("scale_grad", _scale_grad, passes=2, rowwise=True)
CENTRED_SCALE_GRAD = Instruction(
    "centred_scale_grad", _centred_scale_grad, passes=2, summed=sum_of_columns
)
MAXIMUM = Instruction("maximum", _maximum, passes=3, rowwise=True)
MAXIMUM_BACKWARD = Instruction("maximum_backward", _maximum_backward, passes=4, rowwise=True)
ACTIVATE = Instruction("activate", _activate, passes=2, rowwise=True)
ACTIVATE_BACKWARD = Instruction("activate_backward", _activate_backward, passes=3, rowwise=True)
COLUMNS = Instruction("columns", _columns, passes=2, rowwise=True)
COLUMNS_BACKWARD = Instruction("columns_backward", _columns_backward, passes=2, rowwise=True)
JOIN = Instruction("join", _join, passes=2, rowwise=True)
JOIN_BACKWARD = Instruction("join_backward", _join_backward, passes=2, rowwise=True)
STOP_GRADIENT = Instruction("stop_gradient", _copied, passes=2, in_place=True, rowwise=True)
FILL = Instruction("fill", _fill, passes=1, rowwise=True)
RECIPROCAL = Instruction("reciprocal", _reciprocal, passes=2, rowwise=True)
RECIPROCAL_BACKWARD = Instruction(
    "reciprocal_backward", _reciprocal_backward, passes=3, rowwise=True
)
MEAN_OF_HEADS = Instruction("mean_of_heads", _mean_of_heads, passes=2, rowwise=True)
MEAN_OF_HEADS_BACKWARD = Instruction(
    "mean_of_heads_backward", _mean_of_heads_backward, passes=2, rowwise=True
)

RULES = {
    Activate: Rule(ACTIVATE, _activate_gradient),
    Add: Rule(ADD, _add_gradient, commutes=True, keeps_shifts=True),
    Columns: Rule(COLUMNS, one_step(COLUMNS_BACKWARD), keeps_shifts=True, regroups=True),
    Join: Rule(JOIN, _join_gradient, keeps_shifts=True, regroups=True),
    Maximum: Rule(MAXIMUM, _maximum_gradient),
    MeanOfHeads: Rule(
        MEAN_OF_HEADS, one_step(MEAN_OF_HEADS_BACKWARD), keeps_shifts=True, regroups=True
    ),
    Fill: Rule(FILL, _stopped, stops=True, ends_shifts=True),
    Reciprocal: Rule(RECIPROCAL, one_step(RECIPROCAL_BACKWARD, reads_value=True)),
    Scale: Rule(SCALE, _scale_gradient, commutes=True, keeps_shifts=True),
    StopGradient: Rule(STOP_GRADIENT, _stopped, stops=True, keeps_shifts=True),
}
