"""Metrics over the masks, from a pass without dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.mpi.comm import slice_of
from gcnmpi.nn.loss import RightPredictions
from gcnmpi.nn.metrics.scored import Scored
from gcnmpi.nn.tasks.interface import Targets
from gcnmpi.options.task import METRICS, chosen_metrics
from gcnmpi.run.problem import Problem, labels_in
from gcnmpi.schemes.operations import Operation, Product
from partition.graph.graph import MASKS, UNLABELLED


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


class Evaluation:
    """The metrics that are configured, of every mask there is.

    Accuracies of classes are counted where the logits are; what other metrics look at is whole
    rows, which are brought together where columns are cut over ranks.
    """

    def __init__(self, problem: Problem, model: Logits, targets: Targets) -> None:
        self._problem, self._model, self._targets = problem, model, targets
        self._metrics = chosen_metrics(problem.config.task)
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

    @property
    def names(self) -> list[str]:
        """The names of all values, such as "val_accuracy"."""
        return [f"{mask}_{metric}" for metric in self._metrics for mask in MASKS]

    def products(self) -> list[Product]:
        """The scheme's products and row operations of an evaluation."""
        found = self._model.products(backward=False)
        if self._counted:
            found = [
                *found,
                (Operation.ROW_ARGMAX, self._model.place.layer, len(self._targets.labels)),
            ]
        return found

    def volume(self) -> Volume:
        """The volume of an evaluation."""
        return sum((self._problem.scheme.volume(*each) for each in self.products()), NOTHING)

    def __call__(self) -> dict[str, float | None]:
        """All values, equal on every rank; None where there is no such mask, or no number."""
        problem = self._problem
        values: dict[str, float | None] = dict.fromkeys(self.names)
        with problem.runtime.traffic.during("eval"), problem.runtime.phases.as_one("eval"):
            logits = self._forward(0)
            if self._counted:
                values |= self._accuracies(logits)
            if self._others:
                rows = self._rows_of(logits)
                for mask, chosen in self._masks.items():
                    scored = Scored(rows[chosen], self._labels[chosen])
                    for metric in self._others:
                        if self._targets.counts[mask]:
                            value = METRICS.get(metric)(problem.runtime.comm, scored)
                            if value is not None and np.isfinite(value):
                                values[f"{mask}_{metric}"] = value
        return values

    def _accuracies(self, logits: Array) -> dict[str, float]:
        """Accuracies of all masks, fractions in 0..1."""
        problem, targets = self._problem, self._targets
        correct = self._right(logits)
        problem.scheme.reduce(correct)
        return {
            f"{name}_accuracy": float(right) / targets.counts[name]
            for name, right in zip(targets.masks, correct, strict=True)
            if targets.counts[name]
        }

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
