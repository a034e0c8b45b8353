"""From pieces of a file that ranks read to sorted arcs in a folder, each by the rank of its row.

The steps are those of an import alone, :mod:`partition.importing.arcs`, with an exchange between
reading and sorting, and one more for reverses. Whatever waits for a step is in files.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.importing.vertices import SpreadNumbering, before
from gcnmpi.layout.arcs import own_sum
from gcnmpi.layout.writing import writing_apart
from gcnmpi.mpi.comm import Comm, agreed, maximum, redistribute, reduce_in_place, slice_of
from partition.errors import UserError
from partition.graph.content import BETA, Known, described_sum, reverse_excess
from partition.graph.graph import Graph, chunks, index_dtype
from partition.graph.hashing import MASK64, mixed
from partition.importing.arcs import ArcRules, Building, Columns, Keys
from partition.importing.readers.source import Source
from partition.resident import forget_pages

BUCKETS = 1 << 16  # in which arcs are counted, to cut rows into ranges of equal work
FILES = ("indptr", "indices", "weights", "ids")
AT_ONCE = 1 << 20  # arcs that are copied or looked at at once


@contextlib.contextmanager
def agreed_writing(comm: Comm) -> Iterator[None]:
    """A block in which a rank writes to files of its own, and that all ranks leave together."""
    with agreed(comm):
        try:
            yield
        except OSError as error:
            what = f"cannot write {error.filename or 'files'}: {error.strerror or error}"
            hint = "arcs are kept there meanwhile: some 60 bytes for each, 100 with weights"
            raise UserError(what, hint) from error


@contextlib.contextmanager
def appending(
    comm: Comm, path: Path, dtype: np.dtype, shape: tuple[int, ...], first: int
) -> Iterator[Callable[[np.ndarray], None]]:
    """Give ``put(rows)``, by which a rank writes its rows of an ``.npy`` from row ``first`` on.

    See :func:`gcnmpi.layout.writing.writing_apart`.
    """
    with writing_apart(comm, path, dtype, shape) as write:

        def put(rows: np.ndarray) -> None:
            nonlocal first
            write(first, rows)
            first += len(rows)

        yield put


def rounds(comm: Comm, columns: Columns, at_once: int) -> Iterator[tuple[Any, ...]]:
    """So many arcs at a time, and in the end none, until no rank has any more."""
    for number in range(int(maximum(comm, -(-columns.rows // at_once)))):
        yield columns.rows_from(number * at_once, at_once)


@dataclass(frozen=True)
class ArcExchange:
    """How arcs go to the ranks of their rows.

    Attributes
    ----------
    bounds : (P + 1,) int64
        Where the range of rows of each rank begins.
    at_once : int
        Arcs that a rank sends in a round.
    """

    comm: Comm
    n: int
    bounds: np.ndarray
    at_once: int
    max_bytes: float

    @property
    def rows(self) -> range:
        """The rows of this rank."""
        return range(*self.bounds[self.comm.rank : self.comm.rank + 2].tolist())

    def sent(self, keys: Keys, counts: np.ndarray) -> Keys:
        """The keys that come here, by whose rows ``counts`` are increased."""
        to = np.searchsorted(self.bounds, keys.key // self.n, side="right") - 1
        arrays = [column for column in keys if column is not None]
        found, _ = redistribute(self.comm, to.astype(np.int32), arrays, self.max_bytes)
        key, *others = found
        weights = None if keys.weights is None else others.pop(0)
        arrived = Keys(key, weights, others.pop() if others else None)
        counts += np.bincount(arrived.key // self.n - self.rows.start, minlength=len(counts))
        return arrived


def numbered(
    comm: Comm, read: Columns, numbering: SpreadNumbering, path: Path, at_once: int,
    max_bytes: float,
) -> Columns:  # fmt: skip
    """The arcs by the numbers of vertices, in new files where ranks have to ask for them."""
    if numbering.homes is None:
        return read
    made = Columns(path, *read.names, weighted=read.weighted, numbered=read.numbered)
    for source, target, *data in rounds(comm, read, at_once):
        ends = numbering.asked(comm, np.concatenate((source, target)), max_bytes)
        with agreed_writing(comm):
            made.append(ends[: len(source)], ends[len(source) :], *data)
    read.delete()
    return made


def bounds_of(comm: Comm, read: Columns, numbering: SpreadNumbering, at_once: int) -> np.ndarray:
    """Where the range of rows of each rank begins, (P + 1,): as many arcs and rows as the others'.

    Half the work is that of rows, so that no rank has more than twice its share of either, but for
    a bucket of rows that are not told apart.
    """
    n = numbering.n
    width = -(-n // min(n, BUCKETS))
    loads = np.zeros(-(-n // width), np.int64)
    for source, *_ in read.pieces(at_once, weights=False):
        loads += np.bincount((source - numbering.low) // width, minlength=len(loads))
    reduce_in_place(comm, loads)
    work = loads / max(1, loads.sum()) + width / n
    shares = np.arange(1, comm.size) / comm.size * work.sum()
    cuts = np.searchsorted(np.cumsum(work), shares) * width
    return np.concatenate(([0], np.minimum(cuts, n), [n])).astype(np.int64)


def at_their_rows(
    exchange: ArcExchange, read: Columns, low: int, rules: ArcRules, path: Path
) -> tuple[Columns, np.ndarray]:
    """The arcs of own rows as keys, and how many each row has; the files read from are deleted.

    ``low`` is the id of the vertex 0.
    """
    made = Columns(path, "key", weighted=read.weighted, numbered=read.numbered)
    counts = np.zeros(len(exchange.rows), np.int64)
    for source, target, weights, numbers in rounds(exchange.comm, read, exchange.at_once):
        ends = Source(exchange.n, source - low, target - low, weights)
        keys = exchange.sent(rules.keys_of(ends, numbers), counts)
        with agreed_writing(exchange.comm):
            made.append(*keys)
    read.delete()
    return made, counts


def with_reverses(exchange: ArcExchange, build: Building, settled: Columns) -> Columns:
    """Settled arcs of all ranks and their reverses, those of own rows."""
    comm, n, step = exchange.comm, exchange.n, max(1, build.most // 4)
    form = {"weighted": settled.weighted, "numbered": settled.numbered}
    backs = Columns(build.folder / "backs", "key", **form)
    counts = np.zeros(len(build.rows), np.int64)
    for columns in rounds(comm, settled, exchange.at_once):
        own = Keys(*columns)
        counts += np.bincount(own.key // n - build.rows.start, minlength=len(counts))
        back = exchange.sent(build.rules.reverses(own, n), counts)
        with agreed_writing(comm):
            backs.append(*back)
    with agreed_writing(comm):
        both = itertools.chain(settled.keys(step), backs.keys(step))
        merged = build.with_reverses(counts, both, settled)
        settled.delete()
        backs.delete()
    return merged


def write_arcs(comm: Comm, folder: Path, build: Building, keys: Columns) -> None:
    """Write pointers, targets and weights of sorted keys.

    Every rank has the arcs of its rows, which follow those of the rank before.
    """
    first, total = before(comm, keys.rows)
    indices, dtype = folder / "indices.npy", index_dtype(build.n)
    with appending(comm, indices, dtype, (total,), first) as put, agreed(comm):
        degrees = build.csr(keys, put)
    ends = first + np.append(0, np.cumsum(degrees))  # the last is the first of the next rank
    shape, begin = (build.n + 1,), build.rows.start
    with appending(comm, folder / "indptr.npy", ends.dtype, shape, begin) as put, agreed(comm):
        put(ends)
    if keys.weighted:
        kind = np.dtype(np.float64)
        with appending(comm, folder / "weights.npy", kind, (total,), first) as put, agreed(comm):
            for _, weights, _ in keys.pieces(AT_ONCE):
                put(weights)


def write_ids(comm: Comm, folder: Path, numbering: SpreadNumbering) -> None:
    """Write the ids of the vertices, where these are not their numbers."""
    if numbering.share is not None:
        first, ids = numbering.share
        shape = (numbering.n,)
        with appending(comm, folder / "ids.npy", ids.dtype, shape, first) as put, agreed(comm):
            put(ids)


def known_of(comm: Comm, graph: Graph, rows: range) -> Known:
    """Checksums of the arrays of a graph, and whether A is symmetric: each rank finds a share."""
    arrays = {name: a for name in FILES if (a := getattr(graph, name)) is not None}
    totals = [own_sum(a, slice_of(len(a), comm.rank, comm.size)) for a in arrays.values()]
    sums = np.array([*totals, *_excesses(graph, rows)], np.uint64)
    reduce_in_place(comm, sums)
    *totals, pattern, values = sums.tolist()
    found = {k: described_sum(arrays[k], total) for k, total in zip(arrays, totals, strict=True)}
    return Known((pattern == 0, pattern == 0 and values == 0), found)


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
