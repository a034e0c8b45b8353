"""The rows that the oracle's operators have: vertices, arcs, or groups of arcs."""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.arcs import ArcInput, EndDots, WeighedSum
from gcnmpi.nn.operators.relations import MeanOf
from gcnmpi.nn.operators.spaces import Pick, Reduce, Source, Spread, Target
from gcnmpi.proof.passes import ArcRows
from partition.graph.graph import ARCS, VERTICES

GROUPS, OF_TYPE = "groups", "of type"


def rows_of(operator: Operator, inputs: Sequence[str]) -> str:
    """The rows of a value, by those of its inputs: vertices, arcs or groups."""
    if isinstance(operator, ArcInput):
        if operator.given.startswith("type"):
            return VERTICES
        return GROUPS if operator.given in ("group", "part") else ARCS
    if isinstance(operator, Source | EndDots):
        return ARCS
    if isinstance(operator, Pick | Spread):
        return OF_TYPE if isinstance(operator, Pick) else VERTICES
    if isinstance(operator, Target | Reduce | WeighedSum | MeanOf):
        return _ROWS[operator.to]
    return next((one for one in inputs if one != VERTICES), VERTICES)


def arcs_of(operator: Operator, arcs: ArcRows, rows: Sequence[str]) -> ArcRows:
    """The arcs as an operator sees them, whose inputs and value have ``rows``."""
    if isinstance(operator, ArcInput) or GROUPS not in (
        *rows,
        _ROWS.get(getattr(operator, "within", "")),
    ):
        return arcs
    goes_over_arcs = ARCS in rows or isinstance(operator, WeighedSum | EndDots)
    return arcs.grouped if goes_over_arcs else arcs.of_groups


_ROWS = {"own": VERTICES, "entries": ARCS, "groups": GROUPS, "of_type": OF_TYPE}
