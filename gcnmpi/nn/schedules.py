"""Learning rates over epochs, with PyTorch's meaning; what is to come depends on what was.

A schedule is a function of the epochs so far, and remembers nothing else: a run that is resumed
shows it the metrics of the epochs before, and goes on with the same rates.
"""

from __future__ import annotations

import math
from typing import Protocol

from gcnmpi.options.train import SCHEDULES, TrainConfig

THRESHOLD = 1e-4  # of the metric, by which it has to be better: PyTorch's default
SMALLEST = 1e-8  # change of a rate that is made: PyTorch's default


class Schedule(Protocol):
    """The learning rate of every epoch."""

    def rate(self, number: int) -> float:
        """Of an epoch, from 0; those before were observed."""

    def observe(self, value: float, lower: bool) -> None:
        """Learn the validation metric of an evaluation, and whether lower ones are better."""


class LearningRate:
    """The schedule that is configured, after its warm-up: lr·epoch / ``train.warmup``."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._schedule: Schedule = SCHEDULES.get(config.schedule)(config)

    def __call__(self, epoch: int) -> float:
        """The rate of an epoch, from 1."""
        config = self._config
        if epoch <= config.warmup:
            return config.lr * (epoch / config.warmup)
        return self._schedule.rate(epoch - config.warmup - 1)

    def observe(self, epoch: int, value: float | None, lower: bool) -> None:
        """Learn the validation metric of an epoch; None where it is not defined."""
        if value is not None and epoch > self._config.warmup:
            self._schedule.observe(value, lower)


class Constant:
    """The learning rate is lr in every epoch."""

    def __init__(self, config: TrainConfig) -> None:
        self._lr = config.lr

    def rate(self, number: int) -> float:
        """The same in all epochs."""
        return self._lr

    def observe(self, value: float, lower: bool) -> None:
        """A value changes nothing here."""


class Cosine(Constant):
    """Between lr and min_lr along a cosine (Loshchilov and Hutter 2017).

    From lr down to min_lr in a period, up again in the next one, and so on, as PyTorch's
    ``CosineAnnealingLR`` does, whose formula it is.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self._least = config.min_lr
        self._period = config.period

    def rate(self, number: int) -> float:
        """The point of an epoch on the cosine."""
        share = number % (2 * self._period) / self._period
        return self._least + (self._lr - self._least) * (1 + math.cos(math.pi * share)) / 2


class Steps(Constant):
    """lr, multiplied by ``decay`` after every ``step_epochs``."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self._decay, self._epochs = config.decay, config.step_epochs

    def rate(self, number: int) -> float:
        """One factor for each step behind."""
        return self._lr * self._decay ** (number // self._epochs)


class Plateau(Constant):
    """lr, multiplied by ``decay`` when more than so many evaluations have brought nothing better.

    Better is what exceeds the best by 0.01 % of it. See ``torch.optim.lr_scheduler``,
    ``ReduceLROnPlateau``.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self._decay, self._least = config.decay, config.min_lr
        self._patience, self._waited = config.plateau_patience, 0
        self._best: float | None = None

    def observe(self, value: float, lower: bool) -> None:
        """Count the evaluations that brought nothing better."""
        if self._best is None or _exceeds(value, self._best, lower):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited > self._patience:
            rate, self._waited = max(self._lr * self._decay, self._least), 0
            self._lr = rate if self._lr - rate > SMALLEST else self._lr


def _exceeds(value: float, best: float, lower: bool) -> bool:
    return value < best * (1 - THRESHOLD) if lower else value > best * (1 + THRESHOLD)
