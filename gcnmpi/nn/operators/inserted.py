"""Operators that the compiler makes: what may follow a product, by itself; moves of layouts.

And turns between own rows of all columns and some columns of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.program import Instruction, Program, Step
from gcnmpi.nn.tape import Rule, Tape, one_step
from gcnmpi.schemes.operations import Operation


@dataclass(frozen=True)
class Move(Operator):
    """x, laid out as another place has it."""


@dataclass(frozen=True)
class ToColumns(Operator):
    """x of own rows as some columns of all rows."""

    title = "to columns"


@dataclass(frozen=True)
class ToRows(Operator):
    """x of some columns as own rows of all columns."""

    title = "to rows"


def _finish_gradient(tape: Tape, number: int, gradient: int) -> None:
    finish = tape.operators[number]
    assert isinstance(finish, Finish)
    if finish.has_gradient:
        # Dropout alone is decided again by its hash; else the value says what it kept.
        reads = (gradient, number) if finish.kind != "none" else (gradient,)
        gradient = tape.step(FINISH_BACKWARD, number, reads, like=number)
    if not tape.no_effect(number) and finish.bias:
        tape.of_parameters(COLUMN_SUM, number, (gradient,))
    tape.contribute(finish.inputs[0], gradient)


def _finish(finish: Finish, binding: Binding, step: Step) -> Run:
    """Bias, activation and dropout where no product takes them along."""
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    epilogue = binding.activation(finish, binding.place(step))

    def run(epoch: int) -> None:
        follows = epilogue(epoch)
        if finish.p and finish.only_drops:
            kernel.dropout(x, follows.rows, follows.columns, finish.p, out)  # type: ignore
            return
        _copy(kernel, x, out)
        kernel.follow(out, follows)

    return run


def _finish_backward(finish: Finish, binding: Binding, step: Step) -> Run:
    """Bind the gradient of bias, activation and dropout."""
    kernel, grad, out = binding.kernel, binding.read(step), binding.written(step)
    output = binding.read(step, 1) if len(step.reads) > 1 else None
    epilogue = binding.activation_backward(finish, output, binding.place(step))

    def run(epoch: int) -> None:
        _copy(kernel, grad, out)
        kernel.follow(out, epilogue(epoch))

    return run


def _column_sum(finish: Finish, binding: Binding, step: Step) -> Run:
    """1ᵀ·g, the gradient of a bias."""
    scheme, k, grad = binding.scheme, step.k, binding.read(step)
    out = binding.gradients[finish.bias]
    return lambda epoch: scheme.column_sum(k, grad, out)


def _move(move: Operator, binding: Binding, step: Step) -> Run:
    """x in another layout, or its gradient."""
    scheme, width = binding.scheme, move.width
    x, out = binding.matrix(step.reads[0]), binding.result(step)
    return lambda epoch: scheme.move(x, out, width)


def _places(program: Program, step: Step, rows: int) -> Sequence[tuple[int, ...]]:
    """The width, and from where to where."""
    assert step.writes is not None
    before, after = (program.values[i].place for i in (step.reads[0], step.writes))
    places = before.layer, int(before.aggregated), after.layer, int(after.aggregated)
    return [(step.operator.width, *places)]


def _copy(kernel: Kernel, x: Array, out: Array) -> None:
    if x is not out:
        kernel.copy(x, out)


FINISH = Instruction("finish", _finish, passes=3, in_place=True, rowwise=True)
FINISH_BACKWARD = Instruction(
    "finish_backward", _finish_backward, passes=3, in_place=True, rowwise=True
)
COLUMN_SUM = Instruction("column_sum", _column_sum, passes=1, rowwise=True)
MOVE = Instruction("move", _move, Operation.MOVE, _places, passes=2)
TO_COLUMNS = Instruction("to_columns", _move, Operation.TO_COLUMNS, passes=2)
TO_ROWS = Instruction("to_rows", _move, Operation.TO_ROWS, passes=2)

RULES = {
    Finish: Rule(FINISH, _finish_gradient),
    Move: Rule(MOVE, one_step(MOVE), keeps_shifts=True),
    ToColumns: Rule(
        TO_COLUMNS,
        one_step(TO_ROWS),
        keeps_shifts=True,
        takes=((Space.OWN,),),
        gives=Space.TURNED,
    ),
    ToRows: Rule(
        TO_ROWS,
        one_step(TO_COLUMNS),
        keeps_shifts=True,
        takes=((Space.TURNED,),),
        gives=Space.OWN,
    ),
}
