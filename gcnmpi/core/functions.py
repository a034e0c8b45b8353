"""Entry-wise functions that networks have as activations, with their derivatives, in NumPy.

A function that is added here can be chosen as ``model.activation`` and runs on every kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray


def _gelu(x: Array) -> Array:
    return x * _ndtr(x)


def _gelu_slope(x: Array) -> Array:
    density = np.exp(-x * x / 2) / x.dtype.type(np.sqrt(2 * np.pi))
    return _ndtr(x) + x * density


def _ndtr(x: Array) -> Array:
    """Φ(x); the import takes a tenth of a second of every start."""
    from scipy.special import ndtr

    return ndtr(x)


FUNCTIONS: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "gelu": (_gelu, _gelu_slope),
}
"""Activations whose derivative follows from x only, and these derivatives.

x·Φ(x), with the normal distribution itself (Hendrycks and Gimpel 2016). Kernels may have versions
of their own; those of devices apply these to their arrays, whose functions NumPy finds.
"""
