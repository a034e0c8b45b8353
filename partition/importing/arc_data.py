"""Data of arcs in the order of a graph: of its source, of files, and of generators."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from partition.errors import UserError, check_name
from partition.graph.graph import MASKS, ArcData, Graph
from partition.importing.readers.arc_columns import ArcTable, arc_table
from partition.importing.readers.classes import MAX_CLASSES, class_labels
from partition.importing.readers.files import check_file
from partition.importing.readers.source import Allocate
from partition.importing.vertex_data import ORTHOGONAL, generator, random_size
from partition.records import NUMBERS, TEXTS, map_npy
from partition.resident import check_memory

AT_ONCE = 1 << 20  # arcs
FEATURE_STREAM, LABEL_STREAM = 3, 4


def in_memory(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array to be filled."""
    check_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize, name)
    return np.empty(shape, dtype)


def in_order(
    table: ArcTable, numbers: np.ndarray | None, allocate: Allocate = in_memory
) -> ArcData:
    """The data of stored arcs, of which each has that of one arc of the source.

    Parameters
    ----------
    table : ArcTable
        Of the source, in its order.
    numbers : (nnz,) int64, optional
        The arc of the source that each stored arc is of; None: they are the same ones.
    allocate : callable
        Makes the columns.
    """

    def moved(name: str) -> np.ndarray:
        column = table.columns[name]
        if numbers is None:
            return column
        out = allocate(f"arc_{name}", (len(numbers), *column.shape[1:]), column.dtype)
        for start in range(0, len(numbers), AT_ONCE):
            piece = slice(start, start + AT_ONCE)
            out[piece] = column[numbers[piece]]
        return out

    labels, class_names = None, None
    if "labels" in table.columns:
        labels = moved("labels")
        if labels.ndim == 1:
            labels, class_names = _classes(labels, table, allocate)
    masks = {name: moved(name) for name in MASKS if name in table.columns}
    check_masks(masks)
    features = moved("features") if "features" in table.columns else None
    ids = None if numbers is None else _ids(numbers)
    return ArcData(features, labels, masks, ids, class_names)


def _classes(
    labels: np.ndarray, table: ArcTable, allocate: Allocate
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """(nnz,) int32 classes, numbered in increasing order as those of vertices, and their names."""
    pieces = [slice(start, start + AT_ONCE) for start in range(0, len(labels), AT_ONCE)]
    values = np.empty(0, np.int64)
    for piece in pieces:
        values = np.union1d(values, labels[piece])
        check_classes(values)
    classes, names = class_numbers(values, table.names)
    out = allocate("arc_classes", (len(labels),), np.dtype(np.int32))
    for piece in pieces:
        out[piece] = classes[np.searchsorted(values, labels[piece])]
    return out, names


def check_classes(values: np.ndarray) -> None:
    """A UserError if there are too many different labels."""
    if len(values) > MAX_CLASSES:
        raise UserError(f"arcs have more than {MAX_CLASSES} different labels")


def class_numbers(
    values: np.ndarray, names: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The class of each of the different labels, and the names of classes; labels may be places."""
    meant = values if names is None else np.array(names)[values]
    try:  # twice: classes of a single arc each are no mistake here
        classes, class_names = class_labels(np.tile(meant, 2), "labels of arcs")
    except UserError as error:
        raise UserError(error.message, "write -1 for an arc without a label") from error
    return classes[: len(values)], class_names


def _ids(numbers: np.ndarray) -> np.ndarray | None:
    """The numbers, unless each is its own place."""
    pieces = range(0, len(numbers), AT_ONCE)
    same = (
        np.array_equal(numbers[at : at + AT_ONCE], np.arange(at, min(at + AT_ONCE, len(numbers))))
        for at in pieces
    )
    return None if all(same) else numbers


def check_masks(masks: Mapping[str, np.ndarray]) -> None:
    """A UserError if an arc is in two masks."""
    names = [name for name in MASKS if name in masks]
    for i, name in enumerate(names):
        for other in names[:i]:
            both = np.flatnonzero(masks[name] & masks[other])
            if len(both):
                raise UserError(
                    f"the {other} mask and the {name} mask of arcs have {len(both)} arcs in "
                    f"common, the first is {both[0]}"
                )


@dataclass(frozen=True)
class ArcFiles:
    """Data of arcs in files, or from a generator.

    Attributes
    ----------
    features : path of an ``.npy``, or "random:D", optional
        (arcs, d) finite numbers, also (arcs,); or D columns of normal random numbers.
    labels : path of an ``.npy``, or "random:C", optional
        (arcs,) integers or texts, −1 without one; (arcs,) or (arcs, tasks) fractions, NaN where
        unknown; or uniform over 0..C−1.
    masks : mapping of "train" / "val" / "test" to path of an ``.npy``
        (arcs,) bool, or 0 and 1.
    seed : int
        Seed of random data; features and labels use independent streams.
    """

    features: str | os.PathLike[str] | None = None
    labels: str | os.PathLike[str] | None = None
    masks: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
    seed: int = 0

    def given(self) -> dict[str, str | os.PathLike[str]]:
        """Features, labels and masks, those that there are."""
        named = {"features": self.features, "labels": self.labels, **self.masks}
        return {name: value for name, value in named.items() if value is not None}

    def in_files(self) -> dict[str, str]:
        """Of these, the files."""
        given = self.given().items()
        return {name: str(v) for name, v in given if name in MASKS or random_size(v) is None}

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        generator(self.seed, FEATURE_STREAM)
        for name in self.masks:
            check_name("mask", name, MASKS)
        for value in self.given().values():
            if str(value).startswith(ORTHOGONAL):
                raise UserError(f"{value!r}: columns of arcs are random:D, or in a file")
        for file in self.in_files().values():
            check_file(file)

    def facts(self) -> dict[str, object]:
        """The entries of the manifest: names of files, and the seed of what is random."""
        given = self.given()
        if not given:
            return {}
        drawn = any(str(value).startswith("random:") for value in given.values())
        names = {name: Path(value).name for name, value in given.items()}
        return {"arc_data_attached": names} | ({"arc_data_seed": self.seed} if drawn else {})

    def mapped(self) -> dict[str, np.ndarray]:
        """The arrays that are in files."""
        kinds = NUMBERS + TEXTS
        return {name: map_npy(Path(file), kinds=kinds) for name, file in self.in_files().items()}

    def check_rows(self, arrays: Mapping[str, np.ndarray], count: int, what: str) -> None:
        """A UserError if an array has not a row for each of so many arcs.

        ``what`` they are, for the message: "the graph has" so many.
        """
        for name, array in arrays.items():
            rows = len(array) if array.ndim else 0
            if rows != count:
                raise UserError(f"{self.given()[name]} has {rows} rows, {what} {count} arcs")

    def read(self, count: int, what: str) -> ArcTable:
        """Data of ``count`` arcs from files; a UserError if one is damaged or has other rows."""
        arrays = self.mapped()
        self.check_rows(arrays, count, what)
        return arc_table(arrays, self.in_files())

    def attach(self, graph: Graph) -> Graph:
        """The graph with data of arcs from files, row i of which is of arc i, or from a generator.

        A UserError if a file is missing or damaged, or has not a row for each arc; or an arc is in
        two masks.
        """
        self.check()
        data = graph.arc_data
        read = in_order(self.read(graph.nnz, "the graph has"), None)
        if read.features is not None:
            data = replace(data, features=read.features)
        if read.labels is not None:
            data = replace(data, labels=read.labels, class_names=read.class_names)
        masks = {**data.masks, **read.masks}
        check_masks(masks)
        return self.with_random(replace(graph, arc_data=replace(data, masks=masks)))

    def with_random(self, graph: Graph) -> Graph:
        """The graph with the random data of arcs that are asked for."""
        data, nnz = graph.arc_data, graph.nnz
        if self.features is not None and (width := random_size(self.features)):
            check_memory(4 * nnz * width, f"{nnz} x {width} random features of arcs")
            rng = generator(self.seed, FEATURE_STREAM)
            data = replace(data, features=rng.standard_normal((nnz, width), dtype=np.float32))
        if self.labels is not None and (classes := random_size(self.labels)):
            drawn = generator(self.seed, LABEL_STREAM).integers(classes, size=nnz, dtype=np.int32)
            data = replace(data, labels=drawn, class_names=None)
        return replace(graph, arc_data=data)
