"""Parameters in one flat array, and the optimizers, with PyTorch's defaults and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from gcnmpi.kernels.interface.dense import AdamStep
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.options.train import OPTIMIZERS, TrainConfig


class Parameters(Mapping[str, Array]):
    """Named weights as views of one flat array, so that a step and a reduction are one each.

    Parameters
    ----------
    kernel : kernel
        Makes the array.
    own, whole : mapping of str to tuple of int
        Name → shape, in the order in which they lie in the array: first what this rank alone (or
        a copy of it) holds, such as its piece of a sharded weight, then what is on every rank.

    Attributes
    ----------
    flat : array
        All of them.
    shared : slice
        Where those lie that every rank holds, and whose gradients are summed over ranks.
    cut : bool
        Whether ranks hold pieces of some, though a piece may be empty: the same on every rank.
    """

    def __init__(
        self,
        kernel: Kernel,
        own: Mapping[str, tuple[int, ...]],
        whole: Mapping[str, tuple[int, ...]],
    ) -> None:
        shapes = {**own, **whole}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        stops = np.cumsum(sizes, dtype=np.int64).tolist()
        self.flat, self.cut = kernel.zeros(sum(sizes)), bool(own)
        self.shared = slice(sum(sizes[: len(own)]), sum(sizes))
        self.slices = {
            name: slice(stop - size, stop)
            for name, size, stop in zip(shapes, sizes, stops, strict=True)
        }
        self._views = {
            name: self.flat[self.slices[name]].reshape(shape) for name, shape in shapes.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class Optimizer(Protocol):
    """Updates parameters from their gradients.

    Attributes
    ----------
    steps : int
        How many it has made.
    """

    steps: int

    def state(self) -> dict[str, Array]:
        """Arrays in the layout of the parameters, by name: with ``steps`` all that it remembers."""

    def step(self, grad: Array, lr: float) -> None:
        """Update the parameters with the gradient of the loss, which is overwritten.

        Parameters
        ----------
        lr : float
            Learning rate of this step.
        """


def make_optimizer(
    kernel: Kernel, parameters: Parameters, penalties: Mapping[str, float], config: TrainConfig
) -> Optimizer:
    """The optimizer that the configuration names.

    Parameters
    ----------
    penalties : mapping of str to float
        Weight decay of each parameter.
    """
    decay = np.zeros(parameters.flat.shape)
    for name, piece in parameters.slices.items():
        decay[piece] = penalties[name]
    penalty = kernel.from_host(decay) if decay.any() else None
    return OPTIMIZERS.get(config.optimizer)(kernel, parameters.flat, penalty, config)


class SGD:
    """v = μ·v + g + λ·p; p −= lr·v, PyTorch's ``torch.optim.SGD``."""

    def __init__(
        self, kernel: Kernel, flat: Array, penalty: Array | None, config: TrainConfig
    ) -> None:
        self._kernel, self._flat, self._penalty, self._config = kernel, flat, penalty, config
        self.velocity = kernel.zeros(len(flat)) if config.momentum else None
        self.steps = 0

    @staticmethod
    def arrays(config: TrainConfig) -> int:
        """How many arrays like the parameters it remembers."""
        return int(config.momentum > 0)

    def state(self) -> dict[str, Array]:
        """The velocity, with momentum."""
        return {} if self.velocity is None else {"velocity": self.velocity}

    def step(self, grad: Array, lr: float) -> None:
        """Add the penalty to the gradient, then step."""
        _decay(grad, self._flat, self._penalty)
        self.steps += 1
        self._kernel.sgd_step(self._flat, grad, self.velocity, lr, self._config.momentum)


class Adam:
    """PyTorch's ``torch.optim.Adam``; weight decay is added to the gradient."""

    def __init__(
        self, kernel: Kernel, flat: Array, penalty: Array | None, config: TrainConfig
    ) -> None:
        self._kernel, self._flat, self._penalty, self._config = kernel, flat, penalty, config
        self.moments = (kernel.zeros(len(flat)), kernel.zeros(len(flat)))
        self.steps = 0

    @staticmethod
    def arrays(config: TrainConfig) -> int:
        """How many arrays like the parameters it remembers."""
        return 2

    def state(self) -> dict[str, Array]:
        """Both moments, as checkpoints keep them."""
        return dict(zip(("first_moment", "second_moment"), self.moments, strict=True))

    def step(self, grad: Array, lr: float) -> None:
        """Add the penalty to the gradient, then step."""
        _decay(grad, self._flat, self._penalty)
        self._update(grad, lr)

    def _update(self, grad: Array, lr: float) -> None:
        self.steps += 1
        config = self._config
        numbers = lr, config.betas, config.eps, self.steps
        self._kernel.adam_step(AdamStep(self._flat, grad, self.moments, *numbers))


class AdamW(Adam):
    """PyTorch's ``torch.optim.AdamW`` (Loshchilov and Hutter 2019): p −= lr·λ·p, then Adam."""

    def step(self, grad: Array, lr: float) -> None:
        """Shrink the weights by their penalty, then step."""
        if self._penalty is not None:
            decay = (self._penalty * self._flat).reshape((1, -1))
            self._kernel.axpy(decay, -lr, self._flat.reshape((1, -1)))
        self._update(grad, lr)


def _decay(grad: Array, flat: Array, penalty: Array | None) -> None:
    if penalty is not None:
        grad += penalty * flat
