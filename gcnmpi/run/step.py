"""Epochs of training: a gradient of each batch, which the task gives, one reduction, an update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import agreed, maximum
from gcnmpi.nn.model import PASSES, Model
from gcnmpi.nn.optim import make_optimizer
from gcnmpi.nn.program import FEATURES
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import LossInputs, task_of
from gcnmpi.options.train import batches_of
from gcnmpi.planner.case import Case
from gcnmpi.run.evaluation import Evaluation, RowEvaluation
from gcnmpi.run.problem import Problem, check_trainable, load_targets, make_model, make_sum
from gcnmpi.schemes.operations import Product
from partition.registry import resolved

# Smaller numbers of a gradient in float64 are rounding errors: beside the square root of the loss,
# which is as small where the unit of targets is, or beside the largest.
_NOISE, _RELATIVE_NOISE = 2.0**-50, 2.0**-40
_AT_ONCE = 1 << 20  # numbers of a gradient that are looked at at once
_NEVER_0 = 1e-6  # added to the length of a gradient that is clipped, as PyTorch does
Interrupt = Callable[[], bool]
Forecast = Callable[[Case, Source], int]


def never() -> bool:
    """Nobody interrupts an epoch."""
    return False


@dataclass(frozen=True)
class BatchLoss:
    """The loss of a batch, whose gradient a model has.

    Attributes
    ----------
    value : number
        This rank's share.
    count, of : float
        The batch counts ``count / of`` in the loss of the epoch. 0: nothing in it trains.
    interrupted : bool or None
        Whether a rank wants the epoch to be interrupted; None: they have not agreed on that yet.
    """

    value: Number
    count: float = 1.0
    of: float = 1.0
    interrupted: bool | None = None


class Work(ABC):
    """The work of a task in an epoch: the gradient of each of its batches.

    Parameters
    ----------
    problem : Problem
    features : array or SparseInput, optional
        H⁰, where it is loaded already.
    kinds : tuple of str
        The passes of the model.

    Attributes
    ----------
    model : Model
        With its initial weights, until the first update.
    batches : int
        Updates of an epoch.
    """

    batches: int = 1

    def __init__(
        self,
        problem: Problem,
        features: Array | SparseInput | None = None,
        kinds: tuple[str, ...] = PASSES,
    ) -> None:
        with agreed(problem.runtime.everyone):
            check_trainable(problem.source.stored, problem.config)
        self._problem = problem
        self.model: Model = make_model(problem, features, kinds)

    @abstractmethod
    def gradient(self, epoch: int, batch: int, interrupt: Interrupt) -> BatchLoss:
        """Write this rank's share of the gradient of a batch into ``model.gradients``."""

    @abstractmethod
    def evaluation(self) -> Evaluation:
        """The metrics of the model."""

    @abstractmethod
    def predicted(self, epochs: int) -> Volume:
        """The volume that this rank hands to MPI in so many epochs."""

    def products(self) -> list[Product] | None:
        """The scheme's products and row operations of an epoch; None: each has other ones."""
        return None

    def counted(self) -> Mapping[str, int]:
        """The numbers that this rank counted of batches, for the record."""
        return {}

    def forecast(self) -> Forecast | None:
        """On rank 0, how the memory of a rank is forecast; None: as that of any such run.

        All ranks call it together.
        """
        return None

    def wait(self) -> None:  # noqa: B027
        """Complete what is under way for the next batch."""


class _RowWork(Work):
    """One batch: all labelled rows at once."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._targets = targets = load_targets(problem, self.model.place)
        model = self.model
        inputs = LossInputs(
            problem.scheme, problem.runtime.kernel, model.place, model.widths[-1], targets,
            problem.config.task,
        )  # fmt: skip
        with agreed(problem.runtime.comm):
            self._loss = task_of(problem.config.task).loss(inputs)
        self._pass: Callable[[int], Number] = self._there_and_back
        if problem.config.gpu.graph == "yes":
            self._pass = problem.runtime.kernel.repeated(self._there_and_back)

    def gradient(self, epoch: int, batch: int, interrupt: Interrupt) -> BatchLoss:
        """With the dropout of the epoch, without weight decay."""
        return BatchLoss(self._pass(epoch), interrupted=False)

    def evaluation(self) -> Evaluation:
        """The metrics of all masks."""
        return RowEvaluation(self._problem, self.model, self._targets)

    def products(self) -> list[Product]:
        """The same in every epoch."""
        return [*self.model.products(backward=True), *self._loss.products()]

    def predicted(self, epochs: int) -> Volume:
        """The volume of the products and row operations of an epoch, so many times."""
        volumes = (self._problem.scheme.volume(*product) for product in self.products())
        return sum(volumes, NOTHING) * epochs

    def _there_and_back(self, epoch: int) -> Number:
        """This rank's share of the loss, and its gradients."""
        model = self.model
        logits = model.forward(epoch)
        with self._problem.runtime.phases("loss"):
            loss = self._loss(logits, model.output_grad)
        model.backward(epoch)
        return loss


def work_of_rows(problem: Problem) -> Work:
    """The work on labelled rows: all at once, or in mini-batches."""
    if batches_of(problem.config.train) is None:
        return _RowWork(problem)
    work: Work = resolved("gcnmpi.run.minibatch:BatchWork")(problem)
    return work


class Step:
    """Epochs of training, with an update for each batch; between two it can be interrupted.

    Attributes
    ----------
    work : Work
        That of the task.
    model, optimizer
        Its model, and what updates the weights of that.
    """

    _next, _loss_so_far = 0, 0.0

    def __init__(self, problem: Problem) -> None:
        train = problem.config.train
        self._problem = problem
        self.work: Work = resolved(task_of(problem.config.task).work)(problem)
        self.model = model = self.work.model
        kernel = problem.runtime.kernel
        self.optimizer = make_optimizer(kernel, model.parameters, model.penalties(), train)
        self._shared = model.gradients.shared
        self._sum = make_sum(problem, self._shared.stop - self._shared.start)

    @property
    def progress(self) -> dict[str, object]:
        """How far an epoch got that was interrupted: its next ``batch``, the ``loss`` so far."""
        if self.work.batches == 1:
            return {}
        return {"batch": self._next, "loss": self._loss_so_far}

    def go_on(self, progress: Mapping[str, Any]) -> None:
        """Continue, in the next call, where an interrupted epoch got to."""
        self._next = int(progress.get("batch", 0))
        self._loss_so_far = float(progress.get("loss", 0.0))

    def __call__(
        self, epoch: int, lr: float | None = None, interrupt: Interrupt = never
    ) -> float | None:
        """Run an epoch and return its loss, equal on every rank.

        Without a learning rate, it is ``train.lr``. With each batch ``interrupt`` is asked: once
        it is true on one rank, the epoch is interrupted after the batch on all, and None returned;
        the next call continues it.
        """
        problem = self._problem
        lr = problem.config.train.lr if lr is None else lr
        measured = epoch in (1, problem.config.train.epochs)
        during = problem.runtime.traffic.during("train", epoch, measured)
        with during, problem.runtime.phases("other"):
            while self._next < self.work.batches:
                interrupted = self._update(epoch, lr, interrupt)
                self._next += 1
                if interrupted and self._next < self.work.batches:
                    self.work.wait()  # the epoch may go on in this run
                    return None
            loss, self._next, self._loss_so_far = self._loss_so_far, 0, 0.0
            return loss

    def gradient(self, epoch: int, batch: int = 0) -> tuple[Number, Array]:
        """Loss and flat gradient at the model's weights, with the dropout of an epoch.

        Returns
        -------
        loss : number
        gradient : array
            ``model.gradients.flat``, summed over ranks, without weight decay; overwritten by the
            next call.
        """
        found, flat = self.work.gradient(epoch, batch, never), self.model.gradients.flat
        return self._sum(found.value, flat[self._shared]), flat

    def _update(self, epoch: int, lr: float, interrupt: Interrupt) -> bool:
        """Update the weights by the next batch; whether a rank interrupts the epoch."""
        found, flat = self.work.gradient(epoch, self._next, interrupt), self.model.gradients.flat
        if found.count:
            loss = self._sum(found.value, flat[self._shared])
            with self._problem.runtime.phases("update"):
                self.drop_noise(flat, loss)
                self._clip(flat)
                self.optimizer.step(flat, lr)
                self._problem.runtime.kernel.finish()
            # A device is waited for once, here.
            self._loss_so_far += float(loss) * found.count / found.of
        if found.interrupted is None:
            several = self.work.batches > 1
            return several and maximum(self._problem.runtime.everyone, interrupt()) > 0
        return found.interrupted

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
