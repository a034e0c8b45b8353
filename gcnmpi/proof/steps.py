"""A part of ``verify``: the optimizer's steps on a kernel against those of the serial oracle.

In a run of float32, rounding errors of the gradient would hide a small error of a step. So the
gradients here are given, and the parameters begin at 0: they are the sum of the steps.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import DTypeLike

from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.options.config import TrainConfig
from gcnmpi.proof.updates import UPDATES

STEPS = 50
STEPS_TOLERANCES = {"float64": 1e-12, "float32": 2e-6}
_NAME, _SHAPE = "1.weight", (64, 5)


def steps_apart(kernel: Kernel, config: TrainConfig) -> float:
    """How far the parameters are from the oracle's after 50 steps, relative to the largest one.

    Infinity, or NaN, where a parameter is no number but the oracle's are.
    """
    config = dataclasses.replace(config, weight_decay_layers="all", weight_decay_convs=0.0)
    parameters = Parameters(kernel, {}, {_NAME: _SHAPE})
    step = make_optimizer(kernel, parameters, {_NAME: config.weight_decay}, config).step
    update = UPDATES[config.optimizer](config)
    expected = {_NAME: np.zeros(_SHAPE)}
    for gradient in _gradients(kernel.dtype):
        mine = kernel.empty(gradient.size)
        kernel.copy(kernel.from_host(gradient.ravel()), mine)
        step(mine, config.lr)
        expected = update(expected, {_NAME: gradient}, config.lr)
    found = np.asarray(kernel.to_host(parameters[_NAME]), np.float64)
    size = np.abs(expected[_NAME]).max()
    return float(np.abs(found - expected[_NAME]).max() / (size or 1.0))


def _gradients(dtype: DTypeLike) -> np.ndarray:
    """Of sizes that differ from entry to entry and fall from step to step, exact in ``dtype``."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-4, 0, _SHAPE) * 0.98 ** np.arange(STEPS)[:, None, None]
    return (sizes * (random.standard_normal((STEPS, *_SHAPE)) + 0.5)).astype(dtype).astype(float)
