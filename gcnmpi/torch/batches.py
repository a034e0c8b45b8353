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
from gcnmpi.schemes.sampled import Batch as Cut
from gcnmpi.schemes.sampled import Cuts, Cutter, Layer, threads_ahead
from gcnmpi.schemes.sampling import clusters_of, numbered
from gcnmpi.schemes.sampling_arcs import Arcs
from gcnmpi.torch.functions import Map, check_probability, dropout, eager, edges, linear
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.moves import RowMoves
from gcnmpi.torch.ranks import OfThisProcess
from gcnmpi.torch.state import GraphState
from partition.errors import UserError
from partition.graph.relations import Relation as Known
from partition.graph.relations import VertexTypes, place_of
from partition.graph.sampling import Sampler


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
        self, batching: Batching, layer: Layer, targets: int, rows: np.ndarray, number: int
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


Relation = str | tuple[str, str, str]
"""Its name, or its words as those of a ``HeteroData``."""


class Batching(OfThisProcess):
    """``g.batches``: mini-batches of a graph, by the samplers of ``gcnmpi train``.

    An epoch takes 16 bytes for each own row, and sends two numbers for each once; a batch sends
    ids, twice as many counts as there are ranks for each layer, and the rows that are expanded.
    """

    def __init__(self, g: GraphState) -> None:
        self.g, self.ranks, self.laid, self.moves = g, g._ranks, g._laid, g._moves
        self.seed, self._opened = g._seed, g._opened
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
