"""A rank as modules and functions share it: sums over all ranks, and the kernel."""

from __future__ import annotations

import atexit
import linecache
import os
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Self

import numpy as np
import torch

from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import MAX, MPI, Comm, agreed, has_all_ranks
from gcnmpi.mpi.process import finish
from gcnmpi.mpi.reduction import reduce_over_ranks, sum_array_over_ranks
from gcnmpi.torch.memory import Memory, on_host
from partition.errors import EXIT_USER_ERROR, UserError

HALVES = {torch.bfloat16: "bf16", torch.float16: "fp16"}  # as ``comm.precision`` names them
COMPARED = 1000  # calls that are compared, some fifty epochs: a reduction of two numbers each
END = "is at the end of its program"
_LIBRARIES = tuple(
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])
)


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


class _Together:
    """Compares what ranks call, so that a call that some do not make is told, and not waited for.

    The first ``COMPARED`` calls, and the end of a program that makes fewer, where ``everyone`` in
    it has the graph.
    """

    def __init__(self, comm: Comm, everyone: Comm) -> None:
        self._all, self._comm = comm, comm.Dup() if comm.size > 1 else None
        self._left = COMPARED
        if self._comm is not None and has_all_ranks(everyone):
            atexit.register(self._end)

    def __call__(self, kind: str, *numbers: int) -> None:
        """Raise a UserError on all ranks, unless all are about to do the same."""
        if self._comm is not None and self._left:
            self._left -= 1
            self._compare(kind, numbers)

    def _compare(self, kind: str, numbers: tuple[int, ...]) -> None:
        assert self._comm is not None
        word = float(zlib.crc32(repr((kind, numbers)).encode()))
        both = np.array([word, -word])
        self._comm.Allreduce(MPI.IN_PLACE, both, MAX)
        if both[0] == -both[1]:
            return
        calls = self._comm.allgather((kind, numbers, _line() if kind != END else END))
        other = next(rank for rank, call in enumerate(calls) if call[:2] != calls[0][:2])
        with agreed(self._comm):
            raise UserError(
                f"not all ranks call the same: rank 0 {_said(*calls[0])}, rank {other} "
                f"{_said(*calls[other])}",
                "functions of g are called by all ranks together, in one order and with rows of "
                "one width: none may depend on the rank or on its own rows",
            )

    def _end(self) -> None:
        """Whether all ranks end now, and none of them waits for another."""
        if MPI.Is_finalized() or not self._left:
            return
        assert self._comm is not None
        try:
            self._compare(END, ())
        except UserError as error:
            if self._comm.rank == 0:
                print(f"error: {error}", file=sys.stderr, flush=True)
            try:
                finish(self._all, EXIT_USER_ERROR)  # as the others do, which raise it
            except SystemExit as end:
                os._exit(int(end.code or 0))


def user_level() -> int:
    """The ``stacklevel`` with which the caller warns of a line of the user's program."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        level, frame = level + 1, frame.f_back
    return level


def _line() -> str:
    """The line of the user's program that is running."""
    frame = sys._getframe(user_level() - 1)
    name, number = frame.f_code.co_filename, frame.f_lineno
    return f"{Path(name).name}, line {number}: {linecache.getline(name, number).strip()}"


def _said(kind: str, numbers: tuple[int, ...], line: str) -> str:
    """The next step of a rank, in words."""
    if kind == END:
        return END
    width = f" of {' × '.join(map(str, numbers))}" if numbers else ""
    return f"makes {kind}{width} at {line}"


class Ranks(OfThisProcess):
    """The ranks that share a graph. The kernel computes on the memory of tensors.

    ``together("an expand", width)`` is called on all ranks before anything that they do together.

    Attributes
    ----------
    every : Ranks
        Those of all groups, of which each has the graph: weights are theirs together.
    memory : Memory
        Where tensors are.
    sums_there : bool
        Whether sums over ranks are made where tensors are, and the host need not wait for them.
    """

    def __init__(self, runtime: Runtime, memory: Memory) -> None:
        self.runtime, self.comm, self.kernel = runtime, runtime.comm, runtime.kernel
        self.memory, world = memory, runtime.world
        self.every = (
            self if world is None else Ranks(replace(runtime, comm=world, world=None), memory)
        )
        # It is of all groups.
        self._summation = runtime.summation if world is None else None
        on_device = runtime.kernel.device is not None
        self.sums_there = on_device and (self.comm.size == 1 or self._summation is not None)
        # After that of all: what was registered last is called first when a program ends.
        self.together = _Together(runtime.comm, runtime.everyone)

    def placed(self, array: np.ndarray) -> torch.Tensor:
        """A tensor of the graph with the numbers of an array: on the host, in its memory."""
        return torch.from_numpy(array).to(self.memory.device)

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum a contiguous float64 tensor over ranks, in place: by NCCL on devices that have it."""
        self.together("a sum over ranks", tensor.numel())
        array, runtime = self.memory.array(tensor.reshape(-1)), self.runtime
        given = array, runtime.phases, runtime.traffic
        sum_array_over_ranks(self.comm, self.kernel, self._summation, *given)

    def total(self, number: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of a number in float64."""
        total = number.detach().clone()
        self.sum(total)
        return total

    def maxima(self, tensor: torch.Tensor) -> None:
        """The largest of each number of a contiguous float64 tensor over ranks, in place."""
        self.together("a maximum over ranks", tensor.numel())
        numbers, runtime = on_host(tensor.reshape(-1)), self.runtime
        reduce_over_ranks(self.comm, numbers, runtime.phases, runtime.traffic, MAX)
        tensor.copy_(torch.from_numpy(numbers).view(tensor.shape))

    def sums(self, numbers: list[float]) -> list[float]:
        """Numbers of the host summed over ranks."""
        self.together("a sum over ranks", len(numbers))
        sums, runtime = np.array(numbers, np.float64), self.runtime
        reduce_over_ranks(self.comm, sums, runtime.phases, runtime.traffic)
        return sums.tolist()

    def taken(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as it is computed with and sent: in the dtype of the graph; differentiable.

        Half precision, which autocast gives, is converted. A TypeError as of :meth:`check`.
        """
        self.check(tensor)
        return tensor.to(getattr(torch, self.kernel.dtype.name))

    def check(self, tensor: torch.Tensor) -> None:
        """Raise a TypeError unless a tensor is one that can be exchanged.

        It is dense, on the device of the graph, and of the graph's dtype or a half one.
        """
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise TypeError(
                "the functions of torch.func (grad, vmap, jvp) cannot go through messages: use "
                "torch.autograd.grad, with create_graph=True for higher orders"
            )
        wanted = f"torch.{self.kernel.dtype.name}"
        if tensor.dtype not in HALVES and str(tensor.dtype) != wanted:
            raise TypeError(
                f"the graph was opened with dtype={wanted}, not for tensors of {tensor.dtype}: "
                "convert one of them"
            )
        device = self.memory.device
        if tensor.device != device or tensor.layout != torch.strided:
            raise TypeError(
                f"rows are exchanged on the device of the graph, {device}, dense, and not as a "
                f"tensor of {tensor.layout} on {tensor.device}: keep the model and its rows on "
                "g.device, or open the graph with another device="
            )
