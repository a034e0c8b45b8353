"""Label propagation: known labels spread over the arcs, and are put back in every step.

Y ← clip(α·M·Y + (1 − α)·Y⁰, 0, 1), with Y⁰ a 1 in the column of the class of each vertex that
trains (Zhou et al. 2004, Learning with local and global consistency, equation 3; the steps and the
limits are those of PyTorch Geometric's ``LabelPropagation``). M = D^-1/2 A D^-1/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.checks import needs_labels
from gcnmpi.propagation.interface import OF_MASKS, Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.space import RowChain, Space
from partition.graph.store import StoredGraph

SPREADING = 4  # matrices of `spread`: the first, its share in a step, before and after a product


@dataclass(frozen=True)
class LabelOptions:
    """The options of ``label-propagation``.

    Attributes
    ----------
    layers
        steps
    alpha
        share of the neighbours in a step
    """

    layers: int = key(50, low=0)
    alpha: float = key(0.9, low=0)


def run(space: Space, options: LabelOptions) -> Outcome:
    """How much of each class a vertex has, (n, classes)."""
    known = one_hot(space.train_labels(), space.stored.manifest.classes, space.dtype)
    return Outcome(spread(space, known, options.layers, options.alpha, limited(0.0)))


def spread(
    space: Space,
    first: np.ndarray,
    layers: int,
    alpha: float,
    after: Callable[[np.ndarray], object],
    what: str = "layer",
    by_rows: bool = False,
) -> np.ndarray:
    """X ← after(α·M·X + (1 − α)·X⁰), ``layers`` times; a new array, if there are any.

    X⁰ is ``first``, (own, width); ``after`` changes such an array in place, entry by entry, or
    ``by_rows``: it knows which ones these are.
    """
    chain = RowChain(space) if by_rows else space.chain(first.shape[1])
    x = chain.enter(first)
    rest = (1 - alpha) * x
    for layer in range(1, layers + 1):
        x = chain.multiply(x)
        x *= alpha
        x += rest
        after(x)
        space.progress(what, layer, layers)
    return chain.leave(x)


def limited(low: float) -> Callable[[np.ndarray], object]:
    """A function that keeps entries between ``low`` and 1."""
    return lambda x: np.clip(x, low, 1.0, out=x)


def one_hot(labels: np.ndarray, classes: int, dtype: np.dtype) -> np.ndarray:
    """A 1 in the column of each label, (rows, classes); rows without one, −1, are 0."""
    out = np.zeros((len(labels), classes), dtype)
    rows = np.flatnonzero(labels >= 0)
    out[rows, labels[rows]] = 1
    return out


def holds(stored: StoredGraph, options: LabelOptions) -> Holds:
    """The labels, and the matrices of the steps."""
    classes = stored.manifest.classes
    return Holds(classes, (Held(1, SPREADING * classes, product=classes),))


METHOD = Method(LabelOptions, Matrix(self_loops=False), run, holds, needs_labels, reads=(OF_MASKS,))
