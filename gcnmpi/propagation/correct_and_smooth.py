"""Correct and smooth: predictions of any model, improved by the labels that are known.

Huang et al. 2021, Combining label propagation and simple models out-performs graph neural
networks; steps, scales and limits are those of PyTorch Geometric's ``CorrectAndSmooth``. Z are the
predictions, Y the labels of vertices that train, M = D^-1/2 A D^-1/2:

* **correct**: the errors E⁰ = Y − Z of vertices that train, 0 elsewhere, are spread, E; then
  Z + γ·E. With ``autoscale``, γ of a vertex is the mean of Σ|E⁰| over vertices that train, over its
  own Σ|E|, and 1 where that is above 1000; without, E keeps E⁰ where vertices train, and γ is
  ``scale``;
* **smooth**: Y where vertices train, corrected predictions elsewhere, are spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.checks import needs_labels, own_predictions, predictions_of
from gcnmpi.propagation.interface import OF_MASKS, Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.labels import SPREADING, limited, one_hot, spread
from gcnmpi.propagation.space import Space
from partition.graph.store import StoredGraph

_LARGEST = 1000.0  # scale of a vertex's error, above which it is 1


@dataclass(frozen=True)
class CorrectOptions:
    """The options of ``correct-and-smooth``.

    Attributes
    ----------
    predictions
        probabilities, (n, classes) .npy
    correct_layers
        steps of the first part
    correct_alpha
        share of the neighbours in them
    smooth_layers
        steps of the second part
    smooth_alpha
        share of the neighbours in them
    autoscale
        scale the errors of each vertex; false: by scale
    scale
        factor of the errors
    """

    predictions: str = key("", example="probabilities.npy")
    correct_layers: int = key(50, low=0)
    correct_alpha: float = key(0.8, low=0)
    smooth_layers: int = key(50, low=0)
    smooth_alpha: float = key(0.8, low=0)
    autoscale: bool = True
    scale: float = key(1.0, needs=("autoscale", False))


def check(stored: StoredGraph, options: CorrectOptions) -> None:
    """Check labels, and the file of predictions."""
    needs_labels(stored, options)
    predictions_of(options.predictions, stored.manifest.n, stored.manifest.classes)


def run(space: Space, options: CorrectOptions) -> Outcome:
    """Corrected and smoothed predictions, (n, classes)."""
    classes, labels = space.stored.manifest.classes, space.train_labels()
    given = own_predictions(space, options.predictions, classes)
    trains, known = labels >= 0, one_hot(labels, classes, space.dtype)
    corrected = _corrected(space, options, given, known, trains)
    corrected[trains] = known[trains]
    smooth = options.smooth_layers, options.smooth_alpha
    return Outcome(spread(space, corrected, *smooth, limited(0.0), "smoothing"))


def _corrected(
    space: Space,
    options: CorrectOptions,
    given: np.ndarray,
    known: np.ndarray,
    trains: np.ndarray,
) -> np.ndarray:
    error = np.where(trains[:, np.newaxis], known - given, 0).astype(space.dtype, copy=False)
    steps = options.correct_layers, options.correct_alpha
    if not options.autoscale:

        def keep(x: np.ndarray) -> None:
            x[trains] = error[trains]

        return given + options.scale * spread(
            space, error, *steps, keep, "correction", by_rows=True
        )
    smoothed = spread(space, error, *steps, limited(-1.0), "correction")
    mine = space.counted
    size, count = space.total(
        np.array([np.abs(error[mine]).sum(dtype=np.float64), trains[mine].sum()])
    )
    own = np.abs(smoothed).sum(axis=1, keepdims=True)
    scale = np.divide(size / count, own, out=np.ones_like(own), where=own > size / count / _LARGEST)
    return given + scale * smoothed


def holds(stored: StoredGraph, options: CorrectOptions) -> Holds:
    """Predictions, known labels, and matrices of the steps: of errors, or of predictions."""
    classes = stored.manifest.classes
    given = predictions_of(options.predictions, stored.manifest.n, classes)
    reading = Held(file=(classes, given.dtype.itemsize))
    return Holds(classes, (reading, Held(numbers=(2 + SPREADING) * classes, product=classes)))


METHOD = Method(CorrectOptions, Matrix(self_loops=False), run, holds, check, reads=(OF_MASKS,))
