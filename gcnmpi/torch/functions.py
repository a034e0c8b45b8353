"""The functions of autograd. All but that of the batch norm are linear: gradients of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gcnmpi.core import rng
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.torch.eager import eager

Map = Callable[[torch.Tensor], torch.Tensor]
Sum = Callable[[list[float]], list[float]]
"""Numbers summed over all ranks."""


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
        ctx: Any, total: torch.Tensor, of_all: float, count: float, add: Sum
    ) -> torch.Tensor:
        """``of_all`` is the sum over ranks of ``total``, as ``add`` would find it."""
        ctx.count, ctx.add = count, add
        return total.new_tensor(of_all / count)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Of this rank's total. All ranks take this gradient, so its adjoint is the mean again."""
        count, add = ctx.count, ctx.add

        def mean(total: torch.Tensor) -> torch.Tensor:
            return total.new_tensor(add([float(total)])[0] / count)

        return Linear.apply(grad, lambda grad: grad / count, mean), None, None, None


def as_matrix(h: torch.Tensor) -> torch.Tensor:
    """Rows of any shape as a tensor of two dimensions."""
    return h.unsqueeze(1) if h.ndim == 1 else h.flatten(1)


def dropped(h: torch.Tensor, p: float, keys: np.ndarray, kernel: Kernel) -> torch.Tensor:
    """Dropout by the hash of keys of rows and columns; it is its own adjoint."""
    columns = rng.column_keys(np.arange(h.shape[1]))
    out = torch.empty(h.shape, dtype=h.dtype)
    kernel.dropout(h.detach().contiguous().numpy(), keys, columns, p, out.numpy())  # type: ignore[arg-type]
    return out
