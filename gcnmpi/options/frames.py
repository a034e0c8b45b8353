"""The columns of features and outputs of networks that go over time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gcnmpi.options.model import ModelConfig
from gcnmpi.options.task import TASKS, SampleOptions, TaskConfig
from partition.errors import UserError
from partition.graph.manifest import Manifest

OF_FRAMES = (
    "history", "horizon", "rollout", "difference", "predicted", "columns", "targets", "standardize",
)  # fmt: skip
"""Keys of samples that a network, or the meaning of its numbers, depends on."""

ROLLOUT = "task.rollout"
"""The one that its weights do not depend on."""


@dataclass(frozen=True)
class Frames:
    """The rows of a sample at time t, and those that a network gives for them.

    A frame has the numbers of all vertices at one time. The features are, in this order::

        static | frame t − history + 1 | … | frame t | given t + 1 | … | given t + rollout − 1

    and the outputs what is predicted of the frames t + 1, t + 2 …

    Attributes
    ----------
    static : int
        Columns that are the same at all times.
    columns : int
        Columns of a frame.
    predicted : int
        How many of them, the first ones, are predicted; the others are given at all times. Or how
        many targets of their own are.
    history : int
        Frames that the network reads.
    horizon : int
        Frames that it predicts at once.
    rollout : int
        How often it is applied, each time to what it predicted before.
    difference : bool
        Whether it gives the change of what is predicted, from frame t on.
    rollout_gradient : str
        "all", or "last": predicted frames that it is applied to count as given.
    """

    static: int
    columns: int
    predicted: int
    history: int = 1
    horizon: int = 1
    rollout: int = 1
    difference: bool = False
    rollout_gradient: str = "all"

    @property
    def given(self) -> int:
        """Columns of a frame that are not predicted."""
        return self.columns - self.predicted

    @property
    def features(self) -> int:
        """Columns of H⁰, static ones, frames and what is given."""
        return self.static + self.history * self.columns + (self.rollout - 1) * self.given

    @property
    def outputs(self) -> int:
        """Columns of the output."""
        return self.leads * self.predicted

    @property
    def leads(self) -> int:
        """Frames that are predicted in all."""
        return self.horizon * self.rollout

    @property
    def step(self) -> Frames:
        """The frames of one application of the network."""
        return replace(self, rollout=1)


def frames_of(task: SampleOptions, static: int, columns: int) -> Frames:
    """The frames of a graph's samples, with so many static columns and columns of a frame.

    A UserError if a frame has fewer columns than are to be predicted.

    >>> frames_of(SampleOptions(name="samples", history=3, predicted=2), 1, 5).features
    16
    """
    if task.predicted > columns:
        raise UserError(
            f"task.predicted = {task.predicted}, and a frame has {columns} columns",
            "0 predicts all of them",
        )
    predicted = task.targets or task.predicted or columns
    return Frames(
        static, columns, predicted, task.history, task.horizon, task.rollout,
        task.difference, task.rollout_gradient,
    )  # fmt: skip


def frames_in(task: SampleOptions, features: int) -> Frames:
    """The same, of a configuration whose columns of frames are resolved, by the width of H⁰."""
    alone = frames_of(task, 0, task.columns)
    return replace(alone, static=features - alone.features)


def ends(task: TaskConfig, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
    """Widths of features and outputs; the least where the graph has none, if nothing needs them."""
    features, outputs = TASKS.get(task.name).ends(task, model, manifest)
    return features or 1, outputs or model.fewest_outputs
