"""A part of the oracle: losses of tasks and their gradients, in float64, written from the formulas.

Nothing is taken from the trainer's own losses but what the keys of the configuration mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.options.task import ClassOptions, RegressionOptions, TaskConfig
from partition.graph.graph import UNLABELLED, Examples

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Loss of logits (n, c), and its gradient with respect to them."""


def labels_of(examples: Examples, task: TaskConfig) -> np.ndarray:
    """Labels of a task: (n,) classes, −1 where unknown, or (n, c) numbers, NaN where unknown."""
    if task.name == "classes":
        assert examples.labels is not None
        return np.asarray(examples.labels)
    if examples.targets is not None:
        return np.asarray(examples.targets, np.float64)
    assert examples.labels is not None
    numbers = np.full((examples.n, examples.classes), np.nan)
    for row, label in enumerate(examples.labels):
        if label != UNLABELLED:
            numbers[row] = np.arange(examples.classes) == label
    return numbers


def loss_of(examples: Examples, task: TaskConfig) -> Loss:
    """The loss over the training examples."""
    labels = labels_of(examples, task)
    train = np.broadcast_to(examples.masks.get("train", True), (examples.n,))
    return _LOSSES[task.name](task, labels, train)


def _of_classes(task: ClassOptions, labels: np.ndarray, train: np.ndarray) -> Loss:
    rows = np.flatnonzero(train & (labels != UNLABELLED))
    found = labels[rows]

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        width = logits.shape[1]
        weights = np.ones(width)
        if task.class_weights == "balanced":
            sizes = np.array([np.sum(found == c) for c in range(width)])
            weights = np.array([len(found) / (width * size) if size else 0 for size in sizes])
        elif task.class_weights != "none":
            weights = np.array([float(word) for word in task.class_weights.split(",")])
        # How much of the loss −log softmax(z)[c] of a vertex is.
        shares = task.label_smoothing / width * np.tile(weights, (len(rows), 1))
        shares[np.arange(len(rows)), found] += (1 - task.label_smoothing) * weights[found]
        shares /= np.sum(weights[found])
        z = logits[rows]
        logs = np.logaddexp.reduce(z, axis=1, keepdims=True) - z
        grad = np.zeros_like(logits)
        grad[rows] = shares.sum(axis=1, keepdims=True) * np.exp(-logs) - shares
        return float(np.sum(shares * logs)), grad

    return loss


def _of_labels(task: ClassOptions, labels: np.ndarray, train: np.ndarray) -> Loss:
    known = ~np.isnan(labels) & train[:, np.newaxis]
    weights = np.ones(labels.shape[1])
    if task.class_weights == "balanced":
        for column, (some, values) in enumerate(zip(known.T, labels.T, strict=True)):
            ones, zeros = values[some].sum(), (1 - values[some]).sum()
            weights[column] = zeros / ones if ones > 0 and zeros > 0 else 1
    elif task.class_weights != "none":
        weights = np.array([float(word) for word in task.class_weights.split(",")])
    soft = (1 - task.label_smoothing) * labels + task.label_smoothing / 2
    ones, zeros = np.where(known, weights * soft, 0), np.where(known, 1 - soft, 0)

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        total = np.sum(ones * np.logaddexp(0, -z) + zeros * np.logaddexp(0, z))
        return float(total / known.sum()), (zeros * _sigmoid(z) - ones * _sigmoid(-z)) / known.sum()

    return loss


def _of_numbers(task: RegressionOptions, labels: np.ndarray, train: np.ndarray) -> Loss:
    known, delta = ~np.isnan(labels) & train[:, np.newaxis], task.huber_delta
    count = max(1, known.sum())  # of a step of samples, nothing may be known

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        error = np.where(known, z - np.where(known, labels, 0), 0)
        size = np.abs(error)
        if task.loss == "squared":
            values, slopes = error**2, 2 * error
        elif task.loss == "absolute":
            values, slopes = size, np.sign(error)
        else:
            near = size <= delta
            values = np.where(near, error**2 / 2, delta * (size - delta / 2))
            slopes = np.where(near, error, delta * np.sign(error))
        return float(np.sum(values) / count), slopes / count

    return loss


_LOSSES: dict[str, Callable[..., Loss]] = {
    "classes": _of_classes,
    "labels": _of_labels,
    "regression": _of_numbers,
    "samples": _of_numbers,
}


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -z))
