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
        """Send own rows to the halos of other ranks, and receive one's own."""
        ctx.moves = moves
        return moves.expand(h)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Fold the gradient of own and halo rows."""
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
        """Expand the gradient of own rows."""
        return Expand.apply(grad, ctx.moves), None


class Aggregate(torch.autograd.Function):
    """The product M·h, or Mᵀ·h, of own rows."""

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
    """The sum over all ranks, divided by the number of rows that are summed."""

    @staticmethod
    @eager
    def forward(ctx: Any, total: torch.Tensor, of_all: float, count: float) -> torch.Tensor:
        """``of_all`` is the sum over ranks of ``total``."""
        ctx.count = count
        return total.new_tensor(of_all / count)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Of this rank's total: the gradient is the sum of all ranks' over these."""
        return grad / ctx.count, None, None


class Dropout(torch.autograd.Function):
    """Dropout by the hash of keys of rows and columns; it is its own gradient."""

    @staticmethod
    @eager
    def forward(
        ctx: Any, h: torch.Tensor, p: float, keys: np.ndarray, ranks: Ranks
    ) -> torch.Tensor:
        """Drop entries of h in one pass over its rows."""
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
