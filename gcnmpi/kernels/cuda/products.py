"""Products of CSR matrices on a GPU, and what follows products: see ``cuda.text.products``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from cupy import ndarray as Array

from gcnmpi.core import rng
from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.cuda.cusparse import CusparseMatrix
from gcnmpi.kernels.cuda.launches import Given
from gcnmpi.kernels.cuda.pieces import CupyPieces, Pieces
from gcnmpi.kernels.epilogues import KINDS, Activation, EpilogueOf, OneAfterTheOther
from gcnmpi.kernels.interface.kernel import EntryDropout
from gcnmpi.kernels.kinds import OneKindAfterTheOther

_NOTHING, _FORWARD, _BACKWARD = range(3)


class PieceMatrix:
    """A CSR matrix on the device, its rows cut into pieces; of less than 2³¹ rows and columns."""

    def __init__(self, matrix: sp.csr_array, dtype: np.dtype) -> None:
        assert max(matrix.shape) <= np.iinfo(np.int32).max
        self.shape, self.nnz = matrix.shape, int(matrix.nnz)
        self.pieces = Pieces(matrix.indptr)
        self.indices = upload(matrix.indices, np.int32)
        self.values = upload(matrix.data, dtype)


DeviceMatrix = PieceMatrix | CusparseMatrix


class CupyProducts(OneAfterTheOther[Array], OneKindAfterTheOther[Array], CupyPieces):
    """``SparseProducts``, ``FusedOperations`` but for dense products, and activations."""

    cusparse: bool
    add: Callable[[Array, Array, Array], None]

    def sparse(self, matrix: sp.csr_array) -> DeviceMatrix:
        """A copy on the device."""
        matrix.check_format()
        return (CusparseMatrix if self.cusparse else PieceMatrix)(matrix, self.dtype)

    def set_values(self, matrix: DeviceMatrix, values: np.ndarray) -> None:
        """A copy to the device."""
        if matrix.nnz:
            matrix.values.set(values)

    def drop_entries(self, of: EntryDropout[Array, DeviceMatrix]) -> None:
        matrix, rows = of.matrix, of.rows
        places = (matrix.indices, rows) if of.transposed else (rows, matrix.indices)
        given = *places, of.row_keys, of.column_keys, rng.threshold(of.p), 1 / (1 - of.p)
        self._launch("drop_entries", matrix.nnz, 1, matrix.values, *given, of.out.values)

    def spmm(self, matrix: DeviceMatrix, x: Array, out: Array, accumulate: bool = False) -> None:
        self.spmm_then(matrix, x, out, accumulate, None)

    def spmm_then(
        self,
        matrix: DeviceMatrix,
        x: Array,
        out: Array,
        accumulate: bool,
        epilogue: EpilogueOf[Array] | None,
    ) -> None:
        """Without cuSPARSE one launch, and one for each level of longer rows."""
        if not out.size:
            return
        follows = epilogue is not None and epilogue.plus is not None
        if matrix.nnz and isinstance(matrix, PieceMatrix):
            self._multiply(matrix, x, out, accumulate, None if follows else epilogue)
            self.follow(out, epilogue if follows else None)
            return
        if matrix.nnz and isinstance(matrix, CusparseMatrix):
            matrix.multiply(x, out, accumulate)
        elif not accumulate:
            out.fill(0)
        self.follow(out, epilogue)

    def _multiply(
        self,
        matrix: PieceMatrix,
        x: Array,
        out: Array,
        accumulate: bool,
        epilogue: EpilogueOf[Array] | None,
    ) -> None:
        given = matrix.indices, matrix.values, x, out, accumulate, *self._epilogue(out, epilogue)
        self._sum("multiply_pieces", matrix.pieces, x.shape[1], x, out, *given)

    def follow(self, x: Array, epilogue: EpilogueOf[Array] | None) -> None:
        """One launch, and one more if something is added first."""
        if epilogue is not None and epilogue.plus is not None:
            self.add(x, epilogue.plus, x)
            epilogue = replace(epilogue, plus=None)
        if epilogue is not None:
            self._launch("follow", *x.shape, x, *self._epilogue(x, epilogue))

    def _epilogue(self, x: Array, epilogue: EpilogueOf[Array] | None) -> tuple[Given, ...]:
        """As the CUDA source takes it; what is not there is some array that nothing reads."""
        stage, kind, slope, bias, kept, output = _NOTHING, 0, 0.0, None, 1.0, x
        dropped, keys, limit = False, (None, None), np.uint32(0)
        if epilogue is not None:
            kind, slope = KINDS.index(epilogue.kind), epilogue.slope
            dropped = epilogue.rows is not None
            if isinstance(epilogue, Activation):
                stage, bias = _FORWARD, epilogue.bias
                kept = 1 / (1 - epilogue.p) if dropped else kept
            else:
                stage, kept = _BACKWARD, epilogue.scale
                dropped = epilogue.drops
                output = x if epilogue.output is None else epilogue.output
            if dropped:
                keys, limit = (epilogue.rows, epilogue.columns), rng.threshold(epilogue.p)
        return stage, kind, slope, bias, dropped, *keys, limit, kept, output
