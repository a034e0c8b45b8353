"""CSR matrices in ``.npz`` files, under the names that different programs give their arrays."""

from __future__ import annotations

import numpy as np

from partition.errors import UserError
from partition.importing.readers.files import check_csr, quoted


def csr_arrays(
    arrays: dict[str, np.ndarray], prefix: str, where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """The checked ``indptr``, ``indices``, ``data`` and shape of the matrix of that prefix."""
    keys = [f"{prefix}{part}" for part in ("indptr", "indices", "data", "shape")]
    for key in keys:
        if key not in arrays:
            raise UserError(f"{where} has no array {key}")
    indptr, indices, data, shape = (arrays[key] for key in keys)
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise UserError(f"{where}: {keys[-1]} is not a pair of integers")
    pair = (int(shape[0]), int(shape[1]))
    check_csr(indptr, indices, data, pair, f"{where}: {prefix.rstrip('_.')}" if prefix else where)
    return indptr, indices, data, pair


def saved_csr(
    arrays: dict[str, np.ndarray], where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
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
