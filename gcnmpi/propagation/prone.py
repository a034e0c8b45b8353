"""ProNE: a factorisation of the arcs, then a filter of the spectrum.

Zhang et al. 2019, ProNE: Fast and scalable network representation learning. **Factorisation**
(equation 4): F has log(pᵢⱼ) − log(λ·nⱼ) where there is an arc, with p = D⁻¹A and nⱼ the column sums
of p to the power of 0.75, which add up to 1; its truncated singular vectors, U·√Σ. For a graph
without weights F = −diag(log d)·A − A·diag(log n), so products with A are all that is needed.
**Filter** (section 3.2): a series of ``order`` Chebyshev polynomials of I − D̃⁻¹(A + I) − μ·I, whose
coefficients are Bessel functions of θ, as in the published program; then singular vectors of the
filtered rows, U·√Σ again. Rows have length 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import iv

from gcnmpi.propagation import blocks
from gcnmpi.propagation.embed import Embedding, EmbedOptions
from gcnmpi.propagation.interface import Held
from gcnmpi.propagation.space import Space

_EXPONENT = 0.75  # of the negative samples


def run(space: Space, options: EmbedOptions) -> np.ndarray:
    """The embedding, (own, dimension) float64."""
    degrees = blocks.row_sums(space)
    saved = space.checkpoints.resume("term")
    if saved is None:
        first = _factorised(space, options, degrees)
    else:
        first = space.checkpoints.rows(saved, "first")
    filtered = _filtered(space, options, degrees, first)
    vectors, sizes = blocks.left_singular(space, filtered, options.dimension)
    return blocks.unit_rows(vectors * np.sqrt(sizes))


def _factorised(space: Space, options: EmbedOptions, degrees: np.ndarray) -> np.ndarray:
    # The column sums of D⁻¹A: of A's rows, since A is symmetric.
    negative = space.multiply(blocks.reciprocal(degrees)).astype(np.float64) ** _EXPONENT
    negative /= float(space.total(float(negative[space.counted].sum()))) or 1.0
    rows, columns = (
        np.log(array, out=np.zeros(len(array)), where=array > 0)[:, np.newaxis]
        for array in (degrees, negative)
    )

    def scaled(left: np.ndarray, right: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Products with −diag(left)·A − A·diag(right), each by one product of twice the width."""

        def multiply(x: np.ndarray) -> np.ndarray:
            width = x.shape[1]
            both = space.multiply(np.hstack([x, right * x]))
            return -left * both[:, :width] - both[:, width:]

        return multiply

    products = scaled(rows, columns), scaled(columns, rows)
    vectors, sizes = blocks.randomised_svd(
        space, *products, options.dimension, options.rounds, options.seed
    )
    return blocks.unit_rows(vectors * np.sqrt(sizes))


def _filtered(
    space: Space, options: EmbedOptions, degrees: np.ndarray, x: np.ndarray
) -> np.ndarray:
    inverse = 1 / (degrees + 1)[:, np.newaxis]

    def shifted(x: np.ndarray) -> np.ndarray:
        """(I − D̃⁻¹(A + I) − μ·I)·x."""
        return (1 - options.mu) * x - inverse * (space.multiply(x) + x)

    saved = space.checkpoints.resume("term")
    if saved is None:
        before, now = x, 0.5 * shifted(shifted(x)) - x
        out = iv(0, options.theta) * x - 2 * iv(1, options.theta) * now
    else:
        before, now, out = (
            space.checkpoints.rows(saved, name) for name in ("before", "now", "out")
        )
    for term in range(saved.step if saved else 2, options.order):
        before, now = now, shifted(shifted(now)) - 2 * now - before
        out += (-1) ** term * 2 * iv(term, options.theta) * now
        space.progress("term", term + 1, options.order)
        rows = {"first": x, "before": before, "now": now, "out": out}
        space.checkpoints.save("term", term + 1, rows)
    rest = x - out
    return space.multiply(rest) + rest


def holds(n: int, options: EmbedOptions) -> tuple[Held, ...]:
    """Factorisation: a basis, a block, and both halves of a product; filter: a recurrence."""
    dimension, width = options.dimension, blocks.drawn_columns(options.dimension, n)
    return (
        Held(4 * width, 2 * width, product=2 * width),
        Held(7 * dimension, dimension, product=dimension),
    )


EMBEDDING = Embedding(run, holds, weighted=False)
