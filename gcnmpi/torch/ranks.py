"""A rank as modules and functions share it: sums over all ranks, and the kernel."""

from __future__ import annotations

from typing import NoReturn, Self

import numpy as np
import torch

from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import MAX
from gcnmpi.mpi.reduction import reduce_over_ranks

HALVES = (torch.bfloat16, torch.float16)


class OfThisProcess:
    """An object that belongs to a process: deep copies of a model share it, none is pickled."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to a running process: save model.state_dict() instead "
            "of the model"
        )


class Ranks(OfThisProcess):
    """The ranks that share a graph. The kernel is the host's: it computes on memory of tensors."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.comm, self.kernel = runtime, runtime.comm, runtime.kernel

    def sum(self, array: np.ndarray) -> None:
        """Sum a contiguous float64 array over ranks, in place."""
        runtime = self.runtime
        reduce_over_ranks(self.comm, array.reshape(-1), runtime.phases, runtime.traffic)

    def maxima(self, array: np.ndarray) -> None:
        """The largest of each number of a contiguous float64 array over ranks, in place."""
        runtime = self.runtime
        reduce_over_ranks(self.comm, array.reshape(-1), runtime.phases, runtime.traffic, MAX)

    def sums(self, numbers: list[float]) -> list[float]:
        """Numbers summed over ranks."""
        sums = np.array(numbers, np.float64)
        self.sum(sums)
        return sums.tolist()

    def taken(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as it is computed with and sent: in the dtype of the graph; differentiable.

        Half precision, which autocast gives, is converted. A TypeError as of :meth:`check`.
        """
        self.check(tensor)
        return tensor.to(getattr(torch, self.kernel.dtype.name))

    def check(self, tensor: torch.Tensor) -> None:
        """Raise a TypeError unless a tensor is one that can be exchanged.

        It is dense, in the memory of the host, and of the graph's dtype or a half one.
        """
        wanted = f"torch.{self.kernel.dtype.name}"
        if tensor.dtype not in HALVES and str(tensor.dtype) != wanted:
            raise TypeError(
                f"the graph was opened with dtype={wanted}, not for tensors of {tensor.dtype}: "
                "convert one of them"
            )
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise TypeError(
                f"rows are exchanged from the memory of the host, dense, and not as a tensor of "
                f"{tensor.layout} on {tensor.device}: keep the model on the CPU"
            )
