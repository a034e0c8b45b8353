"""One epoch of training on mini-batches: for each, a part of the graph, a step, an update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.mpi.ahead import InTurn, Work, done_now
from gcnmpi.mpi.comm import Request, agreed
from gcnmpi.mpi.reduction import start_sum
from gcnmpi.nn.compile.on_scheme import batched, hops_of, told_apart
from gcnmpi.nn.model import Passes
from gcnmpi.nn.program import products
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Loss, Made, Targets
from gcnmpi.options.train import sampler_of
from gcnmpi.run.kept_rows import KeptRows, keep_rows
from gcnmpi.run.own_rows import own_types
from gcnmpi.run.problem import TYPES, Problem, load_features, task_of
from gcnmpi.run.step import BatchedStep
from gcnmpi.schemes.operations import EXCHANGES
from gcnmpi.schemes.row_scheme import Laid, RowScheme
from gcnmpi.schemes.sampled import (
    Batch,
    BatchScheme,
    Cuts,
    Cutter,
    Memory,
    clusters_of,
    numbered,
    threads_ahead,
)
from gcnmpi.schemes.sampled_forecast import BatchSizes
from partition.graph.batch_metrics import observed
from partition.graph.metrics import Metrics


@dataclass(frozen=True)
class _Facts:
    """The facts of a batch that all ranks agree on."""

    targets: Targets  # labels of its rows, and those that train
    rows: Sequence[int]  # its rows on all ranks, as :attr:`Batch.counts` has those of one
    share: float  # its share in the loss of the epoch; 0: nothing in it trains
    interrupted: bool  # whether a rank wants the epoch to be interrupted


Drawn = tuple[Batch, _Facts]


class BatchStep(BatchedStep):
    """One epoch of training on mini-batches, which all ranks compute together.

    The batches and their dropout depend on global ids, the epoch and the number of the batch
    only: the curve is the same for any number of ranks and any partition.

    Parameters
    ----------
    problem : Problem
        On a scheme that kept what batches are cut from.

    Attributes
    ----------
    model, targets, optimizer
        As of :class:`~gcnmpi.run.step.Step`; the model evaluates, on all vertices.
    sampler : Sampler
    """

    def __init__(self, problem: Problem) -> None:
        self._features = load_features(problem)
        super().__init__(problem, self._features, ("evaluation",))
        comm, config, stored = problem.runtime.comm, problem.config, problem.source.stored
        self._laid = _laid(problem)
        self._runtime = problem.runtime
        index, seeds = numbered(
            comm, self._laid.rows, self.targets.masks["train"], config.loading.max_bytes
        )
        clusters = clusters_of(comm, stored, config.train)
        with agreed(comm):
            n, relations = stored.manifest.n, told_apart(problem.network, stored)
            self.sampler = sampler_of(config.train, n, seeds, clusters, relations)
            self._program = batched(config, self.sampler, problem.network, problem.program)
            hops = hops_of(self._program)
        steps = (*self._program.forward, *self._program.backward)
        # The products that send rows: how wide these are, no batch changes.
        every = products(self._program, steps, lambda place: 0)
        self._exchanged = [product for product in every if product[0] in EXCHANGES]
        # The sampler decides on seeds, by their number among all seeds, or on all vertices.
        candidates = index if self.sampler.layered else self._laid.plan.own
        arcs = _scheme_of(problem).entries if self._program.needs_groups else None
        self._cutter = Cutter(comm, self._laid, hops, config.loading.max_bytes, arcs)
        self._cuts = Cuts(self._cutter, self.sampler, candidates)
        self._memory, self._rows = Memory(problem.runtime.kernel), Memory(problem.runtime.kernel)
        self._predicted = NOTHING
        self._counted: Counter[str] = Counter()
        self._kept: KeptRows | None = None
        if config.train.cache_mb:
            self._keep_rows()
        kernel, wanted = problem.runtime.kernel, config.train.draw_ahead
        self._in_turn: InTurn[Drawn] = InTurn(threads_ahead(comm, kernel, wanted))

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

    def first(self, count: int) -> list[Batch]:
        """Draw the first batches of a run, at most so many; all ranks call it together."""
        numbers = range(min(count, self.sampler.batches))
        return [done_now(self._cuts.of(1, batch)) for batch in numbers]

    @property
    def row_sizes(self) -> np.ndarray:
        """Entries of M in each of this rank's rows, or arcs."""
        return self._cutter.row_sizes

    @property
    def batches(self) -> int:
        """As many as the sampler draws in an epoch."""
        return self.sampler.batches

    def _batch(
        self, epoch: int, batch: int, lr: float, interrupt: Callable[[], bool]
    ) -> tuple[float, bool]:
        drawn, facts = self._drawn(epoch, batch, interrupt)
        self._counted["batches"] += 1
        if self._kept is not None:
            self._counted["kept_rows_read"] += len(drawn.rows) - self._own(drawn)
        for layer in drawn.layers:
            self._counted["batch_rows_sent"] += layer.plan.nsend
            self._counted["batch_messages_sent"] += len(layer.plan.send_peers)
        number = (epoch - 1) * self.batches + batch + 1
        loss = facts.share * self._update_by(drawn, facts, number, lr) if facts.share else 0.0
        return loss, facts.interrupted

    def _wait(self) -> None:
        self._in_turn.end()

    def _drawn(self, epoch: int, batch: int, interrupt: Callable[[], bool]) -> Drawn:
        """A batch, which may have been drawn ahead; the next one of the epoch is begun."""
        work = partial(self._drawing, epoch, batch, interrupt)
        following = None
        if batch + 1 < self.sampler.batches:
            following = partial(self._drawing, epoch, batch + 1, interrupt)
        with self._problem.runtime.phases("sample"):
            return self._in_turn.take(work, following)

    def _proceed(self) -> None:
        """With the batch that is drawn ahead, which is also ``sample`` in the record."""
        if self._in_turn.under_way:
            with self._problem.runtime.phases("sample"):
                self._in_turn.proceed()

    def _drawing(self, epoch: int, batch: int, interrupt: Callable[[], bool]) -> Work[Drawn]:
        """Draw a batch, and in one reduction find the facts that all ranks agree on."""
        drawn = yield from self._cuts.of(epoch, batch)
        targets, sampler = self.targets, self.sampler
        seeds = drawn.rows[: drawn.counts[0]]
        labels, mask = targets.labels[seeds], targets.masks["train"][seeds]
        known = np.count_nonzero(mask) if labels.ndim == 1 else np.sum(~np.isnan(labels[mask]))
        counts = np.array([known, 0, *drawn.counts], np.float64)

        def start() -> Request:
            counts[1] = interrupt()
            return start_sum(self._cutter.comm, counts, self._problem.runtime.traffic)

        yield start
        known, interrupted, rows = int(counts[0]), counts[1] > 0, counts[2:].astype(int).tolist()
        # Of vertices, divided by the expected number of labels, the gradient has no bias.
        share = sampler.count(batch) / sampler.n
        divisor, every = share * targets.counts["train"], targets.counts["train"]
        if sampler.layered:
            share, divisor = known / every, known
        found = Targets(labels, {"train": mask}, {"train": divisor})
        return drawn, _Facts(found, rows, share if known else 0.0, interrupted)

    def _update_by(self, drawn: Batch, facts: _Facts, number: int, lr: float) -> float:
        """One update; returns the loss of the batch."""
        problem, model, kernel = self._problem, self.model, self._problem.runtime.kernel
        program, features = self._program, self._features_of(drawn)
        scheme = BatchScheme(
            self._runtime, problem.config, self._laid.facts, drawn, self._memory,
            program.needs_halo,
        )  # fmt: skip
        passes = Passes(
            scheme, kernel, program, problem.config.train.seed,
            lambda place: facts.rows[drawn.number(place.layer)],
            features, model.parameters, model.gradients, ("training",), self._proceed,
            partial(self._given, scheme),
        )  # fmt: skip
        options, place = problem.config.task, program.place
        made = Made(scheme, kernel, place, model.widths[-1], facts.targets, options)
        found: Loss = task_of(problem.config).loss(made)
        logits = passes.forward(number)
        with problem.runtime.phases("loss"):
            loss = found(logits, passes.output_grad)
        passes.backward(number)
        flat = model.gradients.flat
        loss = self._sum(loss, flat[model.gradients.shared])
        self._update(flat, lr)
        for product in self._exchanged:
            self._predicted += scheme.volume(*product)
        return float(loss)

    def _given(self, scheme: BatchScheme, given: str, place: Place) -> Array:
        """Numbers of arcs, or types of vertices, of the rows that a batch has at a place."""
        stored, kernel = self._problem.source.stored, self._problem.runtime.kernel
        if given in TYPES:
            rows = own_types(stored, scheme.block(place, 1).rows)
        else:
            rows = scheme.arcs_of(given, place)[:, np.newaxis]
        return kernel.from_host(rows.astype(kernel.dtype, copy=False))

    def _features_of(self, drawn: Batch) -> Array | SparseInput:
        features, kernel, kept = self._features, self._problem.runtime.kernel, self._kept
        own = self._own(drawn)
        mine, others = drawn.rows[:own], drawn.rows[own:] - self._laid.plan.nown
        if isinstance(features, SparseInput):
            return features.rows(mine, None if kept is None else kept.sparse_rows(others))
        self._rows.rewind()
        some = self._rows.take(len(drawn.rows), features.shape[1])
        kernel.take_rows(features, mine, some[:own])
        if kept is not None:
            kept.take_rows(kernel, others, some[own:])
        return some

    def _own(self, drawn: Batch) -> int:
        """How many rows of a batch are the rank's own: those that it keeps of others come last."""
        return int(np.count_nonzero(drawn.rows < self._laid.plan.nown))

    def _keep_rows(self) -> None:
        """Keep the input rows of others that batches read most."""
        drawn = (done_now(self._cuts.of(*place)) for place in observed(self.sampler))
        halo = self._laid.plan.halo
        self._kept = keep_rows(self._problem, halo, self._cutter, drawn, self._features)
        self._cutter.keep(self._kept.places)


def _laid(problem: Problem) -> Laid:
    """The laid out rows that batches are cut from, which the scheme kept."""
    laid = _scheme_of(problem).laid
    assert laid is not None
    return laid


def _scheme_of(problem: Problem) -> RowScheme:
    assert isinstance(problem.scheme, RowScheme)
    return problem.scheme


def drawn_sizes(problem: Problem, step: BatchStep, count: int = 2) -> list[BatchSizes]:
    """Sizes of a run's first mini-batches on all ranks, for the forecast of its memory.

    They are drawn again, as the run will; all ranks call it together. Empty but on rank 0.
    """
    batches = step.first(count)
    comm = problem.runtime.comm
    every = comm.gather([_sizes_of(batch, step.row_sizes) for batch in batches], root=0)
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
