"""Functions that the options of networks name, in NumPy: activations, reductions, scalers.

An activation that is added here can be chosen as ``model.activation`` and runs on every kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def _gelu(x: Array) -> Array:
    return x * _ndtr(x)


def _gelu_slope(x: Array) -> Array:
    density = np.exp(-x * x / 2) / x.dtype.type(np.sqrt(2 * np.pi))
    return _ndtr(x) + x * density


def _sigmoid(x: Array) -> Array:
    return (np.tanh(x / 2) + 1) / 2


def _sigmoid_slope(x: Array) -> Array:
    y = _sigmoid(x)
    return y * (1 - y)


def _tanh_slope(x: Array) -> Array:
    y = np.tanh(x)
    return 1 - y * y


def _ndtr(x: Array) -> Array:
    """Φ(x); the import takes a tenth of a second of every start."""
    from scipy.special import ndtr

    return ndtr(x)


FUNCTIONS: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "gelu": (_gelu, _gelu_slope),
    "sigmoid": (_sigmoid, _sigmoid_slope),
    "tanh": (np.tanh, _tanh_slope),
}
"""Activations whose derivative follows from x only, and these derivatives.

x·Φ(x), with the normal distribution itself (Hendrycks and Gimpel 2016). Kernels may have versions
of their own; those of devices apply these to their arrays, whose functions NumPy finds.
"""

ACTIVATIONS = ("relu", "elu", "leaky_relu", *FUNCTIONS, "prelu", "none")
"""The names of all activations; "none" leaves rows as they are."""

REDUCTIONS = ("sum", "mean", "max", "min", "std")
"""Functions that make one number of the numbers of a row's entries; of none, 0."""

AVERAGES: Mapping[str, Callable[[Array], Array]] = {
    "degree": lambda degree: degree,
    "log degree": np.log1p,
}
"""Functions of a vertex's degree of which networks take the mean over all vertices."""


@dataclass(frozen=True)
class Scaler:
    """Rows are scaled by a function of their degree, and a mean over all vertices.

    Attributes
    ----------
    of : callable
        From degrees, float64, to what a row is multiplied with.
    average : str
        Of ``AVERAGES``.
    divides : bool
        Whether the mean is divided by; else multiplied with.
    """

    of: Callable[[Array], Array]
    average: str
    divides: bool


SCALERS: Mapping[str, Scaler] = {
    "amplification": Scaler(np.log1p, "log degree", divides=True),
    "attenuation": Scaler(lambda d: 1 / np.log1p(np.maximum(d, 1)), "log degree", divides=False),
    "linear": Scaler(lambda d: d, "degree", divides=True),
    "inverse_linear": Scaler(lambda d: 1 / np.maximum(d, 1), "degree", divides=False),
}
"""Scalers of principal neighbourhood aggregation (Corso et al. 2020), beside the identity."""
