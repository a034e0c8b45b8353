"""Frames that follow others, of many samples on one graph: the losses of regression."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.nn.program import Program
from gcnmpi.nn.tasks.interface import OF_EXAMPLES, Loss, LossInputs, Steps, Task
from gcnmpi.nn.tasks.regression import mean_error
from gcnmpi.options.config import Config
from gcnmpi.options.frames import ROLLOUT, Frames, frames_in, frames_of
from gcnmpi.options.model import ModelConfig
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.task import SampleOptions, check_task, samples_of_step
from gcnmpi.options.train import batches_of
from gcnmpi.schemes.interface import Entry
from partition.errors import UserError
from partition.graph.manifest import Manifest
from partition.graph.samples import SampleSet, list_samples, read_samples
from partition.graph.store import StoredGraph

MEAN, DEVIATION = f"{OF_EXAMPLES}mean", f"{OF_EXAMPLES}deviation"  # in a file of weights


@dataclass(frozen=True)
class Scales:
    """Of each column of states and of targets, (columns,) float64, over the training steps."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, samples: SampleSet) -> Scales:
        """The scales of a set."""
        return cls(*samples.scales())

    @classmethod
    def within(cls, arrays: Mapping[str, np.ndarray]) -> Scales | None:
        """The scales among the arrays of a file of weights; None: it has none."""
        return cls(arrays[MEAN], arrays[DEVIATION]) if MEAN in arrays else None

    @property
    def plain(self) -> Scales:
        """Scales that change nothing."""
        return Scales(np.zeros_like(self.mean), np.ones_like(self.deviation))


@dataclass(frozen=True)
class Samples:
    """The samples that a task learns: each has its history and all that is predicted in a range."""

    path: object
    samples: SampleSet
    history: int
    ahead: int  # frames that are predicted

    def count(self, mask: str) -> int:
        """How many samples there are of a mask."""
        return len(self.samples.anchors(mask, self.history, self.ahead))

    def has(self, mask: str, among: range | None = None) -> bool:
        """Whether there are samples of a mask; each is of all vertices."""
        return self.count(mask) > 0

    def nothing_to_validate(self) -> UserError:
        """The error that there are no samples to validate on."""
        return UserError(
            f"the samples {self.samples.name!r} of {self.path} have none to validate on",
            self.long_enough,
        )

    @property
    def long_enough(self) -> str:
        """A hint where ranges of steps are too short for a sample."""
        return (
            "a range of steps is as long as task.history and what is predicted, "
            f"{self.history + self.ahead}, or longer"
        )


def samples_of(stored: StoredGraph, options: SampleOptions) -> Samples:
    """The samples that a task names, as long as it says."""
    samples = stored.samples or read_samples(stored.path, options.samples)
    ahead = 0 if samples.target_columns else options.horizon * options.rollout
    return Samples(stored.path, samples, options.history, ahead)


class SampleTask(Task):
    """Frames of many samples: each step has features of its own."""

    work = "gcnmpi.run.samples.step:SampleWork"
    forecast = "gcnmpi.planner.samples:SampleEpochs"
    serial = "gcnmpi.proof.samples:of_samples"
    on_device = True

    def examples(self, stored: StoredGraph, options: SampleOptions) -> Samples:
        """The samples that are named; a UserError if there are too few for a step."""
        found = samples_of(stored, options)
        if (count := found.count("train")) < (wanted := samples_of_step(options)):
            raise UserError(
                f"the samples {found.samples.name!r} of {stored.path} have {count} to train on, "
                f"and a step takes {wanted}",
                f"set task.batch = {count}, or less" if count else found.long_enough,
            )
        return found

    def ends(self, options: Any, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
        """Columns of frames, beside the features of the graph."""
        frames = frames_of(options, manifest.inputs, options.columns or 1)
        return frames.features, frames.outputs

    def read(self, stored: StoredGraph, options: SampleOptions) -> StoredGraph:
        """The folder with the samples."""
        return replace(stored, samples=read_samples(stored.path, options.samples))

    def planned(self, stored: StoredGraph, options: SampleOptions) -> StoredGraph:
        """The same, unless they are not there yet and the columns of frames are configured."""
        missing = options.samples not in list_samples(stored.path)
        if stored.samples is not None or (missing and options.columns):
            return stored
        return self.read(stored, options)

    def resolve(self, config: Config, stored: StoredGraph) -> Config:
        """Columns of frames are those of the samples."""
        task: Any = config.task
        samples = stored.samples
        if samples is None:
            return config
        columns = {"columns": samples.columns, "targets": samples.target_columns}
        for name, found in columns.items():
            if (wanted := getattr(task, name)) not in (0, found):
                raise UserError(
                    f"task.{name} = {wanted}: the samples {samples.name!r} have {found}",
                    "leave it out",
                )
        resolved = replace(task, **columns)
        check_task(resolved)
        return replace(config, task=resolved)

    def for_weights(
        self, config: Config, stored: StoredGraph, given: Container[str], facts: Mapping[str, Any]
    ) -> tuple[Config, int]:
        """The samples that were trained on, and one for each group, unless the user gave others.

        Features are those of as many applications of the network as in training.
        """
        task: Any = config.task
        if "task.samples" not in given:
            task = replace(task, samples=facts["samples"] or task.samples)
        if "task.batch" not in given:
            task = replace(task, batch=config.train.groups)
        config = replace(config, task=task)
        trained = replace(config, task=replace(task, rollout=facts[ROLLOUT]))
        trained = self.resolve(trained, self.read(stored, task))
        return config, self.ends(trained.task, config.model, stored.manifest)[0]

    def arrays(self, stored: StoredGraph) -> Mapping[str, np.ndarray]:
        """The scales of the columns of the samples."""
        assert stored.samples is not None
        found = Scales.of(stored.samples)
        return {MEAN: found.mean, DEVIATION: found.deviation}

    def frames(self, options: SampleOptions, features: int) -> Frames | None:
        """The frames of a sample, if their columns are resolved."""
        return frames_in(options, features) if options.columns else None

    def steps(self, options: Any) -> Steps:
        """Each step has samples of its own; logits are read several times."""
        return Steps(samples=samples_of_step(options), over_logits=False)

    def loss(self, inputs: LossInputs[Any]) -> Loss:
        """The mean error of numbers that are known."""
        return mean_error(inputs)

    def check(self, config: Config, entry: Entry, program: Program) -> None:
        """Rows of several samples are beside each other, and groups of ranks share the samples."""
        if not entry.gives_rows:
            able = [name for name in SCHEMES if SCHEMES.get(name).gives_rows]
            raise UserError(
                f"task.name = samples: scheme {config.scheme.name!r} cuts the rows of samples",
                f"use scheme.name = {', '.join(able[:-1])} or {able[-1]}",
            )
        of_step = self.steps(config.task).samples
        if of_step % config.train.groups:
            raise UserError(
                f"train.groups = {config.train.groups} does not divide the {of_step} samples of a "
                "step",
                f"set task.batch to a multiple of {config.train.groups}",
            )
        if batches_of(config.train) is not None:
            raise UserError(
                "train.batches: a step of task.name = samples takes all vertices",
                "leave train.batches out; task.batch is the number of samples of a step",
            )
        if config.model.train_features:
            raise UserError(
                "model.train_features: the features of samples are their frames",
                "leave it out",
            )


TASK = SampleTask()
