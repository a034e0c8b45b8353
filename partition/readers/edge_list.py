"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.readers import Layout, Source
from partition.readers.files import check_memory, finite_weights, quoted
from partition.readers.numbering import number_vertices
from partition.readers.text import (
    COMMENTS,
    check_text,
    first_lines,
    is_integer,
    is_number,
    separator_of,
    text_blocks,
    words_of,
)
from partition.readers.vertex_files import read_ids

ROLES = ("source", "target", "weight")
# Names that columns have in the files of other programs.
SOURCES = {"source", "src", "from", "fromnodeid", "fromnode", "node1", "u", "head", "sourceid"}
TARGETS = {"target", "dst", "to", "tonodeid", "tonode", "node2", "v", "tail", "targetid", "dest"}
WEIGHTS = {"weight", "weights", "w", "edgeweight"}
# Whole numbers of this size in a third column are rather times or ids than weights.
LARGE_WEIGHT = 1000
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
    columns = _find_columns(path, layout)
    names = None
    if columns.text:
        source, target, weights, names = _read_text(path, columns)
    else:
        source, target, weights = _read_numbers(path, columns)
    if weights is not None:
        weights = finite_weights(weights, str(path))
        _check_weights(path, weights, columns)
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


@dataclass(frozen=True)
class _Columns:
    """How a line is cut, and which columns are what.

    ``header`` is the number of the line with the names, 0 where there is none; ``known`` says that
    a name or the user calls the third column a weight, ``doubtful`` that the first line may be a
    header after all.
    """

    separator: str | None
    width: int
    places: tuple[int, ...]
    text: bool
    header: int
    known: bool
    doubtful: bool
    note: str


def _find_columns(path: Path, layout: Layout) -> _Columns:
    lines = first_lines(path, 2)
    _refuse_matrix_market(path)
    if not lines:
        raise UserError(f"{path} holds no arcs", "one arc 'source target [weight]' a line")
    number, first = lines[0]
    separator = separator_of(_bare(first))
    words = words_of(_bare(first), separator)
    if separator == "\t" and all(map(is_integer, words[:2])):
        separator, words = None, _bare(first).split()
    if len(words) < 2:
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} is one column",
            "one arc 'source target [weight]' a line",
        )
    roles = None if layout.columns is None else _given_roles(layout.columns)
    places = roles or _named_roles(words)
    second = words_of(_bare(lines[1][1]), separator) if len(lines) > 1 else []
    ends = (roles or (0, 1))[:2]
    if max(roles or (0,)) >= len(words):
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} has {len(words)} columns, "
            f"--columns {layout.columns} names more"
        )
    header, doubtful = layout.header, False
    if header is None:
        header = not _integers(words, ends) and bool(_named_roles(words) or _integers(second, ends))
        doubtful = not header and not _integers(words, ends) and len(lines) > 1
    if header and len(lines) < 2:
        raise UserError(f"{path} holds no arcs, only the header {quoted(first.strip())}")
    if roles is None:
        places = _named_roles(words) if header else None
        places = places or _unnamed_roles(path, number, first, words, header)
    assert places is not None
    sample = second if header else words
    text = layout.string_ids or not _integers(sample, places[:2])
    if text and not layout.string_ids:
        _refuse_fractions(path, lines[1] if header else lines[0], sample, places)
    if text and separator is None and not header and len(words) == 3 and roles is None:
        _check_third(path, number, first, words)
    used = sorted(places)
    note = ""
    if header or used != list(range(len(words))):
        names = words if header else [f"column {i + 1}" for i in range(len(words))]
        note = ", ".join(
            f"{role} {quoted(names[i])}" for role, i in zip(ROLES, places, strict=False)
        )
        unread = [quoted(names[i]) for i in range(len(words)) if i not in places]
        note += f"; not read: {', '.join(unread)}" if unread else ""
    return _Columns(
        separator=separator,
        width=len(words),
        places=places,
        text=text,
        header=number if header else 0,
        known=roles is not None or bool(header),
        doubtful=doubtful and text,
        note=note,
    )


def _bare(line: str) -> str:
    """A line without what may be a comment, where that leaves something."""
    return re.split("[#%]", line)[0].strip() or line.strip()


def _integers(words: list[str], places: tuple[int, ...]) -> bool:
    return len(words) > max(places) and all(is_integer(words[i]) for i in places)


def _given_roles(columns: str) -> tuple[int, ...]:
    """Places of source, target and weight in ``--columns``."""
    names = [name.strip() for name in columns.split(",")]
    hint = "write source, target, weight and - in the order of the columns: source,target,-,weight"
    for name in names:
        if name not in (*ROLES, "-"):
            raise UserError(f"--columns {columns}: {quoted(name)} is no such column", hint)
    counts = {role: names.count(role) for role in ROLES}
    if counts["source"] != 1 or counts["target"] != 1 or counts["weight"] > 1:
        raise UserError(f"--columns {columns} must name source and target, each once", hint)
    return tuple(names.index(role) for role in ROLES if role in names)


def _named_roles(words: list[str]) -> tuple[int, ...] | None:
    """Places of source, target and weight by the names in a header."""
    plain = [re.sub(r"[\s_.-]", "", word.lower()) for word in words]
    places = []
    for known in (SOURCES, TARGETS, WEIGHTS):
        fitting = [i for i, word in enumerate(plain) if word in known]
        if len(fitting) > 1:
            return None
        places += fitting
        if not fitting and known is not WEIGHTS:
            return None
    return tuple(places)


def _refuse_fractions(
    path: Path, line: tuple[int, str], words: list[str], places: tuple[int, ...]
) -> None:
    """Numbers that are no integers of 64 bits are hardly meant to be texts."""
    for place in places[:2]:
        if place < len(words) and is_number(words[place]) and not is_integer(words[place]):
            raise UserError(
                f"{path}, line {line[0]}: {quoted(line[1].strip())} is not 'source target': "
                f"{quoted(words[place])} is not an integer of 64 bits",
                "if ids are texts, give --string-ids",
            )


def _unnamed_roles(
    path: Path, number: int, line: str, words: list[str], header: bool
) -> tuple[int, ...]:
    if len(words) == 2:
        return (0, 1)
    if len(words) == 3 and not header:
        return (0, 1, 2)
    raise UserError(
        f"{path}, line {number}: {quoted(line.strip())} has {len(words)} columns, and it is not "
        "clear what they are",
        "say it in their order, such as --columns source,target,weight or source,target,-,-",
    )


def _check_third(path: Path, number: int, line: str, words: list[str]) -> None:
    if not is_number(words[2]):
        raise UserError(
            f"{path}, line {number}: the third column of {quoted(line.strip())} is no weight",
            "give --columns source,-,target, say, or --columns source,target,-",
        )


def _check_weights(path: Path, weights: np.ndarray, columns: _Columns) -> None:
    """Refuse to take times and ids for weights."""
    if columns.known or not len(weights) or np.abs(weights).max() < LARGE_WEIGHT:
        return
    if (weights == np.floor(weights)).all():
        raise UserError(
            f"{path}: the third column holds whole numbers from {weights.min():.0f} to "
            f"{weights.max():.0f}, weights or something else, such as times",
            "give --columns source,target,weight or, to leave it out, --columns source,target",
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


def _refuse_matrix_market(path: Path) -> None:
    for _, block in text_blocks(path):
        if block[:14].lower() == "%%matrixmarket":
            raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
        return


def _read_numbers(
    path: Path, columns: _Columns
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Arcs between integers, by NumPy's compiled reader."""
    kinds = (np.int64, np.int64, np.float64)
    dtype = np.dtype(list(zip(ROLES, kinds, strict=True))[: len(columns.places)])
    everything = sorted(columns.places) == list(range(columns.width))
    by_place = np.dtype([dtype.descr[columns.places.index(i)] for i in sorted(columns.places)])
    tables = []
    for first, block in text_blocks(path):
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


def _parse(lines: list[str], dtype: np.dtype, columns: _Columns, everything: bool) -> np.ndarray:
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


def _fault(
    path: Path, first: int, lines: list[str], columns: _Columns, otherwise: str
) -> UserError:
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


def _fits(words: list[str], columns: _Columns) -> bool:
    """Whether a line has the columns; columns that are not read may be missing."""
    if len(columns.places) == columns.width:
        return len(words) == columns.width
    return len(words) > max(columns.places)


def _read_text(
    path: Path, columns: _Columns
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Arcs between texts, which are numbered as they come, and the texts."""
    numbers: dict[str, int] = {}
    ends = (array("q"), array("q"))
    weights = array("d")
    for first, block in text_blocks(path):
        for number, line in enumerate(block.split("\n"), first):
            if not line.strip() or line.lstrip().startswith(COMMENTS) or number == columns.header:
                continue
            words = words_of(line, columns.separator)
            _check_words(path, number, line, words, columns)
            for end, place in zip(ends, columns.places, strict=False):
                end.append(numbers.setdefault(words[place], len(numbers)))
            if len(columns.places) == 3:
                weights.append(float(words[columns.places[2]]))
    if not numbers:
        raise UserError(f"{path} holds no arcs", "one arc 'source target [weight]' a line")
    for name in numbers:
        check_text(name, str(path))
    longest = max(map(len, numbers))
    check_memory(12 * longest * len(numbers), f"{path}: ids of up to {longest} characters")
    source, target = (np.frombuffer(end, np.int64) for end in ends)
    found = np.frombuffer(weights) if len(columns.places) == 3 else None
    return source, target, found, np.array(list(numbers))


def _check_words(path: Path, number: int, line: str, words: list[str], columns: _Columns) -> None:
    at = f"{path}, line {number}: {quoted(line.strip())}"
    if not _fits(words, columns):
        expected = " ".join(ROLES[: len(columns.places)])
        raise UserError(f"{at} has {len(words)} columns, not {columns.width}: {expected!r}")
    for place in columns.places[:2]:
        if not 0 < len(words[place]) <= LONGEST_ID:
            hint = f"ids are texts of 1 to {LONGEST_ID} characters"
            raise UserError(f"{at}: {quoted(words[place])} is no id", hint)
    if len(columns.places) == 3 and not is_number(words[columns.places[2]]):
        raise UserError(f"{at}: {quoted(words[columns.places[2]])} is not a number")
