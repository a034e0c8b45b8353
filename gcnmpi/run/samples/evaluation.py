"""Errors of what is predicted, over all samples of a mask, in the numbers of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Place
from gcnmpi.nn.metrics.scored import mean_of_columns
from gcnmpi.nn.model import Model
from gcnmpi.options.task import chosen_metrics
from gcnmpi.run.problem import Problem
from gcnmpi.run.samples.step import Ahead, Setup, put_frames
from gcnmpi.schemes.operations import Product
from partition.graph.vertex_pairs import HELD_OUT

_AT_ONCE = 1 << 16  # numbers that are looked at at once: they stay in the cache


class SampleEvaluation:
    """The metrics that are configured, of the samples to validate and to test on.

    Samples to train on are not evaluated: the loss of an epoch is of them.

    Attributes
    ----------
    leads : mapping
        For each mask and metric, its value for each frame that is predicted, the first one first;
        of the last evaluation.
    """

    def __init__(self, problem: Problem, model: Model) -> None:
        self._problem, self._model, self._setup = problem, model, Setup.of(problem)
        self._reader = self._setup.reader(problem)
        ahead = problem.config.train.draw_ahead != "no"
        self._ahead = Ahead(self._reader, ahead)
        self._metrics = chosen_metrics(problem.config.task)
        self._counts = problem.scheme.block(Place(0), 1).counts_entries
        self.leads: dict[str, dict[str, list[float | None]]] = {}

    @property
    def names(self) -> list[str]:
        """The names of all values, such as "val_rmse"."""
        return [f"{mask}_{metric}" for metric in self._metrics for mask in HELD_OUT]

    def products(self) -> list[Product]:
        """The scheme's products of an evaluation."""
        steps = sum(len(self._steps(mask)) for mask in HELD_OUT)
        return self._model.products(backward=False) * steps

    def volume(self) -> Volume:
        """The volume of an evaluation."""
        return sum((self._problem.scheme.volume(*each) for each in self.products()), NOTHING)

    def __call__(self) -> dict[str, float | None]:
        """All values, equal on every rank; None where there are no samples, or no number."""
        problem = self._problem
        values: dict[str, float | None] = dict.fromkeys(self.names)
        with problem.runtime.traffic.during("eval"), problem.runtime.phases.as_one("eval"):
            for mask in HELD_OUT:
                sums = self._sums(mask)
                self.leads[mask] = {}
                for metric in self._metrics:
                    of_columns = METRICS[metric](sums, self._reader.deviations)
                    values[f"{mask}_{metric}"] = _mean(of_columns)
                    self.leads[mask][metric] = self._by_lead(of_columns)
        return values

    def _sums(self, mask: str) -> np.ndarray:
        """Sums of each column of the output over all samples, (5, outputs): see :data:`METRICS`."""
        setup, model, kernel = self._setup, self._model, self._problem.runtime.kernel
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
        return sums

    def _steps(self, mask: str) -> list[np.ndarray]:
        """The samples of each pass, on all groups; the last one may have fewer."""
        anchors, every = self._setup.anchors(mask), self._setup.scheme.stack.every
        return [anchors[start : start + every] for start in range(0, len(anchors), every)]

    def _by_lead(self, of_columns: list[float | None]) -> list[float | None]:
        count = 1 if self._setup.samples.targets is not None else self._setup.frames.leads
        width = len(of_columns) // count
        return [_mean(of_columns[i * width :][:width]) for i in range(count)]


def _mean(of_columns: Sequence[float | None]) -> float | None:
    """The mean over the columns that have a value."""
    return mean_of_columns([value for value in of_columns if value is not None])


def sums_of_errors(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many are known, Σ (z − y)², Σ |z − y|, Σ y, Σ y² of each column, (5, columns) float64."""
    sums, step = np.zeros((5, outputs.shape[1])), max(1, _AT_ONCE // max(1, outputs.shape[1]))
    for start in range(0, len(labels), step):
        some = slice(start, start + step)
        known = ~np.isnan(labels[some])
        y = np.where(known, labels[some], 0).astype(np.float64)
        error = np.where(known, outputs[some] - y, 0)
        terms = known, error * error, np.abs(error), y, y * y
        sums += [np.sum(term, axis=0, dtype=np.float64) for term in terms]
    return sums


def _rmse(sums: np.ndarray, deviations: np.ndarray) -> list[float | None]:
    """√ of the mean of (z − y)²."""
    return [
        float(d * np.sqrt(s / n)) if n else None
        for n, s, d in zip(sums[0], sums[1], deviations, strict=True)
    ]


def _mae(sums: np.ndarray, deviations: np.ndarray) -> list[float | None]:
    """Mean of |z − y|."""
    return [
        float(d * s / n) if n else None
        for n, s, d in zip(sums[0], sums[2], deviations, strict=True)
    ]


def _r2(sums: np.ndarray, deviations: np.ndarray) -> list[float | None]:
    """1 − Σ (z − y)² / Σ (y − mean of y)², as :func:`gcnmpi.nn.metrics.errors.r2` has it."""
    found: list[float | None] = []
    for n, squares, _, total, of_squares in sums.T.tolist():
        spread = of_squares - total * total / n if n else 0.0
        constant = 1.0 if squares == 0 else 0.0
        found.append((1 - squares / spread if spread > 0 else constant) if n > 1 else None)
    return found


METRICS: dict[str, Callable[..., list[float | None]]] = {"rmse": _rmse, "mae": _mae, "r2": _r2}
"""From sums of errors and the deviations of columns to the metric of each column."""
