"""The figures of a partition, measured by all ranks: each its nets, and some pairs of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.mpi.comm import Comm, agreed, redistribute, reduce_in_place
from gcnmpi.partitioning.levels import Level, on_root
from partition.graph import mixed_metrics
from partition.graph.examples import training_rows
from partition.graph.graph import REVERSED, chunks
from partition.graph.metrics import Metrics, metrics_of, pattern_exchange, rows_of_types
from partition.graph.mixed_metrics import MixedCounts
from partition.graph.store import StoredGraph
from partition.pipeline.measuring import Figures, measure_relations


def figures_of(
    level: Level, stored: StoredGraph, direction: str, own: np.ndarray, k: int,
    tell: Callable[[str], None],
) -> tuple[np.ndarray, Figures] | None:  # fmt: skip
    """All parts and the figures of a partition on rank 0; None elsewhere.

    The level is the finest one, made for ``direction``; ``own`` are the parts of its vertices here.
    The mixed exchange of means by relation is measured by rank 0 alone.
    """
    comm, symmetric = level.comm, stored.manifest.symmetric_pattern
    ways = (direction,) if symmetric else (direction, REVERSED[direction])
    tell("measuring rows")
    ends = _ends(level, own, k)
    nnz = [_entries(level, own, k, reverse) for reverse in (False, True)[: len(ways)]]
    rows = [_summed(comm, exchange) for exchange in ends[: len(ways)]]
    tell("measuring the mixed exchange")
    mixed = _mixed(level, own, nnz)
    parts = on_root(comm, own)
    found = None
    with agreed(comm):
        if comm.rank == 0:
            train = training_rows(stored.graph)
            more = {
                "train": None if train is None else np.bincount(parts[train], minlength=k).tolist(),
                "types": rows_of_types(stored.graph, parts, k),
            }
            of_rows = [
                metrics_of(exchange, way, parts, entries, **more)
                for exchange, way, entries in zip(rows, ways, nnz, strict=True)
            ]
            of_mixed = [counts.metrics(way, parts) for counts, way in zip(mixed, ways, strict=True)]
            by_relation = measure_relations(stored, parts, k)
            found = parts, Figures(_both(of_rows), _both(of_mixed), by_relation, {})
    return found


def _both(found: list[Metrics]) -> dict[str, Metrics]:
    """Metrics by direction: the same in both where the pattern is symmetric."""
    first = found[0]
    other = found[1] if len(found) > 1 else replace(first, direction=REVERSED[first.direction])
    return {metrics.direction: metrics for metrics in sorted((first, other), key=_direction)}


def _direction(metrics: Metrics) -> str:
    return metrics.direction


def _ends(level: Level, own: np.ndarray, k: int) -> list[sp.csr_array]:
    """Rows that the parts of this rank's vertices send each other, along the nets and against."""
    vertices, nets = np.zeros(level.vertices.local, np.int32), np.zeros(level.nets.local, np.int32)
    vertices[: len(own)], nets[: len(level.owners)] = own, own[level.owners]
    level.vertices.tell(vertices)
    level.nets.tell(nets)
    of_owners = own[level.owners]
    return [
        pattern_exchange(level.net_ptr, level.pins, of_owners, vertices, k),
        pattern_exchange(level.vertex_ptr, level.vertex_nets, own, nets, k),
    ]


def _entries(level: Level, own: np.ndarray, k: int, reverse: bool) -> np.ndarray:
    """Entries of M, or of its transpose, in the rows of each part."""
    sizes = np.diff(level.net_ptr if reverse else level.vertex_ptr)
    found = np.zeros(k, np.int64)
    np.add.at(found, own, sizes)
    reduce_in_place(level.comm, found)
    return found


def _summed(comm: Comm, matrix: sp.csr_array) -> sp.csr_array:
    """The sum of the (k, k) matrices of all ranks, on rank 0; something else elsewhere."""
    some, k = matrix.tocoo(), matrix.shape[0]
    to = np.zeros(some.nnz, np.int32)
    row, column = (each.astype(np.int64) for each in some.coords)
    (row, column, data), _ = redistribute(comm, to, [row, column, some.data], AT_ONCE)
    total = sp.coo_array((data, (row, column)), shape=(k, k)).tocsr()
    total.sort_indices()
    return total


AT_ONCE = float(1 << 24)  # bytes of sums that are sent at once


def _mixed(level: Level, own: np.ndarray, nnz: list[np.ndarray]) -> list[MixedCounts]:
    """Counts of the mixed exchange, along the nets and, where ``nnz`` has two, against: on rank 0.

    All cut entries of a pair of parts come to one rank, and pairs to the ranks so that they have
    about as many.
    """
    comm, k = level.comm, len(nnz[0])
    parts = np.zeros(level.vertices.local, np.int32)
    parts[: len(own)] = own
    level.vertices.tell(parts)
    numbers = np.concatenate([level.numbers, level.vertices.ghosts]).astype(
        level.vertices.ghosts.dtype
    )
    sizes = np.diff(level.net_ptr)
    sender, owner = np.repeat(own[level.owners], sizes), parts[level.pins]
    cut = np.flatnonzero(sender != owner)
    sender, owner = sender[cut], owner[cut]
    column = np.repeat(numbers[level.owners], sizes)[cut]
    row = numbers[level.pins[cut]]
    del cut, parts
    pair = sender.astype(np.int64) * k + owner
    to = _spread_pairs(comm, pair, k)
    arrays = [column, row, sender, owner]
    del column, row, sender, owner, pair
    arrays, _ = redistribute(comm, to, arrays, level.vertices.max_bytes)
    del to
    column, row, sender, owner = arrays
    order = np.lexsort((owner, sender))
    column, row, sender, owner = (each[order] for each in arrays)
    del arrays, order
    begins = np.flatnonzero((np.diff(sender, prepend=-1) != 0) | (np.diff(owner, prepend=-1) != 0))
    begins = np.append(begins, len(sender))
    counts = [MixedCounts(k, np.zeros(k, np.int64)) for _ in nnz]
    for first, last in chunks(begins, mixed_metrics.AT_ONCE):
        some = slice(begins[first], begins[last])
        here = column[some], row[some], sender[some], owner[some]
        counts[0].add(*here)
        if len(counts) > 1:  # the transposed entries: columns are rows, and owners send
            counts[1].add(here[1], here[0], here[3], here[2])
    for count, entries in zip(counts, nnz, strict=True):
        reduce_in_place(comm, count.nnz)
        count.nnz = count.nnz + entries
        count.rows, count.sums = _summed(comm, count.rows), _summed(comm, count.sums)
    return counts


def _spread_pairs(comm: Comm, pair: np.ndarray, k: int) -> np.ndarray:
    """The rank that gets each entry: pairs, the largest first, go to the rank that has least."""
    found, place, sizes = np.unique(pair, return_inverse=True, return_counts=True)
    one = sp.coo_array((sizes, (found // k, found % k)), shape=(k, k))
    total = comm.bcast(_summed(comm, one.tocsr()).tocoo())
    row, column = (each.astype(np.int64) for each in total.coords)
    keys, order = row * k + column, np.argsort(-total.data, kind="stable")
    rank, load = np.zeros(len(keys), np.int32), np.zeros(comm.size, np.int64)
    for i in order.tolist():
        rank[i] = load.argmin()
        load[rank[i]] += total.data[i]
    by_key = np.argsort(keys)
    return rank[by_key][np.searchsorted(keys[by_key], found)][place]
