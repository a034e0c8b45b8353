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
    MULTIPLY = "multiply"
    MULTIPLY_T = "multiply_t"
    TO_COLUMNS = "to_columns"
    TO_ROWS = "to_rows"
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

# Products with M and Mᵀ, of own rows and of columns; of rows with a weight; what brings whole rows
# of neighbours, and takes their gradients back; all that exchanges rows; what turns rows into
# columns, and back; what is reduced over the ranks that share a row.
ON_COLUMNS = (Operation.MULTIPLY, Operation.MULTIPLY_T)
SUMS = (Operation.AGGREGATE, Operation.AGGREGATE_T, *ON_COLUMNS)
DENSE = (Operation.COMBINE, Operation.COMBINE_T)
ROWS = (Operation.EXPAND, Operation.FOLD)
EXCHANGES = (*SUMS, *ROWS)
TURNS = (Operation.TO_COLUMNS, Operation.TO_ROWS)
OF_ROWS = (Operation.ROW_MAX, Operation.ROW_SUM, Operation.ROW_PICK, Operation.ROW_ARGMAX)
