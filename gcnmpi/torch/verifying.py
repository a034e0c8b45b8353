"""A module of the user's on all ranks against the same module in one process.

Rank 0 has the whole graph besides, as a graph of one rank; both sides train from the same weights.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.parameter import is_lazy

from gcnmpi.mpi.comm import Comm, agreed, from_root, minimum
from gcnmpi.mpi.process import told, world
from gcnmpi.torch.agreement import check_weights
from gcnmpi.torch.alone import alone
from gcnmpi.torch.graph import Graph
from gcnmpi.torch.objects import folder_of, sample_of
from gcnmpi.torch.opening import open
from partition.errors import UserError
from partition.graph.store import open_graph

Make = Callable[[Graph], torch.nn.Module]
Loss = Callable[[Any, Graph, int], torch.Tensor | tuple[torch.Tensor, torch.Tensor]]

_LR = 0.01  # of the steps between epochs
SHOWN = 6  # names in a message
SMALL = 1e-2  # of the largest gradient: what a difference is compared with at least


class Differs(UserError, AssertionError):
    """A module that gives something else on these ranks than in one process."""


@dataclass(frozen=True)
class Verified:
    """How much a module on all ranks differs from the same in one process; ``str`` says it.

    Attributes
    ----------
    ranks, vertices, epochs : int
        Those that were compared: up to the first epoch that differs.
    loss, loss_of_one : float
        Of the last of them, on the ranks and in one process.
    differences : mapping of str to float
        The largest of these epochs: of "loss" and of "output", of gradients by the names of
        parameters, and of buffers; each relative to the largest number in it.
    told : tuple of str
        What :meth:`gcnmpi.torch.Graph.check` says of the module.
    tolerance : float
    """

    ranks: int
    vertices: int
    epochs: int
    loss: float
    loss_of_one: float
    differences: Mapping[str, float]
    told: tuple[str, ...]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of what differs by more than the tolerance, the largest difference first."""
        names = sorted(self.differences, key=lambda name: -self.differences[name])
        return tuple(name for name in names if self.differences[name] > self.tolerance)

    @property
    def _ranks(self) -> str:
        return f"{self.ranks} ranks" if self.ranks > 1 else "1 rank"

    def __str__(self) -> str:
        where = f"{self.vertices} vertices, {self.epochs} epoch{'s' * (self.epochs > 1)}"
        if not self.wrong:
            worst = max(self.differences, key=self.differences.__getitem__)
            return (
                f"{self._ranks} and one process agree on {where}: loss {self.loss:.6g}; "
                f"{len(self.differences)} numbers or tensors, largest difference "
                f"{self.differences[worst]:.1e} ({worst})"
            )
        each = [f"{name} {self.differences[name]:.1e}" for name in self.wrong[:SHOWN]]
        each += [f"{len(self.wrong) - SHOWN} more"] if len(self.wrong) > SHOWN else []
        right = [name for name in self.differences if name not in self.wrong]
        alike = f"; alike: {', '.join(right[:SHOWN])}" if right else ""
        return (
            f"{self._ranks} give something else than one process on {where}: loss "
            f"{self.loss:.6g} and {self.loss_of_one:.6g}; relative differences: {', '.join(each)}"
            f"{alike}"
        )


def verify(
    make_net: Make,
    graph: str | os.PathLike | object,
    partition: str | None = None,
    *,
    loss: Loss | None = None,
    epochs: int = 2,
    vertices: int = 5000,
    tolerance: float = 1e-10,
    seed: int = 0,
    **options: Any,
) -> Verified:
    """Compare a module on all ranks with the same in one process: losses, outputs and gradients.

    For all ranks together, under ``mpirun`` or in a process alone. In float64, with some steps of
    gradient descent.

    Parameters
    ----------
    make_net : callable
        ``make_net(g)`` gives the module for a graph. It is called with the part of a rank, and on
        rank 0 with the whole graph too.
    graph : path or object
        A graph folder; or what :func:`gcnmpi.torch.open` takes besides, such as a ``Data``.
    partition : str, optional
        Name of a partition in the folder. Without it, vertices are drawn for each rank.
    loss : callable, optional
        ``loss(net, g, epoch)`` gives the loss that all ranks have, of ``g.mean`` for one, or a pair
        of it and own rows of output that are compared, too. By default, ``net(g, epoch)`` or
        ``net(g)`` are the rows, and the loss is the cross entropy of those in the training mask, or
        the mean squared error of targets.
    epochs : int
    vertices : int
        Of a larger graph, so many vertices and the arcs among them are taken, with parts that are
        drawn.
    tolerance : float
        The largest relative difference that is none.
    seed : int
        Of PyTorch's random numbers.
    **options
        Of :func:`gcnmpi.torch.open`.

    Returns
    -------
    Verified
        On all ranks.

    Raises
    ------
    Differs
        On all ranks; it is a UserError and an AssertionError.
    UserError
        On all ranks, if ranks have not the same weights at the start; or as of ``open``.
    """
    comm: Comm = world()
    loss = loss or _usual_loss
    with agreed(comm):
        if clash := options.keys() & {"dtype", "comm", "groups"}:
            raise UserError(
                f"verify compares in float64, on all ranks in one group: leave {min(clash)} out"
            )
    folder = folder_of(graph, partition, comm, "rp")
    n = from_root(comm, lambda: open_graph(folder.path, check=False).manifest.n)
    larger = n > vertices and folder.groups is None
    if larger or (comm.size > 1 and folder.partition is None):
        folder = sample_of(folder.path, vertices, comm)
    g = open(folder, dtype=torch.float64, **options)
    net = _made(make_net, g, loss, seed)
    one_rank: Any = comm.Split(comm.rank, 0)
    whole: list[tuple[Graph, torch.nn.Module]] = []  # on rank 0, the other side

    def begin() -> dict[str, tuple[int, ...]]:
        given = options | {"dtype": torch.float64, "threads": torch.get_num_threads()}
        one = open(folder, comm=one_rank, **given)
        whole.append((one, _made(make_net, one, loss, seed)))
        return _shapes(whole[0][1])

    by_rows = _by_rows(g, net, told(comm, begin))
    if not by_rows:
        check_weights(g._ranks, net)
    state = {name: _all(g, t, name in by_rows) for name, t in _named(net).items()}
    found = list(_trained(net, g, loss, epochs, seed, by_rows))
    losses = comm.gather([step.loss for step in found])

    def compared() -> Verified:
        one, other = whole.pop()
        with torch.no_grad():
            for name, tensor in _named(other).items():
                values = state[name]
                tensor.copy_(values[one.ids.cpu()] if name in by_rows else values)
        differences: dict[str, float] = {}
        expected = list(_trained(other, one, loss, epochs, seed, by_rows))
        for epoch, (ours, step) in enumerate(zip(found, expected, strict=True), 1):
            of_ranks = [of_rank[epoch - 1] for of_rank in losses or ()]
            noted = _differences(ours, step, of_ranks)
            differences = {name: max(noted[name], differences.get(name, 0.0)) for name in noted}
            if max(differences.values()) > tolerance:  # the later ones follow from it
                break
        hints = *alone(net), *_counted(comm.size, ours, step)
        return Verified(
            comm.size, one.n, epoch, ours.loss, step.loss, differences, hints, tolerance
        )

    verified = told(comm, compared)
    if verified.wrong:
        with agreed(comm):
            raise Differs(str(verified), _hint(verified))
    return verified


def _made(make_net: Make, g: Graph, loss: Loss, seed: int) -> torch.nn.Module:
    """A module from the same random numbers, whose layers know their shapes."""
    torch.manual_seed(seed)
    net = make_net(g).double().to(g.device)
    if any(is_lazy(parameter) for parameter in net.parameters()):
        with torch.no_grad():
            _called(loss, net.eval(), g, 0)
    return net


def _called(
    loss: Loss, net: torch.nn.Module, g: Graph, epoch: int
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    try:
        return loss(net, g, epoch)
    except IndexError as error:
        error.add_note("g.edge_index numbers own rows and those of the halo: see g.expand")
        raise


def _usual_loss(net: Any, g: Graph, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        inspect.signature(net.forward).bind(g, epoch)
        out = net(g, epoch)
    except TypeError:
        out = net(g)
    if g.y is None or g.train_mask is None:
        raise UserError("the graph has no classes and no targets", "give verify a loss")
    rows, y = out[g.train_mask], g.y[g.train_mask]
    if y.ndim == 1:
        return g.mean(F.cross_entropy(rows, y, reduction="none")), out
    known = ~y.isnan()
    return g.mean((rows[known] - y[known]).square()), out


@dataclass(frozen=True)
class _Step:
    """An epoch on rank 0: the loss, gradients by name, and output rows and buffers by name."""

    loss: float
    gradients: dict[str, torch.Tensor]
    others: dict[str, torch.Tensor]


def _trained(
    net: torch.nn.Module, g: Graph, loss: Loss, epochs: int, seed: int, by_rows: Collection[str]
) -> Iterator[_Step]:
    torch.manual_seed(seed + 1)
    optimizer, named = torch.optim.SGD(net.parameters(), lr=_LR), dict(net.named_parameters())
    net.train()
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        result = _called(loss, net, g, epoch)
        value, out = result if isinstance(result, tuple) else (result, None)
        value.backward()
        g.all_reduce_gradients(p for name, p in named.items() if name not in by_rows)
        gradients = {
            name: _all(g, torch.zeros_like(p) if p.grad is None else p.grad, name in by_rows)
            for name, p in named.items()
            if p.requires_grad
        }
        optimizer.step()
        others = {name: b.cpu().clone() for name, b in net.named_buffers() if b.is_floating_point()}
        if out is not None:
            of_rows = minimum(g._ranks.comm, out.ndim and len(out) == g.num_own) > 0
            others["output"] = _all(g, out, of_rows)
        yield _Step(float(value.detach()), gradients, others)


def _all(g: Graph, tensor: torch.Tensor, of_rows: bool) -> torch.Tensor:
    """A copy on the host; of own rows, those of all ranks on rank 0, and nothing on the others."""
    if not of_rows:
        return tensor.detach().cpu().clone()
    rows = g.gather(tensor)
    return torch.empty(0) if rows is None else rows


def _named(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _shapes(net: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in _named(net).items()}


def _by_rows(g: Graph, net: torch.nn.Module, of_one: dict[str, tuple[int, ...]]) -> set[str]:
    """Parameters and buffers that have a row for each own vertex, the same on all ranks.

    A UserError on all ranks, if others are not as in one process.
    """
    comm, mine = g._ranks.comm, _shapes(net)
    other = {name for name in mine.keys() | of_one.keys() if mine.get(name) != of_one.get(name)}
    found: set[str] = set().union(*comm.allgather(other))
    with agreed(comm):
        for name in sorted(found):
            shape, wanted = mine.get(name, ()), of_one.get(name, ())
            if not shape or not wanted or (shape[0], wanted[0]) != (g.num_own, g.n):
                raise UserError(
                    f"{name} is {shape or 'missing'} on rank {g.rank}, and {wanted or 'missing'} "
                    "in one process",
                    "make_net is to make the same module from a part of a graph as from all of it",
                )
    return found


def _differences(found: _Step, expected: _Step, losses: Iterable[float]) -> dict[str, float]:
    """Of an epoch, by name: relative differences, of losses from all ranks."""
    least = SMALL * max(map(_size, expected.gradients.values()), default=1.0)
    worst = {"loss": max(abs(loss - expected.loss) for loss in losses) / (abs(expected.loss) or 1)}
    for name, tensor in expected.others.items():
        worst[name] = _distance(found.others[name], tensor) / (_size(tensor) or 1)
    for name, tensor in expected.gradients.items():
        scale = max(_size(tensor), least) or 1
        worst[name] = _distance(found.gradients[name], tensor) / scale
    return {name: math.inf if math.isnan(each) else each for name, each in worst.items()}


def _counted(ranks: int, found: _Step, expected: _Step) -> list[str]:
    """Whether each gradient is that of one process as often as there are ranks."""
    pairs = [(found.gradients[name], tensor) for name, tensor in expected.gradients.items()]
    largest = max((_size(tensor) for _, tensor in pairs), default=0.0)
    if ranks == 1 or not largest:
        return []
    times = all(_distance(ours, ranks * other) < SMALL * largest for ours, other in pairs)
    return ["all gradients are counted once a rank: let g.mean make the loss"] if times else []


def _hint(verified: Verified) -> str:
    if verified.told:
        return "\n".join(verified.told)
    if "loss" in verified.wrong:
        return (
            "the forward pass differs: rows of neighbours come from g.expand, what all rows share "
            "from g.collective, random numbers from g.dropout, and the loss is a g.mean"
        )
    return (
        "losses agree, and gradients do not: numbers that ranks have in common come from "
        "g.collective or g.mean, whose gradients are summed, and rows of others from g.expand"
    )


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return _size(one - other) if one.shape == other.shape else math.inf
