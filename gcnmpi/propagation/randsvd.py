"""Singular vectors of a polynomial of the normalised adjacency matrix: proximity of several orders.

U·√Σ of Σ wₖ·Nᵏ with N = D^-1/2 A D^-1/2 (Zhang et al. 2018, Arbitrary-order proximity preserved
network embedding, equation 3), by randomised decomposition (Halko, Martinsson and Tropp 2011,
algorithms 4.4 and 5.1). The polynomial is never formed.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.propagation.blocks import drawn_columns, randomised_svd, reciprocal, row_sums
from gcnmpi.propagation.embed import Embedding, EmbedOptions
from gcnmpi.propagation.interface import Held
from gcnmpi.propagation.space import Space

_WEIGHTS = (1.0, 0.5, 0.25)


def run(space: Space, options: EmbedOptions) -> np.ndarray:
    """The embedding, (own, dimension) float64."""
    degrees, weights = row_sums(space), options.weights or _WEIGHTS
    root = np.sqrt(reciprocal(degrees))[:, np.newaxis]

    def polynomial(x: np.ndarray) -> np.ndarray:
        out = np.zeros_like(x)
        for weight in weights:
            x = root * space.multiply(root * x)
            out += weight * x
        return out

    vectors, sizes = randomised_svd(
        space, polynomial, polynomial, options.dimension, options.rounds, options.seed
    )
    return vectors * np.sqrt(sizes)


def holds(n: int, options: EmbedOptions) -> tuple[Held, ...]:
    """A basis, and a block with its polynomial, a product and what that is made of."""
    width = drawn_columns(options.dimension, n)
    return (Held(4 * width, width, product=width),)


EMBEDDING = Embedding(run, holds)
