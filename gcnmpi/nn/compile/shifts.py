"""Which values may have a constant added to each of their columns without any effect on the loss.

A batch norm takes the mean of a column off it, so in front of it a bias has a gradient of exactly
0. Computed, that would be a rounding error, of which Adam with weight decay makes steps of full
length, other ones for each number of ranks. So the compiler decides it, and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.operators import Add, BatchNorm, Linear, MeanOfHeads, Operator, Scale
from gcnmpi.nn.program import Finish, Move

# A constant in a column of what they read is one in the columns of what they give.
_KEEP = (Add, Linear, MeanOfHeads, Move, Scale)


def without_shifts(
    operators: Sequence[Operator], last: int, also: tuple[type[Operator], ...] = ()
) -> list[bool]:
    """For each value whether the loss stays what it is when a constant is added to a column of it.

    Parameters
    ----------
    last : int
        The logits.
    also : tuple of types
        Aggregations that make of a column of equal numbers another one: a mean of neighbours where
        every vertex has one, a maximum.
    """
    found = [number != last for number in range(len(operators))]
    for number, operator in reversed([*enumerate(operators)]):
        if isinstance(operator, BatchNorm):
            continue
        kept = isinstance(operator, (*_KEEP, *also)) or _is_bias(operator)
        for i in operator.inputs:
            found[i] &= kept and found[number]
    return found


def has_no_effect(operator: Operator, without: bool) -> bool:
    """Whether the bias of an operator has none, if a constant in its value has none (``without``).

    Of a bias, of a norm, or of neither.
    """
    biased = bool(getattr(operator, "bias", ""))
    return without and biased and (not isinstance(operator, Finish) or _is_bias(operator))


def _is_bias(operator: Operator) -> bool:
    return isinstance(operator, Finish) and operator.kind == "none" and not operator.p
