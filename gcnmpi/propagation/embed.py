"""Embeddings of vertices: one method of several, by products with one matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.checkpoint import CheckpointOptions
from gcnmpi.propagation.checks import needs_symmetry
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.methods import EMBEDDINGS
from gcnmpi.propagation.space import Space
from partition.errors import UserError
from partition.graph.store import StoredGraph

_FASTRP, _PRONE, _RANDSVD = (("method", name) for name in EMBEDDINGS)
_LONG = ("method", ("prone", "randsvd"))


@dataclass(frozen=True)
class EmbedOptions(CheckpointOptions):
    """The options of ``embed``.

    Attributes
    ----------
    method
        how vertices are embedded
    dimension
        columns of the embedding
    seed
        of the random numbers
    weights
        fastrp, randsvd: weights of the powers of the matrix, from the first; []: 0,0,1,4 and
        1,0.5,0.25
    beta
        fastrp: exponent of the degrees
    projection
        fastrp: numbers that are drawn; sparse: ±√3 for one of three, else 0
    order
        prone: terms of the Chebyshev series
    mu
        prone: centre of the filter
    theta
        prone: width of the filter
    rounds
        prone, randsvd: power iterations of the randomised decomposition
    checkpoint
        prone, randsvd: folder that checkpoints are kept in; where there is one, the run goes on
        from it
    """

    method: str = key("fastrp", choices=EMBEDDINGS)
    dimension: int = key(128, low=1, example=64)
    seed: int = key(0, low=0)
    weights: tuple[float, ...] = key(
        (), example=(1.0, 0.5), needs=("method", ("fastrp", "randsvd"))
    )
    beta: float = key(-0.5, needs=_FASTRP)
    projection: str = key("sparse", choices=("sparse", "normal"), needs=_FASTRP)
    order: int = key(10, low=2, needs=_PRONE)
    mu: float = key(0.1, needs=_PRONE)
    theta: float = key(0.5, positive=True, needs=_PRONE)
    rounds: int = key(5, low=0, needs=_LONG)
    checkpoint: str = key("", example="kept", needs=_LONG)


@dataclass(frozen=True)
class Embedding:
    """An entry of the table of embeddings.

    Attributes
    ----------
    run : callable
        ``run(space, options)`` gives own rows of the embedding, (own, dimension); M is A itself,
        without added loops.
    holds : callable
        ``holds(n, options)``: moments of what a rank holds, as those of a method.
    symmetric, weighted : bool
        Whether A has to equal its transpose, and whether arcs may have weights.
    """

    run: Callable[[Space, EmbedOptions], np.ndarray]
    holds: Callable[[int, EmbedOptions], tuple[Held, ...]]
    symmetric: bool = True
    weighted: bool = True


def check(stored: StoredGraph, options: EmbedOptions) -> None:
    """Refuse a graph that cannot be embedded that way."""
    embedding: Embedding = EMBEDDINGS.get(options.method)
    if embedding.symmetric:
        needs_symmetry(stored, f"{options.method} needs a symmetric matrix")
    if stored.manifest.valued and not embedding.weighted:
        raise UserError(
            f"{stored.path} has weights or parallel arcs, which {options.method} does not take",
            "method=fastrp or method=randsvd do",
        )
    if options.dimension > stored.manifest.n:
        raise UserError(
            f"dimension = {options.dimension}, and {stored.path} has {stored.manifest.n} vertices",
            f"at most --set dimension={stored.manifest.n}",
        )


def run(space: Space, options: EmbedOptions) -> Outcome:
    """The embedding, (n, dimension)."""
    embedding: Embedding = EMBEDDINGS.get(options.method)
    return Outcome(embedding.run(space, options).astype(space.dtype, copy=False))


def holds(stored: StoredGraph, options: EmbedOptions) -> Holds:
    """Moments of the embedding that is asked for."""
    embedding: Embedding = EMBEDDINGS.get(options.method)
    return Holds(options.dimension, embedding.holds(stored.manifest.n, options))


METHOD = Method(EmbedOptions, Matrix("none", False, fixed=True), run, holds, check)
