"""Several labels a vertex, each there or not: sigmoid cross-entropy.

As ``torch.nn.BCEWithLogitsLoss`` with ``pos_weight``: the mean over all known labels of
−p·y·log σ(z) − (1 − y)·log(1 − σ(z)), where p is the weight of the label's column. With label
smoothing ε, y·(1 − ε) + ε/2 takes the place of y.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gcnmpi.kernels.interface.dense import EntryLoss
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.loading import Readable
from gcnmpi.nn.tasks.classes import check_unweighted
from gcnmpi.nn.tasks.entries import MeanOfEntries, sums_of_columns
from gcnmpi.nn.tasks.interface import Loss, LossInputs
from gcnmpi.nn.tasks.labelled import LabelledTask, label_columns, without
from gcnmpi.options.task import ClassOptions, class_weights
from gcnmpi.schemes.interface import Scheme
from partition.errors import UserError
from partition.graph.graph import UNLABELLED, examples_of
from partition.graph.manifest import Manifest
from partition.graph.store import StoredGraph

_ROWS_AT_ONCE = 1 << 12


class Labels(LabelledTask):
    """Several labels of a row; a class is one of several labels."""

    on_device = True

    def labels(self, stored: StoredGraph, options: ClassOptions) -> Readable:
        """Targets from 0 to 1; else classes, as numbers."""
        found = examples_of(stored.graph, options.on)
        if found.targets is not None:
            return found.targets
        if found.labels is None:
            hint = "import it with --targets FILE.npy: 0 or 1 for each label, NaN where unknown"
            raise without(stored, options, "labels", hint)
        return _OneHot(found.labels, self.columns(*label_columns(options, stored.manifest)))

    def columns(self, classes: int, targets: int) -> int:
        """One for each label."""
        return targets or classes

    def of_classes(self, options: ClassOptions, manifest: Manifest) -> bool:
        """They are where the graph has no targets."""
        return not label_columns(options, manifest)[1]

    def check_batches(self, options: ClassOptions) -> None:
        """Weights of labels are those of all training vertices."""
        check_unweighted(options)

    def loss(self, inputs: LossInputs[ClassOptions]) -> Loss:
        """The mean over labels that are known."""
        return _loss(inputs)

    def probabilities(self, scheme: Scheme, kernel: Kernel, k: int, logits: Array) -> np.ndarray:
        """The sigmoid of each number."""
        values = kernel.to_host(logits)
        for start in range(0, len(values), _ROWS_AT_ONCE):
            z = values[start : start + _ROWS_AT_ONCE]
            small = np.exp(-np.abs(z))  # it overflows nowhere
            z[:] = np.where(z >= 0, 1, small) / (1 + small)
        return values


TASK = Labels()


class _OneHot:
    """Classes (n,) as labels (n, classes): 1 in the column of the class, NaN without one.

    As of an array, a slice is another view: nothing is read before rows are picked by numbers.
    """

    def __init__(self, classes: np.ndarray, width: int, columns: slice = slice(None)) -> None:
        self._columns, self._width = np.arange(width)[columns], width
        self.dtype, self.ndim = np.dtype(np.float32), 2
        self.shape = len(classes), len(self._columns)
        self.base, self.flags = classes, classes.flags

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, key: Any) -> Any:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(rows, slice):
            some = self._columns[columns]  # consecutive
            first = int(some[0]) if len(some) else 0
            return _OneHot(self.base[rows], self._width, slice(first, first + len(some)))
        classes = np.asarray(self.base[rows])[:, np.newaxis]
        found = (classes == self._columns[columns]).astype(self.dtype)
        found[classes[:, 0] == UNLABELLED] = np.nan
        return found


def _loss(inputs: LossInputs[ClassOptions]) -> Loss:
    labels = inputs.targets.labels
    with np.errstate(invalid="ignore"):
        bad = float(np.sum((labels < 0) | (labels > 1)))
    outside = np.array([bad])
    inputs.scheme.reduce(outside)
    if outside[0]:
        raise UserError(
            "task.name = labels takes labels from 0 to 1, and there are others",
            "NaN marks one that is unknown; --set task.name=regression learns numbers",
        )
    weights = _weights(inputs)

    def entry(z: np.ndarray, y: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        # e^−|z| overflows nowhere: log(1 + e^−z) = max(−z, 0) + log(1 + e^−|z|).
        small = np.exp(-np.abs(z))
        of_one = np.maximum(-z, 0) + np.log1p(small)
        other = np.where(z >= 0, small, 1) / (1 + small)  # σ(−z)
        if weights is None:
            return (1 - y) * z + of_one, (1 - y) - other
        factor = 1 + (weights[columns] - 1) * y
        return (1 - y) * z + factor * of_one, (1 - y) - factor * other

    def of_kernel(columns: slice) -> EntryLoss:
        every = np.ones(inputs.width) if weights is None else weights
        return EntryLoss("sigmoid", every[columns])

    return MeanOfEntries(inputs, entry, of_kernel, inputs.options.label_smoothing)


def _weights(inputs: LossInputs[ClassOptions]) -> np.ndarray | None:
    """The weight of each label where it is 1, in the kernel's dtype; None: 1.

    A UserError if there are not as many as labels.
    """
    dtype, given = inputs.kernel.dtype, class_weights(inputs.options)
    if inputs.options.class_weights == "balanced":
        labels = inputs.targets.labels
        ones, zeros = sums_of_columns(inputs, labels), sums_of_columns(inputs, 1 - labels)
        found = np.divide(zeros, ones, out=np.ones(inputs.width), where=(ones > 0) & (zeros > 0))
        return found.astype(dtype)
    if given is None:
        return None
    if len(given) != inputs.width:
        raise UserError(
            f"task.class_weights has {len(given)} weights, and there are {inputs.width} labels"
        )
    return np.array(given, dtype)
