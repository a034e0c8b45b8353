"""Files with a row for each vertex: tables in text and in Parquet, and arrays of NumPy.

Whatever is read of a table, its first line is judged by one rule, and so is the column with ids.
"""

import itertools
import os
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS
from partition.importing.readers import arc_columns, numbering, parquet, source, text
from partition.importing.readers import names as rules
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
from partition.records import DEFLATE_RATIO, NUMBERS, TEXTS, map_npy, read_npy, read_npz
from partition.resident import check_memory

_HEADER = "the first line names the columns, such as id,age,label,split"


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


@dataclass(frozen=True)
class _Sought:
    """The kind of values wanted of a file, by which the first line of a table is judged.

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
        return rules.id_place(names, path, type=self.type, others=self.others)

    def tells(self, names: Sequence[str], path: Path) -> bool:
        """Whether one of the names is known, so that they are names."""
        if self.column in names:
            return True
        if len(names) == 1:
            is_heading = rules.plain_name(names[0]) in rules.HEADINGS
            return is_heading or rules.is_type(names[0], self.type)
        known = self.others if self.texts is False else self.names
        return any(n.lower() in known for n in names) or self.ids(names, path) is not None


def read_features(
    path: str | os.PathLike[str], others: Container[str] = (), comments: str | None = None
) -> Rows:
    """(n, d) float32: an array, a sparse matrix of SciPy's, or lines of d numbers.

    Columns of a table that are called as ``others``, in small letters, are something else. If there
    are some, columns of texts are left out, too. ``comments``, here and below: see
    :class:`~partition.importing.readers.source.Layout`.
    """
    rows = _read(Path(path), _Sought("features", rules.FEATURES, others), comments)
    of = "vertex" if rows.ids is None else "row"
    return replace(rows, values=finite_features(rows.values, str(path), of, rows.columns))


def read_targets(path: str | os.PathLike[str], comments: str | None = None) -> Rows:
    """(n, c) float32, or float64 where that loses digits: an array, or lines of numbers.

    A vector is one column. NaN is unknown, infinite numbers are refused.
    """
    rows = _read(Path(path), _Sought("targets", rules.TARGETS), comments)
    return replace(rows, values=checked_targets(rows.values, str(path)))


def read_labels(
    path: str | os.PathLike[str], column: str | None = None, comments: str | None = None
) -> Rows:
    """(n,) integers or texts: an array, a class a line, or a column of a table by its name."""
    others = () if column is None else (column.lower(),)
    return _read(Path(path), _Sought("values", rules.LABELS, others, column, True), comments)


def read_mask(path: str | os.PathLike[str], name: str, comments: str | None = None) -> Rows:
    """Bool or integers: an array, or lines of true and false, of 0 and 1, or of vertices.

    Or an (n, splits) array of bool, or of 0 and 1.
    """
    rows = _read(Path(path), _Sought("values", rules.mask_names(name), texts=True), comments)
    as_bool = _bools_of(rows.values) if rows.values.dtype.kind == "U" else None
    return rows if as_bool is None else replace(rows, values=as_bool)


def read_ids(
    path: str | os.PathLike[str], *, text: bool = False, comments: str | None = None
) -> np.ndarray:
    """(n,) int64 or str: the id of each row, each once; ``text``: integers are texts, too.

    In a file of text they stay as they are written: 07 is not 7.
    """
    sought = _Sought("values", ("ids", "id", "nodes"), texts=True)
    rows = _read(Path(path), sought, comments, as_written=text)
    if rows.ids is not None:
        raise UserError(f"{path} has two columns", "one id a line")
    values = rows.values
    if values.dtype.kind not in "iuU":
        raise UserError(f"{path}: ids are integers or texts, not {values.dtype}")
    values = values.astype(str if text or values.dtype.kind == "U" else np.int64)
    numbering.check_ids(values, path)
    return values


def read_nodes(
    path: Path, type: str = "", as_text: bool = False, comments: str | None = None
) -> NodeTable:
    """Read a table in text with a header, in Parquet, or an array of features in ``.npy``.

    A column called ``id``, as the type or the like has the ids, see :func:`names.id_place`; without
    it they are 0 … n−1. In text, they stay as they are written if one is not :func:`plain`, or with
    ``as_text``. Columns called ``label`` or ``y`` hold classes, ``target`` numbers to learn,
    ``split`` the words train, val and test, ``train_mask`` and so on true or false; other columns
    of numbers, or lists of them, are features. A UserError if the file is damaged, or a column does
    not hold that.
    """
    with read_errors(path):
        kind = _kind(path)
        if kind not in _OPENERS:
            features = read_features(path).values
            return NodeTable(np.arange(len(features)), features)
        masks = {word for name in MASKS for word in rules.mask_names(name)}
        others = {*rules.CLASSES, *rules.SPLIT, *masks}
        table = _OPENERS[kind](path, _Sought("vertices", others, texts=None, type=type), comments)
        if kind == "text":
            table.check_header()
        role = {
            i: rules.vertex_role(table.names[i].lower(), table.numbers[i]) for i in table.data()
        }
        chosen = {of: [i for i, is_ in role.items() if is_ == of] for of in ("target", "feature")}
        texts = [i for i, is_ in role.items() if is_ not in chosen]
        ids, found, groups = table.read(texts, *chosen.values(), as_written=(table.ids,))
        if ids is None and not role:
            raise UserError(f"{path} holds no vertices")
        if ids is None:
            ids = np.arange(max(map(len, (*groups, *found.values()))))
        elif kind == "text" and not as_text and plain(ids):
            ids = ids.astype(np.int64)
        targets, features = groups
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


def mask_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a mask: one, or for a name with "*" those with 0, 1, 2 … in its place.

    A UserError if there is none with a 0.
    """
    path = Path(path)
    if path.name.count("*") != 1 or path.exists():
        return [path]
    numbered = (path.with_name(path.name.replace("*", str(k))) for k in itertools.count())
    files = list(itertools.takewhile(Path.exists, numbered))
    if not files:
        first = path.with_name(path.name.replace("*", "0"))
        raise UserError(f"{path}: there is no {first}", "splits are numbered from 0")
    return files


def _read(path: Path, sought: _Sought, comments: str | None, as_written: bool = False) -> Rows:
    """The rows of a file of any kind; ``as_written``: integers in text stay texts."""
    with read_errors(path):
        kind = _kind(path)
        if kind in _OPENERS:
            table = _OPENERS[kind](path, sought, comments)
            return _values_of(table, as_written) if sought.texts else _numbers_of(table)
        if kind == "npz":
            arrays = read_npz(path, kinds=NUMBERS + TEXTS)
            if sought.what == "features" and ("indptr" in arrays or "format" in arrays):
                return Rows(dense_features(saved_csr(arrays, str(path)), str(path)))
            array = arrays[_chosen(list(arrays), sought, path)]
        elif sought.column is not None:
            raise UserError(f"{path} has no columns with names, and so no {sought.column!r}")
        else:
            array = _read_npy(path)
    try:
        return Rows(np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} holds texts that are not UTF-8") from error


def _kind(path: Path) -> str:
    """The kind of a file by its first bytes: "npy", "npz", "parquet" or "text"."""
    check_file(path)
    packing = packing_of(path)
    if packing == ZIP and holds_arrays(path):
        return "npz"
    with open_unpacked(path) as file:
        magic = file.read(6)
    if magic == b"\x93NUMPY":
        return "npy"
    if magic.startswith(b"PAR1"):
        if packing is not None:
            raise UserError(f"{path} is a Parquet file {packing}", "unpack it")
        return "parquet"
    if magic.startswith(b"\x80"):
        raise UserError(f"{path} is a pickle, which is not read", "save it with numpy.save")
    return "text"


def _read_npy(path: Path) -> np.ndarray:
    """The array of an ``.npy``, mapped, or unpacked into memory; with a row for each vertex."""
    kinds = NUMBERS + TEXTS
    if packing_of(path) is None:
        array = map_npy(path, kinds=kinds)
    else:
        unpacked = partial(open_unpacked, path, ratio=DEFLATE_RATIO)
        array = read_npy(unpacked, content_limit(path), str(path), kinds=kinds)
    if array.ndim == 0:
        raise UserError(f"{path} holds a single value, not one for each vertex")
    return array


def _chosen(names: Sequence[str], sought: _Sought, path: Path) -> str:
    """The only one of some names, or the only one that is sought; or that of the user."""
    if sought.column is not None:
        if sought.column not in names:
            raise unknown_name(f"column of {path}", sought.column, names)
        return sought.column
    fitting = list(names)
    if len(names) != 1:
        fitting = [name for name in names if name.lower() in sought.names]
    if len(fitting) != 1:
        found = ", ".join(map(quoted, names[:12])) or "nothing"
        raise UserError(
            f"{path} holds {found}: it is not clear which array to read",
            f"keep one only, or call it {next(iter(sought.names))!r}",
        )
    return fitting[0]


# Tables, in text and in Parquet


@dataclass(frozen=True)
class _VertexTable:
    """A table, what is sought in it, and what its columns hold.

    Attributes
    ----------
    table : text.TextTable or parquet.ParquetTable
    path, names
        Those of the table; there are no names in a text without a header.
    sought : _Sought
    where : str
        Its first line, for messages.
    width : int
    ids : int, optional
        The place of the column with ids.
    numbers, lists : sequence of bool
        Whether each column holds numbers, and whether these are in lists.
    texts : mapping of int to str
        Columns that hold something else than numbers in the first row: what messages say.
    first : sequence of str
        The words of the first line.
    rows : sequence of (int, list of str)
        The words of the first rows of a text, with the numbers of their lines.
    """

    table: text.TextTable | parquet.ParquetTable
    path: Path
    names: Sequence[str]
    sought: _Sought
    where: str
    width: int
    ids: int | None
    numbers: Sequence[bool]
    lists: Sequence[bool]
    texts: Mapping[int, str]
    first: Sequence[str]
    rows: Sequence[tuple[int, list[str]]] = ()

    def data(self, others: Container[str] = ()) -> list[int]:
        """The columns that are no ids, no index of a frame, and not called as others."""
        return [
            place
            for place in range(self.width)
            if place != self.ids
            and not (self.names and rules.is_index(self.names[place]))
            and not (self.names and self.names[place].lower() in others)
        ]

    def check_header(self) -> None:
        """A UserError if the first line of a text does not name the columns of the others."""
        fits = self.names and self.rows and len(self.rows[0][1]) == self.width
        if not fits or len(set(self.names)) < self.width:
            raise UserError(f"{self.where} is no header of its lines", _HEADER)

    def check_numbers(self, places: Sequence[int]) -> None:
        """A UserError if a column has a text in the first row, which may be the label."""
        if isinstance(self.table, text.TextTable) and not self.rows:
            raise UserError(f"{self.path} holds a header, but no {self.sought.what}")
        if not self.names and not any(map(text.is_number, self.rows[0][1])):
            raise UserError(
                f"{self.where} is not {self.width} numbers",
                "a vertex a line; a column of ids is called 'id' in a header line",
            )
        for place in (place for place in places if place in self.texts):
            raise UserError(
                self.texts[place],
                f"if it is the label of a vertex, --label-column {self.names[place]}; a column of "
                "ids is called 'id'",
            )

    def read(
        self,
        texts: Sequence[int],
        *numbers: Sequence[int],
        dtype: DTypeLike = np.float64,
        as_written: Container[int | None] = (),
    ) -> tuple[np.ndarray | None, dict[int, np.ndarray], list[np.ndarray]]:
        """The ids, columns of texts by their places, and groups of columns of numbers, (n, …).

        Texts of a text file become integers where all are, unless they stay ``as_written``. A
        UserError if an id occurs twice.
        """
        ids = [] if self.ids is None else [self.ids]
        of_words: dict[int, list[np.ndarray | pa.Array]] = {place: [] for place in (*ids, *texts)}
        of_numbers = [list[np.ndarray]() for _ in numbers]
        kinds = dict.fromkeys(of_words, pa.string())
        kinds |= dict.fromkeys(itertools.chain(*numbers), pa.float64())
        if isinstance(self.table, parquet.ParquetTable):
            kinds |= dict.fromkeys(ids)  # an id that is missing is no empty text
        for *_, columns in replace(self.table, kinds=kinds).pieces(source.ALL):
            found = dict(zip(kinds, columns, strict=True))
            for place, pieces in of_words.items():
                pieces.append(found[place])
            for group, rows in zip(numbers, of_numbers, strict=True):
                if group:
                    arrays = [found[place] for place in group]
                    wide = [one if one.ndim > 1 else one.reshape(-1, 1) for one in arrays]
                    rows.append(narrowed(np.concatenate(wide, axis=1), dtype, self.path))
        nothing = np.empty((0, 0), dtype)
        groups = [np.concatenate(rows) if rows else nothing for rows in of_numbers]
        words = {i: self._values(some, i in as_written) for i, some in of_words.items()}
        found_ids = None if self.ids is None else words.pop(self.ids)
        if found_ids is not None:
            numbering.check_ids(found_ids, self.path)
        return found_ids, words, groups

    def _values(self, pieces: list[np.ndarray | pa.Array], as_written: bool) -> np.ndarray:
        """All pieces of a column; of a single one, whether its first line is a value shows now."""
        if pieces and isinstance(pieces[0], np.ndarray):
            return np.concatenate(pieces)
        words = pa.chunked_array(pieces, pa.string())
        if isinstance(self.table, parquet.ParquetTable):
            return _text_array(words, self.path, as_written=True)
        alone = self.width == 1 and self.sought.texts and self.sought.column is None
        if (
            alone
            and self.table.header == self.table.begins
            and not _is_heading(self.names[0], words)
        ):
            words = pa.chunked_array([pa.array(self.names), *words.chunks])
        return _text_array(words, self.path, as_written)


def _open_text(path: Path, sought: _Sought, comments: str | None) -> _VertexTable:
    table = text.open_table(path, text.LONGEST_ROW, comments)
    if not table.lines:
        raise UserError(f"{path} holds no {sought.what}", "a line for each vertex")
    first = table.line(0)
    separator = text.separator_of(first)
    lone = separator is None and _is_lone(text.words_of(first, None), sought, path)

    def cut(line: str) -> list[str]:
        return [line.strip().strip('"')] if lone else text.words_of(line, separator)

    def known(names: list[str]) -> bool:
        if len(names) > 1 and not names[0]:
            return rules.of_frame(names, cut(table.line(1)))
        return sought.tells(names, path)

    def above_numbers(row: list[str]) -> bool:
        return _counts_or_is_true(row) if sought.texts else any(map(text.is_number, row))

    texts = sought.texts
    if texts is None:
        texts = not all(map(text.is_number, cut(table.line(1))))
    header, names = table.find_header(cut, known, above_numbers, texts=texts)
    rows = [(number, cut(line)) for number, line in table.rows(header)]
    width, numbers = len(cut(first)), []
    for place in range(width):
        given = [row[place] for _, row in rows if place < len(row)]
        given = [word for word in given if not rules.is_missing(word)]
        numbers.append(not given or any(map(text.is_number, given)))
    of_texts = {
        place: f"{path}, line {number}: the column {quoted(name)} holds {quoted(word)}, not a "
        "number"
        for number, row in rows[: bool(header)]
        for place, (name, word) in enumerate(zip(names, row, strict=False))
        if rules.is_name(word)
    }
    table = replace(table, separator=separator, width=width, header=header, names=tuple(names))
    if sought.what == "targets":
        table = replace(table, missing="write nan where a target is unknown")
    where = f"{path}, line {table.begins}: {quoted(first.strip())}"
    ids, lists = sought.ids(names, path), [False] * width
    return _VertexTable(
        table, path, names, sought, where, width, ids, numbers, lists, of_texts, cut(first), rows
    )


def _is_lone(apart: list[str], sought: _Sought, path: Path) -> bool:
    """Whether a line is one value; texts may have blanks, names of columns have none."""
    if sought.texts is False:
        return False
    if sought.texts is None or len(apart) == 1 or not apart[0]:
        return len(apart) == 1 or bool(sought.texts)
    named = any(word.lower() in sought.names for word in apart)
    return not (named and sought.ids(apart, path) is not None)


def _open_parquet(path: Path, sought: _Sought, comments: str | None) -> _VertexTable:
    table = parquet.open_parquet(path)
    names, kinds = table.names, [table.kind(place) for place in range(len(table.names))]
    numbers, lists = [not parquet.is_text(k) for k in kinds], list(map(parquet.is_list, kinds))
    texts = {
        place: f"{path}: the column {quoted(name)} holds no numbers"
        for place, name in enumerate(names)
        if not numbers[place]
    }
    ids, where = sought.ids(names, path), str(path)
    return _VertexTable(
        table, path, names, sought, where, len(kinds), ids, numbers, lists, texts, names
    )


_OPENERS = {"text": _open_text, "parquet": _open_parquet}


def _numbers_of(table: _VertexTable) -> Rows:
    """The columns of numbers side by side, or the column of one of the names that holds lists."""
    path, sought = table.path, table.sought
    places = table.data(sought.others)
    texts = [i for i in places if table.names and sought.others and not table.numbers[i]]
    places = [i for i in places if i not in texts]
    if lists := [table.names[i] for i in places if table.lists[i]]:
        places = [table.names.index(_chosen(lists, sought, path))]
    table.check_numbers(places)
    if not places:
        without = "a column of ids, but no" if table.ids is not None else "no columns of"
        raise UserError(f"{path} has {without} {sought.what}")
    dtype = np.float32 if sought.what == "features" else np.float64
    ids, _, (values,) = table.read([], places, dtype=dtype)
    if not table.names:
        _refuse_counter(path, values, sought.what)
    unread = ", ".join(quoted(table.names[i]) for i in texts)
    note = f"{path}: no {sought.what}, but texts: {unread}" if texts else ""
    columns = tuple(table.names[i] for i in places) if table.names else ()
    return Rows(values, ids, note, table.table.comments.lines, columns)


def _values_of(table: _VertexTable, as_written: bool) -> Rows:
    """The only column of values, or that of one of the names, or the one that the user names."""
    places, names, sought = table.data(), table.names, table.sought
    fitting = [i for i in places if names and names[i].lower() in sought.names]
    if sought.column is not None:
        if sought.column not in names:
            raise unknown_name(f"column of {table.path}", sought.column, table.first)
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
    ids, found, _ = table.read(fitting, as_written=fitting if as_written else ())
    return Rows(found[fitting[0]], ids, comments=table.table.comments.lines)


def _nodes(
    table: _VertexTable,
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
            as_bool = _bools_of(values)
            if as_bool is None:
                raise UserError(f"{where} is no mask: true and false, or 1 and 0", _HEADER)
            masks[role] = as_bool
    return NodeTable(
        ids,
        finite_features(features, path) if features.shape[1] else None,
        labels,
        checked_targets(np.concatenate(to_learn, axis=1), path) if to_learn else None,
        masks,
        tuple(unread),
        table.table.comments.lines,
    )


def _split(values: np.ndarray, where: str) -> dict[str, np.ndarray]:
    """A mask for each of the words train, val and test."""
    words = np.char.lower(values)
    strange = set(np.unique(words).tolist()) - {*rules.MASK_OF, "", "none", "-"}
    if strange:
        raise UserError(f"{where} holds {quoted(min(strange))}", "train, val, test, or nothing")
    named = {m: [theirs for theirs, ours in rules.MASK_OF.items() if ours == m] for m in MASKS}
    found = {mask: np.isin(words, theirs) for mask, theirs in named.items()}
    return {mask: rows for mask, rows in found.items() if rows.any()}


def _bools_of(values: np.ndarray) -> np.ndarray | None:
    """Words true and false, bool, or 0 and 1 as bool; None of anything else."""
    if values.dtype.kind != "U":
        return values.astype(bool) if arc_columns.is_binary(values) else None
    words = np.char.lower(values)
    return words == "true" if np.isin(words, rules.BOOLEANS).all() else None


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
    return all(text.is_integer(word) or word.lower() in rules.BOOLEANS for word in row)


def _is_heading(first: str, values: pa.ChunkedArray) -> bool:
    """Whether the first line names the only column: it is no value, and the others are no texts."""
    others = [word for word in values.unique().to_pylist() if not rules.is_missing(word)]
    return first not in others and rules.is_header(
        [first],
        known=rules.plain_name(first) in rules.HEADINGS,
        above_numbers=first.lower() not in rules.BOOLEANS and _counts_or_is_true(others),
        texts=True,
    )


def _text_array(values: pa.ChunkedArray, path: Path, as_written: bool = False) -> np.ndarray:
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
