"""The arrays of a graph folder, each rank its range of them, and facts that all find out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.importing.exchange import before
from gcnmpi.importing.vertices import Numbering
from gcnmpi.layout.arcs import own_sum
from gcnmpi.layout.writing import writing_apart
from gcnmpi.mpi.comm import Comm, agreed, reduce_in_place, slice_of
from partition.graph.content import BETA, Known, described_sum, reverse_excess
from partition.graph.graph import Graph, chunks, index_dtype
from partition.graph.hashing import MASK64, mixed
from partition.importing.on_disk import Building
from partition.importing.spools import Columns
from partition.records import map_npy
from partition.resident import forget_pages

ARRAYS = ("indptr", "indices", "weights", "ids")
AT_ONCE = 1 << 20  # arcs that are copied or looked at at once


def write_arcs(comm: Comm, folder: Path, build: Building, keys: Columns) -> tuple[int, int]:
    """Write pointers, targets and weights of sorted keys; returns the first own arc, and the count.

    Every rank has the arcs of its rows, which follow those of the rank before.
    """
    first, total = before(comm, keys.rows)
    at = first
    with (
        writing_apart(comm, folder / "indices.npy", index_dtype(build.n), (total,)) as put,
        agreed(comm),
    ):

        def targets(column: np.ndarray) -> None:
            nonlocal at
            put(at, column)
            at += len(column)

        degrees = build.csr(keys, targets)
    ends = first + np.cumsum(degrees)
    with (
        writing_apart(comm, folder / "indptr.npy", ends.dtype, (build.n + 1,)) as put,
        agreed(comm),
    ):
        put(build.rows.start + 1, ends)
        if comm.rank == 0:
            put(0, np.zeros(1, ends.dtype))
    if keys.weighted:
        kind = np.dtype(np.float64)
        with writing_apart(comm, folder / "weights.npy", kind, (total,)) as put, agreed(comm):
            for start in range(0, keys.rows, AT_ONCE):
                count = min(AT_ONCE, keys.rows - start)
                put(
                    first + start, np.fromfile(keys.paths["weights"], kind, count, offset=start * 8)
                )
    return first, total


def write_ids(comm: Comm, folder: Path, numbering: Numbering) -> None:
    """Write the ids of the vertices, where these are not their numbers."""
    share = numbering.ids()
    if share is None:
        return
    with (
        writing_apart(comm, folder / "ids.npy", np.dtype(np.int64), (numbering.n,)) as put,
        agreed(comm),
    ):
        put(*share)


def map_ids(comm: Comm, folder: Path, numbering: Numbering) -> np.ndarray | None:
    """The ids that were written, mapped; None where they are the numbers."""
    with agreed(comm):
        return None if numbering.ids() is None else map_npy(folder / "ids.npy")


def read_back(folder: Path, parallel: bool) -> Graph:
    """The graph of the arrays that were written, mapped."""
    files = {name: folder / f"{name}.npy" for name in ARRAYS}
    found: dict[str, Any] = {name: map_npy(f) for name, f in files.items() if f.exists()}
    return Graph(**found, parallel=parallel)


def known_of(comm: Comm, graph: Graph, rows: range) -> Known:
    """Checksums of the arrays of a graph, and whether A is symmetric: each rank finds a share."""
    named = {name: getattr(graph, name) for name in ARRAYS if getattr(graph, name) is not None}
    totals = [own_sum(a, slice_of(len(a), comm.rank, comm.size)) for a in named.values()]
    sums = np.array([*totals, *_excesses(graph, rows)], np.uint64)
    reduce_in_place(comm, sums)
    *totals, pattern, values = sums.tolist()
    return Known(
        (pattern == 0, pattern == 0 and values == 0),
        {
            name: described_sum(array, total)
            for (name, array), total in zip(named.items(), totals, strict=True)
        },
    )


def _excesses(graph: Graph, rows: range) -> tuple[int, int]:
    """Shares of some rows in sums that are 0 where arcs have reverses, and with their weights."""
    pattern = values = 0
    indptr = np.asarray(graph.indptr[rows.start : rows.stop + 1])
    for first, last in chunks(indptr, AT_ONCE):
        ends = indptr[first : last + 1]
        target = np.asarray(graph.indices[ends[0] : ends[-1]])
        numbers = np.arange(rows.start + first, rows.start + last, dtype=target.dtype)
        source = np.repeat(numbers, np.diff(ends))
        pattern += reverse_excess(source, target, None)
        if graph.weights is not None:
            weight = np.asarray(graph.weights[ends[0] : ends[-1]])
            if graph.parallel:
                weight = _in_their_order(source, target, weight)
            values += reverse_excess(source, target, weight)
            forget_pages(graph.weights)
        forget_pages(graph.indices)
    return pattern & MASK64, values & MASK64


def _in_their_order(source: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Numbers that are equal where weights are, and each is of the same one of parallel arcs."""
    place = np.arange(len(source))
    begins = np.ones(len(source), bool)
    begins[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    number = place - np.maximum.accumulate(np.where(begins, place, 0))
    hashes = mixed((weight + 0.0).view(np.uint64), BETA) + number.astype(np.uint64)
    return (mixed(hashes, BETA) >> np.uint64(12)).astype(np.float64)
