"""A part of the oracle: optimizers and learning rates, from PyTorch's description of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import numpy as np

from gcnmpi.options.train import TrainConfig

Weights = dict[str, np.ndarray]
Update = Callable[[Weights, Weights, float], Weights]
"""(weights, gradient, learning rate) → weights."""


# Smaller numbers of a gradient are rounding errors: beside the square root of the loss, which is as
# small where the unit of targets is, or beside the largest.
_NOISE, _RELATIVE_NOISE = 2.0**-50, 2.0**-40


def without_noise(gradient: Weights, loss: float) -> Weights:
    """The gradient whose rounding errors are 0."""
    largest = max((float(np.abs(g).max(initial=0.0)) for g in gradient.values()), default=0.0)
    least = max(_NOISE * math.sqrt(min(1.0, max(0.0, loss))), _RELATIVE_NOISE * largest)
    return {name: np.where(np.abs(g) < least, 0.0, g) for name, g in gradient.items()}


def clipped(config: TrainConfig, gradient: Weights) -> Weights:
    """The gradient, no longer than ``train.clip_norm``."""
    length = math.sqrt(math.fsum(float(np.sum(g * g)) for g in gradient.values()))
    if not config.clip_norm:
        return gradient
    factor = min(1.0, config.clip_norm / (length + 1e-6))
    return {name: factor * g for name, g in gradient.items()}


def rate(config: TrainConfig, epoch: int, values: Sequence[float | None], lower: bool) -> float:
    """The learning rate of an epoch, from 1.

    ``values`` are the validation metric of each epoch before; ``lower`` ones may be better.
    """
    number = epoch - 1 - config.warmup
    if number < 0:
        return config.lr * epoch / config.warmup
    if config.schedule == "cosine":
        angle = math.pi * number / config.period
        return config.min_lr + (config.lr - config.min_lr) / 2 * (1 + math.cos(angle))
    if config.schedule == "step":
        return config.lr * math.prod([config.decay] * (number // config.step_epochs))
    if config.schedule == "plateau":
        return _on_plateau(config, values[config.warmup :], lower)
    return config.lr


def _on_plateau(config: TrainConfig, values: Sequence[float | None], lower: bool) -> float:
    lr, best, bad = config.lr, math.nan, 0
    for number, value in enumerate(values, config.warmup + 1):
        if value is None or number % config.eval_every:
            continue
        margin = best * (1 - 1e-4) if lower else best * (1 + 1e-4)
        if math.isnan(best) or (value < margin if lower else value > margin):
            best, bad = value, 0
        else:
            bad += 1
        if bad > config.plateau_patience:
            least, bad = max(config.min_lr, lr * config.decay), 0
            lr = least if lr - least > 1e-8 else lr
    return lr


def _penalty(config: TrainConfig, name: str, first: Container[str]) -> float:
    if config.weight_decay_layers == "first" and name not in first:
        return 0.0
    of_convs = config.weight_decay_convs if name.startswith("convs.") else 0.0
    return of_convs or config.weight_decay


def _sgd(config: TrainConfig, first: Container[str] = ()) -> Update:
    """``torch.optim.SGD``: v = μ·v + g; p = p − lr·v."""
    velocity: Weights = {}

    def update(weights: Weights, gradient: Weights, lr: float) -> Weights:
        for name in gradient:
            g = gradient[name] + _penalty(config, name, first) * weights[name]
            velocity[name] = config.momentum * velocity.get(name, 0.0) + g
        return weights | {name: weights[name] - lr * velocity[name] for name in gradient}

    return update


def _adam(config: TrainConfig, first: Container[str] = (), decoupled: bool = False) -> Update:
    """``torch.optim.Adam``: p = p − lr·m̂ / (√v̂ + ε), m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ).

    And ``AdamW``, where the penalty is not in g: p is multiplied by 1 − lr·λ before.
    """
    moments: tuple[Weights, Weights] = ({}, {})
    (beta1, beta2), t = config.betas, 0

    def update(weights: Weights, gradient: Weights, lr: float) -> Weights:
        nonlocal t
        t += 1
        new = dict(weights)
        for name in gradient:
            penalty = _penalty(config, name, first)
            g = gradient[name] + (0.0 if decoupled else penalty) * weights[name]
            for moment, beta, term in zip(moments, config.betas, (g, g**2), strict=True):
                moment[name] = beta * moment.get(name, 0.0) + (1 - beta) * term
            m, v = moments[0][name] / (1 - beta1**t), moments[1][name] / (1 - beta2**t)
            before = weights[name] * (1 - lr * penalty if decoupled else 1)
            new[name] = before - lr * m / (np.sqrt(v) + config.eps)
        return new

    return update


def _adamw(config: TrainConfig, first: Container[str] = ()) -> Update:
    return _adam(config, first, decoupled=True)


UPDATES = {"sgd": _sgd, "adam": _adam, "adamw": _adamw}
