"""A device "gpu" for PyTorch without one: its tensors are on the host, beside the stand-in of CuPy.

Import it before tensors are made on ``device="gpu"``. As on a device, tensors of it and of the host
do not meet in an operation, and no NumPy function reads them. An operation of PyTorch comes after
all work of the stand-in's first stream that was begun before, as on one stream, and nobody waits
for that. Where PyTorch would wait for a device, ``counts`` of the stand-in counts it: numbers that
go to the host, copies, and masks that choose rows.

:class:`Gpu` is where :mod:`gcnmpi.torch` finds it: it stands for ``gcnmpi.torch.cuda``.
"""

import cupy
import numpy as np
import torch
from cupy.queue import counts, main
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from gcnmpi.torch.memory import MEMORIES

_setup_privateuseone_for_python_backend("gpu")
GPU, HOST = torch.device("gpu", 0), torch.device("cpu")
_aten = torch.ops.aten
_MAY_MEET = {_aten._to_copy.default, _aten.copy_.default}
_WAITS = {_aten._local_scalar_dense.default, _aten.nonzero.default, _aten.equal.default}


class Tensor(torch.Tensor):
    """A tensor of the device, whose numbers are in ``host``."""

    @staticmethod
    def __new__(cls, host):
        strides, offset = host.stride(), host.storage_offset()
        return torch.Tensor._make_wrapper_subclass(
            cls, host.shape, strides=strides, storage_offset=offset, dtype=host.dtype, device=GPU
        )

    def __init__(self, host):
        self.host = host

    def __repr__(self):
        return f"{self.host!r} on {GPU}"

    def numpy(self, **_):
        raise TypeError("can't convert gpu:0 device type tensor to numpy")

    def tolist(self):
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol):
        """In files it is what a loader gives that maps devices to the host."""
        return self.cpu().__reduce_ex__(protocol)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        main.run_until(main._begun)
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        here = {id(one.host): one for one in tensors if isinstance(one, Tensor)}
        others = [one for one in tensors if not isinstance(one, Tensor) and one.ndim]
        if here and others and function not in _MAY_MEET:
            raise RuntimeError(f"{function}: tensors are not all on one device")
        goes_to = torch.device(kwargs.get("device") or (GPU if here else HOST))
        if "device" in kwargs:
            kwargs["device"] = HOST
        copies = function in _MAY_MEET and (others or goes_to.type != GPU.type)
        masks = function is _aten.index.Tensor and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in args[1]
        )
        counts["copies"] += bool(copies)
        counts["waits"] += bool(copies or masks or function in _WAITS)
        args, kwargs = tree_map_only(Tensor, lambda one: one.host, (args, kwargs))
        out = function(*args, **kwargs)
        if function is _aten.copy_.default:
            return tensors[0]
        if goes_to.type != GPU.type:
            return out

        def of_device(host):
            return here[id(host)] if id(host) in here else Tensor(host)

        return tree_map_only(torch.Tensor, of_device, out)


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return Tensor(torch.empty(size, dtype=dtype))


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return Tensor(torch.empty_strided(size, stride, dtype=dtype))


def _to_copy(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False,
             memory_format=None):  # fmt: skip
    """Of a tensor of the host, which does not ask :class:`Tensor`."""
    counts["copies"] += 1
    counts["waits"] += 1
    return Tensor(x.to(dtype=dtype, copy=True))


_library = torch.library.Library("aten", "IMPL")
for _name, _function in (("empty.memory_format", _empty), ("empty_strided", _empty_strided)):
    _library.impl(_name, _function, "PrivateUse1")


class Gpu:
    """Tensors of the device and arrays of the stand-in in one memory."""

    kernel = "cupy"

    def __init__(self):
        self.device = GPU
        torch.autograd.set_multithreading_enabled(False)

    @staticmethod
    def check(device):
        """The device is always there."""

    def array(self, tensor):
        return cupy.ndarray(tensor.detach().contiguous().host.numpy())

    def tensor(self, array):
        kept = array._host.view(_Kept)
        kept.array = array
        return Tensor(torch.from_numpy(kept))


class _Kept(np.ndarray):
    """Memory that keeps the array that it belongs to."""


MEMORIES.entries["gpu"] = "torch_gpu:Gpu"
