"""From pieces of a file that ranks read to sorted arcs in a folder, each by the rank of its row.

The steps are those of an import alone, :mod:`partition.importing.arcs`, with an exchange between
reading and sorting, and one more for reverses. Whatever waits for a step is in files.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from gcnmpi.importing.sending import Ranks
from gcnmpi.importing.vertices import SpreadNumbering
from gcnmpi.layout.arcs import own_sum
from gcnmpi.mpi.comm import Comm, agreed, reduce_in_place, slice_of
from partition.graph.graph import ArcData, Graph, chunks, index_dtype
from partition.graph.hashing import MASK64, mixed
from partition.graph.manifest import BETA, Known, described_sum, reverse_excess
from partition.importing.arcs import ArcRules, Building, Columns, DataFiles, Keys
from partition.importing.data_files import ArcFiles, check_classes, class_numbers
from partition.importing.readers.arc_columns import ArcTable, arc_table
from partition.importing.readers.source import Piece, Source
from partition.records import map_npy
from partition.resident import forget_pages

BUCKETS = 1 << 16  # in which arcs are counted, to cut rows into ranges of equal work
FILES = ("indptr", "indices", "weights", "ids")
AT_ONCE = 1 << 20  # arcs that are copied or looked at at once


@dataclass(frozen=True)
class ArcExchange:
    """How arcs go to the ranks of their rows.

    Attributes
    ----------
    ranks : Ranks
    n : int
    bounds : (P + 1,) int64
        Where the range of rows of each rank begins.
    """

    ranks: Ranks
    n: int
    bounds: np.ndarray

    @property
    def rows(self) -> range:
        """The rows of this rank."""
        rank = self.ranks.comm.rank
        return range(*self.bounds[rank : rank + 2].tolist())

    def sent(self, keys: Keys, counts: np.ndarray) -> Keys:
        """The keys that come here, by whose rows ``counts`` are increased."""
        to = np.searchsorted(self.bounds, keys.key // self.n, side="right") - 1
        found, _ = self.ranks.send(to, *(column for column in keys if column is not None))
        arrived = Keys._make(None if column is None else found.pop(0) for column in keys)
        counts += np.bincount(arrived.key // self.n - self.rows.start, minlength=len(counts))
        return arrived


def numbered(ranks: Ranks, read: Columns, numbering: SpreadNumbering, path: Path) -> Columns:
    """The arcs by the numbers of vertices, in new files where ranks have to ask for them."""
    if numbering.homes is None:
        return read
    made = Columns(path, *read.names, weighted=read.weighted)
    for source, target, *data in ranks.rounds(read):
        ends = numbering.asked(ranks, np.concatenate((source, target)))
        with ranks.writing():
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
    exchange: ArcExchange, read: Columns, low: int, first: int | None, rules: ArcRules, path: Path
) -> tuple[Columns, np.ndarray]:
    """The arcs of own rows as keys, and how many each row has; the files read from are deleted.

    ``low`` is the id of the vertex 0, and ``first`` the number of the first arc that is read here,
    where arcs are numbered.
    """
    made = Columns(path, "key", weighted=read.weighted, numbered=first is not None)
    counts = np.zeros(len(exchange.rows), np.int64)
    for source, target, weights, _ in exchange.ranks.rounds(read):
        ends = Source(exchange.n, source - low, target - low, weights)
        numbers = None
        if first is not None:
            numbers = np.arange(first, first + len(source))
            first += len(source)
        keys = exchange.sent(rules.keys_of(ends, numbers), counts)
        with exchange.ranks.writing():
            made.append(*keys)
    read.delete()
    return made, counts


def with_reverses(exchange: ArcExchange, build: Building, settled: Columns) -> Columns:
    """Settled arcs of all ranks and their reverses, those of own rows."""
    ranks, n, step = exchange.ranks, exchange.n, max(1, build.most // 4)
    form = {"weighted": settled.weighted, "numbered": settled.numbered}
    backs = Columns(build.folder / "backs", "key", **form)
    counts = np.zeros(len(build.rows), np.int64)
    for columns in ranks.rounds(settled):
        own = Keys(*columns)
        counts += np.bincount(own.key // n - build.rows.start, minlength=len(counts))
        back = exchange.sent(build.rules.reverses(own, n), counts)
        with ranks.writing():
            backs.append(*back)
    with ranks.writing():
        both = itertools.chain(settled.keys(step), backs.keys(step))
        merged = build.with_reverses(counts, both, settled)
        settled.delete()
        backs.delete()
    return merged


def write_arcs(ranks: Ranks, folder: Path, build: Building, keys: Columns) -> None:
    """Write pointers, targets and weights of sorted keys.

    Every rank has the arcs of its rows, which follow those of the rank before.
    """
    first, total = ranks.before(keys.rows)

    def appending(
        name: str, dtype: np.dtype
    ) -> contextlib.AbstractContextManager[Callable[[np.ndarray], None]]:
        return ranks.appending(folder / f"{name}.npy", dtype, (total,), first)

    with appending("indices", index_dtype(build.n)) as put, agreed(ranks.comm):
        degrees = build.csr(keys, put)
    ends = first + np.append(0, np.cumsum(degrees))  # the last is the first of the next rank
    ranks.write(folder / "indptr.npy", ends, build.n + 1, build.rows.start)
    if keys.weighted:
        with appending("weights", np.dtype(np.float64)) as put, agreed(ranks.comm):
            for _, weights, _ in keys.pieces(AT_ONCE):
                put(weights)


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


class SpreadArcData:
    """Columns of the arcs that a rank reads: those of pieces, and of files with a row for each."""

    def __init__(self, ranks: Ranks, folder: Path, files: ArcFiles) -> None:
        self._ranks, self._files = ranks, files
        self._of_pieces, self._of_files = DataFiles(folder / "data"), DataFiles(folder / "files")
        with agreed(ranks.comm):
            self._arrays = files.mapped()
        self._firsts = np.empty(0, np.int64)  # numbers of the first arcs that ranks have read
        self._forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    def add(self, piece: Piece) -> None:
        """Keep the data of a piece."""
        if len(piece.source):
            self._of_pieces.append(piece.data)

    def all_read(self, counts: list[int]) -> bool:
        """Read the rows of the arcs that each rank has read; returns whether there are any data."""
        comm = self._ranks.comm
        self._firsts = np.cumsum([0, *counts])
        first, last = self._firsts[comm.rank : comm.rank + 2]
        with agreed(comm):
            self._files.check_rows(self._arrays, self._firsts[-1], "it lists")
            for start in range(first, last, AT_ONCE):
                some = slice(start, min(start + AT_ONCE, last))
                rows = {name: array[some] for name, array in self._arrays.items()}
                texts = {
                    name: pa.array(array.tolist(), pa.string())
                    for name, array in rows.items()
                    if array.dtype.kind == "U"
                }
                numbers = {name: array for name, array in rows.items() if name not in texts}
                of_files = arc_table(numbers, self._files.in_files()).columns
                self._of_files.append({**of_files, **texts})
        own = {name: (a.dtype, a.shape[1:]) for name, a in self._table().columns.items()}
        self._forms = dict(ChainMap(*comm.allgather(own)))
        return bool(self._forms)

    def _table(self) -> ArcTable:
        return self._of_pieces.table().with_columns(self._of_files.table())

    def write(self, folder: Path, keys: Columns) -> ArcData:
        """Write the columns of the stored arcs, each of which has that of its arc of the source."""
        ranks, table, forms = self._ranks, self._table(), self._forms
        comm = ranks.comm
        if not forms:
            return ArcData()
        # Labels that are texts are places in a rank's own list, here made those in a list of all.
        texts = list(table.names or ())
        names = sorted(set().union(*comm.allgather(texts)))
        codes = np.searchsorted(np.array(names, str), np.array(texts, str))

        def numbers() -> Iterator[np.ndarray]:
            return (wanted for *_, wanted in ranks.rounds(keys))

        def fetched(name: str) -> Iterator[np.ndarray]:
            dtype, shape = forms[name]
            column = table.columns.get(name, np.empty((0, *shape), dtype))

            def rows(at: np.ndarray) -> np.ndarray:
                found = column[at]
                return codes[found].astype(dtype) if name == "labels" and names else found

            for wanted in numbers():
                rank = np.searchsorted(self._firsts, wanted, side="right") - 1
                yield ranks.ask(rank, wanted - self._firsts[rank], rows)

        first, total = ranks.before(keys.rows)

        def stored(
            name: str, dtype: np.dtype, shape: tuple[int, ...], pieces: Iterator[np.ndarray]
        ) -> np.ndarray:
            path = folder / f"arc_{name}.npy"
            with ranks.appending(path, dtype, (total, *shape), first) as put:
                for piece in pieces:
                    with agreed(comm):
                        put(piece)
            return map_npy(path)

        def classes() -> tuple[np.ndarray | None, tuple[str, ...] | None]:
            values = np.empty(0, np.int64)
            for piece in fetched("labels"):
                values = np.union1d(values, piece)
                with agreed(comm):
                    check_classes(values)
            values = np.unique(np.concatenate(comm.allgather(values)))
            with agreed(comm):
                check_classes(values)
                found, class_names = class_numbers(values, names or None)
            if found.max(initial=-1) < 0:
                return None, class_names
            pieces = (found[np.searchsorted(values, piece)] for piece in fetched("labels"))
            return stored("labels", np.dtype(np.int32), (), pieces), class_names

        data = {
            name: stored(name, *form, fetched(name))
            for name, form in forms.items()
            if name != "labels" or form[1]
        }
        labels, class_names = data.get("labels"), None
        if "labels" in forms and labels is None:
            labels, class_names = classes()
        at, same = first, True
        for wanted in numbers():
            same = same and bool((wanted == np.arange(at, at + len(wanted))).all())
            at += len(wanted)
        ids = None
        if not all(comm.allgather(same)):
            ids = stored("ids", np.dtype(np.int64), (), numbers())
        return ArcData(data.get("features"), labels, {}, ids, class_names)
