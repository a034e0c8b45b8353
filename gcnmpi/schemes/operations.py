"""The operations of a scheme that move data, by which its bytes and messages are forecast."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """An operation of :mod:`gcnmpi.schemes.interface`, which says its meaning."""

    AGGREGATE = "aggregate"
    AGGREGATE_T = "aggregate_t"
    COMBINE = "combine"
    COMBINE_T = "combine_t"
    WEIGHT_GRAD = "weight_grad"
    EXPAND = "expand"
    FOLD = "fold"
    EXPAND_INPUT = "expand_input"
    MOVE = "move"
    ROW_MAX = "row_max"
    ROW_SUM = "row_sum"
    ROW_PICK = "row_pick"
    ROW_ARGMAX = "row_argmax"


Product = tuple[Operation, int, *tuple[int, ...]]
"""An operation of a step: which, its layer, and the sizes of its volume, widths first."""

# Products with M and Mᵀ; of rows with a weight; what brings whole rows of neighbours, and takes
# their gradients back; all that exchanges rows; what is reduced over the ranks that share a row.
SUMS = (Operation.AGGREGATE, Operation.AGGREGATE_T)
DENSE = (Operation.COMBINE, Operation.COMBINE_T)
ROWS = (Operation.EXPAND, Operation.FOLD)
EXCHANGES = (*SUMS, *ROWS)
OF_ROWS = (Operation.ROW_MAX, Operation.ROW_SUM, Operation.ROW_PICK, Operation.ROW_ARGMAX)
