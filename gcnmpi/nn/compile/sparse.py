"""Features as a sparse matrix: which values are one, and the steps that read them.

A sparse matrix can be multiplied with a weight, and dropout can decide on its entries. Where a
network wants anything else of its features, they are dense.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.nn.operators import Features, Linear, Operator
from gcnmpi.nn.program import Finish, Step

STEPS = {
    "combine": "sparse_combine",
    "weight_grad": "sparse_weight_grad",
    "finish": "sparse_drop",
}


def sparse_values(operators: Sequence[Operator]) -> tuple[int, ...]:
    """Features and dropout of them, if nothing else reads these but linear maps; else nothing."""
    found = [0]
    for number, operator in enumerate(operators):
        if isinstance(operator, Features | Linear) or not {0}.intersection(operator.inputs):
            continue
        if not isinstance(operator, Finish) or operator.bias or operator.kind != "none":
            return ()
        found.append(number)
    for operator in operators:
        if set(found[1:]).intersection(operator.inputs) and not isinstance(operator, Linear):
            return ()
    return tuple(found)


def with_sparse_steps(steps: Sequence[Step], sparse: Collection[int]) -> list[Step]:
    """Steps whose first matrix is a sparse one, under the name of their instruction for that."""
    return [
        replace(step, name=STEPS[step.name]) if step.reads and step.reads[0] in sparse else step
        for step in steps
    ]
