"""CSR matrices, and the names that different programs give their arrays in ``.npz`` files."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError
from partition.importing.readers.files import finite_features, narrowed, quoted
from partition.resident import check_memory

# Sparse features may have so many columns without an entry for each.
SPARSE_WIDTH = 1 << 16
# indptr, indices, data, shape.
Csr = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]


def check_csr(matrix: Csr, where: str) -> Csr:
    """The matrix; a UserError, which names ``where``, unless its arrays fit each other."""
    indptr, indices, data, (rows, columns) = matrix
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise UserError(f"{where}: {name} is not a vector of integers")
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise UserError(f"{where}: data is not a vector of numbers")
    if rows < 0 or columns < 0 or len(indptr) != rows + 1:
        shape = rows, columns
        raise UserError(f"{where}: {len(indptr)} row pointers do not fit the shape {shape}")
    if len(indices) != len(data):
        raise UserError(f"{where}: {len(indices)} indices but {len(data)} values")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise UserError(f"{where}: row pointers do not rise from 0 to {len(indices)}")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise UserError(f"{where}: a column index is outside 0..{columns - 1}")
    return matrix


def csr_arrays(arrays: dict[str, np.ndarray], prefix: str, where: str) -> Csr:
    """The checked matrix of that prefix."""
    keys = [f"{prefix}{part}" for part in ("indptr", "indices", "data", "shape")]
    for key in keys:
        if key not in arrays:
            raise UserError(f"{where} has no array {key}")
    indptr, indices, data, shape = (arrays[key] for key in keys)
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise UserError(f"{where}: {keys[-1]} is not a pair of integers")
    matrix = indptr, indices, data, (int(shape[0]), int(shape[1]))
    return check_csr(matrix, f"{where}: {prefix.rstrip('_.')}" if prefix else where)


def saved_csr(arrays: dict[str, np.ndarray], where: str) -> Csr:
    """The same of a matrix that ``scipy.sparse.save_npz`` wrote; of its forms, only csr."""
    form = arrays.get("format", np.array(b"csr"))
    name = form.item() if form.size == 1 else None
    name = name.decode("latin1") if isinstance(name, bytes) else name
    if name != "csr":
        raise UserError(
            f"{where} holds a sparse matrix in the form {quoted(str(name))}, only csr is read",
            "scipy.sparse.save_npz(FILE, matrix.tocsr())",
        )
    return csr_arrays(arrays, "", where)


def dense_features(matrix: Csr, where: str) -> np.ndarray:
    """A checked matrix as (n, d) float32; a UserError if that is too large or not finite."""
    indptr, indices, data, shape = matrix
    if shape[1] > max(SPARSE_WIDTH, len(data)):
        raise UserError(f"{where}: {shape[1]} columns for only {len(data)} entries")
    check_memory(4 * shape[0] * shape[1], f"{where}: {shape[0]} x {shape[1]} features")
    data = narrowed(data, np.float32, where)
    index = np.int32 if max(len(data), *shape) < 2**31 else np.int64
    dense = sp.csr_array((data, indices.astype(index), indptr.astype(index)), shape=shape)
    return finite_features(dense.toarray(), where)
