"""Sums, means, maxima and softmaxes over all rows of all ranks, and the norms made of them.

A result is the same on every rank. Each rank computes its share of the loss, as ``g.mean`` gives
it, so the gradient of a result is the sum of what all ranks have of it: one more reduction.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from gcnmpi.kernels.interface.norms import EQUAL, ColumnNorm
from gcnmpi.torch.functions import Linear, eager
from gcnmpi.torch.ranks import OfThisProcess, Ranks


class Collective(OfThisProcess):
    """Functions of all rows of all ranks, for all ranks together; differentiable, of any order.

    Rows are this rank's (rows, …) of a tensor; ranks may have none. With ``index``, (rows,) int64,
    and ``size`` rows are pooled by groups: row i belongs to group ``index[i]`` of ``size``, whose
    vertices may lie on several ranks. Sums are made in float64: a reduction sends, and every rank
    holds, 8 bytes for each number of the result; mean and softmax take two reductions, max three.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self.device = ranks, ranks.memory.device

    @eager
    def add(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of a tensor that has one shape on all of them, such as Kᵀ·V."""
        return Linear.apply(x, self._sum, self._sum)

    def sum(
        self, h: torch.Tensor, index: torch.Tensor | None = None, size: int = 1
    ) -> torch.Tensor:
        """The sum of all rows, (…); of each group, (size, …)."""
        return self.add(_pooled(h.double(), index, size)).to(h.dtype)

    def mean(
        self, h: torch.Tensor, index: torch.Tensor | None = None, size: int = 1
    ) -> torch.Tensor:
        """The mean of all rows, (…), or of each group, (size, …); 0 where there are none."""
        sums = self.add(_pooled(h.double(), index, size))
        return (sums / self._counts(h, index, size).clamp(min=1)).to(h.dtype)

    @eager
    def max(
        self, h: torch.Tensor, index: torch.Tensor | None = None, size: int = 1
    ) -> torch.Tensor:
        """The largest number of each column, (…), or of each group, (size, …).

        0 where there are no rows. Rows that have the same largest number share its gradient.
        """
        largest = self._largest(h, index, size)
        of_rows = largest if index is None else largest[index]
        hit = h.detach() == of_rows
        shares = self.add(_pooled(hit.double(), index, size)).clamp(min=1)
        # Each of these differences is 0: it only carries the gradient.
        rest = torch.where(hit, (h - of_rows).double(), 0.0)
        rest = self.add(_pooled(rest, index, size)) / shares
        return torch.where(largest == -torch.inf, 0.0, largest) + rest.to(h.dtype)

    @eager
    def softmax(
        self, h: torch.Tensor, index: torch.Tensor | None = None, size: int = 1
    ) -> torch.Tensor:
        """Rows (rows, …) of the softmax of each column over all rows, or over those of a group."""
        largest = self._largest(h, index, size)
        powers = (h - (largest if index is None else largest[index])).exp()
        sums = self.sum(powers, index, size)
        return powers / (sums if index is None else sums[index])

    def _sum(self, x: torch.Tensor) -> torch.Tensor:
        total = x.detach().to(torch.float64, copy=True).contiguous()
        self._ranks.sum(total)
        return total.to(x.dtype)

    def _counts(self, h: torch.Tensor, index: torch.Tensor | None, size: int) -> torch.Tensor:
        """Rows of all ranks, a number; or of each group, to be divided by."""
        ones = torch.ones(len(h), dtype=torch.float64, device=h.device)
        counts = self.add(_pooled(ones, index, size))
        return counts if index is None else counts.view(-1, *[1] * (h.ndim - 1))

    def _largest(self, h: torch.Tensor, index: torch.Tensor | None, size: int) -> torch.Tensor:
        """The largest numbers, without a gradient; −∞ where there are no rows."""
        rows, dtype, of_all = h.detach(), h.dtype, index is None
        if index is None:
            index = torch.zeros(len(h), dtype=torch.int64, device=h.device)
        groups = index.view(-1, *[1] * (h.ndim - 1)).expand(rows.shape)
        shape = size, *h.shape[1:]
        found = torch.full(shape, -torch.inf, dtype=torch.float64, device=h.device)
        found.scatter_reduce_(0, groups, rows.double(), "amax")
        self._ranks.maxima(found)
        return (found[0] if of_all else found).to(dtype)


class RowNorm(torch.nn.Module):
    """A norm of PyTorch Geometric with the moments of all rows of all ranks.

    Names of parameters are those of its class, so that a ``state_dict`` fits both.

    Parameters
    ----------
    collective : Collective
        Of a graph; :meth:`gcnmpi.torch.Graph.norm` gives the norm.
    kind : str
        Of ``NORMS``: "graph" (Cai et al. 2021), "pair" (Zhao and Akoglu 2020), "mean" (Yang et al.
        2020: MeanSubtractionNorm), "layer" (``LayerNorm`` with ``mode="graph"``).
    width : int
        Columns.
    eps : float
        Added to the variance.
    """

    weight: torch.nn.Parameter
    bias: torch.nn.Parameter
    mean_scale: torch.nn.Parameter

    def __init__(
        self, collective: Collective, kind: str, width: int, eps: float, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.collective, self.kind, self.width, self.eps = collective, kind, width, eps
        for name, start in NORMS[kind].items():
            values = torch.full((width,), start, dtype=dtype, device=collective.device)
            self.register_parameter(name, torch.nn.Parameter(values))

    def forward(
        self, x: torch.Tensor, index: torch.Tensor | None = None, size: int = 1
    ) -> torch.Tensor:
        """Rows (rows, width) normalised; each group by its own moments, see :class:`Collective`.

        For all ranks together.
        """

        def mean(h: torch.Tensor) -> torch.Tensor:
            found = self.collective.mean(h, index, size)
            return found if index is None else found[index]

        if self.kind == "layer":
            centred = x - mean(x.mean(1, keepdim=True))
            variance = mean(centred.square().mean(1, keepdim=True))
            # PyTorch Geometric adds eps in two ways.
            scale = variance.sqrt() + self.eps if index is None else (variance + self.eps).sqrt()
            return centred / scale * self.weight + self.bias
        centre = mean(x)
        if self.kind == "mean":
            return x - centre
        if self.kind == "pair":
            centred = x - centre
            return centred / (self.eps + mean(centred.square().sum(1, keepdim=True))).sqrt()
        centred = x - centre * self.mean_scale
        scale = (mean(centred.square()) + self.eps).sqrt()
        return self.weight * centred / scale + self.bias

    def extra_repr(self) -> str:
        """The options that ``print`` shows of the module."""
        return f"{self.kind}, {self.width}, eps={self.eps}"


NORMS: dict[str, dict[str, float]] = {
    "graph": {"weight": 1.0, "bias": 0.0, "mean_scale": 1.0},
    "pair": {},
    "mean": {},
    "layer": {"weight": 1.0, "bias": 0.0},
}
"""Norms of all rows, and how their parameters start."""


def _pooled(h: torch.Tensor, index: torch.Tensor | None, size: int) -> torch.Tensor:
    if index is None:
        return h.sum(0)
    return h.new_zeros((size, *h.shape[1:])).index_add(0, index, h)


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
        out, moments, rows = _Normalise.apply(x, weight, bias, self.eps, self.ranks)
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


class _Normalise(torch.autograd.Function):
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
