"""Arguments and results of readers: a graph file's content, whole or a piece at a time."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from partition.errors import UserError, memory_errors
from partition.graph.relations import Relation
from partition.importing.readers.arc_columns import NO_DATA, ArcTable


@dataclass(frozen=True)
class Readers:
    """Processes that read a file together, each a part of it that follows that of the one before.

    Each makes every call, in the same order.

    Attributes
    ----------
    rank, size : int
        The number of this one, and how many there are.
    gathered : callable
        Makes of a value those that all of them have, in their order.
    agreed : callable
        Makes a block that all leave together, with the UserError of the first that has one.
    """

    rank: int = 0
    size: int = 1
    gathered: Callable[[Any], list[Any]] = lambda value: [value]
    agreed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


@dataclass(frozen=True)
class Layout:
    """The words of the user about a list of arcs, where the list does not say it itself.

    Attributes
    ----------
    columns : str, optional
        Their meaning in their order: "source,target,-,weight"; columns beyond are not read.
    header : bool, optional
        Whether the first line names the columns; judged by the first two lines where None.
    comments : str, optional
        The signs with which comments begin, "#", "%" or both, or "none"; judged where None, see
        :meth:`partition.importing.readers.text.TextTable.is_comment`. Also of files with a row for
        each vertex.
    string_ids : bool
        Ids are texts, even if they look like integers.
    vertices : str, optional
        "N" or "A..B": which vertices there are, with an arc or without.
    ids : path, optional
        A file with the id of each vertex, in the order that they shall have.
    arc_features, arc_label : str, optional
        Columns that are features and labels of the arcs, by names and patterns: "w1,w2", "f*".
    relation, nodes : tuple of str
        Tables of a heterogeneous graph: "author,writes,paper=FILE", "paper=FILE" or "paper=N".
    types : tuple of (str, str)
        Pairs of types of vertices that the columns of ends may be called as: ("user", "item").
    """

    columns: str | None = None
    header: bool | None = None
    comments: str | None = None
    string_ids: bool = False
    vertices: str | None = None
    ids: str | os.PathLike[str] | None = None
    arc_features: str | None = None
    arc_label: str | None = None
    relation: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Source:
    """The content of a graph file, before duplicates and self-loops are dealt with.

    Attributes
    ----------
    n : int
        Number of vertices.
    source, target : (nnz,) integers in 0..n−1
        The arcs in the file's order: row = source, column = target.
    weights : (nnz,) float64, optional
        Finite weights of the arcs; 1 where None.
    features, labels, targets, masks, class_names, ids
        See :class:`partition.graph.graph.Graph`.
    symmetric : bool
        Each undirected edge is listed once and stands for both its arcs.
    format : str
        Name of the format in ``FORMATS``.
    notes : mapping
        Further findings of the reader, for the manifest.
    arc_data : ArcTable
        Columns with a row for each arc.
    unread : tuple of str
        Names of the columns of a list that were not read.
    """

    n: int
    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    symmetric: bool = False
    format: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    targets: np.ndarray | None = None
    arc_data: ArcTable = NO_DATA
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class RelationArcs:
    """The arcs of one relation, by the numbers that their ends have within their types.

    ``source`` and ``target`` are (m,) integers from 0, ``weights`` (m,) float64 or None.
    """

    relation: Relation
    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class TypedSource:
    """The content of a file with several types of vertices or relations.

    Attributes
    ----------
    counts : mapping of str to int
        How many vertices each type has, in the order of the types.
    arcs : sequence of RelationArcs
        In the order of the relations.
    ids : mapping of str to (n_type,) int64 or str
        Of types whose vertices are called otherwise than 0..n_type−1.
    features : mapping of str to (n_type, d_type) float32
    labels : mapping of str to (n_type,) integers or texts
        Classes, −1 or an empty text for a vertex without one.
    targets : mapping of str to (n_type, c) numbers
    masks : mapping of "train" / "val" / "test" to mapping of str to (n_type,) bool
        Or (n_type, splits) bool.
    format : str
    notes : mapping
        Further findings of the reader, for the manifest.
    """

    counts: Mapping[str, int]
    arcs: Sequence[RelationArcs]
    ids: Mapping[str, np.ndarray] = field(default_factory=dict)
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    masks: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    format: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


class Piece(NamedTuple):
    """Some arcs of a file, in its order.

    Attributes
    ----------
    source, target : (m,) integers, or Arrow array of texts
    weights : (m,) float64, optional
    data : mapping of str to (m, …) array, or Arrow array of texts
        Columns of data of the arcs, by name.
    """

    source: np.ndarray | pa.Array
    target: np.ndarray | pa.Array
    weights: np.ndarray | None
    data: Mapping[str, np.ndarray | pa.Array]


def in_step(pieces: Iterator[Piece], readers: Readers) -> Iterator[Piece]:
    """Yield pieces until all readers are finished; a finished one yields pieces without arcs.

    An error is raised by all when the readers before have read their parts: it is the first in the
    file.
    """
    error, none = None, np.empty(0, np.int64)
    while True:
        piece = None
        try:
            with memory_errors():
                piece = None if error else next(pieces, None)
        except UserError as caught:
            error = caught
        states = readers.gathered((piece is not None, error is not None))
        more, failed = zip(*states, strict=True)
        if not any(more[: failed.index(True) if any(failed) else None]):
            with readers.agreed():
                if error:
                    raise error
            return
        yield Piece(none, none, None, {}) if piece is None else piece


# (name, shape, dtype) → an array to be filled: in memory, or in a file.
Allocate = Callable[[str, tuple[int, ...], np.dtype], np.ndarray]


# Told the stage, how much of it is done, and how much there is.
Tell = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Reading:
    """How a file is read a piece at a time.

    Attributes
    ----------
    allocate : callable
        Makes arrays of data of vertices.
    tell : callable
        Told how far it is.
    whole : bool
        One piece is as good as many, if that is faster.
    look : callable
        Shown the lines of a table in text, as they are read, some megabytes at a time.
    readers : Readers
        Those who share the file.
    """

    allocate: Allocate = lambda name, shape, dtype: np.empty(shape, dtype)
    tell: Tell = lambda stage, done, total: None
    whole: bool = False
    look: Callable[[bytes], object] = lambda lines: None
    readers: Readers = field(default_factory=Readers)


ALL = Reading(whole=True)


@dataclass(frozen=True)
class Stream:
    """The content of a graph file, with the arcs a piece at a time.

    Attributes
    ----------
    pieces : iterator of Piece
        Ids of the file, weights, and data of the arcs: "features" (m, d) float32 and "labels", (m,)
        int64, (m, tasks) floats, or texts; to be taken once.
    where : str
        The file, for messages.
    weighted : bool
        Whether pieces have weights.
    text : bool
        Ids are Arrow arrays of texts; otherwise, int64.
    n : int, optional
        Ids are 0..n−1, checked. None: as ``vertices`` and ``ids`` say.
    vertices : str, optional
        See :class:`Layout`.
    ids : (n,) int64 or str, optional
        The content of the file of that name.
    rest : mapping
        Further fields of :class:`Source`, ``arc_data`` where pieces have none; ``notes`` are
        complete after the last piece.
    """

    pieces: Iterator[Piece]
    where: str
    weighted: bool = False
    text: bool = False
    n: int | None = None
    vertices: str | None = None
    ids: np.ndarray | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)
