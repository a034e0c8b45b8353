"""Mini-batches for modules of PyTorch: bipartite blocks that all ranks cut together."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial

import numpy as np
import torch

from gcnmpi.layout.entries import EntryRows, load_entry_rows
from gcnmpi.layout.placing import Arriving
from gcnmpi.layout.runtime import Demand
from gcnmpi.mpi.ahead import InTurn, Work
from gcnmpi.mpi.comm import agreed, maximum
from gcnmpi.options.train import batches_of, sampler_of
from gcnmpi.run.opening import Opened
from gcnmpi.schemes.p2p import Laid
from gcnmpi.schemes.sampled import Batch as Cut
from gcnmpi.schemes.sampled import Cuts, Cutter, threads_ahead
from gcnmpi.schemes.sampling import clusters_of, numbered
from gcnmpi.torch.blocks import Block, OfGraph
from gcnmpi.torch.eager import eager
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.ranks import OfThisProcess, Ranks
from partition.errors import UserError
from partition.graph.relations import Relation as Known
from partition.graph.relations import VertexTypes, place_of
from partition.graph.sampling import Sampler

Relation = str | tuple[str, str, str]
"""Its name, or its words as those of a ``HeteroData``."""


class Batching(OfThisProcess):
    """``g.batches``: mini-batches of a graph, by the samplers of ``gcnmpi train``.

    An epoch takes 16 bytes for each own row, and sends two numbers for each once; a batch sends
    ids, twice as many counts as there are ranks for each layer, and the rows that are expanded.
    """

    def __init__(self, g: OfGraph, ranks: Ranks, opened: Opened, laid: Laid, moves: Moves) -> None:
        self.g, self.ranks, self.laid, self.moves = g, ranks, laid, moves
        self.seed, self._opened = opened.config.train.seed, opened
        # By the layers that look at neighbours, and whether relations are told apart.
        self._cutters: dict[tuple[int, bool], Cutter] = {}
        self._clusters: dict[str, np.ndarray | None] = {}
        self._turn: InTurn[Cut] = InTurn(None)

    @eager
    def __call__(
        self,
        sampler: str,
        size: int | str,
        fanouts: Sequence[int] | Mapping[Relation, Sequence[int]] = (),
        *,
        epoch: int,
        seeds: torch.Tensor | None = None,
        clusters: str = "",
        relations: bool = False,
    ) -> Epoch:
        """The mini-batches of an epoch, to be iterated over by all ranks together.

        Who is in a batch, and which neighbours it keeps, are functions of the seed of the graph, of
        epoch, batch and vertices: the same for every number of ranks, and those of ``gcnmpi
        train``. For all ranks together.

        Parameters
        ----------
        sampler : {"neighbor", "labor", "vertex", "cluster"}
            See docs/mini-batches.md.
        size : int or str
            Seeds, vertices or clusters in a batch, of all ranks together; or a share, "6%".
        fanouts : sequence of int
            Of "neighbor" and "labor": how many neighbours a row keeps, in each layer that looks at
            neighbours, that of the seeds first; −1: all. Or a mapping of each relation to those of
            its arcs, 0: none.
        epoch : int
            From 1.
        seeds : (num_own,) bool tensor, optional
            The vertices that the loss is a mean of, with which "neighbor" and "labor" begin;
            ``g.train_mask`` without it, or all vertices.
        clusters : str
            The partition whose parts are the clusters of "cluster".
        relations : bool
            Whether every arc is an entry, and "neighbor" and "labor" draw from the arcs of each
            relation; also where ``fanouts`` is a mapping. Blocks have ``edge_type`` then.

        Returns
        -------
        Epoch
            ``len`` of it is the number of batches.

        Raises
        ------
        UserError
            On all ranks, if there is no such sampler, or a number does not fit.
        """
        self.ranks.together("batches")
        g, comm, config = self.g, self.ranks.comm, self._opened.config
        own, known = "", self._opened.source.stored.graph.relations
        relations = relations or isinstance(fanouts, Mapping)
        with agreed(comm):
            if relations and not known:
                raise UserError("the graph has no relations", "give fan-outs as a list: [10, 5]")
            if isinstance(fanouts, Mapping):
                own, fanouts = _by_relation(fanouts, known)
        words = [sampler, *([clusters] if clusters else []), size, *fanouts]
        train = dataclasses.replace(config.train, batches=",".join(map(str, words)), fanouts=own)
        if seeds is None:
            seeds = (
                torch.ones(g.num_own, dtype=torch.bool, device=self.ranks.memory.device)
                if g.train_mask is None
                else g.train_mask
            )
        with agreed(comm):
            if batches_of(train) is None or epoch < 1:
                raise UserError(
                    f"no mini-batches: sampler {sampler!r}, epoch {epoch}",
                    'such as g.batches("neighbor", 1024, [10, 5], epoch=1); epochs count from 1',
                )
            if seeds.dtype != torch.bool or seeds.shape != (g.num_own,):
                raise UserError(
                    f"seeds are a mask of own rows, ({g.num_own},) bool on rank {comm.rank}, not "
                    f"{tuple(seeds.shape)} of {seeds.dtype}"
                )
        index, many = numbered(comm, self.laid.rows, on_host(seeds), config.loading.max_bytes)
        if clusters not in self._clusters:
            self._clusters[clusters] = clusters_of(comm, self._opened.source.stored, train)
        with agreed(comm):
            if not many:
                raise UserError("no vertex of any rank is a seed")
            told_apart = known if relations else ()
            made = sampler_of(train, g.n, many, self._clusters[clusters], told_apart)
        hops, limit = max(1, len(made.fanouts)), config.loading.max_bytes
        if (hops, relations) not in self._cutters:
            arcs = self.arcs[0] if relations else None
            self._cutters[hops, relations] = Cutter(comm, self.laid, hops, limit, arcs)
        candidates = index if made.layered else self.laid.plan.own
        cuts = Cuts(self._cutters[hops, relations], made, candidates)
        return Epoch(self, made, cuts, epoch, seeds, many)

    @cached_property
    def arcs(self) -> tuple[EntryRows, np.ndarray]:
        """Arcs into own rows, in groups of relations, and their numbers; of all ranks together."""
        plan, parts = self.laid.plan, self.laid.rows.parts
        limit = self._opened.config.loading.max_bytes
        arriving = Arriving.to_owners(self.ranks.comm, self._opened.source, parts, limit)
        found = load_entry_rows(arriving, False, plan.own, plan.halo, Demand(groups=True))
        return found, found.arcs()

    def draw(
        self, turn: InTurn[Cut], work: Callable[[], Work[Cut]], then: Callable[[], Work[Cut]] | None
    ) -> Cut:
        """Cut a batch, and begin another one; one loop's at a time, whatever loops there are."""
        self.ranks.together("a batch")
        if turn is not self._turn:
            self._turn.end()
            self._turn = turn
        return turn.take(work, then)

    def proceed(self) -> None:
        """Go on with the batch that is drawn ahead, if there is one."""
        self._turn.proceed()

    @property
    def vertex_types(self) -> VertexTypes | None:
        """The types of vertices of the graph."""
        return self._opened.source.stored.graph.vertex_types

    @cached_property
    def threads(self) -> Executor | None:
        """The thread that draws the next batch: on all ranks or on none.

        So all ranks begin the same operations in the same order, wherever they leave a loop.
        """
        wanted = self._opened.config.train.draw_ahead
        threads = threads_ahead(self.ranks.comm, self.ranks.kernel, wanted)
        if maximum(self.ranks.comm, float(threads is None)):
            return None
        atexit.register(lambda: self._turn.end())  # no message is left on its way
        return threads


def _by_relation(
    fanouts: Mapping[Relation, Sequence[int]], known: Sequence[Known]
) -> tuple[str, Sequence[int]]:
    """As ``train.fanouts`` has them, and those of the first; a UserError if one is missing."""
    of = {one if isinstance(one, str) else ",".join(one): list(own) for one, own in fanouts.items()}
    named = {place_of(one, known, "fan-outs") for one in of}
    missing = [str(one) for number, one in enumerate(known) if number not in named]
    if missing:
        raise UserError(f"fan-outs lack the relation {missing[0]}", "0 draws none of its arcs")
    text = "; ".join(f"{one}={','.join(map(str, own))}" for one, own in of.items())
    return text, [10] * max(map(len, of.values()))


class Epoch:
    """The mini-batches of an epoch, in their order; all ranks iterate together."""

    def __init__(
        self,
        batching: Batching,
        sampler: Sampler,
        cuts: Cuts,
        epoch: int,
        seeds: torch.Tensor,
        many: int,
    ) -> None:
        self._batching, self._sampler, self._cuts = batching, sampler, cuts
        self._epoch, self._seeds, self._many = epoch, seeds, many

    def __len__(self) -> int:
        return self._sampler.batches

    def __iter__(self) -> Iterator[Batch]:
        batching, sampler, turn = self._batching, self._sampler, InTurn[Cut](self._batching.threads)
        works = [partial(self._cuts.of, self._epoch, batch) for batch in range(len(self))]
        for batch, (work, then) in enumerate(itertools.pairwise([*works, None])):
            assert work is not None
            cut = batching.draw(turn, work, then)
            share = sampler.count(batch) / sampler.n
            rows = None if sampler.layered else share * self._many
            number = (self._epoch - 1) * len(self) + batch + 1
            yield Batch(batching, cut, self._seeds, number, share, rows)


class Batch(OfThisProcess):
    """This rank's part of a mini-batch: rows of its own, and a block for each layer.

    ``batch[k]`` is the block of the layer k that looks at neighbours, the first of the network
    being 0. The batch's rows are in one order, of which each layer has the first ones: the seeds,
    then what only layers before it read. ``zip(layers, batch)`` goes through both.

    Attributes
    ----------
    rows : (rows,) int64 tensor
        Its rows among the rank's own: ``h[batch.rows]`` of any ``h`` of ``num_own`` rows.
    ids : (rows,) int64 tensor
        Their vertices.
    num_seeds : int
        How many of the rows the last layer has; all, where all layers have the same rows.
    share : float
        Of the vertices that batches are drawn from, how many this one has: the loss of an epoch is
        the sum of ``batch.share * loss``.
    number : int
        Of the batch, from 1 in the first epoch: it tells the masks of dropout apart.
    """

    def __init__(
        self,
        batching: Batching,
        cut: Cut,
        seeds: torch.Tensor,
        number: int,
        share: float,
        expected: float | None,
    ) -> None:
        self._g, self._layered, self._expected = batching.g, cut.layered, expected
        self._all_seeds = seeds
        self.rows = batching.ranks.placed(cut.rows.astype(np.int64))
        self.ids = batching.ranks.placed(cut.vertices)
        self.num_seeds, self.number, self.share = cut.counts[0], number, share
        self.blocks = [
            Block(batching, layer, rows, cut.rows, number)
            for layer, rows in zip(cut.layers, cut.counts, strict=False)
        ][::-1]

    def __getitem__(self, layer: int) -> Block:
        if not self._layered:
            return self.blocks[0]
        if not -len(self.blocks) <= layer < len(self.blocks):
            raise IndexError(
                f"the batch has {len(self.blocks)} blocks, as many as fan-outs were given, and no "
                f"number {layer}"
            )
        return self.blocks[layer]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks) if self._layered else itertools.repeat(self.blocks[0])

    @cached_property
    def x(self) -> torch.Tensor:
        """(rows, d): the features of its rows."""
        if self._g.x is None:
            raise ValueError("the graph has no features")
        return self._g.x.index_select(0, self.rows)  # much faster than by brackets

    @cached_property
    def y(self) -> torch.Tensor:
        """The classes or targets of the first ``num_seeds`` rows."""
        if self._g.y is None:
            raise ValueError("the graph has no labels")
        return self._g.y[self.rows[: self.num_seeds]]

    @cached_property
    def seeds(self) -> torch.Tensor:
        """(num_seeds,) bool: the rows that the loss is a mean of."""
        return self._all_seeds[self.rows[: self.num_seeds]]

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The mean of a loss over the seeds of all ranks, (seeds of this rank,); differentiable.

        For all ranks together. Where a batch is drawn among all vertices, it is the sum divided by
        the number of seeds that is expected, so that its gradient has no bias.
        """
        if self._expected is None:
            return self._g.mean(loss)
        return self._g.mean(loss.sum(), self._expected if self._g.rank == 0 else 0)
