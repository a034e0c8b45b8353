"""Arrays of many steps in files: NumPy's, and those of Zarr, which are read piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from partition.errors import UserError, installing
from partition.graph.samples import Steps, with_columns
from partition.importing.vertex_data import Places
from partition.records import map_npy


def open_steps(path: Path) -> Steps:
    """An array (steps, vertices, columns) in an ``.npy``, or in a folder or archive of Zarr.

    Of two axes, the last one is that of the only column. A UserError if it cannot be read, or is
    of something else than numbers.
    """
    found = map_npy(path, kinds="fiu") if path.suffix == ".npy" else _zarr(path)
    if len(found.shape) == 2:
        found = with_columns(found if isinstance(found, np.ndarray) else found[:])
    if np.dtype(found.dtype).kind not in "fiu" or len(found.shape) != 3:
        raise UserError(
            f"{path} holds {found.dtype} of shape {tuple(found.shape)}",
            "samples are numbers (steps, vertices, columns)",
        )
    return found


@dataclass(frozen=True)
class _ReorderedSteps:
    """Steps with another row for each vertex: ``rows``, (n,) integers."""

    steps: Steps
    rows: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, some: slice) -> np.ndarray:
        """Some of the steps."""
        return self.steps[some][:, self.rows]


def in_order_of_vertices(steps: Steps, places: Places, where: str) -> Steps:
    """Steps whose rows are in the order of the graph's vertices.

    A UserError if nobody can say which vertex a row is of: see :meth:`Places.row_of_each`.
    """
    if len(steps.shape) != 3 or steps.shape[1] != places.n:
        return steps  # which :func:`write_samples` refuses
    rows = places.row_of_each(where)
    return steps if rows is None else _ReorderedSteps(steps, rows, steps.shape, steps.dtype)


def _zarr(path: Path) -> Steps:
    try:
        import zarr
    except ImportError:
        raise UserError(
            f"{path} is no .npy, and Zarr, which may read it, is not installed", installing("zarr")
        ) from None
    try:
        found = zarr.open_array(str(path), mode="r")
    except Exception as error:  # of its many storage classes, each has errors of its own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"cannot read {path} with Zarr: {reason}", "give the path of an array within the store"
        ) from error
    return cast(Steps, found)
