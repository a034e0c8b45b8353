"""Text files with a row for each vertex: tables of features, and single columns."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from partition.errors import UserError, unknown_name
from partition.importing.readers import text
from partition.importing.readers.files import narrowed, quoted
from partition.importing.readers.names import (
    IDS,
    INDEX,
    id_place,
    is_header,
    is_index,
    is_missing,
    is_name,
    of_frame,
    plain_name,
)
from partition.importing.readers.numbering import check_ids
from partition.resident import check_memory

BOOLEANS = ("true", "false")
HEADINGS = IDS | INDEX | {"label", "labels", "class", "classes", "y", "target", "mask", "nodes"}


@dataclass(frozen=True)
class Rows:
    """The content of a file with a row for each of some vertices.

    Attributes
    ----------
    values : (n, …) array
        Numbers, bool, or texts.
    ids : (n,) int64 or str, optional
        Which vertex each row is of, where the file says so.
    note : str
        The columns that were not read, for the user.
    comments : int
        How many lines were comments.
    columns : tuple of str
        The names of the columns of ``values``, where the file has some.
    """

    values: np.ndarray
    ids: np.ndarray | None = None
    note: str = ""
    comments: int = 0
    columns: tuple[str, ...] = ()


def read_number_table(
    path: Path,
    what: str,
    dtype: DTypeLike,
    others: Container[str] = (),
    comments: str | None = None,
) -> Rows:
    """(n, d) numbers from lines of them, under a header with the names or without.

    A column that the header calls an id says which vertex each row is of. Columns called as
    ``others``, in small letters, are something else; if there are some, columns of texts are left
    out, too. Messages call the numbers ``what``; ``comments``: see :class:`text.Comments`.
    """
    opening = text.open_table(path, text.LONGEST_ROW, comments)
    if not opening.lines:
        raise UserError(f"{path} holds no {what}", "one vertex a line: numbers")
    begins, first = opening.lines[0]
    separator = text.separator_of(first)

    def cut(line: str) -> list[str]:
        return text.words_of(line, separator)

    def known(names: list[str]) -> bool:
        if len(names) > 1 and not names[0]:
            return of_frame(names, cut(opening.second))
        at = id_place(names, path, others=others) if len(names) > 1 else None
        return at is not None or any(name.lower() in others for name in names)

    header, names = opening.header(cut, known, lambda row: any(map(text.is_number, row)))
    rows = [(number, cut(line)) for number, line in opening.rows(header)]
    if not rows:
        raise UserError(f"{path} holds a header, but no {what}")
    used = list(range(len(cut(first))))
    ids, note = [], ""
    if header:
        at = id_place(names, path, others=others)
        ids = [] if at is None else [at]
        unread = [i for i in used if i not in ids and is_index(names[i])]
        rest = [i for i in used if i not in (*ids, *unread) and names[i].lower() not in others]
        used = [i for i in rest if not others or of_numbers(i, [row for _, row in rows])]
        texts = [quoted(names[i]) for i in rest if i not in used]
        note = f"{path}: no {what}, but texts: {', '.join(texts)}" if texts else ""
        _refuse_label(path, rows[0], names, used)
    elif not any(map(text.is_number, rows[0][1])):
        raise UserError(
            f"{path}, line {begins}: {quoted(first.strip())} is not {len(used)} numbers",
            "a vertex a line; a column of ids is called 'id' in a header line",
        )
    if not used:
        raise UserError(f"{path} has a column of ids, but no {what}")
    kinds = dict.fromkeys(ids, pa.string()) | dict.fromkeys(used, pa.float64())
    table = text.Table(
        path, separator, len(cut(first)), kinds,
        header=header, begins=begins, names=names, comments=opening.comments,
    )  # fmt: skip
    if what == "targets":
        table = replace(table, missing="write nan where a target is unknown")
    tables, of_rows = [], []
    for columns in table.pieces():
        of_rows += columns[: len(ids)]
        tables.append(narrowed(np.stack(columns[len(ids) :], axis=1), dtype, path))
    numbers = np.concatenate(tables)
    if not header:
        _refuse_counter(path, numbers, what)
    return Rows(
        numbers,
        id_array(pa.chunked_array(of_rows), path) if ids else None,
        note,
        table.comments.lines,
        tuple(names[i] for i in used) if header else (),
    )


def of_numbers(place: int, rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first rows have numbers in a column, or nothing at all."""
    given = [row[place] for row in rows if place < len(row) and not is_missing(row[place])]
    return not given or any(map(text.is_number, given))


def _refuse_label(
    path: Path, row: tuple[int, list[str]], names: list[str], used: list[int]
) -> None:
    """Refuse a first row with a text, which may be the label."""
    number, words = row
    for i in used:
        if i < len(words) and is_name(words[i]):
            raise UserError(
                f"{path}, line {number}: the column {quoted(names[i])} holds {quoted(words[i])}, "
                "not a number",
                f"if it is the label of a vertex, --label-column {names[i]}; a column of ids is "
                "called 'id'",
            )


def _refuse_counter(path: Path, numbers: np.ndarray, what: str) -> None:
    """Refuse a first column that counts the rows: it is hardly a feature."""
    n, width = numbers.shape
    if n < 3 or width < 2 or n >= 1 << 24:  # beyond, float32 cannot count
        return
    first = np.sort(numbers[:, 0])
    if (first == np.arange(n) + first[0]).all() and first[0] in (0, 1):
        raise UserError(
            f"{path}: the first column holds each of {first[0]:.0f}..{first[-1]:.0f} once: ids, or "
            f"{what}?",
            "put a header line first: 'id,…' if the column says which vertex a row is of, "
            f"any other name if it is among the {what}",
        )


def read_column(
    path: Path,
    names: Container[str] = (),
    column: str | None = None,
    plain: bool = False,
    comments: str | None = None,
) -> Rows:
    """(n,) int64 or texts: a value a line, or an id and a value under a header 'id,…'.

    Integers are texts as well if they are to stay as they are written: ``plain``.

    Of several columns under a header, the value is in the one called ``column``, or as one of
    ``names``, in small letters. ``comments``: see :class:`text.Comments`.
    """
    opening = text.open_table(path, text.LONGEST_ROW, comments)
    if not opening.lines:
        raise UserError(f"{path} is empty", "one value a line")
    begins, first = opening.lines[0]
    separator = text.separator_of(first)
    others = () if column is None else (column.lower(),)

    def known(words: list[str]) -> bool:
        if len(words) == 1:
            return column in words or plain_name(words[0]) in HEADINGS
        if not words[0]:
            return of_frame(words, text.words_of(opening.second, separator))
        fitting = any(word.lower() in names or word == column for word in words)
        return fitting or id_place(words, path, others=others) is not None

    # Texts may have blanks, names of columns have none.
    apart = text.words_of(first, None)
    ids_named = len(apart) > 1 and apart[0] and id_place(apart, path, others=others) is not None
    lone = separator is None and not (ids_named and any(w.lower() in names for w in apart))

    def cut(line: str) -> list[str]:
        return [line.strip().strip('"')] if lone else text.words_of(line, separator)

    header, found = opening.header(cut, known, _counts_or_is_true, texts=True)
    width = len(cut(first))
    if column is not None and column not in found:
        raise unknown_name(f"column of {path}", column, found or cut(first))
    ids = id_place(found, path, others=others) if width > 1 else None
    rest = [i for i in range(width) if i != ids and not (found and is_index(found[i]))]
    fitting = [i for i in rest if found and found[i].lower() in names]
    if column is not None:
        fitting = [found.index(column)]
    elif len(rest) == 1 and (ids is not None or width == 1):
        fitting = rest
    if len(fitting) != 1:
        raise UserError(
            f"{path}, line {begins}: {quoted(first.strip())} has {width} columns",
            "one value a line, or a header line 'id,…' and then an id and a value a line; "
            "--label-column NAME takes labels from the column of that name in the header",
        )
    kinds = dict.fromkeys(fitting if ids is None else [ids, *fitting], pa.string())
    table = text.Table(
        path, separator, width, kinds,
        header=header, begins=begins, names=found, comments=opening.comments,
    )  # fmt: skip
    columns = table.columns()
    values = columns[-1]
    if width == 1 and header == begins and column is None and not _is_heading(found[0], values):
        values = pa.chunked_array([pa.array(found), *values.chunks])
    return Rows(
        text_array(values, path, plain),
        None if ids is None else id_array(columns[0], path),
        comments=table.comments.lines,
    )


def _counts_or_is_true(row: list[str]) -> bool:
    """Whether the values of a row are integers, true or false."""
    return all(text.is_integer(word) or word.lower() in BOOLEANS for word in row)


def _is_heading(first: str, values: pa.ChunkedArray) -> bool:
    """Whether the first line names the only column: it is no value, and the others are no texts."""
    others = [word for word in values.unique().to_pylist() if not is_missing(word)]
    return first not in others and is_header(
        [first],
        known=plain_name(first) in HEADINGS,
        above_numbers=first.lower() not in BOOLEANS and _counts_or_is_true(others),
        texts=True,
    )


def text_array(values: pa.ChunkedArray, path: Path, plain: bool = False) -> np.ndarray:
    """Words as int64 where all of them are integers, and as texts otherwise, or if ``plain``."""
    if not len(values):
        raise UserError(f"{path} holds a header, but no values")
    coded = values.combine_chunks().dictionary_encode()
    distinct, places = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    if not plain and all(map(text.is_integer, distinct)):
        return np.array(list(map(int, distinct)), np.int64)[places]
    longest = max(map(len, distinct))
    check_memory(4 * longest * len(values), f"{path}: texts of up to {longest} characters")
    return np.array(distinct)[places]


def id_array(ids: pa.ChunkedArray, path: Path) -> np.ndarray:
    """The ids of rows, each once."""
    array = text_array(ids, path)
    check_ids(array, path)
    return array
