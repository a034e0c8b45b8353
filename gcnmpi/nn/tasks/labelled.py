"""Tasks whose examples are rows of the output, with labels: vertices, or arcs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcnmpi.layout.loading import Readable
from gcnmpi.nn.tasks.interface import Task
from gcnmpi.options.model import ModelConfig
from gcnmpi.options.task import TaskConfig
from partition.errors import UserError
from partition.graph.graph import ARCS, ONE_OF, UNLABELLED, examples_of
from partition.graph.manifest import Manifest
from partition.graph.store import StoredGraph

AT_ONCE = 1 << 22  # rows that are looked at at once


@dataclass(frozen=True)
class _Labelled:
    """Rows with labels; without a training mask, all that is labelled trains.

    Attributes
    ----------
    labels : (n,) int32, or (n, c) numbers
        Of all vertices or arcs, as the task takes them.
    """

    stored: StoredGraph
    on: str
    labels: Readable

    def has(self, mask: str, among: range | None = None) -> bool:
        """Whether any row of a mask has a label that is known."""
        chosen = examples_of(self.stored.graph, self.on).masks.get(mask)
        if chosen is None and mask != "train":
            return False
        every = range(len(self.labels)) if among is None else among
        for start in range(every.start, every.stop, AT_ONCE):
            here = slice(start, min(start + AT_ONCE, every.stop))
            rows = here if chosen is None else start + np.flatnonzero(chosen[here])
            found = self.labels[rows]
            if np.any(found != UNLABELLED if found.ndim == 1 else ~np.isnan(found)):
                return True
        return False

    def nothing_to_validate(self) -> UserError:
        """The error that no row of the validation mask has a label."""
        option = "arc-val-mask" if self.on == ARCS else "val-mask"
        return UserError(
            f"{self.stored.path} has no labelled {ONE_OF[self.on]} to validate on",
            f"give the graph a validation mask: gcn-partition attach --{option} FILE",
        )


class LabelledTask(Task):
    """A task on labelled rows."""

    @abstractmethod
    def labels(self, stored: StoredGraph, options: Any) -> Readable:
        """The labels of a graph folder as the task takes them; a UserError if it has none."""

    @abstractmethod
    def columns(self, classes: int, targets: int) -> int:
        """Columns of the output, of a graph with so many; 0: it has no labels of the task."""

    def examples(self, stored: StoredGraph, options: Any) -> _Labelled:
        """The rows with labels; a UserError if the graph has none."""
        return _Labelled(stored, options.on, self.labels(stored, options))

    def ends(self, options: Any, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
        """Features of the graph, and columns of its labels."""
        return manifest.inputs, self.columns(*label_columns(options, manifest))


def label_columns(options: TaskConfig, manifest: Manifest) -> tuple[int, int]:
    """Classes and columns of targets that vertices have, or arcs."""
    if options.on == ARCS:
        return manifest.arc_classes, manifest.arc_targets
    return manifest.classes, manifest.targets


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
