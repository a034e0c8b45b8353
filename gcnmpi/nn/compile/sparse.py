"""Features as a sparse matrix: which values are one, and the steps that read them.

A sparse matrix can be multiplied with a weight, and dropout can decide on its entries. Where a
network wants anything else of its features, they are dense.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.operators.sparse import OF_SPARSE
from gcnmpi.nn.program import INPUT, Step


def sparse_values(operators: Sequence[Operator]) -> tuple[int, ...]:
    """Features and dropout of them, if nothing else reads these but linear maps; else nothing."""
    found = [INPUT]
    for number, operator in enumerate(operators):
        if isinstance(operator, Linear) or INPUT not in operator.inputs:
            continue
        if not isinstance(operator, Finish) or not operator.only_drops:
            return ()
        found.append(number)
    for operator in operators:
        if set(found[1:]).intersection(operator.inputs) and not isinstance(operator, Linear):
            return ()
    return tuple(found)


def with_sparse_steps(steps: Sequence[Step], sparse: Collection[int]) -> list[Step]:
    """Steps whose first matrix is a sparse one, by their instruction for that."""
    return [
        replace(step, instruction=OF_SPARSE[step.instruction])
        if step.reads and step.reads[0] in sparse
        else step
        for step in steps
    ]
