"""A graph in memory: arcs, what vertices and arcs have, and what can be asked of these.

The adjacency A is kept in CSR form with **row = source**: ``indices[indptr[s]:indptr[s+1]]``
are the targets of the arcs that leave vertex s, increasing; without repetition, unless arcs are
parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # .sparse takes 0.3 s, when it is first used: tools need none of it

from partition.errors import UserError
from partition.graph.hashing import key, mixed
from partition.graph.relations import Relation, Schema, VertexTypes, relation_dtype, schema_fault
from partition.resident import let_go

# Features are kept as CSR where at most this share of them is not 0, and they would take so many
# bytes: small ones are better aggregated once, and the result, which is dense, kept.
_MOST_FILLED = 0.05
LEAST_BYTES = 1 << 26
FORMS = ("auto", "dense", "sparse")
SPARSE_FILES = ("features_indptr", "features_indices", "features_data")
_LOOKED_AT = 1 << 24  # numbers that are looked at at once


def slices(count: int, at_once: int) -> Iterator[slice]:
    """Cut 0 … count − 1 into ranges of at most so many."""
    for start in range(0, count, at_once):
        yield slice(start, min(start + at_once, count))


def segments(indptr: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of the chosen rows of a CSR pattern are, and how many each has."""
    counts = np.asarray(indptr[chosen + 1] - indptr[chosen], dtype=np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(indptr[chosen] - (ends - counts), counts), counts


@dataclass(frozen=True, eq=False)
class SparseRows:
    """An (n, width) matrix, by its entries that are not 0; column numbers rise within a row.

    A slice of rows, or of rows and columns, is another view; rows that are picked by their numbers
    come as a dense array. So code that reads arrays on disk reads this too.

    Attributes
    ----------
    indptr : (n + 1,) int64
        Where rows begin in ``indices`` and ``data``, which may have more entries than these rows'.
    indices : (entries,) int32
    data : (entries,) float32
    width : int
    columns : slice
        Those that are seen.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    width: int
    columns: slice = field(default_factory=lambda: slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns are seen."""
        return len(self), len(range(*self.columns.indices(self.width)))

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers."""
        return self.data.dtype

    @property
    def flags(self) -> Any:
        """The flags of the array on disk."""
        return self.data.flags

    @property
    def base(self) -> np.ndarray:
        """The array that holds the memory of the numbers."""
        return self.data

    ndim = 2

    @property
    def size(self) -> int:
        """Numbers, zeros among them."""
        rows, columns = self.shape
        return rows * columns

    @property
    def nbytes(self) -> int:
        """Bytes as a dense array."""
        return self.size * self.dtype.itemsize

    @property
    def entries(self) -> int:
        """How many are stored, of all columns."""
        return int(self.indptr[-1] - self.indptr[0])

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, key: Any) -> Any:
        rows, columns = key if isinstance(key, tuple) else (key, self.columns)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step), columns]
            stop = max(start, stop)
            indptr = self.indptr[start : stop + 1]
            return SparseRows(indptr, self.indices, self.data, self.width, columns)
        numbers = np.asarray(rows)
        if numbers.dtype.kind == "b":
            numbers = np.flatnonzero(numbers)
        return self._dense(numbers)[:, columns]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The dense array it stands for."""
        dense = self._dense(np.arange(len(self)))[:, self.columns]
        return dense.astype(dtype or self.dtype, copy=False)

    def tobytes(self) -> bytes:
        """Bytes of the dense array."""
        return np.asarray(self).tobytes()

    def files(self) -> dict[str, np.ndarray]:
        """The arrays that a graph folder keeps, of all columns, by the names of their files."""
        some = slice(int(self.indptr[0]), int(self.indptr[-1]))
        indptr = np.asarray(self.indptr)
        arrays = indptr - some.start if some.start else indptr, self.indices[some], self.data[some]
        return dict(zip(SPARSE_FILES, arrays, strict=True))

    def picked(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries of some rows, one after the other: how many each has, columns and numbers."""
        places, counts = segments(np.asarray(self.indptr), rows)
        return counts, np.asarray(self.indices[places]), np.asarray(self.data[places])

    def _dense(self, rows: np.ndarray) -> np.ndarray:
        counts, columns, values = self.picked(rows)
        dense = np.zeros((len(rows), self.width), self.dtype)
        dense[np.repeat(np.arange(len(rows)), counts), columns] = values
        return dense


def kept_form(
    features: np.ndarray | SparseRows | None, form: str = "auto"
) -> np.ndarray | SparseRows | None:
    """Features as a folder keeps them: CSR or a dense array.

    ``form`` is one of ``FORMS``. "auto": sparse features stay so, and dense ones become so where
    that is worth it.
    """
    if form == "dense" and features is not None:
        return np.asarray(features)
    worth = features is not None and (form == "sparse" or features.nbytes >= LEAST_BYTES)
    if features is None or isinstance(features, SparseRows) or not worth:
        return features
    n, width = features.shape
    step = max(1, _LOOKED_AT // max(1, width))
    entries = sum(int(np.count_nonzero(features[some])) for some in slices(n, step))
    if not 0 < entries <= features.size * (1 if form == "sparse" else _MOST_FILLED):
        return features
    counts, columns, values = [], [], []
    for some in slices(n, step):
        row, column = np.nonzero(features[some])
        counts.append(np.bincount(row, minlength=some.stop - some.start))
        columns.append(column.astype(np.int32))
        values.append(features[some][row, column].astype(np.float32))
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return SparseRows(indptr, np.concatenate(columns), np.concatenate(values), width)


def check_rows(rows: SparseRows, first: int, last: int) -> str | None:
    """The fault of rows first … last − 1, None if they have none. They are read once."""
    starts = np.asarray(rows.indptr[first : last + 1])
    if (starts[1:] < starts[:-1]).any() or starts[0] < 0 or starts[-1] > len(rows.indices):
        return "row pointers of its features do not rise"
    columns = np.asarray(rows.indices[starts[0] : starts[-1]])
    if len(columns) and (columns.min() < 0 or columns.max() >= rows.width):
        return "a column of its features is outside of them"
    inside = np.ones(len(columns), bool)
    begins = starts[:-1] - starts[0]
    inside[begins[begins < len(columns)]] = False
    if (columns[1:] <= columns[:-1])[inside[1:]].any():
        return "columns of its features do not rise within a row"
    return None


# Words that data of vertices and of arcs share.
MASKS = ("train", "val", "test")
UNLABELLED = -1
AGAIN = "import the graph again"
AT_ONCE = 1 << 22  # numbers that are looked at at once


def _classes_of(labels: np.ndarray | None) -> int:
    return 0 if labels is None else max(0, int(np.max(labels, initial=-1)) + 1)


@dataclass(frozen=True)
class ArcData:
    """Columns with a row for each stored arc, in the order of the arcs (plain or mapped arrays).

    Attributes
    ----------
    features : (nnz, d) float32, optional
    labels : (nnz,) int32, or (nnz, tasks) float32 or float64, optional
        Classes, −1 for an arc without one; or numbers to be learned, NaN where one is unknown.
    masks : mapping of "train" / "val" / "test" to (nnz,) bool
    ids : (nnz,) int64, optional
        The number in the source, from 0, of the arc that the data are from; where None, the number
        of the stored arc itself.
    class_names : tuple of str, optional
        Names of the classes, where they are not their numbers.
    """

    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Columns of the features; 0 without them."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes: the largest label + 1; 0 where labels are none."""
        return 0 if self.targets else _classes_of(self.labels)

    @property
    def targets(self) -> int:
        """Columns of labels that are numbers; 0 where they are none."""
        return 0 if self.labels is None or self.labels.ndim == 1 else int(self.labels.shape[1])

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays that there are, by the names of their files."""
        named = {"arc_features": self.features, "arc_labels": self.labels, "arc_ids": self.ids}
        if not self.classes and not self.targets:
            named["arc_labels"] = None
        named |= {f"arc_{name}_mask": self.masks.get(name) for name in MASKS}
        return {name: array for name, array in named.items() if array is not None}


DIRECTIONS = ("in", "out")
REVERSED = {"in": "out", "out": "in"}
READ = 1 << 22  # arcs that are read at once
_STEP = 1 << 20  # entries that are looked at at once


@dataclass(frozen=True)
class Graph:
    """A directed graph with optional vertex data (plain or memory-mapped arrays).

    Attributes
    ----------
    indptr : (n + 1,) int64
    indices : (nnz,) int32, or int64 where n does not fit
        Targets of the arcs of each source, increasing; each once, unless arcs are parallel.
    weights : (nnz,) float64, optional
        Weights of the arcs; 1 where None.
    features : (n, d) float32, optional
        An array, or an object that reads like one.
    labels : (n,) int32, optional
        Class of each vertex, −1 where it has none.
    masks : mapping of "train" / "val" / "test" to (n,) bool, or to (n, splits) bool
        A column for each split; a mask without columns is the same in all of them.
    class_names : tuple of str, optional
        Names of the classes, where they are not their numbers.
    ids : (n,) int64 or str, optional
        The vertices' ids in the source file, where they were not 0..n−1.
    targets : (n, c) float32 or float64, optional
        Numbers to be learned, or several labels a vertex as 0 and 1; NaN where one is unknown.
    arc_data : ArcData
        Columns in the order of the arcs.
    parallel : bool
        There may be several arcs from one vertex to another; see :func:`merged`.
    vertex_types : VertexTypes, optional
        Ranges of the vertices, in a heterogeneous graph.
    relations : tuple of Relation
        Its relations, in the order of their numbers.
    arc_type : (nnz,) uint8 or uint16, optional
        The number of the relation of each arc; of parallel arcs it does not fall.
    type_features : mapping of str to (n_type, d_type) float32
        Features of types of vertices, where they are not ``features`` of all vertices.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None = None
    features: np.ndarray | SparseRows | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    targets: np.ndarray | None = None
    arc_data: ArcData = field(default_factory=ArcData)
    parallel: bool = False
    vertex_types: VertexTypes | None = None
    relations: tuple[Relation, ...] = ()
    arc_type: np.ndarray | None = None
    type_features: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many vertices there are."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of stored arcs."""
        return len(self.indices)

    @property
    def classes(self) -> int:
        """Number of classes: the largest label + 1, 0 without labels."""
        return _classes_of(self.labels)

    @property
    def splits(self) -> int:
        """Number of splits into masks; 1 also without masks."""
        return max((mask.shape[1] for mask in self.masks.values() if mask.ndim == 2), default=1)

    @property
    def schema(self) -> Schema:
        """The types of vertices and relations."""
        types = self.vertex_types
        widths = tuple((name, x.shape[1]) for name, x in self.type_features.items())
        return Schema(types.names if types else (), self.relations, widths)

    def features_of(self, name: str) -> np.ndarray | None:
        """Features of the vertices of a type, (n_type, d_type) float32; None where it has none."""
        if self.vertex_types is None:
            raise UserError(f"there is no vertex type {name!r}: the graph has no types")
        own, found = self.vertex_types.range(name), self.type_features.get(name)
        if found is None and self.features is not None:
            return self.features[own.start : own.stop]
        return found

    def adjacency(self) -> scipy.sparse.csr_array:
        """A as a SciPy matrix of float64 that shares the index arrays."""
        data = np.ones(self.nnz) if self.weights is None else np.asarray(self.weights)
        arrays = data, np.asarray(self.indices), np.asarray(self.indptr)
        return scipy.sparse.csr_array(arrays, shape=(self.n, self.n))


def index_dtype(n: int) -> np.dtype:
    """The dtype of vertex numbers 0..n−1 on disk and in memory."""
    return np.dtype(np.int32 if n < 2**31 else np.int64)


def arc_places(
    indptr: np.ndarray, indices: np.ndarray, source: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Where ``target`` stands in the row of ``source`` of a CSR pattern; −1 where it does not.

    (m,) int64 of two (m,) int64: a binary search in all rows at once, which are increasing.
    """
    low, high = indptr[source], indptr[source + 1]
    end = high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below = open_ & (indices[np.minimum(middle, len(indices) - 1)] < target)
        low = np.where(below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    place = np.where(low < end, low, -1)
    there = np.flatnonzero(low < end)
    place[there[indices[low[there]] != target[there]]] = -1
    return place


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different ones among some integers, increasing.

    As ``numpy.unique``, which looks integers up in a hash table: sorting them is many times faster.
    """
    found = np.sort(numbers, axis=None)
    return found[first_of_equals(found)]


def first_of_equals(*columns: np.ndarray) -> np.ndarray:
    """Where rows of several columns, (m,) each, differ from the row before: (m,) bool."""
    differs = [column[1:] != column[:-1] for column in columns]
    return np.append(True, reduce(np.logical_or, differs))[: len(columns[0])]


def check_arcs(graph: Graph, first: int = 0, last: int | None = None) -> None:
    """Refuse arcs of the vertices first..last−1, or of all, that no graph has; in bounded memory.

    Whoever indexes by the numbers in a file has to do this before: compiled code does not look. A
    UserError if ``indptr`` does not increase or leaves the arcs, a target is outside 0..n−1, the
    targets of a vertex do not increase, or a weight is not finite. Parallel arcs may repeat one.
    """
    last = graph.n if last is None else last
    for start in range(first, last, _STEP):
        ends = graph.indptr[start : min(start + _STEP, last) + 1]
        if ends[0] < 0 or ends[-1] > graph.nnz or (ends[1:] < ends[:-1]).any():
            raise UserError("indptr.npy does not increase", AGAIN)
    ends = graph.indptr[first : last + 1]
    begin, end = int(ends[0]), int(ends[-1])
    for start in range(begin, end, _STEP):
        stop = min(start + _STEP, end)
        target = np.asarray(graph.indices[max(start - 1, begin) : stop])
        if target.min() < 0 or target.max() >= graph.n:
            raise UserError(f"indices.npy has a vertex outside 0..{graph.n - 1}", AGAIN)
        fall = np.less if graph.parallel else np.less_equal
        falls = max(start - 1, begin) + 1 + np.flatnonzero(fall(target[1:], target[:-1]))
        if (ends[np.searchsorted(ends, falls)] != falls).any():
            raise UserError("the targets of a vertex in indices.npy do not increase", AGAIN)
        if graph.weights is not None and not np.isfinite(graph.weights[start:stop]).all():
            raise UserError("weights.npy has a weight that is not finite", AGAIN)


def check_targets(graph: Graph, classes: int, on: str = "vertices") -> None:
    """A UserError if a label is outside −1..classes−1, or a target is infinite."""
    rows = examples_of(graph, on)
    labels, targets = ("labels", "targets") if on == VERTICES else ("arc_labels",) * 2
    step = max(1, _STEP // (1 if rows.targets is None else rows.targets.shape[1]))
    for some in slices(rows.n, step):
        if rows.labels is not None:
            least, most = rows.labels[some].min(), rows.labels[some].max()
            if least < UNLABELLED or most >= classes:
                raise UserError(f"{labels}.npy has a label outside -1..{classes - 1}", AGAIN)
        if rows.targets is not None and np.isinf(rows.targets[some]).any():
            raise UserError(f"{targets}.npy has a target that is infinite", AGAIN)


def merged(graph: Graph) -> Graph:
    """The graph with one arc from one vertex to another, as M counts them: weights are added.

    The graph itself where no arcs are parallel; otherwise with arrays of arcs in memory, and
    without data of arcs and their relations.
    """
    if not graph.parallel:
        return graph
    weights = None if graph.weights is None else np.asarray(graph.weights)
    source, target, weights = added_up(arcs(graph), np.asarray(graph.indices), weights)
    indptr = np.searchsorted(source, np.arange(graph.n + 1)).astype(np.int64)
    return replace(
        graph, indptr=indptr, indices=target, weights=weights, arc_data=ArcData(), parallel=False,
        relations=(), arc_type=None,
    )  # fmt: skip


def added_up(
    source: np.ndarray, target: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources and targets of arcs, each pair once, and the sums of the weights of its arcs.

    Arcs of a pair, (m,) integers, follow each other; weights are 1 where None. Sums are float64.
    """
    start = np.flatnonzero(first_of_equals(source, target))
    if weights is None:
        sums = np.diff(start, append=len(source)).astype(np.float64)
    else:
        sums = np.add.reduceat(weights, start) if len(start) else np.zeros(0)
    return source[start], target[start], sums


def symmetry(graph: Graph) -> tuple[bool, bool]:
    """Whether the pattern of A is symmetric, and whether its values are too; in bounded memory."""
    # Rows in their order list the sources of every target in theirs: as its row has to.
    place, ends = np.array(graph.indptr[:-1]), np.asarray(graph.indptr[1:])
    equal = True
    for first, last in chunks(graph.indptr, max(graph.n, READ)):
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        target = np.asarray(graph.indices[begin:end])
        starts = (graph.indptr[first : last + 1] - begin).astype(target.dtype)
        arrays, shape = (np.arange(end - begin), target, starts), (last - first, graph.n)
        block = scipy.sparse.csr_array(arrays, shape=shape).tocsc()
        counts = np.diff(block.indptr)
        if (place + counts > ends).any():
            return False, False
        there = np.repeat(place - block.indptr[:-1], counts) + np.arange(end - begin)
        if (graph.indices[there] != block.indices + first).any():
            return False, False
        if graph.weights is not None and equal:
            equal = np.array_equal(graph.weights[there], graph.weights[begin:end][block.data])
        place += counts
    return True, equal


def arcs(graph: Graph) -> np.ndarray:
    """The source of every stored arc, (nnz,), beside ``graph.indices``, its target."""
    numbers = np.arange(graph.n, dtype=graph.indices.dtype)
    return np.repeat(numbers, np.diff(graph.indptr))


def arc_pieces(graph: Graph, least: int = 0) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """The arcs a range of sources at a time, see :func:`chunks`: (first, last, source, target).

    A piece has ``READ`` arcs, or ``least``, if that is more.
    """
    number = np.arange(graph.n, dtype=graph.indices.dtype)
    for first, last in chunks(graph.indptr, max(least, READ)):
        target = np.asarray(graph.indices[graph.indptr[first] : graph.indptr[last]])
        source = np.repeat(number[first:last], np.diff(graph.indptr[first : last + 1]))
        yield first, last, source, target


def row_sizes(graph: Graph, direction: str = "in") -> np.ndarray:
    """Stored entries of each row of M with its full diagonal, (n,) int64: a vertex's work.

    The sizes of columns are the row sizes of the other direction.
    """
    sizes = np.ones(graph.n, dtype=np.int64)
    if direction == "out":
        sizes += np.diff(graph.indptr)
    for _, _, source, target in arc_pieces(graph, graph.n):
        sizes[target[target == source]] -= 1
        if direction == "in":
            sizes += np.bincount(target, minlength=graph.n)
    return sizes


def of_split(graph: Graph, split: int) -> Graph:
    """The graph with the masks of one split, by its number from 0, (n,) bool each."""
    if not 0 <= split < graph.splits:
        several = f"the splits are 0 to {graph.splits - 1}"
        hint = several if graph.splits > 1 else "leave --split out"
        raise UserError(f"there is no split {split}: the masks have {graph.splits}", hint)
    masks = {name: mask if mask.ndim == 1 else mask[:, split] for name, mask in graph.masks.items()}
    return replace(graph, masks=masks)


def chunks(indptr: np.ndarray, limit: int = 1 << 22) -> Iterator[tuple[int, int]]:
    """Cut the rows of a CSR pattern into ranges (first, last) of at most ``limit`` entries.

    A single row of more entries is a range of its own.
    """
    first, n = 0, len(indptr) - 1
    while first < n:
        last = int(np.searchsorted(indptr, indptr[first] + limit, side="right")) - 1
        last = min(max(last, first + 1), n)
        yield first, last
        first = last


VERTICES, ARCS = "vertices", "arcs"
ONE_OF = {VERTICES: "vertex", ARCS: "arc"}

# Files of labels and masks.
TARGET_FILES = {
    VERTICES: ("labels", "targets", *(f"{name}_mask" for name in MASKS)),
    ARCS: ("arc_labels", *(f"arc_{name}_mask" for name in MASKS)),
}


@dataclass(frozen=True)
class Examples:
    """Labels and masks in the order of a graph folder, with a row for each vertex or each arc.

    Attributes
    ----------
    n : int
        How many rows there are.
    labels, targets, masks, ids, class_names
        As those of :class:`~partition.graph.graph.Graph`; ``masks`` are those of one split.
    """

    n: int
    labels: np.ndarray | None
    targets: np.ndarray | None
    masks: Mapping[str, np.ndarray]
    ids: np.ndarray | None
    class_names: tuple[str, ...] | None

    @property
    def classes(self) -> int:
        """Number of classes: the largest label + 1, 0 without labels."""
        return _classes_of(self.labels)


def examples_of(graph: Graph, on: str) -> Examples:
    """The vertices of a graph, or its arcs; ``on`` is ``VERTICES`` or ``ARCS``."""
    of: Graph | ArcData = graph if on == VERTICES else graph.arc_data
    labels = graph.labels, graph.targets
    if isinstance(of, ArcData):
        labels = (None, of.labels) if of.targets else (of.labels, None)
    n = graph.n if on == VERTICES else graph.nnz
    return Examples(n, *labels, of.masks, of.ids, of.class_names)


def known_rows(graph: Graph | Examples) -> np.ndarray | None:
    """Which vertices or arcs have a label, or a target that is known, (n,) bool; None without."""
    known = None
    if graph.labels is not None and graph.classes:
        known = np.asarray(graph.labels) != UNLABELLED
    if graph.targets is not None:
        targets = np.empty(graph.n, bool)
        for piece in slices(graph.n, AT_ONCE):
            targets[piece] = ~np.isnan(graph.targets[piece]).all(axis=1)
        known = targets if known is None else known | targets
    return known


def training_rows(graph: Graph | Examples) -> np.ndarray | None:
    """Which vertices or arcs train, (n,) bool: the mask, or all labelled ones; None without labels.

    Of several splits, the first one.
    """
    known = known_rows(graph)
    mask = graph.masks.get("train")
    if known is None or mask is None:
        return known
    return known & (mask if mask.ndim == 1 else mask[:, 0])


COUNTED_AT_ONCE = 1 << 22


def settled(graph: Graph) -> Graph:
    """The graph as a folder keeps it: features of all types together where they are of one width.

    A UserError if its schema contradicts itself, or an arc is of another relation than its ends.
    """
    types = graph.vertex_types
    if types is None:
        return graph
    widths = {name: int(x.shape[1]) for name, x in graph.type_features.items()}
    if fault := schema_fault(graph.n, types.counts, graph.relations, widths):
        raise UserError(fault)
    check_ends(graph)
    if graph.features is not None:
        return replace(graph, type_features={})
    filled = [name for name in types.names if types.counts[name]]
    if set(filled) <= widths.keys() and len({widths[name] for name in filled}) == 1:
        rows = np.concatenate([graph.type_features[name] for name in filled])
        return replace(graph, features=rows, type_features={})
    return graph


def by_type(graph: Graph) -> dict[str, np.ndarray]:
    """The features of each type that has some, wherever they are kept."""
    names = () if graph.vertex_types is None else graph.vertex_types.names
    found = {name: graph.features_of(name) for name in names}
    return {name: rows for name, rows in found.items() if rows is not None}


@dataclass(frozen=True, eq=False)
class _TypedRows:
    """A row for each vertex, of features that types have of their own: (n, columns of all types).

    Each type has columns of its own, in which the rows of others are 0; so one weight of all
    columns is one for each type. As of an array, a slice is another view: nothing is read before
    rows are picked by numbers.
    """

    types: VertexTypes
    features: Mapping[str, np.ndarray]
    vertices: range
    columns: slice = field(default_factory=lambda: slice(None))
    dtype, ndim = np.dtype(np.float32), 2
    flags = np.zeros(0).flags  # nobody else lets go of pages

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns are seen."""
        return len(self), len(range(self._width)[self.columns])

    @property
    def _width(self) -> int:
        return sum(x.shape[1] for x in self.features.values())

    def __len__(self) -> int:
        return len(self.vertices)

    def __getitem__(self, key: Any) -> Any:
        picked, columns = key if isinstance(key, tuple) else (key, self.columns)
        if isinstance(picked, slice):
            return _TypedRows(self.types, self.features, self.vertices[picked], columns)
        vertices, column = np.asarray(self.vertices)[picked], 0
        rows = np.zeros((len(vertices), self._width), self.dtype)
        for name, features in self.features.items():
            own, width = self.types.range(name), features.shape[1]
            some = np.flatnonzero((vertices >= own.start) & (vertices < own.stop))
            rows[some, column : column + width] = features[vertices[some] - own.start]
            column += width
        let_go(*self.features.values())
        return rows[:, columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(len(self))], dtype)


def inputs_of(graph: Graph) -> Any:
    """The rows that a network takes of all vertices, (n, columns); None where there are none.

    The features, or those of the types: see :class:`_TypedRows`.
    """
    if graph.features is not None or graph.vertex_types is None or not graph.type_features:
        return graph.features
    return _TypedRows(graph.vertex_types, graph.type_features, range(graph.n))


def check_one_width(path: Path, graph: Graph) -> None:
    """A UserError if a graph has features of types that are not those of all vertices together."""
    if graph.vertex_types is not None and graph.type_features:
        widths = {name: x.shape[1] for name, x in graph.type_features.items()}
        text = ", ".join(f"{name} {widths.get(name, 'none')}" for name in graph.vertex_types.names)
        raise UserError(
            f"{path} has features of its vertex types, of different widths ({text}), and this "
            "takes rows of one width",
            "gcn-partition attach --features random:16 gives all vertices some; or TYPE=FILE each",
        )


def check_ends(graph: Graph) -> None:
    """Refuse relations of arcs that they cannot have, in bounded memory.

    A UserError if a number is that of no relation, or an end is not of the type of its relation.
    Targets have been checked: :func:`partition.graph.graph.check_arcs`.
    """
    types, arc_type = graph.vertex_types, graph.arc_type
    if types is None or arc_type is None:
        return
    if arc_type.dtype != relation_dtype(len(graph.relations)):
        raise UserError(f"arc_type.npy holds {arc_type.dtype}", AGAIN)
    kinds = np.array(graph.schema.ends)
    for first, last, *pairs in arc_pieces(graph):
        number = np.asarray(arc_type[graph.indptr[first] : graph.indptr[last]])
        if len(number) and number.max() >= len(kinds):
            raise UserError(f"arc_type.npy has a relation outside 0..{len(kinds) - 1}", AGAIN)
        for side, vertices in enumerate(pairs):
            wrong = types.of(vertices) != kinds[number, side]
            if wrong.any():
                at = int(np.argmax(wrong))
                arc = " -> ".join(str(each[at]) for each in pairs)
                of = f"{graph.relations[number[at]]}, whose {('source', 'target')[side]}"
                raise UserError(f"the arc {arc} is of the relation {of} it does not have", AGAIN)


def group_count(graph: Graph, direction: str) -> int:
    """How many groups of arcs there are, of one relation into ("out": out of) a vertex, about.

    Of a large graph, those of every so many vertices are counted, which hashes choose.
    """
    relations: Any = graph.arc_type
    every = max(1, graph.nnz // COUNTED_AT_ONCE)
    chosen = mixed(np.arange(graph.n), key(0)) % np.uint64(every) == 0
    groups = []
    for arcs in slices(graph.nnz, COUNTED_AT_ONCE):
        end = np.asarray(graph.indices[arcs], np.int64)
        if direction == "out":
            end = np.searchsorted(graph.indptr, np.arange(arcs.start, arcs.stop), "right") - 1
        some = chosen[end]
        groups.append(end[some] * len(graph.relations) + relations[arcs][some])
    let_go(graph.indptr, graph.indices, relations)
    return every * len(np.unique(np.concatenate(groups))) if groups else 0
