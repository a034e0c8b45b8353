"""The arcs that a rank's rows of M are made of, each with its number and its data.

M has one entry for all arcs from one vertex to another; here every arc has a place of its own. So
where no arcs are parallel, these places are the entries of the rank's rows of M, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from gcnmpi.layout.loading import OwnRows, check_content, read_ends
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, agreed, redistribute
from partition.errors import UserError
from partition.graph.arc_data import ArcData, check_arc_data
from partition.graph.graph import MASKS, UNLABELLED, with_loops

ADDED = -1  # the number of a self-loop that M adds: no arc of the folder
KINDS = ("features", "labels", "masks")


@dataclass(frozen=True)
class ArcColumns:
    """The arcs into a rank's own vertices, or out of them where direction is "out".

    Sorted by the rank's rows, in the order in which it keeps them; then by local columns, as M is;
    parallel arcs by their numbers.

    Attributes
    ----------
    indptr : (own + 1,) int64
        Row i has the arcs ``indptr[i]`` to ``indptr[i+1]`` − 1.
    column : (entries,) integers
        The local column of M that each arc is in: its other end.
    arc : (entries,) int64
        Its number in the folder, from 0; −1: a self-loop that M adds, whose data are 0 or unknown.
    weight : (entries,) float64, optional
        Its weight, 1 of added loops; 1 where None.
    features : (entries, d) float32, optional
    labels : (entries,) int32, or (entries, tasks) floats, optional
        Classes, −1 where unknown; or numbers, NaN where unknown.
    masks : mapping of "train" / "val" / "test" to (entries,) bool
    """

    indptr: np.ndarray
    column: np.ndarray
    arc: np.ndarray
    weight: np.ndarray | None
    features: np.ndarray | None
    labels: np.ndarray | None
    masks: Mapping[str, np.ndarray]


def load_arc_columns(
    comm: Comm,
    source: Source,
    rows: OwnRows,
    local: Callable[[np.ndarray], np.ndarray],
    max_bytes: float,
    *,
    self_loops: bool = True,
    kinds: Collection[str] = KINDS,
) -> ArcColumns:
    """Bring the arcs of own rows of M here, with their data; all ranks call this together.

    Each rank maps a contiguous piece of the folder; arcs go to the owners of their rows in pieces
    of ``max_bytes``. Beside these a rank has its own arcs, and each column of data twice.

    Parameters
    ----------
    local : callable
        Global ids of columns → local numbers; own rows have the numbers 0 … own − 1.
    self_loops : bool
        Whether M has a full diagonal: a loop is added where there is none.
    kinds : collection of "features", "labels", "masks"
        Which data to load, of those that the graph has.

    Raises
    ------
    UserError
        On all ranks, if the folder is damaged.
    """
    stored, own = source.stored, rows.vertices
    row, column, first, last = _ends(comm, source)
    found = _columns(stored.graph.arc_data, kinds)
    weights = stored.graph.weights
    if weights is not None:
        found["weight"] = weights
    with agreed(comm):
        try:
            check_arc_data(stored.graph.arc_data, first, last, stored.manifest.arc_classes)
        except UserError as error:
            raise UserError(f"the graph folder is damaged: {error.message}", error.hint) from None
    check_content(comm, stored, [f"arc_{name}" for name in found])
    arrays = [row, column, np.arange(first, last), *(a[first:last] for a in found.values())]
    (row, column, arc, *data), _ = redistribute(comm, rows.parts[row], arrays, max_bytes)
    del arrays
    narrived = len(row)

    order = np.argsort(own)
    row = order[np.searchsorted(own, row, sorter=order)]
    column = local(column)
    if self_loops:
        row, column, _ = with_loops(row, column, None, range(len(own)))
    arc = np.append(arc, np.full(len(row) - narrived, ADDED))
    order = np.lexsort((arc, column, row))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moved: dict[str, np.ndarray] = {}
    for name in found:
        values = data.pop(0)
        moved[name] = np.full((len(order), *values.shape[1:]), _absent(name, values), values.dtype)
        moved[name][place[:narrived]] = values
    return ArcColumns(
        indptr=np.searchsorted(row[order], np.arange(len(own) + 1)),
        column=column[order],
        arc=arc[order],
        weight=moved.get("weight"),
        features=moved.get("features"),
        labels=moved.get("labels"),
        masks={name: moved[f"{name}_mask"] for name in MASKS if f"{name}_mask" in moved},
    )


def _ends(comm: Comm, source: Source) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Rows and columns of the arcs that this rank reads; the first one and the end of these."""
    begin, target, head, end = read_ends(comm, source.stored)
    ends = (target, begin) if source.direction == "in" else (begin, target)
    return *ends, head, end


def _columns(data: ArcData, kinds: Collection[str]) -> dict[str, np.ndarray]:
    """The columns of some kinds, by the names of their files without ``arc_``."""
    wanted = {"features", "labels"} & set(kinds)
    wanted |= {f"{name}_mask" for name in MASKS} if "masks" in kinds else set()
    named = {name.removeprefix("arc_"): column for name, column in data.columns().items()}
    return {name: column for name, column in named.items() if name in wanted}


def _absent(name: str, values: np.ndarray) -> float:
    """The value of an arc that the folder does not have."""
    if name == "labels":
        return UNLABELLED if values.dtype.kind == "i" else np.nan
    return 1 if name == "weight" else 0
