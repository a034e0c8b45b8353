"""One label a vertex: softmax cross-entropy, with weights of classes and label smoothing.

As ``torch.nn.CrossEntropyLoss``: the sum over training vertices of w[y]·(−log softmax(z)[y]),
divided by the sum of their w[y]. With label smoothing ε (Szegedy et al. 2016), (1 − ε) of that and
ε / C of the sum over all classes c of w[c]·(−log softmax(z)[c]), by the same divisor.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.interface.dense import ClassLoss
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.nn.loss import SoftmaxCrossEntropy, loss_products
from gcnmpi.nn.tasks.interface import Loss, LossInputs
from gcnmpi.nn.tasks.labelled import LabelledTask, without
from gcnmpi.options.task import ClassOptions, class_weights
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import Operation, Product
from partition.errors import UserError
from partition.graph.graph import Examples, examples_of
from partition.graph.manifest import Manifest
from partition.graph.store import StoredGraph


class Classes(LabelledTask):
    """One class a vertex or arc."""

    on_device = True

    def labels(self, stored: StoredGraph, options: ClassOptions) -> np.ndarray:
        """The class of each row."""
        labels = examples_of(stored.graph, options.on).labels
        if labels is None:
            hint = "import it with --labels FILE.npy, or --labels random:8 for an experiment"
            if stored.manifest.targets:
                hint = "it has targets: --set task.name=labels, or regression"
            raise without(stored, options, "labels", hint)
        return labels

    def columns(self, classes: int, targets: int) -> int:
        """One for each class."""
        return classes

    def of_classes(self, options: ClassOptions, manifest: Manifest) -> bool:
        """Each column is a class."""
        return True

    def check_batches(self, options: ClassOptions) -> None:
        """Weights of classes, and their sum, are those of all training vertices."""
        check_unweighted(options)

    def learned(self, examples: Examples) -> tuple[float, int]:
        """A class a row."""
        return super().learned(examples)[0], 0

    def loss(self, inputs: LossInputs[ClassOptions]) -> Loss:
        """Without weights, there is a faster one."""
        plain = inputs.options.class_weights == "none" and not inputs.options.label_smoothing
        return SoftmaxCrossEntropy(inputs) if plain else _WeightedCrossEntropy(inputs)

    def products(self, options: ClassOptions, k: int, rows: int) -> list[Product]:
        """Row operations of a softmax, and the sum of logits that smoothed labels need."""
        spread = [(Operation.ROW_SUM, k, rows)] if options.label_smoothing and rows else []
        return loss_products(k, rows) + spread

    def probabilities(self, scheme: Scheme, kernel: Kernel, k: int, logits: Array) -> np.ndarray:
        """The softmax of each row."""
        sums = kernel.exp_shifted(logits, scheme.row_max(k, logits), logits)
        values = kernel.to_host(logits)
        values /= kernel.to_host(scheme.row_sum(k, sums))
        return values


TASK = Classes()


def check_unweighted(options: ClassOptions) -> None:
    """A UserError if classes have weights, which mini-batches cannot have."""
    if options.class_weights != "none":
        raise UserError(
            "train.batches: weights of classes are those of all training vertices",
            "leave task.class_weights or train.batches out",
        )


class _WeightedCrossEntropy:
    """Softmax cross-entropy where classes have weights, or labels are smoothed.

    On the host, unless a rank has whole rows and the kernel has an operation for it.
    """

    def __init__(self, inputs: LossInputs[ClassOptions]) -> None:
        scheme, width = inputs.scheme, inputs.width
        self._scheme, self._kernel, self._k, self._width = (
            scheme,
            inputs.kernel,
            inputs.place.layer,
            width,
        )
        block = scheme.block(inputs.place, width)
        self._columns, self._counts_rows = block.columns, block.counts_rows
        mask = inputs.targets.masks["train"]
        self._rows = np.flatnonzero(mask)
        self._labels = inputs.targets.labels[self._rows].astype(np.int64)
        examples = np.bincount(self._labels, minlength=width).astype(np.float64)
        examples *= self._counts_rows
        scheme.reduce(examples)
        weights = _weights(inputs, examples)
        self._options, self._smoothing = inputs.options, inputs.options.label_smoothing
        self._weights = weights
        total = float(weights @ examples)
        if not total:
            raise UserError("the weights of all classes of training vertices are 0")
        self._scale = 1 / total
        self._one_pass = inputs.kernel.weighted_cross_entropy if scheme.whole_rows else None
        if self._one_pass is not None:
            labels = np.where(mask, inputs.targets.labels, -1).astype(np.int32)
            kernel = inputs.kernel
            right, spread = (1 - self._smoothing) * weights, self._smoothing / width * weights
            self._of_kernel = ClassLoss(
                kernel.resident(labels, np.int32), kernel.from_host(right),
                kernel.from_host(spread), float(spread.sum()),
            )  # fmt: skip
            return
        own = self._columns
        self._hits = np.flatnonzero((self._labels >= own.start) & (self._labels < own.stop))
        self._hit_columns = self._labels[self._hits] - own.start
        self._taken = inputs.kernel.resident(self._rows, np.int64)
        self._picked = inputs.kernel.resident(self._labels, np.int64)
        shape = len(self._rows), own.stop - own.start
        self._logits = inputs.kernel.empty_columnwise(*shape)
        self._exponentials = inputs.kernel.empty_columnwise(*shape)

    def products(self) -> list[Product]:
        """The row operations of one call."""
        return TASK.products(self._options, self._k, len(self._rows))

    def __call__(self, logits: Array, grad: Array) -> Number:
        """This rank's share of the loss; its gradient goes to ``grad``."""
        if not len(self._rows):
            grad.fill(0)
            return 0.0
        loss: Number
        if self._one_pass is not None:
            loss = self._one_pass(logits, self._of_kernel, self._scale, grad)
        else:
            loss = self._on_the_host(logits, grad)
        return loss * self._scale if self._counts_rows else 0.0

    def _on_the_host(self, logits: Array, grad: Array) -> float:
        kernel, scheme, k = self._kernel, self._scheme, self._k
        kernel.take_rows(logits, self._taken, self._logits)
        largest = scheme.row_max(k, self._logits)
        sums = kernel.exp_shifted(self._logits, largest, self._exponentials)
        sums = self._on_host(scheme.row_sum(k, sums))
        picked = self._on_host(scheme.row_pick(k, self._logits, self._picked, self._width))
        shift = self._on_host(largest)
        # Of each vertex, −log softmax of its label and its weight.
        losses = np.log(sums) + (shift - picked)
        right = (1 - self._smoothing) * self._weights[self._labels][:, np.newaxis]
        loss = float(np.sum(right * losses))
        spread = self._smoothing / self._width * self._weights[self._columns]
        if self._smoothing:
            apart = (shift - self._on_host(self._logits)) @ spread
            apart = kernel.from_host(apart[:, np.newaxis])
            every = self._smoothing * float(np.mean(self._weights))
            others = every * np.log(sums) + self._on_host(scheme.row_sum(k, apart))
            loss += float(np.sum(others))
            right = right + every
        found = self._on_host(self._exponentials)
        found *= right / sums
        found -= spread
        found[self._hits, self._hit_columns] -= (1 - self._smoothing) * self._weights[
            self._labels[self._hits]
        ]
        found *= self._scale
        grad.fill(0)
        kernel.put_rows(kernel.from_host(found), self._taken, grad)
        return loss

    def _on_host(self, array: Array) -> np.ndarray:
        return self._kernel.to_host(array).astype(np.float64)


def _weights(inputs: LossInputs[ClassOptions], examples: np.ndarray) -> np.ndarray:
    """The weight of each class, float64; "balanced" is that of scikit-learn.

    A UserError if there are not as many as classes.
    """
    if inputs.options.class_weights == "balanced":
        # A class without training vertices weighs nothing: it has no part in the loss.
        present = np.maximum(examples, 1)
        return np.where(examples > 0, examples.sum() / (len(examples) * present), 0.0)
    given = class_weights(inputs.options)
    if given is None:
        return np.ones(inputs.width)
    if len(given) != inputs.width:
        raise UserError(
            f"task.class_weights has {len(given)} weights, and there are {inputs.width} classes"
        )
    return np.array(given)
