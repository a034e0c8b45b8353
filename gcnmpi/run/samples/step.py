"""Training on samples: the gradient of each step, which all groups of ranks compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place
from gcnmpi.mpi.comm import agreed
from gcnmpi.nn.metrics.errors import ErrorSums, sums_of_errors
from gcnmpi.nn.metrics.scored import mean_of_known
from gcnmpi.nn.model import Model
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Loss, LossInputs, Targets, task_of
from gcnmpi.nn.tasks.samples import Scales
from gcnmpi.options.frames import Frames, frames_in
from gcnmpi.options.task import SampleOptions
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.problem import Problem, load_features
from gcnmpi.run.samples.reading import Read, SampleReader
from gcnmpi.run.step import BatchLoss, Interrupt, Work
from gcnmpi.schemes.operations import Product
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError
from partition.graph.hashing import key, permuted
from partition.graph.samples import SampleSet
from partition.graph.vertex_pairs import HELD_OUT

ORDER = 0x53414D50  # the purpose of the keys that samples are shuffled by


@dataclass(frozen=True)
class Setup:
    """The samples of a problem, and how they lie in its matrices."""

    samples: SampleSet
    task: SampleOptions
    frames: Frames
    scheme: StackedScheme

    @classmethod
    def of(cls, problem: Problem) -> Setup:
        """The setup of a problem whose task is on samples."""
        samples, task = problem.source.stored.samples, problem.config.task
        assert samples is not None
        assert isinstance(task, SampleOptions)
        assert isinstance(problem.scheme, StackedScheme)
        frames = frames_in(task, problem.network.operators[0].width)
        return cls(samples, task, frames, problem.scheme)

    def anchors(self, mask: str) -> np.ndarray:
        """The last known step of each sample of a mask, (samples,) int64."""
        ahead = 0 if self.samples.targets is not None else self.frames.leads
        return self.samples.anchors(mask, self.frames.history, ahead)

    @property
    def vertices(self) -> np.ndarray:
        """The rank's vertices, in the order of its rows."""
        return self.scheme.inner.block(Place(0), 1).rows

    def mine(self, anchors: np.ndarray) -> list[int | None]:
        """The samples of a step that this group computes; None where there are no more."""
        some = anchors[self.scheme.stack.first :][: self.scheme.stack.count].tolist()
        return [*some, *[None] * (self.scheme.stack.count - len(some))]

    def reader(self, problem: Problem, scales: Scales | None = None) -> SampleReader:
        """A reader of the rank's rows of them, with the scales of the set or other ones."""
        scales, dtype = scales or Scales.of(self.samples), problem.runtime.kernel.dtype
        scales = scales if self.task.standardize else scales.plain
        return SampleReader(self.samples, self.frames, self.vertices, dtype, scales)


class Ahead:
    """Reads the samples of the next step in a thread, while others compute."""

    def __init__(self, reader: SampleReader, ahead: bool, labels: bool = True) -> None:
        self._read = partial(reader.read, labels_too=labels)
        self._thread = ThreadPoolExecutor(1) if ahead else None
        self._begun: tuple[Sequence[int | None], Future[Read]] | None = None

    def read(self, anchors: Sequence[int | None], then: Sequence[int | None] = ()) -> Read:
        """The samples of a step, and begin to read those of the next one."""
        begun, self._begun = self._begun, None
        found = None if begun is None else begun[1].result()
        if begun is None or begun[0] != anchors or found is None:
            found = self._read(anchors)
        if self._thread is not None and then:
            self._begun = then, self._thread.submit(self._read, then)
        return found


class SampleWork(Work):
    """Steps of samples, in an order that (seed, epoch) says.

    Samples that are left over in the end, fewer than a step takes, wait for another epoch.

    Parameters
    ----------
    problem : Problem
        On a scheme for several samples.
    """

    def __init__(self, problem: Problem) -> None:
        self.setup = Setup.of(problem)
        self._kernel, self._place = problem.runtime.kernel, problem.program.place
        super().__init__(problem, static_features(problem, self.setup))
        self._anchors, self._epoch = self.setup.anchors("train"), 0
        self._order = self._anchors
        self.batches = len(self._anchors) // self.setup.scheme.stack.every
        with agreed(problem.runtime.everyone):
            self.reader = self.setup.reader(problem)
            if not self.reader.known(self._anchors):
                name = self.setup.samples.name
                raise UserError(f"the samples {name!r} have no known number to be trained on")
        self._ahead = Ahead(self.reader, problem.config.train.draw_ahead != "no")
        products = self.model.products(backward=True)
        self._volume = sum((problem.scheme.volume(*each) for each in products), NOTHING)
        self._steps = 0

    def evaluation(self) -> _SampleEvaluation:
        """The errors of samples that are held out."""
        return _SampleEvaluation(self._problem, self.model)

    def predicted(self, epochs: int) -> Volume:
        """The volume of the steps that were run."""
        return self._volume * self._steps

    def counted(self) -> dict[str, int]:
        """Steps and samples of this rank, and the bytes of the latter that it read."""
        samples = self._steps * self.setup.scheme.stack.count
        return {"steps": self._steps, "samples_here": samples, "sample_bytes": self.reader.bytes}

    def gradient(self, epoch: int, batch: int, interrupt: Interrupt) -> BatchLoss:
        """The samples of a step that this group has; those of the next one are read meanwhile."""
        problem, model, setup = self._problem, self.model, self.setup
        anchors = self._anchors_of(epoch, batch)
        last = batch + 1 == self.batches
        then = () if last else setup.mine(self._anchors_of(epoch, batch + 1))
        with problem.runtime.phases("sample"):
            read = self._ahead.read(setup.mine(anchors), then)
            put_frames(self._kernel, model, read, setup.frames)
            loss_of = self._loss(read.labels, self.reader.known(anchors))
        number = (epoch - 1) * self.batches + batch + 1
        logits = model.forward(number)
        with problem.runtime.phases("loss"):
            loss = loss_of(logits, model.output_grad)
        model.backward(number)
        self._steps += 1
        return BatchLoss(loss, 1, self.batches)

    def _anchors_of(self, epoch: int, batch: int) -> np.ndarray:
        """The samples of a step, in the order of the epoch."""
        if epoch != self._epoch:
            self._order = shuffled(self._anchors, self._problem.config.train.seed, epoch)
            self._epoch = epoch
        every = self.setup.scheme.stack.every
        return self._order[batch * every : (batch + 1) * every]

    def _loss(self, labels: np.ndarray, known: int) -> Loss:
        problem, ones = self._problem, np.ones(len(labels), bool)
        targets = Targets(labels, {"train": ones}, {"train": max(1, known)})
        facts = self._place, self.model.widths[-1], targets, problem.config.task
        return task_of(problem.config.task).loss(LossInputs(problem.scheme, self._kernel, *facts))


class _SampleEvaluation(Evaluation):
    """Errors of what is predicted, over all samples of a mask, in the numbers of the data.

    Samples to train on are not evaluated: the loss of an epoch is of them.
    """

    def __init__(self, problem: Problem, model: Model) -> None:
        super().__init__(problem, model)
        self._network, self._setup = model, Setup.of(problem)
        self._reader = self._setup.reader(problem)
        self._ahead = Ahead(self._reader, problem.config.train.draw_ahead != "no")
        self._counts = problem.scheme.block(Place(0), 1).counts_entries
        self.leads = {}

    def products(self) -> list[Product]:
        """Products of one pass for each step of samples."""
        return super().products() * sum(len(self._steps(mask)) for mask in HELD_OUT)

    def _values(self) -> Iterator[tuple[str, float | None]]:
        leads: dict[str, dict[str, list[float | None]]] = {mask: {} for mask in HELD_OUT}
        for mask in HELD_OUT:
            sums = self._sums(mask)
            for metric in self._metrics:
                of_columns = sums.metric(metric, self._reader.deviations)
                yield f"{mask}_{metric}", mean_of_known(of_columns)
                leads[mask][metric] = self._by_lead(of_columns)
        self.leads = leads

    def _sums(self, mask: str) -> ErrorSums:
        """Sums of each column of the output over all samples."""
        setup, model, kernel = self._setup, self._network, self._problem.runtime.kernel
        steps = [setup.mine(anchors) for anchors in self._steps(mask)]
        sums = np.zeros((5, model.widths[-1]))
        for number, anchors in enumerate(steps):
            then: Sequence[int | None] = steps[number + 1] if number + 1 < len(steps) else ()
            read = self._ahead.read(anchors, then)
            put_frames(kernel, model, read, setup.frames)
            outputs = kernel.to_host(model.forward())
            if self._counts:
                sums += sums_of_errors(outputs, read.labels)
        self._problem.scheme.reduce(sums.reshape(-1))
        return ErrorSums.of_moments(*sums)

    def _steps(self, mask: str) -> list[np.ndarray]:
        """The samples of each pass, on all groups; the last one may have fewer."""
        anchors, every = self._setup.anchors(mask), self._setup.scheme.stack.every
        return [anchors[start : start + every] for start in range(0, len(anchors), every)]

    def _by_lead(self, of_columns: list[float | None]) -> list[float | None]:
        count = 1 if self._setup.samples.targets is not None else self._setup.frames.leads
        width = len(of_columns) // count
        return [mean_of_known(of_columns[i * width :][:width]) for i in range(count)]


def shuffled(anchors: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Samples in the order in which an epoch takes them, a function of seed and epoch."""
    count = len(anchors)
    return anchors[permuted(np.arange(count), count, key(seed, ORDER, epoch))]


def static_features(problem: Problem, setup: Setup) -> Array:
    """H⁰ of all samples, with what is the same at all times, which the graph has as features."""
    scheme, kernel, frames = setup.scheme, problem.runtime.kernel, setup.frames
    rows = len(scheme.block(Place(0), 1).rows)
    features = kernel.zeros(rows, frames.features)
    if frames.static:
        loaded = load_features(problem)
        assert not isinstance(loaded, SparseInput)
        kernel.copy(loaded, features[:, : frames.static])
    return features


def put_frames(kernel: Kernel, model: Model, read: Read, frames: Frames) -> None:
    """The frames of samples into H⁰, beside what is static."""
    kernel.copy(kernel.from_host(read.features), model.input[:, frames.static :])
