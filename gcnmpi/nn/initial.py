"""Initial values of parameters: functions of the seed and of the parameter, whoever asks."""

from __future__ import annotations

import numpy as np

from gcnmpi.core import rng
from gcnmpi.nn.operators import Parameter


def initial(parameter: Parameter, seed: int) -> np.ndarray:
    """The whole parameter before the first epoch, float64.

    "glorot" is uniform in ±√(6/(fan_in + fan_out)), "uniform" in ±1/√fan_in; anything else is a
    number.
    """
    if parameter.init == "glorot":
        bound = np.sqrt(6.0 / (parameter.fan_in + parameter.fan_out))
    elif parameter.init == "uniform":
        bound = 1.0 / np.sqrt(parameter.fan_in)
    else:
        return np.full(parameter.shape, float(parameter.init))
    return rng.uniform(seed, parameter.stream, bound, parameter.shape)
