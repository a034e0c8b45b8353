"""Powers of M times the features: what SGC and SIGN learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.checks import needs_features
from gcnmpi.propagation.interface import OF_FEATURES, Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.space import Space
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class SgcOptions:
    """The options of ``sgc``.

    Attributes
    ----------
    hops
        how often features are multiplied by M
    """

    hops: int = key(2, low=0)


@dataclass(frozen=True)
class SignOptions:
    """The options of ``sign``.

    Attributes
    ----------
    hops
        the highest power of M
    """

    hops: int = key(3, low=0)


def sgc(space: Space, options: SgcOptions) -> Outcome:
    """Mᴷ·X (Wu et al. 2019, Simplifying graph convolutional networks, equation 8)."""
    x = space.features()
    chain = space.chain(x.shape[1])
    x = chain.enter(x)
    for hop in range(options.hops):
        x = chain.multiply(x)
        space.progress("hop", hop + 1, options.hops)
    return Outcome(chain.leave(x))


def sign(space: Space, options: SignOptions) -> Outcome:
    """[X, M·X, …, Mᴷ·X] (Rossi et al. 2020, SIGN, equation 4), (n, (K + 1)·d): a row holds all."""
    x = space.features()
    width = x.shape[1]
    powers = np.empty((len(x), (options.hops + 1) * width), space.dtype)
    powers[:, :width] = x
    chain = space.chain(width)
    x = chain.enter(x)
    for hop in range(1, options.hops + 1):
        x = chain.multiply(x)
        powers[:, hop * width : (hop + 1) * width] = chain.leave(x)
        space.progress("hop", hop, options.hops)
    return Outcome(powers)


def sgc_holds(stored: StoredGraph, options: SgcOptions) -> Holds:
    """Features before and after a product."""
    width = stored.manifest.features
    multiplying = Held(numbers=2 * width, product=width) if options.hops else Held(numbers=width)
    return Holds(width, (_reading(stored), multiplying))


def sign_holds(stored: StoredGraph, options: SignOptions) -> Holds:
    """All powers; the last one, and a product."""
    width = stored.manifest.features
    columns = (options.hops + 1) * width
    multiplying = Held(numbers=columns + 2 * width, product=width)
    return Holds(columns, (_reading(stored), multiplying))


def _reading(stored: StoredGraph) -> Held:
    features = stored.graph.features
    assert features is not None, "checked before"
    return Held(file=(stored.manifest.features, features.dtype.itemsize))


SGC = Method(SgcOptions, Matrix(), sgc, sgc_holds, needs_features, reads=(OF_FEATURES,))
SIGN = Method(SignOptions, Matrix(), sign, sign_holds, needs_features, reads=(OF_FEATURES,))
