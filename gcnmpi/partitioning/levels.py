"""Hypergraphs that are spread over the ranks: that of M's columns, and coarser ones of clusters.

Vertices are in contiguous ranges of their numbers on the ranks, and a net is where its owner is, in
the order of owners. A rank has the pins of its nets and the nets of its vertices, by local numbers:
own ones first, then *ghosts*, those of others, by number. Nothing is of the size of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from gcnmpi.kernels.rows import Places
from gcnmpi.mpi.comm import Comm, agreed, maximum, redistribute, reduce_in_place
from gcnmpi.partitioning import loops
from partition.errors import UserError
from partition.graph.graph import check_arcs, chunks, distinct, index_dtype
from partition.graph.sampling import pointers
from partition.graph.store import StoredGraph
from partition.resident import forget_pages

AT_ONCE = 1 << 22  # numbers that are sorted, or sent, at once
PLACING_BYTES = 16  # that a number which is sent takes


@dataclass(frozen=True)
class Spread:
    """Numbers 0..n−1 in ranges over the ranks, and those of others that a rank looks at.

    Attributes
    ----------
    bounds : (P + 1,) int64
        Where the range of each rank begins.
    ghosts : (g,) integers
        Numbers of others, increasing: so those of one rank follow each other.
    seen : (s,) int32
        Own places that others look at: rank by rank, as their ghosts are ordered.
    seen_starts, ghost_starts : (P + 1,) int64
        Where those of each rank begin in ``seen`` and in ``ghosts``.
    """

    comm: Comm
    bounds: np.ndarray
    ghosts: np.ndarray
    seen: np.ndarray
    seen_starts: np.ndarray
    ghost_starts: np.ndarray
    max_bytes: float

    @property
    def first(self) -> int:
        """The first own number."""
        return int(self.bounds[self.comm.rank])

    @property
    def count(self) -> int:
        """How many own numbers there are."""
        return int(self.bounds[self.comm.rank + 1]) - self.first

    @property
    def total(self) -> int:
        """How many numbers all ranks have."""
        return int(self.bounds[-1])

    @property
    def local(self) -> int:
        """How many own numbers and ghosts there are."""
        return self.count + len(self.ghosts)

    def rank_of(self, numbers: np.ndarray) -> np.ndarray:
        """The rank of each number, int32."""
        return (np.searchsorted(self.bounds, numbers, side="right") - 1).astype(np.int32)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Local numbers of some numbers that are own or ghosts: int32.

        They take the place of numbers of 32 bits, which are lost.
        """
        out = numbers if numbers.dtype == np.int32 else np.empty(len(numbers), np.int32)
        of_ghosts = Places(self.ghosts)
        for start in range(0, len(numbers), AT_ONCE):
            some = numbers[start : start + AT_ONCE]
            place = some.astype(np.int64) - self.first
            far = np.flatnonzero((place < 0) | (place >= self.count))
            place[far] = self.count + of_ghosts.of(some[far])
            out[start : start + AT_ONCE] = place
        return out

    def tell(self, array: np.ndarray, changed: np.ndarray | None = None) -> None:
        """Bring own rows of a (local, …) array to the ranks that have them as ghosts.

        All of them, or those that are marked in ``changed``, (count,) bool.
        """
        if self.comm.size == 1:
            return
        some = np.ones(len(self.seen), bool) if changed is None else changed[self.seen]
        place = np.flatnonzero(some)
        to = np.searchsorted(self.seen_starts, place, side="right") - 1
        message = np.empty(len(place), [("where", np.int32), ("row", array.dtype, array.shape[1:])])
        message["where"] = place - self.seen_starts[to]
        message["row"] = array[self.seen[place]]
        (message,), counts = redistribute(self.comm, to.astype(np.int32), [message], self.max_bytes)
        at = message["where"] + np.repeat(self.ghost_starts[:-1], counts)
        array[self.count + at] = message["row"]

    def asked(self, numbers: np.ndarray, own: np.ndarray) -> np.ndarray:
        """The rows of own arrays, (count, …), at some numbers: each rank asks their owners."""
        return self.answered(numbers, numbers, lambda wanted: own[wanted - self.first])

    def answered(
        self,
        numbers: np.ndarray,
        rows: np.ndarray,
        answer: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """The answers to some rows: each goes to the rank of its number, which answers all it gets.

        Answers are in the order of the rows.
        """
        to = self.rank_of(numbers)
        order = np.argsort(to, kind="stable")
        (arrived,), counts = redistribute(self.comm, to[order], [rows[order]], self.max_bytes)
        back = np.repeat(np.arange(self.comm.size, dtype=np.int32), counts)
        (answers,), _ = redistribute(self.comm, back, [answer(arrived)], self.max_bytes)
        found = np.empty_like(answers)
        found[order] = answers
        return found


def spread_over(comm: Comm, bounds: np.ndarray, far: np.ndarray, max_bytes: float) -> Spread:
    """Numbers in ranges; ``far`` are the different ones of others that this rank looks at."""
    owner = (np.searchsorted(bounds, far, side="right") - 1).astype(np.int32)
    (asked,), counts = redistribute(comm, owner, [far], max_bytes)
    seen = (asked - bounds[comm.rank]).astype(np.int32)
    mine = np.bincount(owner, minlength=comm.size)
    return Spread(comm, bounds, far, seen, pointers(counts), pointers(mine), max_bytes)


@dataclass(frozen=True)
class Level:
    """A hypergraph: this rank's nets and vertices.

    Attributes
    ----------
    vertices, nets : Spread
    net_ptr, pins : (own nets + 1,) int64, (pins,) int32
        The vertices of each own net, its owner among them.
    vertex_ptr, vertex_nets : (own vertices + 1,) int64, (pins,) int32
        The nets of each own vertex.
    owners : (own nets,) int32
        The vertex that sends along each net, increasing.
    costs, sizes : (local nets,) int64
        What each net costs in each part but one that it touches, and how many pins it has.
    weights : (own vertices,) int64
    pin_count : int
        Pins of all nets of all ranks.
    sampled : bool
        Whether nets stand for others, too, that were left out.
    """

    vertices: Spread
    nets: Spread
    net_ptr: np.ndarray
    pins: np.ndarray
    vertex_ptr: np.ndarray
    vertex_nets: np.ndarray
    owners: np.ndarray
    costs: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray
    pin_count: int
    sampled: bool = False

    @cached_property
    def owned_ptr(self) -> np.ndarray:
        """Where the nets that each own vertex owns begin, and end: (own vertices + 1,) int64."""
        return np.searchsorted(self.owners, np.arange(self.vertices.count + 1))

    @property
    def comm(self) -> Comm:
        """The ranks that it is spread over."""
        return self.vertices.comm

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of own vertices, (own vertices,) int64."""
        return np.arange(self.vertices.first, self.vertices.first + self.vertices.count)


def total(comm: Comm, *numbers: int) -> list[int]:
    """Sums of integers over the ranks."""
    sums = np.array(numbers, np.int64)
    reduce_in_place(comm, sums)
    return sums.tolist()


def ranges(comm: Comm, count: int) -> np.ndarray:
    """Bounds of ranges of so many numbers on each rank."""
    return pointers(np.array(comm.allgather(count), np.int64))


def assembled(
    comm: Comm,
    bounds: np.ndarray,
    net_ptr: np.ndarray,
    pins: np.ndarray,
    owners: np.ndarray,
    costs: np.ndarray | None,
    weights: np.ndarray | None,
    max_bytes: float,
    symmetric: bool = False,
) -> Level:
    """A level from the nets of each rank's vertices.

    Parameters
    ----------
    bounds : (P + 1,) int64
        Ranges of the vertices.
    net_ptr, pins : (own nets + 1,) int64, (pins,) integers
        Numbers of the vertices of each own net.
    owners : (own nets,) int32
        Places of their owners among this rank's vertices, increasing.
    costs : (own nets,) int64, optional
        1 where None.
    weights : (own vertices,) int64, optional
        Where None, how many nets each vertex is in.
    symmetric : bool
        Whether net v is that of vertex v, and vertex v in the nets of the pins of its own.
    """
    first, count = int(bounds[comm.rank]), int(bounds[comm.rank + 1] - bounds[comm.rank])
    vertices = spread_over(comm, bounds, _far(pins, first, count), max_bytes)
    sizes = np.diff(net_ptr)
    if symmetric:
        places = vertices.places(pins)
        nets, vertex_ptr, vertex_nets = vertices, net_ptr, places
    else:
        net_bounds = ranges(comm, len(sizes))
        vertex_ptr, by_vertex = _turned(comm, bounds, net_bounds, net_ptr, pins, max_bytes)
        places = vertices.places(pins)
        own = int(net_bounds[comm.rank]), len(sizes)
        nets = spread_over(comm, net_bounds, _far(by_vertex, *own), max_bytes)
        vertex_nets = nets.places(by_vertex)
    facts = np.ones((2, nets.local), np.int64)
    facts[1, : nets.count] = sizes
    if costs is not None:
        facts[0, : nets.count] = costs
    for row in facts:
        nets.tell(row)
    if weights is None:
        weights = np.diff(vertex_ptr)
    return Level(
        vertices, nets, net_ptr, places, vertex_ptr, vertex_nets, owners, facts[0], facts[1],
        weights, total(comm, len(pins))[0],
    )  # fmt: skip


def _turned(
    comm: Comm,
    bounds: np.ndarray,
    row_bounds: np.ndarray,
    ptr: np.ndarray,
    numbers: np.ndarray,
    max_bytes: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The transposed pattern: the rows that each own number of ``bounds`` is in, in no order.

    Rows are in ranges too; those of this rank have ``numbers[ptr[i]:ptr[i + 1]]``. Numbers travel
    in pieces, and twice: they are counted, then placed.

    Returns
    -------
    (own numbers + 1,) int64, (m,) integers
    """
    low, high = bounds[comm.rank : comm.rank + 2].tolist()
    first, kind = int(row_bounds[comm.rank]), index_dtype(int(row_bounds[-1]) + 1)
    step = max(1, min(AT_ONCE, int(max_bytes // PLACING_BYTES)))
    pieces = range(int(maximum(comm, -(-len(numbers) // step))))

    def sent(piece: int) -> tuple[slice, np.ndarray]:
        place = slice(piece * step, (piece + 1) * step)
        to = np.searchsorted(bounds, numbers[place], side="right") - 1
        return place, to.astype(np.int32)

    sizes = np.zeros(high - low, np.int64)
    for piece in pieces:
        place, to = sent(piece)
        (here,), _ = redistribute(comm, to, [numbers[place]], max_bytes)
        loops.tally(here, low, sizes)
    turned_ptr = pointers(sizes)
    moving, turned = turned_ptr[:-1].copy(), np.empty(int(turned_ptr[-1]), kind)
    for piece in pieces:
        place, to = sent(piece)
        row = _rows_at(ptr, place, first, kind)
        (here, row), _ = redistribute(comm, to, [numbers[place], row], max_bytes)
        loops.bucket(here, low, row, moving, turned)
    return turned_ptr, turned


def _rows_at(ptr: np.ndarray, place: slice, first: int, kind: DTypeLike) -> np.ndarray:
    """The number of the row of each entry in a slice of the entries; rows begin with ``first``."""
    begin, end = min(place.start, int(ptr[-1])), min(place.stop, int(ptr[-1]))
    rows = slice(
        int(np.searchsorted(ptr, begin, side="right")) - 1,
        int(np.searchsorted(ptr, end, side="left")),
    )
    if begin == end:
        return np.empty(0, kind)
    sizes = np.diff(np.clip(ptr[rows.start : rows.stop + 1], begin, end))
    return np.repeat(np.arange(first + rows.start, first + rows.stop, dtype=kind), sizes)


def _far(numbers: np.ndarray, first: int, count: int) -> np.ndarray:
    """The different numbers outside of a range, increasing."""
    found, more, waiting = numbers[:0], [], 0
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        more.append(distinct(some[(some < first) | (some >= first + count)]))
        waiting += len(more[-1])
        if waiting > len(found):  # so each number is looked at a few times only
            found, more, waiting = distinct(np.concatenate([found, *more])), [], 0
    return distinct(np.concatenate([found, *more]))


def finest(comm: Comm, stored: StoredGraph, direction: str, max_bytes: float) -> Level:
    """The column-net hypergraph of M: net j pins j, and every row with an entry in column j.

    Each rank reads a range of the vertices, with about as many arcs as the others.
    """
    bounds = _ranges_of_arcs(stored, comm.size)
    first, last = int(bounds[comm.rank]), int(bounds[comm.rank + 1])
    graph = stored.graph
    with agreed(comm):
        try:
            check_arcs(graph, first, last)
        except UserError as error:
            raise UserError(f"the graph folder is damaged: {error.message}", error.hint) from None
        indptr = np.array(graph.indptr[first : last + 1], np.int64)
    arcs = graph.indices[indptr[0] : indptr[-1]]
    indptr -= indptr[0]
    if direction == "out" and not stored.manifest.symmetric_pattern:
        indptr, arcs = _turned(comm, bounds, bounds, indptr, arcs, max_bytes)
        loops.sort_rows(indptr, arcs)
    net_ptr = np.zeros(len(indptr), np.int64)
    pins = np.empty(len(arcs) + len(indptr) - 1, arcs.dtype)
    end = 0
    for low, high in chunks(indptr, AT_ONCE):
        some = np.array(arcs[indptr[low] : indptr[high]])
        ptr = indptr[low : high + 1] - indptr[low]
        more = loops.with_diagonal(ptr, some, first + low, net_ptr[low : high + 1], pins[end:])
        net_ptr[low + 1 : high + 1] += end
        end += more
        forget_pages(arcs)
    del arcs
    owners = np.arange(last - first, dtype=np.int32)
    return assembled(
        comm, bounds, net_ptr, pins[:end], owners, None, None, max_bytes,
        stored.manifest.symmetric_pattern,
    )  # fmt: skip


def _ranges_of_arcs(stored: StoredGraph, size: int) -> np.ndarray:
    """Ranges of vertices with as many arcs and vertices each, about."""
    indptr, n = stored.graph.indptr, stored.graph.n
    bounds = np.zeros(size + 1, np.int64)
    for rank in range(1, size + 1):
        wanted, low, high = (stored.graph.nnz + n) * rank // size, int(bounds[rank - 1]), n
        while low < high:  # few pages of the file are looked at
            middle = (low + high) // 2
            low, high = (middle + 1, high) if indptr[middle] + middle < wanted else (low, middle)
        bounds[rank] = low
    bounds[-1] = n
    return bounds


def on_root(comm: Comm, piece: np.ndarray) -> np.ndarray:
    """The pieces of all ranks one after the other, on rank 0; nothing elsewhere."""
    (found,), _ = redistribute(comm, np.zeros(len(piece), np.int32), [piece], GATHERED_AT_ONCE)
    return found


GATHERED_AT_ONCE = float(1 << 26)  # bytes
