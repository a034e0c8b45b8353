"""A part of the oracle: training on samples, each step on a graph of so many copies of the graph.

The samples of a step are one graph whose parts are not joined: vertex v of sample s is its vertex
s·n + v. So its batch norms have the moments of all of them, and its dropout keys are those of rows
of samples. Samples are cut out of the arrays of the folder, and standardised, by formulas of this
page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from gcnmpi.options.config import Config
from gcnmpi.options.frames import Frames, frames_of
from gcnmpi.options.task import SampleOptions, chosen_metrics, samples_of_step
from gcnmpi.proof.losses import loss_of
from gcnmpi.proof.oracle import Rows, Serial
from gcnmpi.proof.scores import score
from gcnmpi.proof.updates import Weights
from gcnmpi.run.samples.step import ORDER
from partition.errors import UserError
from partition.graph.graph import ArcData, Examples, Graph
from partition.graph.hashing import key, permuted
from partition.graph.samples import SampleSet
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT


class _SampleProblem(Serial):
    """The loss of a step of samples; the columns of frames in ``config`` are resolved."""

    def __init__(self, graph: Graph, samples: SampleSet, direction: str, config: Config) -> None:
        task = config.task
        assert isinstance(task, SampleOptions)
        static = 0 if graph.features is None else int(graph.features.shape[1])
        self._graph, self._samples, self._task, self._config = graph, samples, task, config
        self._frames = frames = frames_of(task, static, samples.columns)
        self._count = samples_of_step(task)
        of_step, of_one = (_copies(graph, count, frames) for count in (self._count, 1))
        self.rows = Rows(of_step, direction, config, frames.outputs)
        self._alone = Rows(of_one, direction, config, frames.outputs)
        self._anchors = _anchors_of(samples, "train", frames)
        self.batches = len(self._anchors) // self._count

    exact = False  # sums over samples are rounded

    def gradient(
        self, weights: Weights, epoch: int, batch: int = 0
    ) -> tuple[float, Weights, Weights]:
        """Of the samples of a step, in the order of the epoch."""
        anchors, count = self._anchors, self._count
        seed = key(self._config.train.seed, ORDER, epoch)
        order = anchors[permuted(np.arange(len(anchors)), len(anchors), seed)]
        self.rows.features, labels = self._side_by_side(order[batch * count :][:count])
        passed, moments = self.rows.forward(weights, (epoch - 1) * self.batches + batch + 1)
        of_vertices = Examples(len(labels), None, labels, {}, None, None)
        loss, slope = loss_of(of_vertices, self._task)(passed.output)
        return loss, passed.back(slope)[1], moments

    def outputs(self, weights: Weights) -> np.ndarray:
        """Predictions of all samples that are held out, in units of the deviations."""
        found = [z for mask in HELD_OUT for z, _ in self._predicted(weights, mask)]
        return np.vstack(found) if found else np.zeros((0, self._frames.outputs))

    def metrics(
        self, weights: Weights, outputs: np.ndarray | None = None
    ) -> dict[str, float | None]:
        """Errors of what is held out, in the numbers of the data: the mean over columns."""
        found: dict[str, float | None] = {}
        for mask in HELD_OUT:
            pairs = list(self._predicted(weights, mask))
            if not pairs or np.isnan([y for _, y in pairs]).all():
                continue
            z, y = (np.vstack(each) * self._deviation for each in zip(*pairs, strict=True))
            for metric in chosen_metrics(self._task):
                found[f"{mask}_{metric}"] = score(metric, z, y)
        return found

    @property
    def _deviation(self) -> np.ndarray:
        """Of each column of the output: the unit of its numbers."""
        samples, frames = self._samples, self._frames
        if not self._task.standardize:
            return np.ones(samples.target_columns or frames.outputs)
        deviation = _moments_of(samples)[1]
        if samples.targets is not None:
            return deviation[-samples.target_columns :]
        return np.tile(deviation[: frames.predicted], frames.leads)

    def _predicted(self, weights: Weights, mask: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Outputs and labels of each sample of a mask."""
        for anchor in _anchors_of(self._samples, mask, self._frames):
            self._alone.features, labels = self._side_by_side([anchor])
            yield self._alone.forward(weights, None)[0].output, labels

    def _side_by_side(self, anchors: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of the copies, (copies · n, columns) float64."""
        graph, samples, task, frames = self._graph, self._samples, self._task, self._frames
        static = np.zeros((graph.n, 0)) if graph.features is None else np.asarray(graph.features)
        mean, deviation = _moments_of(samples) if task.standardize else (0.0, 1.0)
        states = (np.asarray(samples.states, np.float64) - _of(mean, samples, False)) / _of(
            deviation, samples, False
        )
        given, features, labels = slice(frames.predicted, None), [], []
        for step in (int(anchor) for anchor in anchors):
            history = [states[step - frames.history + 1 + i] for i in range(frames.history)]
            later = [states[step + i, :, given] for i in range(1, frames.rollout)]
            features.append(
                np.hstack([static, *(np.nan_to_num(one) for one in (*history, *later))])
            )
            if samples.targets is None:
                ahead = [
                    states[step + i, :, : frames.predicted] for i in range(1, frames.leads + 1)
                ]
                labels.append(np.hstack(ahead))
            else:
                scales = (_of(scale, samples, True) for scale in (mean, deviation))
                shift, factor = scales
                labels.append((np.asarray(samples.targets[step], np.float64) - shift) / factor)
        return np.vstack(features), np.vstack(labels)


def of_samples(stored: StoredGraph, direction: str, config: Config) -> Serial:
    """The twin of a task on samples."""
    assert stored.samples is not None
    return _SampleProblem(stored.merged, stored.samples, direction, config)


def _copies(graph: Graph, count: int, frames: Frames) -> Graph:
    """So many copies of a graph as one graph, with room for the features of samples."""
    if graph.vertex_types is not None:
        raise UserError(
            "verify compares samples with copies of the graph as one graph, whose types of "
            "vertices are no ranges",
            "verify the network with task.name=regression on one of the states",
        )
    n, nnz = graph.n, graph.nnz
    starts = [np.asarray(graph.indptr[:-1], np.int64) + s * nnz for s in range(count)]
    ends = [np.asarray(graph.indices, np.int64) + s * n for s in range(count)]
    data = graph.arc_data
    if data.features is not None:
        data = ArcData(features=np.tile(data.features, (count, 1)))
    return replace(
        graph,
        indptr=np.append(np.concatenate(starts), count * nnz),
        indices=np.concatenate(ends).astype(graph.indices.dtype),
        weights=None if graph.weights is None else np.tile(graph.weights, count),
        features=np.zeros((count * n, frames.features)),
        labels=None, masks={}, ids=None, targets=None, arc_data=data,
    )  # fmt: skip


def _anchors_of(samples: SampleSet, mask: str, frames: Frames) -> np.ndarray:
    """The last known step of each sample of a mask, range by range."""
    ahead = 0 if samples.targets is not None else frames.leads
    return np.array(
        [
            step
            for start, stop in samples.ranges.get(mask, ())
            for step in range(start, stop)
            if step - frames.history + 1 >= start and step + ahead < stop
        ],
        np.int64,
    )


def _moments_of(samples: SampleSet) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of all columns over the training steps, from all of their numbers."""
    some = [step for start, stop in samples.ranges["train"] for step in range(start, stop)]
    arrays = [samples.states[some], *([] if samples.targets is None else [samples.targets[some]])]
    numbers = np.concatenate([np.asarray(a, np.float64) for a in arrays], axis=2)
    rows = numbers.reshape(-1, numbers.shape[2])
    deviation = np.nanstd(rows, axis=0)
    mean = np.nan_to_num(np.nanmean(rows, axis=0))  # 0 of a column that none of them knows
    return mean, np.where(deviation > 1e-12, deviation, 1.0)


def _of(scale: np.ndarray | float, samples: SampleSet, targets: bool) -> np.ndarray | float:
    """The columns of states, or of targets, of a scale."""
    if isinstance(scale, float):
        return scale
    return scale[samples.columns :] if targets else scale[: samples.columns]
