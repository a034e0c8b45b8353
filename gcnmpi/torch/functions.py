"""The functions of autograd. All but that of the batch norm are linear: gradients of any order."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp
import torch

from gcnmpi.core import rng
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.torch.ranks import Ranks

P = ParamSpec("P")
T = TypeVar("T")


def eager(function: Callable[P, T]) -> Callable[P, T]:
    """A function that a compiled one calls, with all that it calls, and does not trace.

    Messages and arrays of NumPy cannot be traced. It is ``torch.compiler.disable``, which loads
    the compiler, from the moment on that somebody else has loaded it.
    """
    disabled: list[Callable[P, T]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    # The compiler counts how often it meets a code object, and gives up on one of many functions.
    call.__code__ = call.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return call


Map = Callable[[torch.Tensor], torch.Tensor]


class Linear(torch.autograd.Function):
    """A linear map and its adjoint, of which each gives the gradient of the other."""

    @staticmethod
    @eager
    def forward(ctx: Any, x: torch.Tensor, forth: Map, back: Map) -> torch.Tensor:
        """The map of x, such as an expand, a product with M or a dropout."""
        ctx.maps = forth, back
        return forth(x)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The adjoint of the map: a fold, a product with the transpose, the same dropout."""
        forth, back = ctx.maps
        return Linear.apply(grad, back, forth), None, None


class Mean(torch.autograd.Function):
    """The sum over all ranks, divided by the number of rows that are summed."""

    @staticmethod
    @eager
    def forward(
        ctx: Any, total: torch.Tensor, of_all: torch.Tensor, count: float, add: Map
    ) -> torch.Tensor:
        """``of_all`` is the sum over ranks of ``total``, as ``add`` would find it."""
        ctx.count, ctx.add = count, add
        return of_all / count

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Of this rank's total. All ranks take this gradient, so its adjoint is the mean again."""
        count, add = ctx.count, ctx.add
        return Linear.apply(grad, lambda g: g / count, lambda g: add(g) / count), None, None, None


def linear(ranks: Ranks, h: torch.Tensor, forth: Map, back: Map) -> torch.Tensor:
    """A linear map of rows of any shape, which is given and gives matrices of the graph's dtype."""
    out = Linear.apply(_as_matrix(ranks.taken(h)), forth, back)
    return out.reshape((len(out), *h.shape[1:])).to(h.dtype)  # type: ignore[no-any-return]


def edges(matrix: sp.csr_array) -> torch.Tensor:
    """(2, entries) int64: column and row of each entry, in the order of the matrix."""
    both = torch.empty((2, matrix.nnz), dtype=torch.int64)
    both[0] = torch.from_numpy(matrix.indices)
    lengths = torch.from_numpy(np.diff(matrix.indptr).astype(np.int64))
    both[1] = torch.repeat_interleave(lengths)
    return both


def _as_matrix(h: torch.Tensor) -> torch.Tensor:
    """Rows of any shape as a tensor of two dimensions."""
    return h.unsqueeze(1) if h.ndim == 1 else h.flatten(1)


def dropout(ranks: Ranks, h: torch.Tensor, p: float, keys: Array) -> torch.Tensor:
    """Dropout by the hash of keys of rows, (rows,) uint64, and of columns; its own adjoint."""
    array = ranks.memory.array

    def drop(h: torch.Tensor) -> torch.Tensor:
        columns = rng.column_keys(np.arange(h.shape[1]))
        out = h.new_empty(h.shape)
        ranks.kernel.dropout(array(h), keys, columns, p, array(out))
        return out

    return linear(ranks, h, drop, drop)


def check_probability(p: float) -> None:
    """Raise a ValueError unless it is one of dropout."""
    if not 0 <= p < 1:
        raise ValueError(f"the probability of dropout is at least 0 and below 1, not {p}")
