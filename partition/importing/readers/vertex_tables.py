"""Files with a row for each vertex: tables in text and in Parquet, and arrays of NumPy.

Whatever is read of a table, its first line is judged by one rule, and so is the column with ids.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
    is_type,
    of_frame,
    plain_name,
)
from partition.importing.readers.numbering import check_ids
from partition.importing.readers.parquet_tables import (
    array_of,
    column_names,
    is_list,
    is_text,
    open_parquet,
    parquet_errors,
)
from partition.records import DEFLATE_RATIO, NUMBERS, TEXTS, map_npy, read_npy, read_npz
from partition.resident import check_memory

# Names of arrays and columns, in small letters.
FEATURES = ("features", "feature", "x", "feat", "feats", "attr_matrix", "attributes")
CLASSES = ("label", "labels", "y", "class", "classes")
NUMBERS_TO_LEARN = ("target", "targets")
LABELS, TARGETS = (*CLASSES, *NUMBERS_TO_LEARN), (*NUMBERS_TO_LEARN, "labels", "label", "y")
SPLIT = ("split", "mask")
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
BOOLEANS = ("true", "false")
HEADINGS = IDS | INDEX | {*CLASSES, "target", "mask", "nodes"}  # of a single column
HEADER = "the first line names the columns, such as id,age,label,split"


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


def read_features(
    path: str | os.PathLike[str], others: Container[str] = (), comments: str | None = None
) -> Rows:
    """(n, d) float32: an array, a sparse matrix of SciPy's, or lines of d numbers.

    Columns of a table that are called as ``others``, in small letters, are something else. If there
    are some, columns of texts are left out, too. ``comments``, here and below: see
    :class:`~partition.importing.readers.source.Layout`.
    """
    return _read_matrix(Path(path), _Sought("features", FEATURES, others), comments)


def read_targets(path: str | os.PathLike[str], comments: str | None = None) -> Rows:
    """(n, c) float32, or float64 where that loses digits: an array, or lines of numbers.

    A vector is one column. NaN is unknown, infinite numbers are refused.
    """
    return _read_matrix(Path(path), _Sought("targets", TARGETS), comments)


def read_labels(
    path: str | os.PathLike[str], column: str | None = None, comments: str | None = None
) -> Rows:
    """(n,) integers or texts: an array, a class a line, or a column of a table by its name."""
    return _read_vector(Path(path), LABELS, column, comments=comments)


def read_mask(path: str | os.PathLike[str], name: str, comments: str | None = None) -> Rows:
    """Bool or integers: an array, or lines of true and false, of 0 and 1, or of vertices.

    Or an (n, splits) array of bool, or of 0 and 1.
    """
    rows = _read_vector(Path(path), mask_names(name), comments=comments)
    if rows.values.dtype.kind == "U":
        words = np.char.lower(rows.values)
        if not np.isin(words, BOOLEANS).all():
            return rows
        rows = replace(rows, values=words == "true")
    return rows


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


def read_nodes(
    path: Path, type: str = "", as_text: bool = False, comments: str | None = None
) -> NodeTable:
    """Read a table in text with a header, in Parquet, or an array of features in ``.npy``.

    A column called ``id``, as the type or the like has the ids, see :func:`id_place`; without it
    they are 0 … n−1. In text, they stay as they are written if one is not :func:`plain`, or with
    ``as_text``. Columns called ``label`` or ``y`` hold classes, ``target`` numbers to learn,
    ``split`` the words train, val and test, ``train_mask`` and so on true or false; other columns
    of numbers, or lists of them, are features. A UserError if the file is damaged, or a column does
    not hold that.
    """
    with read_errors(path):
        kind = _kind(path)
        if kind not in TABLES:
            features = read_features(path).values
            return NodeTable(np.arange(len(features)), features)
        masks = {word for name in MASKS for word in mask_names(name)}
        sought = _Sought("vertices", {*CLASSES, *SPLIT, *masks}, texts=None, type=type)
        table = TABLES[kind](path, sought, comments)
        table.check_header()
        role = {i: _role(table.names[i].lower(), table.of_numbers(i)) for i in table.data()}
        chosen = {of: [i for i, is_ in role.items() if is_ == of] for of in ("target", "feature")}
        texts = [i for i, is_ in role.items() if is_ not in chosen]
        found, (targets, features) = table.read(texts, *chosen.values(), as_written=(table.ids,))
        ids = None if table.ids is None else found.pop(table.ids)
        if ids is not None:
            as_number = kind == "text" and not as_text and plain(ids)
            ids = ids.astype(np.int64) if as_number else ids
            check_ids(ids, path)
        elif not role:
            raise UserError(f"{path} holds no vertices")
        ids = np.arange(max(map(len, (targets, features, *found.values())))) if ids is None else ids
        return _nodes(table, ids, targets, features, {i: (role[i], found[i]) for i in texts})


def plain(ids: np.ndarray) -> bool:
    """Whether all of some texts are whole numbers, written as those are: 7, but not 007.

    >>> plain(np.array(["7", "-10"])), plain(np.array(["7", "007"])), plain(np.array(["x"]))
    (True, False, False)
    """
    try:
        return bool((ids.astype(np.int64).astype(str) == ids).all())
    except (ValueError, OverflowError):
        return False


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


def mask_names(name: str) -> tuple[str, ...]:
    """The names that the array or column of a mask may have."""
    return ("mask", name, f"{name}_mask", f"{name}_idx", "idx")


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


def _read_matrix(path: Path, sought: _Sought, comments: str | None) -> Rows:
    """Several numbers a vertex, checked: features or targets."""
    features = sought.names is FEATURES
    with read_errors(path):
        kind = _kind(path)
        if kind in TABLES:
            table = TABLES[kind](path, sought, comments)
            rows = _numbers_of(table, sought, np.float32 if features else np.float64)
        elif kind == "npz":
            arrays = read_npz(path, kinds=NUMBERS + TEXTS if features else NUMBERS)
            if features and ("indptr" in arrays or "format" in arrays):
                return Rows(dense_features(saved_csr(arrays, str(path)), str(path)))
            rows = Rows(arrays[_chosen(list(arrays), sought.names, path)])
        else:
            rows = Rows(_read_npy(path, kind))
        if not features:
            return replace(rows, values=checked_targets(rows.values, str(path)))
        of = "vertex" if rows.ids is None else "row"
        return replace(rows, values=finite_features(rows.values, str(path), of, rows.columns))


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
        if kind in TABLES:
            others = () if column is None else (column.lower(),)
            sought = _Sought("values", names, others, column, texts=True)
            return _values_of(TABLES[kind](path, sought, comments), sought, plain)
        if kind == "npz":
            arrays = read_npz(path, kinds=NUMBERS + TEXTS)
            return Rows(_decoded(arrays[_chosen(list(arrays), names, path, column)], path))
        if column is not None:
            raise UserError(f"{path} has no columns with names, and so no {column!r}")
        return Rows(_decoded(_read_npy(path, kind), path))


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


def _decoded(array: np.ndarray, path: Path) -> np.ndarray:
    """Texts of bytes as texts; other arrays as they are."""
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} holds texts that are not UTF-8") from error


def _chosen(
    names: Sequence[str], wanted: Collection[str], path: Path, column: str | None = None
) -> str:
    """The only one of some names, or the only one that is wanted; or ``column``."""
    if column is not None:
        if column not in names:
            raise unknown_name(f"column of {path}", column, names)
        return column
    fitting = [name for name in names if name.lower() in wanted]
    if len(names) == 1:
        fitting = list(names)
    if len(fitting) != 1:
        found = ", ".join(map(quoted, names[:12])) or "nothing"
        raise UserError(
            f"{path} holds {found}: it is not clear which array to read",
            f"keep one only, or call it {next(iter(wanted))!r}",
        )
    return fitting[0]


# Tables, in text and in Parquet


@dataclass(frozen=True)
class _Sought:
    """What is sought in a table, by which its first line is judged.

    Attributes
    ----------
    what : str
        What it is called in messages.
    names, others : container of str
        Names in small letters: those of what is sought, and of what is something else.
    column : str, optional
        The column that the user names.
    texts : bool, optional
        Whether values may be texts; None: as they are in the second line.
    type : str
        That of the vertices.
    """

    what: str
    names: Collection[str] = ()
    others: Container[str] = ()
    column: str | None = None
    texts: bool | None = False
    type: str = ""

    def ids(self, names: Sequence[str], path: Path) -> int | None:
        """The column with ids; a single column of values has none."""
        if not names or (len(names) == 1 and self.texts):
            return None
        return id_place(names, path, type=self.type, others=self.others)

    def tells(self, names: Sequence[str], path: Path) -> bool:
        """Whether one of the names is known, so that they are names."""
        if self.column in names:
            return True
        if len(names) == 1:
            return plain_name(names[0]) in HEADINGS or is_type(names[0], self.type)
        known = self.others if self.texts is False else self.names
        return any(n.lower() in known for n in names) or self.ids(names, path) is not None


class _Table:
    """A table: the places and names of its columns, and which of them has the ids."""

    path: Path
    where: str  # its first line, for messages
    first: Sequence[str] = ()  # the words of it
    names: tuple[str, ...] = ()
    width: int
    ids: int | None
    comments: int = 0

    def data(self, others: Container[str] = ()) -> list[int]:
        """The columns that are no ids, no index of a frame, and not called as others."""
        places = [i for i in range(self.width) if i != self.ids]
        return places if not self.names else [
            i for i in places
            if not is_index(self.names[i]) and self.names[i].lower() not in others
        ]  # fmt: skip

    def read(
        self, texts: Sequence[int], *numbers: Sequence[int], dtype: DTypeLike = np.float64,
        as_written: Container[int | None] = (),
    ) -> tuple[dict[int, np.ndarray], list[np.ndarray]]:  # fmt: skip
        """Columns of texts, that of ids with them, by their places; and groups of numbers, (n, …).

        Texts become integers where all are, unless they stay ``as_written``.
        """
        words = [*([] if self.ids is None else [self.ids]), *texts]
        of_words: dict[int, list[Any]] = {place: [] for place in words}
        of_numbers = [list[np.ndarray]() for _ in numbers]
        for columns in self.pieces(words, [place for group in numbers for place in group]):
            for place in words:
                of_words[place].append(columns[place])
            for group, rows in zip(numbers, of_numbers, strict=True):
                wide = [self.array(columns[place], place) for place in group]
                if group:
                    rows.append(narrowed(np.concatenate(wide, axis=1), dtype, self.path))
        nothing = np.empty((0, 0), dtype)
        groups = [np.concatenate(rows) if rows else nothing for rows in of_numbers]
        return {i: self.texts(some, i, i in as_written) for i, some in of_words.items()}, groups

    def of_numbers(self, place: int) -> bool:
        """Whether a column holds numbers."""
        raise NotImplementedError

    def of_lists(self, place: int) -> bool:
        """Whether a column holds lists."""
        return False

    def check_header(self) -> None:
        """A UserError if the columns have no names."""

    def check_numbers(self, places: Sequence[int], what: str) -> None:
        """A UserError if a column does not hold numbers."""
        raise NotImplementedError

    def pieces(self, words: Sequence[int], numbers: Sequence[int]) -> Iterator[dict[int, Any]]:
        """Columns by their places, some rows at a time."""
        raise NotImplementedError

    def array(self, column: Any, place: int) -> np.ndarray:
        """Numbers of a piece, (m, …)."""
        found = np.asarray(column)
        return found.reshape(len(found), math.prod(found.shape[1:]))

    def texts(self, pieces: list[Any], place: int, as_written: bool) -> np.ndarray:
        """All pieces of a column that may hold texts."""
        raise NotImplementedError


class _Text(_Table):
    """A table in text, whose first lines are judged."""

    def __init__(self, path: Path, sought: _Sought, comments: str | None) -> None:
        opening = text.open_table(path, text.LONGEST_ROW, comments)
        if not opening.lines:
            raise UserError(f"{path} holds no {sought.what}", "a line for each vertex")
        self.path, self._opening, self._sought = path, opening, sought
        self._begins, first = opening.lines[0]
        self.where = f"{path}, line {self._begins}: {quoted(first.strip())}"
        self._separator = text.separator_of(first)
        self._lone = self._is_lone(text.words_of(first, None))
        self.first = self._cut(first)
        self.width = len(self.first)
        numbers = list(map(text.is_number, self._cut(opening.second)))
        texts = not all(numbers) if sought.texts is None else sought.texts
        above = _counts_or_is_true if sought.texts else lambda row: any(map(text.is_number, row))
        self._header, names = opening.header(self._cut, self._known, above, texts=texts)
        self._rows = [(number, self._cut(line)) for number, line in opening.rows(self._header)]
        self.names, self.ids = tuple(names), sought.ids(names, path)

    def _is_lone(self, apart: list[str]) -> bool:
        """Whether a line is one value; texts may have blanks, names of columns have none."""
        sought = self._sought
        if self._separator is not None or sought.texts is False:
            return False
        if sought.texts is None or len(apart) == 1 or not apart[0]:
            return len(apart) == 1 or bool(sought.texts)
        named = any(word.lower() in sought.names for word in apart)
        return not (named and sought.ids(apart, self.path) is not None)

    def _cut(self, line: str) -> list[str]:
        return [line.strip().strip('"')] if self._lone else text.words_of(line, self._separator)

    def _known(self, names: list[str]) -> bool:
        if len(names) > 1 and not names[0]:
            return of_frame(names, self._cut(self._opening.second))
        return self._sought.tells(names, self.path)

    def of_numbers(self, place: int) -> bool:
        """Whether the first rows have numbers in a column, or nothing at all."""
        words = [row[place] for _, row in self._rows if place < len(row)]
        given = [word for word in words if not is_missing(word)]
        return not given or any(map(text.is_number, given))

    def check_header(self) -> None:
        """A UserError if the first line does not name the columns of the others."""
        rows, width = self._rows, len(self.names)
        if not width or not rows or len(rows[0][1]) != width or len(set(self.names)) < width:
            raise UserError(f"{self.where} is no header of its lines", HEADER)

    def check_numbers(self, places: Sequence[int], what: str) -> None:
        """A UserError if the first row has a text, which may be the label."""
        if not self._rows:
            raise UserError(f"{self.path} holds a header, but no {what}")
        number, words = self._rows[0]
        if not self._header and not any(map(text.is_number, words)):
            raise UserError(
                f"{self.where} is not {self.width} numbers",
                "a vertex a line; a column of ids is called 'id' in a header line",
            )
        for i in places if self._header else ():
            if i < len(words) and is_name(words[i]):
                name = self.names[i]
                raise UserError(
                    f"{self.path}, line {number}: the column {quoted(name)} holds "
                    f"{quoted(words[i])}, not a number",
                    f"if it is the label of a vertex, --label-column {name}; a column of ids is "
                    "called 'id'",
                )

    def pieces(self, words: Sequence[int], numbers: Sequence[int]) -> Iterator[dict[int, Any]]:
        """Columns by their places, some rows at a time."""
        table = text.Table(
            self.path, self._separator, self.width,
            dict.fromkeys(words, pa.string()) | dict.fromkeys(numbers, pa.float64()),
            header=self._header, begins=self._begins, names=self.names,
            comments=self._opening.comments,
        )  # fmt: skip
        if self._sought.what == "targets":
            table = replace(table, missing="write nan where a target is unknown")
        for columns in table.pieces():
            yield dict(zip(table.kinds, columns, strict=True))
        self.comments = table.comments.lines

    def texts(self, pieces: list[Any], place: int, as_written: bool) -> np.ndarray:
        """All pieces; of a single column, whether its first line is a value shows now."""
        values = pa.chunked_array(pieces, pa.string())
        alone = self.width == 1 and self._sought.texts and self._sought.column is None
        if alone and self._header == self._begins and not _is_heading(self.names[0], values):
            values = pa.chunked_array([pa.array(self.names), *values.chunks])
        return text_array(values, self.path, as_written)


class _Parquet(_Table):
    """A Parquet file, whose columns have names and types."""

    def __init__(self, path: Path, sought: _Sought, comments: str | None) -> None:
        names = column_names(path)
        self.path, self.where, self._file = path, str(path), open_parquet(path)
        self.names, self.width, self.ids = tuple(names), len(names), sought.ids(names, path)

    def of_numbers(self, place: int) -> bool:
        """Whether a column holds no texts."""
        return not is_text(self._file.schema_arrow.field(place).type)

    def of_lists(self, place: int) -> bool:
        """Whether a column holds lists."""
        return is_list(self._file.schema_arrow.field(place).type)

    def check_numbers(self, places: Sequence[int], what: str) -> None:
        """A UserError if a column holds texts."""
        for name in (self.names[i] for i in places if not self.of_numbers(i)):
            hint = f"if it is the label of a vertex, --label-column {name}"
            raise UserError(f"{self.path}: the column {quoted(name)} holds no numbers", hint)

    def pieces(self, words: Sequence[int], numbers: Sequence[int]) -> Iterator[dict[int, Any]]:
        """All rows at once: errors tell their numbers."""
        rows, found = self._file.metadata.num_rows, dict[int, Any]()
        for place in (*words, *numbers):
            check_memory(16 * rows, f"{self.path}: {rows} rows")
            with parquet_errors(self.path):
                column = self._file.read(columns=[self.names[place]]).column(0).combine_chunks()
            found[place] = column
            if place != self.ids and pa.types.is_string(column.type):
                found[place] = column.fill_null("")  # no label, as in text
        yield found

    def array(self, column: Any, place: int) -> np.ndarray:
        """Numbers, (n, …): lists of one length are rows of a matrix."""
        return super().array(array_of(column, self.names[place], self.path), place)

    def texts(self, pieces: list[Any], place: int, as_written: bool) -> np.ndarray:
        """A column as it is."""
        return array_of(pieces[0], self.names[place], self.path)


TABLES: Mapping[str, type[_Text] | type[_Parquet]] = {"text": _Text, "parquet": _Parquet}


def _numbers_of(table: _Table, sought: _Sought, dtype: DTypeLike) -> Rows:
    """The columns of numbers side by side, or the column of one of the names that holds lists."""
    path, what = table.path, sought.what
    places = table.data(sought.others)
    texts = [i for i in places if sought.others and not table.of_numbers(i)]
    places = [i for i in places if i not in texts]
    if lists := [table.names[i] for i in places if table.of_lists(i)]:
        places = [table.names.index(_chosen(lists, sought.names, path))]
    table.check_numbers(places, what)
    if not places:
        without = "a column of ids, but no" if table.ids is not None else "no columns of"
        raise UserError(f"{path} has {without} {what}")
    of_ids, (values,) = table.read([], places, dtype=dtype)
    if not table.names:
        _refuse_counter(path, values, what)
    ids = of_ids.get(table.ids) if table.ids is not None else None
    if ids is not None:
        check_ids(ids, path)
    note = f"{path}: no {what}, but texts: " + ", ".join(quoted(table.names[i]) for i in texts)
    columns = tuple(table.names[i] for i in places) if table.names else ()
    return Rows(values, ids, note if texts else "", table.comments, columns)


def _values_of(table: _Table, sought: _Sought, plain: bool) -> Rows:
    """The only column of values, or that of one of the names, or the one that the user names."""
    places, names = table.data(), table.names
    fitting = [i for i in places if names and names[i].lower() in sought.names]
    if sought.column is not None:
        if sought.column not in names:
            raise unknown_name(f"column of {table.path}", sought.column, names or table.first)
        fitting = [names.index(sought.column)]
    elif len(places) == 1 and (table.ids is not None or table.width == 1):
        fitting = places
    if len(fitting) != 1:
        named = f": {', '.join(map(quoted, names[:12]))}" if names else ""
        raise UserError(
            f"{table.where} has {table.width} columns{named}",
            "one value a line, or a header line 'id,…' and then an id and a value a line; "
            "--label-column NAME takes labels from the column of that name in the header",
        )
    found, _ = table.read(fitting, as_written=fitting if plain else ())
    ids = None if table.ids is None else found[table.ids]
    if ids is not None:
        check_ids(ids, table.path)
    return Rows(found[fitting[0]], ids, comments=table.comments)


def _role(name: str, of_numbers: bool) -> str:
    """What a column of a table of vertices is, by its name in small letters."""
    if name in CLASSES or (name in SPLIT and not of_numbers):
        return "label" if name in CLASSES else "split"
    mask = next((mask for mask in MASKS if name in (mask, f"{mask}_mask")), None)
    if mask is not None or not of_numbers:
        return mask or "unread"
    return "target" if name in NUMBERS_TO_LEARN else "feature"


def _nodes(
    table: _Table,
    ids: np.ndarray,
    targets: np.ndarray,
    features: np.ndarray,
    texts: Mapping[int, tuple[str, np.ndarray]],
) -> NodeTable:
    """The vertices of a table out of its columns, of which ``texts`` have their roles."""
    path, labels, unread = str(table.path), None, []
    masks: dict[str, np.ndarray] = {}
    to_learn = [targets] if targets.shape[1] else []
    for place, (role, values) in texts.items():
        where = f"{path}: the column {quoted(table.names[place])}"
        if role == "label" and values.dtype.kind in "iuU":
            labels = values
        elif role == "label":
            to_learn.append(values.reshape(len(values), -1))
        elif role == "split":
            masks |= _split(values, where)
        elif role == "unread":
            unread.append(table.names[place])
        else:
            masks[role] = _mask(values, where)
    return NodeTable(
        ids,
        finite_features(features, path) if features.shape[1] else None,
        labels,
        checked_targets(np.concatenate(to_learn, axis=1), path) if to_learn else None,
        masks,
        tuple(unread),
        table.comments,
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
        if np.isin(words, BOOLEANS).all():
            return words == "true"
    elif values.dtype.kind == "b" or np.isin(values, (0, 1)).all():
        return values.astype(bool)
    raise UserError(f"{where} is no mask: true and false, or 1 and 0", HEADER)


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


def text_array(values: pa.ChunkedArray, path: Path, as_written: bool = False) -> np.ndarray:
    """Words as int64 where all of them are integers, and as texts otherwise, or ``as_written``."""
    if not len(values):
        raise UserError(f"{path} holds a header, but no values")
    coded = values.combine_chunks().dictionary_encode()
    distinct, places = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    if not as_written and all(map(text.is_integer, distinct)):
        return np.array(list(map(int, distinct)), np.int64)[places]
    longest = max(map(len, distinct))
    check_memory(4 * longest * len(values), f"{path}: texts of up to {longest} characters")
    return np.array(distinct)[places]
