"""Dense products of cuBLAS that become part of a CUDA graph.

cuBLAS can be captured, but CuPy refuses to call it while a stream is. So its library, which CuPy
has loaded, is called with CuPy's handle.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import cupy as cp
import numpy as np

_LIBRARIES = ("libcublas.so.13", "libcublas.so.12")  # of CUDA 13, and of CUDA 12
_HOPPER = 9  # from this architecture on, cuBLAS takes the larger workspace
_SMALL, _LARGE = 4 << 20, 32 << 20  # bytes, as cuBLAS takes by itself


class CapturedProducts:
    """Products on one stream, with memory that a graph may use for as long as this lives.

    cuBLAS would else allocate within the graph. The workspace has the size of cuBLAS's own, on
    which the choice of an algorithm may depend: so the bits are those of products elsewhere.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    stream : stream
        The one that is captured.

    Raises
    ------
    RuntimeError
        If the library is not found.
    """

    def __init__(self, dtype: np.dtype, stream: Any) -> None:
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
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name, os.RTLD_NOLOAD)
        except OSError:
            continue
    raise RuntimeError(f"none of {', '.join(_LIBRARIES)} is loaded")


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS failed: status {status}")
