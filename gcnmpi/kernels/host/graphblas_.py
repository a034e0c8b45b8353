"""SuiteSparse:GraphBLAS, through its full-matrix accumulate path.

``C += A·B`` with B and C *full* is several times faster than ``C = A·B`` and works in place.
B and C are lent to GraphBLAS by pointer (``GxB_Matrix_pack_FullR``) and taken back after the
product, so any C-contiguous rows of an array will do and nothing is copied: requests of MPI on
the same memory stay valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.kernels.host.dense import Array, DenseArithmetic
from gcnmpi.kernels.host.neighbours import Pattern
from gcnmpi.kernels.interface.kernel import KernelOf
from gcnmpi.kernels.threads import sleeping_soon

with sleeping_soon():
    import graphblas as gb

    gb.init("suitesparse", blocking=True)
    # The C functions only exist once GraphBLAS is initialised.
    from graphblas.core import ffi, lib


@dataclass(frozen=True)
class SparseMatrix:
    """A matrix held by GraphBLAS, and whether it has no entry at all."""

    matrix: gb.Matrix
    empty: bool


class GraphBLASKernel(DenseArithmetic[SparseMatrix]):
    """Sparse products by SuiteSparse:GraphBLAS, with threads."""

    name = "graphblas"

    def __init__(self, dtype: DTypeLike, threads: int = 1) -> None:
        super().__init__(dtype, threads)
        gb.ss.config["nthreads"] = threads
        kind = gb.dtypes.lookup_dtype(self.dtype)
        self._multiply = gb.semiring.plus_times[kind]
        self._plus = gb.binary.plus[kind]
        self._lent: dict[tuple[int, ...], tuple[gb.Matrix, gb.Matrix]] = {}

    def sparse(self, matrix: sp.csr_array) -> SparseMatrix:
        """A copy in GraphBLAS's memory."""
        matrix.check_format()
        if not matrix.nnz:
            return SparseMatrix(gb.Matrix(self.dtype, *matrix.shape), empty=True)
        arrays = {
            "indptr": matrix.indptr.astype(np.uint64),
            "col_indices": matrix.indices.astype(np.uint64),
            "values": matrix.data.astype(self.dtype),
        }
        in_order = bool(matrix.has_sorted_indices)
        make, rows = gb.Matrix.ss.import_csr, np.flatnonzero(np.diff(matrix.indptr))
        if 2 * len(rows) < matrix.shape[0]:
            # Where a matrix is cut into many tiles, the rows without entries of all of them
            # would take more memory than the entries.
            make = gb.Matrix.ss.import_hypercsr
            starts = np.append(arrays["indptr"][rows], arrays["indptr"][-1:])
            arrays |= {"indptr": starts, "rows": rows.astype(np.uint64)}
        held = make(nrows=matrix.shape[0], ncols=matrix.shape[1], sorted_cols=in_order, **arrays)
        return SparseMatrix(held, empty=False)

    def set_values(self, matrix: SparseMatrix, values: np.ndarray) -> None:
        """In GraphBLAS's memory, which it gives and takes back."""
        if matrix.empty:
            return
        arrays = matrix.matrix.ss.unpack(raw=True)  # which may be longer than their entries
        np.copyto(arrays["values"][: len(values)], values)
        matrix.matrix.ss.pack_any(take_ownership=True, **arrays)

    def spmm(self, matrix: SparseMatrix, x: Array, out: Array, accumulate: bool = False) -> None:
        """In place; x and out are C-contiguous."""
        if not accumulate:
            out.fill(0)
        if matrix.empty or not x.size or not out.size:
            return
        lent_x, lent_out = self._shells(x.shape, out.shape)
        _lend(lent_x, x)
        _lend(lent_out, out)
        try:
            lent_out(self._plus) << matrix.matrix.mxm(lent_x, self._multiply)
        finally:
            _take_back(lent_x, x)
            _take_back(lent_out, out)

    def _shells(
        self, x_shape: tuple[int, ...], out_shape: tuple[int, ...]
    ) -> tuple[gb.Matrix, gb.Matrix]:
        """Empty GraphBLAS matrices of these shapes, made once, to lend arrays through."""
        key = (*x_shape, *out_shape)
        if key not in self._lent:
            kind = gb.dtypes.lookup_dtype(self.dtype)
            self._lent[key] = (gb.Matrix(kind, *x_shape), gb.Matrix(kind, *out_shape))
        return self._lent[key]


def _lend(shell: gb.Matrix, array: Array) -> None:
    pointer = ffi.new("void**", ffi.cast("void*", array.ctypes.data))
    code = lib.GxB_Matrix_pack_FullR(shell.gb_obj[0], pointer, array.nbytes, False, ffi.NULL)
    if code != lib.GrB_SUCCESS:
        raise RuntimeError(f"GraphBLAS does not take a full matrix: code {code}")


def _take_back(shell: gb.Matrix, array: Array) -> None:
    pointer, size, iso = ffi.new("void**"), ffi.new("GrB_Index*"), ffi.new("bool*")
    code = lib.GxB_Matrix_unpack_FullR(shell.gb_obj[0], pointer, size, iso, ffi.NULL)
    if code != lib.GrB_SUCCESS or int(ffi.cast("uintptr_t", pointer[0])) != array.ctypes.data:
        raise RuntimeError(f"GraphBLAS did not work in place: code {code}")


if TYPE_CHECKING:  # mypy says what differs
    _kernel: KernelOf[np.ndarray, SparseMatrix, Pattern] = GraphBLASKernel(np.float32, 1)
