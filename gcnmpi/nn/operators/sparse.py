"""Steps of the first layer where features are a sparse matrix; rows are whole."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Finish
from gcnmpi.nn.operators.dense import COMBINE, WEIGHT_GRAD, Linear
from gcnmpi.nn.operators.inserted import FINISH
from gcnmpi.nn.program import Instruction, Step


def _combine(linear: Linear, binding: Binding, step: Step) -> Run:
    """Bind x·W, of sparse features."""
    x, out = binding.sparse[step.reads[0]], binding.written(step)
    add, epilogue = step.onto is not None, binding.epilogue(step)
    weight = binding.parameters[linear.weight]
    return lambda epoch: x.combine(weight, out, add, epilogue(epoch))


def _weight_grad(linear: Linear, binding: Binding, step: Step) -> Run:
    """xᵀ·g, and the column sums of g for the gradient of a bias that goes along."""
    x, grad = binding.sparse[step.reads[0]], binding.read(step, 1)
    out = binding.gradients[linear.weight]
    sums = binding.gradients[step.sums] if step.sums else None
    return lambda epoch: x.weight_grad(grad, out, sums)


def _drop(finish: Finish, binding: Binding, step: Step) -> Run:
    """Dropout of the stored entries."""
    x, out = (binding.sparse[value] for value in (step.reads[0], step.number))
    keys = finish.stream, binding.kernel.resident(binding.block(step).rows, np.uint64)
    return lambda epoch: out.drop_from(x, binding.seed, epoch, keys, finish.p)


SPARSE_COMBINE = Instruction("sparse_combine", _combine)
SPARSE_WEIGHT_GRAD = Instruction("sparse_weight_grad", _weight_grad)
SPARSE_DROP = Instruction("sparse_drop", _drop)

OF_SPARSE: Mapping[Instruction, Instruction] = {
    COMBINE: SPARSE_COMBINE,
    WEIGHT_GRAD: SPARSE_WEIGHT_GRAD,
    FINISH: SPARSE_DROP,
}
"""How a step runs whose first matrix is a sparse one."""
