"""Text files with a row for each vertex: tables of features, and single columns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS
from partition.importing.readers import text
from partition.importing.readers.files import (
    ZIP,
    check_file,
    content_limit,
    dense_features,
    finite_features,
    holds_arrays,
    narrowed,
    open_unpacked,
    packing_of,
    quoted,
    read_errors,
    saved_csr,
)
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
from partition.importing.readers.parquet_tables import (
    array_of,
    column_names,
    open_parquet,
    parquet_errors,
)
from partition.records import (
    DEFLATE_RATIO,
    NUMBERS,
    TEXTS,
    map_npy,
    read_npy,
    read_npz,
)
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


FEATURES = ("features", "feature", "x", "feat", "feats", "attr_matrix", "attributes")
LABELS = ("labels", "label", "y", "target", "targets", "classes")
TARGETS = ("targets", "target", "labels", "label", "y")
MASK_NAMES = ("mask",)
T = TypeVar("T")


def read_features(
    path: str | os.PathLike[str], others: Container[str] = (), comments: str | None = None
) -> Rows:
    """(n, d) float32: an array, a sparse matrix of SciPy's, or lines of d numbers.

    Columns of a table that are called as ``others``, in small letters, are something else. If there
    are some, columns of texts are left out, too. ``comments``, here and below: see :class:`Layout`.
    """
    return _read_matrix(Path(path), FEATURES, others, comments)


def read_labels(
    path: str | os.PathLike[str], column: str | None = None, comments: str | None = None
) -> Rows:
    """(n,) integers or texts: an array, a class a line, or a column of a table by its name."""
    return _read_vector(Path(path), LABELS, column, comments=comments)


def read_targets(path: str | os.PathLike[str], comments: str | None = None) -> Rows:
    """(n, c) float32, or float64 where that loses digits: an array, or lines of numbers.

    A vector is one column. NaN is unknown, infinite numbers are refused.
    """
    return _read_matrix(Path(path), TARGETS, (), comments)


def checked_targets(array: np.ndarray, where: str) -> np.ndarray:
    """(n, c) float32, or float64 where that loses digits, out of numbers; see above."""
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or 0 in array.shape[1:]:
        raise UserError(
            f"{where}: targets are rows of numbers, NaN where unknown, not {array.dtype} "
            f"{array.shape}"
        )
    wide = np.asarray(array, np.float64, order="C").reshape(len(array), -1)
    if np.isinf(wide).any():
        row, column = np.argwhere(np.isinf(wide))[0]
        raise UserError(f"{where}: target {column} of vertex {row} is infinite", "NaN: unknown")
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if np.array_equal(narrow, wide, equal_nan=True) else wide


def read_mask(path: str | os.PathLike[str], name: str, comments: str | None = None) -> Rows:
    """Bool or integers: an array, or lines of true and false, of 0 and 1, or of vertices.

    Or an (n, splits) array of bool, or of 0 and 1.
    """
    rows = _read_vector(Path(path), mask_names(name), comments=comments)
    if rows.values.dtype.kind == "U":
        words = np.char.lower(rows.values)
        if not np.isin(words, ("true", "false")).all():
            return rows
        rows = replace(rows, values=words == "true")
    return rows


def mask_names(name: str) -> tuple[str, ...]:
    """The names that the array or column of a mask may have."""
    return (*MASK_NAMES, name, f"{name}_mask", f"{name}_idx", "idx")


def mask_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a mask: one, or for a name with "*" those with 0, 1, 2 … in its place.

    A UserError if there is none with a 0.
    """
    path = Path(path)
    if path.name.count("*") != 1 or path.exists():
        return [path]
    before, after = path.name.split("*")
    numbers = itertools.takewhile(
        lambda file: file.exists(),
        (path.with_name(f"{before}{k}{after}") for k in itertools.count()),
    )
    files = list(numbers)
    if not files:
        first = path.with_name(f"{before}0{after}")
        raise UserError(f"{path}: there is no {first}", "splits are numbered from 0")
    return files


def read_ids(
    path: str | os.PathLike[str], *, text: bool = False, comments: str | None = None
) -> np.ndarray:
    """(n,) int64 or str: the id of each row, each once; ``text``: integers are texts, too.

    In a file of text they stay as they are written: 07 is not 7.
    """
    rows = _read_vector(Path(path), ("ids", "id", "nodes"), plain=text, comments=comments)
    if rows.ids is not None:
        raise UserError(f"{path} has two columns", "one id a line")
    values = rows.values
    if values.dtype.kind not in "iuU":
        raise UserError(f"{path}: ids are integers or texts, not {values.dtype}")
    values = values.astype(str) if text else values
    values = values if values.dtype.kind == "U" else values.astype(np.int64)
    check_ids(values, path)
    return values


def _kind(path: Path) -> str:
    """The kind of a file by its first bytes: "npy", "packed npy", "npz", "parquet" or "text"."""
    check_file(path)
    packing = packing_of(path)
    if packing == ZIP and holds_arrays(path):
        return "npz"
    with open_unpacked(path) as file:
        magic = file.read(6)
    if magic == b"\x93NUMPY":
        return "npy" if packing is None else "packed npy"
    if magic.startswith(b"PAR1"):
        if packing is not None:
            raise UserError(f"{path} is a Parquet file {packing}", "unpack it")
        return "parquet"
    if magic.startswith(b"\x80"):
        raise UserError(f"{path} is a pickle, which is not read", "save it with numpy.save")
    return "text"


def _read_npy(path: Path, kind: str) -> np.ndarray:
    """The array of an ``.npy``, mapped, or unpacked into memory; with a row for each vertex."""
    if kind == "npy":
        array = map_npy(path, kinds=NUMBERS + TEXTS)
    else:
        array = read_npy(
            lambda: open_unpacked(path, ratio=DEFLATE_RATIO),
            content_limit(path),
            str(path),
            kinds=NUMBERS + TEXTS,
        )
    if array.ndim == 0:
        raise UserError(f"{path} holds a single value, not one for each vertex")
    return array


def _read_vector(
    path: Path,
    names: tuple[str, ...],
    column: str | None = None,
    plain: bool = False,
    comments: str | None = None,
) -> Rows:
    """One value a vertex: from the array or the column of one of the names, or of ``column``.

    ``plain``: integers in a file of text are texts.
    """
    with read_errors(path):
        kind = _kind(path)
        if kind == "text":
            return read_column(path, names, column, plain, comments)
        if kind == "parquet":
            others = () if column is None else (column.lower(),)
            return _chosen(read_table(path, others), names, path, column)
        if kind == "npz":
            arrays = read_npz(path, kinds=NUMBERS + TEXTS)
            return Rows(_decoded(_chosen(arrays, names, path, column), path))
        if column is not None:
            raise UserError(f"{path} has no columns with names, and so no {column!r}")
        return Rows(_decoded(_read_npy(path, kind), path))


def _read_matrix(
    path: Path, names: tuple[str, ...], others: Container[str], comments: str | None
) -> Rows:
    """Several numbers a vertex, checked: features or targets, by ``names``."""
    features = names is FEATURES
    with read_errors(path):
        kind = _kind(path)
        if kind == "text":
            dtype = np.float32 if features else np.float64
            rows = read_number_table(path, names[0], dtype, others, comments)
        elif kind == "parquet":
            rows = _numbers_of(read_table(path, others), names, path, others)
        elif kind == "npz":
            arrays = read_npz(path, kinds=NUMBERS + TEXTS if features else NUMBERS)
            if features and ("indptr" in arrays or "format" in arrays):
                return Rows(dense_features(saved_csr(arrays, str(path)), str(path)))
            rows = Rows(_chosen(arrays, names, path))
        else:
            rows = Rows(_read_npy(path, kind))
        if not features:
            return replace(rows, values=checked_targets(rows.values, str(path)))
        of = "vertex" if rows.ids is None else "row"
        values = finite_features(rows.values, str(path), of, rows.columns)
        return replace(rows, values=values)


def _numbers_of(
    columns: Mapping[str, Rows], names: tuple[str, ...], path: Path, others: Container[str] = ()
) -> Rows:
    """The column of one of the names that holds lists, or all columns side by side."""
    note = ""
    if others:
        columns = {name: rows for name, rows in columns.items() if name.lower() not in others}
        texts = [name for name, rows in columns.items() if rows.values.dtype.kind == "U"]
        columns = {name: rows for name, rows in columns.items() if name not in texts}
        note = f"{path}: no features, but texts: {', '.join(map(quoted, texts))}" if texts else ""
    lists = [name for name, rows in columns.items() if rows.values.ndim == 2]
    if lists:
        return _chosen({name: columns[name] for name in lists}, names, path)
    for name, rows in columns.items():
        if rows.values.dtype.kind not in "biuf":
            raise UserError(
                f"{path}: the column {quoted(name)} holds no numbers",
                f"if it is the label of a vertex, --label-column {name}",
            )
    if not columns:
        raise UserError(f"{path} has no columns of numbers")
    values = np.stack([rows.values for rows in columns.values()], axis=1)
    return Rows(values, next(iter(columns.values())).ids, note, columns=tuple(columns))


def _decoded(array: np.ndarray, path: Path) -> np.ndarray:
    """Texts of bytes as texts; other arrays as they are."""
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} holds texts that are not UTF-8") from error


def _chosen(
    arrays: Mapping[str, T], names: tuple[str, ...], path: Path, column: str | None = None
) -> T:
    """The only one of some named things, or the only one with one of ``names``; or ``column``."""
    if column is not None:
        if column not in arrays:
            raise unknown_name(f"column of {path}", column, arrays)
        return arrays[column]
    fitting = [name for name in arrays if name.lower() in names]
    if len(arrays) == 1:
        fitting = list(arrays)
    if len(fitting) != 1:
        found = ", ".join(quoted(name) for name in list(arrays)[:12]) or "nothing"
        raise UserError(
            f"{path} holds {found}: it is not clear which array to read",
            f"keep one only, or call it {names[0]!r}",
        )
    return arrays[fitting[0]]


NODE_LABELS = ("label", "labels", "y", "class", "classes")
NODE_TARGETS = ("target", "targets")
SPLIT = ("split", "mask")
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
ARRAYS = (".npy", ".npz")
HEADER = "the first line names the columns, such as id,age,label,split"


@dataclass(frozen=True)
class NodeTable:
    """The vertices of one type.

    Attributes
    ----------
    ids : (n,) int64 or str, optional
        None: those that occur in arcs.
    features : (n, d) float32, optional
    labels : (n,) integers or texts, optional
    targets : (n, c) numbers, optional
    masks : mapping of "train" / "val" / "test" to (n,) bool
    unread : tuple of str
        Columns that are nothing of these.
    comments : int
        How many lines were comments.
    """

    ids: np.ndarray | None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    targets: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    comments: int = 0


def read_nodes(
    path: Path, type: str = "", as_text: bool = False, comments: str | None = None
) -> NodeTable:
    """Read a table in text with a header, in Parquet, or an array of features in ``.npy``.

    A column called ``id``, as the type or the like has the ids, see :func:`id_place`; without it
    they are 0 … n−1. In text, they
    stay as they are written if one is not :func:`plain`, or with ``as_text``. Columns
    called ``label`` or ``y`` hold classes, ``target`` numbers to learn, ``split`` the words train,
    val and test, ``train_mask`` and so on true or false; other columns of numbers, or lists of
    them, are features. A UserError if the file is damaged, or a column does not hold that.
    """
    check_file(path)
    if path.suffix in ARRAYS:
        features = read_features(path).values
        return NodeTable(np.arange(len(features)), features)
    with read_errors(path):
        if path.suffix == ".parquet":
            rows = read_table(path, type=type)
            columns = {name: one.values for name, one in rows.items()}
            ids = next(iter(rows.values())).ids if rows else None
            if len(columns) == 1 and id_place(list(columns), path, type=type) == 0:
                ids, columns = next(iter(columns.values())), {}
            return _meant(path, ids, columns)
        return _text(path, type, as_text, comments)


def plain(ids: np.ndarray) -> bool:
    """Whether all of some texts are whole numbers, written as those are: 7, but not 007.

    >>> plain(np.array(["7", "-10"])), plain(np.array(["7", "007"])), plain(np.array(["x"]))
    (True, False, False)
    """
    try:
        return bool((ids.astype(np.int64).astype(str) == ids).all())
    except (ValueError, OverflowError):
        return False


def _text(path: Path, type: str, as_text: bool, comments: str | None) -> NodeTable:
    """A table in text, whose header names all columns."""
    opening = text.open_table(path, text.LONGEST_ROW, comments)
    if not opening.lines:
        raise UserError(f"{path} holds no vertices", "a header line, and a line for each vertex")
    begins, first = opening.lines[0]
    separator = text.separator_of(first)

    lone = separator is None and len(text.words_of(first, None)) == 1

    def cut(line: str) -> list[str]:
        return [line.strip().strip('"')] if lone else text.words_of(line, separator)

    def known(names: list[str]) -> bool:
        if not names[0]:
            return of_frame(names, cut(opening.second))
        return any(_is_word_by_word(name) for name in names) or (
            id_place(names, path, type=type) is not None
        )

    numbers = list(map(text.is_number, cut(opening.second)))
    header, names = opening.header(cut, known, lambda row: any(numbers), texts=not all(numbers))
    rows = [cut(line) for _, line in opening.rows(header)]
    if not header or not rows or len(rows[0]) != len(names) or len(set(names)) < len(names):
        raise UserError(
            f"{path}, line {begins}: {quoted(first.strip())} is no header of its lines", HEADER
        )
    at = id_place(names, path, type=type)
    used = [i for i, name in enumerate(names) if i == at or not is_index(name)]
    kinds = {
        i: pa.string() if i == at or _is_word_by_word(names[i]) or not of_numbers(i, rows)
        else pa.float64()
        for i in used
    }  # fmt: skip
    table = text.Table(
        path, separator, len(names), kinds,
        header=header, begins=begins, names=names, comments=opening.comments,
    )  # fmt: skip
    found = dict(zip(used, table.columns(), strict=True))
    ids = None
    if at is not None:
        texts = text_array(found.pop(at), path, plain=True)
        ids = texts if as_text or not plain(texts) else texts.astype(np.int64)
        check_ids(ids, path)
    columns = {
        names[i]: text_array(column, path) if column.type == pa.string() else column.to_numpy()
        for i, column in found.items()
    }
    return replace(_meant(path, ids, columns), comments=table.comments.lines)


def _is_word_by_word(name: str) -> bool:
    """Whether a column has labels, a split or a mask, whose words are no numbers to learn from."""
    return name.lower() in {*NODE_LABELS, *SPLIT, *(each for m in MASKS for each in mask_names(m))}


def _meant(path: Path, ids: np.ndarray | None, columns: Mapping[str, np.ndarray]) -> NodeTable:
    """The columns by their meaning, which their names say."""
    labels, targets, features = None, [], []
    masks: dict[str, np.ndarray] = {}
    unread = []
    for name, values in columns.items():
        where, plain = f"{path}: the column {quoted(name)}", name.lower()
        mask = next((m for m in MASKS if plain in (m, f"{m}_mask")), None)
        if plain in NODE_LABELS and values.dtype.kind in "iuU":
            labels = values
        elif plain in (*NODE_LABELS, *NODE_TARGETS) and values.dtype.kind in "biuf":
            targets.append(values.reshape(len(values), -1))
        elif plain in SPLIT and values.dtype.kind == "U":
            masks |= _split(values, where)
        elif mask is not None:
            masks[mask] = _mask(values, where)
        elif values.dtype.kind in "biuf":
            features.append(values.reshape(len(values), -1))
        else:
            unread.append(name)
    rows = [len(values) for values in columns.values()]
    if ids is None and not rows:
        raise UserError(f"{path} holds no vertices")
    return NodeTable(
        np.arange(rows[0]) if ids is None else ids,
        finite_features(np.concatenate(features, axis=1), str(path)) if features else None,
        labels,
        checked_targets(np.concatenate(targets, axis=1), str(path)) if targets else None,
        masks,
        tuple(unread),
    )


def _split(values: np.ndarray, where: str) -> dict[str, np.ndarray]:
    """A mask for each of the words train, val and test."""
    words = np.char.lower(values)
    strange = set(np.unique(words).tolist()) - {*SPLITS, "", "none", "-"}
    if strange:
        raise UserError(f"{where} holds {quoted(min(strange))}", "train, val, test, or nothing")
    named = {ours: [theirs for theirs in SPLITS if SPLITS[theirs] == ours] for ours in MASKS}
    found = {mask: np.isin(words, theirs) for mask, theirs in named.items()}
    return {mask: rows for mask, rows in found.items() if rows.any()}


def _mask(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype.kind == "U":
        words = np.char.lower(values)
        if np.isin(words, ("true", "false")).all():
            return words == "true"
    elif values.dtype.kind == "b" or np.isin(values, (0, 1)).all():
        return values.astype(bool)
    raise UserError(f"{where} is no mask: true and false, or 1 and 0", HEADER)


def read_table(path: Path, others: Container[str] = (), type: str = "") -> dict[str, Rows]:
    """The columns of a file with a row for each vertex, by their names.

    A column called ``id`` or the like says which vertex a row is of, see :func:`id_place`; lists of
    one length are rows of an array. A UserError if a value is missing, or a column holds neither
    numbers, bool nor texts.
    """
    names, file = column_names(path), open_parquet(path)
    rows, arrays = file.metadata.num_rows, {}
    place = id_place(names, path, type=type, others=others) if len(names) > 1 else None
    called = None if place is None else names[place]
    for name in names:
        if is_index(name) and name != called and len(names) > 1:
            continue
        check_memory(16 * rows, f"{path}: {rows} rows")
        with parquet_errors(path):
            column = file.read(columns=[name]).column(name)
            column = column.combine_chunks()
        if name != called and pa.types.is_string(column.type):
            column = column.fill_null("")  # no label, as in text
        arrays[name] = array_of(column, name, path)
    ids = None if called is None else arrays.pop(called)
    if ids is not None:
        check_ids(ids, path)
    return {name: Rows(array, ids) for name, array in arrays.items()}
