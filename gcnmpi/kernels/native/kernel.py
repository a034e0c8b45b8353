"""The compiled kernel: sparse products and one-pass dense operations in C++, with threads.

The sources are in ``src/``, compiled when the package is installed; the best instruction set of
those that were compiled is chosen when the kernel is made. Dense products with large weights stay
with NumPy's BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.core import rng
from gcnmpi.core.precision import FORMATS
from gcnmpi.kernels.epilogues import KINDS, Activation, ActivationBackward, EpilogueOf, Product
from gcnmpi.kernels.host.dense import Array, DenseArithmetic
from gcnmpi.kernels.host.neighbours import Pattern, make_pattern
from gcnmpi.kernels.interface.dense import AdamStep
from gcnmpi.kernels.interface.kernel import KernelOf
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
    computes_again,
)
from gcnmpi.kernels.native.arcs import NativeArcs
from gcnmpi.kernels.native.norms import NativeNorms
from gcnmpi.kernels.scaled import ScaledPattern
from partition.errors import UserError

FOLDER = Path(__file__).parents[1]  # of the compiled part


def _reason(error: ImportError) -> tuple[str, str]:
    """Why the compiled part cannot be imported, and a hint."""
    if not isinstance(error, ModuleNotFoundError):
        return f"cannot be loaded: {error}", "load the modules that it was compiled with"
    again = "install gcnmpi again, where there are a C++ compiler and the headers of Python"
    for other in sorted(FOLDER.glob("_native.*")):
        return f"was built for another Python: {other.name}", again
    return f"was not built: there is none in {FOLDER}", again


try:
    import gcnmpi.kernels._native as _native
except ImportError as error:
    raise UserError(*_reason(error)) from error

if not hasattr(_native, "places_by_columns"):  # an editable installation
    raise UserError("was built from older sources", "install gcnmpi again")

_FORMATS = {name: number for number, name in enumerate(FORMATS)}  # enum Format of the sources
_SMALL_WEIGHTS = 1 << 14  # entries: above, BLAS is as fast on one thread, and scales too


@dataclass(frozen=True)
class SparseMatrix:
    """Sparse rows, as the compiled products take them.

    Attributes
    ----------
    compiled : object
        It holds the arrays.
    values : (nnz,) array of the kernel's dtype, or None
        None: those of a row are the number of that row.
    empty : bool
        Whether there are no entries.
    """

    compiled: object
    values: np.ndarray | None
    empty: bool


class NativeKernel(NativeArcs, NativeNorms, DenseArithmetic[SparseMatrix]):
    """Operations in C++, mostly in one pass over memory; the others are inherited.

    Parameters
    ----------
    dtype, threads
        As for every kernel.
    target : str, optional
        Instruction set, one of :func:`targets`; the first of them unless given.
    """

    name = "native"
    parallel = bool(getattr(_native, "openmp", True))  # an editable build may be an older one
    """Whether it was built with OpenMP; otherwise it computes with one thread."""

    def __init__(self, dtype: DTypeLike, threads: int = 1, target: str | None = None) -> None:
        super().__init__(dtype, threads)
        single = self.dtype == np.float32
        compiled = _native.Float32 if single else _native.Float64
        self._native = compiled(target or targets()[0], threads)
        self._epilogues = _native.Epilogue32 if single else _native.Epilogue64
        self._sparse = _native.Sparse32 if single else _native.Sparse64

    def sparse(self, matrix: sp.csr_array | ScaledPattern) -> SparseMatrix:
        """With the shortest indices that reach; numbers of columns are left to who multiplies."""
        if isinstance(matrix, ScaledPattern):
            left = np.ones(matrix.shape[0]) if matrix.left is None else matrix.left
            scale = left.astype(self.dtype)
            rows, first, columns = (matrix.begins, matrix.ends), matrix.first, matrix.shape[1]
            made = self._sparse.of(*rows, matrix.indices, None, None, scale, first, columns)
            return SparseMatrix(made, None, not matrix.nnz)
        columns = matrix.shape[1]
        if not _is_sound(matrix):
            matrix.check_format()  # which says why
        starts = np.ascontiguousarray(matrix.indptr, np.int64)
        values = np.ascontiguousarray(matrix.data, self.dtype)
        short = columns <= np.iinfo(np.int32).max
        indices = np.ascontiguousarray(matrix.indices, np.int32 if short else np.int64)
        either = (indices, None) if short else (None, indices)
        made = self._sparse.of(starts[:-1], starts[1:], *either, values, None, 0, columns)
        return SparseMatrix(made, values, not len(indices))

    def set_values(self, matrix: SparseMatrix, values: np.ndarray) -> None:
        assert matrix.values is not None, "a matrix without values"
        np.copyto(matrix.values, values)

    def spmm(self, matrix: SparseMatrix, x: Array, out: Array, accumulate: bool = False) -> None:
        self.spmm_then(matrix, x, out, accumulate, None)

    def spmm_then(
        self, matrix: SparseMatrix, x: Array, out: Array, accumulate: bool,
        epilogue: EpilogueOf[Array] | None,
    ) -> None:  # fmt: skip
        """In one pass over rows of the result."""
        if accumulate and matrix.empty:  # of a halo
            self.follow(out, epilogue)
            return
        self._native.spmm(matrix.compiled, x, out, accumulate, self._arrays_of(epilogue))

    def gather(self, matrix: SparseMatrix, x: Array, prefetch: bool) -> float:
        """Read only the rows that matrix · x gathers: the bound of benchmarks/spmm.py.

        Returns
        -------
        float
            The sum of the first number of every cache line of the rows, one row an entry.
        """
        return self._native.gather(matrix.compiled, x, prefetch)

    def gemm(
        self,
        a: Array,
        b: Array,
        out: Array,
        ta: bool = False,
        tb: bool = False,
        accumulate: bool = False,
    ) -> None:
        """With threads where the weights, or their gradient, are small; by NumPy's BLAS elsewhere.

        BLAS is at its best on large blocks; with few columns memory decides, and reading each row
        once.
        """
        if not ta and _narrow(a, b, out):
            self._native.gemm(a, b.T if tb else b, None, None, out, accumulate, None)
        elif ta and not tb and _narrow(a, out, b) and _by_rows(out):
            self._native.gemm_over_rows(a, b, out, accumulate, None)
        else:
            super().gemm(a, b, out, ta, tb, accumulate)

    def gemm_then(self, of: Product[Array]) -> None:
        """In one pass where the weights are small."""
        x, w = (None, None) if of.also is None else of.also
        if _narrow(of.a, of.b, of.out) and (x is None or w is None or _narrow(x, w, of.out)):
            b = of.b.T if of.transposed else of.b
            w = w.T if w is not None and of.transposed else w
            then = self._arrays_of(of.epilogue)
            self._native.gemm(of.a, b, x, w, of.out, of.accumulate, then)
        else:
            super().gemm_then(of)

    def gemm_and_sums(self, a: Array, b: Array, out: Array, sums: Array) -> None:
        """In one pass where the weights are small."""
        if _narrow(a, out, b) and _by_rows(out):
            self._native.gemm_over_rows(a, b, out, False, sums)
        else:
            super().gemm_and_sums(a, b, out, sums)

    def softmax_cross_entropy(
        self, logits: Array, labels: np.ndarray, scale: float, grad: Array
    ) -> float:
        return self._native.softmax_cross_entropy(logits, labels, scale, grad)

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Array | None, out: Array
    ) -> None:
        number = _FORMATS[precision]
        self._native.encode_rows(x, number, rows, columns, rng.MIX1, rng.MIX2, out)

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        self._native.decode_rows(message, _FORMATS[precision], out)

    def column_sum(self, x: Array, out: Array) -> None:
        """In float64, in groups of rows: the same bits for every number of threads."""
        self._native.column_sum(x, out)

    def follow(self, x: Array, epilogue: EpilogueOf[Array] | None) -> None:
        if epilogue is not None:
            self._apply(epilogue, x, x)

    def dropout(
        self, x: Array, rows: np.ndarray, columns: np.ndarray, p: float, out: Array
    ) -> None:
        """One pass; hashes stay in registers."""
        self._apply(Activation(None, "none", rows, columns, p), x, out)

    def elu(self, x: Array, out: Array) -> None:
        self._apply(Activation(None, "elu"), x, out)

    def leaky(self, x: Array, slope: float, out: Array) -> None:
        kind, unused = KINDS.index("leaky_relu"), (None, None, 0, 0, 0)
        arrays = self._epilogues.activation(None, kind, *unused, 1.0, slope)
        self._native.apply(arrays, x, out)

    def take_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        self._native.take_rows(x, rows, out)

    def sgd_step(
        self, param: Array, grad: Array, velocity: Array | None, lr: float, mu: float
    ) -> None:
        self._native.sgd(param, grad, velocity, lr, mu)

    def adam_step(self, of: AdamStep[Array]) -> None:
        beta1, beta2 = of.betas
        size, root = of.lr / (1 - beta1**of.step), np.sqrt(1 - beta2**of.step)
        self._native.adam(of.param, of.grad, *of.moments, beta1, beta2, size, root, of.eps)

    # Maximum and attention, in one gather of rows for each direction.

    def pattern(self, matrix: sp.csr_array, order: Array | None) -> Pattern:
        return replace(make_pattern(matrix, order), compile=_native.pattern)

    def max_aggregate(self, pattern: Pattern, x: Array, out: Array, arg: Array) -> None:
        """In one gather of rows of x."""
        self._native.max_aggregate(pattern.compiled, x, out, arg)

    def max_aggregate_backward(self, pattern: Pattern, grad: Array, arg: Array, out: Array) -> None:
        """Every number of ``grad`` is added where it belongs, in the order of the rows."""
        self._native.max_aggregate_backward(grad, arg, out)

    def head_dots(self, x: Array, vector: Array, out: Array) -> None:
        self._native.head_dots(x, vector, out)

    def head_dots_backward(
        self, x: Array, vector: Array, dout: Array, dx: Array, dvector: Array
    ) -> None:
        self._native.head_dots_backward(x, vector, dout, dx, dvector, True)

    def attend(self, of: Attention[Array, Pattern]) -> None:
        """In one gather of rows of x."""
        self._native.attend(
            of.pattern.compiled, of.x, of.t, of.s, of.slope, self._drop(of),
            of.out, of.shift, of.total,
        )  # fmt: skip

    def attend_backward(self, of: AttentionBackward[Array, Pattern]) -> None:
        """In one gather of rows of ``grad``; narrow ones of x are gathered then, too."""
        f = of.forward
        again = computes_again(f.t.shape[1], f.x.shape[1], f.pattern.entries)
        pattern = f.pattern.compiled if again else f.pattern.compiled_with_places
        self._native.attend_backward(
            pattern, f.x, f.t, f.s, f.slope, self._drop(f), f.shift, f.total, f.out,
            of.grad, of.dx, of.dt, of.ds, of.scratch,
        )  # fmt: skip

    def attend_v2(self, of: AttentionV2[Array, Pattern]) -> None:
        """A row's neighbours are read from memory once, unless they are more than a cache holds."""
        self._native.attend_v2(
            of.pattern.compiled, of.x, of.target, of.vector, of.slope, self._drop(of),
            of.out, of.shift, of.total, of.scratch,
        )  # fmt: skip

    def attend_v2_backward(self, of: AttentionV2Backward[Array, Pattern]) -> None:
        """By columns, then by rows."""
        f = of.forward
        self._native.attend_v2_backward(
            f.pattern.compiled_with_places, f.x, f.target, f.vector, f.slope, self._drop(f),
            f.shift, f.total, f.out, of.grad, of.dx, of.dtarget, of.dvector, f.scratch,
        )  # fmt: skip

    def _apply(self, epilogue: EpilogueOf[Array], x: Array, out: Array) -> None:
        self._native.apply(self._arrays_of(epilogue), x, out)

    def _arrays_of(self, epilogue: EpilogueOf[Array] | None) -> object:
        """The epilogue as the compiled products take it."""
        if epilogue is None:
            return None
        e = epilogue
        read_off = isinstance(e, ActivationBackward) and e.kind == "relu"
        dropping = e.rows is not None and not read_off
        keys = (e.rows, e.columns) if dropping else (None, None)
        bias = e.bias if isinstance(e, Activation) else None
        kind, hashing = KINDS.index(e.kind), (rng.MIX1, rng.MIX2, int(rng.threshold(e.p)))
        scale = e.scale if isinstance(e, ActivationBackward) else 1 / (1 - e.p)
        arrays = self._epilogues.activation(bias, kind, *keys, *hashing, scale, e.slope)
        # Dropout by itself is its own gradient, for which no output is needed.
        if isinstance(e, ActivationBackward) and e.kind != "none":
            arrays = self._epilogues.backward(arrays, e.output, scale)
        return arrays if e.plus is None else self._epilogues.of_sum(arrays, e.plus)

    def _drop(self, of: Attention[Array, Pattern] | AttentionV2[Array, Pattern]) -> object:
        drop = of.drop
        if drop is None:
            return None
        return self._arrays_of(Activation(None, "none", drop.rows, drop.columns, drop.p))


def _narrow(x: Array, weights: Array, other: Array) -> bool:
    """Whether a product of matrices with many rows has weights so small that ours is faster."""
    return weights.size <= _SMALL_WEIGHTS and _by_rows(x) and _by_rows(other)


def _by_rows(x: Array) -> bool:
    return x.strides[1] == x.itemsize or x.shape[1] <= 1 or not len(x)


def _is_sound(matrix: sp.csr_array) -> bool:
    """The verdict of SciPy's check, in less time than that takes with the matrix of a batch."""
    starts, columns = matrix.indptr, matrix.indices
    return bool(
        len(starts) == matrix.shape[0] + 1
        and starts[0] == 0
        and starts[-1] == len(columns) == len(matrix.data)
        and (starts[1:] >= starts[:-1]).all()
        and columns.min(initial=0) >= 0
        and columns.max(initial=-1) < matrix.shape[1]
    )


def targets() -> list[str]:
    """The instruction sets that were compiled and that this CPU runs, the best one first."""
    return _native.targets()


if TYPE_CHECKING:  # mypy says what differs
    _kernel: KernelOf[np.ndarray, SparseMatrix, Pattern] = NativeKernel(np.float32, 1)
