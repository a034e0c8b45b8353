"""One NVIDIA GPU a rank, through CuPy: cuSPARSE, cuBLAS, and the kernels of ``kernels.cuda``.

Matrices, activations, weights and the optimizer's state stay on the device. What others send and
receive goes through page-locked memory of the host, or straight to and from the device where MPI
can do that. Calls return before the device is done; what needs a result waits for it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Self

import cupy as cp
import numpy as np

from gcnmpi.core import rng
from gcnmpi.kernels import cuda
from gcnmpi.kernels.interface.kernel import KernelOf
from partition.errors import UserError, installing

try:
    from cupy_backends.cuda.libs import cublas, cusparse

    from gcnmpi.kernels.cuda.copies import CupyCopies, upload
    from gcnmpi.kernels.cuda.graphs import CupyGraphs
    from gcnmpi.kernels.cuda.loss import CupyLoss
    from gcnmpi.kernels.cuda.messages import CupyMessages
    from gcnmpi.kernels.cuda.neighbours import CupyNeighbours, DevicePattern
    from gcnmpi.kernels.cuda.norms import CupyNorms
    from gcnmpi.kernels.cuda.products import CupyProducts

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

Array = Any  # of CuPy
THREADS = 256  # in a block
WARP = 32  # threads that read memory together


class CupyKernel(
    CupyProducts, CupyLoss, CupyNeighbours, CupyNorms, CupyMessages, CupyCopies, CupyGraphs
):
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
        self, dtype: Any, threads: int = 1, direct: bool = False, spmm: str = "own"
    ) -> None:
        self.dtype, self.cusparse = np.dtype(dtype), spmm == "cusparse"
        self.threads, self.host_visible = threads, direct
        runtime, number = cp.cuda.runtime, cp.cuda.runtime.getDevice()
        self.device = runtime.getDeviceProperties(number)["name"].decode()
        self.device_address = runtime.deviceGetPCIBusId(number)
        self._indices: dict[tuple[int, str], tuple[weakref.ref, Array]] = {}
        self._partials: dict[int, Array] = {}
        self._scalars = {value: np.array(value, self.dtype) for value in (0, 1)}
        self.open_copies()
        self.open_graphs()
        try:
            module = cp.RawModule(code=cuda.source(self.dtype.name), options=("--std=c++17",))
            self._functions = {name: module.get_function(name) for name in cuda.names()}
            self._probe()
        except Exception as error:  # CuPy and CUDA raise errors of many kinds
            said = str(error).strip().split("\n")[0] or type(error).__name__
            raise UserError(
                f"kernel 'cupy' compiles or runs nothing on {self.device}: {said}",
                "NVRTC and CUDA's headers have to be those of CuPy's CUDA: load your cluster's "
                "CUDA module, or pip install 'cupy-cuda12x[ctk]'; see docs/gpu.md",
            ) from error

    @classmethod
    def for_rank(cls, dtype: Any, threads: int, place: int, direct: bool, spmm: str) -> Self:
        """GPUs are dealt to the ranks of a node in turn."""
        cp.cuda.Device(place % DEVICES).use()
        return cls(dtype, threads, direct, spmm)

    def _probe(self) -> None:
        """Launch a kernel of ours and one of CuPy's, which needs CUDA's headers to be compiled."""
        x = self.zeros(1, 1)
        self.relu(x)
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

    def network(self) -> Any:
        """None where CuPy finds no NCCL."""
        from gcnmpi.kernels.cuda import nccl as nccl_

        return nccl_ if nccl_.AVAILABLE else None

    # Memory.

    def empty(self, *shape: int) -> Array:
        return cp.empty(shape, self.dtype)

    def empty_integers(self, *shape: int) -> Array:
        return cp.empty(shape, np.int32)

    def empty_columnwise(self, rows: int, columns: int) -> Array:
        return cp.empty((columns, rows), self.dtype).T

    def zeros(self, *shape: int) -> Array:
        return cp.zeros(shape, self.dtype)

    def from_host(self, array: np.ndarray) -> Array:
        return upload(array, self.dtype if array.dtype.kind == "f" else array.dtype)

    def from_host64(self, array: np.ndarray) -> Array:
        return upload(array, np.dtype(np.float64))

    def to_host(self, array: Array) -> np.ndarray:
        return cp.asnumpy(array)

    def copy(self, x: Array, out: Array) -> None:
        cp.copyto(out, x, casting="same_kind")

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
        multiply = {"float32": cublas.sgemm, "float64": cublas.dgemm}[self.dtype.name]
        if self._repeated is not None:
            multiply = self._repeated.products
        # cuBLAS counts by columns, so it is asked for outᵀ = op(b)ᵀ · op(a)ᵀ.
        multiply(
            cp.cuda.device.get_cublas_handle(), _operation(b), _operation(a), columns, rows, inner,
            self._scalars[1].ctypes.data, b.data.ptr, _apart(b), a.data.ptr, _apart(a),
            self._scalars[int(accumulate)].ctypes.data, out.data.ptr, _apart(out),
        )  # fmt: skip

    def column_sum(self, x: Array, out: Array) -> None:
        """In an order that depends on the shape only."""
        self._add_partials(self._partial_sums(x, logarithms=False), out)

    def row_keys(self, seed: int, epoch: int, layer: int, vertices: np.ndarray) -> Array:
        """Made on the device, where a graph finds another number of the epoch each time."""
        keys, number = cp.empty(len(vertices), np.uint64), np.uint64(epoch)
        read = keys if self._repeated is None else self._repeated.epoch()
        of = np.uint64(seed), number, np.int64(read is not keys), read, np.uint64(layer), keys
        self._launch("make_row_keys", len(keys), 1, self._resident(vertices, "u8"), *of)
        return keys

    def dropout(self, x: Array, rows: Any, columns: Any, p: float, out: Array) -> None:
        keys = self._resident(rows, "u8"), self._resident(columns, "u4")
        limit, scale = rng.threshold(p), self.dtype.type(1 / (1 - p))
        self._launch("dropout", *x.shape, *_matrix(x), *keys, limit, scale, *_matrix(out))

    # Rows.

    def take_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        taken = self._resident(rows, "i8")
        self._launch("take_rows", *out.shape, *_matrix(x), taken, *_matrix(out))

    def put_rows(self, x: Array, rows: np.ndarray, out: Array) -> None:
        put = self._resident(rows, "i8")
        self._launch("put_rows", *x.shape, *_matrix(x), put, *_matrix(out))

    # Softmax, one row at a time.

    def row_max(self, x: Array) -> Array:
        out = self.empty(len(x), 1)
        lowest = self.dtype.type(-np.inf)
        self._launch("row_max", len(x), 1, *_matrix(x), _width(x), lowest, out)
        return out

    def row_argmax(self, x: Array) -> Array:
        out = cp.empty(len(x), np.int64)
        self._launch("row_argmax", len(x), 1, *_matrix(x), _width(x), out)
        return out

    def exp_shifted(self, x: Array, shift: Array, out: Array) -> Array:
        sums = self.empty(len(x), 1)
        self._launch("exp_shifted", len(x), 1, *_matrix(x), _width(x), shift, *_matrix(out), sums)
        return sums

    def log_sum(self, x: Array) -> float:
        return float(cp.asnumpy(self._partial_sums(x, logarithms=True)).sum())

    def total(self, x: Array) -> float:
        return float(cp.asnumpy(self._partial_sums(x, logarithms=False)).sum())

    def pick(self, x: Array, columns: np.ndarray, first: int = 0) -> Array:
        out = self.empty(len(x), 1)
        places = self._resident(columns, "i8")
        self._launch("pick", len(x), 1, *_matrix(x), _width(x), places, np.int64(first), out)
        return out

    def softmax_backward(
        self, exponentials: Array, sums: Array, rows: np.ndarray, columns: np.ndarray, scale: float
    ) -> None:
        x, number = _matrix(exponentials), self.dtype.type(scale)
        self._launch("normalise_rows", *exponentials.shape, *x, sums, number)
        places = self._resident(rows, "i8"), self._resident(columns, "i8")
        self._launch("subtract_at", len(rows), 1, *x, *places, number)

    # Optimizer steps, on flat arrays.

    def sgd_step(
        self, param: Array, grad: Array, velocity: Array | None, lr: float, mu: float
    ) -> None:
        has_velocity, number = np.int64(velocity is not None), self.dtype.type
        state = grad if velocity is None else velocity
        self._launch(
            "sgd_step", len(param), 1, param, grad, state, has_velocity, number(lr), np.float64(mu)
        )

    def adam_step(
        self,
        param: Array,
        grad: Array,
        moments: tuple[Array, Array],
        lr: float,
        betas: tuple[float, ...],
        eps: float,
        step: int,
    ) -> None:
        beta1, beta2 = betas
        size, correction = lr / (1 - beta1**step), np.sqrt(1 - beta2**step)
        factors = map(np.float64, (beta1, 1 - beta1, beta2, 1 - beta2))
        numbers = map(self.dtype.type, (size, correction, eps))
        self._launch("adam_step", len(param), 1, param, grad, *moments, *factors, *numbers)

    def shorten(self, gradient: Array, longest: float, tiny: float) -> None:
        """Three launches, for which nobody waits."""
        squares, column = cp.empty((1,), np.float64), gradient.reshape((-1, 1))
        self.dot_to(column, column, squares)
        numbers = np.float64(longest), np.float64(tiny)
        self._launch("shorten", len(gradient), 1, gradient, squares, *numbers)

    def _launch(self, name: str, rows: int, columns: int, *arguments: Any) -> None:
        """Start a kernel with a thread for each of rows × columns."""
        if rows and columns:
            width = min(WARP, 1 << (columns - 1).bit_length())
            height = THREADS // width
            grid = (-(-rows // height), -(-columns // width))
            sizes = (np.int64(rows), np.int64(columns))
            self._functions[name](grid, (width, height), (*arguments, *sizes))

    def _partial_sums(self, x: Array, logarithms: bool) -> Array:
        rows, width = x.shape
        partial = self._partial_array(width)
        arguments = (*_matrix(x), np.int64(logarithms), np.int64(rows), partial)
        self._launch("partial_sums", cuda.PARTIALS, width, *arguments)
        return partial

    def _partial_array(self, width: int) -> Array:
        if width not in self._partials:
            self._partials[width] = cp.empty((cuda.PARTIALS, width), np.float64)
        return self._partials[width]

    def _add_partials(self, partial: Array, out: Array) -> None:
        """out = the sums of the columns of ``partial``, in the kernel's dtype or in float64."""
        width = partial.shape[1]
        stride = np.int64(out.strides[0] // out.itemsize) if width else 0
        sizes = np.int64(cuda.PARTIALS), np.int64(width)
        name = "add_partial_sums" if out.dtype == self.dtype else "add_partial_sums_64"
        self._launch(name, width, 1, partial, *sizes, out, stride)

    def _resident(self, array: Any, kind: str) -> Array:
        """An index array on the device, where it stays for as long as the host's one lives.

        Whoever hands an index array to a kernel does not change it afterwards.
        """
        if not isinstance(array, np.ndarray):
            return array
        indices, key = self._indices, (id(array), kind)
        if key not in indices:
            reference = weakref.ref(array, lambda _: indices.pop(key, None))
            indices[key] = reference, upload(array, np.dtype(kind))
        return indices[key][1]


def _matrix(x: Array) -> tuple[Array, np.int64, np.int64]:
    """A matrix as the CUDA source takes it: where it begins, and its strides."""
    return x, np.int64(x.strides[0] // x.itemsize), np.int64(x.strides[1] // x.itemsize)


def _width(x: Array) -> np.int64:
    return np.int64(x.shape[1])


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
    _kernel: KernelOf[Array, Any, DevicePattern] = CupyKernel(np.float32, 1)
