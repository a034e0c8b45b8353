"""The blocks of mini-batches for modules of PyTorch: bipartite graphs, one for each layer."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from gcnmpi.layout.entries import EntryRows
from gcnmpi.schemes.p2p import Laid
from gcnmpi.schemes.sampled import Layer
from gcnmpi.schemes.sampling_arcs import Arcs
from gcnmpi.torch.eager import eager
from gcnmpi.torch.functions import Map, check_probability, dropout, edges, linear
from gcnmpi.torch.moves import Moves, RowMoves
from gcnmpi.torch.ranks import OfThisProcess, Ranks
from partition.graph.relations import VertexTypes


class OfGraph(Protocol):
    """The opened graph as batches see it: see :class:`gcnmpi.torch.Graph`."""

    n: int
    rank: int
    num_own: int
    x: torch.Tensor | None
    y: torch.Tensor | None
    train_mask: torch.Tensor | None

    @property
    def edge_attr(self) -> torch.Tensor | None:
        """Features of arcs, in the order of the entries of M."""

    @property
    def edge_ids(self) -> torch.Tensor:
        """Numbers of arcs, in the order of the entries of M."""

    def mean(self, loss: torch.Tensor, count: float | None = None) -> torch.Tensor:
        """The mean over rows of all ranks."""


class OfBatches(Protocol):
    """The source of batches, as their blocks see it: see :mod:`gcnmpi.torch.batches`."""

    g: OfGraph
    ranks: Ranks
    laid: Laid
    moves: Moves
    seed: int

    @property
    def arcs(self) -> tuple[EntryRows, np.ndarray]:
        """The arcs of relations into own rows, and their numbers."""

    @property
    def vertex_types(self) -> VertexTypes | None:
        """The types of vertices of the graph."""

    def proceed(self) -> None:
        """Go on with the batch that is drawn ahead, if there is one."""


class Block(OfThisProcess):
    """The entries of M that a layer of a mini-batch keeps: from rows that it reads to its rows.

    A layer of PyTorch Geometric takes it as a bipartite graph::

        h = conv((block.expand(h), block.targets(h)), block.edge_index)

    Attributes
    ----------
    num_targets, num_own, num_halo : int
        Rows that the layer has here; own rows that it reads, of which those are the first ones; and
        rows of other ranks behind them.
    ids : (num_own + num_halo,) int64 tensor
        The vertices of the rows that ``expand`` gives.
    """

    def __init__(
        self, batching: OfBatches, layer: Layer, targets: int, rows: np.ndarray, number: int
    ) -> None:
        self._batching, self._layer, self._number = batching, layer, number
        self._rows = rows[: layer.plan.nown]
        self._products: dict[torch.dtype, tuple[Map, Map]] = {}
        self.num_targets, self.num_own, self.num_halo = targets, layer.plan.nown, layer.plan.nhalo
        self._vertices = np.concatenate((layer.plan.own, layer.plan.halo))
        self._placed = batching.ranks.placed
        self.ids = self._placed(self._vertices)

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """(2, entries) int64: sources among own and halo rows, and targets; sorted by target."""
        return edges(self._layer.matrix).to(self.ids.device)

    @cached_property
    def edge_weight(self) -> torch.Tensor:
        """(entries,): values of M, times the number of neighbours that an entry stands for.

        Of arcs of relations: one over the arcs of the relation into the row, times that number.
        """
        return self._placed(self._layer.matrix.data)

    @cached_property
    def edge_type(self) -> torch.Tensor:
        """(entries,) int64: the relation of each arc; a ValueError if they are not told apart."""
        return self._placed(self._told_apart("edge_type").relations.astype(np.int64))

    @cached_property
    def node_type(self) -> torch.Tensor:
        """(num_own + num_halo,) int64: the type of each row that ``expand`` gives."""
        types = self._batching.vertex_types
        if types is None:
            raise ValueError("the graph has no types of vertices")
        return self._placed(types.of(self._vertices))

    @property
    def typed_edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """``edge_index`` and ``edge_type``, as :attr:`gcnmpi.torch.Graph.typed_edges`."""
        return self.edge_index, self.edge_type

    @property
    def edge_attr(self) -> torch.Tensor | None:
        """(entries, features) of arcs, as ``g.edge_attr`` has them; None where there are none."""
        if self._layer.arcs is not None:
            raise ValueError("blocks of relations have no edge_attr: use edge_ids")
        features = self._batching.g.edge_attr
        return None if features is None else features[self._entries]

    @property
    def edge_ids(self) -> torch.Tensor:
        """(entries,) int64: numbers of arcs, as of ``g.edge_ids``; the first time, of all ranks."""
        if self._layer.arcs is not None:
            return self._placed(self._batching.arcs[1][self._layer.arcs.some])
        return self._batching.g.edge_ids[self._entries]

    def targets(self, h: torch.Tensor) -> torch.Tensor:
        """The rows that the layer has, (num_targets, …), of those that it reads."""
        return h[: self.num_targets]

    @eager
    def expand(self, h: torch.Tensor) -> torch.Tensor:
        """Own rows (num_own, …) → own and halo rows (num_own + num_halo, …); differentiable.

        For all ranks together; as :meth:`gcnmpi.torch.Graph.expand` of this block's rows.
        """
        self._check(h, self.num_own)
        self._batching.proceed()
        return self._moves.expanded(h)

    @eager
    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """The product with the block's entries of M, (num_own, …) → (num_targets, …).

        Differentiable; for all ranks together.
        """
        self._check(h, self.num_own)
        self._batching.proceed()
        if h.dtype not in self._products:
            self._products[h.dtype] = self._moves.of(h).products(self._layer.matrix)
        return linear(self._batching.ranks, h, *self._products[h.dtype])

    @eager
    def dropout(self, h: torch.Tensor, p: float, layer: int, training: bool = True) -> torch.Tensor:
        """Dropout of the block's own rows, or own and halo rows, with the masks of ``g.dropout``.

        The number of the batch takes the place of the epoch. Differentiable; nothing is sent.
        """
        check_probability(p)
        if not training or not p:
            return h
        self._check(h, self.num_targets, self.num_own, self.num_own + self.num_halo)
        ranks, vertices = self._batching.ranks, self._vertices[: len(h)]
        keys = ranks.kernel.row_keys(self._batching.seed, self._number, layer, vertices)
        return dropout(ranks, h, p, keys)

    def _told_apart(self, name: str) -> Arcs:
        if self._layer.arcs is None:
            raise ValueError(f"a block has {name} where relations are told apart: relations=True")
        return self._layer.arcs

    @cached_property
    def _moves(self) -> RowMoves:
        return self._batching.moves.for_plan(self._layer.plan, once=True)

    @cached_property
    def _entries(self) -> torch.Tensor:
        """Where the block's entries are among those of the rank, whose rows are sorted by column.

        Found by bisection of all at once.
        """
        whole, block = self._batching.laid.valued, self._layer.matrix
        halo = self._batching.laid.plan.nown + self._layer.halo
        columns = np.concatenate((self._rows, halo))[block.indices]
        rows = np.repeat(self._rows[: self.num_targets], np.diff(block.indptr))
        low = whole.indptr[rows].astype(np.int64)
        high = whole.indptr[rows + 1].astype(np.int64) - 1
        while (low < high).any():
            middle = (low + high) // 2
            right = whole.indices[middle] < columns
            low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
        return self._placed(low)

    def _check(self, h: torch.Tensor, *allowed: int) -> None:
        self._batching.ranks.check(h)
        if h.ndim == 0 or len(h) not in allowed:
            raise ValueError(
                f"{' or '.join(map(str, allowed))} rows of the block are wanted on rank "
                f"{self._batching.g.rank}, not a tensor {tuple(h.shape)}"
            )
