"""As much of CuPy as the GPU kernel uses, on the host, for tests without a GPU.

Put ``tests/fake`` on PYTHONPATH and ``import cupy`` finds this. Three things are as on a device:

* Arrays are not NumPy's: nothing on the host can read them, except by ``get`` and ``asnumpy``; MPI
  can only if FAKE_CUDA_AWARE is set.
* Work is queued. That of the first stream is done when somebody waits, that of other streams at
  once, or with FAKE_STREAMS=late when somebody waits too; each waits for others by events only. So
  work that reads a result too early, or overwrites a source too early, gives wrong numbers.
* CUDA source runs as it is, compiled as C++, on an emulator of threads: see ``compiled``.

Work on a captured stream is not done but kept, for a graph that does it: see ``queue``.
"""

import os
from functools import partialmethod

import numpy as np

from cupy import cuda
from cupy.compiled import RawModule
from cupy.emulator import POISON
from cupy.queue import begin, keep

__all__ = ["RawModule", "asarray", "asnumpy", "copyto", "cuda", "empty", "ndarray", "zeros"]

__version__ = "14.2.0"  # the one that it was compared with
int8 = np.int8


class Memory:
    def __init__(self, ptr):
        self.ptr = ptr


class ndarray:
    def __init__(self, host, lease=None):
        self._host, self._lease = host, lease

    def __del__(self):
        if self._lease is None:  # a pool has its memory in any case
            keep(self._host)  # until all is done that may still take it by its address

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    size = property(lambda self: self._host.size)
    T = property(lambda self: ndarray(self._host.T, self._lease))
    data = property(lambda self: Memory(self._host.ctypes.data))

    def __len__(self):
        return len(self._host)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, function, method, *given, out=None):
        """NumPy's functions of these arrays, as CuPy has them; perhaps into one of them."""
        hosts = [_host(value) for value in given]
        kinds = [host.dtype if isinstance(host, np.ndarray) else type(host) for host in hosts]
        if out is None:
            shape = np.broadcast_shapes(*map(np.shape, hosts))
            out = (_allocated(shape, function.resolve_dtypes((*kinds, None))[-1]),)
        (out,) = out
        result = out._host
        begin(lambda: function(*hosts, out=result))
        return out

    def __getattr__(self, name):
        if name == "__cuda_array_interface__" and os.environ.get("FAKE_CUDA_AWARE"):
            return {**self._host.__array_interface__, "version": 3, "stream": None}
        raise AttributeError(name)

    def __getitem__(self, key):
        assert not isinstance(key, np.ndarray), "indices are on the host"
        return ndarray(self._host[key], self._lease)

    def __setitem__(self, key, value):
        mine, other = self._host, _host(value)
        begin(lambda: mine.__setitem__(key, other))

    def _made(self, function, other, turned=False):
        x, y = (other, self) if turned else (self, other)
        return self.__array_ufunc__(function, "__call__", x, y)

    def _changed(self, function, other):
        mine, other = self._host, _host(other)
        begin(lambda: function(mine, other, out=mine))
        return self

    __add__ = partialmethod(_made, np.add)
    __rsub__ = partialmethod(_made, np.subtract, turned=True)
    __truediv__ = partialmethod(_made, np.true_divide)
    __rtruediv__ = partialmethod(_made, np.true_divide, turned=True)
    __pow__ = partialmethod(_made, np.power)
    __lt__ = partialmethod(_made, np.less)
    __iadd__ = partialmethod(_changed, np.add)
    __isub__ = partialmethod(_changed, np.subtract)
    __imul__ = partialmethod(_changed, np.multiply)

    def __mul__(self, other):
        if os.environ.get("FAKE_NVRTC") == "no headers":
            raise RuntimeError('cannot open source file "cuda_fp16.h"\nand more lines')
        return self._made(np.multiply, other)

    def clip(self, low):
        return self._made(np.maximum, low)

    def reshape(self, *shape):
        view = self._host.reshape(*shape)
        assert np.may_share_memory(view, self._host) or not self.size
        return ndarray(view, self._lease)

    def view(self, dtype=None):
        host = self._host.view() if dtype is None else self._host.view(dtype)
        return ndarray(host, self._lease)

    def fill(self, value):
        mine = self._host
        begin(lambda: mine.fill(value))

    def get(self, stream=None, order="C", out=None, blocking=True):
        queue = (cuda.get_current_stream() if stream is None else stream).queue
        if out is None:
            out = np.empty(self.shape, self.dtype)
        assert out.shape == self.shape
        assert out.dtype == self.dtype
        assert self._host.flags.c_contiguous or blocking, "it would be copied before"
        mine = self._host
        begin(lambda: np.copyto(out, mine), queue, "copies")
        if blocking:
            queue.wait()
        return out

    def set(self, arr, stream=None):
        assert isinstance(arr, np.ndarray)
        assert self._host.flags.c_contiguous
        assert arr.shape == self.shape
        assert arr.dtype == self.dtype
        queue, mine = (cuda.get_current_stream() if stream is None else stream).queue, self._host
        begin(lambda: np.copyto(mine, arr), queue, "copies")


def _host(value):
    return value._host if isinstance(value, ndarray) else value


def empty(shape, dtype):
    out = _allocated(shape, dtype)
    words = np.uint32 if out.itemsize >= 4 else np.uint8
    _fill(ndarray(out._host.reshape(-1).view(words), out._lease), POISON & np.iinfo(words).max)
    return out


def zeros(shape, dtype):
    out = _allocated(shape, dtype)
    _fill(out, 0)
    return out


def _allocated(shape, dtype):
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    lease = cuda._leased(max(1, size))
    if lease is None:
        return ndarray(np.empty(shape, dtype))
    return ndarray(lease.block[:size].view(dtype).reshape(shape), lease)


def _fill(out, value):
    """At once, but memory of a pool when its last user is done."""
    mine = out._host
    if out._lease is None:
        mine.fill(value)
    else:
        begin(lambda: mine.fill(value), kind=None)


def asarray(host):
    """Through page-locked memory of its own: nobody waits."""
    out = _allocated(host.shape, host.dtype)
    if out.size:
        out.set(np.array(host))
    return out


def asnumpy(array):
    return array.get() if isinstance(array, ndarray) else array


def copyto(out, x, casting):
    assert np.can_cast(x.dtype, out.dtype, casting)
    assert out.shape == x.shape
    source, target = x._host, out._host
    begin(lambda: np.copyto(target, source, casting=casting))
