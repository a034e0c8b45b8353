"""Dense products, rows, and the arithmetic of losses and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.epilogues import EpilogueOf, Product

A = TypeVar("A")

ENTRY_LOSSES = ("sigmoid", "squared", "absolute", "huber")


@dataclass(frozen=True)
class EntryLoss:
    r"""A loss of each number of the output, z, and its label y.

    Attributes
    ----------
    kind : str
        ``sigmoid``: −w·y·log σ(z) − (1 − y)·log(1 − σ(z)), where w is the weight of the column. Of
        the error r = z − y: ``squared`` r², ``absolute`` \|r\|, ``huber`` r²/2 up to \|r\| = δ and
        δ·(\|r\| − δ/2) beyond (Huber 1964).
    weights : (columns,) array
        Of the columns that a rank has; used by ``sigmoid``.
    delta : float
        Used by ``huber``.
    """

    kind: str
    weights: np.ndarray
    delta: float = 1.0


@dataclass(frozen=True)
class ClassLoss(Generic[A]):
    """The sum over rows of a label ≥ 0 of r[label]·l[label] + Σ s[c]·l[c], l = −log softmax(z).

    Attributes
    ----------
    labels : (rows,) int32
    right, spread : (classes,) arrays of the kernel
        r and s: the weights of classes, and the shares by which labels are smoothed.
    total : float
        Σ s.
    """

    labels: A
    right: A
    spread: A
    total: float


@dataclass(frozen=True)
class AdamStep(Generic[A]):
    """PyTorch's Adam (Kingma and Ba 2015, algorithm 1); ``step`` counts from 1.

    ``param``, ``grad`` and both ``moments`` are (numbers,) arrays.
    """

    param: A
    grad: A
    moments: tuple[A, A]
    lr: float
    betas: tuple[float, ...]
    eps: float
    step: int


class DenseOperations(Protocol[A]):
    """Products of dense matrices, in one pass with an epilogue if possible, and rows of them."""

    def gemm(
        self,
        a: A,
        b: A,
        out: A,
        ta: bool = False,
        tb: bool = False,
        accumulate: bool = False,
    ) -> None:
        """out = op(a) · op(b), where op transposes if ``ta`` / ``tb``; or out += that."""

    def column_sum(self, x: A, out: A) -> None:
        """out = sum of the rows of x, (columns,)."""

    def take_rows(self, x: A, rows: np.ndarray, out: A) -> None:
        """out[i] = x[rows[i]] for every i."""

    def put_rows(self, x: A, rows: np.ndarray, out: A) -> None:
        """out[rows[i]] = x[i]; rows are distinct."""

    def follow(self, x: A, epilogue: EpilogueOf[A] | None) -> None:
        """An epilogue alone: where a scheme does something before it, or nothing was multiplied."""

    def gemm_then(self, of: Product[A]) -> None:
        """A product of the form :class:`~gcnmpi.kernels.epilogues.Product`."""

    def gemm_and_sums(self, a: A, b: A, out: A, sums: A) -> None:
        """out = aᵀ · b, and sums (columns,) = the sums of the columns of b."""


class LossOperations(Protocol[A]):
    """Softmax, one row at a time; sums over all entries are accumulated in float64."""

    def row_max(self, x: A) -> A:
        """Largest entry of each row, (rows, 1); −∞ where there are no columns."""

    def row_argmax(self, x: A) -> A:
        """Column of the largest entry of each row, the lowest one on a tie; 0 without columns."""

    def exp_shifted(self, x: A, shift: A, out: A) -> A:
        """out = exp(x − shift) and the sum of each of its rows, (rows, 1)."""

    def log_sum(self, x: A) -> float:
        """Sum of the logarithms of all entries of (rows, 1)."""

    def total(self, x: A) -> float:
        """Sum of all entries."""

    def pick(self, x: A, columns: np.ndarray, first: int = 0) -> A:
        """x[i, columns[i] − first], (rows, 1); 0 where x has no such column."""

    def softmax_backward(
        self, exponentials: A, sums: A, rows: np.ndarray, columns: np.ndarray, scale: float
    ) -> None:
        """In place: (exponentials / sums − onehot) · scale, with ones at (rows[i], columns[i])."""

    @property
    def softmax_cross_entropy(self) -> Callable[[A, np.ndarray, float, A], Number] | None:
        """Loss of whole rows and its gradient in one pass, where a kernel has it.

        From logits (rows, classes), labels (rows,) int32 and a scale: the sum of
        −log softmax(z)[label] over the rows of a label ≥ 0, and to the fourth argument
        (softmax(z) − onehot(label)) · scale, 0 in other rows.
        """

    @property
    def weighted_cross_entropy(self) -> Callable[[A, ClassLoss[A], float, A], Number] | None:
        """The same with weights of classes and smoothed labels, where a kernel has it.

        From logits, the loss and a scale: the sum, and to the last argument its gradient · scale,
        0 in rows of no label.
        """

    @property
    def entry_losses(self) -> Callable[[A, np.ndarray, EntryLoss, float, A], Number] | None:
        """Losses of single numbers and their derivatives in one pass, where a kernel has it.

        From the output (rows, columns), labels (rows, columns) with NaN where one is unknown, what
        loss it is, and a scale: the sum over those that are known, and to the last argument the
        derivative · scale, 0 where unknown.
        """

    @property
    def count_right(self) -> Callable[[A, np.ndarray, np.ndarray], np.ndarray] | None:
        """Right predictions of whole rows where the logits are, where a kernel counts them there.

        From logits (rows, classes), labels (rows,) int32 and masks (rows,) uint8: for each of 8
        bits, how many rows with that bit have their largest logit, the first one on a tie, in the
        column of their label; float64.
        """


class OptimizerSteps(Protocol[A]):
    """Optimizer steps, on flat arrays; moving averages are in float64 and rounded once."""

    @property
    def shorten(self) -> Callable[[A, float, float], None] | None:
        """Shorten a gradient to a length without a look at it; None: there is no need to.

        Of a gradient (numbers,), the length that it has at most, and what is added to its own, as
        ``torch.nn.utils.clip_grad_norm_`` does.
        """

    def sgd_step(self, param: A, grad: A, velocity: A | None, lr: float, mu: float) -> None:
        """PyTorch's SGD: v = mu·v + g; p −= lr·v."""

    def adam_step(self, of: AdamStep[A]) -> None:
        """Move the parameters and both moments."""
