"""Weights that every rank has whole: the same at the start, and their gradients summed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.nn.parameter import is_lazy

from gcnmpi.mpi.comm import agreed, check_same
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.ranks import Ranks
from partition.errors import UserError

AT_ONCE = 1 << 30  # bytes that are broadcast at once: MPI counts in 32 bits


class GradientSum:
    """The sum of gradients over ranks: one flat buffer, one reduction, in float64.

    Behind the gradients the buffer has a number for each parameter: how many ranks have a gradient
    of it. A gradient that no rank has stays None, as it does in one process.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}  # by gradients and parameters

    def __call__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of parameters, in place; one that is None here counts as zeros."""
        trained = [p for p in parameters if p.requires_grad]
        if self._ranks.comm.size == 1:
            return
        count = sum(p.numel() for p in trained)
        sums = self._buffer(count, trained)
        start = 0
        for number, parameter in enumerate(trained):
            piece = sums[start : start + parameter.numel()]
            start += parameter.numel()
            gradient = parameter.grad
            if gradient is None:
                piece.zero_()
            else:
                piece.copy_(gradient.reshape(-1))
            sums[count + number].fill_(gradient is not None)
        self._ranks.sum(sums)
        of_others = any(p.grad is None for p in trained)  # else nobody has to look at numbers
        ranks_of = sums[count:].tolist() if of_others else [self._ranks.comm.size] * len(trained)
        start = 0
        for parameter, ranks in zip(trained, ranks_of, strict=True):
            piece = sums[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
            if ranks:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(piece)

    def _buffer(self, count: int, trained: list[torch.nn.Parameter]) -> torch.Tensor:
        key = count, len(trained)
        if key not in self._buffers:
            check_equal(self._ranks, trained)
            self._buffers[key] = torch.empty(
                sum(key), dtype=torch.float64, device=self._ranks.memory.device
            )
        return self._buffers[key]


def broadcast(ranks: Ranks, tensors: Iterable[torch.Tensor]) -> None:
    """Give all ranks the numbers that rank 0 has in these tensors."""
    tensors = list(tensors)
    check_equal(ranks, tensors)
    with torch.no_grad():
        for tensor in tensors:
            flat = tensor.detach().reshape(-1).clone()
            memory = on_host(flat.view(torch.uint8))
            for start in range(0, len(memory), AT_ONCE):
                ranks.comm.Bcast(memory[start : start + AT_ONCE], 0)
            tensor.copy_(torch.from_numpy(memory).view(flat.dtype).view_as(tensor))


def check_equal(ranks: Ranks, tensors: Sequence[torch.Tensor]) -> None:
    """Raise a UserError on all ranks, unless all have tensors of the same shapes and types."""
    with agreed(ranks.comm):
        if any(is_lazy(tensor) for tensor in tensors):
            raise UserError(
                "a layer of the model does not know its shape yet",
                "call the model once, on all ranks, or give the layer its number of inputs",
            )
        for tensor in tensors:
            if tensor.device != ranks.memory.device or tensor.is_complex():
                raise UserError(
                    f"a weight is {tensor.dtype} on {tensor.device}: ranks share real numbers on "
                    f"the device of the graph, {ranks.memory.device}",
                    "net.to(g.device), or open the graph with another device=",
                )
    shapes = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    check_same(ranks.comm, {"model": shapes}, "make the same model on all ranks")
