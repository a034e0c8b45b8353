"""Training on mini-batches: of each a part of the graph, and the gradient there.

A rank may keep input rows of others that batches read often. It computes with them as with its own,
in the layer that reads the inputs: what that layer makes of a row is made wherever the row is kept,
and the gradient there is of what its own rows read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.loading import load_sparse
from gcnmpi.layout.place import Place
from gcnmpi.mpi import ahead
from gcnmpi.mpi.ahead import InTurn, done_now
from gcnmpi.mpi.comm import Comm, Request, agreed, maximum, redistribute, split
from gcnmpi.mpi.reduction import reduce_over_ranks, start_sum
from gcnmpi.nn.compile.on_scheme import batched, hops_of, told_apart
from gcnmpi.nn.model import Passes
from gcnmpi.nn.program import products
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Loss, LossInputs, Targets, task_of
from gcnmpi.options.train import sampler_of
from gcnmpi.planner.batch_memory import batch_memory
from gcnmpi.planner.batches import batch_cases
from gcnmpi.run.evaluation import RowEvaluation
from gcnmpi.run.own_rows import own_types
from gcnmpi.run.problem import TYPES, Problem, load_features, load_targets
from gcnmpi.run.step import BatchLoss, Forecast, Interrupt, Work
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import EXCHANGES, Product
from gcnmpi.schemes.row_scheme import Laid, RowScheme
from gcnmpi.schemes.sampled import (
    Batch,
    BatchScheme,
    Cuts,
    Cutter,
    Memory,
    RowBatches,
    threads_ahead,
)
from gcnmpi.schemes.sampled_forecast import BatchSizes, TileSizes
from gcnmpi.schemes.sampled_tiles import TileBatches, TileScheme
from gcnmpi.schemes.sampling import clusters_of, numbered
from partition.graph.graph import SparseRows
from partition.graph.metrics import Metrics, most_used, observed, rows_within
from partition.graph.sampling import VertexSampler

Part = TypeVar("Part")
_INPUTS = Place(0)
_FORECAST = 2  # mini-batches that a forecast looks at


class Batches(Protocol[Part]):
    """A rank's rows of M, or its tiles, that batches are cut from.

    Attributes
    ----------
    comm : Comm
        Messages that draw a batch travel here.
    """

    comm: Comm

    def of(self, epoch: int, batch: int) -> ahead.Work[Part]:
        """Cut this rank's part of a batch of an epoch, one at a time."""

    def counts(self, part: Part) -> Sequence[float] | np.ndarray:
        """Numbers that are to be summed over ranks."""

    def rows(self, part: Part, place: Place) -> np.ndarray:
        """The rows of the batch among those that the rank has at a place, by number."""

    def rows_of_all(self, part: Part, sums: np.ndarray, place: Place) -> int:
        """How many rows a matrix at a place has on all ranks."""

    def scheme(self, part: Part, sums: np.ndarray) -> Scheme:
        """The scheme on which the batch is computed, and that of the batch before ends."""

    def counted(self, part: Part) -> Mapping[str, int]:
        """Numbers of the batch for the record."""


@dataclass(frozen=True)
class _Facts:
    """The facts of a batch that all ranks agree on."""

    targets: Targets  # labels of its rows, and those that train
    sums: np.ndarray  # of what the ranks count
    share: float  # its share in the loss of the epoch; 0: nothing in it trains
    interrupted: bool  # whether a rank wants the epoch to be interrupted


Drawn = tuple[Any, _Facts]


class BatchWork(Work):
    """Mini-batches of labelled rows, which all ranks compute together.

    The batches and their dropout depend on global ids, the epoch and the number of the batch
    only: the curve is the same for any number of ranks, any partition and any grid.

    Parameters
    ----------
    problem : Problem
        On a scheme that kept what batches are cut from.

    Attributes
    ----------
    model : Model
        It evaluates, on all vertices.
    sampler : Sampler
    """

    def __init__(self, problem: Problem) -> None:
        self._features = load_features(problem)
        super().__init__(problem, self._features, ("evaluation",))
        self._targets = load_targets(problem, self.model.place)
        comm, config, stored = problem.runtime.comm, problem.config, problem.source.stored
        laid = problem.scheme.laid if isinstance(problem.scheme, RowScheme) else None
        index, seeds = np.zeros(0, np.int64), stored.manifest.n
        if laid is not None:
            train, max_bytes = self._targets.masks["train"], config.loading.max_bytes
            index, seeds = numbered(comm, laid.rows, train, max_bytes)
        clusters = clusters_of(comm, stored, config.train)
        with agreed(comm):
            n, relations = stored.manifest.n, told_apart(problem.network, stored)
            self.sampler = sampler_of(config.train, n, seeds, clusters, relations)
            self._program = batched(config, self.sampler, problem.network, problem.program)
        self._steps = (*self._program.forward, *self._program.backward)
        # The products that send rows: how wide these are, no batch changes.
        every = products(self._program, self._steps, lambda place: 0)
        self._exchanged = [product for product in every if product[0] in EXCHANGES]
        self._batches = self._cut_from(laid, index)
        self._rows = Memory(problem.runtime.kernel)
        self._predicted = NOTHING
        self._counted: Counter[str] = Counter()
        self._kept: _KeptRows | None = None
        if config.train.cache_mb:
            self._keep_rows()
        self._of_step, groups = config.train.step_batches, config.train.groups
        # As many as the sampler draws, unless a step has several.
        self.batches = -(-self.sampler.batches // self._of_step)
        flat = self.model.gradients.flat
        self._total = problem.runtime.kernel.zeros(len(flat) if self._of_step > 1 else 0)
        self._across = split(problem.runtime.everyone, comm.rank) if groups > 1 else None
        kernel, wanted = problem.runtime.kernel, config.train.draw_ahead
        self._in_turn: InTurn[Drawn] = InTurn(threads_ahead(comm, kernel, wanted))

    def _cut_from(self, laid: Laid | None, index: np.ndarray) -> Batches[Any]:
        """Tiles; or rows, of which ``index`` has the number of each among the seeds."""
        problem, sampler, program = self._problem, self.sampler, self._program
        runtime, config, scheme = problem.runtime, problem.config, problem.scheme
        if laid is None:
            assert isinstance(sampler, VertexSampler)
            last = max(value.place.layer for value in program.values)
            return TileBatches(runtime, cast(TileScheme, scheme), sampler, last)
        # The sampler decides on seeds, by their number among all seeds, or on all vertices.
        candidates = index if sampler.layered else laid.plan.own
        arcs = scheme.entries if program.needs_groups else None  # type: ignore[attr-defined]
        cutter = Cutter(runtime.comm, laid, hops_of(program), config.loading.max_bytes, arcs)
        cuts = Cuts(cutter, sampler, candidates)
        return RowBatches(runtime, config, laid, cutter, cuts, program.needs_halo)

    def predicted(self, epochs: int) -> Volume:
        """The volume of the epochs that were run, from the plans of their batches."""
        return self._predicted

    def counted(self) -> dict[str, int]:
        """Batches, the rows and messages that this rank sent in one expand of each layer.

        Of rows that it keeps: how many, their bytes, and how many of them were read.
        """
        if self._kept is None:
            return dict(self._counted)
        kept = {"kept_rows": len(self._kept.places), "kept_bytes": self._kept.bytes}
        return dict(self._counted) | kept

    def forecast(self) -> Forecast:
        """By the first mini-batches, which are drawn again, as the run will."""
        numbers, sampler = range(min(_FORECAST, self.sampler.batches)), self.sampler
        first = [done_now(self._batches.of(1, batch)) for batch in numbers]
        sizes = _drawn_sizes(self._problem, self._batches, first)
        return lambda case, source: batch_memory(case, batch_cases(case, source, sizes), sampler)

    def evaluation(self) -> RowEvaluation:
        """The metrics of all masks, on all vertices."""
        return RowEvaluation(self._problem, self.model, self._targets)

    def gradient(self, epoch: int, batch: int, interrupt: Interrupt) -> BatchLoss:
        """The gradient of a mini-batch, or of the several ones of a step."""
        if self._of_step > 1:
            return self._several(epoch, batch, interrupt)
        drawn, facts = self._drawn(epoch, batch, interrupt)
        loss: Number = 0.0
        if facts.share:
            loss = self._gradient(drawn, facts, epoch, batch)
        return BatchLoss(loss, facts.share, interrupted=facts.interrupted)

    def _several(self, epoch: int, step: int, interrupt: Interrupt) -> BatchLoss:
        """The mean of the gradients of several batches, of which groups have some."""
        flat, shared, first = (
            self.model.gradients.flat,
            self.model.gradients.shared,
            step * self._of_step,
        )
        last = min(first + self._of_step, self.sampler.batches)
        loss, interrupted, total = 0.0, False, self._total
        total.fill(0)
        for batch in self._mine(first):
            drawn, facts = self._drawn(epoch, batch, interrupt)
            interrupted |= facts.interrupted
            if facts.share:
                loss += facts.share * float(self._gradient(drawn, facts, epoch, batch))
                total += flat * (1 / (last - first))
        self._problem.runtime.kernel.copy(total.reshape(1, -1), flat.reshape(1, -1))
        if self._across is not None:
            if shared.start:  # pieces of weights that schemes cut
                self._sum_pieces(flat[: shared.start])
            interrupted = maximum(self._problem.runtime.everyone, interrupted) > 0
        return BatchLoss(loss, interrupted=interrupted)

    def _mine(self, first: int) -> range:
        """The batches of a step, of which this is the first one, that this group computes."""
        runtime, each = self._problem.runtime, self._of_step // self._problem.config.train.groups
        start = first + each * (runtime.everyone.rank // runtime.comm.size)
        return range(start, max(start, min(start + each, self.sampler.batches)))

    def _sum_pieces(self, pieces: Array) -> None:
        """Sum pieces that ranks of one place in each group have, in place."""
        runtime = self._problem.runtime
        assert self._across is not None
        on_host = runtime.kernel.to_host(pieces).astype(np.float64)
        reduce_over_ranks(self._across, on_host, runtime.phases, runtime.traffic)
        summed = runtime.kernel.from_host(on_host.reshape(1, -1).astype(runtime.kernel.dtype))
        runtime.kernel.copy(summed, pieces.reshape(1, -1))

    def wait(self) -> None:
        """Draw the batch that was begun to its end."""
        self._in_turn.end()

    def _drawn(self, epoch: int, batch: int, interrupt: Interrupt) -> Drawn:
        """A batch, which may have been drawn ahead; the next one of the epoch is begun."""
        work = partial(self._drawing, epoch, batch, interrupt)
        then, following = self._after(batch), None
        if then < self.sampler.batches:
            following = partial(self._drawing, epoch, then, interrupt)
        with self._problem.runtime.phases("sample"):
            drawn, facts = self._in_turn.take(work, following)
        self._counted["batches"] += 1
        if self._kept is not None:
            rows = self._batches.rows(drawn, _INPUTS)
            self._counted["kept_rows_read"] += len(rows) - self._own(rows)
        self._counted.update(self._batches.counted(drawn))
        return drawn, facts

    def _after(self, batch: int) -> int:
        """The batch that this group computes after another one."""
        first = batch // self._of_step * self._of_step
        if batch + 1 in self._mine(first):
            return batch + 1
        return next(iter(self._mine(first + self._of_step)), self.sampler.batches)

    def _proceed(self) -> None:
        """With the batch that is drawn ahead, which is also ``sample`` in the record."""
        if self._in_turn.under_way:
            with self._problem.runtime.phases("sample"):
                self._in_turn.proceed()

    def _drawing(self, epoch: int, batch: int, interrupt: Interrupt) -> ahead.Work[Drawn]:
        """Draw a batch, and in one reduction find the facts that all ranks agree on."""
        drawn = yield from self._batches.of(epoch, batch)
        targets, sampler, place = self._targets, self.sampler, self._program.place
        rows = self._batches.rows(drawn, place)
        labels, mask = targets.labels[rows], targets.masks["train"][rows]
        of_classes, block = labels.ndim == 1, self._problem.scheme.block(self.model.place, 0)
        known = np.count_nonzero(mask) if of_classes else np.sum(~np.isnan(labels[mask]))
        known *= block.counts_rows if of_classes else block.counts_entries
        counts = np.array([known, 0, *self._batches.counts(drawn)], np.float64)

        def start() -> Request:
            counts[1] = interrupt()
            return start_sum(self._batches.comm, counts, self._problem.runtime.traffic)

        yield start
        known, interrupted = int(counts[0]), counts[1] > 0
        # Of vertices, divided by the expected number of labels, the gradient has no bias.
        share = sampler.count(batch) / sampler.n
        divisor, every = share * targets.counts["train"], targets.counts["train"]
        if sampler.layered:
            share, divisor = known / every, known
        found = Targets(labels, {"train": mask}, {"train": divisor})
        return drawn, _Facts(found, counts[2:], share if known else 0.0, interrupted)

    def _gradient(self, drawn: Any, facts: _Facts, epoch: int, batch: int) -> Number:
        """The gradient of a batch; returns this rank's share of its loss."""
        number = (epoch - 1) * self.sampler.batches + batch + 1
        problem, model, kernel = self._problem, self.model, self._problem.runtime.kernel
        program, features = self._program, self._features_of(drawn)
        scheme = self._batches.scheme(drawn, facts.sums)
        passes = Passes(
            scheme, kernel, program, problem.config.train.seed,
            partial(self._batches.rows_of_all, drawn, facts.sums),
            features, model.parameters, model.gradients, ("training",), self._proceed,
            partial(self._given, scheme),
        )  # fmt: skip
        options, place = problem.config.task, program.place
        inputs = LossInputs(scheme, kernel, place, model.widths[-1], facts.targets, options)
        found = task_of(options).loss(inputs)
        logits = passes.forward(number)
        with problem.runtime.phases("loss"):
            loss = found(logits, passes.output_grad)
        passes.backward(number)
        for product in self._products(scheme, found):
            self._predicted += scheme.volume(*product)
        return loss

    def _products(self, scheme: Scheme, loss: Loss) -> Sequence[Product]:
        """The products and row operations of a batch that move something."""
        if scheme.whole_rows:
            return self._exchanged
        rows = partial(_rows_of, scheme)
        return [*products(self._program, self._steps, rows), *loss.products()]

    def _given(self, scheme: Scheme, given: str, place: Place) -> Array:
        """Numbers of arcs, or types of vertices, of the rows that a batch has at a place."""
        stored, kernel = self._problem.source.stored, self._problem.runtime.kernel
        if given in TYPES:
            rows = own_types(stored, scheme.block(place, 1).rows)
        else:
            assert isinstance(scheme, BatchScheme)
            rows = scheme.arcs_of(given, place)[:, np.newaxis]
        return kernel.from_host(rows.astype(kernel.dtype, copy=False))

    def _features_of(self, drawn: Any) -> Array | SparseInput:
        features, kernel, kept = self._features, self._problem.runtime.kernel, self._kept
        rows = self._batches.rows(drawn, _INPUTS)
        own = self._own(rows)
        mine, others = rows[:own], rows[own:]
        if kept is not None:
            others = others - self._own_rows
        if isinstance(features, SparseInput):
            return features.rows(mine, None if kept is None else kept.sparse_rows(others))
        self._rows.rewind()
        some = self._rows.take(len(rows), features.shape[1])
        kernel.take_rows(features, mine, some[:own])
        if kept is not None:
            kept.take_rows(kernel, others, some[own:])
        return some

    @property
    def _own_rows(self) -> int:
        return _rows_of(self._problem.scheme, _INPUTS)

    def _own(self, rows: np.ndarray) -> int:
        """How many of some rows are the rank's own: those that it keeps of others come last."""
        return len(rows) if self._kept is None else int(np.count_nonzero(rows < self._own_rows))

    def _keep_rows(self) -> None:
        """Keep the input rows of others that batches read most."""
        batches = self._batches
        assert isinstance(batches, RowBatches), "others are asked for rows"
        drawn = (done_now(batches.of(*place)) for place in observed(self.sampler))
        halo, cutter = batches.laid.plan.halo, batches.cutter
        self._kept = _keep_rows(self._problem, halo, cutter, drawn, self._features)
        cutter.keep(self._kept.places)


def _rows_of(scheme: Scheme, place: Place) -> int:
    """Rows of a rank's piece at a place."""
    return len(scheme.block(place, 0).rows)


def _drawn_sizes(
    problem: Problem, cut: Batches[Any], batches: Sequence[Any]
) -> list[BatchSizes] | list[TileSizes]:
    """Sizes of mini-batches on all ranks, for the forecast of memory; empty but on rank 0."""
    comm = problem.runtime.comm
    if isinstance(cut, TileBatches):
        facts = [(cut.counts(batch), *cut.entries(batch)) for batch in batches]
        ranks = comm.gather(facts, root=0)
        return [_of_tiles(problem, cut, one) for one in zip(*(ranks or ()), strict=True)]
    assert isinstance(cut, RowBatches)
    sizes = [_sizes_of(batch, cut.cutter.row_sizes) for batch in batches]
    every = comm.gather(sizes, root=0)
    if every is None:
        return []
    k, direction = comm.size, problem.source.direction
    found = []
    for number, batch in enumerate(batches):
        # Of each figure, for each layer, a list of numbers of the ranks.
        figures = np.array([rank[number] for rank in every]).transpose(1, 2, 0).tolist()
        *of_layers, looked_at, groups, first = figures
        layers = [Metrics(k, direction, *layer) for layer in zip(*of_layers, strict=True)]
        groups = groups if batch.layers[0].arcs else []
        found.append(BatchSizes(first[0], layers, looked_at, batch.layered, groups))
    return found


def _of_tiles(
    problem: Problem, cut: TileBatches, ranks: Sequence[tuple[np.ndarray, int, int]]
) -> TileSizes:
    """Sizes of a batch, from the counts of each rank, entries of its first tile, and all of it."""
    counts, kept, every = zip(*ranks, strict=True)
    share = sum(kept) / max(1, sum(every))
    manifest = problem.source.stored.manifest
    return TileSizes(cut.total(np.sum(counts, axis=0)), round(share * (manifest.nnz + manifest.n)))


def _sizes_of(batch: Batch, row_sizes: np.ndarray) -> list[list[int]]:
    """A rank's sizes of a batch: a list for each figure, with a number for each layer."""
    plans = [layer.plan for layer in batch.layers]
    computed = batch.counts[: len(plans)]
    return [
        list(batch.counts[1:]) if batch.layered else list(batch.counts),
        [layer.matrix.nnz for layer in batch.layers],
        [plan.nsend for plan in plans],
        [plan.nhalo for plan in plans],
        [len(plan.send_peers) for plan in plans],
        [len(plan.recv_peers) for plan in plans],
        [int(row_sizes[batch.rows[:count]].sum()) for count in computed],
        [0 if layer.arcs is None else layer.arcs.groups.total for layer in batch.layers],
        [batch.counts[0]] * len(plans),
    ]


@dataclass(frozen=True)
class _KeptRows:
    """Some rows of H⁰ that others own."""

    places: np.ndarray  # (kept,) int64: where they are in the halo of the rank, increasing
    features: Array | SparseInput  # the rows, in this order

    @property
    def bytes(self) -> int:
        """Memory that the kept rows take."""
        if isinstance(self.features, SparseInput):
            return self.features.bytes
        return int(self.features.size) * self.features.dtype.itemsize

    def take_rows(self, kernel: Kernel, halo: np.ndarray, out: Array) -> None:
        """out = the rows, dense ones, at some places in the halo."""
        if len(halo):
            features = cast(Array, self.features)
            kernel.take_rows(features, np.searchsorted(self.places, halo), out)

    def sparse_rows(self, halo: np.ndarray) -> tuple[SparseInput, np.ndarray]:
        """All rows, sparse ones, and the numbers of those at some places in the halo."""
        assert isinstance(self.features, SparseInput)
        return self.features, np.searchsorted(self.places, halo)


def _keep_rows(
    problem: Problem,
    halo: np.ndarray,
    cutter: Cutter,
    batches: Iterable[Batch],
    features: Array | SparseInput,
) -> _KeptRows:
    """Keep what batches read most, within ``train.cache_mb``; all ranks call it together.

    Parameters
    ----------
    halo : integers
        Global ids of the rank's halo.
    cutter : Cutter
        Of the batches.
    batches : iterable of Batch
        Those that are observed.
    features : array or SparseInput
        Own rows of H⁰.
    """
    manifest, itemsize = problem.source.stored.manifest, problem.runtime.kernel.dtype.itemsize
    sizes = manifest.inputs, manifest.feature_entries, manifest.n, itemsize
    order = np.argsort(halo)
    uses = np.zeros(len(halo), np.int64)
    for batch in batches:
        read = batch.layers[-1].plan.halo
        uses[order[np.searchsorted(halo, read, sorter=order)]] += 1
    places = most_used(uses, halo, rows_within(problem.config.train.cache_mb, *sizes))
    with problem.runtime.phases.as_one("load"):
        if isinstance(features, SparseInput):
            return _KeptRows(places, _sparse(problem, halo[places]))
        return _KeptRows(places, _dense(problem, *cutter.owners_of(places), features))


def _sparse(problem: Problem, ids: np.ndarray) -> SparseInput:
    kernel, found = problem.runtime.kernel, problem.source.stored.graph.features
    assert isinstance(found, SparseRows)
    max_bytes = problem.config.loading.max_bytes
    normalised = problem.config.graph.feature_norm == "row"
    matrix = load_sparse(problem.runtime.comm, found, ids, max_bytes, normalised, kernel.dtype)
    return SparseInput(kernel, problem.runtime.phases, matrix, None)


def _dense(problem: Problem, owners: np.ndarray, there: np.ndarray, features: Array) -> Array:
    comm, max_bytes = problem.runtime.comm, problem.config.loading.max_bytes
    (asked,), counts = redistribute(comm, owners, [there], max_bytes)
    asking = np.repeat(np.arange(comm.size), counts)
    # Owners increase along the halo, so the rows come in the order in which they were asked for.
    wanted = _Taken(problem.runtime.kernel, features, asked)
    (rows,), _ = redistribute(comm, asking, [cast(np.ndarray, wanted)], max_bytes)
    return problem.runtime.kernel.from_host(rows)


@dataclass(frozen=True)
class _Taken:
    """Rows of a matrix of a kernel, which are taken as they are read."""

    kernel: Kernel
    matrix: Array
    rows: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return self.kernel.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.matrix.shape[1]

    @property
    def flags(self) -> Any:
        return self.rows.flags

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice) -> np.ndarray:
        rows = self.rows[some]
        taken = self.kernel.empty(len(rows), self.matrix.shape[1])
        self.kernel.take_rows(self.matrix, rows, taken)
        return self.kernel.to_host(taken)
