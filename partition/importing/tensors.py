"""Tensors of other libraries as arrays, or as matrices of SciPy where they are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError

# Methods of a sparse tensor that give its ends and its values, by its layout.
PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
}


def host_array(value: Any) -> Any:
    """An array from one, or from a tensor on any device; of bfloat16 float32.

    Of a sparse tensor, or a ``SparseTensor`` of torch_sparse, a matrix. A UserError if that has
    more than two dimensions, or blocks.
    """
    if hasattr(value, "sparse_sizes") and hasattr(value, "coo"):
        row, column, numbers = value.coo()
        numbers = None if numbers is None else host_array(numbers)
        shape = tuple(int(size) for size in value.sparse_sizes())
        return matrix_of("torch.sparse_coo", (host_array(row), host_array(column)), numbers, shape)
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    layout = str(getattr(value, "layout", "torch.strided"))
    if layout == "torch.strided":
        half = "bfloat16" in str(getattr(value, "dtype", ""))
        return np.asarray(value.float() if half else value)
    if layout not in PARTS:
        raise UserError(f"a tensor of the layout {layout} is not read", "tensor.to_sparse()")
    *ends, numbers = (host_array(getattr(value, part)()) for part in PARTS[layout])
    return matrix_of(layout, tuple(ends if len(ends) > 1 else ends[0]), numbers, tuple(value.shape))


def matrix_of(
    layout: str,
    ends: tuple[np.ndarray, ...],
    values: np.ndarray | None,
    shape: tuple[int, ...],
) -> sp.coo_array:
    """The matrix of a layout of torch, with entries in its order; without values, ones.

    A UserError if arrays do not fit each other.
    """
    wrong = UserError("a sparse tensor is no matrix whose entries lie inside of it")
    if len(shape) != 2 or len(ends) != 2 or any(end.ndim != 1 for end in ends):
        raise wrong
    first, second = (np.asarray(end) for end in ends)
    if not all(end.dtype.kind in "iu" for end in (first, second)):
        raise wrong
    if layout != "torch.sparse_coo":
        major = shape[layout == "torch.sparse_csc"]
        counts = np.diff(first)
        bounded = len(first) == major + 1 and first[0] == 0 and first[-1] == len(second)
        if not bounded or (counts < 0).any():
            raise wrong
        first = np.repeat(np.arange(major), counts)
    row, column = (second, first) if layout == "torch.sparse_csc" else (first, second)
    values = np.ones(len(second)) if values is None else values
    if values.shape != (len(second),) or len(row) != len(column):
        raise wrong
    for end, size in ((row, shape[0]), (column, shape[1])):
        if len(end) and (end.min() < 0 or end.max() >= size):
            raise wrong
    return sp.coo_array((values, (row.astype(np.int64), column.astype(np.int64))), shape=shape)
