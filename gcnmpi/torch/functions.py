"""The functions of autograd. All but that of the batch norm are linear: gradients of any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gcnmpi.core import rng
from gcnmpi.torch.eager import eager
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.ranks import Ranks


class Expand(torch.autograd.Function):
    """Own rows → own and halo rows."""

    @staticmethod
    @eager
    def forward(ctx: Any, h: torch.Tensor, moves: Moves) -> torch.Tensor:
        """One exchange."""
        ctx.moves = moves
        return moves.expand(h)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The fold."""
        return Fold.apply(grad, ctx.moves), None


class Fold(torch.autograd.Function):
    """The adjoint of :class:`Expand`."""

    @staticmethod
    @eager
    def forward(ctx: Any, grad: torch.Tensor, moves: Moves) -> torch.Tensor:
        """One exchange, the other way."""
        ctx.moves = moves
        return moves.fold(grad)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The expand."""
        return Expand.apply(grad, ctx.moves), None


class Aggregate(torch.autograd.Function):
    """M·h, or Mᵀ·h."""

    @staticmethod
    @eager
    def forward(ctx: Any, h: torch.Tensor, moves: Moves, transposed: bool) -> torch.Tensor:
        """One product, with its exchange."""
        ctx.moves, ctx.transposed = moves, transposed
        return moves.aggregate(h, transposed)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The product with the transpose."""
        return Aggregate.apply(grad, ctx.moves, not ctx.transposed), None, None


class Mean(torch.autograd.Function):
    """What all ranks have summed, divided by how many rows that is."""

    @staticmethod
    @eager
    def forward(ctx: Any, total: torch.Tensor, of_all: float, count: float) -> torch.Tensor:
        """``of_all`` is the sum over ranks of ``total``."""
        ctx.count = count
        return total.new_tensor(of_all / count)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Of this rank's total: what all ranks compute is the gradient, summed over ranks."""
        return grad / ctx.count, None, None


class Dropout(torch.autograd.Function):
    """Dropout by the hash of keys of rows and columns; it is its own gradient."""

    @staticmethod
    @eager
    def forward(
        ctx: Any, h: torch.Tensor, p: float, keys: np.ndarray, ranks: Ranks
    ) -> torch.Tensor:
        """One pass."""
        ctx.p, ctx.keys, ctx.ranks = p, keys, ranks
        columns = rng.column_keys(np.arange(h.shape[1]))
        out = torch.empty(h.shape, dtype=h.dtype)
        rows = h.detach().contiguous().numpy()
        ranks.kernel.dropout(rows, keys, columns, p, out.numpy())  # type: ignore[arg-type]
        return out

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The same of the gradient."""
        return Dropout.apply(grad, ctx.p, ctx.keys, ctx.ranks), None, None, None
