"""CUDA graphs: work that is the same in each epoch, given to the device at once.

To launch a small kernel takes the host longer than the device takes to run it. A graph remembers
launches with their arguments: numbers as they were, arrays by their address. So what changes from
epoch to epoch has to be read from memory of the device, which is the number of the epoch, for the
keys of dropout; and all memory has to stay where it is: what is allocated comes from a pool that
nothing else uses and that lives as long as the graphs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import cupy as cp
import numpy as np
from cupy import ndarray as Array

from gcnmpi.kernels.cuda.copies import DeviceNumber, recorded
from partition.errors import UserError

R = TypeVar("R")

# Calls before the one that is captured. The first makes what is kept; the second finds all memory
# in the pool that it needs beside, and so will the captured one.
_WARM = 2
_HOPPER = 9  # from this architecture on, cuBLAS takes the larger workspace
_SMALL, _LARGE = 4 << 20, 32 << 20  # bytes, as cuBLAS takes by itself


class GraphStream:
    """The stream of all graphs of a kernel: they are captured, and run, one after the other.

    ``products`` are dense products on it.
    """

    def __init__(self, dtype: np.dtype) -> None:
        # The stream of all other work, CUDA's default one, cannot be captured.
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.products = CapturedProducts(dtype, self.stream)

    @contextlib.contextmanager
    def used(self, pool: cp.cuda.MemoryPool) -> Iterator[cp.cuda.Stream]:
        """Work goes to the stream, after all that was begun before, and takes memory of a pool."""
        others = cp.cuda.get_current_stream()
        self.stream.wait_event(recorded(others))
        with self.stream, cp.cuda.using_allocator(pool.malloc):
            yield self.stream
        others.wait_event(recorded(self.stream))


class CupyGraphs:
    """``repeated`` of :class:`~gcnmpi.core.arrays.Memory`, on a GPU."""

    dtype: np.dtype

    def open_graphs(self) -> None:
        """There are none yet."""
        self._graph_stream: GraphStream | None = None
        self._repeated: Repeated[Any] | None = None  # whose call is going on, and not replayed

    def repeated(self, call: Callable[[int], R]) -> Callable[[int], R]:
        """Captured in its third call, and replayed from then on."""
        if self._graph_stream is None:
            with _one_error():
                self._graph_stream = GraphStream(self.dtype)
        return Repeated(self, self._graph_stream, call)


class Repeated(Generic[R]):
    """A call that becomes a graph; its form is that of ``Memory.repeated``.

    While it is going on, ``products`` multiplies dense matrices.
    """

    def __init__(self, kernel: CupyGraphs, shared: GraphStream, call: Callable[[int], R]) -> None:
        self._kernel, self._shared, self._call = kernel, shared, call
        self.products, self._pool = shared.products, cp.cuda.MemoryPool()
        self._calls, self._number = 0, 0
        self._graph: cp.cuda.Graph | None = None
        self._result: R
        self._epoch: Array | None = None

    def __call__(self, epoch: int) -> R:
        """The result of the call; of a graph, the same array or number, with other contents."""
        self._calls += 1
        self._number = epoch
        if self._epoch is not None:
            self._epoch.fill(np.uint64(epoch))
        if self._calls <= _WARM:
            with _one_error(), self._going_on():
                return self._call(epoch)
        if self._graph is None:
            with _one_error():
                self._graph = self._capture(epoch)
                self._graph.launch()
                cp.cuda.get_current_stream().synchronize()
        else:
            self._graph.launch()
        if isinstance(self._result, DeviceNumber):
            self._result.fetch()
        return self._result

    def epoch(self) -> Array:
        """Where launches find the number of the epoch: (1,) uint64."""
        if self._epoch is None:
            self._epoch = cp.empty((1,), np.uint64)
            self._epoch.fill(np.uint64(self._number))
        return self._epoch

    def _capture(self, epoch: int) -> cp.cuda.Graph:
        with self._going_on() as stream:
            stream.begin_capture()
            try:
                self._result = self._call(epoch)
            except BaseException:
                with contextlib.suppress(Exception):  # which follow from the first one
                    stream.end_capture()
                raise
            return stream.end_capture()

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[cp.cuda.Stream]:
        with self._shared.used(self._pool) as stream:
            self._kernel._repeated = self
            try:
                yield stream
            finally:
                self._kernel._repeated = None


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    """CUDA and CuPy raise errors of many kinds."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = str(error).strip().split("\n")[0] or type(error).__name__
        message = f"an epoch cannot be made a CUDA graph: {said}"
        raise UserError(message, "set gpu.graph=no") from error


class CapturedProducts:
    """Dense products of cuBLAS on one stream, with memory that a graph may use while this lives.

    cuBLAS can be captured, but CuPy refuses to call it while a stream is. So its library, which
    CuPy has loaded, is called with CuPy's handle.

    cuBLAS would else allocate within the graph. The workspace has the size of cuBLAS's own, on
    which the choice of an algorithm may depend: so the bits are those of products elsewhere. A
    RuntimeError says that the library was not found.
    """

    def __init__(self, dtype: np.dtype, stream: cp.cuda.Stream) -> None:
        self._stream = stream
        device = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())
        size = _LARGE if device["major"] >= _HOPPER else _SMALL
        self._workspace = cp.empty((size,), np.int8)
        cp.cuda.device.get_cublas_handle()  # which loads the library
        library = _library()
        self._product = getattr(library, f"cublas{'S' if dtype == np.float32 else 'D'}gemm_v2")
        self._set_stream = library.cublasSetStream_v2
        self._set_workspace = library.cublasSetWorkspace_v2
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._product.argtypes = [
            pointer, number, number, number, number, number, pointer, pointer, number, pointer,
            number, pointer, pointer, number,
        ]  # fmt: skip
        self._set_stream.argtypes = [pointer, pointer]
        self._set_workspace.argtypes = [pointer, pointer, ctypes.c_size_t]

    def __call__(self, handle: int, *arguments: int) -> None:
        """As ``sgemm`` and ``dgemm`` of CuPy, which sets another stream in its next call."""
        workspace = self._workspace
        _check(self._set_stream(handle, self._stream.ptr))  # and the library's own workspace
        _check(self._set_workspace(handle, workspace.data.ptr, workspace.nbytes))
        _check(self._product(handle, *arguments))


def _library() -> ctypes.CDLL:
    """The cuBLAS that CuPy has loaded; PyTorch may have loaded one of another version of CUDA."""
    major = cp.cuda.runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"libcublas.so.{major}", os.RTLD_NOLOAD)


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS failed: status {status}")
