"""Metrics over the masks, from a pass without dropout; those of given weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.mpi.comm import agreed, from_root, slice_of
from gcnmpi.nn.loss import RightPredictions
from gcnmpi.nn.metrics.scored import Scored
from gcnmpi.nn.tasks.interface import Targets, task_of
from gcnmpi.options.task import METRICS, chosen_metrics
from gcnmpi.run.classes import as_known, unknown_labels
from gcnmpi.run.problem import Problem, labels_in, load_targets
from gcnmpi.schemes.operations import Operation, Product
from partition.errors import UserError
from partition.graph.graph import MASKS, UNLABELLED
from partition.graph.vertex_pairs import HELD_OUT

if TYPE_CHECKING:
    from gcnmpi.run.inference import Computed


class Logits(Protocol):
    """A model, or anything else that gives logits."""

    @property
    def place(self) -> Place:
        """Where the logits are."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of the features and of each layer's output; the last are those of the logits."""

    def forward(self) -> Array:
        """The logits, of an evaluation."""

    def products(self, backward: bool) -> list[Product]:
        """The scheme's products that computing them takes."""


class Evaluation(ABC):
    """The metrics that are configured, of some masks, from a pass without dropout.

    Attributes
    ----------
    masks : tuple of str
    leads : mapping, or None
        For each mask and metric, its value for each lead time, the first one first; of the last
        evaluation. None: nothing is predicted ahead.
    """

    masks: tuple[str, ...] = HELD_OUT
    leads: dict[str, dict[str, list[float | None]]] | None = None

    def __init__(self, problem: Problem, model: Logits) -> None:
        self._problem, self._model = problem, model
        self._metrics = chosen_metrics(problem.config.task)

    @property
    def names(self) -> list[str]:
        """The names of all values, such as "val_accuracy"."""
        return [f"{mask}_{metric}" for metric in self._metrics for mask in self.masks]

    def products(self) -> list[Product]:
        """The scheme's products and row operations of an evaluation."""
        return self._model.products(backward=False)

    def volume(self) -> Volume:
        """The volume of an evaluation."""
        return sum((self._problem.scheme.volume(*each) for each in self.products()), NOTHING)

    def __call__(self) -> dict[str, float | None]:
        """All values, equal on every rank; None where there is no such mask, or no number."""
        runtime = self._problem.runtime
        values: dict[str, float | None] = dict.fromkeys(self.names)
        with runtime.traffic.during("eval"), runtime.phases.as_one("eval"):
            for name, value in self._values():
                if value is not None and np.isfinite(value):
                    values[name] = value
        return values

    @abstractmethod
    def _values(self) -> Iterator[tuple[str, float | None]]:
        """Each value, by all ranks together."""


class RowEvaluation(Evaluation):
    """The metrics of labelled rows, of every mask there is.

    Accuracies of classes are counted where the logits are; what other metrics look at is whole
    rows, which are brought together where columns are cut over ranks.
    """

    masks = MASKS

    def __init__(self, problem: Problem, model: Logits, targets: Targets) -> None:
        super().__init__(problem, model)
        self._targets = targets
        self._counted = "accuracy" in self._metrics and targets.labels.ndim == 1
        self._others = [m for m in self._metrics if m != "accuracy" or not self._counted]
        if self._counted:
            self._right = RightPredictions(
                problem.scheme, problem.runtime.kernel, model.place, model.widths[-1],
                targets.labels, targets.masks,
            )  # fmt: skip
        if self._others:
            self._labels, self._masks = self._whole_rows()
        self._forward: Callable[[int], Array] = lambda epoch: model.forward()
        if problem.config.gpu.graph == "yes":
            self._forward = problem.runtime.kernel.repeated(self._forward)

    def products(self) -> list[Product]:
        """Products of the logits, and the operation that finds the largest of each row."""
        found = self._model.products(backward=False)
        if not self._counted:
            return found
        return [*found, (Operation.ROW_ARGMAX, self._model.place.layer, len(self._targets.labels))]

    def _values(self) -> Iterator[tuple[str, float | None]]:
        logits, comm = self._forward(0), self._problem.runtime.comm
        if self._counted:
            yield from self._accuracies(logits)
        if self._others:
            rows = self._rows_of(logits)
            for mask, chosen in self._masks.items():
                if self._targets.counts[mask]:
                    scored = Scored(rows[chosen], self._labels[chosen])
                    for metric in self._others:
                        yield f"{mask}_{metric}", METRICS.get(metric)(comm, scored)

    def _accuracies(self, logits: Array) -> Iterator[tuple[str, float]]:
        """Accuracies of all masks, fractions in 0..1."""
        problem, targets = self._problem, self._targets
        correct = self._right(logits)
        problem.scheme.reduce(correct)
        for name, right in zip(targets.masks, correct, strict=True):
            if targets.counts[name]:
                yield f"{name}_accuracy", float(right) / targets.counts[name]

    def _rows_of(self, logits: Array) -> np.ndarray:
        """Whole rows of the output, each on one rank."""
        problem, model = self._problem, self._model
        rows = problem.runtime.kernel.to_host(logits)
        if problem.scheme.whole_rows:
            return rows
        return problem.scheme.original(model.place, rows, model.widths[-1])

    def _whole_rows(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Labels and masks of the rows of :meth:`_rows_of`."""
        problem, targets = self._problem, self._targets
        if problem.scheme.whole_rows:
            counts = problem.scheme.block(self._model.place, 0).counts_rows
            masks = {name: mask & counts for name, mask in targets.masks.items()}
            return targets.labels, masks
        graph, comm = problem.source.stored.graph, problem.runtime.comm
        mine = slice_of(graph.n, comm.rank, comm.size)
        labels = labels_in(problem.source.stored, problem.config)[mine]
        labels = np.asarray(labels[np.arange(len(labels))])
        some = labels != UNLABELLED if labels.ndim == 1 else np.ones(len(labels), bool)
        masks = {name: mask[mine] & some for name, mask in graph.masks.items()}
        return labels, {"train": some, **masks}


@dataclass(frozen=True)
class GivenLogits:
    """Logits that are there, in the place of a model that computes them."""

    result: Matrix
    widths: tuple[int, ...]

    @property
    def place(self) -> Place:
        """Where the logits are."""
        return self.result.place

    def forward(self) -> Array:
        """The logits that are there."""
        return self.result.array

    def products(self, backward: bool) -> list[Product]:
        """No product: nothing is computed."""
        return []


def of_weights(done: Computed) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """The metrics of given weights, and warnings for the user.

    On all ranks a UserError if the graph has not the labels of the task, or other numbers of them
    than the weights give.
    """
    problem, source = done.problem, done.problem.source
    task, widths = problem.config.task, problem.network.widths
    with agreed(problem.runtime.comm):
        stored = as_known(source.stored, task, done.choice.classes)
        _, wanted = task_of(task).ends(task, problem.config.model, stored.manifest)
        if wanted != widths[-1]:
            raise UserError(
                f"{stored.path} has {wanted or 'no'} classes or targets for the task "
                f"{task.name!r}, the weights give {widths[-1]} columns"
            )
    comm = problem.runtime.comm
    unknown = from_root(comm, lambda: unknown_labels(source.stored, task, done.choice.classes))
    problem = replace(problem, source=replace(source, stored=stored))
    logits = GivenLogits(done.result, widths)
    found = RowEvaluation(problem, logits, load_targets(problem, logits.place))()
    return found, (*problem.told, *unknown)
