"""The interface of a task: its examples, widths, steps, loss, and where the rest of it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import Program
from gcnmpi.options.config import Config
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import ModelConfig
from gcnmpi.options.task import TASKS, TaskConfig
from gcnmpi.options.train import batches_of
from gcnmpi.schemes.interface import Entry, Scheme
from gcnmpi.schemes.operations import Product
from partition.errors import UserError
from partition.graph import graph as graphs
from partition.graph.manifest import Manifest
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
OF_EXAMPLES = "samples."


@dataclass(frozen=True)
class LossInputs(Generic[Options]):
    """The output and targets that a loss is computed from.

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


class Examples(Protocol):
    """The examples of a graph folder: labelled rows, pairs, samples."""

    def has(self, mask: str, among: range | None = None) -> bool:
        """Whether there are examples of a mask, of vertices ``among`` these."""

    def nothing_to_validate(self) -> UserError:
        """The error that nothing can be decided by a validation metric."""


@dataclass(frozen=True)
class Steps:
    """The values that change from one step of a task to the next.

    Attributes
    ----------
    matrix : bool
        Whether M does: arcs leave it.
    samples : int
        Samples of a step, on all groups of ranks, each of which has features of its own; 0: the
        features are those of the graph.
    over_logits : bool
        Whether a loss may be written over the logits: nobody else reads them.
    """

    matrix: bool = False
    samples: int = 0
    over_logits: bool = True


class Task(ABC):
    """The interface of a task: nothing else looks at its name, or the class of its options.

    An entry of the table of tasks is an object of a subclass. A "module:attribute" is imported when
    it is asked for, so that a run imports its own task only.

    Attributes
    ----------
    work : str
        ``work(problem)``: the :class:`~gcnmpi.run.step.Work` of its steps.
    forecast : str
        ``forecast(setting)``: an epoch on paper, :class:`~gcnmpi.planner.ranking.Epochs`.
    of_weights : str
        ``of_weights(computed)``: metrics of given weights, and warnings.
    serial : str
        ``serial(source, config)``: its serial twin, :class:`~gcnmpi.proof.oracle.Serial`.
    scores_pairs : bool
        Whether its output gives scores of pairs.
    on_device : bool
        Whether the loss is computed where the output is, if rows are whole there and the kernel has
        an operation for it.
    probabilities : callable, or None
        ``probabilities(scheme, kernel, k, logits)``: what the output of layer k says of each class
        or label, on the host; it may overwrite the logits. None: the output is no logits.
    """

    work = "gcnmpi.run.step:work_of_rows"
    forecast = "gcnmpi.planner.ranking:Epochs"
    of_weights = "gcnmpi.run.evaluation:of_weights"
    serial = "gcnmpi.proof.oracle:of_rows"
    scores_pairs = False
    on_device = False
    probabilities: Callable[[Scheme, Kernel, int, Array], np.ndarray] | None = None

    @abstractmethod
    def examples(self, stored: StoredGraph, options: Any) -> Examples:
        """The examples of a graph folder; a UserError if there are none to train on."""

    @abstractmethod
    def ends(self, options: Any, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
        """Widths of features and output; 0 where the graph lacks them."""

    def read(self, stored: StoredGraph, options: Any) -> StoredGraph:
        """A folder with what the task reads of it besides; a UserError if it is not there."""
        return stored

    def planned(self, stored: StoredGraph, options: Any) -> StoredGraph:
        """The same for a forecast, which may do without."""
        return stored

    def resolve(self, config: Config, stored: StoredGraph) -> Config:
        """The configuration with what the folder says; a UserError if it contradicts it."""
        return config

    def for_weights(
        self, config: Config, stored: StoredGraph, given: Container[str], facts: Mapping[str, Any]
    ) -> tuple[Config, int]:
        """The configuration of an inference, and the features that the graph has for the weights.

        ``given`` are the keys that the user gave, ``facts`` those of the file of weights. A
        UserError if the folder lacks what they need.
        """
        return config, stored.manifest.inputs

    def arrays(self, stored: StoredGraph) -> Mapping[str, np.ndarray]:
        """Arrays of the examples for a file of weights, under names that begin with OF_EXAMPLES."""
        return {}

    def relation_names(self, stored: StoredGraph, options: Any) -> tuple[str, ...]:
        """The names of the relations of pairs that weights have rows of; empty: numbers."""
        return ()

    def of_classes(self, options: Any, manifest: Manifest) -> bool:
        """Whether the columns of the output are classes of the graph."""
        return False

    def frames(self, options: Any, features: int) -> Frames | None:
        """How features and outputs go over time; None: they do not."""
        return None

    def network(self, network: Network, options: Any) -> Network:
        """A network with what the task puts behind it."""
        return network

    def steps(self, options: Any) -> Steps:
        """The values that change from step to step."""
        return Steps()

    def check(self, config: Config, entry: Entry, program: Program) -> None:
        """A UserError if the task does not go with what is configured."""
        check_groups(config)

    def check_batches(self, options: Any) -> None:  # noqa: B027
        """Raise a UserError if a loss needs all training vertices at once."""

    def loss(self, inputs: LossInputs[Any]) -> Loss:
        """The loss of rows of the output; all ranks together raise a UserError, or none does.

        For tasks whose work is on rows; the work of others has a loss of its own.
        """
        raise NotImplementedError

    def products(self, options: Any, k: int, rows: int) -> list[Product]:
        """The scheme's row operations of a loss on so many training vertices of a rank."""
        return []

    def learned(self, examples: graphs.Examples) -> tuple[float, int]:
        """The share of rows that train, and bytes of a number to be learned; 0: one class a row."""
        trained = graphs.training_rows(examples)
        targets = examples.targets
        share = 1.0 if trained is None else float(np.mean(trained))
        return share, 4 if targets is None else targets.dtype.itemsize


def task_of(options: TaskConfig) -> Task:
    """The task that is configured."""
    found: Task = TASKS.get(options.name)
    return found


def check_groups(config: Config) -> None:
    """A UserError if groups of ranks have no mini-batches to divide among them."""
    train = config.train
    if train.groups > 1 and batches_of(train) is None:
        raise UserError(
            f"train.groups: task.name = {config.task.name} without mini-batches has no samples to "
            "divide among groups",
            "leave it out, or set train.batches and train.step_batches, or task.name=samples",
        )
    if train.step_batches % train.groups:
        raise UserError(
            f"train.groups = {train.groups} does not divide the {train.step_batches} mini-batches "
            "of a step",
            f"set train.step_batches to a multiple of {train.groups}",
        )
    norm = getattr(config.model, "norm", "none")
    if train.step_batches > 1 and norm == "batch":
        raise UserError(
            "train.step_batches: a batch norm would have moments of each mini-batch of a step",
            "use model.norm=layer, or leave train.step_batches out",
        )
