"""Tables with all that is known of the vertices of one type: ids, features, labels, masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.importing.readers import text
from partition.importing.readers.files import check_file, finite_features, quoted, read_errors
from partition.importing.readers.names import id_place, is_index, of_frame
from partition.importing.readers.numbering import check_ids
from partition.importing.readers.parquet_tables import read_table
from partition.importing.readers.vertex_files import checked_targets, mask_names, read_features
from partition.importing.readers.vertex_tables import of_numbers, text_array

LABELS = ("label", "labels", "y", "class", "classes")
TARGETS = ("target", "targets")
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
    return name.lower() in {*LABELS, *SPLIT, *(each for m in MASKS for each in mask_names(m))}


def _meant(path: Path, ids: np.ndarray | None, columns: Mapping[str, np.ndarray]) -> NodeTable:
    """The columns by their meaning, which their names say."""
    labels, targets, features = None, [], []
    masks: dict[str, np.ndarray] = {}
    unread = []
    for name, values in columns.items():
        where, plain = f"{path}: the column {quoted(name)}", name.lower()
        mask = next((m for m in MASKS if plain in (m, f"{m}_mask")), None)
        if plain in LABELS and values.dtype.kind in "iuU":
            labels = values
        elif plain in (*LABELS, *TARGETS) and values.dtype.kind in "biuf":
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
