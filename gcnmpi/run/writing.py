"""Rows that ranks hold, as a file in the original order, or whole on rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.layout.writing import write_picked
from gcnmpi.mpi.comm import Comm, agreed, from_root, redistribute
from gcnmpi.options.requests import RESULT_WRITERS
from gcnmpi.run.preflight import make_room
from gcnmpi.run.results import Results
from partition.records import map_npy, temporary_name


@dataclass(frozen=True)
class Rows:
    """Rows of a result, some of which this rank holds."""

    # (m,) integers: rows of the result that come from this rank; each comes from one rank
    numbers: np.ndarray
    places: np.ndarray  # (m,) integers: where they are in ``values``
    values: np.ndarray  # what this rank holds
    n: int  # rows of the result
    # (n,) int64 or None: the vertices or arcs of its rows; None: all of them, in their order
    picked: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole result."""
        return (self.n, *self.values.shape[1:])


def on_root(comm: Comm, rows: Rows, max_bytes: float) -> np.ndarray | None:
    """All rows in their order on rank 0; None elsewhere."""
    destination = np.zeros(len(rows.numbers), np.int64)
    arrays = [rows.numbers, rows.values[rows.places]]
    (places, found), _ = redistribute(comm, destination, arrays, max_bytes)
    if comm.rank:
        return None
    whole = np.empty(rows.shape, rows.values.dtype)
    whole[places] = found
    return whole


def check_writable(comm: Comm, out: Path | None) -> None:
    """Raise a UserError on all ranks if results cannot be written, before the work."""
    if out is not None:
        with agreed(comm):  # a library that is missing
            if out.suffix in RESULT_WRITERS:
                RESULT_WRITERS.get(out.suffix)
        make_room(comm, out, "--out")


def deliver(
    comm: Comm, out: Path | None, rows: Rows, ids: np.ndarray | None, max_bytes: float, **named: Any
) -> np.ndarray | None:
    """:func:`write` to a file; or, where there is none, all rows on rank 0."""
    if out is None:
        return on_root(comm, rows, max_bytes)
    write(comm, out, rows, ids, max_bytes, **named)
    return None


def write(
    comm: Comm,
    path: Path,
    rows: Rows,
    ids: np.ndarray | None,
    max_bytes: float,
    *,
    column: str = "class",
    name: str = "values",
    arrays: Mapping[str, np.ndarray] | None = None,
    names: tuple[str, ...] | None = None,
) -> None:
    """Write rows in their order, in slices, as the suffix of the path says.

    Parameters
    ----------
    ids : (n,) integers or texts, or None
        What the vertices are called, where that is not their numbers.
    max_bytes : float
        Bound of what a rank gathers at a time.
    column : str
        What a table calls rows of one number.
    name, arrays : str, mapping of str to array
        What an ``.npz`` calls them, and what else is in it.
    names : tuple of str, optional
        Names of classes, for tables, where the rows are their numbers.

    Raises
    ------
    UserError
        On all ranks, if the file cannot be written.
    """
    whole = path if path.suffix == ".npy" else from_root(comm, lambda: temporary_name(path))
    write_picked(comm, whole, rows.numbers, rows.places, rows.values, rows.n, max_bytes)
    if whole is path:
        return

    def convert() -> None:
        found = Results(map_npy(whole), ids, rows.picked, column, name, arrays or {}, names)
        RESULT_WRITERS.get(path.suffix)(found, path)

    try:
        from_root(comm, convert)
    finally:
        if comm.rank == 0:
            whole.unlink(missing_ok=True)
