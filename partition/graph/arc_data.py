"""Numbers that a graph keeps for each of its arcs, beside their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partition.errors import UserError

# Words that data of vertices and of arcs share.
MASKS = ("train", "val", "test")
UNLABELLED = -1
AGAIN = "import the graph again"
AT_ONCE = 1 << 22  # numbers that are looked at at once


@dataclass(frozen=True)
class ArcData:
    """Columns with a row for each stored arc, in the order of the arcs (plain or mapped arrays).

    Attributes
    ----------
    features : (nnz, d) float32, optional
    labels : (nnz,) int32, or (nnz, tasks) float32 or float64, optional
        Classes, −1 for an arc without one; or numbers to be learned, NaN where one is unknown.
    masks : mapping of "train" / "val" / "test" to (nnz,) bool
    ids : (nnz,) int64, optional
        The number in the source, from 0, of the arc that the data are from; where None, the number
        of the stored arc itself.
    class_names : tuple of str, optional
        Names of the classes, where they are not their numbers.
    """

    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Columns of the features; 0 without them."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes: the largest label + 1; 0 where labels are none."""
        if self.labels is None or self.labels.ndim == 2 or not len(self.labels):
            return 0
        return max(0, int(self.labels.max()) + 1)

    @property
    def targets(self) -> int:
        """Columns of labels that are numbers; 0 where they are none."""
        return 0 if self.labels is None or self.labels.ndim == 1 else int(self.labels.shape[1])

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays that there are, by the names of their files."""
        named = {"arc_features": self.features, "arc_labels": self.labels, "arc_ids": self.ids}
        if not self.classes and not self.targets:
            named["arc_labels"] = None
        named |= {f"arc_{name}_mask": self.masks.get(name) for name in MASKS}
        return {name: array for name, array in named.items() if array is not None}


FILES = ("arc_features", "arc_labels", *(f"arc_{name}_mask" for name in MASKS), "arc_ids")


def read_arc_data(
    load: Callable[[str, tuple[int, ...], str], np.ndarray],
    nnz: int,
    width: int,
    classes: int,
    targets: int,
    masks: Sequence[str],
    class_names: tuple[str, ...],
    numbered: bool,
) -> ArcData:
    """The data of the arcs of a graph folder, as its manifest describes them.

    ``load(name, shape, kind)`` maps one of its arrays; ``numbered``: there is an array of ids.
    """
    labels = None
    if classes or targets:
        form = ((nnz, targets), "f") if targets else ((nnz,), "i")
        labels = load("arc_labels", *form)
    return ArcData(
        features=load("arc_features", (nnz, width), "f") if width else None,
        labels=labels,
        masks={name: load(f"arc_{name}_mask", (nnz,), "b") for name in masks},
        ids=load("arc_ids", (nnz,), "i") if numbered else None,
        class_names=class_names or None,
    )


def check_arc_data(data: ArcData, first: int, last: int, classes: int) -> None:
    """Refuse data of the arcs first..last−1 that no arc has, in bounded memory.

    A UserError if a feature is not finite, a label is outside −1..classes−1 or infinite, a number
    in the source is negative, or an arc is in two masks.
    """
    step = max(1, AT_ONCE // max(1, data.width, data.targets))
    for start in range(first, last, step):
        some = slice(start, min(start + step, last))
        if data.features is not None and not np.isfinite(data.features[some]).all():
            raise UserError("arc_features.npy has a number that is not finite", AGAIN)
        if data.labels is not None:
            labels = data.labels[some]
            if data.targets and np.isinf(labels).any():
                raise UserError("arc_labels.npy has a number that is infinite", AGAIN)
            if not data.targets and not UNLABELLED <= labels.min() <= labels.max() < classes:
                raise UserError(f"arc_labels.npy has a label outside -1..{classes - 1}", AGAIN)
        if data.ids is not None and data.ids[some].min() < 0:
            raise UserError("arc_ids.npy has a negative number", AGAIN)
        both = sum((mask[some].astype(np.int8) for mask in data.masks.values()), np.int8(0))
        if np.any(both > 1):
            raise UserError("an arc is in two masks", AGAIN)
