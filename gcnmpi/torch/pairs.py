"""Pairs of vertices for modules of PyTorch: those of the graph folder, with negatives, in batches.

Which pairs and negatives a step has, and which rank scores a pair, is as in ``gcnmpi train``: see
:mod:`gcnmpi.nn.tasks.drawing` and :mod:`gcnmpi.halo.pairs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch

from gcnmpi.halo.pairs import ScoredPairs, place_pairs, who_scores
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.loading import places_of
from gcnmpi.mpi.comm import agreed, slice_of
from gcnmpi.nn.tasks.drawing import Drawer, drawer_of, share_of_held_out
from gcnmpi.options.config import from_table
from gcnmpi.options.task import LINKS, LinkOptions
from gcnmpi.schemes.p2p import Laid
from gcnmpi.torch.functions import eager
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.ranks import OfThisProcess, Ranks
from gcnmpi.torch.state import GraphState
from partition.errors import UserError
from partition.graph.vertex_pairs import PairSet


class ScoredHere(OfThisProcess):
    """The pairs that this rank scores, of some that all ranks have together.

    Attributes
    ----------
    positive : (m,) bool tensor
        Which of them are positives.
    counts : (m,) bool tensor
        Which of them count: not a negative that is its positive, or a vertex with itself.
    ends : (2, m) int64 tensor
        Numbers of the first and second vertex of each in the graph.
    relations : (m,) int64 tensor, or None
        The relation of each, a negative's that of its positive; of negatives that positives have in
        common −1, unless the folder has theirs. None: the pairs have no relations.
    """

    def __init__(
        self, ranks: Ranks, moves: Moves, pairs: ScoredPairs, given: list[np.ndarray]
    ) -> None:
        self._ranks = ranks
        self._moves = moves.for_plan(pairs.plan, once=True)
        rows = entry_rows(pairs.pattern.indptr)
        local = np.stack((rows, pairs.pattern.indices.astype(np.int64)))
        first, positive, counts, *relations = given
        # The row of a pair is the end that the rank owns, which may be the second.
        turned = pairs.ids[local[0]] != first
        local = np.where(turned, local[::-1], local)
        self._local = ranks.placed(np.ascontiguousarray(local))
        self.ends = ranks.placed(pairs.ids.astype(np.int64)[local])
        self.positive, self.counts = ranks.placed(positive), ranks.placed(counts)
        of = [ranks.placed(each.astype(np.int64)) for each in relations]
        self.relations = of[0] if of else None

    def __len__(self) -> int:
        return self._local.shape[1]

    @eager
    def rows(self, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the first and the second vertex of each pair, (m, …) each; differentiable.

        ``h`` are own rows, (num_own, …). For all ranks together.
        """
        self._ranks.check(h)
        h = self._moves.expanded(h)
        return h.index_select(0, self._local[0]), h.index_select(0, self._local[1])


class Pairs(OfThisProcess):
    """The pairs of a graph folder, as :meth:`Graph.pairs` gives them.

    Attributes
    ----------
    num_batches : int
        Batches of an epoch.
    """

    def __init__(
        self, ranks: Ranks, laid: Laid, moves: Moves, drawer: Drawer, ordered: bool, limit: float
    ) -> None:
        self._ranks, self._laid, self._moves, self._drawer = ranks, laid, moves, drawer
        self._ordered, self._limit = ordered, limit
        self.num_batches = drawer.sampler.batches
        mine = slice_of(drawer.sampler.n, ranks.comm.rank, ranks.comm.size)
        self._numbers = np.arange(mine.start, mine.stop)

    @property
    def set(self) -> PairSet:
        """The pairs as the folder has them, memory-mapped arrays: the same on all ranks."""
        return self._drawer.pairs

    def batches(self, epoch: int) -> Iterator[ScoredHere]:
        """The batches of an epoch, from 1: positives and their negatives; for all ranks together.

        Each positive is in one batch; batches and negatives depend on the seed, the epoch and
        numbers of pairs only.
        """
        of = self._drawer.batches_of(epoch, self._numbers)
        for batch in range(self.num_batches):
            here = self._drawer.draw(epoch, batch, self._numbers[of == batch])
            counts = np.concatenate((np.ones(len(here.pairs), bool), here.counts.ravel()))
            positive = np.arange(len(counts)) < len(here.pairs)
            yield self._placed(here.every, positive, counts, here.every_relation, lasts=False)

    def held_out(self, mask: str) -> ScoredHere:
        """The positives of "val" or "test", and the negatives that they have in common.

        For all ranks together.
        """
        comm = self._ranks.comm
        with agreed(comm):
            if mask not in ("val", "test"):
                raise UserError(f"pairs are held out to val or test, not to {mask!r}")
        pairs, positive, relations = share_of_held_out(self.set, mask, comm.rank, comm.size)
        return self._placed(pairs, positive, np.ones(len(pairs), bool), relations, lasts=True)

    @cached_property
    def _places(self) -> np.ndarray:
        return places_of(self._ranks.comm, self._laid.rows, self._limit)

    @eager
    def _placed(
        self,
        pairs: np.ndarray,
        positive: np.ndarray,
        counts: np.ndarray,
        relations: np.ndarray | None,
        lasts: bool,
    ) -> ScoredHere:
        self._ranks.together("pairs")
        given = [pairs[:, 0], positive, counts]
        given += [] if relations is None else [relations]
        rows = self._laid.rows
        facts = self._ranks.comm, self._laid.plan.own, rows.parts, self._places, pairs, given
        placed = place_pairs(*facts, who_scores(not self._ordered, lasts), self._limit)
        return ScoredHere(self._ranks, self._moves, placed, placed.given)


class OfPairs(GraphState):
    """A graph with ``pairs``."""

    def pairs(
        self,
        negatives: str = "uniform,1",
        *,
        batch: int = 0,
        ordered: bool = False,
        seed: int | None = None,
    ) -> Pairs:
        """The pairs that the graph was opened with; for all ranks together.

        Parameters
        ----------
        negatives : str
            "uniform,K": so many drawn pairs for each positive; "corrupt,K": so many with a drawn
            vertex in place of either end; "pool,B": its first vertex with each
            of B drawn ones; "given": those of the pairs.
        batch : int
            Positives of a batch; 0: all in one.
        ordered : bool
            Whether the score tells the first vertex from the second: it is then scored by the owner
            of the first; else by either, whichever sends fewer rows.
        seed : int, optional
            Of batches and negatives; that of the graph unless given.

        Raises
        ------
        UserError
            On all ranks, if the graph was opened without pairs, or they have not such negatives.
        """
        source, config = self._opened.source, self._opened.config
        with agreed(self._ranks.comm):
            found = source.stored.pairs
            if found is None:
                raise UserError(
                    "the graph was opened without pairs", 'gcnmpi.torch.open(…, pairs="links")'
                )
            table = {"name": LINKS, "negatives": negatives, "batch": batch}
            task = from_table({"task": table}).task
            assert isinstance(task, LinkOptions)
            n, of = source.stored.manifest.n, config.train.seed if seed is None else seed
            drawer = drawer_of(task, found, n, of, source.stored.graph.vertex_types)
        limit = config.loading.max_bytes
        return Pairs(self._ranks, self._laid, self._moves, drawer, ordered, limit)
