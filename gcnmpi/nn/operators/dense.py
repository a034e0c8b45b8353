"""Operators that weights are multiplied in: the features, and linear maps of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gcnmpi.kernels.epilogues import Product
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import FEATURES, Instruction, Program, Step
from gcnmpi.nn.tape import Rule, Tape
from gcnmpi.schemes.operations import Operation

BLOCK_NUMBERS = 1 << 20  # of a product that is made some rows at a time


@dataclass(frozen=True)
class Features(Operator):
    """H⁰, the features of the graph. No inputs; always the first operator."""


@dataclass(frozen=True)
class Linear(Operator):
    """A linear map, x·W."""

    weight: str = ""
    reads = ("weight",)


def _features_gradient(tape: Tape, number: int, gradient: int) -> None:
    tape.of_parameters(SHARE_INPUT, number, (gradient,))


def _linear_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.of_parameters(WEIGHT_GRAD, number, (x, gradient))
    if tape.wanted[x]:
        tape.contribute(x, tape.step(COMBINE_T, number, (gradient,), like=x))


def _features(features: Features, binding: Binding, step: Step) -> Run:
    """Trained features, from the shares of the ranks."""
    scheme, out = binding.scheme, binding.written(step)
    share = binding.parameters[FEATURES]
    return lambda epoch: scheme.expand_input(share, out)


def _share_input(features: Features, binding: Binding, step: Step) -> Run:
    """This rank's share of the gradient of the features."""
    scheme, grad = binding.scheme, binding.read(step)
    share = binding.gradients[FEATURES]
    return lambda epoch: scheme.share_input(grad, share)


def _combine(linear: Linear, binding: Binding, step: Step) -> Run:
    """Forward x·W, backward g·Wᵀ."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    transposed = step.instruction is COMBINE_T
    x, out, weight = binding.read(step), binding.written(step), binding.parameters[linear.weight]
    add, also = step.onto is not None, _also(binding, step)
    if binding.once and scheme.whole_rows:
        blocks = Product(x, weight, out, transposed, accumulate=add)
        return lambda epoch: _in_blocks(binding, k, replace(blocks, epilogue=epilogue(epoch)))

    def run(epoch: int) -> None:
        scheme.combine(k, Product(x, weight, out, transposed, epilogue(epoch), add, also))

    return run


def _in_blocks(binding: Binding, k: int, product: Product[Array]) -> None:
    """A product some rows at a time; its result may be its left factor.

    In an evaluation, where nothing that follows depends on the number of the row. So neither the
    product that is added nor the one that replaces its factor takes a matrix of its own.
    """
    x, out = product.a, product.out
    kernel, scheme, (rows, columns) = binding.kernel, binding.scheme, out.shape
    step = max(1, BLOCK_NUMBERS // max(1, columns))
    scratch = kernel.empty(min(step, rows), columns) if x is out else None
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        target = out[some] if scratch is None else scratch[: some.stop - start]
        scheme.combine(k, replace(product, a=x[some], out=target))
        if scratch is not None:
            kernel.copy(target, out[some])


def _also(binding: Binding, step: Step) -> tuple[Array, Array] | None:
    """The factors of the product that is added in the same pass."""
    if step.also is None:
        return None
    (weight,) = step.also.operator.parameters
    return binding.read(step.also), binding.parameters[weight]


def _weight_grad(linear: Linear, binding: Binding, step: Step) -> Run:
    """xᵀ·g, and the column sums of g for the gradient of a bias that goes along."""
    scheme, k = binding.scheme, step.k
    x, grad = binding.read(step), binding.read(step, 1)
    out = binding.gradients[linear.weight]
    sums = binding.gradients[step.sums] if step.sums else None
    return lambda epoch: scheme.weight_grad(k, x, grad, out, sums)


def _of_weight(program: Program, step: Step, rows: int) -> Sequence[tuple[int, ...]]:
    (weight,) = step.operator.parameters
    return [program.parameters[weight].shape]


GIVEN = Instruction("features", _features, Operation.EXPAND_INPUT)
SHARE_INPUT = Instruction("share_input", _share_input)
COMBINE = Instruction("combine", _combine, Operation.COMBINE, _of_weight, rowwise=True)
COMBINE_T = Instruction("combine_t", _combine, Operation.COMBINE_T, _of_weight, rowwise=True)
WEIGHT_GRAD = Instruction(
    "weight_grad", _weight_grad, Operation.WEIGHT_GRAD, _of_weight, rowwise=True
)

RULES = {
    Features: Rule(GIVEN, _features_gradient),
    Linear: Rule(COMBINE, _linear_gradient, keeps_shifts=True),
}
