"""Features, labels and masks from files, or random ones, put where they belong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS, Graph, known_vertices
from partition.importing.readers.classes import MAX_CLASSES, class_labels
from partition.importing.readers.files import check_file, check_memory, finite_features
from partition.importing.readers.numbering import positions, shown_id
from partition.importing.readers.vertex_files import (
    Rows,
    checked_targets,
    mask_files,
    read_features,
    read_ids,
    read_labels,
    read_mask,
    read_targets,
)
from partition.importing.splits import RandomSplit, draw_masks

FEATURE_STREAM, LABEL_STREAM = 1, 2
SORTED = "sorted"
MASK_NUMBERS = ("ids", "rows")


def attach(
    graph: Graph,
    *,
    features: str | os.PathLike | None = None,
    labels: str | os.PathLike | None = None,
    targets: str | os.PathLike | None = None,
    masks: Mapping[str, str | os.PathLike] | None = None,
    ids: str | os.PathLike | None = None,
    mask_numbers: str | None = None,
    split: RandomSplit | None = None,
    seed: int = 0,
) -> Graph:
    """The graph with vertex data from files or from a generator.

    Row i of a file belongs to the vertex whose id is the i-th in ``ids``; without that, to vertex
    i, which a graph with ids of its own that are not consecutive numbers does not accept.

    Parameters
    ----------
    features : path or "random:D"
        (n, d) finite numbers, or D columns of normal random numbers. Replaces the graph's own,
        as do the following.
    labels : path or "random:C"
        (n,) integers or texts, −1 for a vertex without a label; or uniform over 0..C−1.
    targets : path
        (n,) or (n, c) numbers to be learned, or several labels a vertex as 0 and 1; NaN where one
        is unknown.
    masks : mapping of "train" / "val" / "test" to path
        (n,) bool, (n,) of 0 and 1, or the numbers of the vertices that are in. Of several splits,
        (n, splits) bool or 0 and 1; or a path with "*" for the number of the split, from 0.
    ids : path or "sorted", optional
        The id of each row: a file; or the graph's ids in increasing order.
    mask_numbers : {"ids", "rows"}, optional
        Whether the numbers in masks are ids or rows of the files; where that is not the same.
    split : RandomSplit, optional
        Masks that are drawn, in place of all that there are.
    seed : int
        Seed of random features and labels, which use independent streams.

    Raises
    ------
    UserError
        If a file is missing or damaged, has the wrong shape or type, or holds numbers out of
        range; if it can be read in two ways; if a mask has a vertex without a label, or two masks
        of a split have a vertex in common.
    """
    masks = dict(masks or {})
    check_vertex_data(features, labels, targets, masks, seed, ids, mask_numbers, split)
    given: dict[str, _Given] = {}
    if features is not None:
        if width := _random_size(features):
            graph = replace(graph, features=_random_features(graph.n, width, seed))
        else:
            given["features"] = read_features(features), str(features)
    if labels is not None:
        if classes := _random_size(labels):
            drawn = generator(seed, LABEL_STREAM).integers(classes, size=graph.n, dtype=np.int32)
            graph = replace(graph, labels=drawn, class_names=None)
        else:
            given["labels"] = read_labels(labels), str(labels)
    if targets is not None:
        given["targets"] = read_targets(targets), str(targets)
    of_masks = {
        name: [(read_mask(file, name), str(file)) for file in mask_files(path)]
        for name, path in masks.items()
    }
    graph = _placed(graph, _Places(graph, ids, mask_numbers), given, of_masks)
    if split is not None:
        graph = replace(graph, masks=draw_masks(graph, split))
    _check_masks(graph, masks)
    return graph


def attach_arrays(
    graph: Graph,
    *,
    features: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    targets: np.ndarray | None = None,
    masks: Mapping[str, np.ndarray] | None = None,
    split: RandomSplit | None = None,
) -> Graph:
    """The graph with vertex data from arrays, row i of which belongs to vertex i.

    They are what :func:`attach` finds in files; in messages they are called x, y, targets and
    train_mask.

    Raises
    ------
    UserError
        As :func:`attach`.
    """
    masks = dict(masks or {})
    _check_names(masks)
    _check_drawn(masks, split)
    given: dict[str, _Given] = {}
    if features is not None:
        given["features"] = Rows(finite_features(features, "x")), "x"
    if labels is not None:
        given["labels"] = Rows(labels), "y"
    if targets is not None:
        given["targets"] = Rows(checked_targets(targets, "targets")), "targets"
    of_masks = {name: [(Rows(mask), f"{name}_mask")] for name, mask in masks.items()}
    unnamed = replace(graph, ids=None)  # row i is of vertex i, whatever that is called
    graph = _placed(graph, _Places(unnamed, None, None), given, of_masks)
    if split is not None:
        graph = replace(graph, masks=draw_masks(graph, split))
    _check_masks(graph, {})
    return graph


# Rows, and what they are called in messages.
_Given = tuple[Rows, str]


def _placed(
    graph: Graph, places: _Places, given: Mapping[str, _Given], masks: Mapping[str, list[_Given]]
) -> Graph:
    """The graph with the rows where they belong."""
    if "features" in given:
        graph = replace(graph, features=places.of_vertices(*given["features"]))
    if "labels" in given:
        rows, where = given["labels"]
        numbers, names = class_labels(rows.values, where)
        found = places.of_vertices(replace(rows, values=numbers), where)
        graph = replace(graph, labels=found, class_names=names)
    if "targets" in given:
        graph = replace(graph, targets=places.of_vertices(*given["targets"]))
    loaded = {name: _mask_of(places, pieces) for name, pieces in masks.items()}
    return replace(graph, masks=dict(graph.masks) | loaded)


def _mask_of(places: _Places, pieces: list[_Given]) -> np.ndarray:
    """(n,) bool, or (n, splits) bool from one array or from one for each split."""
    found = [places.mask(*piece) for piece in pieces]
    if len(found) == 1:
        return found[0]
    for mask, (_, where) in zip(found, pieces, strict=True):
        if mask.ndim != 1:
            raise UserError(f"{where} holds several splits, and is one of several files")
    return np.stack(found, axis=1)


def check_vertex_data(
    features: str | os.PathLike | None,
    labels: str | os.PathLike | None,
    targets: str | os.PathLike | None,
    masks: Mapping[str, str | os.PathLike],
    seed: int,
    ids: str | os.PathLike | None = None,
    mask_numbers: str | None = None,
    split: RandomSplit | None = None,
) -> None:
    """The mistakes in the arguments of :func:`attach` that show before any file is read."""
    _check_names(masks)
    generator(seed, FEATURE_STREAM)
    if labels is not None and (_random_size(labels) or 0) > MAX_CLASSES:
        raise UserError(f"{labels!r}: there can be at most {MAX_CLASSES} classes")
    if any(str(path).startswith("random:") for path in masks.values()):
        raise UserError("a mask is a file", "--split random:0.6,0.2,0.2 draws all three")
    _check_drawn(masks, split)
    if mask_numbers is not None and mask_numbers not in MASK_NUMBERS:
        raise unknown_name("meaning of the numbers in masks", mask_numbers, MASK_NUMBERS)
    if mask_numbers is not None and not masks:
        raise UserError("--mask-numbers says how masks are read, but there is no mask")
    files = [value for value in (features, labels) if value is not None]
    files = [value for value in files if _random_size(value) is None]
    files += [] if targets is None else [targets]
    files += [file for path in masks.values() for file in mask_files(path)]
    for file in files:
        check_file(file)
    if ids is not None and str(ids) != SORTED:
        check_file(ids)


def _check_drawn(masks: Mapping[str, Any], split: RandomSplit | None) -> None:
    if masks and split is not None:
        raise UserError("--split draws all masks, and so does not go with files of masks")


def _check_names(masks: Iterable[str]) -> None:
    for name in masks:
        if name not in MASKS:
            raise unknown_name("mask", name, MASKS)


def check_ids_are_used(
    ids: str | os.PathLike | None,
    features: str | os.PathLike | None,
    labels: str | os.PathLike | None,
    targets: str | os.PathLike | None,
    masks: Mapping[str, str | os.PathLike] | None,
) -> None:
    """A UserError if there are ids of rows, but no file with rows."""
    given = [value for value in (features, labels) if value is not None]
    if ids is not None and not masks and targets is None and all(map(_random_size, given)):
        raise UserError(
            "--ids says which vertex the rows of files are of, but there is no file",
            "give --features, --labels, --targets or a mask",
        )


class _Places:
    """Which vertex a row of a file belongs to.

    A graph without ids is one with the ids 0..n−1.
    """

    def __init__(
        self, graph: Graph, ids: str | os.PathLike | None, mask_numbers: str | None
    ) -> None:
        self.n = graph.n
        self.ids = np.arange(graph.n) if graph.ids is None else np.asarray(graph.ids)
        self.numbers = mask_numbers
        self.consecutive = self.ids.dtype.kind == "i" and _consecutive(self.ids)
        self.given = ids is not None
        self.vertices: np.ndarray | None = None  # of each row; None: row i is of vertex i
        if ids is None or (str(ids) == SORTED and self.consecutive):
            return
        if str(ids) == SORTED:
            self.vertices = np.argsort(self.ids, kind="stable")
        else:
            text = self.ids.dtype.kind == "U"
            self.vertices = self._found(read_ids(ids, text=text), str(ids))
        if (self.vertices == np.arange(self.n)).all():
            self.vertices = None

    def of_vertices(self, rows: Rows, where: str) -> np.ndarray:
        """The rows in the order of the vertices."""
        vertices = self._of_rows(rows, where)
        if vertices is None:
            return rows.values
        values = np.empty_like(rows.values)
        values[vertices] = rows.values
        return values

    def mask(self, rows: Rows, where: str) -> np.ndarray:
        """A mask from bool, from 0 and 1, or from the numbers of the vertices that are in.

        Of several splits, (n, splits) bool or 0 and 1.
        """
        values = rows.values
        if values.ndim == 2 and values.dtype.kind in "biu" and rows.ids is None:
            if not values.shape[1] or not ((values == 0) | (values == 1)).all():
                raise UserError(f"{where}: a mask of several splits holds bool, or 0 and 1")
            found = self.of_vertices(Rows(values.astype(bool)), where)
            return found[:, 0] if found.shape[1] == 1 else found
        if values.ndim != 1 or values.dtype.kind not in ("biuU" if rows.ids is None else "biu"):
            raise UserError(
                f"{where}: a mask is a vector of bool or of vertex numbers, "
                f"not {values.dtype} {values.shape}"
            )
        binary = values.dtype.kind in "iu" and bool(np.isin(values, (0, 1)).all())
        if values.dtype.kind == "b" or rows.ids is not None:
            if values.dtype.kind != "b" and not binary:
                raise UserError(f"{where}: a mask with ids has true or false, 0 or 1 in each row")
            return self.of_vertices(Rows(values.astype(bool), rows.ids), where)
        if binary and len(values) == self.n:
            if self.n <= 2 and len(np.unique(values)) == len(values):
                raise UserError(
                    f"{where} may be a row for each vertex, or a list of vertices",
                    "save it as bool: mask.astype(bool)",
                )
            return self.of_vertices(Rows(values.astype(bool)), where)
        listed, times = np.unique(values, return_counts=True)
        if len(listed) < len(values):
            twice = shown_id(listed[int(np.argmax(times > 1))])
            hint = f"a mask of 0 and 1 has a row for each of the {self.n} vertices"
            raise UserError(
                f"{where} lists vertex {twice} more than once, in {len(values)} rows",
                hint if binary else None,
            )
        mask = np.zeros(self.n, bool)
        mask[self._listed(listed, where)] = True
        return mask

    def _of_rows(self, rows: Rows, where: str) -> np.ndarray | None:
        """The vertex of each row, None where row i is of vertex i."""
        if rows.ids is not None:
            if self.given:
                raise UserError(f"{where} has a column of ids, so --ids is not for it")
            return self._found(rows.ids, where)
        if len(rows.values) != self.n:
            raise UserError(
                f"{where} has {len(rows.values)} rows, the graph has {self.n} vertices",
                self._hint(),
            )
        if not self.given and not self.consecutive:
            raise UserError(
                f"{where}: it is not clear which vertex a row is of, because the ids of the graph "
                f"are not consecutive numbers ({self._sample()})",
                "--ids FILE lists the id of each row; --ids sorted: rows follow increasing ids",
            )
        return self.vertices

    def _listed(self, numbers: np.ndarray, where: str) -> np.ndarray:
        """Vertices from a list of their numbers or ids."""
        meaning = self.numbers
        same = bool((self.ids[:1] == 0).all()) and self.consecutive and self.vertices is None
        if numbers.dtype.kind == "U" or meaning == "ids" or (meaning is None and same):
            place, there = positions(self.ids, self._of_one_kind(numbers, where))
            if there.all():
                return place
            outside = shown_id(numbers[int(np.argmin(there))])
            span = f"outside 0..{self.n - 1}" if same else "that the graph does not have"
            raise UserError(f"{where} names a vertex {span}: {outside}")
        if meaning is None:
            raise UserError(
                f"{where}: the numbers can be ids ({self._sample()}) or rows (0..{self.n - 1})",
                "give --mask-numbers ids or rows, or a bool for each vertex",
            )
        if len(numbers) and (int(numbers[0]) < 0 or int(numbers[-1]) >= self.n):
            raise UserError(f"{where} names a row outside 0..{self.n - 1}")
        return numbers if self.vertices is None else self.vertices[numbers]

    def _found(self, ids: np.ndarray, where: str) -> np.ndarray:
        """The vertex of each id; a UserError unless every vertex is there once."""
        place, there = positions(self.ids, self._of_one_kind(ids, where))
        if not there.all():
            strange = shown_id(ids[int(np.argmin(there))])
            raise UserError(
                f"{where}: the graph has no vertex {strange}; its ids are {self._sample()}",
                self._hint(),
            )
        if len(ids) != self.n:
            absent = np.ones(self.n, bool)
            absent[place] = False
            first = shown_id(self.ids[int(np.argmax(absent))])
            raise UserError(
                f"{where} has {len(ids)} rows, the graph has {self.n} vertices; there is none for "
                f"vertex {first}"
            )
        return place

    def _of_one_kind(self, ids: np.ndarray, where: str) -> np.ndarray:
        if self.ids.dtype.kind == "U":
            return ids.astype(str)
        if ids.dtype.kind == "U":
            raise UserError(f"{where}: the ids of the graph are integers, not {shown_id(ids[0])}")
        return ids

    def _sample(self) -> str:
        shown = ", ".join(shown_id(value) for value in self.ids[:3])
        return f"{shown} …" if self.n > 3 else shown

    def _hint(self) -> str:
        option = "--ids FILE" if self.ids.dtype.kind == "U" else "--vertices N or --ids FILE"
        return f"a list of arcs does not show vertices without arcs: import it with {option}"


def _consecutive(ids: np.ndarray) -> bool:
    return not len(ids) or bool((ids == np.arange(len(ids)) + ids[0]).all())


def _check_masks(graph: Graph, files: Mapping[str, str | os.PathLike]) -> None:
    """Refuse masks with vertices that have no label, or that are in another mask."""
    known = known_vertices(graph)
    widths = {name: mask.shape[1] for name, mask in graph.masks.items() if mask.ndim == 2}
    if len(set(widths.values())) > 1:
        counts = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise UserError(f"the masks have different numbers of splits: {counts}")
    for name, mask in graph.masks.items():
        where = f"{files[name]}: the " if name in files else "the "
        if known is None:
            hint = "give --labels or --targets too"
            raise UserError(f"{where}{name} mask needs a graph with labels", hint)
        lacking = (mask if mask.ndim == 1 else mask.any(axis=1)) & ~known
        if lacking.any():
            vertex = int(np.argmax(lacking))
            raise UserError(f"{where}{name} mask has vertex {vertex}, which has no label")
    names = [name for name in MASKS if name in graph.masks]
    for i, name in enumerate(names):
        for other in names[:i]:
            one, two = (np.atleast_2d(graph.masks[key].T) for key in (name, other))
            both = one & two  # (splits, n)
            if both.any():
                split = int(np.argmax(both.any(axis=1)))
                of = f" of split {split}" if len(both) > 1 else ""
                raise UserError(
                    f"the {other} mask and the {name} mask{of} have {int(both[split].sum())} "
                    f"vertices in common, the first is {int(np.argmax(both[split]))}",
                    "accuracy on training vertices does not show that on others",
                )


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of one purpose: each ``stream`` of a seed is independent of the others."""
    if not 0 <= seed < 2**64:
        raise UserError(f"seed {seed} is outside 0..2^64-1")
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))


def _random_size(value: str | os.PathLike) -> int | None:
    """D of "random:D"; None where ``value`` is a path."""
    text = str(value)
    if not text.startswith("random:"):
        return None
    size = text.removeprefix("random:")
    if not (size.isdecimal() and size.isascii() and 0 < int(size) < 2**31):
        raise UserError(f"{text!r} is not 'random:NUMBER', such as random:16")
    return int(size)


def _random_features(n: int, width: int, seed: int) -> np.ndarray:
    check_memory(4 * n * width, f"{n} x {width} random features")
    return generator(seed, FEATURE_STREAM).standard_normal((n, width), dtype=np.float32)
