"""Numbers: the mean over all that are known of a loss of the error r = z − y.

``squared`` r², ``absolute`` |r|, ``huber`` r²/2 up to |r| = δ and δ·(|r| − δ/2) beyond (Huber
1964): ``torch.nn.MSELoss``, ``L1Loss`` and ``HuberLoss``.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.kernels.interface.dense import EntryLoss
from gcnmpi.nn.tasks.entries import Entry, MeanOfEntries
from gcnmpi.nn.tasks.interface import Loss, LossInputs
from gcnmpi.nn.tasks.labelled import LabelledTask, without
from gcnmpi.options.task import RegressionOptions
from partition.graph.graph import examples_of
from partition.graph.store import StoredGraph


class Regression(LabelledTask):
    """Numbers of a row."""

    on_device = True

    def labels(self, stored: StoredGraph, options: RegressionOptions) -> np.ndarray:
        """The numbers of each row."""
        targets = examples_of(stored.graph, options.on).targets
        if targets is None:
            hint = "import it with --targets FILE.npy: (n,) or (n, c) numbers, NaN where unknown"
            raise without(stored, options, "targets", hint)
        return targets

    def columns(self, classes: int, targets: int) -> int:
        """One for each number."""
        return targets

    def loss(self, inputs: LossInputs[RegressionOptions]) -> Loss:
        """The mean over numbers that are known."""
        return mean_error(inputs)


TASK = Regression()


def mean_error(inputs: LossInputs[RegressionOptions]) -> Loss:
    """The mean error of numbers that are known, as the options name it."""
    delta = inputs.options.huber_delta

    def squared(z: np.ndarray, y: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        error = z - y
        return error * error, 2 * error

    def absolute(z: np.ndarray, y: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        error = z - y
        return np.abs(error), np.sign(error)

    def huber(z: np.ndarray, y: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        error = z - y
        cut = np.clip(error, -delta, delta)
        return cut * (error - cut / 2), cut

    losses: dict[str, Entry] = {"squared": squared, "absolute": absolute, "huber": huber}

    def of_kernel(columns: slice) -> EntryLoss:
        return EntryLoss(inputs.options.loss, np.ones(columns.stop - columns.start), delta)

    return MeanOfEntries(inputs, losses[inputs.options.loss], of_kernel)
