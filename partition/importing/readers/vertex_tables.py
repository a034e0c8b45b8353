"""Text files with a row for each vertex: tables of features, and single columns."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from partition.errors import UserError, unknown_name
from partition.importing.readers import text
from partition.importing.readers.files import narrowed, quoted
from partition.importing.readers.numbering import check_ids
from partition.resident import check_memory

# Names of a column, in a header, that says which vertex a row is of.
ID_COLUMNS = {"", "id", "ids", "node", "nodeid", "vertex", "vertexid", "index", "unnamed:0"}
BOOLEANS = ("true", "false")
HEADINGS = ID_COLUMNS | {"label", "labels", "class", "classes", "y", "target", "mask", "nodes"}


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
    """

    values: np.ndarray
    ids: np.ndarray | None = None
    note: str = ""


def read_number_table(path: Path, what: str, dtype: DTypeLike, others: Container[str] = ()) -> Rows:
    """(n, d) numbers from lines of them, under a header with the names or without.

    A first column that the header calls an id says which vertex each row is of. Columns called as
    ``others``, in small letters, are something else; if there are some, columns of texts are left
    out, too. Messages call the numbers ``what``.
    """
    lines = text.first_lines(path, 2, text.LONGEST_ROW)
    if not lines:
        raise UserError(f"{path} holds no {what}", "one vertex a line: numbers")
    header, first = lines[0]
    separator = text.separator_of(first)
    words = text.words_of(first, separator)
    if all(map(text.is_number, words)):
        header, names = 0, None
    else:
        sample = text.words_of(lines[1][1], separator) if len(lines) > 1 else []
        names = text.plain_name(words[0])
        values = sample[names in ID_COLUMNS :]
        # Names may be numbers where all values are; a value may be missing, which is told below.
        given = sum(not word or text.is_number(word) for word in values)
        headed = given == len(values) or (given > 0 and not any(map(text.is_number, words)))
        if len(sample) != len(words) or not headed:
            raise UserError(
                f"{path}, line {header}: {quoted(first.strip())} is not {len(words)} numbers",
                "a vertex a line; a column of ids has a header line that begins with 'id'",
            )
    skip = int(names in ID_COLUMNS) if names is not None else 0
    used = list(range(skip, len(words)))
    note = ""
    if header:
        _check_sample(path, lines[1][0], words, sample, used, others)
        rest = [i for i in used if words[i].lower() not in others]
        used = [i for i in rest if text.is_number(sample[i])]
        texts = [quoted(words[i]) for i in rest if i not in used]
        note = f"{path}: no {what}, but texts: {', '.join(texts)}" if texts else ""
    if not used:
        raise UserError(f"{path} has a column of ids, but no {what}")
    kinds = dict.fromkeys([0] * skip, pa.string()) | dict.fromkeys(used, pa.float64())

    table = text.Table(path, separator, len(words), kinds, header=header)
    tables, ids = [], []
    for columns in table.pieces():
        ids += columns[:skip]
        tables.append(narrowed(np.stack(columns[skip:], axis=1), dtype, path))
    numbers = np.concatenate(tables)
    if not skip and header == 0:
        _refuse_counter(path, numbers, what)
    return Rows(numbers, id_array(pa.chunked_array(ids), path) if skip else None, note)


def _check_sample(
    path: Path,
    line: int,
    names: list[str],
    words: list[str],
    used: list[int],
    others: Container[str],
) -> None:
    """Refuse a first row that lacks a value, or in which a text may be the label."""
    for i in used:
        if not words[i] and names[i].lower() not in others:
            raise UserError(
                f"{path}, line {line}: the column {quoted(names[i])} holds no value",
                "features may not be missing: fill them in, or leave the column out",
            )
    for i in used:
        if not others and not text.is_number(words[i]):
            raise UserError(
                f"{path}, line {line}: the column {quoted(names[i])} holds {quoted(words[i])}, "
                "not a number",
                f"if it is the label of a vertex, --label-column {names[i]}; a column of ids comes "
                "first, and is called 'id'",
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
    path: Path, names: Container[str] = (), column: str | None = None, plain: bool = False
) -> Rows:
    """(n,) int64 or texts: a value a line, or an id and a value under a header 'id,…'.

    Integers are texts as well if they are to stay as they are written: ``plain``.

    Of several columns under a header, the value is in the one called ``column``, or as one of
    ``names``, in small letters.
    """
    lines = text.first_lines(path, 1, text.LONGEST_ROW)
    if not lines:
        raise UserError(f"{path} is empty", "one value a line")
    header, first = lines[0]
    separator = text.separator_of(first)
    words = [first.strip().strip('"')] if separator is None else text.words_of(first, separator)
    width = len(words)
    paired = width > 1 and text.plain_name(words[0]) in ID_COLUMNS
    at = width - 1
    if column is not None:
        if column not in words:
            raise unknown_name(f"column of {path}", column, words)
        at = words.index(column)
    elif width > 2 or (width == 2 and not paired):
        fitting = [i for i, word in enumerate(words) if word.lower() in names]
        if len(fitting) != 1:
            raise UserError(
                f"{path}, line {header}: {quoted(first.strip())} has {width} columns",
                "one value a line, or a header line 'id,…' and then an id and a value a line; "
                "--label-column NAME takes labels from the column of that name in the header",
            )
        (at,) = fitting
    headed = paired or width > 1 or column is not None
    kinds = dict.fromkeys([0, at] if paired else [at], pa.string())

    found = text.Table(path, separator, width, kinds, header=header if headed else 0).columns()
    values = found[-1]
    if not headed and _is_heading(values):
        values = values[1:]
    return Rows(text_array(values, path, plain), id_array(found[0], path) if paired else None)


def _is_heading(values: pa.ChunkedArray) -> bool:
    """Whether the first line names the column."""
    first = values[0].as_py()
    if text.plain_name(first) in HEADINGS:
        return True
    others = [value for value in values.unique().to_pylist() if value != first]
    if not others or text.is_number(first) or first.lower() in BOOLEANS:
        return False
    return all(text.is_integer(value) or value.lower() in BOOLEANS for value in others)


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
