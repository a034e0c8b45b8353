"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers import Allocate, Layout, Piece, Source, Stream, Tell
from partition.importing.readers.columns import ROLES, Columns, find_columns
from partition.importing.readers.files import (
    check_memory,
    finite_weights,
    quoted,
    read_errors,
)
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.text import (
    COMMENTS,
    check_text,
    is_integer,
    is_number,
    text_blocks,
    words_of,
)
from partition.importing.readers.vertex_files import read_ids

# Whole numbers of this size in a third column are rather times or ids than weights.
LARGE_WEIGHT = 1000
# Lines of three whole numbers from which on 0, 1, 2, … are rather numbers of lines than sources.
FEWEST_NUMBERED = 3
LONGEST_ID = 256


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
    names = None
    if columns.text:
        source, target, weights, names = _read_text(path, columns)
    else:
        source, target, weights = _read_numbers(path, columns)
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
            for table in number_tables(path, columns, lambda at: tell("reading", at, size)):
                source, target, weights = _columns_of(table)
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
    first = max(source[0], target[0])  # texts are numbered as they come
    if names is not None and min(source[1:].min(), target[1:].min()) > first:
        shown = ", ".join(quoted(name) for name in (names[source[0]], names[target[0]]))
        raise UserError(
            f"{path}: the first line ({shown}) may be a header or an arc",
            "give --header or --no-header",
        )


def _read_numbers(path: Path, columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Arcs between integers."""
    return _columns_of(np.concatenate(list(number_tables(path, columns))))


def _columns_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    source, target = (np.ascontiguousarray(table[name]) for name in ROLES[:2])
    weighted = "weight" in (table.dtype.names or ())
    return source, target, np.ascontiguousarray(table["weight"]) if weighted else None


def number_tables(
    path: Path, columns: Columns, tell: Callable[[int], None] = lambda at: None
) -> Iterator[np.ndarray]:
    """Arcs between integers, some at a time, by NumPy's compiled readers.

    Parameters
    ----------
    tell : callable
        Told how many bytes of the file have been read.

    Yields
    ------
    (m,) structured array: "source", "target" of int64 and perhaps "weight" of float64
    """
    kinds = (np.int64, np.int64, np.float64)
    dtype = np.dtype(list(zip(ROLES, kinds, strict=True))[: len(columns.places)])
    everything = sorted(columns.places) == list(range(columns.width))
    by_place = np.dtype([dtype.descr[columns.places.index(i)] for i in sorted(columns.places)])
    plain = columns.separator in (None, ",") and columns.places == (0, 1) and everything
    for first, block in text_blocks(path, tell=tell):
        if plain and not first <= columns.header:
            pairs = _plain_pairs(block, columns.separator)
            if pairs is not None:
                yield pairs.view(by_place)[:, 0]
                continue
        lines = re.sub("[#%].*", "", block).split("\n")
        if first <= columns.header < first + len(lines):
            lines[columns.header - first] = ""
        try:
            table = _parse(lines, by_place, columns, everything)
        except ValueError as error:
            raise _fault(path, first, lines, columns, str(error)) from error
        yield table


def _plain_pairs(block: str, separator: str | None = None) -> np.ndarray | None:
    """(rows, 2) from lines of two integers, at several times NumPy's pace; None if unsure."""
    raw = np.frombuffer(block.encode("latin1", "replace"), np.uint8)
    word = np.empty(len(raw) + 1, bool)
    word[0] = False
    np.greater(raw, ord(" "), out=word[1:])
    commas = None
    if separator is not None:
        commas = np.flatnonzero(raw == ord(separator))
        word[1:][commas] = False
        block = block.replace(separator, " ")
    starts = np.flatnonzero(word[1:] & ~word[:-1])
    line = np.cumsum(raw == ord("\n"))[starts]
    if len(line) % 2 or (line[::2] != line[1::2]).any() or (line[2::2] == line[1:-1:2]).any():
        return None
    if commas is not None:  # one in every line, between the two
        if len(commas) != len(starts) // 2:
            return None
        if (commas < starts[::2]).any() or (commas > starts[1::2]).any():
            return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(block, np.int64, sep=" ")
        except (ValueError, DeprecationWarning):  # something that is no integer
            return None
    limits = np.iinfo(np.int64)
    if len(numbers) != len(starts) or not len(numbers):
        return None
    if numbers.min() == limits.min or numbers.max() == limits.max:  # perhaps beyond 64 bits
        return None
    return numbers.reshape(-1, 2)


def _parse(lines: list[str], dtype: np.dtype, columns: Columns, everything: bool) -> np.ndarray:
    if not any(line.strip() for line in lines[:64]):  # NumPy warns where nothing is left
        lines = [line for line in lines if line.strip()]
        if not lines:
            return np.empty(0, dtype)

    def load(lines: list[str]) -> np.ndarray:
        return np.loadtxt(
            lines,
            dtype=dtype,
            comments=None,
            delimiter=columns.separator,
            quotechar='"',
            usecols=None if everything else sorted(columns.places),
            ndmin=1,
        )

    try:
        return load(lines)
    except ValueError:  # lines of blanks are nothing only where columns are separated by them
        if columns.separator is None or all(line.strip() or not line for line in lines):
            raise
        return load([line for line in lines if line.strip()])


def _fault(path: Path, first: int, lines: list[str], columns: Columns, otherwise: str) -> UserError:
    """Find the first bad line, slowly."""
    expected = " ".join(ROLES[: len(columns.places)])
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        words = words_of(line, columns.separator)
        at = f"{path}, line {number}: {quoted(line.strip())}"
        if not _fits(words, columns):
            return UserError(f"{at} has {len(words)} columns, not {columns.width}: {expected!r}")
        for role, place in zip(ROLES, columns.places, strict=False):
            word = words[place]
            if role == "weight" and not is_number(word):
                return UserError(f"{at} is not '{expected}': {quoted(word)} is not a number")
            if role != "weight" and not is_integer(word):
                hint = (
                    "put a # before a line that is a heading"
                    if number == 1
                    else "if ids are texts, give --string-ids"
                )
                return UserError(
                    f"{at} is not '{expected}': {quoted(word)} is not an integer of 64 bits", hint
                )
    return UserError(f"{path}, from line {first} on: {otherwise}")


def _fits(words: list[str], columns: Columns) -> bool:
    """Whether a line has the columns; columns that are not read may be missing."""
    if len(columns.places) == columns.width:
        return len(words) == columns.width
    return len(words) > max(columns.places)


def _read_text(
    path: Path, columns: Columns
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Arcs between texts, which are numbered as they come, and the texts."""
    numbers: dict[str, int] = {}
    ends = (array("q"), array("q"))
    weights = array("d")
    for first, block in text_blocks(path):
        for number, line in enumerate(block.split("\n"), first):
            if not line.strip() or line.lstrip().startswith(COMMENTS) or number == columns.header:
                continue
            if not line.isascii():
                check_text(line, f"{path}, line {number}")
            words = words_of(line, columns.separator)
            _check_words(path, number, line, words, columns)
            for end, place in zip(ends, columns.places, strict=False):
                end.append(numbers.setdefault(words[place], len(numbers)))
            if len(columns.places) == 3:
                weights.append(float(words[columns.places[2]]))
    if not numbers:
        raise UserError(f"{path} holds no arcs", "one arc 'source target [weight]' a line")
    longest = max(map(len, numbers))
    check_memory(12 * longest * len(numbers), f"{path}: ids of up to {longest} characters")
    source, target = (np.frombuffer(end, np.int64) for end in ends)
    found = np.frombuffer(weights) if len(columns.places) == 3 else None
    return source, target, found, np.array(list(numbers))


def _check_words(path: Path, number: int, line: str, words: list[str], columns: Columns) -> None:
    at = f"{path}, line {number}: {quoted(line.strip())}"
    if not _fits(words, columns):
        expected = " ".join(ROLES[: len(columns.places)])
        raise UserError(f"{at} has {len(words)} columns, not {columns.width}: {expected!r}")
    for place in columns.places[:2]:
        if not 0 < len(words[place]) <= LONGEST_ID:
            hint = f"ids are texts of 1 to {LONGEST_ID} characters"
            raise UserError(f"{at}: {quoted(words[place])} is not an id", hint)
    if len(columns.places) == 3 and not is_number(words[columns.places[2]]):
        raise UserError(f"{at}: {quoted(words[columns.places[2]])} is not a number")
