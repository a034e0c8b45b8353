"""Products of matrices that are counted by columns, at addresses.

CuPy calls the library on the stream in use, and never while that is captured. The library itself is
there too, for those who call it without CuPy: ``library``.
"""

import ctypes

import numpy as np
from cupy.queue import begin, current

from cupy_backends.cuda.libs import library

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1


def getVersion(handle):
    return 120905


def sgemm(handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    _gemm(np.float32, handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)


def dgemm(handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    _gemm(np.float64, handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)


def _gemm(dtype, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    if current[-1].captured is not None:
        said = "calling cuBLAS API during stream capture is currently unsupported"
        raise NotImplementedError(said)
    _begin(dtype, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, current[-1])


def _begin(dtype, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, queue):
    assert handle == 1
    assert min(m, n, k) > 0
    alpha, beta = (_at(scalar, 1, dtype)[0] for scalar in (alpha, beta))
    left = _columns(a, *((k, m) if ta else (m, k)), lda, dtype)
    right = _columns(b, *((n, k) if tb else (k, n)), ldb, dtype)
    out = _columns(c, m, n, ldc, dtype)

    def run():
        product = alpha * ((left.T if ta else left) @ (right.T if tb else right))
        out[...] = product if beta == 0 else product + beta * out

    begin(run, queue)


def _columns(address, rows, columns, apart, dtype):
    assert apart >= rows
    memory = _at(address, apart * (columns - 1) + rows, dtype)
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (size, apart * size))


def _at(address, count, dtype):
    memory = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


library.serve(_begin)
