"""Weights that every rank has whole: whether they are the same, and their gradients summed."""

from __future__ import annotations

import hashlib
import warnings
import weakref
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from gcnmpi.mpi.comm import agreed, check_same
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.ranks import Ranks, user_level
from partition.errors import UserError

_SAME_START = "torch.manual_seed before it is made, or g.broadcast(net) after it"
SUMMED = "g.all_reduce_gradients(net) between loss.backward() and optimizer.step()"
_OWN_LOSS = (
    "gradients are summed, and no g.mean was called: the mean of a rank's own losses weighs rows "
    "otherwise on each number of ranks. Use loss = g.mean(losses of own rows), or the sum of them "
    "divided by the number of all"
)
_AT_ONCE = 1 << 20  # weights that are looked at at once
_BROADCAST_BYTES = 1 << 30  # bytes that are broadcast at once: MPI counts in 32 bits


class Agreement:
    """Compares the weights of ranks in reductions that are made anyway.

    The weights are found behind the numbers that are summed: they are the leaves of their graph.
    They are compared at the calls 1, 2, 4, 8 … of a kind, by two random projections, so that ranks
    on unlike processors may round their updates differently. ``own`` are the lengths of tensors
    that have a row for each of a rank's vertices or entries, and so are no weights of all ranks;
    None: nothing is compared.
    """

    def __init__(self, ranks: Ranks, own: Iterable[int] | None) -> None:
        self._ranks, self._own = ranks, frozenset(own or ())
        self._known: dict[int, weakref.ref[torch.Tensor]] = {}
        self._calls: Counter[str] = Counter()
        self._wanted = own is not None and ranks.comm.size > 1
        self.summed = False  # whether gradients have been
        self.averaged = not self._wanted  # whether a loss, or part of one, is of all ranks

    def sum(self, numbers: Iterable[float], behind: torch.Tensor, kind: str) -> list[float]:
        """Sum numbers over ranks; ``behind`` is a tensor that the weights lead to.

        A UserError on all ranks, if it is time to compare the weights, and they differ.
        """
        numbers = list(numbers)
        if not self._wanted:
            return self._ranks.sums(numbers) if numbers else []
        calls = self._calls[kind]
        due = not calls & (calls + 1)
        words = np.zeros(1 + 7 * due)  # a rank without weights says nothing
        if due:
            weights = self._weights(behind)
            if weights:
                words[:] = 1, *_spoken(weights)
        else:
            words[0] = behind.requires_grad or bool(self._known)
        sums = self._ranks.sums([*numbers, *words])
        heard = sums[len(numbers) :]
        self._calls[kind] += heard[0] > 0
        if due and heard[0] and _differ(*heard):
            with agreed(self._ranks.comm):
                raise self._error()
        return sums[: len(numbers)]

    def total(self, total: torch.Tensor, count: float) -> tuple[torch.Tensor, float]:
        """A sum of float64 over ranks, and of how many rows; compared as by :meth:`sum`."""
        if self._ranks.sums_there:
            (rows,) = self.sum((count,), total, "mean")
            return self._ranks.total(total), rows
        of_all, rows = self.sum((float(total.detach()), count), total, "mean")
        return torch.full_like(total.detach(), of_all), rows

    def tell_of_own_loss(self) -> None:
        """Warn once, on rank 0, if gradients are summed of a loss that no ``g.mean`` has made."""
        if not self.averaged and self._ranks.comm.rank == 0:
            warnings.warn(_OWN_LOSS, stacklevel=user_level())
        self.averaged = True

    def check(self, model: torch.nn.Module) -> None:
        """Raise a UserError on all ranks, unless they have the same bits in shared weights."""
        if self._wanted:
            check_weights(self._ranks, model, self._own)

    def _weights(self, behind: torch.Tensor) -> list[torch.Tensor]:
        """All that were found so far, and still live, in the order in which they were found."""
        # First, as a new weight may have the address of one that is gone, on this rank alone.
        self._known = {key: known for key, known in self._known.items() if known() is not None}
        for leaf in _leaves(behind):
            if leaf.ndim == 0 or len(leaf) not in self._own:
                self._known[id(leaf)] = weakref.ref(leaf)
        living = (known() for known in self._known.values())
        return [weight for weight in living if weight is not None]

    def _error(self) -> UserError:
        start = f"start from the same ones ({_SAME_START}), and sum the gradients of all: {SUMMED}"
        return UserError(
            "the model's weights are not the same on all ranks",
            f"{start if self.summed else f'call {SUMMED}'}; g.check(net) names those that differ. "
            "If ranks are to have weights of their own: open(…, check_weights=False)",
        )


def check_weights(ranks: Ranks, model: torch.nn.Module, own: Collection[int] = frozenset()) -> None:
    """Raise a UserError on all ranks, unless all have the same bits in parameters and buffers.

    ``own`` are the lengths of tensors that have rows of a rank's own, and are left out.
    """
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    named = {k: each for k, each in named.items() if each.ndim == 0 or len(each) not in own}
    _check_equal(ranks, list(named.values()))
    digests = {f"weight or buffer {name!r}": _digest(tensor) for name, tensor in named.items()}
    hint = f"start from the same weights ({_SAME_START}), and call {SUMMED}"
    check_same(ranks.comm, digests, hint)


def _leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with a gradient that a tensor was computed from, in the order of its graph."""
    if tensor.grad_fn is None:
        if tensor.requires_grad:
            yield tensor
        return
    seen, left = {tensor.grad_fn}, [tensor.grad_fn]
    while left:
        node = left.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            yield leaf
        following = [following for following, _ in node.next_functions if following is not None]
        left += [node for node in dict.fromkeys(following) if node not in seen]
        seen.update(following)


def _spoken(weights: list[torch.Tensor]) -> list[float]:
    """Seven numbers about weights, whose sums over ranks tell whether they differ.

    Of what shapes they are, and its square; the square of the size that a difference may have; two
    projections, and their squares.
    """
    shapes = zlib.crc32(repr([(tuple(w.shape), w.dtype) for w in weights]).encode()) & 0xFFFF
    rounding = max(1e-6, *(torch.finfo(w.dtype).eps ** 0.5 for w in weights))
    random = torch.Generator().manual_seed(0)
    size, projections = 0.0, np.zeros(2)
    for weight in weights:
        flat = weight.detach().reshape(-1)
        for piece in (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).split(
            _AT_ONCE
        ):
            numbers = piece.to("cpu", torch.float64)
            directions = torch.randn(2, len(numbers), generator=random, dtype=torch.float64)
            size += float(numbers @ numbers)
            projections += (directions @ numbers).numpy()
    first, second = projections.tolist()
    return [shapes, shapes**2, rounding**2 * size, first, first**2, second, second**2]


def _differ(count: float, shapes: float, shapes2: float, size: float, *moments: float) -> bool:
    """Whether the ranks that have weights have other ones than each other.

    Where shapes differ, ranks compute with different weights on purpose: nothing can be compared.
    """
    if count * shapes2 != shapes**2:
        return False
    spreads = [
        moments[k + 1] / count - (moments[k] / count) ** 2 for k in range(0, len(moments), 2)
    ]
    return max(spreads) > size / count


def _digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().reshape(-1).contiguous()
    if flat.is_floating_point():  # which NaN it is depends on the order of an addition
        flat = flat.masked_fill(flat.isnan(), torch.nan)
    return hashlib.blake2b(on_host(flat.view(torch.uint8)).data, digest_size=16).hexdigest()


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
            _check_equal(self._ranks, trained)
            self._buffers[key] = torch.empty(
                sum(key), dtype=torch.float64, device=self._ranks.memory.device
            )
        return self._buffers[key]


def broadcast(ranks: Ranks, tensors: Iterable[torch.Tensor]) -> None:
    """Give all ranks the numbers that rank 0 has in these tensors."""
    tensors = list(tensors)
    _check_equal(ranks, tensors)
    with torch.no_grad():
        for tensor in tensors:
            flat = tensor.detach().reshape(-1).clone()
            memory = on_host(flat.view(torch.uint8))
            for start in range(0, len(memory), _BROADCAST_BYTES):
                ranks.comm.Bcast(memory[start : start + _BROADCAST_BYTES], 0)
            tensor.copy_(torch.from_numpy(memory).view(flat.dtype).view_as(tensor))


def _check_equal(ranks: Ranks, tensors: Sequence[torch.Tensor]) -> None:
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
