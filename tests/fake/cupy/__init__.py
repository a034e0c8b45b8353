"""As much of CuPy as the GPU kernel uses, on the host, for tests without a GPU.

Put ``tests/fake`` on PYTHONPATH and ``import cupy`` finds this. Three things are as on a device:

* Arrays are not NumPy's: nothing on the host can read them, except by ``get`` and ``asnumpy``; MPI
  can only if FAKE_CUDA_AWARE is set.
* Work is queued. That of the first stream is done when somebody waits, that of other streams at
  once, or with FAKE_STREAMS=late when somebody waits too; each waits for others by events only. So
  what reads a result too early, or overwrites a source too early, finds the wrong numbers.
* CUDA source runs as it is, compiled as C++, a thread after the other: see ``compiled``.
"""

import os

import numpy as np

from cupy import cuda
from cupy.compiled import RawModule
from cupy.queue import begin, keep, main

__all__ = ["RawModule", "asarray", "asnumpy", "copyto", "cuda", "empty", "ndarray", "zeros"]

__version__ = "14.2.0"  # the one that it was compared with
int8 = np.int8


class Memory:
    def __init__(self, ptr):
        self.ptr = ptr


class ndarray:
    def __init__(self, host):
        self._host = host

    def __del__(self):
        keep(self._host)  # until all is done that may still take it by its address

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    size = property(lambda self: self._host.size)
    T = property(lambda self: ndarray(self._host.T))
    data = property(lambda self: Memory(self._host.ctypes.data))

    def __len__(self):
        return len(self._host)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __getattr__(self, name):
        if name == "__cuda_array_interface__" and os.environ.get("FAKE_CUDA_AWARE"):
            return {**self._host.__array_interface__, "version": 3, "stream": None}
        raise AttributeError(name)

    def __getitem__(self, key):
        assert not isinstance(key, np.ndarray), "indices are on the host"
        return ndarray(self._host[key])

    def __setitem__(self, key, value):
        begin(lambda: self._host.__setitem__(key, _host(value)))

    def __mul__(self, other):
        if os.environ.get("FAKE_NVRTC") == "no headers":
            raise RuntimeError('cannot open source file "cuda_fp16.h"\nand more lines')
        out = empty(self.shape, self.dtype)
        begin(lambda: np.multiply(self._host, _host(other), out=out._host))
        return out

    def __iadd__(self, other):
        begin(lambda: np.add(self._host, _host(other), out=self._host))
        return self

    def __isub__(self, other):
        begin(lambda: np.subtract(self._host, _host(other), out=self._host))
        return self

    def reshape(self, *shape):
        view = self._host.reshape(*shape)
        assert np.may_share_memory(view, self._host) or not self.size
        return ndarray(view)

    def fill(self, value):
        begin(lambda: self._host.fill(value))

    def get(self, stream=None, order="C", out=None, blocking=True):
        queue = main if stream is None else stream.queue
        if out is None:
            out = np.empty(self.shape, self.dtype)
        assert out.shape == self.shape
        assert out.dtype == self.dtype
        assert self._host.flags.c_contiguous or blocking, "it would be copied before"
        begin(lambda: np.copyto(out, self._host), queue, "copies")
        if blocking:
            queue.wait()
        return out

    def set(self, arr, stream=None):
        assert isinstance(arr, np.ndarray)
        assert self._host.flags.c_contiguous
        assert arr.shape == self.shape
        assert arr.dtype == self.dtype
        queue = main if stream is None else stream.queue
        begin(lambda: np.copyto(self._host, arr), queue, "copies")


def _host(value):
    return value._host if isinstance(value, ndarray) else value


def empty(shape, dtype):
    host = np.empty(shape, dtype)
    if host.dtype.kind == "f":
        host.fill(np.nan)  # nobody relies on what is there
    return ndarray(host)


def zeros(shape, dtype):
    return ndarray(np.zeros(shape, dtype))


def asarray(host):
    return ndarray(np.array(host))


def asnumpy(array):
    return array.get() if isinstance(array, ndarray) else array


def copyto(out, x, casting):
    assert np.can_cast(x.dtype, out.dtype, casting)
    assert out.shape == x.shape
    begin(lambda: np.copyto(out._host, x._host, casting=casting))
