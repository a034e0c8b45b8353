"""The figures of a partition, measured by all ranks: each its nets, and some pairs of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.mpi.comm import Comm, agreed, redistribute, reduce_in_place
from gcnmpi.partitioning.levels import Level, on_root
from partition.graph import metrics
from partition.graph.graph import REVERSED, chunks
from partition.graph.metrics import (
    Metrics,
    MixedCounts,
    metrics_of,
    pattern_exchange,
    vertex_counts,
)
from partition.graph.store import StoredGraph
from partition.pipeline.adding import Figures, measure_field


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
    if not mixed:
        tell(f"  not measured: two parts have more than {MOST_OF_PAIR:,} entries between them")
    parts = on_root(comm, own)
    found = None
    with agreed(comm):
        if comm.rank == 0:
            more = vertex_counts(stored.graph, parts, k)
            of_rows = [
                metrics_of(exchange, way, parts, entries, **more)
                for exchange, way, entries in zip(rows, ways, nnz, strict=True)
            ]
            of_mixed = [
                counts.metrics(way, parts)
                for counts, way in zip(mixed, ways[: len(mixed)], strict=True)
            ]
            by_relation = measure_field("by_relation", stored, parts, k)
            found = parts, Figures(_both(of_rows), _both(of_mixed), by_relation, {})
    return found


def _both(found: list[Metrics]) -> dict[str, Metrics]:
    """Metrics by direction: the same in both where the pattern is symmetric; or none."""
    if not found:
        return {}
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
    about as many, in rounds of few entries. None at all where a pair has more than
    ``MOST_OF_PAIR``.
    """
    comm, k, space = level.comm, len(nnz[0]), level.vertices
    parts = np.zeros(space.local, np.int32)
    parts[: len(own)] = own
    space.tell(parts)
    pairs = _pairs(comm, _counted(level, own, parts, k))
    if pairs.largest > MOST_OF_PAIR:
        return []
    counts = [MixedCounts(k, np.zeros(k, np.int64)) for _ in nnz]
    for number in range(pairs.rounds):
        column, row, sender, owner = _of_round(level, own, parts, pairs, number)
        order = np.lexsort((owner, sender))
        column, row, sender, owner = (each[order] for each in (column, row, sender, owner))
        begins = np.flatnonzero(np.diff(sender, prepend=-1) | np.diff(owner, prepend=-1))
        begins = np.append(begins, len(sender))
        for first, last in chunks(begins, metrics.AT_ONCE):
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


ROUND = 1 << 22  # entries of pairs that a rank has at once; of one pair, if it has more
# The entries of a pair whose cover is computed take some 100 bytes each.
MOST_OF_PAIR = 1 << 24


@dataclass(frozen=True)
class _Pairs:
    """The pairs of parts with cut entries, by number: sender · k + owner, increasing.

    Attributes
    ----------
    k : int
    keys, rank, round : (pairs,) int64, int32, int32
        Who measures each pair, and when.
    rounds, largest : int
        How many rounds there are, and the entries of the largest pair.
    """

    k: int
    keys: np.ndarray
    rank: np.ndarray
    round: np.ndarray
    rounds: int
    largest: int


def _pairs(comm: Comm, counted: sp.csr_array) -> _Pairs:
    """Pairs for the ranks, the largest first, each to the rank that has least; in rounds.

    ``counted`` are the cut entries of pairs that this rank has, (k, k).
    """
    total, k = comm.bcast(_summed(comm, counted).tocoo()), counted.shape[0]
    row, column = (each.astype(np.int64) for each in total.coords)
    keys, sizes = row * k + column, total.data
    rank, turn = np.zeros((2, len(keys)), np.int32)
    load = np.zeros(comm.size, np.int64)
    for i in np.argsort(-sizes, kind="stable").tolist():
        rank[i] = load.argmin()
        turn[i] = load[rank[i]] // ROUND
        load[rank[i]] += sizes[i]
    by = np.argsort(keys)
    most, rounds = int(sizes.max(initial=0)), int(turn.max(initial=-1)) + 1
    return _Pairs(k, keys[by], rank[by], turn[by], rounds, most)


def _counted(level: Level, own: np.ndarray, parts: np.ndarray, k: int) -> sp.csr_array:
    """The cut entries that this rank has, of each pair of sender and owner: (k, k) int64."""
    found = sp.csr_array((k, k), dtype=np.int64)
    for first, last in chunks(level.net_ptr):
        *_, sender, owner = _cut(level, own, parts, first, last)
        keys, sizes = np.unique(sender.astype(np.int64) * k + owner, return_counts=True)
        found += sp.coo_array((sizes, np.divmod(keys, k)), shape=(k, k)).tocsr()
    return found


def _cut(
    level: Level, own: np.ndarray, parts: np.ndarray, first: int, last: int
) -> list[np.ndarray]:
    """The cut entries in a range of the nets: local columns and rows of M, senders and owners."""
    sizes = np.diff(level.net_ptr[first : last + 1])
    column = np.repeat(level.owners[first:last], sizes)
    row = level.pins[level.net_ptr[first] : level.net_ptr[last]]
    sender, owner = own[column], parts[row]
    cut = np.flatnonzero(sender != owner)
    return [each[cut] for each in (column, row, sender, owner)]


def _of_round(
    level: Level, own: np.ndarray, parts: np.ndarray, pairs: _Pairs, number: int
) -> list[np.ndarray]:
    """The cut entries that this rank measures in a round: columns and rows, senders and owners."""
    space = level.vertices
    pieces: list[list[np.ndarray]] = []
    numbers = np.concatenate([level.numbers, space.ghosts]).astype(space.ghosts.dtype, copy=False)
    for first, last in chunks(level.net_ptr):
        column, row, sender, owner = _cut(level, own, parts, first, last)
        pair = np.searchsorted(pairs.keys, sender.astype(np.int64) * pairs.k + owner)
        now = pairs.round[pair] == number
        ends = numbers[column[now]], numbers[row[now]], sender[now], owner[now]
        pieces.append([pairs.rank[pair[now]], *ends])
    to, *entries = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return redistribute(level.comm, to, entries, space.max_bytes)[0]
