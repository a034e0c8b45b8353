"""A task gives to training the labels it takes, and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Place
from gcnmpi.options.task import TaskConfig
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import Product
from partition.errors import UserError
from partition.graph.graph import ARCS
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class Targets:
    """Labels and masks of this rank's rows of the output: vertices, or entries of M for arcs.

    Attributes
    ----------
    labels : (rows,) int32, or (rows, columns) floating-point numbers
        Class of each row, −1 where it has none; or numbers, NaN where unknown, in the columns of
        the output that this rank has.
    masks : mapping of "train" / "val" / "test" to (rows,) bool
    counts : mapping of the same names to numbers
        How many labels all ranks have in a mask: rows, or numbers that are known. Of a batch
        that is a sample of vertices, how many it has in expectation.
    """

    labels: np.ndarray
    masks: Mapping[str, np.ndarray]
    counts: Mapping[str, float]


class Loss(Protocol):
    """The loss of the training rows, and its gradient."""

    def products(self) -> list[Product]:
        """The scheme's row operations of one call, for the prediction of their volume."""

    def __call__(self, logits: Array, grad: Array) -> Number:
        """This rank's share of the loss; its gradient goes to ``grad``, zero in other rows.

        Parameters
        ----------
        logits, grad : (rows, columns) arrays
            The columns of the output that this rank has; both may be the same memory.
        """


Options = TypeVar("Options", bound=TaskConfig)


@dataclass(frozen=True)
class Made(Generic[Options]):
    """The parts that a loss is made of.

    Attributes
    ----------
    place : Place
        Where the output is.
    width : int
        Columns of the output.
    options : TaskConfig
        Of the class of the task.
    """

    scheme: Scheme
    kernel: Kernel
    place: Place
    width: int
    targets: Targets
    options: Options


@dataclass(frozen=True)
class Task:
    """A task, as the table of tasks points to it.

    Attributes
    ----------
    labels : callable
        ``labels(stored, options)``: the labels of a graph folder as the task takes them, (n,) int32
        or (n, c) numbers, of all vertices or arcs. A UserError if it has none.
    loss : callable
        ``loss(made)``, by all ranks together, of which all raise a UserError, or none.
    products : callable
        ``products(options, k, rows)``: the scheme's row operations of a loss on so many training
        vertices of a rank.
    on_device : bool
        Whether the loss is computed where the output is, if rows are whole there and the kernel has
        an operation for it.
    probabilities : callable, or None
        ``probabilities(scheme, kernel, k, logits)``: what the output of layer k says of each class
        or label, on the host; it may overwrite the logits. None: the output is no logits.
    """

    labels: Callable[[StoredGraph, Any], Readable]
    loss: Callable[[Made[Any]], Loss]
    products: Callable[[Any, int, int], list[Product]] = lambda options, k, rows: []
    on_device: bool = False
    probabilities: Callable[[Scheme, Kernel, int, Array], np.ndarray] | None = None


def without(stored: StoredGraph, options: TaskConfig, what: str, hint: str) -> UserError:
    """The error that a graph folder has no labels or targets; the hint is that for vertices."""
    if options.on != ARCS:
        return UserError(f"{stored.path} has no {what}", hint)
    manifest = stored.manifest
    hint = f"gcn-partition attach {stored.path} --arc-labels FILE.npy"
    if manifest.arc_targets:
        hint = "its arcs have numbers: --set task.name=regression"
    elif manifest.arc_classes:
        hint = "its arcs have classes: --set task.name=classes"
    return UserError(f"{stored.path} has no {what} of arcs", hint)
