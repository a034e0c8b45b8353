"""FastRP: random numbers, averaged over neighbours a few times.

Σ wₖ·Sᵏ·L·R with S = D⁻¹A, L = diag((dⱼ / Σd)^β) and R very sparse or normal random numbers; then
columns of mean 0 and deviation 1 (Chen et al. 2019, Fast and accurate network embeddings via very
sparse random projection, equations 4 and 5). No product but those with A.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.propagation.blocks import normal, reciprocal, row_sums, uniform
from gcnmpi.propagation.embed import Embedding, EmbedOptions
from gcnmpi.propagation.interface import Held
from gcnmpi.propagation.space import Space

_WEIGHTS = (0.0, 0.0, 1.0, 4.0)


def run(space: Space, options: EmbedOptions) -> np.ndarray:
    """The embedding, (own, dimension), in the dtype of products."""
    degrees, weights = row_sums(space), options.weights or _WEIGHTS
    total = float(space.total(float(degrees[space.counted].sum()))) or 1.0
    inverse = reciprocal(degrees)[:, np.newaxis]
    nothing = np.zeros(len(degrees))
    scale = np.power(degrees / total, options.beta, out=nothing, where=degrees > 0)
    x = (_projection(space, options) * scale[:, np.newaxis]).astype(space.dtype)
    out = np.zeros_like(x)
    for power, weight in enumerate(weights, start=1):
        x = space.multiply(x)
        x *= inverse.astype(space.dtype)
        out += space.dtype.type(weight) * x
        space.progress("power", power, len(weights))
    return _standardised(space, out)


def _projection(space: Space, options: EmbedOptions) -> np.ndarray:
    """Random numbers of variance 1 / dimension, (own, dimension) float64."""
    if options.projection == "normal":
        drawn = normal(space, options.seed, options.dimension)
    else:
        drawn = uniform(space, options.seed, options.dimension)
        drawn = np.sqrt(3.0) * ((drawn < 1 / 6).astype(np.float64) - (drawn > 5 / 6))
    return drawn / np.sqrt(options.dimension)


def _standardised(space: Space, x: np.ndarray) -> np.ndarray:
    """Columns less their means, over their standard deviations; constant ones become 0."""
    mine = space.counted
    means = space.total(x[mine].sum(axis=0, dtype=np.float64)) / space.n
    x = x - means.astype(x.dtype)
    squares = space.total((x[mine].astype(np.float64) ** 2).sum(axis=0)) / space.n
    x *= reciprocal(np.sqrt(squares)).astype(x.dtype)
    return x


def holds(n: int, options: EmbedOptions) -> tuple[Held, ...]:
    """Random numbers while they are drawn; powers, and their sum while it is standardised."""
    width = options.dimension
    return (
        Held(doubles=2 * width),
        Held(numbers=4 * width, product=width),
        Held(width, 3 * width, product=width),
    )


EMBEDDING = Embedding(run, holds, symmetric=False)
