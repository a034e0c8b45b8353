"""Operators of relations' vectors: rows of a table, and products with rows of vertices.

Scores of triples are made of these, and messages that are composed with relations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.interface.kinds import KindProduct, Kinds, kinds_of
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.relations import numbers_of
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape


@dataclass(frozen=True)
class RowBy(Operator):
    """y[e] = the row of a table (kinds, width) of the kind x[e] (rows, 1), an integer.

    The table is ``table``, or its product with the matrices of ``maps``, in their order.
    """

    kinds: int = 1
    table: str = ""
    maps: tuple[str, ...] = ()
    title = "row by kind"
    told = "kinds {kinds}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The table and all maps."""
        return (self.table, *self.maps)


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
    kernel, out = binding.kernel, binding.written(step)
    tables, make = _tables(rows, binding)

    def made() -> Any:
        return kernel.resident(numbers_of(binding, step), np.int64)

    numbers = binding.kept(replace(step, number=step.reads[0]), "numbers", made)

    def run(epoch: int) -> None:
        make()
        kernel.take_rows(tables[-1], numbers, out)

    return run


def _row_by_grad(rows: RowBy, binding: Binding, step: Step) -> Run:
    """The sum of the gradients of the rows of each kind, which count on one copy of these.

    That of a product of matrices A·B gives A's, G·Bᵀ, and B's, Aᵀ·G: from the last map on.
    """
    kernel, counts = binding.kernel, binding.block(step).counts_entries
    grad, (tables, make) = binding.read(step, 1), _tables(rows, binding)
    maps = [binding.parameters[name] for name in rows.maps]
    of_table, *of_maps = (binding.gradients[name] for name in rows.parameters)
    of_products = [of_table]
    of_products += [
        binding.scratch(f"gradient of table {at}", *table.shape)
        for at, table in enumerate(tables[1:])
    ]

    def made() -> Kinds:
        return kinds_of(numbers_of(binding, step), rows.kinds, kernel.resident)

    kinds = binding.kept(replace(step, number=step.reads[0]), "kinds", made)
    ones = binding.scratch("ones of kinds", len(grad), 1)
    product = KindProduct(kinds, ones, of_products[-1], grad)

    def run(epoch: int) -> None:
        make()
        ones.fill(1)
        kernel.kinds_gradient(product)
        if not counts:
            of_products[-1].fill(0)
        for at in reversed(range(len(maps))):
            kernel.gemm(tables[at], of_products[at + 1], of_maps[at], ta=True)
            kernel.gemm(of_products[at + 1], maps[at], of_products[at], tb=True)

    return run


def _tables(rows: RowBy, binding: Binding) -> tuple[list[Array], Callable[[], None]]:
    """The table before all maps, after the first one and so on, and a call that makes them."""
    tables = [binding.parameters[rows.table]]
    maps = [binding.parameters[name] for name in rows.maps]
    for at, matrix in enumerate(maps):
        tables.append(binding.scratch(f"table {at}", rows.kinds, matrix.shape[1]))
    steps = list(zip(tables, maps, tables[1:], strict=False))

    def make() -> None:
        for before, matrix, after in steps:
            binding.kernel.gemm(before, matrix, after)

    return tables, make


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
