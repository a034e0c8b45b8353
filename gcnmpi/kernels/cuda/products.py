"""Products of CSR matrices on a GPU, and what follows products: see ``kernels.cuda_products``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from cupy import ndarray as Array

from gcnmpi.core import rng
from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.cuda.cusparse import CusparseMatrix
from gcnmpi.kernels.cuda.launches import CupyLaunches, Given
from gcnmpi.kernels.cuda.text.products import PIECE
from gcnmpi.kernels.epilogues import KINDS, Activation, EpilogueOf, OneAfterTheOther
from gcnmpi.kernels.interface.kernel import EntryDropout
from gcnmpi.kernels.kinds import OneKindAfterTheOther

ALIGNED = 16  # bytes that a thread reads at once, where rows begin at multiples of it
_NOTHING, _FORWARD, _BACKWARD = range(3)


class PieceMatrix:
    """A CSR matrix on the device, its rows cut into pieces; of less than 2³¹ rows and columns."""

    def __init__(self, matrix: sp.csr_array, dtype: np.dtype) -> None:
        assert max(matrix.shape) <= np.iinfo(np.int32).max
        self.shape, self.nnz = matrix.shape, int(matrix.nnz)
        starts, targets, first, long_rows = cut(np.asarray(matrix.indptr, np.int64))
        self.pieces, self.long_rows = len(targets), len(long_rows)
        self.scratch_rows = int(first[-1])
        self.starts, self.targets = upload(starts), upload(targets)
        self.first, self.long = upload(first), upload(long_rows)
        self.indices = upload(matrix.indices, np.int32)
        self.values = upload(matrix.data, dtype)


def cut(indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cut the rows of a CSR matrix into pieces of at most ``PIECE`` entries.

    Returns
    -------
    starts : (pieces + 1,) int64
        Where each piece begins among the entries.
    targets : (pieces,) int32
        The row of a piece that is all of it; −1 − place for the place-th piece of long rows.
    first : (long rows + 1,) int64
        The place of the first piece of each long row.
    long_rows : (long rows,) int32
    """
    counts = np.maximum(1, -(-np.diff(indptr) // PIECE))
    rows = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.append(indptr[rows] + number * PIECE, indptr[-1])
    long, targets = counts > 1, rows.astype(np.int32)
    of_long = long[rows]
    targets[of_long] = -1 - np.arange(np.count_nonzero(of_long))
    first = np.concatenate(([0], np.cumsum(counts[long])))
    return starts, targets, first, np.flatnonzero(long).astype(np.int32)


DeviceMatrix = PieceMatrix | CusparseMatrix


class CupyProducts(OneAfterTheOther[Array], OneKindAfterTheOther[Array], CupyLaunches):
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
        """Without cuSPARSE one launch, and one more where there are long rows."""
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
        width = x.shape[1]
        whole = all(_aligned(array) for array in (x, out))
        together = ALIGNED // self.dtype.itemsize if whole and width > 1 else 1
        name = "multiply_pieces_16" if together > 1 else "multiply_pieces"
        scratch = self.empty(matrix.scratch_rows, width)
        then = width, accumulate, *self._epilogue(out, epilogue)
        of = matrix.starts, matrix.targets, matrix.indices, matrix.values, x, out, scratch
        self._launch(name, matrix.pieces, width // together, *of, *then)
        if matrix.long_rows:
            pieces = scratch, matrix.first, matrix.long, out
            self._launch("add_pieces", matrix.long_rows, width, *pieces, *then[1:])

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


def _aligned(x: Array) -> bool:
    """Whether all rows of a matrix, and their ends, are at multiples of ``ALIGNED`` bytes."""
    return not (x.data.ptr | x.strides[0] | x.shape[1] * x.itemsize) % ALIGNED
