"""Metrics of the rows in each mask, over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gcnmpi.mpi.comm import Comm
from gcnmpi.nn.metrics.scored import Scored
from gcnmpi.options.task import METRICS, METRICS_OF
from partition.errors import unknown_name


def check_names(names: Sequence[str], labels: np.ndarray) -> None:
    """Raise a UserError for a name that is no metric of such labels: classes, or numbers."""
    tasks = ("classes",) if labels.ndim == 1 else ("labels", "regression")
    known = [metric for task in tasks for metric in METRICS_OF[task]]
    for name in names:
        if name not in known:
            raise unknown_name("metric", name, known)


def scored_in(
    comm: Comm,
    names: Sequence[str],
    scores: np.ndarray,
    labels: np.ndarray,
    masks: Mapping[str, np.ndarray],
) -> dict[str, float | None]:
    """Metrics by ``mask_name``; None where not defined. All ranks call it together.

    Parameters
    ----------
    scores : (rows, columns)
        Output for this rank's rows.
    labels : (rows,) integers, −1 where unknown; or (rows, columns) numbers
    masks : mapping of str to (rows,) bool
    """
    found: dict[str, float | None] = {}
    of_classes = labels.ndim == 1
    for mask, chosen in masks.items():
        rows = chosen & (labels >= 0) if of_classes else chosen
        some = labels[rows].astype(np.int32) if of_classes else labels[rows]
        scored = Scored(scores[rows], some)
        for name in names:
            metric: Callable[..., float | None] = METRICS.get(name)
            value = metric(comm, scored)
            good = value is not None and np.isfinite(value)
            found[f"{mask}_{name}"] = value if good else None
    return found
