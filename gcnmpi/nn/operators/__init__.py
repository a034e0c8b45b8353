"""The operators that a network is described with, a family a module.

A network is a list of operators in the order of evaluation. Each of them gives one dense matrix
of ``width`` columns, whose rows are those of an index space: vertices unless its docstring says
otherwise. Its ``inputs`` are the numbers of earlier operators in the list.
``layer`` counts the aggregations from the features to here, at least 1 but for what lies before
the first: schemes whose layout rotates with the layers need it, and ``gcnmpi infer --layer``.

The docstring of an operator says what it means, for whole matrices: x, x₁, x₂ are its inputs,
M is the aggregation matrix (n, n), N(i) the columns of the entries of row i of M (its pattern).
Beside it are its gradient and how the steps of both run and what they cost; the table of its family
puts these together.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators import (
    arcs,
    degrees,
    dense,
    elementwise,
    inserted,
    neighbours,
    norms,
    relations,
    spaces,
    triples,
)
from gcnmpi.nn.tape import Rule

_OF_ARCS = spaces, arcs, relations, triples
_FAMILIES = dense, elementwise, inserted, neighbours, norms, *_OF_ARCS, degrees
RULES: Mapping[type[Operator], Rule] = ChainMap(*(family.RULES for family in _FAMILIES))
"""Of every operator but those that are a :class:`Finish`."""


def rule_of(operator: Operator) -> Rule:
    """The rule by which the compiler treats an operator."""
    return RULES[type(operator)]
