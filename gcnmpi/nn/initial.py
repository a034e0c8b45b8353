"""Initial values of parameters: from (seed, stream), so the same for every number of ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.core import rng
from gcnmpi.core.functions import AVERAGES
from gcnmpi.nn.operator import Parameter

Average = Callable[[Callable[[np.ndarray], np.ndarray]], float]
"""The mean over all vertices of a function of their degree."""


def initial(parameter: Parameter, seed: int, average: Average = lambda of: 1.0) -> np.ndarray:
    """The whole parameter, float64.

    "glorot": uniform in ±√(6 / (fan_in + fan_out)), Glorot and Bengio 2010, equation 16; "uniform":
    in ±1/√fan_in, as PyTorch's ``Linear``, weight and bias; "unit": uniform, then rows of length 1,
    as the relations of Bordes et al. 2013; one of ``AVERAGES``, 1 if it would be
    0; or a number.
    """
    p = parameter
    if p.init in AVERAGES:
        return np.full(p.shape, average(AVERAGES[p.init]) or 1.0)
    if p.init == "unit":
        rows = rng.uniform(seed, p.stream, 1.0, p.shape)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if p.init not in ("glorot", "uniform"):
        return np.full(p.shape, float(p.init))
    bound = np.sqrt(6 / (p.fan_in + p.fan_out)) if p.init == "glorot" else 1 / np.sqrt(p.fan_in)
    return rng.uniform(seed, p.stream, bound, p.shape)
