"""Which values may have a constant added to each of their columns without any effect on the loss.

A batch norm takes the mean of a column off it, so in front of it a bias has a gradient of exactly
0. Computed, that would be a rounding error, of which Adam with weight decay makes steps of full
length, other ones for each number of ranks. So the compiler decides it, and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.operators import rule_of


def without_shifts(
    operators: Sequence[Operator], last: int, also: tuple[type[Operator], ...] = ()
) -> list[bool]:
    """For each value whether the loss stays what it is when a constant is added to a column of it.

    The last operator gives the logits. The aggregations ``also`` make of a column of equal numbers
    another one: a mean of neighbours where every vertex has one, a maximum.
    """
    found = [number != last for number in range(len(operators))]
    for number, operator in reversed([*enumerate(operators)]):
        rule = rule_of(operator)
        if rule.ends_shifts:
            continue
        only_bias = isinstance(operator, Finish) and not operator.has_gradient
        kept = rule.keeps_shifts or only_bias or isinstance(operator, also)
        for i in operator.inputs:
            found[i] &= kept and found[number]
    return found
