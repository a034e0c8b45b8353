"""Parts of ``verify`` that need no second run: the gradient, and the steps of the optimizer.

The gradient is held against differences of the loss, the steps on a kernel against those of the
serial oracle. In a run of float32, rounding errors of the gradient would hide a small error of a
step. So the gradients of steps are given, and the parameters begin at 0: they are the sum of the
steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.options.config import TrainConfig
from gcnmpi.proof.updates import UPDATES
from gcnmpi.run.problem import Problem
from gcnmpi.run.step import Step

STEPS = 50
STEPS_TOLERANCES = {"float64": 1e-12, "float32": 2e-6}
_NAME, _SHAPE = "1.weight", (64, 5)


def finite_differences(
    problem: Problem,
    step: Step,
    tolerance: float,
    directions: int = 4,
    tries: int = 12,
    h: float = 1e-7,
) -> float:
    """Largest relative error of the gradient along a few directions in the space of weights.

    Central differences of the loss of epoch 1 at the initial weights plus noise (where biases are
    0, vertices without neighbours would sit exactly on the kink of ReLU). A direction is the
    gradient with random positive factors, so that what is to be measured stands out from
    rounding errors, plus as much of a random vector, as long as the weights themselves.

    The loss is smooth but where an activation changes its sign. A direction along which the
    differences at h and h/2 disagree has met such a kink and is replaced; infinity is returned
    if too many do.
    """
    model, generator = step.model, np.random.default_rng(1)
    initial = model.whole(model.parameters.flat)
    names, sizes = list(initial), [array.size for array in initial.values()]
    parameters = model.network.parameters
    trained = np.repeat(
        [name not in parameters or parameters[name].trained for name in names], sizes
    )

    def at(point: np.ndarray) -> tuple[float, np.ndarray]:
        pieces = np.split(point, np.cumsum(sizes)[:-1])
        state = {n: p.reshape(initial[n].shape) for n, p in zip(names, pieces, strict=True)}
        model.load_state(state)
        loss, flat = step.gradient(1)
        # All ranks decide on the very same number.
        return problem.runtime.comm.bcast(float(loss)), _flat(model.whole(flat))

    start = _flat(initial)
    start = start + trained * 0.1 * np.sqrt(np.mean(start**2)) * generator.standard_normal(
        len(start)
    )
    _, gradient = at(start)
    worst, found = 0.0, 0
    for _ in range(tries):
        ascent = gradient * generator.uniform(0, 2, len(start))
        noise = trained * generator.standard_normal(len(start))
        towards = _unit(ascent) + _unit(noise)
        towards *= np.linalg.norm(start) / np.linalg.norm(towards)
        slopes = [
            (at(start + s * towards)[0] - at(start - s * towards)[0]) / (2 * s) for s in (h, h / 2)
        ]
        expected = float(gradient @ towards)
        scale = abs(expected) + np.finfo(float).tiny
        # Tighter than what passes, so that a kink is not taken for an error.
        if abs(slopes[0] - slopes[1]) > 0.5 * tolerance * scale:
            continue
        worst, found = max(worst, float(abs(slopes[1] - expected) / scale)), found + 1
        if found == directions:
            return worst
    return math.inf


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / (np.linalg.norm(vector) or 1.0)


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays.values()])


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
