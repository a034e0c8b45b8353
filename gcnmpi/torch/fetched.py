"""Rows of any vertices on any rank: of the ends of pairs, of negatives, anchors, nodes to read."""

from __future__ import annotations

import numpy as np
import torch

from gcnmpi.halo.exchange import agree_on_plan
from gcnmpi.halo.plan import local_numbers
from gcnmpi.layout.placing import halo_of
from gcnmpi.mpi.comm import agreed
from gcnmpi.schemes.row_scheme import Laid
from gcnmpi.torch.eager import eager
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.ranks import OfThisProcess, Ranks
from partition.errors import UserError


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
