"""A part of the oracle: training on samples, each step on a graph of so many copies of the graph.

The samples of a step are one graph whose parts are not joined: vertex v of sample s is its vertex
s·n + v. So its batch norms have the moments of all of them, and its dropout keys are those of rows
of samples. Samples are cut out of the arrays of the folder, and standardised, by formulas of this
page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.core.precision import EXACT
from gcnmpi.mpi.comm import Comm
from gcnmpi.options.config import Config
from gcnmpi.options.frames import Frames, frames_of
from gcnmpi.options.task import LOWER_IS_BETTER, SampleOptions, chosen_metrics, samples_of_step
from gcnmpi.proof import oracle
from gcnmpi.proof.checks import (
    Check,
    Verified,
    facts_of,
    loss_curve,
    of_each,
    rounded_checks,
    traffic_checks,
)
from gcnmpi.proof.losses import loss_of
from gcnmpi.proof.updates import UPDATES, clipped, rate, without_noise
from gcnmpi.run.problem import open_problem
from gcnmpi.run.samples.step import ORDER
from gcnmpi.run.trainer import train as train_on_ranks
from partition.errors import UserError
from partition.graph.graph import ArcData, Examples, Graph
from partition.graph.hashing import key, permuted
from partition.graph.samples import SampleSet


@dataclass(frozen=True)
class Curve:
    """The losses of a serial run, its weights, and the errors of what is held out with these."""

    losses: list[float]
    weights: oracle.Weights
    errors: dict[str, float]  # of each metric that is configured, as "val_rmse"


def verified(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    asked: Config,
    tolerances: tuple[float, float],
) -> Verified:
    """Check a run on samples against a serial one, by its losses, weights and errors, and bytes.

    ``tolerances`` are those of the curve and of weights. Where messages are rounded, that is a
    second run, held against the first.
    """
    config = replace(asked, comm=replace(asked.comm, precision=EXACT))
    problem = open_problem(comm, graph, partition, config)
    result, rounded = train_on_ranks(problem), None
    if asked != config:
        rounded = train_on_ranks(open_problem(comm, graph, partition, asked))
    if comm.rank:
        return Verified({}, comm.bcast(None))
    stored, model = problem.source.stored, result.model
    assert stored.samples is not None
    whole = model.whole(model.parameters.flat)
    weights = {name: np.array(array, np.float64) for name, array in whole.items()}
    where = stored.merged, problem.source.direction
    expected = train(*where, stored.samples, problem.config, len(result.epochs))
    in_curve, in_weights = tolerances
    last = result.epochs[-1].metrics
    checks = [
        loss_curve(result, expected.losses, in_curve),
        of_each("final weights", weights, expected.weights, in_weights),
    ]
    for name, value in expected.errors.items():
        found = last.get(name)
        error = math.nan if found is None else abs(found - value) / (abs(value) or 1.0)
        checks.append(Check(name, error, in_weights))
    checks += traffic_checks(result.end)
    if rounded is not None:
        checks += rounded_checks(asked, rounded, result)
    return Verified(facts_of(problem, result), comm.bcast(checks))


def train(graph: Graph, direction: str, samples: SampleSet, config: Config, epochs: int) -> Curve:
    """Train so many epochs in one process; the columns of frames in ``config`` are resolved."""
    task = config.task
    assert isinstance(task, SampleOptions)
    static = 0 if graph.features is None else int(graph.features.shape[1])
    frames, count = frames_of(task, static, samples.columns), samples_of_step(task)
    rows = copies(graph, count, frames)
    of_step = oracle.Rows(rows, direction, config, frames.outputs)
    weights = of_step.initial()
    update = UPDATES[config.train.optimizer](config.train, of_step.first_layer)
    anchors = anchors_of(samples, "train", frames)
    alone = oracle.Rows(copies(graph, 1, frames), direction, config, frames.outputs)
    metric = chosen_metrics(task)[0]
    losses, step, values = [], 0, list[float | None]()
    for epoch in range(1, epochs + 1):
        seed = key(config.train.seed, ORDER, epoch)
        order = anchors[permuted(np.arange(len(anchors)), len(anchors), seed)]
        lr, of_steps = rate(config.train, epoch, values, metric in LOWER_IS_BETTER), []
        for start in range(0, len(order) - count + 1, count):
            step += 1
            features, labels = side_by_side(graph, samples, task, order[start : start + count])
            of_step.features = features
            outputs, backwards, moments = of_step.forward(weights, step)
            of_vertices = Examples(len(labels), None, labels, {}, None, None)
            loss, slope = loss_of(of_vertices, task)(outputs[-1])
            gradient = of_step.backward(backwards, outputs, slope, weights)
            gradient = clipped(config.train, without_noise(gradient, loss))
            weights = update(weights, gradient, lr) | moments
            of_steps.append(loss)
        losses.append(float(np.mean(of_steps)))
        if config.train.schedule == "plateau":
            found = dict(_errors(alone, graph, samples, config, frames, weights))
            values.append(found.get(f"val_{metric}"))
    errors = dict(_errors(alone, graph, samples, config, frames, weights))
    return Curve(losses, weights, errors)


def copies(graph: Graph, count: int, frames: Frames) -> Graph:
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


def anchors_of(samples: SampleSet, mask: str, frames: Frames) -> np.ndarray:
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


def side_by_side(
    graph: Graph, samples: SampleSet, task: SampleOptions, anchors: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of the copies, (copies · n, columns) float64."""
    static = np.zeros((graph.n, 0)) if graph.features is None else np.asarray(graph.features)
    frames = frames_of(task, static.shape[1], samples.columns)
    mean, deviation = moments_of(samples) if task.standardize else (0.0, 1.0)
    states = (np.asarray(samples.states, np.float64) - _of(mean, samples, False)) / _of(
        deviation, samples, False
    )
    given, features, labels = slice(frames.predicted, None), [], []
    for step in (int(anchor) for anchor in anchors):
        history = [states[step - frames.history + 1 + i] for i in range(frames.history)]
        later = [states[step + i, :, given] for i in range(1, frames.rollout)]
        features.append(np.hstack([static, *(np.nan_to_num(one) for one in (*history, *later))]))
        if samples.targets is None:
            ahead = [states[step + i, :, : frames.predicted] for i in range(1, frames.leads + 1)]
            labels.append(np.hstack(ahead))
        else:
            scales = (_of(scale, samples, True) for scale in (mean, deviation))
            shift, factor = scales
            labels.append((np.asarray(samples.targets[step], np.float64) - shift) / factor)
    return np.vstack(features), np.vstack(labels)


def moments_of(samples: SampleSet) -> tuple[np.ndarray, np.ndarray]:
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


def _errors(
    alone: oracle.Rows,
    graph: Graph,
    samples: SampleSet,
    config: Config,
    frames: Frames,
    weights: oracle.Weights,
) -> Iterator[tuple[str, float]]:
    """Each metric of what is held out, in the numbers of the data: the mean over columns."""
    task = config.task
    assert isinstance(task, SampleOptions)
    deviation = moments_of(samples)[1] if task.standardize else np.ones(frames.outputs)
    if samples.targets is not None:
        scale = deviation[-samples.target_columns :]
    else:
        scale = np.tile(deviation[: frames.predicted], frames.leads)
    for mask in ("val", "test"):
        outputs, labels = [], []
        for anchor in anchors_of(samples, mask, frames):
            alone.features, of_one = side_by_side(graph, samples, task, [anchor])
            outputs.append(alone.forward(weights, None)[0][-1])
            labels.append(of_one)
        if not labels or np.isnan(labels).all():
            continue
        z, y = np.vstack(outputs), np.vstack(labels)
        some = ~np.isnan(y).all(axis=0)
        for metric in chosen_metrics(task):
            of_columns = METRICS[metric]((z - y)[:, some], y[:, some], scale[some])
            if len(of_columns):
                yield f"{mask}_{metric}", float(np.mean(of_columns))


def _r2(error: np.ndarray, y: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """1 − the sum of squares over that about the mean; of equal numbers 1 if it is 0, else 0."""
    some = (~np.isnan(y)).sum(axis=0) > 1
    squares = np.nansum(error[:, some] ** 2, axis=0)
    spread = np.nansum((y - np.nanmean(y, axis=0))[:, some] ** 2, axis=0)
    alike = np.nanmax(y[:, some], axis=0) == np.nanmin(y[:, some], axis=0)
    return np.where(alike, squares == 0, 1 - squares / np.where(alike, 1, spread))


METRICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "rmse": lambda error, y, scale: scale * np.sqrt(np.nanmean(error**2, axis=0)),
    "mae": lambda error, y, scale: scale * np.nanmean(np.abs(error), axis=0),
    "r2": _r2,
}
"""Of each column that has a known number, from errors, labels and deviations."""
