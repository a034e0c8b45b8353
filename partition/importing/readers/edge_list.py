"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import Allocate, Layout, Piece, Source, Stream, Tell
from partition.importing.readers.columns import ROLES, Columns, find_columns
from partition.importing.readers.files import finite_weights, quoted, read_errors
from partition.importing.readers.numbering import number_texts, number_vertices
from partition.importing.readers.text import COMMENTS, LONGEST_LINE, Table
from partition.importing.readers.vertex_files import read_ids

# Whole numbers of this size in a third column are rather times or ids than weights.
LARGE_WEIGHT = 1000
# Lines of three whole numbers from which on 0, 1, 2, … are rather numbers of lines than sources.
FEWEST_NUMBERED = 3


def read(path: Path, layout: Layout) -> Source:
    """Read an edge list: columns separated by white space, commas, semicolons or tabs.

    Ids are 64-bit integers, or texts. Everything after ``#`` or ``%`` is a comment; where ids are
    texts, only a line that begins with one of them is.

    Raises
    ------
    UserError
        If there is no arc in the file, a line is not two ids and, where the others have one, a
        finite weight, or it is not clear what a column is.
    """
    columns = find_columns(path, layout)
    source, target, *rest = arc_table(path, columns).columns()
    names = None
    if columns.text:
        names, source, target = number_texts(str(path), source, target)
    else:
        source, target = np.concatenate(source.chunks), np.concatenate(target.chunks)
    weights = np.concatenate(rest.pop().chunks) if rest else None
    pa.default_memory_pool().release_unused()  # which it would keep for what comes next
    if weights is not None:
        weights = finite_weights(weights, str(path))
        third = _ThirdColumn(path, columns)
        third.see(source, weights)
        third.check()
    if columns.doubtful:
        _check_first_line(path, names, source, target)
    given = None if layout.ids is None else read_ids(layout.ids, text=columns.text)
    n, source, target, ids = number_vertices(
        source, target, str(path), names=names, vertices=layout.vertices, ids=given
    )
    return Source(
        n=n,
        source=source,
        target=target,
        weights=weights,
        ids=ids,
        format="edges",
        notes={"columns": columns.note} if columns.note else {},
    )


def stream(path: Path, layout: Layout, allocate: Allocate, tell: Tell) -> Stream:
    """The same a piece at a time, of a list with ids that are integers.

    Raises
    ------
    UserError
        As :func:`read`; or if ids are texts, each of which would have to be kept.
    """
    columns = find_columns(path, layout)
    if columns.text:
        raise UserError(
            f"{path}: --memory is for ids that are integers; these are texts",
            "import it without --memory: texts are numbered in memory",
        )
    third = _ThirdColumn(path, columns)

    def pieces() -> Iterator[Piece]:
        size = path.stat().st_size
        with read_errors(path):
            for found in arc_table(path, columns).pieces(lambda at: tell("reading", at, size)):
                source, target, *rest = (column.to_numpy() for column in found)
                weights = rest[0] if rest else None
                if weights is not None:
                    weights = finite_weights(weights, str(path))
                    third.see(source, weights)
                yield source, target, weights
        third.check()

    return Stream(
        pieces=pieces(),
        where=str(path),
        weighted=len(columns.places) == 3,
        vertices=layout.vertices,
        ids=None if layout.ids is None else read_ids(layout.ids),
        rest={"format": "edges", "notes": {"columns": columns.note} if columns.note else {}},
    )


class _ThirdColumn:
    """Whether a third column, which nobody calls a weight, is something else: seen in pieces."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path, self._columns = path, columns
        self._low, self._high, self._rows = np.inf, -np.inf, 0
        self._whole = self._numbered = True
        self._first: list[int] = []
        self._last = 0

    def see(self, source: np.ndarray, weights: np.ndarray) -> None:
        """Look at some arcs, in the order of the file."""
        if self._columns.known or not len(weights):
            return
        self._low = min(self._low, weights.min())
        self._high = max(self._high, weights.max())
        self._whole = self._whole and bool((weights == np.floor(weights)).all())
        if self._numbered:
            follows = not self._rows or source[0] == self._last + 1
            self._numbered = bool(follows and (np.diff(source) == 1).all())
        self._first = [*self._first, *source[: FEWEST_NUMBERED - len(self._first)].tolist()]
        self._last, self._rows = int(source[-1]), self._rows + len(source)

    def check(self) -> None:
        """Refuse to take times and ids for weights, or numbers of lines for sources."""
        if not self._rows or not self._whole:
            return
        if max(self._high, -self._low) >= LARGE_WEIGHT:
            raise UserError(
                f"{self._path}: the third column holds whole numbers from {self._low:.0f} to "
                f"{self._high:.0f}, weights or something else, such as times",
                "give --columns source,target,weight or, to leave it out, --columns source,target",
            )
        if self._columns.text or self._rows < FEWEST_NUMBERED or self._first[0] not in (0, 1):
            return
        # Targets are whole, not negative and not all the same.
        if self._numbered and 0 <= self._low < self._high:
            shown = ", ".join(map(str, self._first))
            raise UserError(
                f"{self._path}: the first column holds {shown}, … to the end, sources or the "
                "numbers of the lines",
                "give --columns source,target,weight or, to leave it out, --columns "
                "-,source,target",
            )


def _check_first_line(
    path: Path, names: np.ndarray | None, source: np.ndarray, target: np.ndarray
) -> None:
    """Refuse texts of which the first two occur nowhere else: they look like a header."""
    first = [source[0], target[0]]
    if names is not None and not (np.isin(source[1:], first) | np.isin(target[1:], first)).any():
        shown = ", ".join(quoted(names[end]) for end in first)
        raise UserError(
            f"{path}: the first line ({shown}) may be a header or an arc",
            "give --header or --no-header",
        )


def arc_table(path: Path, columns: Columns) -> Table:
    """Sources, targets and perhaps weights: columns of int64 or string, and float64."""
    ids = pa.string() if columns.text else pa.int64()
    return Table(
        path,
        columns.separator,
        columns.width,
        dict(zip(columns.places, (ids, ids, pa.float64()), strict=False)),
        header=columns.header,
        comments="".join(COMMENTS),
        shortest=1,
        longest=LONGEST_LINE,
        ragged=len(columns.places) < columns.width,
        meaning=" ".join(ROLES[: len(columns.places)]),
    )
