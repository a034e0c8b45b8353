"""Arrays of arcs: their ends, and which others are features, labels, masks and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from partition.errors import UserError, check_name, unknown_name
from partition.graph.graph import MASKS
from partition.importing.readers.files import finite_features

# Names of arrays that are taken without being asked for.
FEATURES = ("edge_attr", "edge_feat", "edge_features", "feat", "features", "x")
LABELS = ("edge_label", "edge_y", "label", "labels", "y")
WEIGHT = "weight"  # the weights of a format that does not call them anything


@dataclass(frozen=True)
class ArcTable:
    """Data of the arcs of a source, in its order.

    Attributes
    ----------
    columns : mapping of str to array
        Those that there are of "features", (E, d) float32; "labels", (E,) int64, or (E, tasks)
        floats; and "train", "val", "test", (E,) bool.
    names : sequence of str, optional
        What the labels stand for, where they are texts: ``labels`` are places in it.
    """

    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    names: Sequence[str] | None = None

    def with_columns(self, other: ArcTable) -> ArcTable:
        """The columns of another table, and those of this one that it lacks."""
        names = other.names if "labels" in other.columns else self.names
        return ArcTable({**self.columns, **other.columns}, names)


NO_DATA = ArcTable()


def ends_of(array: np.ndarray, where: str, shapes: str) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, (E,) int64 each, of a (2, E) array of integers.

    A UserError if it is none, which says that ``shapes`` are accepted.
    """
    if array.ndim != 2 or array.dtype.kind not in "iu" or len(array) != 2:
        square = array.ndim == 2 and 2 < array.shape[0] == array.shape[1]
        raise UserError(
            f"{where} holds {array.dtype} {array.shape}, not integers in the shape {shapes}",
            "a matrix of adjacency is read from scipy.sparse.save_npz(FILE, csr_array(matrix))"
            if square
            else None,
        )
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise UserError(f"{where} holds {array.max()}, which is beyond 63 bits")
    source, target = (np.ascontiguousarray(row, np.int64) for row in array)
    return source, target


def chosen(
    names: Sequence[str], wanted: str | None, what: str, where: object, others: Sequence[str] = ()
) -> list[str]:
    """The columns that are called as in a list of names and patterns, "w1,w2" or "f*".

    Patterns leave ``others`` out. A UserError if a name or a pattern fits no column.
    """
    found: dict[str, None] = {}
    for word in [] if wanted is None else map(str.strip, wanted.split(",")):
        fitting = [name for name in names if fnmatchcase(name, word) and name not in others]
        fitting = [word] if word in names else fitting
        if not fitting:
            raise unknown_name(f"column of {where} for {what}", word, names)
        found |= dict.fromkeys(fitting)
    return list(found)


def pick(
    arrays: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    features: str | None,
    label: str | None,
    where: str,
) -> tuple[ArcTable, np.ndarray | None, list[str]]:
    """Data of arcs out of named arrays, (E, …) each: the table, the weights and names left out.

    ``features`` and ``label`` are names as of :func:`chosen`; without them, arrays of known names
    are taken. Weights that are asked for as a feature, by the name ``weight``, are no weights.
    """
    known = dict(arrays)
    if weights is not None:
        known.setdefault(WEIGHT, weights)
    masks = {name: known.pop(f"{name}_mask") for name in MASKS if f"{name}_mask" in known}
    of_labels = chosen(list(known), label, "--arc-label", where)
    if label is None:
        of_labels = [name for name in LABELS if name in known][:1]
    of_features = chosen(list(known), features, "--arc-features", where, (*of_labels, WEIGHT))
    if features is None:
        of_features = [name for name in FEATURES if name in known][:1]
    if both := set(of_labels) & set(of_features):
        raise UserError(f"{where}: {min(both)} cannot be a label and a feature of arcs")
    found, called = dict(masks), {name: f"{where}: {name}_mask" for name in masks}
    for name, parts in (("features", of_features), ("labels", of_labels)):
        if parts:
            found[name] = _side_by_side([known[each] for each in parts])
            called[name] = f"{where}: {parts[0]}"
    read = {*of_features, *of_labels, *(f"{name}_mask" for name in masks)}
    left = [name for name in arrays if name not in read]
    return arc_table(found, called), None if WEIGHT in of_features else weights, left


def arc_table(arrays: Mapping[str, np.ndarray], where: Mapping[str, str]) -> ArcTable:
    """Features, labels and masks of arcs, with a row for each, checked; ``where`` each is from."""
    columns: dict[str, np.ndarray] = {}
    names = None
    for name, array in arrays.items():
        if name == "labels":
            columns[name], names = _checked_labels(array, where[name])
        elif name == "features":
            wide = array.reshape(-1, 1) if array.ndim == 1 else array
            columns[name] = finite_features(wide, where[name], "arc")
        else:
            check_name("mask", name, MASKS)
            if array.ndim != 1 or not is_binary(array):
                raise UserError(
                    f"{where[name]}: a mask of arcs has true or false for each arc, not "
                    f"{array.dtype} {array.shape}"
                )
            columns[name] = array.astype(bool)
    return ArcTable(columns, names)


def piece_of(
    features: Sequence[np.ndarray | pa.Array],
    labels: Sequence[np.ndarray | pa.Array],
    where: str,
    before: int,
) -> dict[str, Any]:
    """Columns of some arcs, after ``before`` others, as data.

    Features are (m,) or (m, d) numbers each. Labels are numbers, or one Arrow array of texts.
    """
    data: dict[str, Any] = {}
    if features:
        kinds = [str(getattr(column, "dtype", "texts")) for column in features]
        if wrong := [kind for kind in kinds if np.dtype(kind).kind not in "biuf"]:
            raise UserError(f"{where}: features of arcs are numbers, not {wrong[0]}")
        at = f"{where}, from arc {before} on" if before else where
        rows = [column if column.ndim == 2 else column.reshape(-1, 1) for column in features]
        data["features"] = finite_features(np.concatenate(rows, axis=1), at, "arc")
    if labels and isinstance(labels[0], pa.Array):
        data["labels"] = labels[0]
    elif labels:
        data["labels"], _ = _checked_labels(_side_by_side(labels), where)
    return data


def _checked_labels(values: np.ndarray, where: str) -> tuple[np.ndarray, Sequence[str] | None]:
    """Labels of arcs as int64 or, of several columns or with fractions, as (E, tasks) floats.

    Of texts, the labels are places in a list of them, which comes too. A UserError for anything
    else, and for classes below −1 and numbers that are infinite.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1 and values.dtype.kind == "U":
        texts, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int64), texts.tolist()
    if values.ndim == 1 and values.dtype.kind in "biu":
        if len(values) and int(values.min()) < -1:
            raise UserError(f"{where}: labels are classes 0, 1, 2 …, or -1 where there is none")
        return values.astype(np.int64), None
    if values.ndim not in (1, 2) or values.dtype.kind not in "biuf" or 0 in values.shape[1:]:
        raise UserError(
            f"{where}: labels of arcs are classes or numbers, not {values.dtype} {values.shape}"
        )
    numbers = values.reshape(len(values), -1)
    if numbers.dtype.kind != "f" or numbers.dtype.itemsize not in (4, 8):
        numbers = numbers.astype(np.float64)
    if np.isinf(numbers).any():
        raise UserError(f"{where}: a label is infinite", "NaN: unknown")
    return numbers, None


def text_places(column: np.ndarray | pa.Array, texts: dict[str, int]) -> np.ndarray:
    """Texts as places in a list of those that occur, which grows; other columns as they are."""
    if isinstance(column, np.ndarray):
        return column
    coded = column.dictionary_encode()
    known = [texts.setdefault(text, len(texts)) for text in coded.dictionary.to_pylist()]
    return np.array(known, np.int64)[coded.indices.to_numpy()]


def ids_array(column: np.ndarray | pa.Array) -> np.ndarray:
    """Texts of Arrow as an array of NumPy; other columns as they are."""
    if isinstance(column, np.ndarray):
        return column
    coded = column.dictionary_encode()
    distinct = np.array(coded.dictionary.to_pylist(), str)
    return distinct[coded.indices.to_numpy()]


def is_binary(values: np.ndarray) -> bool:
    """Whether values are those of a mask: bool, or 0 and 1."""
    return values.dtype.kind in "biuf" and bool(((values == 0) | (values == 1)).all())


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    return columns[0] if len(columns) == 1 else np.column_stack(columns)
