"""Rows of tensors between ranks, and products with M, of which the functions of autograd are made.

All of it is for all ranks together: they call the same with matrices of the same width, in the
same order. Tensors have two dimensions and are on the device of the graph.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import defaultdict
from functools import partial
from typing import Self

import numpy as np
import scipy.sparse as sp
import torch

from gcnmpi.core.precision import row_bytes
from gcnmpi.core.volume import Volume
from gcnmpi.halo.exchange import agree_on_plan
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan, local_numbers
from gcnmpi.halo.product import HaloProduct, Operand
from gcnmpi.layout.place import Place
from gcnmpi.layout.placing import halo_of
from gcnmpi.mpi.comm import agreed
from gcnmpi.options.config import Config
from gcnmpi.schemes.p2p import NO_PACKINGS, Laid, mix
from gcnmpi.schemes.sampled import sent_once
from gcnmpi.torch.functions import Map, eager, linear
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.ranks import HALVES, OfThisProcess, Ranks
from partition.errors import UserError

_PRODUCTS = "a product", "the gradient of a product"
PLACE = Place(0)  # of every matrix: own rows lie the same way in all layers


class RowMoves:
    """Expand and fold of one plan.

    ``lasts`` says whether it, and its buffers, live as long on all ranks.
    """

    def __init__(self, ranks: Ranks, plan: Plan, config: Config, lasts: bool = True) -> None:
        self._nown = plan.nown
        # Rows are rounded that lose nothing by it, whatever they are for.
        self._rows = HaloProduct(ranks.runtime, plan, config, lasts, rounds_always=True)
        self._free: defaultdict[int, list[Matrix]] = defaultdict(list)
        self.ranks, self._runtime, self._plan = ranks, ranks.runtime, plan
        self._config, self._lasts = config, lasts
        self._predicted: defaultdict[str, Volume] = defaultdict(Volume)  # by purpose
        self._in_half: dict[torch.dtype, Self] = {}

    def of(self, h: torch.Tensor) -> Self:
        """The moves of tensors like this one: rows in half precision travel as they are.

        They are computed with in the dtype of the graph, and lose nothing in such a message. Their
        gradients do not either, but for partial sums of a product.
        """
        if h.dtype not in HALVES:
            return self
        if h.dtype not in self._in_half:
            precision = dataclasses.replace(self._config.comm, precision=HALVES[h.dtype])
            moves = self._like(dataclasses.replace(self._config, comm=precision))
            moves._predicted = self._predicted
            self._in_half[h.dtype] = moves
        return self._in_half[h.dtype]

    def _like(self, config: Config) -> Self:
        return type(self)(self.ranks, self._plan, config, self._lasts)

    def expanded(self, h: torch.Tensor) -> torch.Tensor:
        """Own rows of any shape → own and halo rows, differentiable; a rank alone gets ``h``."""
        if self.ranks.comm.size == 1:
            return h
        moves = self.of(h)
        return linear(self.ranks, h, moves.expand, moves.fold)

    def expand(self, h: torch.Tensor) -> torch.Tensor:
        """Own rows (nown, width) → own and halo rows, in memory that the result has for itself.

        Rows of others are received where they are to be. The memory, and the persistent requests
        that go with it, serve another expand of this width when nobody refers to the result, as a
        tensor or a view of it, or for a gradient.
        """
        free, width = self._free[h.shape[1]], h.shape[1]
        self.ranks.together("an expand", width)
        matrix = free.pop() if free else self._rows.empty(PLACE, width)
        array = matrix.whole.view()  # type: ignore[attr-defined]
        whole = self.ranks.memory.tensor(array)  # whose storage refers to this array only
        whole[: len(h)].copy_(h)
        self._rows.gather(matrix)
        self._count(self._rows, self._plan, width, back=False)
        weakref.finalize(array, free.append, matrix).atexit = False
        return whole

    def fold(self, gradient: torch.Tensor) -> torch.Tensor:
        """The adjoint: own rows, with what other ranks' halos hold of them added in rank order."""
        self.ranks.together("the gradient of an expand", gradient.shape[1])
        nown, array = self._nown, self.ranks.memory.array
        out, rows = gradient.new_empty((nown, gradient.shape[1])), array(gradient)
        self._rows.add_halos(rows[:nown], rows[nown:], array(out))
        self._count(self._rows, self._plan, gradient.shape[1], back=True)
        return out

    def products(self, matrix: sp.csr_array) -> tuple[Map, Map]:
        """The products with a matrix over own and halo rows, and with its transpose, which folds.

        The first takes own rows and gives as many as the matrix has; the other the inverse.
        """
        operands, array = (
            (self._rows.expanding(matrix), self._rows.folding(matrix)),
            self.ranks.memory.array,
        )

        def multiply(h: torch.Tensor, back: bool) -> torch.Tensor:
            self.ranks.together(_PRODUCTS[back], h.shape[1])
            rows = self._nown if back else matrix.shape[0]
            out = h.new_empty((rows, h.shape[1]))
            self._rows.multiply(operands[back], Matrix(PLACE, array(h)), array(out))
            self._count(self._rows, self._plan, h.shape[1], back)
            return out

        return partial(multiply, back=False), partial(multiply, back=True)

    def _count(self, products: HaloProduct, plan: Plan, width: int, back: bool) -> None:
        """Add what an exchange by a plan should send; ``back``: from halos to owners."""
        itemsize = self._runtime.kernel.dtype.itemsize
        row, message = width * itemsize, row_bytes(self._config.comm.precision, width, itemsize)
        ends = (plan.nsend, len(plan.send_peers)), (plan.nhalo, len(plan.recv_peers))
        (sent, messages), (received, _) = reversed(ends) if back else ends
        volume = Volume(sent * message, received * message, messages)
        volume = products.kept.off(volume, message, row, back)
        self._predicted[self._runtime.traffic.purpose] += volume


class Moves(RowMoves):
    """Expand, fold and products of one graph, of which a rank's rows of M are laid out."""

    def __init__(self, ranks: Ranks, laid: Laid, config: Config) -> None:
        super().__init__(ranks, laid.plan, config)
        self._laid, self._whole = laid, self
        self._product: tuple[HaloProduct, Plan, tuple[Operand, Operand]] | None = None

    def _like(self, config: Config) -> Self:
        moves = type(self)(self.ranks, self._laid, config)
        moves._whole = self
        return moves

    def for_plan(self, plan: Plan, once: bool = False) -> RowMoves:
        """Expand and fold of another plan; ``once``: its messages are not worth preparing."""
        config = sent_once(self._config) if once else self._config
        moves = RowMoves(self.ranks, plan, config, lasts=False)
        moves._predicted = self._predicted
        return moves

    def aggregate(self, h: torch.Tensor, transposed: bool) -> torch.Tensor:
        """The product M·h, or Mᵀ·h, of own rows."""
        self.ranks.together(_PRODUCTS[transposed], h.shape[1])
        if self._product is None:  # not before it is asked for: it holds M once more
            self._product = self._make_product()
        products, plan, operands = self._product
        out, array = h.new_empty(h.shape), self.ranks.memory.array
        products.multiply(operands[transposed], Matrix(PLACE, array(h)), array(out))
        self._count(products, plan, h.shape[1], back=operands[transposed].folds)
        return out

    def begin(self) -> None:
        """Forget what an earlier run in this process should have sent."""
        self._predicted.clear()

    def predicted(self, purpose: str) -> Volume:
        """The volume that this rank's exchanges for a purpose should have, by their plans."""
        return self._predicted[purpose]

    def _make_product(self) -> tuple[HaloProduct, Plan, tuple[Operand, Operand]]:
        if self._whole is not self:  # of the same matrices, which are there once
            if self._whole._product is None:
                self._whole._product = self._whole._make_product()
            _, plan, operands = self._whole._product
            products = HaloProduct(self._runtime, plan, self._config, rounds_always=True)
            return products, plan, operands
        laid, packings = self._laid, NO_PACKINGS
        if laid.facts.mixed:
            max_bytes = self._config.loading.max_bytes
            laid, packings = mix(self._runtime.comm, laid, laid.plan.own, max_bytes)
        same = laid.plan is self._laid.plan
        products = self._rows if same else HaloProduct(self._runtime, laid.plan, self._config)
        return products, laid.plan, products.both(laid.forward, laid.backward, packings)


class Fetched(OfThisProcess):
    """A plan that brings rows of some vertices to this rank, made by all ranks together.

    It takes 16 bytes for each id, and 24 for each row of another rank, whose owner is told of it in
    8 bytes. A call sends as an expand of those rows does.

    Parameters
    ----------
    ranks : Ranks
    laid : Laid
        The own rows, and who owns the others.
    moves : Moves
        Of the graph.
    ids : (…) int64 tensor
        Numbers of vertices in the graph.
    max_bytes : number
        Of the buffer with which the ranks tell each other what they need.

    Attributes
    ----------
    num_received : int
        Rows that arrive in each call: those of other ranks, each once.

    Raises
    ------
    UserError
        On all ranks, if an id is no vertex.
    """

    @eager
    def __init__(
        self, ranks: Ranks, laid: Laid, moves: Moves, ids: torch.Tensor, max_bytes: float
    ) -> None:
        parts, own = laid.rows.parts, laid.plan.own
        ranks.together("the plan of a fetch")
        with agreed(ranks.comm):
            _check(ids, len(parts))
        wanted = on_host(ids).reshape(-1)
        halo = halo_of(own, wanted, parts)
        plan = agree_on_plan(ranks.comm, own, halo, parts[halo], max_bytes)
        local = local_numbers(own, halo, wanted).astype(np.int64)
        self.num_received = plan.nhalo
        self._ranks, self._shape = ranks, tuple(ids.shape)
        self._own, self._places = len(own), ranks.placed(local)
        self._moves = moves.for_plan(plan)

    @eager
    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """Own rows (num_own, …) → rows of the vertices, (*ids.shape, …); differentiable.

        For all ranks together.
        """
        if h.ndim == 0 or len(h) != self._own:
            raise ValueError(f"{self._own} own rows are wanted, not a tensor {tuple(h.shape)}")
        self._ranks.check(h)
        h = self._moves.expanded(h)
        return h.index_select(0, self._places).reshape(*self._shape, *h.shape[1:])


def _check(ids: torch.Tensor, n: int) -> None:
    """Raise a UserError unless they are numbers of vertices."""
    if ids.dtype != torch.int64:
        raise UserError(f"ids of vertices are a tensor of int64, not of {ids.dtype}")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < n:
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise UserError(f"the graph has no vertex {wrong}", f"its vertices are 0 to {n - 1:,}")
