"""The examples in a graph that a task learns from: its vertices, or its arcs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partition.graph.arc_data import AT_ONCE, MASKS
from partition.graph.arc_data import FILES as ARC_DATA_FILES
from partition.graph.graph import UNLABELLED, Graph

VERTICES, ARCS = "vertices", "arcs"
ONE_OF = {VERTICES: "vertex", ARCS: "arc"}

# Files of labels and masks.
TARGET_FILES = {
    VERTICES: ("labels", "targets", *(f"{name}_mask" for name in MASKS)),
    ARCS: tuple(name for name in ARC_DATA_FILES if name not in ("arc_features", "arc_ids")),
}


@dataclass(frozen=True)
class Examples:
    """Labels and masks in the order of a graph folder, with a row for each vertex or each arc.

    Attributes
    ----------
    n : int
        How many rows there are.
    labels, targets, masks, ids, class_names
        As those of :class:`~partition.graph.graph.Graph`; ``masks`` are those of one split.
    """

    n: int
    labels: np.ndarray | None
    targets: np.ndarray | None
    masks: Mapping[str, np.ndarray]
    ids: np.ndarray | None
    class_names: tuple[str, ...] | None

    @property
    def classes(self) -> int:
        """Number of classes: the largest label + 1, 0 without labels."""
        return 0 if self.labels is None else max(0, int(np.max(self.labels, initial=-1)) + 1)


def examples_of(graph: Graph, on: str) -> Examples:
    """The vertices of a graph, or its arcs; ``on`` is ``VERTICES`` or ``ARCS``."""
    if on == VERTICES:
        of_vertices = graph.labels, graph.targets, graph.masks, graph.ids, graph.class_names
        return Examples(graph.n, *of_vertices)
    data = graph.arc_data
    classes, numbers = (data.labels, None) if not data.targets else (None, data.labels)
    return Examples(graph.nnz, classes, numbers, data.masks, data.ids, data.class_names)


def known_rows(graph: Graph | Examples) -> np.ndarray | None:
    """Which vertices or arcs have a label, or a target that is known, (n,) bool; None without."""
    known = None
    if graph.labels is not None and graph.classes:
        known = np.asarray(graph.labels) != UNLABELLED
    if graph.targets is not None:
        targets = np.empty(graph.n, bool)
        for start in range(0, graph.n, AT_ONCE):
            piece = slice(start, start + AT_ONCE)
            targets[piece] = ~np.isnan(graph.targets[piece]).all(axis=1)
        known = targets if known is None else known | targets
    return known


def training_rows(graph: Graph | Examples) -> np.ndarray | None:
    """Which vertices or arcs train, (n,) bool: the mask, or all labelled ones; None without labels.

    Of several splits, the first one.
    """
    known = known_rows(graph)
    mask = graph.masks.get("train")
    if known is None or mask is None:
        return known
    return known & (mask if mask.ndim == 1 else mask[:, 0])
