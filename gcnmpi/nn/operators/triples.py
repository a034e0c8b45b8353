"""Operators of scores of triples: of a pair of vertices and its relation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.kernels.interface.kinds import KindProduct, Kinds, kinds_of
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.relations import numbers_of
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape


@dataclass(frozen=True)
class RowBy(Operator):
    """y[e] = the row of ``table`` (kinds, width) of the kind x[e] (rows, 1), an integer."""

    kinds: int = 1
    table: str = ""
    reads = ("table",)
    title = "row by kind"
    told = "kinds {kinds}"


@dataclass(frozen=True)
class ComplexProduct(Operator):
    """y = x₁·x₂, entry by entry, of complex rows: their columns are [real | imaginary]."""

    title = "complex product"


def _row_by_gradient(tape: Tape, number: int, gradient: int) -> None:
    (kinds,) = tape.operators[number].inputs
    tape.of_parameters(ROW_BY_GRAD, number, (kinds, gradient))


def _complex_gradient(tape: Tape, number: int, gradient: int) -> None:
    """The gradient times the conjugate of the other row."""
    x, y = tape.operators[number].inputs
    for one, other in ((x, y), (y, x)):
        if tape.wanted[one]:
            tape.contribute(one, tape.step(COMPLEX_BACKWARD, number, (gradient, other), like=one))


def _row_by(rows: RowBy, binding: Binding, step: Step) -> Run:
    """The row of each kind, copied."""
    kernel, table, out = binding.kernel, binding.parameters[rows.table], binding.written(step)

    def made() -> Any:
        return kernel.resident(numbers_of(binding, step), np.int64)

    numbers = binding.kept(replace(step, number=step.reads[0]), "numbers", made)
    return lambda epoch: kernel.take_rows(table, numbers, out)


def _row_by_grad(rows: RowBy, binding: Binding, step: Step) -> Run:
    """The sum of the gradients of the rows of each kind, which count on one copy of these."""
    kernel, counts = binding.kernel, binding.block(step).counts_entries
    grad, of_table = binding.read(step, 1), binding.gradients[rows.table]

    def made() -> Kinds:
        return kinds_of(numbers_of(binding, step), rows.kinds, kernel.resident)

    kinds = binding.kept(replace(step, number=step.reads[0]), "kinds", made)
    ones = binding.scratch("ones of kinds", len(grad), 1)
    product = KindProduct(kinds, ones, of_table, grad)

    def run(epoch: int) -> None:
        ones.fill(1)
        kernel.kinds_gradient(product)
        if not counts:
            of_table.fill(0)

    return run


def _complex_product(operator: Operator, binding: Binding, step: Step) -> Run:
    """Of both rows; or, of a gradient, with the conjugate of the second one."""
    half = operator.width // 2
    sign = -1.0 if step.instruction is COMPLEX_BACKWARD else 1.0
    arrays = binding.read(step), binding.read(step, 1), binding.written(step)
    (a, b), (c, d), (real, imaginary) = ((x[:, :half], x[:, half:]) for x in arrays)
    copy = binding.kernel.copy

    def run(epoch: int) -> None:
        copy(b * d, real)
        copy(a * d, imaginary)
        for part, factor, own in ((real, -sign, a), (imaginary, sign, b)):
            part *= factor
            part += own * c

    return run


def _kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """The kind of each row and the rows of each kind, numbers of 8 bytes."""
    return 4 * entries


ROW_BY = Instruction("row_by", _row_by, passes=2, kept=_kept)
ROW_BY_GRAD = Instruction("row_by_grad", _row_by_grad, passes=1)
COMPLEX = Instruction("complex", _complex_product, passes=4)
COMPLEX_BACKWARD = Instruction("complex_backward", _complex_product, passes=4)

RULES = {
    ComplexProduct: Rule(COMPLEX, _complex_gradient),
    RowBy: Rule(ROW_BY, _row_by_gradient),
}
