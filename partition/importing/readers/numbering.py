"""Which vertex is which number: ids of a file to 0..n−1."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partition.errors import UserError, require
from partition.importing.readers.files import quoted
from partition.resident import check_memory

# Ids are looked up in a table if there is one for every so many numbers, and searched otherwise.
_TABLE_SPAN = 4


def number_vertices(
    source: np.ndarray,
    target: np.ndarray,
    where: str,
    *,
    names: np.ndarray | None = None,
    vertices: str | None = None,
    ids: np.ndarray | None = None,
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray | None]:
    """Number the vertices 0..n−1: n, sources, targets, and the (n,) id of each number.

    ``source`` and ``target`` are ids, int64; where ids are texts, their places in ``names``.
    ``vertices`` "N" says that the ids are 0..N−1 or 1..N, "A..B" that they are A..B, with an arc or
    without. ``ids`` are those of the vertices, int64 or str, in the order that is wanted. Without
    either, the vertices are the ids that occur, in increasing order.

    The ids are None where each is the number itself. A UserError if an arc has an id that is not
    among those announced.
    """
    if names is not None:
        if vertices is not None:
            raise UserError(f"{where}: --vertices is for ids that are integers", "give --ids FILE")
        ids = np.sort(names) if ids is None else ids
        number = _places(ids, names, where)
        return len(ids), number[source], number[target], ids
    ends = [end if vertices is None else extremes(end) for end in (source, target)]
    numbering = numbering_of(distinct(*ends), where, vertices, ids)
    return numbering.n, numbering.of(source), numbering.of(target), numbering.ids


def number_texts(
    where: str, source: pa.ChunkedArray, target: pa.ChunkedArray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct texts in increasing order, and the places among them of those given."""
    both = pa.chunked_array([*source.chunks, *target.chunks]).dictionary_encode()
    texts = both.chunk(0).dictionary  # that of all chunks
    longest = pc.max(pc.utf8_length(texts)).as_py()
    check_memory(12 * longest * len(texts), f"{where}: ids of up to {longest} characters")
    order = pc.sort_indices(texts)  # of UTF-8, which is that of its characters
    place = np.empty(len(order), np.int64)
    place[order.to_numpy()] = np.arange(len(order))
    numbers = place[np.concatenate([chunk.indices.to_numpy() for chunk in both.chunks])]
    return np.array(texts.take(order).to_pylist()), *numbers.reshape(2, -1)


@dataclass(frozen=True)
class Numbering:
    """Which vertex is which number, for ends of arcs that come in pieces.

    Attributes
    ----------
    n : int
    ids : (n,) int64, optional
        The id of each number, where that is not the number itself.
    """

    n: int
    ids: np.ndarray | None = None

    @cached_property
    def _table(self) -> np.ndarray | None:
        """The number of each id from the smallest on; None where they lie far apart."""
        assert self.ids is not None
        low, high = (int(self.ids.min()), int(self.ids.max())) if self.n else (0, 0)
        if high - low >= _TABLE_SPAN * self.n:
            return None
        table = np.empty(high - low + 1, np.int64)
        table[self.ids - low] = np.arange(self.n)
        return table

    @cached_property
    def _order(self) -> np.ndarray:
        assert self.ids is not None
        return np.argsort(self.ids, kind="stable")

    def of(self, ends: np.ndarray) -> np.ndarray:
        """The numbers of ids, (m,) int64, each of which is there."""
        if self.ids is None:
            return ends
        if self._table is not None:
            return self._table[ends - self.ids.min()]
        return self._order[np.searchsorted(self.ids, ends, sorter=self._order)]


def numbering_of(
    found: np.ndarray, where: str, vertices: str | None, ids: np.ndarray | None
) -> Numbering:
    """As :func:`number_vertices`, of the integers that are found in arcs: increasing, each once.

    Where ``vertices`` is given, the smallest and the largest will do.
    """
    both = "--vertices and --ids both say which vertices there are: give one of them"
    require(vertices is None or ids is None, both)
    if vertices is not None:
        low, high = announced(found, vertices, where)
        n = high - low + 1
        check_memory(16 * n, f"{n} vertices")
        return Numbering(n, np.arange(low, high + 1) if low else None)
    if ids is not None:
        _places(ids, found, where)
    elif not len(found):
        raise UserError(f"{where} holds no arcs", "--vertices says how many vertices there are")
    else:
        ids = found
    same = bool((ids == np.arange(len(ids))).all())
    return Numbering(len(ids), None if same else ids)


class IdsSeen:
    """The different ids among some that come in pieces.

    Attributes
    ----------
    known : (m,) int64
        Those of all pieces, increasing, but for at most ``few`` ids, or as many as it has, which
        wait.
    """

    def __init__(self, few: int) -> None:
        self.known = np.empty(0, np.int64)
        self._few, self._waiting = few, list[np.ndarray]()

    def add(self, *ids: np.ndarray) -> bool:
        """Take a piece; whether ``known`` is up to date now."""
        self._waiting += ids
        if sum(map(len, self._waiting)) <= max(self._few, len(self.known)):
            return False
        self.all()
        return True

    def all(self) -> np.ndarray:
        """All of them, increasing."""
        self.known, self._waiting = distinct(self.known, *self._waiting), []
        return self.known


def extremes(ids: np.ndarray) -> np.ndarray:
    """The smallest and the largest of some ids, if there are any."""
    return np.array([ids.min(), ids.max()] if len(ids) else [], np.int64)


def distinct(*arrays: np.ndarray) -> np.ndarray:
    """The integers that occur, in increasing order."""
    filled = [array for array in arrays if len(array)]
    if not filled:
        return np.empty(0, np.int64)
    low = min(int(array.min()) for array in filled)
    span = max(int(array.max()) for array in filled) - low + 1
    if span <= 16 * sum(map(len, filled)):  # a table is faster than sorting, and smaller
        present = np.zeros(span, bool)
        for array in filled:
            present[array - low] = True
        return np.flatnonzero(present) + low
    values = np.sort(np.concatenate(filled))  # faster than NumPy's unique, which hashes
    return values[np.append(True, values[1:] != values[:-1])]


def positions(
    ids: np.ndarray, wanted: np.ndarray, before: str, after: str = "", hint: str | None = None
) -> np.ndarray:
    """Where each of ``wanted`` stands in ``ids``.

    A UserError for one that is not there: its message has the id between ``before`` and ``after``.
    """
    order = np.argsort(ids, kind="stable")
    place = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    there = ids[place] == wanted
    if not there.all():
        raise UserError(f"{before} {shown_id(wanted[int(np.argmin(there))])}{after}", hint)
    return place


def check_ids(ids: np.ndarray, where: object) -> None:
    """A UserError if there are no ids, or if one occurs twice."""
    require(len(ids) > 0, f"{where} holds no ids")
    ordered = np.sort(ids)
    for twice in ordered[1:][ordered[1:] == ordered[:-1]]:
        raise UserError(f"{where}: the id {shown_id(twice)} occurs twice")


def shown_id(value: np.generic | str | int) -> str:
    """An id for a message: a number, or a text in quotes."""
    return quoted(str(value)) if isinstance(value, str) else str(value)


def _places(ids: np.ndarray, ends: np.ndarray, where: str) -> np.ndarray:
    """Where each end of an arc stands in ``ids``."""
    if ids.dtype.kind != ends.dtype.kind:
        kinds = {"i": "integers", "U": "texts"}
        raise UserError(
            f"{where}: the ids of the arcs are {kinds[ends.dtype.kind]}, "
            f"those of --ids are {kinds[ids.dtype.kind]}",
            "--string-ids reads all of them as texts",
        )
    return positions(ids, ends, f"{where}: the vertex", " is not in the file of --ids")


def announced(ends: np.ndarray, vertices: str, where: str) -> tuple[int, int]:
    """The first and the last id that ``--vertices`` stands for; a UserError if one is outside."""
    span = re.fullmatch(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})", vertices)
    if span is not None:
        low, high = int(span[1]), int(span[2])
        require(low <= high, f"--vertices {vertices} holds no vertex")
    elif re.fullmatch(r"0*[1-9][0-9]{0,17}", vertices):
        n, (least, most) = int(vertices), (ends.min(), ends.max()) if len(ends) else (0, 0)
        low, high = (1, n) if least > 0 and most == n else (0, n - 1)
        if least > 0 and most < n:
            raise UserError(
                f"{where}: the smallest vertex is {least} and the largest {most}, which fits "
                f"0..{n - 1} and 1..{n}",
                f"give --vertices 0..{n - 1} or --vertices 1..{n}",
            )
    else:
        raise UserError(f"--vertices {vertices} is neither a number of vertices nor a span A..B")
    for outside in ends[(ends < low) | (ends > high)]:
        raise UserError(f"{where}: there is a vertex {outside}, --vertices {vertices}")
    return low, high
