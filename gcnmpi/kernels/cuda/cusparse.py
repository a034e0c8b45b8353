"""Sparse matrices on the device, and their products by cuSPARSE's SpMM.

Dense operands are row-major where they are. The algorithm is the one for CSR that cuSPARSE promises
to be deterministic. Its workspace, and what it finds out about the matrix, are kept for each width.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable

import cupy as cp
import numpy as np
import scipy.sparse as sp
from cupy import ndarray as Array
from cupy_backends.cuda.libs import cusparse

from gcnmpi.kernels.cuda.copies import upload
from partition.errors import UserError

MOST_ENTRIES = 2**31 - 128  # by the documentation of SpMM
_KEEP = cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE
DETERMINISTIC = 12  # CUSPARSE_SPMM_CSR_ALG3, which CuPy does not name
_LIBRARY = "libcusparse.so.12"  # of CUDA 12, and of CUDA 13


class CusparseMatrix:
    """A CSR matrix on the device, in float32 or float64; ``algorithm`` is one of cuSPARSE for CSR.

    A UserError says that it has too many entries.
    """

    def __init__(
        self, matrix: sp.csr_array, dtype: np.dtype, algorithm: int = DETERMINISTIC
    ) -> None:
        self.shape, self.nnz, self.dtype = matrix.shape, int(matrix.nnz), dtype
        self.algorithm = algorithm
        if self.nnz > MOST_ENTRIES:
            raise UserError(
                f"a rank has {self.nnz} entries of M, and cuSPARSE takes {MOST_ENTRIES} at most",
                "gpu.spmm=own takes more",
            )
        small = max(*matrix.shape, self.nnz) <= np.iinfo(np.int32).max
        index = np.int32 if small else np.int64
        self.indptr, self.indices = (
            upload(array, index) for array in (matrix.indptr, matrix.indices)
        )
        self.values = upload(matrix.data, dtype)
        self._scalars = {value: np.array(value, dtype) for value in (0, 1)}
        self._plans: dict[int, _Plan] = {}

    def multiply(self, x: Array, out: Array, accumulate: bool) -> None:
        """out = self · x, or out += self · x; rows are contiguous, nothing is empty."""
        width = x.shape[1]
        if width not in self._plans:
            self._plans[width] = _Plan(self)
        dense_x, dense_out = _describe_dense(x), _describe_dense(out)
        try:
            one, beta = self._scalars[1].ctypes.data, self._scalars[int(accumulate)].ctypes.data
            arguments = (one, dense_x, beta, dense_out)
            self._plans[width].run(*arguments)
        finally:
            cusparse.destroyDnMat(dense_x)
            cusparse.destroyDnMat(dense_out)


class _Plan:
    """A descriptor of a matrix and the workspace for products of one width.

    Widths do not share a descriptor: the analysis of the matrix lies in the workspace, and a
    descriptor remembers one.
    """

    def __init__(self, matrix: CusparseMatrix) -> None:
        index = cusparse.CUSPARSE_INDEX_32I
        if matrix.indices.dtype == np.int64:
            index = cusparse.CUSPARSE_INDEX_64I
        self._type, self._algorithm = _TYPES[matrix.dtype.name], matrix.algorithm
        self._matrix = cusparse.createCsr(
            *matrix.shape, matrix.nnz, matrix.indptr.data.ptr, matrix.indices.data.ptr,
            matrix.values.data.ptr, index, index, cusparse.CUSPARSE_INDEX_BASE_ZERO, self._type,
        )  # fmt: skip
        weakref.finalize(self, cusparse.destroySpMat, self._matrix)
        self._workspace: Array | None = None
        self._products = 0

    def run(self, alpha: int, x: int, beta: int, out: int) -> None:
        """A product; scalars are addresses on the host, x and out descriptors."""
        handle = cp.cuda.device.get_cusparse_handle()
        of = (self._matrix, x, beta, out, self._type, self._algorithm)
        before = (handle, _KEEP, _KEEP, alpha, *of)
        if self._workspace is None:
            self._workspace = cp.empty(cusparse.spMM_bufferSize(*before), cp.int8)
        # Not for the first product: tiles that travel are multiplied once.
        if self._products == 1:
            _preprocess(handle, *before[1:], self._workspace.data.ptr)
        self._products += 1
        cusparse.spMM(*before, self._workspace.data.ptr)


_TYPES = {"float32": cp.cuda.runtime.CUDA_R_32F, "float64": cp.cuda.runtime.CUDA_R_64F}


def _describe_dense(x: Array) -> int:
    """A row-major descriptor of rows that may lie apart."""
    rows, columns = x.shape
    apart = x.strides[0] // x.itemsize if rows > 1 else columns
    kind = _TYPES[x.dtype.name]
    return cusparse.createDnMat(rows, columns, apart, x.data.ptr, kind, cusparse.CUSPARSE_ORDER_ROW)


def _preprocess(handle: int, *arguments: int) -> None:
    """Let cuSPARSE analyse the matrix; an optimisation, so an old library may be without it."""
    function = _preprocess_function()
    if function is not None:
        cusparse.setStream(handle, cp.cuda.get_current_stream().ptr)
        code = function(handle, *arguments)
        if code:
            raise RuntimeError(f"cusparseSpMM_preprocess failed: code {code}")


def _preprocess_function() -> Callable[..., int] | None:
    """``cusparseSpMM_preprocess``, which CuPy does not wrap, from the library it has loaded."""
    try:
        function = ctypes.CDLL(_LIBRARY, os.RTLD_NOLOAD).cusparseSpMM_preprocess
    except (OSError, AttributeError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [
        pointer, number, number, pointer, pointer, pointer, pointer, pointer, number, number,
        pointer,
    ]  # fmt: skip
    return function
