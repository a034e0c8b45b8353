"""Dense arithmetic in NumPy, shared by the kernels that compute on the host."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Generic, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike
from threadpoolctl import ThreadpoolController

from gcnmpi.core import rng
from gcnmpi.core.arrays import Number, R
from gcnmpi.kernels.epilogues import ActivationBackward, EpilogueOf, OneAfterTheOther
from gcnmpi.kernels.host.arcs import Arcs
from gcnmpi.kernels.host.elementwise import Elementwise
from gcnmpi.kernels.host.messages import Messages
from gcnmpi.kernels.host.neighbours import Neighbours
from gcnmpi.kernels.host.norms import Norms
from gcnmpi.kernels.interface.dense import AdamStep, ClassLoss, EntryLoss
from gcnmpi.kernels.interface.kernel import EntryDropout
from gcnmpi.kernels.kinds import OneKindAfterTheOther
from gcnmpi.kernels.threads import Library, one_thread

Array = np.ndarray
S = TypeVar("S")
_LONG_ROW = 1 << 10  # entries that NumPy adds to each other at full speed
_THREAD_WORTH = 1 << 21  # multiplications, some 50 µs: more than a thread needs to begin
_EVEN = 16  # rows or columns of a part: whole vectors
_ADDED = 1 << 18  # numbers of a product that are added to a matrix at once
_BLOCKS = 64  # of rows whose sum is taken in the dtype
_CACHE_LINE = 64  # bytes
_BLOCK = 1 << 16  # entries of a dropout mask that are hashed at a time: fits the L2 cache


class DenseArithmetic(
    Arcs,
    Neighbours,
    Norms,
    Messages,
    Elementwise,
    OneAfterTheOther[Array],
    OneKindAfterTheOther[Array],
    ABC,
    Generic[S],
):
    """All operations of :mod:`gcnmpi.kernels.interface.kernel`, where their meaning is, but two.

    A kernel adds ``sparse`` and ``spmm``.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    threads : int
        Threads that the sparse products may use.
    """

    name: str
    device: str | None = None
    device_address: str | None = None
    host_visible = True

    def __init__(self, dtype: DTypeLike, threads: int = 1) -> None:
        self.dtype = np.dtype(dtype)
        self.threads = threads

    @classmethod
    def for_rank(cls, dtype: DTypeLike, threads: int, place: int, direct: bool, spmm: str) -> Self:
        return cls(dtype, threads)

    def versions(self) -> dict[str, str]:
        return {}

    def network(self) -> None:
        """Nothing: there is no device."""
        return

    # Memory.

    def empty(self, *shape: int) -> Array:
        return self._aligned(np.empty, shape)

    def empty_integers(self, *shape: int) -> Array:
        return np.empty(shape, np.int32)

    def empty_columnwise(self, rows: int, columns: int) -> Array:
        return np.empty((columns, rows), self.dtype).T

    def zeros(self, *shape: int) -> Array:
        return self._aligned(np.zeros, shape)

    def _aligned(self, make: Callable[..., np.ndarray], shape: tuple[int, ...]) -> Array:
        # Where rows begin with a cache line, a product that gathers them touches fewer lines.
        size = math.prod(shape) * self.dtype.itemsize
        memory = make(size + _CACHE_LINE, np.uint8)
        start = -memory.ctypes.data % _CACHE_LINE
        return memory[start : start + size].view(self.dtype).reshape(shape)

    def from_host(self, array: np.ndarray) -> Array:
        if array.dtype.kind == "f":
            return np.ascontiguousarray(array, self.dtype)
        return np.ascontiguousarray(array)

    def from_host64(self, array: np.ndarray) -> Array:
        return np.array(array, np.float64)

    def resident(self, numbers: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        return numbers

    def to_host(self, array: Array) -> np.ndarray:
        return array

    def copy(self, x: Array, out: Array) -> None:
        np.copyto(out, x, casting="same_kind")

    def repeated(self, call: Callable[[int], R]) -> Callable[[int], R]:
        """Itself: there is no device to be told."""
        return call

    def finish(self) -> None:
        """On the host, all is done."""

    # Messages: what MPI sends and receives for an array.

    def message(self, array: Array, staged: bool = False) -> Array:
        return array

    def to_message(self, array: Array, message: Array) -> None:
        if message is not array:
            self.copy(array, message)

    def before_sending(self) -> None:
        """On the host, all is done."""

    def before_receiving(self) -> None:
        """On the host, all is done."""

    def from_message(self, message: Array, array: Array) -> None:
        if message is not array:
            self.copy(message, array)

    # Products and sums.

    def gemm(
        self,
        a: Array,
        b: Array,
        out: Array,
        ta: bool = False,
        tb: bool = False,
        accumulate: bool = False,
    ) -> None:
        a, b = a.T if ta else a, b.T if tb else b
        if not accumulate:
            self._matmul(a, b, out)
            return
        # No second matrix of that size, and each piece is added while it is in the cache.
        rows = max(1, _ADDED // max(1, out.shape[1]))
        product = np.empty((min(rows, len(out)), out.shape[1]), out.dtype)
        for start in range(0, len(out), rows):
            piece = out[start : start + rows]
            self._matmul(a[start : start + rows], b, product[: len(piece)])
            piece += product[: len(piece)]

    def _matmul(self, a: Array, b: Array, out: Array) -> None:
        """``a @ b``, a part of ``out`` a thread.

        Threads of BLAS would keep their cores for long after each product.
        """
        if self.threads == 1:
            np.matmul(a, b, out=out)
            return
        with one_thread(self._blas):
            self._in_parts(a, b, out)

    def _in_parts(self, a: Array, b: Array, out: Array) -> None:
        rows, columns = out.shape
        parts = int(max(1, min(self.threads, a.size * columns // _THREAD_WORTH)))
        across, length = columns > rows, max(rows, columns)
        ends = [length * part // parts // _EVEN * _EVEN for part in range(parts)] + [length]
        pieces = [slice(*ends[part : part + 2]) for part in range(parts)]

        def multiply(piece: slice) -> None:
            left, right = (a, b[:, piece]) if across else (a[piece], b)
            np.matmul(left, right, out=out[:, piece] if across else out[piece])

        others = [self._workers.submit(multiply, piece) for piece in pieces[1:]]
        multiply(pieces[0])
        for other in others:
            other.result()

    @cached_property
    def _blas(self) -> Sequence[Library]:
        return ThreadpoolController().select(user_api="blas").lib_controllers

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads - 1, "gcnmpi-products")

    def column_sum(self, x: Array, out: Array) -> None:
        rows, width = x.shape
        # NumPy adds row to row, a few numbers at a time; so first add blocks of rows to each other:
        # few enough for the dtype, whose sums are then added in float64.
        block, sums = max(1, _LONG_ROW // max(1, width)), np.zeros(width)
        for start in range(0, rows, _BLOCKS * block):
            piece = x[start : start + _BLOCKS * block]
            head = len(piece) - len(piece) % block
            blocks = piece[:head].reshape(head // block, block * width)  # also where width is 0
            sums += blocks.sum(axis=0).reshape(block, width).sum(axis=0, dtype=np.float64)
            sums += piece[head:].sum(axis=0, dtype=np.float64)
        out[...] = sums

    # Activations.

    def follow(self, x: Array, epilogue: EpilogueOf[Array] | None) -> None:
        if epilogue is None:
            return
        if epilogue.plus is not None:
            self.add(x, epilogue.plus, x)
        if isinstance(epilogue, ActivationBackward):
            self._activate_backward(x, epilogue)
            return
        if epilogue.bias is not None:
            x += epilogue.bias
        if epilogue.kind == "relu":
            np.maximum(x, 0, out=x)
        elif epilogue.kind == "elu":
            self.elu(x, x)
        elif epilogue.kind == "leaky_relu":
            self.leaky(x, epilogue.slope, x)
        if epilogue.rows is not None and epilogue.columns is not None:
            self.dropout(x, epilogue.rows, epilogue.columns, epilogue.p, x)

    def row_keys(self, seed: int, epoch: int, layer: int, vertices: np.ndarray) -> Array:
        return rng.row_keys(seed, epoch, layer, vertices)

    def dropout(
        self, x: Array, rows: np.ndarray, columns: np.ndarray, p: float, out: Array
    ) -> None:
        limit, scale = rng.threshold(p), self.dtype.type(1 / (1 - p))
        step = max(1, _BLOCK // max(1, len(columns)))
        block = np.empty((2, min(step, len(rows)), len(columns)), np.uint32)
        for start in range(0, len(rows), step):
            piece = slice(start, min(start + step, len(rows)))
            hashes, scratch = block[:, : piece.stop - piece.start]
            rng.hash_block(rows[piece], columns, hashes, scratch)
            np.multiply(x[piece], hashes >= limit, out=out[piece])
            out[piece] *= scale

    # Rows.

    def take_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        # mode="clip": with "raise", NumPy would take into a buffer and copy.
        np.take(x, rows, axis=0, out=out, mode="clip")

    def put_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        out[rows] = x

    # Softmax, one row at a time.

    def row_max(self, x: Array) -> Array:
        return x.max(axis=1, keepdims=True, initial=-np.inf)

    def row_argmax(self, x: Array) -> Array:
        return x.argmax(axis=1) if x.shape[1] else np.zeros(len(x), np.int64)

    def exp_shifted(self, x: Array, shift: Array, out: Array) -> Array:
        np.subtract(x, shift, out=out)
        np.exp(out, out=out)
        return out.sum(axis=1, keepdims=True)

    def log_sum(self, x: Array) -> float:
        return float(np.sum(np.log(x), dtype=np.float64))

    def total(self, x: Array) -> float:
        return float(np.sum(x, dtype=np.float64))

    def pick(self, x: Array, columns: np.ndarray, first: int = 0) -> Array:
        picked, places = self.zeros(len(x), 1), columns - first
        hits = np.flatnonzero((places >= 0) & (places < x.shape[1]))
        picked[hits, 0] = x[hits, places[hits]]
        return picked

    def softmax_backward(
        self, exponentials: Array, sums: Array, rows: np.ndarray, columns: np.ndarray, scale: float
    ) -> None:
        exponentials /= sums
        exponentials[rows, columns] -= 1
        exponentials *= self.dtype.type(scale)

    # In one pass, where a kernel has it.

    softmax_cross_entropy: Callable[[Array, np.ndarray, float, Array], Number] | None = None
    weighted_cross_entropy: Callable[[Array, ClassLoss[Array], float, Array], Number] | None = None
    entry_losses: Callable[[Array, np.ndarray, EntryLoss, float, Array], Number] | None = None
    count_right: Callable[[Array, np.ndarray, np.ndarray], np.ndarray] | None = None
    shorten: Callable[[Array, float, float], None] | None = None

    # Optimizer steps, on flat arrays.

    def sgd_step(
        self, param: Array, grad: Array, velocity: Array | None, lr: float, mu: float
    ) -> None:
        if velocity is not None:
            _average(velocity, mu, grad)
            grad = velocity
        param -= self.dtype.type(lr) * grad

    def adam_step(self, of: AdamStep[Array]) -> None:
        first, second = of.moments
        beta1, beta2 = of.betas
        wide = of.grad.astype(np.float64, copy=False)
        _average(first, beta1, (1 - beta1) * wide)
        _average(second, beta2, (1 - beta2) * wide * wide)
        size = of.lr / (1 - beta1**of.step)
        denominator = np.sqrt(second)
        denominator /= np.sqrt(1 - beta2**of.step)
        denominator += of.eps
        param = of.param
        param -= size * first / denominator

    # Sparse products: what a kernel adds.

    @abstractmethod
    def sparse(self, matrix: sp.csr_array) -> S:
        """The kernel's own form of a CSR matrix, with values in its dtype."""

    drop_entries: Callable[[EntryDropout[Array, S]], None] | None = None

    @abstractmethod
    def set_values(self, matrix: S, values: np.ndarray) -> None:
        """Other values for a matrix of the kernel's own form, in the order of its entries."""

    @abstractmethod
    def spmm(self, matrix: S, x: Array, out: Array, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x."""

    def spmm_then(
        self, matrix: S, x: Array, out: Array, accumulate: bool, epilogue: EpilogueOf[Array] | None
    ) -> None:
        self.spmm(matrix, x, out, accumulate)
        self.follow(out, epilogue)


def _average(moving: Array, factor: float, new: Array) -> None:
    """moving = factor · moving + new, in float64 and rounded once.

    In float32, a factor such as 0.999 is so far from it that what it adds up to, 1 / (1 − 0.999),
    is wrong in the fifth digit.
    """
    moving[...] = factor * moving.astype(np.float64, copy=False) + new
