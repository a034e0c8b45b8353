"""Files with a row for each vertex: features, labels, masks, ids.

Arrays in npy and npz files, tables in Parquet and in text, packed or not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from partition.errors import UserError, unknown_name
from partition.importing.readers.files import (
    check_file,
    finite_features,
    quoted,
    read_errors,
)
from partition.importing.readers.numbering import check_ids
from partition.importing.readers.parquet_tables import read_table
from partition.importing.readers.sparse import dense_features, saved_csr
from partition.importing.readers.unpacking import (
    ZIP,
    content_limit,
    holds_arrays,
    open_unpacked,
    packing_of,
)
from partition.importing.readers.vertex_tables import (
    Rows,
    read_column,
    read_number_table,
)
from partition.records import DEFLATE_RATIO, NUMBERS, TEXTS, map_npy, read_npy, read_npz

FEATURES = ("features", "feature", "x", "feat", "feats", "attr_matrix", "attributes")
LABELS = ("labels", "label", "y", "target", "targets", "classes")
TARGETS = ("targets", "target", "labels", "label", "y")
MASKS = ("mask",)
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
    return (*MASKS, name, f"{name}_mask", f"{name}_idx", "idx")


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
