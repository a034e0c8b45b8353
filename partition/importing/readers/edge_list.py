"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

import re
import warnings
from array import array
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers import Layout, Source
from partition.importing.readers.columns import ROLES, Columns, find_columns
from partition.importing.readers.files import check_memory, finite_weights, quoted
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
        _check_weights(path, weights, columns)
        _check_numbers(path, source, weights, columns)
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


def _check_weights(path: Path, weights: np.ndarray, columns: Columns) -> None:
    """Refuse to take times and ids for weights."""
    if columns.known or not len(weights) or np.abs(weights).max() < LARGE_WEIGHT:
        return
    if (weights == np.floor(weights)).all():
        raise UserError(
            f"{path}: the third column holds whole numbers from {weights.min():.0f} to "
            f"{weights.max():.0f}, weights or something else, such as times",
            "give --columns source,target,weight or, to leave it out, --columns source,target",
        )


def _check_numbers(path: Path, source: np.ndarray, weights: np.ndarray, columns: Columns) -> None:
    """Refuse to take numbers of lines for sources, and targets for weights."""
    if columns.known or columns.text or len(source) < FEWEST_NUMBERED:
        return
    numbered = source[0] in (0, 1) and (np.diff(source) == 1).all()
    # Targets are whole, not negative and not all the same.
    if numbered and (weights == np.floor(weights)).all() and 0 <= weights.min() < weights.max():
        raise UserError(
            f"{path}: the first column holds {source[0]}, {source[1]}, {source[2]}, … to the end, "
            "sources or the numbers of the lines",
            "give --columns source,target,weight or, to leave it out, --columns -,source,target",
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
    """Arcs between integers, by NumPy's compiled reader."""
    kinds = (np.int64, np.int64, np.float64)
    dtype = np.dtype(list(zip(ROLES, kinds, strict=True))[: len(columns.places)])
    everything = sorted(columns.places) == list(range(columns.width))
    by_place = np.dtype([dtype.descr[columns.places.index(i)] for i in sorted(columns.places)])
    plain = columns.separator is None and columns.places == (0, 1) and everything
    tables = []
    for first, block in text_blocks(path):
        if plain and not first <= columns.header and (pairs := _plain_pairs(block)) is not None:
            tables.append(pairs.view(by_place)[:, 0])
            continue
        lines = re.sub("[#%].*", "", block).split("\n")
        if first <= columns.header < first + len(lines):
            lines[columns.header - first] = ""
        try:
            table = _parse(lines, by_place, columns, everything)
        except ValueError as error:
            raise _fault(path, first, lines, columns, str(error)) from error
        tables.append(table)
    table = np.concatenate(tables)
    weights = np.ascontiguousarray(table["weight"]) if len(columns.places) == 3 else None
    return np.ascontiguousarray(table["source"]), np.ascontiguousarray(table["target"]), weights


def _plain_pairs(block: str) -> np.ndarray | None:
    """(rows, 2) from lines of two integers, at several times NumPy's pace; None if unsure."""
    raw = np.frombuffer(block.encode("latin1", "replace"), np.uint8)
    word = np.empty(len(raw) + 1, bool)
    word[0] = False
    np.greater(raw, ord(" "), out=word[1:])
    starts = np.flatnonzero(word[1:] & ~word[:-1])
    line = np.cumsum(raw == ord("\n"))[starts]
    if len(line) % 2 or (line[::2] != line[1::2]).any() or (line[2::2] == line[1:-1:2]).any():
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
