"""Batch normalisation with the moments of all rows of all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from gcnmpi.kernels.interface.norms import EQUAL, ColumnNorm
from gcnmpi.torch.eager import eager
from gcnmpi.torch.ranks import Ranks


class BatchNorm(torch.nn.Module):
    """``torch.nn.BatchNorm1d`` of a matrix whose rows are spread over ranks.

    Names of parameters and buffers, their meaning and the running moments are PyTorch's, so that a
    ``state_dict`` fits both. Moments are sums in float64 about the mean of one row of each rank, so
    that no digits cancel. A column of numbers that are equal but for rounding errors becomes the
    bias, to the bit and on every number of ranks, and has no gradient.

    Parameters
    ----------
    ranks : Ranks
        Those of a graph; :meth:`gcnmpi.torch.Graph.batch_norm` gives them.
    width : int
        Columns.
    eps : float
        Added to the variance.
    momentum : float or None
        Share of the new moments in the running ones; None: these are the mean of all so far.
    affine : bool
        Whether there are a weight and a bias for each column.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self,
        ranks: Ranks,
        width: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.ranks, self.width, self.eps, self.momentum = ranks, width, eps, momentum
        parameter = torch.nn.Parameter
        self.weight = parameter(torch.ones(width, dtype=dtype)) if affine else None
        self.bias = parameter(torch.zeros(width, dtype=dtype)) if affine else None
        self.register_buffer("running_mean", torch.zeros(width, dtype=dtype))
        self.register_buffer("running_var", torch.ones(width, dtype=dtype))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))

    @eager
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows (rows, width) normalised: with their own moments in training, else the running ones.

        In training called by all ranks together.
        """
        if x.ndim != 2 or x.shape[1] != self.width:
            raise ValueError(f"a matrix of {self.width} columns is wanted, not {tuple(x.shape)}")
        mean, var, weight, bias = self.running_mean, self.running_var, self.weight, self.bias
        given, x = x, self.ranks.taken(x)
        if not self.training:
            out = torch.nn.functional.batch_norm(x, mean, var, weight, bias, eps=self.eps)
            return out.to(given.dtype)
        out, moments, rows = Normalise.apply(x, weight, bias, self.eps, self.ranks)
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = self.momentum
            if share is None:
                share = 1 / int(self.num_batches_tracked)
            unbiased = moments[1] * (rows / max(1, rows - 1))
            mean += share * (moments[0] - mean)
            var += share * (unbiased - var)
        return out.to(given.dtype)

    def extra_repr(self) -> str:
        """The options that ``print`` shows of the module."""
        return f"{self.width}, eps={self.eps}, momentum={self.momentum}"


class Normalise(torch.autograd.Function):
    """The arithmetic of the trainer's batch norm: two reductions forward, one backward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        ranks: Ranks,
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """The result, mean and variance (2, width) in float64, and the number of all rows."""
        x = x.detach().contiguous()
        width, kernel = x.shape[1], ranks.kernel
        first, zero = np.zeros((2, width)), np.zeros(width)
        kernel.column_moments(x[:1].numpy(), zero, first)
        first[1] = len(x) > 0
        ranks.sum(first)
        pivot = first[0] / np.maximum(1, first[1])
        sums = np.zeros(2 * width + 1)
        kernel.column_moments(x.numpy(), pivot, sums[:-1].reshape(2, width))
        sums[-1] = len(x)
        ranks.sum(sums)
        rows = int(sums[-1])
        shift, squares = sums[:-1].reshape(2, width) / max(1, rows)
        moments = np.stack([pivot + shift, squares - shift**2])
        moments[1, moments[1] <= (EQUAL[kernel.dtype] * moments[0]) ** 2] = 0
        factors = np.ones(width) if weight is None else weight.detach().numpy().copy()
        biases = np.zeros(width) if bias is None else bias.detach().numpy()
        own, vectors = moments.copy(), (kernel.empty(width), kernel.empty(width))
        kernel.moment_factors(ColumnNorm(own, eps, factors, biases), True, *vectors)
        out = torch.empty(x.shape, dtype=x.dtype)
        kernel.scale_columns(x.numpy(), *vectors, out.numpy())
        ctx.save_for_backward(x)
        ctx.numbers = own, factors, rows, eps, ranks
        ctx.affine = weight is not None, bias is not None
        ctx.set_materialize_grads(False)
        found = torch.from_numpy(moments)
        ctx.mark_non_differentiable(found)
        return out, found, rows

    @staticmethod
    @eager
    @once_differentiable
    def backward(
        ctx: Any, grad: torch.Tensor | None, *_: object
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradient of x, and this rank's share of those of weight and bias."""
        (x,) = ctx.saved_tensors
        moments, factors, rows, eps, ranks = ctx.numbers
        kernel, width = ranks.kernel, x.shape[1]
        grad = torch.zeros_like(x) if grad is None else grad.contiguous()
        sums = np.zeros((2, width))
        own = kernel.from_host(moments[0]), kernel.from_host(moments[1])
        kernel.column_grad_sums(x.numpy(), *own, grad.numpy(), sums)
        of_bias, of_weight = (torch.from_numpy(s.copy()).to(x.dtype) for s in sums)
        ranks.sum(sums)
        slopes, of = kernel.empty(3, width), ColumnNorm(moments, eps, factors, factors)
        kernel.moment_slopes(of, sums, max(1, rows), slopes)
        out = torch.empty(x.shape, dtype=x.dtype)
        kernel.scale_columns_backward(grad.numpy(), x.numpy(), slopes, out.numpy())
        affine = (of_weight if ctx.affine[0] else None), (of_bias if ctx.affine[1] else None)
        return out, *affine, None, None
