"""Reading the arcs of a graph folder in parallel: each rank those of its 1/P of the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.layout.loading import ENTRY_ON_ITS_WAY, readers
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import (
    Comm,
    agreed,
    maximum,
    once_a_node,
    redistribute,
    reduce_in_place,
    slice_of,
)
from gcnmpi.options.config import GraphConfig
from partition.errors import UserError
from partition.graph.aggregation import entry_values, summed, with_loops
from partition.graph.graph import added_up, check_arcs, chunks
from partition.graph.hashing import MASK64
from partition.graph.manifest import (
    ARC_FILES,
    check_sums,
    check_symmetry,
    described_sum,
    part_of_sum,
    reverse_excess,
)
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import left_out
from partition.records import NUMBERS, TEXTS, map_npy
from partition.resident import forget_pages

ENTRIES_AT_ONCE = 1 << 20
SUMMED_AT_ONCE = 1 << 22  # numbers whose pages are kept until they are in a checksum


@dataclass(frozen=True)
class Entries:
    """Arcs of the graph as entries of Ã or M, in (row, column) order of source.

    Rows and columns are global ids, (m,) integers; weights are float64, or all 1 where None.
    Numbers, (m,) int64, are those of arcs in the folder, where each entry is one of them.
    """

    row: np.ndarray
    column: np.ndarray
    weight: np.ndarray | None
    number: np.ndarray | None = None


@dataclass(frozen=True)
class EntriesOfM:
    """The entries of M that come of the arcs that a rank reads, piece by piece, as often as asked.

    For layouts in which a row of M is on several ranks: each entry is on one rank only.

    Attributes
    ----------
    comm : Comm
    source : Source
    options : GraphConfig
    max_bytes : float
        Bound of the buffers of a piece.
    degree : (n,) float64, optional
        The row sums of Ã, where M is normalised.
    turned : bool
        Whether they are the entries of Mᵀ.
    """

    comm: Comm
    source: Source
    options: GraphConfig
    max_bytes: float
    degree: np.ndarray | None
    turned: bool = False

    @property
    def transposed(self) -> EntriesOfM:
        """The entries of Mᵀ, or of M again."""
        return replace(self, turned=not self.turned)

    def pieces(self, values: bool = True) -> Iterator[Entries]:
        """All entries, in as many rounds on all ranks; or only where they are."""
        facts = self.comm, self.source.stored, self.source.direction, self.max_bytes
        for piece in arc_pieces(*facts, check=False, loops=self.options.self_loops):
            row, column, weight = piece.row, piece.column, piece.weight
            if values and self.degree is not None:
                with agreed(self.comm):
                    how = self.options.normalize
                    weight = entry_values(row, column, weight, self.degree, how)
            yield Entries(column, row, weight) if self.turned else Entries(row, column, weight)


@contextmanager
def entries_of_m(
    comm: Comm, source: Source, options: GraphConfig, max_bytes: float
) -> Iterator[EntriesOfM]:
    """The entries of M; the folder is checked. Meanwhile all degrees are held once a node."""
    if options.normalize == "none":
        for _ in arc_pieces(comm, source.stored, source.direction, max_bytes, check=True):
            pass
        yield EntriesOfM(comm, source, options, max_bytes, None)
        return
    degree = once_a_node(comm, _own_degrees(comm, source, options.self_loops, max_bytes))
    yield EntriesOfM(comm, source, options, max_bytes, degree.array)
    degree.free()


def _own_degrees(comm: Comm, source: Source, loops: bool, max_bytes: float) -> np.ndarray:
    """The row sums of Ã of this rank's contiguous 1/P of the vertices, float64; all is checked."""
    stored = source.stored

    def rows(check: bool) -> Iterator[Weights]:
        for piece in arc_pieces(comm, stored, source.direction, max_bytes, check, loops):
            yield piece.row, piece.weight

    return sums_on_disk(comm, rows, stored.graph.n, max_bytes)


Weights = tuple[np.ndarray, np.ndarray | None]
"""The rows or columns of some entries, (m,) integers, and their weights; None: all are 1."""


def sums_on_disk(
    comm: Comm, entries: Callable[[bool], Iterable[Weights]], n: int, max_bytes: float
) -> np.ndarray:
    """Sums of entries that are spread over the ranks, by the row or column that each is in.

    Each rank gets them for its contiguous 1/P of all n, float64. ``entries`` gives those that a
    rank has read, a piece at a time, in as many rounds on all ranks; its argument says whether it
    is asked for the first time.
    """
    mine, again = slice_of(n, comm.rank, comm.size), False

    def arriving() -> Iterator[Weights]:
        nonlocal again
        for lines, weight in entries(not again):
            arrays = [lines] if weight is None else [lines, weight]
            (own, *some), _ = redistribute(comm, readers(comm, lines, n), arrays, max_bytes)
            yield own - mine.start, some[0] if some else None
        again = True

    return summed(arriving, mine.stop - mine.start)


def arc_pieces(
    comm: Comm,
    stored: StoredGraph,
    direction: str,
    max_bytes: float,
    check: bool,
    loops: bool = False,
    *,
    parallel: bool = False,
    one_loop: bool = False,
) -> Iterator[Entries]:
    """The arcs of this rank's contiguous 1/P of the rows on disk, in as many rounds on all ranks.

    Parallel ones are added up; with ``parallel``, they come one by one, and with numbers; with
    ``one_loop`` of a vertex's self-loops only the first. Arcs that a task on links holds out are
    left out. ``max_bytes`` bounds what a piece takes until it is
    sent. With ``check`` a UserError is raised on all ranks if no graph has such arcs, or, when the
    last piece has been taken, the manifest is not theirs. With ``loops`` the self-loops that Ã has
    beside the arcs are among the entries.
    """
    mine = slice_of(stored.graph.n, comm.rank, comm.size)
    if check:
        with agreed(comm):
            try:
                check_arcs(stored.graph, mine.start, mine.stop)
            except UserError as error:
                message = f"the graph folder is damaged: {error.message}"
                raise UserError(message, error.hint) from None
    entries = max(1, min(ENTRIES_AT_ONCE, int(max_bytes // ENTRY_ON_ITS_WAY)))
    cuts = list(chunks(stored.graph.indptr[mine.start : mine.stop + 1], entries))
    rounds = int(maximum(comm, len(cuts)))
    excess, last = 0, (mine.stop - mine.start,) * 2
    for begin, end in cuts + [last] * (rounds - len(cuts)):
        source, target, weight = _read(stored, mine.start + begin, mine.start + end)
        if check:
            excess += _excess(stored, source, target, weight)
        arcs = source, target, weight
        found = _entries(stored, direction, mine.start + begin, *arcs, parallel=parallel)
        if one_loop and stored.manifest.parallel:
            found = without_repeated_loops(found)
        if loops:  # an arc v→v is read where v is: its rank knows whether it is missing
            vertices = range(mine.start + begin, mine.start + end)
            found = Entries(*with_loops(found.row, found.column, found.weight, vertices))
        yield found
        for array in (stored.graph.indices, stored.graph.weights):
            if array is not None:
                forget_pages(array)
    if check:
        check_content(comm, stored, ARC_FILES, excess & MASK64)


def _read(
    stored: StoredGraph, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sources, targets and weights of the arcs of some rows on disk."""
    graph = stored.graph
    indptr = np.asarray(graph.indptr[first : last + 1])
    some = slice(int(indptr[0]), int(indptr[-1]))
    target = np.asarray(graph.indices[some])
    source = np.repeat(np.arange(first, last, dtype=target.dtype), np.diff(indptr))
    weight = None if graph.weights is None else np.asarray(graph.weights[some], np.float64)
    return source, target, weight


def _excess(
    stored: StoredGraph, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None
) -> int:
    """The share of some arcs in the sum that is 0 where arcs are as symmetric as they should be."""
    manifest = stored.manifest
    if not manifest.symmetric_pattern:
        return 0
    return reverse_excess(source, target, weight if manifest.symmetric_values else None)


def _entries(
    stored: StoredGraph,
    direction: str,
    row: int,
    source: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    *,
    parallel: bool = False,
) -> Entries:
    """The entries that these arcs are, of whole rows on disk from the number ``row``."""
    graph, manifest = stored.graph, stored.manifest
    first = int(graph.indptr[row])
    number = np.arange(first, first + len(source)) if parallel else None
    if stored.pairs is not None:
        some = slice(first, first + len(source))
        relation = None if graph.arc_type is None else np.asarray(graph.arc_type[some])
        stay = ~left_out(stored.pairs, source, target, graph.n, relation)
        source, target = source[stay], target[stay]
        weight, number = (None if x is None else x[stay] for x in (weight, number))
    if manifest.parallel and not parallel:
        source, target, weight = added_up(source, target, weight)
    of_row, of_column = (target, source) if direction == "in" else (source, target)
    return Entries(of_row, of_column, weight, number)


def without_repeated_loops(of: Entries) -> Entries:
    """Entries of whole rows on disk without self-loops behind the first of their vertex."""
    loops = np.flatnonzero(of.row == of.column)  # those of a vertex follow each other
    again = loops[1:][of.row[loops[1:]] == of.row[loops[:-1]]]
    weight, number = (
        None if array is None else np.delete(array, again) for array in (of.weight, of.number)
    )
    return Entries(np.delete(of.row, again), np.delete(of.column, again), weight, number)


def check_content(comm: Comm, stored: StoredGraph, names: Collection[str], excess: int = 0) -> None:
    """Refuse files that do not hold what the manifest says: each rank reads 1/P, one reduction.

    Files are named without ``.npy``; only those are read that the folder has, and has a checksum
    of. ``excess`` is this rank's share of a sum that is 0 for symmetric arcs.
    """
    path, expected = stored.path, stored.manifest.sums
    with agreed(comm):
        arrays = {
            name: map_npy(path / f"{name}.npy", kinds=NUMBERS + TEXTS)
            for name in sorted(expected)
            if name in names
        }
    totals = [
        own_sum(array, slice_of(len(array), comm.rank, comm.size)) for array in arrays.values()
    ]
    sums = np.array([*totals, excess], np.uint64)
    reduce_in_place(comm, sums)
    with agreed(comm):
        *totals, excess = sums.tolist()
        check_symmetry(path, excess)
        found = {
            name: described_sum(array, total)
            for (name, array), total in zip(arrays.items(), totals, strict=True)
        }
        check_sums(path, found, expected)


def own_sum(array: np.ndarray, mine: slice) -> int:
    """The share of some rows in the checksum of a mapped array; their pages are not kept."""
    step, total = max(1, SUMMED_AT_ONCE * len(array) // max(1, array.size)), 0
    for start in range(mine.start, mine.stop, step):
        total += part_of_sum(array, start, min(start + step, mine.stop))
        forget_pages(array)
    return total & MASK64
