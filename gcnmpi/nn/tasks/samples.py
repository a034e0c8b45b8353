"""Frames that follow others, of many samples on one graph: the losses of regression."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gcnmpi.layout.loading import Readable
from gcnmpi.nn.tasks import regression
from gcnmpi.options.task import SampleOptions, samples_of_step
from partition.errors import UserError
from partition.graph.samples import SampleSet, read_samples
from partition.graph.store import StoredGraph


def _labels(stored: StoredGraph, options: SampleOptions) -> Readable:
    """No labels of vertices; a UserError unless the folder has the samples, and some to train on.

    A sample needs its history and all that is predicted within one range of steps.
    """
    samples = stored.samples or read_samples(stored.path, options.samples)
    found = count_of(samples, options, "train")
    if found < (wanted := samples_of_step(options)):
        raise UserError(
            f"the samples {samples.name!r} of {stored.path} have {found} to train on, and a step "
            f"takes {wanted}",
            f"set task.batch = {found}, or less" if found else long_enough(samples, options),
        )
    return np.zeros(stored.manifest.n, np.int32)


def count_of(samples: SampleSet, options: SampleOptions, mask: str) -> int:
    """How many samples there are of a mask."""
    return len(samples.anchors(mask, options.history, _ahead(samples, options)))


def long_enough(samples: SampleSet, options: SampleOptions) -> str:
    """A hint where ranges of steps are too short for a sample."""
    steps = options.history + _ahead(samples, options)
    return f"a range of steps is as long as task.history and what is predicted, {steps}, or longer"


def _ahead(samples: SampleSet, options: SampleOptions) -> int:
    return 0 if samples.target_columns else options.horizon * options.rollout


TASK = replace(regression.TASK, labels=_labels)
