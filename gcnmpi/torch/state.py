"""This rank's rows of an opened graph, as all parts of :class:`gcnmpi.torch.Graph` see them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from gcnmpi.run.opening import Opened
from gcnmpi.schemes.p2p import Laid
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.objects import Folder
from gcnmpi.torch.ranks import OfThisProcess, Ranks


class GraphState(OfThisProcess):
    """What was opened, its rows of M, what moves rows; and tensors that users read.

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

    def __init__(self, ranks: Ranks, opened: Opened, laid: Laid, moves: Moves) -> None:
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

    @property
    def masks(self) -> Mapping[str, torch.Tensor]:
        """The masks that there are: "train", "val", "test"."""
        named = {"train": self.train_mask, "val": self.val_mask, "test": self.test_mask}
        return {name: mask for name, mask in named.items() if mask is not None}

    def _check_count(self, h: torch.Tensor, halo: bool = False) -> None:
        wanted, allowed = f"{self.num_own} own rows", [self.num_own]
        if halo:
            allowed.append(self.num_own + self.num_halo)
            wanted += f", or {allowed[1]} with those of the halo,"
        if h.ndim == 0 or len(h) not in allowed:
            raise ValueError(
                f"{wanted} are wanted on rank {self.rank}, not a tensor {tuple(h.shape)}"
            )
