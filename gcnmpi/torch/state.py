"""This rank's rows of an opened graph, as all parts of :class:`gcnmpi.torch.Graph` see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import torch

from gcnmpi.run.opening import Opened
from gcnmpi.schemes.p2p import Laid
from gcnmpi.torch.agreement import Agreement
from gcnmpi.torch.functions import Mean, eager, edges
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.objects import Folder
from gcnmpi.torch.ranks import OfThisProcess, Ranks


class GraphState(OfThisProcess):
    """The opened graph, its rows of M and the moves of rows; and tensors that users read.

    See :class:`gcnmpi.torch.Graph` for those that have no underscore.
    """

    x: torch.Tensor | None = None
    y: torch.Tensor | None = None
    train_mask: torch.Tensor | None = None
    val_mask: torch.Tensor | None = None
    test_mask: torch.Tensor | None = None
    graphs: torch.Tensor | None = None
    num_graphs: int = 1
    graph_y: torch.Tensor | None = None
    _folder: Folder | None = None  # kept as long, if it is a temporary one

    def __init__(
        self,
        ranks: Ranks,
        opened: Opened,
        laid: Laid,
        moves: Moves,
        check_weights: bool,
        arc_features: torch.Tensor | None,
        arc_numbers: Callable[[], torch.Tensor],
        typed: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self._arc_features, self._arc_numbers, self._typed_arcs = arc_features, arc_numbers, typed
        self._ranks, self._laid, self._moves = ranks, laid, moves
        self._opened, self._stored = opened, opened.source.stored
        self._seed = opened.config.train.seed
        self._max_bytes = opened.config.loading.max_bytes
        manifest, plan, every = self._stored.manifest, laid.plan, ranks.every.comm
        self.n, self.num_own, self.num_halo = manifest.n, plan.nown, plan.nhalo
        self.num_features = manifest.inputs
        self.num_classes = manifest.classes or manifest.targets
        self.rank, self.size = every.rank, every.size
        self.dtype: torch.dtype = getattr(torch, ranks.kernel.dtype.name)
        self.device = ranks.memory.device
        self.ids = ranks.placed(plan.own.astype(np.int64))
        self.halo_ids = ranks.placed(plan.halo.astype(np.int64))
        own_rows = self.num_own, self.num_own + self.num_halo, laid.valued.nnz
        self._agreement = Agreement(ranks.every, own_rows if check_weights else None)

    @property
    def masks(self) -> Mapping[str, torch.Tensor]:
        """The masks that there are: "train", "val", "test"."""
        named = {"train": self.train_mask, "val": self.val_mask, "test": self.test_mask}
        return {name: mask for name, mask in named.items() if mask is not None}

    # The pattern and the values of M.

    @cached_property
    @eager
    def edge_index(self) -> torch.Tensor:
        """(2, entries) int64: sources among own and halo rows, and targets among the own ones.

        The own rows of M as PyTorch Geometric has edges, sorted by target. Sources below
        ``num_own`` are own rows, the others those of ``expand``'s result behind them.
        """
        return edges(self._laid.valued).to(self.device)

    @cached_property
    @eager
    def edge_weight(self) -> torch.Tensor:
        """(entries,): the values of M, in the order of ``edge_index``."""
        return self._ranks.placed(self._laid.valued.data.copy())

    @property
    def edge_attr(self) -> torch.Tensor | None:
        """(entries, features) of arcs, in the order of ``edge_index``; None where there are none.

        Self-loops that are not in the graph have zeros. A ValueError for a graph with parallel
        arcs, which M adds up.
        """
        if self._stored.manifest.arc_features:
            self._check_not_parallel("edge_attr")
        return self._arc_features

    @cached_property
    @eager
    def edge_ids(self) -> torch.Tensor:
        """(entries,) int64: the number of each entry's arc in the folder, −1 if it has none.

        In the order of ``edge_index``: ``g.edge_ids`` chooses the rows of any array with a row for
        each arc. Self-loops that are not in the graph have −1. The first time it is for all ranks
        together, since arcs are read. A ValueError for a graph with parallel arcs.
        """
        self._check_not_parallel("edge_ids")
        return self._arc_numbers()

    @eager
    def mean(self, loss: torch.Tensor, count: float | None = None) -> torch.Tensor:
        """The mean over rows of all ranks, the same on every rank; differentiable.

        For all ranks together. Its gradient on a rank is that of the rank's own rows, so gradients
        of weights are complete once they are summed: :meth:`all_reduce_gradients`.

        Parameters
        ----------
        loss : tensor
            A loss for each of some of the own rows (``reduction="none"``); or the sum of them, a
            number, with ``count``.
        count : number, optional
            How many rows ``loss`` sums, or the sum of their weights; may be 0 on some ranks.
        """
        if count is None:
            if loss.ndim == 0:
                raise ValueError(
                    "mean takes the loss of each row, or their sum and how many they are: "
                    'reduction="none", or reduction="sum" and count='
                )
            count = loss.numel()
        self._agreement.averaged = True
        total = loss.sum(dtype=torch.float64)
        of_all, rows = self._agreement.total(total, float(count))
        if not rows:
            raise ValueError("the mean of nothing: no rank has a row of the loss")
        return Mean.apply(total, of_all, rows, self._ranks.every.total).to(loss.dtype)

    def _check_not_parallel(self, name: str) -> None:
        if self._stored.graph.parallel:
            raise ValueError(
                "the graph has parallel arcs, and edge_index one entry for all of two vertices: "
                f"{name} is of graphs that are imported without --duplicates keep"
            )

    def _check_count(self, h: torch.Tensor, halo: bool = False) -> None:
        wanted, allowed = f"{self.num_own} own rows", [self.num_own]
        if halo:
            allowed.append(self.num_own + self.num_halo)
            wanted += f", or {allowed[1]} with those of the halo,"
        if h.ndim == 0 or len(h) not in allowed:
            raise ValueError(
                f"{wanted} are wanted on rank {self.rank}, not a tensor {tuple(h.shape)}"
            )
