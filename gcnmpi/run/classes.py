"""Classes of weights and of a graph, which may call them otherwise: they are matched by names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.task import TaskConfig
from partition.errors import UserError
from partition.graph.graph import ARCS, ONE_OF, UNLABELLED, examples_of
from partition.graph.manifest import Manifest
from partition.graph.store import StoredGraph

AT_ONCE = 1 << 20  # labels that are looked at at once
SHOWN = 10  # names in a message


def class_names(manifest: Manifest, task: TaskConfig) -> tuple[str, ...]:
    """The names of the classes that a graph has for a task; empty where it has none."""
    if not task_of(task).of_classes(task, manifest):
        return ()
    of_arcs = task.on == ARCS
    names = manifest.arc_class_names if of_arcs else manifest.class_names
    count = manifest.arc_classes if of_arcs else manifest.classes
    return names or tuple(map(str, range(count)))


@dataclass(frozen=True)
class Classes:
    """The classes that weights know, and those of a graph; both are empty where there are none.

    ``known`` of weights that do not name their classes are those of the graph, if there are as
    many.
    """

    known: tuple[str, ...]
    there: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both are the same, in any order."""
        return len(self.known) == len(self.there) and set(self.known) == set(self.there)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of results: that of the graph where it has the same, else of the weights."""
        return self.there if self.same else self.known

    @property
    def order(self) -> np.ndarray | None:
        """The column of the weights of each column of results; None: they are as they are."""
        if self.names == self.known:
            return None
        return np.array([self.known.index(name) for name in self.names])

    @property
    def numbers(self) -> np.ndarray:
        """The number that weights give each class of the graph; last, that of no class."""
        numbers = {name: number for number, name in enumerate(self.known)}
        return np.array([*(numbers.get(name, UNLABELLED) for name in self.there), UNLABELLED])

    @property
    def warnings(self) -> tuple[str, ...]:
        """For the user, where the graph has other classes than the weights."""
        if self.same or not self.there or not self.known:
            return ()
        return (
            f"the classes of the weights, which results have, are {shown(self.known)}; "
            f"those of the graph {shown(self.there)}",
        )


def as_known(stored: StoredGraph, task: TaskConfig, classes: Classes) -> StoredGraph:
    """A graph whose classes have the numbers that weights give them; others are no label.

    A UserError if the weights know none of them.
    """
    if not classes.known or not classes.there or classes.known == classes.there:
        return stored
    if not set(classes.known) & set(classes.there):
        raise UserError(
            f"{stored.path} has the classes {shown(classes.there)}, and the weights are of "
            f"{shown(classes.known)}",
            "evaluate on a graph with classes of these names",
        )
    graph, manifest, count = stored.graph, stored.manifest, len(classes.known)
    labels: Any = _Renumbered(examples_of(graph, task.on).labels, classes.numbers)
    facts: Any = {"classes": count, "class_names": classes.known}
    if task.on == ARCS:
        data = replace(graph.arc_data, labels=labels, class_names=classes.known)
        graph, facts = replace(graph, arc_data=data), {f"arc_{k}": v for k, v in facts.items()}
    else:
        graph = replace(graph, labels=labels, class_names=classes.known)
    return replace(stored, graph=graph, manifest=replace(manifest, **facts))


def unknown_labels(stored: StoredGraph, task: TaskConfig, classes: Classes) -> tuple[str, ...]:
    """Says how many labels of a graph are of classes that the weights do not know, if any."""
    others = [name for name in classes.there if name not in classes.known]
    if not classes.known or not others:
        return ()
    labels: Any = examples_of(stored.graph, task.on).labels
    count = 0
    unknown = classes.numbers[:-1] == UNLABELLED
    for start in range(0, len(labels), AT_ONCE):
        some = np.asarray(labels[start : start + AT_ONCE])
        count += int(np.count_nonzero(unknown[some[some != UNLABELLED]]))
    return (
        f"{count:,} {task.on} are of classes that the weights do not know "
        f"({shown(others)}): no metric counts any such {ONE_OF[task.on]}",
    )


def shown(names: tuple[str, ...] | list[str]) -> str:
    """Some names, for a message."""
    return ", ".join(names[:SHOWN]) + ", …" * (len(names) > SHOWN)


class _Renumbered:
    """Labels (n,) of which each class has another number; nothing is read before rows are picked.

    ``numbers``: that of each class, then that of no class.
    """

    def __init__(self, labels: Any, numbers: np.ndarray) -> None:
        self.base, self.flags, self._numbers = labels, labels.flags, numbers.astype(labels.dtype)
        self.dtype, self.ndim, self.shape = labels.dtype, 1, labels.shape

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _Renumbered(self.base[key], self._numbers)
        return self._numbers[self.base[key]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._numbers[self.base].astype(dtype or self.dtype)
