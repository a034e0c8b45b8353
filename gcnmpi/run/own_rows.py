"""Features and labels of a rank's vertices, checked as they are loaded.

``load`` is what picks a rank's rows of an array on disk, for all ranks together: each layout of the
vertices has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gcnmpi.layout.arcs import check_content
from gcnmpi.layout.loading import Readable, RowNormalised
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.options.config import Config
from partition.errors import UserError
from partition.graph.graph import ONE_OF, UNLABELLED, inputs_of
from partition.graph.manifest import ARC_FEATURES, ARC_TYPE, FEATURE_FILES, TYPE_FEATURES
from partition.graph.store import StoredGraph

Load = Callable[[Readable], np.ndarray]


def own_features(comm: Comm, stored: StoredGraph, config: Config, load: Load) -> np.ndarray:
    """Rows of the features, normalised as configured.

    On all ranks a UserError if they are not what was imported, or not all finite.
    """
    of_types = (TYPE_FEATURES + name for name in stored.manifest.type_features)
    check_content(comm, stored, (*FEATURE_FILES, *of_types))
    features: Any = inputs_of(stored.graph)
    if config.graph.feature_norm == "row":
        features = RowNormalised(features, np.dtype(config.dtype))
    rows = load(features)
    check_finite(comm, stored, rows)
    return rows


def own_arc_features(comm: Comm, stored: StoredGraph, load: Load) -> np.ndarray:
    """Rows of the features of arcs; on all ranks a UserError if they are not what was imported."""
    check_content(comm, stored, ARC_FEATURES)
    features: Any = stored.graph.arc_data.features
    rows = load(features)
    check_finite(comm, stored, rows)
    return rows


def own_relations(comm: Comm, stored: StoredGraph, load: Load) -> np.ndarray:
    """Rows of relations, or shares and parts, (rows, 1), as ``load`` gives them; or a UserError.

    Or if one is of a relation that there is not.
    """
    check_content(comm, stored, (ARC_TYPE,))
    relations: Any = stored.graph.arc_type
    found = load(relations)[:, np.newaxis]
    shares = found.dtype.kind == "f"
    with agreed(comm):
        if not shares and found.max(initial=0) >= max(1, len(stored.manifest.relations)):
            raise UserError(f"{stored.path} is damaged: an arc of no relation")
    return found


def own_types(stored: StoredGraph, vertices: np.ndarray) -> np.ndarray:
    """Rows of the types of vertices, (rows, 1)."""
    types = stored.graph.vertex_types
    assert types is not None, "a graph without types"
    return types.of(vertices)[:, np.newaxis]


def check_finite(comm: Comm, stored: StoredGraph, features: np.ndarray) -> None:
    """Raise a UserError on all ranks if one has features that are not finite."""
    with agreed(comm):
        # A sum in float64 finds every NaN and infinity, and allocates nothing.
        if not np.isfinite(features.sum(dtype=np.float64)):
            raise UserError(f"{stored.path} is damaged: its features are not all finite")


def check_labels(comm: Comm, stored: StoredGraph, labels: np.ndarray, classes: int) -> None:
    """Raise a UserError on all ranks if one has a class that is none, or an infinite target."""
    with agreed(comm):
        if labels.ndim == 2:
            if np.isinf(labels).any():
                raise UserError(f"{stored.path} is damaged: a target that is infinite")
        elif labels.max(initial=0) >= classes or labels.min(initial=0) < UNLABELLED:
            raise UserError(f"{stored.path} is damaged: a label outside its classes")


def check_trains(comm: Comm, stored: StoredGraph, on: str, some: bool) -> None:
    """Raise a UserError on all ranks if no vertex or arc of any rank has a label to train on."""
    with agreed(comm):
        if not some:
            raise UserError(f"{stored.path} has no labelled {ONE_OF[on]} to train on")
