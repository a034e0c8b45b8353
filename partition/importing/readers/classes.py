"""Conversion of labels to classes 0, 1, 2 … with names."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from partition.errors import UserError
from partition.graph.graph import UNLABELLED
from partition.importing.readers.files import quoted
from partition.importing.readers.names import is_missing

MAX_CLASSES = 1 << 20
# So many vertices may each be of a class of their own; beyond, the labels are something else.
FEW_VERTICES = 32
# Without leading zeros, which numbers would lose.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?")
NOTHING = ("", "-1", "-1.0")
NAN = ("nan", "NaN")


def classes_or_targets(values: np.ndarray, whole: bool = False) -> tuple[str, np.ndarray]:
    """("labels", (n,)) if the values are classes, otherwise ("targets", values).

    Classes are integers, bool or texts in one column; and fractions that are ``whole`` numbers,
    if they may be, of which NaN becomes −1.
    """
    column = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if column.ndim == 1 and column.dtype.kind in "biuUS":
        return "labels", column.astype(np.int8) if column.dtype.kind == "b" else column
    if whole and column.ndim == 1:
        known = ~np.isnan(column)
        if (column[known] == np.floor(column[known])).all():
            return "labels", np.where(known, column, UNLABELLED).astype(np.int64)
    return "targets", values


def class_labels(
    labels: np.ndarray,
    where: str,
    names: np.ndarray | None = None,
    missing: Sequence[str] = (),
    report: Callable[[str], None] = lambda line: None,
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Number the classes that occur 0, 1, 2 … in increasing order: (n,) int32, −1 without a label.

    ``labels`` are (n,) integers or texts, of which −1 and an empty text are no label, and so are
    the words in ``missing``, without these "nan". ``names`` are those of the classes, where labels
    are integers. With the numbers come the names of the classes: the texts in ``labels``, or
    ``names``; None where the name is the number itself.

    A UserError if they are no vector of integers or texts, a label is below −1, a word among
    numbers may be none, or nearly every vertex would be a class of its own. A class that is called
    as a missing value is reported.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise UserError(
            f"{where}: labels must be a vector of integers or of texts, "
            f"not {labels.dtype} {labels.shape}",
            "one class per vertex, -1 where it has none; --targets takes anything else",
        )
    if labels.dtype.kind == "U":
        labels = np.where(np.isin(labels, [*NOTHING, *(missing or NAN)]), "", labels)
        if not missing:
            _check_missing(labels, where, report)
        labels = _whole_numbers(labels, where)
    known = labels != ("" if labels.dtype.kind == "U" else UNLABELLED)
    if labels.dtype.kind == "i" and (labels[known] < 0).any():
        at = int(np.argmax(labels < UNLABELLED))
        raise UserError(
            f"{where}: label {labels[at]} of vertex {at} is outside -1, 0, 1, 2 …",
            "-1 marks a vertex without a label",
        )
    classes, number = np.unique(labels[known], return_inverse=True)
    if len(classes) > MAX_CLASSES or len(classes) == len(number) > FEW_VERTICES:
        raise UserError(
            f"{where} holds {len(classes)} different labels for {len(number)} vertices",
            "labels are classes, with several vertices each",
        )
    out = np.full(len(labels), UNLABELLED, np.int32)
    out[known] = number
    if classes.dtype.kind == "U":
        return out, tuple(classes.tolist())
    if names is not None and names.ndim == 1 and len(classes) and classes[-1] < len(names):
        given = names[classes].tolist()
        texts = (name.decode("utf-8", "replace") if type(name) is bytes else name for name in given)
        return out, tuple(texts)
    same = (classes == np.arange(len(classes))).all()
    return out, None if same else tuple(map(str, classes.tolist()))


def _check_missing(labels: np.ndarray, where: str, report: Callable[[str], None]) -> None:
    """Refuse a word for a missing value among numbers, and report it among other texts."""
    words = np.unique(labels[labels != ""]).tolist()
    doubtful = [word for word in words if is_missing(word)]
    others = [word for word in words if not is_missing(word)]
    if not doubtful:
        return
    word = quoted(doubtful[0])
    if others and all(map(NUMBER.fullmatch, others)):
        raise UserError(
            f"{where}: the label {word} stands among numbers: a class, or no label?",
            f"--missing-label {doubtful[0]}: vertices without a label; --missing-label -1: a class "
            "like others",
        )
    report(f"{where}: the label {word} is a class like others; --missing-label makes it none")


def _whole_numbers(labels: np.ndarray, where: str) -> np.ndarray:
    """Texts such as "3", "3.0" and "3.00e+00" as integers, if all labels are of that kind.

    Among other texts, they are one class with one name. A UserError if all are numbers, but one has
    a fraction: a target of regression is no class.
    """
    known = labels != ""
    words, number = np.unique(labels[known], return_inverse=True)
    numbers = np.array([NUMBER.fullmatch(word) is not None for word in words.tolist()], bool)
    values = np.where(numbers, words, "nan").astype(float)
    whole = numbers & (values == np.floor(values)) & (np.abs(values) < 2**53)
    if len(words) and numbers.all() and (values != np.floor(values)).any():
        word = quoted(words[int(np.argmax(values != np.floor(values)))])
        raise UserError(
            f"{where}: the label {word} is a number, not a class", "--targets takes numbers"
        )
    if len(words) and whole.all():
        found = np.full(len(labels), UNLABELLED, np.int64)
        found[known] = values[number].astype(np.int64)
        return found
    _, first, same = np.unique(np.where(whole, values, np.nan), return_index=True,
                               return_inverse=True, equal_nan=False)  # fmt: skip
    found = labels.copy()
    found[known] = words[first[same]][number]
    return found
