"""One epoch of training: forward, backward, one reduction, update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.mpi.comm import agreed, maximum
from gcnmpi.nn.model import PASSES
from gcnmpi.nn.optim import make_optimizer
from gcnmpi.nn.program import FEATURES
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Loss, Made, Targets
from gcnmpi.run.problem import (
    Problem,
    check_trainable,
    load_targets,
    make_model,
    make_sum,
    task_of,
)
from gcnmpi.schemes.operations import Product

# Smaller numbers of a gradient in float64 are rounding errors: beside the square root of the loss,
# which is as small where the unit of targets is, or beside the largest.
_NOISE, _RELATIVE_NOISE = 2.0**-50, 2.0**-40
_AT_ONCE = 1 << 20  # numbers of a gradient that are looked at at once
_NEVER_0 = 1e-6  # added to the length of a gradient that is clipped, as PyTorch does


class BaseStep(ABC):
    """One epoch of training, on all vertices at once or on batches of them.

    Parameters
    ----------
    problem : Problem
    features : array or SparseInput, optional
        H⁰, where it is loaded already.
    kinds : tuple of str
        The passes of the model.

    Attributes
    ----------
    model : model
        With its initial weights, until the first call.
    targets : Targets
    optimizer : optimizer
    """

    def __init__(
        self,
        problem: Problem,
        features: Array | SparseInput | None = None,
        kinds: tuple[str, ...] = PASSES,
    ) -> None:
        kernel, train = problem.runtime.kernel, problem.config.train
        with agreed(problem.runtime.everyone):
            check_trainable(problem.source.stored, problem.config)
        self._problem = problem
        self.model = model = make_model(problem, features, kinds)
        self.targets = self._load_targets()
        self.optimizer = make_optimizer(kernel, model.parameters, model.penalties(), train)
        shared = model.gradients.shared
        self._sum = make_sum(problem, shared.stop - shared.start)

    def _load_targets(self) -> Targets:
        """Labels and masks of the rows of the output."""
        return load_targets(self._problem, self.model.place)

    @abstractmethod
    def predicted(self, epochs: int) -> Volume:
        """The volume that this rank hands to MPI in so many epochs."""

    def counted(self) -> dict[str, int]:
        """The numbers that this rank counted of batches, for the record."""
        return {}

    @property
    def progress(self) -> dict[str, object]:
        """How far an epoch got that was interrupted: its next ``batch``, the ``loss`` so far."""
        return {}

    def go_on(self, progress: Mapping[str, object]) -> None:  # noqa: B027
        """Continue, in the next call, where an interrupted epoch got to."""

    def __call__(
        self, epoch: int, lr: float | None = None, interrupt: Callable[[], bool] = lambda: False
    ) -> float | None:
        """Run an epoch and return its loss, equal on every rank.

        Without a learning rate, it is ``train.lr``. Before each batch ``interrupt`` is asked: once
        it is true on one rank, the epoch is interrupted after the batch on all, and None returned;
        the next call continues it.
        """
        problem = self._problem
        lr = problem.config.train.lr if lr is None else lr
        measured = epoch in (1, problem.config.train.epochs)
        during = problem.runtime.traffic.during("train", epoch, measured)
        with during, problem.runtime.phases("other"):
            return self._run(epoch, lr, interrupt)

    @abstractmethod
    def _run(self, epoch: int, lr: float, interrupt: Callable[[], bool]) -> float | None:
        """Compute an epoch, and update the weights."""

    def _update(self, gradient: Array, lr: float, loss: Number) -> None:
        with self._problem.runtime.phases("update"):
            self.drop_noise(gradient, loss)
            self._clip(gradient)
            self.optimizer.step(gradient, lr)
            self._problem.runtime.kernel.finish()

    def drop_noise(self, gradient: Array, loss: Number) -> None:
        """Set numbers to 0 that are rounding errors.

        Many gradients are 0 in exact arithmetic: of keys' biases in front of a softmax, of scores
        of a single neighbour, of sums that cancel. Each number of ranks rounds them otherwise, and
        Adam, a norm or an activation with a kink at 0 makes them large. In float32 curves part by
        more than that anyway.
        """
        if gradient.dtype != np.float64 or not len(gradient):
            return
        kernel, everyone = self._problem.runtime.kernel, self._problem.runtime.everyone
        pieces = [gradient[at : at + _AT_ONCE] for at in range(0, len(gradient), _AT_ONCE)]
        most = kernel.empty(1, len(pieces))
        for number, piece in enumerate(pieces):
            most[:, number : number + 1] = kernel.row_max((piece * piece).reshape(1, -1))
        largest = kernel.row_max(most)
        if self.model.gradients.cut and everyone.size > 1:
            largest.fill(maximum(everyone, float(kernel.to_host(largest)[0, 0])))
        beside = largest[0] * -(_RELATIVE_NOISE**2)
        # A loss that a device still computes is not waited for: it counts as 1, or more.
        scale = min(1.0, max(0.0, loss)) if isinstance(loss, float) else 1.0
        for piece in pieces:
            squares = piece * piece
            small = squares < scale * _NOISE**2
            piece *= (1.0 - small) * (1.0 - (squares + beside < 0))

    def _clip(self, gradient: Array) -> None:
        """Shorten the gradient to ``train.clip_norm``: ``torch.nn.utils.clip_grad_norm_``."""
        longest, kernel = self._problem.config.train.clip_norm, self._problem.runtime.kernel
        if not longest:
            return
        on_one_rank = self._problem.runtime.everyone.size == 1 or not self.model.gradients.cut
        if kernel.shorten is not None and on_one_rank:
            kernel.shorten(gradient, longest, _NEVER_0)
            return
        length = self._length(gradient)
        if length + _NEVER_0 > longest:
            row = gradient.reshape((1, -1))
            kernel.scale(row, longest / (length + _NEVER_0), row)

    def _length(self, gradient: Array) -> float:
        """Of the gradient of all weights: what every rank has whole, and what each has a piece of.

        Only the latter have to be summed over ranks.
        """
        problem, gradients = self._problem, self.model.gradients

        def square(piece: Array) -> float:
            row = piece.reshape((1, -1))
            return problem.runtime.kernel.dot(row, row)

        squares = square(gradient[gradients.shared])
        if gradients.cut:
            pieces = np.zeros(1)
            for name, piece in gradients.slices.items():
                if piece.stop <= gradients.shared.start and self._counts(name):
                    pieces += square(gradient[piece])
            problem.scheme.reduce(pieces)
            squares += float(pieces[0])
        return float(np.sqrt(squares))

    def _counts(self, name: str) -> bool:
        """Whether this rank's piece of a parameter is not another one's copy."""
        if name != FEATURES:
            return True  # pieces of weights are on one rank each
        return self._problem.scheme.input_block(self.model.widths[0]).counts_entries


class BatchedStep(BaseStep):
    """An epoch of an update for each batch; between two it can be interrupted."""

    _next, _loss_so_far = 0, 0.0

    @property
    @abstractmethod
    def batches(self) -> int:
        """Batches of an epoch."""

    @abstractmethod
    def _batch(
        self, epoch: int, batch: int, lr: float, interrupt: Callable[[], bool]
    ) -> tuple[float, bool]:
        """One update: its share in the loss of the epoch, and whether a rank is interrupted."""

    def _wait(self) -> None:
        """Complete what is under way for the next batch."""

    @property
    def progress(self) -> dict[str, object]:
        """How far an interrupted epoch got."""
        return {"batch": self._next, "loss": self._loss_so_far}

    def go_on(self, progress: Mapping[str, Any]) -> None:
        """Continue an interrupted epoch."""
        self._next = int(progress.get("batch", 0))
        self._loss_so_far = float(progress.get("loss", 0.0))

    def _run(self, epoch: int, lr: float, interrupt: Callable[[], bool]) -> float | None:
        while self._next < self.batches:
            loss, interrupted = self._batch(epoch, self._next, lr, interrupt)
            self._loss_so_far += loss
            self._next += 1
            if interrupted and self._next < self.batches:
                self._wait()  # the epoch may go on in this run
                return None
        loss, self._next, self._loss_so_far = self._loss_so_far, 0, 0.0
        return loss


class Step(BaseStep):
    """One epoch on all vertices at once."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._loss = self._make_loss()
        self._pass: Callable[[int], Number] = self._there_and_back
        if problem.config.gpu.graph == "yes":
            self._pass = problem.runtime.kernel.repeated(self._there_and_back)

    def products(self) -> list[Product]:
        """The scheme's products and row operations of an epoch."""
        return [*self.model.products(backward=True), *self._loss.products()]

    def predicted(self, epochs: int) -> Volume:
        """The volume of the products and row operations of an epoch, so many times."""
        volumes = (self._problem.scheme.volume(*product) for product in self.products())
        return sum(volumes, NOTHING) * epochs

    def _run(self, epoch: int, lr: float, interrupt: Callable[[], bool]) -> float:
        loss, gradient = self.gradient(epoch)
        self._update(gradient, lr, loss)
        return float(loss)

    def gradient(self, epoch: int) -> tuple[Number, Array]:
        """Loss and flat gradient at the model's weights, with the dropout of an epoch.

        Returns
        -------
        loss : number
        gradient : array
            ``model.gradients.flat``, summed over ranks, without weight decay; overwritten by the
            next call.
        """
        model, flat = self.model, self.model.gradients.flat
        loss = self._pass(epoch)
        return self._sum(loss, flat[model.gradients.shared]), flat

    def _there_and_back(self, epoch: int) -> Number:
        """This rank's share of the loss, and its gradients."""
        model = self.model
        logits = model.forward(epoch)
        with self._problem.runtime.phases("loss"):
            loss = self._loss(logits, model.output_grad)
        model.backward(epoch)
        return loss

    def _make_loss(self) -> Loss:
        problem, model = self._problem, self.model
        made = Made(
            problem.scheme, problem.runtime.kernel, model.place, model.widths[-1],
            self.targets, problem.config.task,
        )  # fmt: skip
        with agreed(problem.runtime.comm):
            return task_of(problem.config).loss(made)
