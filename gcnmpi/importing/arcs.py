"""From the pieces of a file that ranks read to sorted arcs, each at the rank of its row.

The steps are those of an import alone, :mod:`partition.importing.on_disk`, with an exchange between
reading and sorting, and one more for reverses. Whatever waits for a step is in files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gcnmpi.importing.exchange import agreed_writing
from gcnmpi.importing.vertices import Numbering
from gcnmpi.mpi.comm import Comm, maximum, redistribute, reduce_in_place
from partition.importing.arcs import Keys, Settling
from partition.importing.on_disk import Building
from partition.importing.readers.source import Source
from partition.importing.spools import Columns

BUCKETS = 1 << 16  # in which arcs are counted, to cut rows into ranges of equal work
NO_ROWS = np.empty(0, np.int64)


@dataclass
class Spool:
    """Arcs in files, and which of those of the source they are.

    Attributes
    ----------
    columns : Columns
    firsts : list of (int, int, int)
        Of each run of arcs that follow each other in the source: the number of the first one there,
        its place here, and how many they are.
    """

    columns: Columns
    firsts: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, first: int, *columns: np.ndarray | None) -> None:
        """Put arcs behind the others, of which the first has a number in the source."""
        start = self.columns.rows
        self.columns.append(*columns)
        self._note(first, start, self.columns.rows - start)

    def append_runs(self, firsts: list[int], counts: np.ndarray, keys: Keys) -> None:
        """The same of several runs, one after the other."""
        start = self.columns.rows
        self.columns.append(*keys)
        for first, count in zip(firsts, counts.tolist(), strict=True):
            self._note(first, start, count)
            start += count

    def _note(self, first: int, start: int, count: int) -> None:
        if count:
            self.firsts.append((first, start, count))

    def pieces(self, at_once: int) -> list[tuple[int, int, int]]:
        """Runs of at most so many arcs."""
        return [
            (first + skipped, start + skipped, min(at_once, count - skipped))
            for first, start, count in self.firsts
            for skipped in range(0, count, at_once)
        ]

    def in_order(self, at_once: int) -> Iterator[Keys]:
        """The keys in the order of the source."""
        for _, start, count in _together(sorted(self.pieces(at_once)), at_once):
            yield Keys(*self.columns.rows_from(start, count))


def _together(pieces: list[tuple[int, int, int]], at_once: int) -> list[tuple[int, int, int]]:
    """The same pieces; those that follow each other in the file as one, up to ``at_once`` arcs."""
    found: list[tuple[int, int, int]] = []
    for first, start, count in pieces:
        if found and found[-1][1] + found[-1][2] == start and found[-1][2] + count <= at_once:
            found[-1] = (*found[-1][:2], found[-1][2] + count)
        else:
            found.append((first, start, count))
    return found


@dataclass(frozen=True)
class Exchange:
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

    def sent(self, keys: Keys) -> tuple[Keys, np.ndarray]:
        """The keys that come here, rank by rank, and how many from each."""
        to = np.searchsorted(self.bounds, keys.key // self.n, side="right") - 1
        arrays = [column for column in keys if column is not None]
        found, counts = redistribute(self.comm, to.astype(np.int32), arrays, self.max_bytes)
        key, *others = found
        weights = None if keys.weights is None else others.pop(0)
        return Keys(key, weights, None if keys.numbers is None else others.pop(0)), counts


def in_rounds(comm: Comm, count: int) -> int:
    """The largest count of a rank: so many rounds do all take part in."""
    return int(maximum(comm, count))


def numbered(comm: Comm, spool: Spool, numbering: Numbering, path: Path, at_once: int) -> Spool:
    """The arcs by the numbers of vertices, in new files where ranks have to ask for them."""
    if numbering.local:
        return spool
    columns = Columns(path, "source", "target", weighted=spool.columns.weighted)
    made, pieces = Spool(columns), spool.pieces(at_once)
    for piece in _padded(pieces, in_rounds(comm, len(pieces))):
        first, start, count = piece
        source, target, weights, _ = spool.columns.rows_from(start, count)
        ends = numbering.of(np.concatenate((source, target)))
        with agreed_writing(comm):
            made.append(first, ends[:count], ends[count:], weights, None)
    spool.columns.delete()
    return made


def bounds_of(comm: Comm, spool: Spool, numbering: Numbering, at_once: int) -> np.ndarray:
    """Where the range of rows of each rank begins, (P + 1,): as many arcs and rows as the others'.

    Half the work is that of rows, so that no rank has more than twice its share of either, but for
    a bucket of rows that are not told apart.
    """
    n = numbering.n
    width = -(-n // min(n, BUCKETS))
    loads = np.zeros(-(-n // width), np.int64)
    for source, *_ in spool.columns.pieces(at_once, weights=False):
        if numbering.local:
            source = numbering.of(source)
        loads += np.bincount(source // width, minlength=len(loads))
    reduce_in_place(comm, loads)
    work = loads / max(1, loads.sum()) + width / n
    shares = np.arange(1, comm.size) / comm.size * work.sum()
    cuts = np.searchsorted(np.cumsum(work), shares) * width
    return np.concatenate(([0], np.minimum(cuts, n), [n])).astype(np.int64)


def at_their_rows(
    exchange: Exchange, spool: Spool, numbering: Numbering, rules: Settling, path: Path,
    counted: bool,
) -> tuple[Spool, np.ndarray]:  # fmt: skip
    """The arcs of own rows as keys, and how many each row has; the files read from are deleted.

    They are ``counted`` if they keep their numbers in the source.
    """
    comm, rows, n = exchange.comm, exchange.rows, exchange.n
    weighted = spool.columns.weighted
    made = Spool(Columns(path, "key", weighted=weighted, numbered=counted))
    counts = np.zeros(len(rows), np.int64)
    pieces = spool.pieces(exchange.at_once)
    for first, start, count in _padded(pieces, in_rounds(comm, len(pieces))):
        source, target, weights, _ = spool.columns.rows_from(start, count)
        if numbering.local:
            source, target = numbering.of(source), numbering.of(target)
        ends = Source(n, source, target, weights)
        keys, runs = exchange.sent(rules.keys_of(ends, first if counted else None))
        firsts = comm.allgather(first)
        with agreed_writing(comm):
            made.append_runs(firsts, runs, keys)
        counts += np.bincount(keys.key // n - rows.start, minlength=len(rows))
    spool.columns.delete()
    return made, counts


def with_reverses(exchange: Exchange, build: Building, settled: Columns) -> Columns:
    """Settled arcs of all ranks and their reverses, those of own rows."""
    comm, n = exchange.comm, exchange.n
    form = {"weighted": settled.weighted, "numbered": settled.numbered}
    backs = Columns(build.folder / "backs", "key", **form)
    counts = np.zeros(len(build.rows), np.int64)
    starts = list(range(0, settled.rows, exchange.at_once))
    for start in starts + [settled.rows] * (in_rounds(comm, len(starts)) - len(starts)):
        count = min(exchange.at_once, settled.rows - start)
        own = Keys(*settled.rows_from(start, count))
        back, _ = exchange.sent(build.rules.reverses(own, n))
        with agreed_writing(comm):
            backs.append(*back)
        for keys in (own, back):
            counts += np.bincount(keys.key // n - build.rows.start, minlength=len(counts))
    step = max(1, build.most // 4)
    with agreed_writing(comm):
        both = itertools.chain(settled.keys(step), backs.keys(step))
        merged = build.with_reverses(counts, both, settled)
        settled.delete()
        backs.delete()
    return merged


def _padded(pieces: list[tuple[int, int, int]], rounds: int) -> Iterator[tuple[int, int, int]]:
    """The pieces, and then empty ones, so that there are as many as rounds."""
    yield from pieces
    for _ in range(rounds - len(pieces)):
        yield 0, 0, 0
