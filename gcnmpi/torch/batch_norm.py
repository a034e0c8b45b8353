"""Batch normalisation with the moments of all rows of all ranks."""

from __future__ import annotations

from typing import Any

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
    bias, to the bit and on every number of ranks, and has no gradient. Two reductions of 2·width
    numbers are made, and one more for the gradient; a bias in front of the norm has no effect.

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
        parameter, device = torch.nn.Parameter, ranks.memory.device
        zeros = torch.zeros(width, dtype=dtype, device=device)
        self.weight = parameter(zeros + 1) if affine else None
        self.bias = parameter(zeros.clone()) if affine else None
        self.register_buffer("running_mean", zeros)
        self.register_buffer("running_var", zeros + 1)
        tracked = torch.zeros((), dtype=torch.long, device=device)
        self.register_buffer("num_batches_tracked", tracked)

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
        width, kernel, array = x.shape[1], ranks.kernel, ranks.memory.array
        first = x.new_zeros((2, width), dtype=torch.float64)
        kernel.column_moments(array(x[:1]), array(torch.zeros_like(first[0])), array(first))
        first[1].fill_(len(x) > 0)
        ranks.sum(first)
        pivot = first[0] / first[1].clamp(min=1)
        sums = x.new_zeros(2 * width + 1, dtype=torch.float64)
        of_columns = sums[:-1].view(2, width)
        kernel.column_moments(array(x), array(pivot), array(of_columns))
        sums[-1].fill_(len(x))
        ranks.sum(sums)
        rows = int(sums[-1])
        shift, squares = of_columns / max(1, rows)
        moments = torch.stack([pivot + shift, squares - shift**2])
        equal = moments[1] <= (EQUAL[kernel.dtype] * moments[0]) ** 2
        moments[1].masked_fill_(equal, 0)
        factors = x.new_ones(width) if weight is None else weight.detach().clone()
        biases = x.new_zeros(width) if bias is None else bias.detach()
        own, vectors = moments.clone(), (kernel.empty(width), kernel.empty(width))
        norm = ColumnNorm(array(own), eps, array(factors), array(biases))
        kernel.moment_factors(norm, True, *vectors)
        out = x.new_empty(x.shape)
        kernel.scale_columns(array(x), *vectors, array(out))
        ctx.save_for_backward(x)
        ctx.numbers = own, factors, rows, eps, ranks
        ctx.affine = weight is not None, bias is not None
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(moments)
        return out, moments, rows

    @staticmethod
    @eager
    @once_differentiable
    def backward(
        ctx: Any, grad: torch.Tensor | None, *_: object
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradient of x, and this rank's share of those of weight and bias."""
        (x,) = ctx.saved_tensors
        moments, factors, rows, eps, ranks = ctx.numbers
        kernel, array, width = ranks.kernel, ranks.memory.array, x.shape[1]
        grad = torch.zeros_like(x) if grad is None else grad.contiguous()
        sums, own = x.new_zeros((2, width), dtype=torch.float64), moments.to(x.dtype)
        kernel.column_grad_sums(array(x), array(own[0]), array(own[1]), array(grad), array(sums))
        of_bias, of_weight = sums.to(x.dtype, copy=True)
        ranks.sum(sums)
        given = array(moments), eps, array(factors), array(factors)
        slopes, of = kernel.empty(3, width), ColumnNorm(*given)
        kernel.moment_slopes(of, array(sums), max(1, rows), slopes)
        out = x.new_empty(x.shape)
        kernel.scale_columns_backward(array(grad), array(x), slopes, array(out))
        affine = (of_weight if ctx.affine[0] else None), (of_bias if ctx.affine[1] else None)
        return out, *affine, None, None
