"""Dense blocks of vectors over the ranks: orthonormal bases, singular vectors, random numbers.

Factors of small matrices come from rank 0, so that all ranks use the same to the bit, on whatever
processors they run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import ndtri

from gcnmpi.core.rng import column_keys, hash_block, row_keys
from gcnmpi.propagation.space import Space

_DEPENDENT = 1e-14  # share of the largest eigenvalue of a Gram matrix, a column: nothing of its own
_OVERSAMPLING = 10
_ROWS_AT_ONCE = 1 << 14


def normal(space: Space, seed: int, width: int, stream: int = 0) -> np.ndarray:
    """Normally distributed numbers, (own, width) float64.

    A function of (seed, stream, vertex, column), whichever rank has the vertex.
    """
    return _drawn(space, seed, width, stream, ndtri)


def uniform(space: Space, seed: int, width: int, stream: int = 0) -> np.ndarray:
    """Numbers that are uniform in (0, 1), drawn as those of :func:`normal`."""
    return _drawn(space, seed, width, stream, lambda x: x)


def _drawn(
    space: Space, seed: int, width: int, stream: int, transform: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    vertices, columns = space.vertices, column_keys(np.arange(width))
    out = np.empty((len(vertices), width))
    for start in range(0, len(vertices), _ROWS_AT_ONCE):
        keys = row_keys(seed, stream, 0, vertices[start : start + _ROWS_AT_ONCE])
        bits, scratch = np.empty((2, len(keys), width), np.uint32)
        hash_block(keys, columns, bits, scratch)
        out[start : start + len(keys)] = transform((bits + 0.5) / 2.0**32)
    return out


def orthonormal(space: Space, x: np.ndarray, basis: np.ndarray | None = None) -> np.ndarray:
    """An orthonormal basis of what the columns of x add to an orthonormal basis.

    Block Gram–Schmidt, three times, each with one all-reduce: what is common with the basis is
    taken off first, then the rest is made orthonormal by its Gram matrix and corrected once more
    (Stathopoulos and Wu 2002, A block orthogonalization procedure with constant synchronization
    requirements). Columns that add nothing are left out. Both are float64.
    """
    known = x[:, :0] if basis is None else basis
    k = known.shape[1]
    for step in range(0 if k else 1, 3):
        inner = space.grams([known, x], x)
        common, own = inner[:k], inner[k:] - inner[:k].T @ inner[:k]
        x = x - known @ common
        if step == 0:
            norms = np.sqrt(space.total((x[space.counted] ** 2).sum(axis=0)))
            x /= np.where(norms > 0, norms, 1)
            continue
        x = x @ space.alike(partial(_factor, own))
    return x


def _factor(gram: np.ndarray) -> np.ndarray:
    """F with Fᵀ·G·F = I, (k, r): r directions of G that are not numerically 0."""
    sizes = np.sqrt(np.maximum(np.diag(gram), 0))
    scale = reciprocal(sizes)
    eigenvalues, vectors = np.linalg.eigh(gram * scale[:, np.newaxis] * scale)
    largest = eigenvalues.max(initial=0)
    kept = eigenvalues > _DEPENDENT * len(sizes) * largest
    return scale[:, np.newaxis] * vectors[:, kept] / np.sqrt(eigenvalues[kept])


def left_singular(space: Space, x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first left singular vectors of a tall matrix, (own, count), and values, (count,).

    By its Gram matrix: values below 1e-8 of the largest are 0, and so are their vectors. There are
    at most as many as the matrix has columns.
    """
    gram = space.gram(x, x)

    def factor() -> tuple[np.ndarray, np.ndarray]:
        squares, vectors = np.linalg.eigh(gram)
        squares, vectors = squares[::-1][:count], vectors[:, ::-1][:, :count]
        squares = np.where(squares > 1e-16 * squares.max(initial=0), squares, 0)
        sizes = np.sqrt(squares)
        return vectors * reciprocal(sizes), sizes

    factors, sizes = space.alike(factor)
    return signed(space, x @ factors), sizes


def randomised_svd(
    space: Space,
    forward: Callable[[np.ndarray], np.ndarray],
    backward: Callable[[np.ndarray], np.ndarray],
    count: int,
    rounds: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The first left singular vectors of an (n, n) matrix, (own, count), and values, (count,).

    Halko, Martinsson and Tropp 2011, Finding structure with randomness, algorithms 4.4 and 5.1.
    Where the rank is lower than ``count``, the last vectors and values are 0. ``forward`` and
    ``backward`` are products with the matrix and its transpose, ``rounds`` are power iterations.
    """
    width = drawn_columns(count, space.n)
    saved = space.checkpoints.resume("power iteration")
    if saved is None:
        basis = orthonormal(space, forward(normal(space, seed, width)))
    else:
        basis = space.checkpoints.rows(saved, "basis")
    for number in range(saved.step if saved else 0, rounds):
        basis = orthonormal(space, forward(orthonormal(space, backward(basis))))
        space.progress("power iteration", number + 1, rounds)
        space.checkpoints.save("power iteration", number + 1, {"basis": basis})
    images = backward(basis)  # Bᵀ of B = Qᵀ·matrix
    gram = space.gram(images, images)

    def factor() -> tuple[np.ndarray, np.ndarray]:
        squares, vectors = np.linalg.eigh(gram)
        return vectors[:, ::-1][:, :count], np.sqrt(np.maximum(squares[::-1][:count], 0))

    rotation, found = space.alike(factor)
    vectors, sizes = np.zeros((len(basis), count)), np.zeros(count)
    vectors[:, : len(found)], sizes[: len(found)] = basis @ rotation, found
    return signed(space, vectors), sizes


def drawn_columns(count: int, n: int) -> int:
    """Columns that :func:`randomised_svd` computes with."""
    return min(count + _OVERSAMPLING, n)


def row_sums(space: Space) -> np.ndarray:
    """M·1, (own,) float64, by a product; exact up to 2²⁴ arcs of a vertex in float32."""
    return space.multiply(np.ones(len(space.vertices))).astype(np.float64)


def signed(space: Space, x: np.ndarray) -> np.ndarray:
    """Columns with the sign that makes their product with some fixed positive numbers positive.

    So it does not depend on ranks, or on rounding, as the sign of the largest entry would where
    two are equal.
    """
    weights = 0.5 + uniform(space, 0, 1)
    return x * np.where(space.gram(x, weights)[:, 0] < 0, -1.0, 1.0)


def reciprocal(x: np.ndarray) -> np.ndarray:
    """1 / x of numbers that are not negative, 0 where they are 0; float64."""
    return np.divide(1.0, x, out=np.zeros(len(x)), where=x > 0)


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths; rows of zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x))[:, np.newaxis]
    return np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
