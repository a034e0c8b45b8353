"""Steps of the gradient: each operator's rule, in reverse."""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.program import Operator, Step, Value
from gcnmpi.nn.tape import Tape


def differentiate(
    operators: Sequence[Operator],
    values: Sequence[Value],
    wanted: Sequence[bool],
    unshifted: Sequence[bool],
    logits: int,
) -> tuple[list[Step], list[Value], int]:
    """Steps of the backward pass, all values, and the number of the gradient of the logits.

    The parameters are those of a :class:`~gcnmpi.nn.tape.Tape`.
    """
    tape = Tape(operators, list(values), wanted, unshifted)
    first = tape.gradients[logits] = tape.like(logits)
    for number in reversed(range(len(operators))):
        if number in tape.gradients and wanted[number]:
            rule_of(operators[number]).gradient(tape, number, tape.gradients[number])
    return tape.steps, tape.values, first
