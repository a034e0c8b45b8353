"""Tensors of other libraries as arrays, or as matrices of SciPy where they are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError

STRIDED = "torch.strided"


COMPRESSED = {"torch.sparse_csr": "row", "torch.sparse_csc": "col"}


def host_array(value: Any) -> Any:
    """An array from one, or from a tensor on any device; of bfloat16 float32.

    Of a sparse tensor, or a ``SparseTensor`` of torch_sparse, a matrix. A UserError if that has
    more than two dimensions, or blocks.
    """
    if hasattr(value, "sparse_sizes") and hasattr(value, "coo"):
        row, column, numbers = value.coo()
        shape = tuple(int(size) for size in value.sparse_sizes())
        given = None if numbers is None else host_array(numbers)
        return matrix_of("torch.sparse_coo", (host_array(row), host_array(column)), given, shape)
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    layout = str(value.layout) if hasattr(value, "layout") else STRIDED
    if layout == STRIDED:
        return np.asarray(
            value.float() if "bfloat16" in str(getattr(value, "dtype", "")) else value
        )
    shape = tuple(value.shape)
    if layout == "torch.sparse_coo":
        ends, numbers = tuple(host_array(value._indices())), value._values()
    elif layout == "torch.sparse_csr":
        ends, numbers = (value.crow_indices(), value.col_indices()), value.values()
    elif layout == "torch.sparse_csc":
        ends, numbers = (value.ccol_indices(), value.row_indices()), value.values()
    else:
        raise UserError(f"a tensor of the layout {layout} is not read", "tensor.to_sparse()")
    return matrix_of(layout, tuple(map(host_array, ends)), host_array(numbers), shape)


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
    if layout in COMPRESSED:
        major = shape[0] if COMPRESSED[layout] == "row" else shape[1]
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
