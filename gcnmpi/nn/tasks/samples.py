"""Frames that follow others, of many samples on one graph: the losses of regression."""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.layout.loading import Readable
from gcnmpi.nn.tasks import regression
from gcnmpi.options.task import SampleOptions
from partition.errors import UserError
from partition.graph.store import StoredGraph


def _labels(stored: StoredGraph, options: SampleOptions) -> Readable:
    raise UserError(
        f"{stored.path} has no samples, which task.name = samples learns from",
        "--set task.name=regression learns one set of targets",
    )


TASK = replace(regression.TASK, labels=_labels)
