"""One NVIDIA GPU a rank, through CuPy: cuSPARSE, cuBLAS, and the kernels of ``kernels.cuda``.

Matrices, activations, weights and the optimizer's state stay on the device. Messages go through
page-locked memory of the host, or straight to and from the device where MPI can do that. Calls
return before the device is done; whoever needs a result waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import cupy as cp
import numpy as np
from cupy import ndarray as Array
from numpy.typing import DTypeLike

from gcnmpi.core import rng
from gcnmpi.core.arrays import Network
from gcnmpi.core.precision import FORMATS
from gcnmpi.kernels.cuda.text.loss import BLOCKS, COUNTS, LANES, THREADS
from gcnmpi.kernels.epilogues import Activation
from gcnmpi.kernels.interface.dense import ENTRY_LOSSES, AdamStep, ClassLoss, EntryLoss
from gcnmpi.kernels.interface.kernel import KernelOf
from partition.errors import UserError, installing

try:
    from cupy_backends.cuda.libs import cublas, cusparse

    from gcnmpi.kernels.cuda.arcs import CupyArcs
    from gcnmpi.kernels.cuda.copies import DeviceNumber
    from gcnmpi.kernels.cuda.graphs import CupyGraphs
    from gcnmpi.kernels.cuda.launches import Given
    from gcnmpi.kernels.cuda.neighbours import DevicePattern
    from gcnmpi.kernels.cuda.norms import CupyNorms
    from gcnmpi.kernels.cuda.products import DeviceMatrix

    DEVICES = cp.cuda.runtime.getDeviceCount()
except ImportError as error:
    raise UserError(
        f"kernel 'cupy' does not find the libraries of CUDA: {error}",
        f"load your cluster's CUDA module, or {installing('cuda', 'cupy-cuda12x[ctk]')}",
    ) from error
except cp.cuda.runtime.CUDARuntimeError as error:
    raise UserError(
        f"kernel 'cupy' finds no GPU on this host: {error}",
        "run it where there is an NVIDIA GPU with its driver, or use kernel = 'graphblas'",
    ) from error

_FORMATS = {name: number for number, name in enumerate(FORMATS)}


class CupyKernel(CupyArcs, CupyNorms, CupyGraphs):
    """The operations of :mod:`gcnmpi.kernels.interface.kernel`, on a GPU.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    threads : int
        Threads of the host; not used.
    direct : bool
        Whether MPI reads and writes the memory of the device.
    spmm : {"own", "cusparse"}
        What multiplies sparse matrices.

    Raises
    ------
    UserError
        If the device compiles and runs nothing.
    """

    name = "cupy"

    def __init__(
        self, dtype: DTypeLike, threads: int = 1, direct: bool = False, spmm: str = "own"
    ) -> None:
        self.dtype, self.cusparse = np.dtype(dtype), spmm == "cusparse"
        self.threads, self.host_visible = threads, direct
        runtime, number = cp.cuda.runtime, cp.cuda.runtime.getDevice()
        self.device = runtime.getDeviceProperties(number)["name"].decode()
        self.device_address = runtime.deviceGetPCIBusId(number)
        # Weights of 1 and a smoothing of 0 for all classes, by number of classes.
        self._plain: dict[int, tuple[Array, Array]] = {}
        self._scalars = {value: np.array(value, self.dtype) for value in (0, 1)}
        self._addresses = {value: array.ctypes.data for value, array in self._scalars.items()}
        self._dense = cublas.sgemm if self.dtype == np.float32 else cublas.dgemm
        self.open_copies()
        self.open_graphs()
        try:
            self.open_launches()
            self._probe()
        except Exception as error:  # CuPy and CUDA raise errors of many kinds
            said = str(error).strip().split("\n")[0] or type(error).__name__
            raise UserError(
                f"kernel 'cupy' compiles or runs nothing on {self.device}: {said}",
                "NVRTC and CUDA's headers have to be those of CuPy's CUDA: load your cluster's "
                "CUDA module, or pip install 'cupy-cuda12x[ctk]'; see docs/gpu.md",
            ) from error

    @classmethod
    def for_rank(cls, dtype: DTypeLike, threads: int, place: int, direct: bool, spmm: str) -> Self:
        """GPUs are dealt to the ranks of a node in turn."""
        cp.cuda.Device(place % DEVICES).use()
        return cls(dtype, threads, direct, spmm)

    def _probe(self) -> None:
        """Launch a kernel of ours and one of CuPy's, which needs CUDA's headers to be compiled."""
        x = self.zeros(1, 1)
        self.follow(x, Activation())
        if self.to_host(x * self._scalars[1].item()).any():
            raise RuntimeError("a product with 0 is not 0")

    def versions(self) -> dict[str, str]:
        """Of the libraries that compute."""
        runtime, nccl = cp.cuda.runtime, self.network()
        numbers = {
            "cuda_driver": runtime.driverGetVersion(),
            "cuda_runtime": runtime.runtimeGetVersion(),
            "cublas": cublas.getVersion(cp.cuda.device.get_cublas_handle()),
            "cusparse": cusparse.getVersion(cp.cuda.device.get_cusparse_handle()),
            "nccl": None if nccl is None else nccl.version(),
        }
        return {"cupy": cp.__version__, **{k: str(v) for k, v in numbers.items() if v is not None}}

    def network(self) -> Network | None:
        """None where CuPy finds no NCCL."""
        from gcnmpi.kernels.cuda import nccl as nccl_

        return nccl_ if nccl_.AVAILABLE else None

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
        """cuBLAS's default mathematics: float32 is not rounded to TF32."""
        a, b = a.T if ta else a, b.T if tb else b
        if not _by_rows(out):
            a, b, out = b.T, a.T, out.T
        (rows, inner), columns = a.shape, b.shape[1]
        if not out.size:
            return
        if not inner:
            if not accumulate:
                out.fill(0)
            return
        multiply = self._dense if self._repeated is None else self._repeated.products
        # cuBLAS counts by columns, so it is asked for outᵀ = op(b)ᵀ · op(a)ᵀ.
        multiply(
            cp.cuda.device.get_cublas_handle(), _operation(b), _operation(a), columns, rows, inner,
            self._addresses[1], b.data.ptr, _apart(b), a.data.ptr, _apart(a),
            self._addresses[int(accumulate)], out.data.ptr, _apart(out),
        )  # fmt: skip

    def row_keys(self, seed: int, epoch: int, layer: int, vertices: np.ndarray) -> Array:
        """Made on the device, where a graph finds another number of the epoch each time."""
        keys = cp.empty(len(vertices), np.uint64)
        read = None if self._repeated is None else self._repeated.epoch()
        self._launch("make_row_keys", len(keys), 1, vertices, seed, epoch, read, layer, keys)
        return keys

    def dropout(
        self, x: Array, rows: Array, columns: Array | np.ndarray, p: float, out: Array
    ) -> None:
        limit, scale = rng.threshold(p), 1 / (1 - p)
        self._launch("dropout", *x.shape, x, rows, columns, limit, scale, out)

    # Rows, and messages of them in fewer bits: :mod:`gcnmpi.kernels.cuda.text.messages`.

    def take_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        self._launch("take_rows", *out.shape, x, rows, out)

    def put_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        self._launch("put_rows", *x.shape, x, rows, out)

    def empty_bytes(self, rows: int, columns: int) -> Array:
        return cp.empty((rows, columns), np.uint8)

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Array | None, out: Array
    ) -> None:
        number = _FORMATS[precision]
        if FORMATS[precision].scale_bytes:
            self._launch_rows("encode_scales", x, number, out, out.shape[1])
        columns = None if rows is None else columns
        self._launch("encode_numbers", *x.shape, x, number, rows, columns, out, out.shape[1])

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        row_bytes, number = message.shape[1], _FORMATS[precision]
        self._launch("decode_numbers", *out.shape, message, row_bytes, number, out)

    # Softmax, one row at a time.

    def row_max(self, x: Array) -> Array:
        out = self.empty(len(x), 1)
        self._launch_rows("row_max", x, -np.inf, out)
        return out

    def row_argmax(self, x: Array) -> Array:
        out = cp.empty(len(x), np.int64)
        self._launch_rows("row_argmax", x, out)
        return out

    def exp_shifted(self, x: Array, shift: Array, out: Array) -> Array:
        sums = self.empty(len(x), 1)
        self._launch_rows("exp_shifted", x, shift, out, sums)
        return sums

    def log_sum(self, x: Array) -> float:
        return float(cp.asnumpy(self._partial_sums(x, logarithms=True)).sum())

    def total(self, x: Array) -> float:
        return float(cp.asnumpy(self._partial_sums(x, logarithms=False)).sum())

    def pick(self, x: Array, columns: np.ndarray, first: int = 0) -> Array:
        out = self.empty(len(x), 1)
        self._launch("pick", len(x), 1, x, x.shape[1], columns, first, out)
        return out

    def softmax_backward(
        self, exponentials: Array, sums: Array, rows: np.ndarray, columns: np.ndarray, scale: float
    ) -> None:
        self._launch("normalise_rows", *exponentials.shape, exponentials, sums, scale)
        self._launch("subtract_at", len(rows), 1, exponentials, rows, columns, scale)

    # In one pass over the logits; nobody waits for the numbers.

    def softmax_cross_entropy(
        self, logits: Array, labels: np.ndarray, scale: float, grad: Array
    ) -> DeviceNumber:
        """Two launches, for which nobody waits."""
        width = logits.shape[1]
        if width not in self._plain:
            self._plain[width] = self.empty(width), self.empty(width)
            for array, value in zip(self._plain[width], (1, 0), strict=True):
                array.fill(value)
        loss = ClassLoss(labels, *self._plain[width], 0.0)
        return self.weighted_cross_entropy(logits, loss, scale, grad)

    def weighted_cross_entropy(
        self, logits: Array, loss: ClassLoss[Array], scale: float, grad: Array
    ) -> DeviceNumber:
        factors = loss.right, loss.spread, loss.total
        of = logits, logits.shape[1], loss.labels, *factors, scale
        return self._summed("softmax_cross_entropy", _blocks(len(logits)), of, grad)

    def entry_losses(
        self, logits: Array, labels: np.ndarray, loss: EntryLoss, scale: float, grad: Array
    ) -> DeviceNumber:
        of = logits, labels, loss.weights, ENTRY_LOSSES.index(loss.kind), loss.delta, scale
        blocks = max(1, min(BLOCKS, -(-logits.size // THREADS)))
        return self._summed("entry_losses", blocks, of, grad)

    def count_right(self, logits: Array, labels: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """One launch, and one copy."""
        rows, width = logits.shape
        if not rows:
            return np.zeros(COUNTS)
        counts = cp.empty((_blocks(rows), COUNTS), np.int64)
        of = logits, width, labels, masks, counts, rows, width
        self._start("count_right", (_blocks(rows), 1), (THREADS, 1), *of)
        return cp.asnumpy(counts).sum(axis=0).astype(np.float64)

    def _summed(self, name: str, blocks: int, of: tuple[Given, ...], grad: Array) -> DeviceNumber:
        """The sum over the blocks of a loss, for which nobody waits."""
        losses, total = cp.empty((blocks,), np.float64), cp.empty((1,), np.float64)
        self._start(name, (blocks, 1), (THREADS, 1), *of, grad, losses, *grad.shape)
        self._add_all(losses, total)
        return DeviceNumber(total)

    # Optimizer steps, on flat arrays.

    def sgd_step(
        self, param: Array, grad: Array, velocity: Array | None, lr: float, mu: float
    ) -> None:
        self._launch("sgd_step", len(param), 1, param, grad, velocity, lr, mu)

    def adam_step(self, of: AdamStep[Array]) -> None:
        beta1, beta2 = of.betas
        arrays, factors = (of.param, of.grad, *of.moments), (beta1, 1 - beta1, beta2, 1 - beta2)
        numbers = of.lr / (1 - beta1**of.step), np.sqrt(1 - beta2**of.step), of.eps
        self._launch("adam_step", len(of.param), 1, *arrays, *factors, *numbers)

    def shorten(self, gradient: Array, longest: float, tiny: float) -> None:
        """Three launches, for which nobody waits."""
        squares, column = cp.empty((1,), np.float64), gradient.reshape((-1, 1))
        self.dot_to(column, column, squares)
        self._launch("shorten", len(gradient), 1, gradient, squares, longest, tiny)


def _blocks(rows: int) -> int:
    return max(1, min(BLOCKS, -(-rows // (THREADS // LANES))))


def _by_rows(x: Array) -> bool:
    """Whether the numbers of a row follow each other (otherwise, those of a column do)."""
    return x.shape[1] == 1 or x.strides[1] == x.itemsize


def _operation(x: Array) -> int:
    return cublas.CUBLAS_OP_N if _by_rows(x) else cublas.CUBLAS_OP_T


def _apart(x: Array) -> int:
    """Numbers from one row to the next, or from column to column."""
    (rows, columns), (down, right) = x.shape, x.strides
    if _by_rows(x):
        return down // x.itemsize if rows > 1 else columns
    return right // x.itemsize if columns > 1 else rows


if TYPE_CHECKING:  # mypy says what differs
    _kernel: KernelOf[Array, DeviceMatrix, DevicePattern] = CupyKernel(np.float32, 1)
