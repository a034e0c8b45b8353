"""Steps of the first layer where features are a sparse matrix; rows are whole."""

from __future__ import annotations

from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operators import Linear
from gcnmpi.nn.program import Finish, Step


def combine(binding: Binding, step: Step) -> Run:
    """x·W."""
    x, out, add = binding.sparse[step.reads[0]], binding.written(step), step.onto >= 0
    weight, epilogue = binding.parameters[_weight(step)], binding.epilogue(step)
    return lambda epoch: x.combine(weight, out, add, epilogue(epoch))


def weight_grad(binding: Binding, step: Step) -> Run:
    """xᵀ·g, and the column sums of g for the gradient of a bias that goes along."""
    x, grad = binding.sparse[step.reads[0]], binding.read(step, 1)
    out = binding.gradients[_weight(step)]
    sums = binding.gradients[step.sums] if step.sums else None
    return lambda epoch: x.weight_grad(grad, out, sums)


def drop(binding: Binding, step: Step) -> Run:
    """Dropout of the stored entries."""
    operator = step.operator
    assert isinstance(operator, Finish)
    x, out = binding.sparse[step.reads[0]], binding.sparse[step.writes]
    keys = operator.stream, binding.block(step).rows
    return lambda epoch: out.drop_from(x, binding.seed, epoch, keys, operator.p)


def _weight(step: Step) -> str:
    assert isinstance(step.operator, Linear)
    return step.operator.weight
