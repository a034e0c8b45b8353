"""Personalised propagation of given predictions: the last step of APPNP, for any model.

Z ← (1 − α)·M·Z + α·H, with H the predictions (Gasteiger, Bojchevski and Günnemann 2019, Predict
then propagate, equation 4).
"""

from __future__ import annotations

from dataclasses import dataclass

from gcnmpi.options.settings import key
from gcnmpi.propagation.checks import own_predictions, predictions_of
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.labels import SPREADING, spread
from gcnmpi.propagation.space import Space
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class AppnpOptions:
    """The options of ``appnp``.

    Attributes
    ----------
    predictions
        a row for each vertex, (n, d) .npy
    alpha
        share of the predictions in a step
    steps
        steps
    """

    predictions: str = key("", example="logits.npy")
    alpha: float = key(0.1, low=0, below=1)
    steps: int = key(10, low=0)


def check(stored: StoredGraph, options: AppnpOptions) -> None:
    """Check the file of predictions."""
    predictions_of(options.predictions, stored.manifest.n)


def run(space: Space, options: AppnpOptions) -> Outcome:
    """Predictions after so many steps, (n, d)."""
    given = own_predictions(space, options.predictions)
    return Outcome(spread(space, given, options.steps, 1 - options.alpha, lambda x: None, "step"))


def holds(stored: StoredGraph, options: AppnpOptions) -> Holds:
    """The predictions as they are read; then the matrices of the steps."""
    given = predictions_of(options.predictions, stored.manifest.n)
    width = given.shape[1]
    spreading = Held(numbers=SPREADING * width, product=width if options.steps else 0)
    return Holds(width, (Held(file=(width, given.dtype.itemsize)), spreading))


METHOD = Method(AppnpOptions, Matrix(), run, holds, check)
