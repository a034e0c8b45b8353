"""Data of vertices: files with a row for each, masks that are drawn, and random numbers."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from partition.errors import UserError, check_name, unknown_name
from partition.graph.graph import MASKS, UNLABELLED, Graph, known_rows
from partition.graph.hashing import key, mixed
from partition.importing.readers import LISTS, arc_columns
from partition.importing.readers.classes import MAX_CLASSES, class_labels
from partition.importing.readers.files import check_file, finite_features
from partition.importing.readers.names import LABELS, TARGETS, mask_names
from partition.importing.readers.numbering import check_ids, positions, shown_id
from partition.importing.readers.vertex_tables import (
    Rows,
    checked_targets,
    mask_files,
    read_features,
    read_ids,
    read_labels,
    read_mask,
    read_targets,
)
from partition.resident import check_memory

File = str | os.PathLike[str]
# Rows, and their name in messages.
_Given = tuple[Rows, str]

PER_CLASS = "per-class"
SPLIT_EXAMPLES = "random:0.6,0.2,0.2 or per-class:20,500,1000"
_AMOUNTS = {"random": r"[0-9]?\.?[0-9]{1,18}", PER_CLASS: r"[0-9]{1,10}"}
MAX_SPLITS = 10_000
# Purposes of hashes: the order of all labelled vertices, or of those that per-class leaves.
_ALL, _OTHERS = 1, 2


@dataclass(frozen=True)
class RandomSplit:
    """How masks are drawn.

    Attributes
    ----------
    rule : str
        "random:0.6,0.2,0.2": the shares of the labelled vertices that train, validate and test,
        rounded down; where they add up to 1, the last takes the rest.
        "per-class:20,500,1000": of each class 20 vertices train, or all that it has; of the
        labelled vertices left, whatever their class, 500 validate and 1000 test.
    splits : int
        How many splits are drawn. Each is the same, however many there are.
    seed : int

    Raises
    ------
    UserError
        If the rule is malformed, or a number is out of range.
    """

    rule: str
    splits: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        kind, _, text = self.rule.partition(":")
        fields = text.split(",")
        pattern = _AMOUNTS.get(kind, "(?!)")
        if len(fields) != len(MASKS) or not all(re.fullmatch(pattern, value) for value in fields):
            raise UserError(
                f"--split {self.rule!r} is not a rule for training, validation and test",
                f"such as {SPLIT_EXAMPLES}",
            )
        if not self.amounts[0]:
            raise UserError(f"--split {self.rule} leaves no vertex to train on")
        if not self.per_class and sum(self.amounts) > 1:
            raise UserError(
                f"--split {self.rule}: the shares add up to {float(sum(self.amounts)):g}"
            )
        if not 1 <= self.splits <= MAX_SPLITS:
            raise UserError(f"{self.splits} splits are not 1 to {MAX_SPLITS}")
        _check_seed(self.seed)

    @property
    def per_class(self) -> bool:
        """Whether vertices to train on are counted in each class."""
        return self.rule.startswith(PER_CLASS)

    @cached_property
    def amounts(self) -> tuple[Fraction, ...]:
        """Shares, or numbers of vertices, of each of the masks."""
        return tuple(map(Fraction, self.rule.partition(":")[2].split(",")))

    def facts(self) -> dict[str, object]:
        """The entry of the manifest on it."""
        return {"rule": self.rule, "splits": self.splits, "seed": self.seed}


def draw_masks(graph: Graph, split: RandomSplit) -> dict[str, np.ndarray]:
    """The masks of a random split, of vertices with a label (or a target that is known) only.

    They are those that the rule does not give 0: (n,) bool each, or (n, splits) bool of several
    splits. A vertex is put in order by a hash of the seed, the number of the split and its place
    among the ids in increasing order: so its mask does not depend on the order of the vertices.

    A UserError if the graph has no labels, no classes where the rule counts in each, or too few
    vertices with a label.
    """
    known, classes = known_rows(graph), None
    if split.per_class:
        if not graph.classes:
            hint = "give --labels, or shares: --split random:0.6,0.2,0.2"
            raise UserError(f"--split {split.rule} needs a graph with classes", hint)
        known = np.asarray(graph.labels) != UNLABELLED
        classes = np.asarray(graph.labels)[known]
    if known is None:
        hint = "give --labels or --targets too"
        raise UserError(f"--split {split.rule} needs a graph with labels", hint)
    vertices, places = np.flatnonzero(known), np.arange(graph.n)  # among the ids that increase
    if graph.ids is not None:
        places[np.argsort(graph.ids)] = np.arange(graph.n)
    names = [name for name, amount in zip(MASKS, split.amounts, strict=True) if amount]
    masks = {name: np.zeros((graph.n, split.splits), bool) for name in names}
    for column in range(split.splits):
        drawn = dict(zip(MASKS, _drawn(split, column, places[vertices], classes), strict=True))
        for name, mask in masks.items():
            mask[vertices[drawn[name]], column] = True
    return {name: mask if split.splits > 1 else mask[:, 0] for name, mask in masks.items()}


def _drawn(
    split: RandomSplit, column: int, numbers: np.ndarray, classes: np.ndarray | None
) -> list[np.ndarray]:
    """Which of the labelled vertices are in each mask of one split, as places in ``numbers``."""

    def shuffled(places: np.ndarray, purpose: int) -> np.ndarray:
        hashes = mixed(numbers[places], key(split.seed, purpose, column))
        return places[np.argsort(hashes)]  # no two are equal: the hash is a permutation

    order = shuffled(np.arange(len(numbers)), _ALL)
    if classes is None:
        sizes = _sizes(split, len(order))
    else:
        training = _first_of_each_class(classes[order], int(split.amounts[0]))
        # Their hashes say which classes are small: shuffled anew, by other ones.
        others = shuffled(order[~training], _OTHERS)
        order = np.concatenate([order[training], others])
        sizes = [int(training.sum()), int(split.amounts[1]), int(split.amounts[2])]
        if sizes[1] + sizes[2] > len(others):
            raise UserError(
                f"--split {split.rule}: {sizes[1] + sizes[2]} vertices are to validate and test, "
                f"but {len(others)} with a label do not train"
            )
    return np.split(order, np.cumsum(sizes))[: len(MASKS)]


def _sizes(split: RandomSplit, n: int) -> list[int]:
    """The sizes of the masks from their shares of n vertices."""
    sizes = [int(share * n) for share in split.amounts]
    if sum(split.amounts) == 1:
        last = max(i for i, share in enumerate(split.amounts) if share)
        sizes[last] += n - sum(sizes)
    for name, share, size in zip(MASKS, split.amounts, sizes, strict=True):
        if share and not size:
            raise UserError(
                f"--split {split.rule}: no vertex is left for {name}, of {n} with a label"
            )
    return sizes


def _first_of_each_class(classes: np.ndarray, count: int) -> np.ndarray:
    """Which are among the first ``count`` of their class, bool."""
    by_class = np.argsort(classes, kind="stable")
    ordered = classes[by_class]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    first = np.empty(len(classes), bool)
    first[by_class] = place < count
    return first


SORTED = "sorted"


class Places:
    """Which vertex a row of a file belongs to.

    A graph without ids is one with the ids 0..n−1.
    """

    def __init__(
        self,
        graph: Graph,
        ids: File | np.ndarray | None = None,
        mask_numbers: str | None = None,
        source: Mapping[str, object] | None = None,
        comments: str | None = None,
    ) -> None:
        self.n, self._source, self._numbers = graph.n, source or {}, mask_numbers
        self._ids = np.arange(graph.n) if graph.ids is None else np.asarray(graph.ids)
        span = np.arange(graph.n) + (self._ids[0] if self._ids.dtype.kind == "i" else 0)
        self._consecutive = self._ids.dtype.kind == "i" and bool((self._ids == span).all())
        self._given = ids is not None
        self._vertices: np.ndarray | None = None  # of each row; None: row i is of vertex i
        if isinstance(ids, np.ndarray):
            check_ids(ids, "ids")
            self._vertices = self._found(ids, "ids")
        elif ids is not None and str(ids) != SORTED:
            text = self._ids.dtype.kind == "U"
            self._vertices = self._found(read_ids(ids, text=text, comments=comments), str(ids))
        elif ids is not None and not self._consecutive:
            self._vertices = np.argsort(self._ids, kind="stable")
        if self._vertices is not None and (self._vertices == np.arange(self.n)).all():
            self._vertices = None

    def of_vertices(self, rows: Rows, where: str, absent: float | None = None) -> np.ndarray:
        """The rows in the order of the vertices.

        ``absent`` is the value of vertices that a file with ids has no row for; without it, there
        are none.
        """
        vertices = self._of_rows(rows, where, partly=absent is not None)
        if vertices is None:
            return rows.values
        shape = (self.n, *rows.values.shape[1:])
        values = np.full(shape, 0 if absent is None else absent, rows.values.dtype)
        values[vertices] = rows.values
        return values

    def row_of_each(self, where: str) -> np.ndarray | None:
        """The row of each vertex in arrays that have one for each; None: row i is of vertex i.

        A UserError if nobody can say, because the ids of the graph are not consecutive numbers.
        """
        vertices = self._of_rows(Rows(np.empty(self.n, bool)), where)
        return None if vertices is None else np.argsort(vertices)

    def mask(self, rows: Rows, where: str) -> np.ndarray:
        """A mask from bool, from 0 and 1, or from the numbers of the vertices that are in.

        Of several splits, (n, splits) bool or 0 and 1.
        """
        values, binary = rows.values, arc_columns.is_binary(rows.values)
        of_rows = replace(rows, values=values.astype(bool)) if binary else rows
        if values.ndim == 2 and values.dtype.kind in "biu" and rows.ids is None:
            if not values.shape[1] or not binary:
                raise UserError(f"{where}: a mask of several splits holds bool, or 0 and 1")
            found = self.of_vertices(of_rows, where)
            return found[:, 0] if found.shape[1] == 1 else found
        if values.ndim != 1 or values.dtype.kind not in ("biuU" if rows.ids is None else "biu"):
            raise UserError(
                f"{where}: a mask is a vector of bool or of vertex numbers, "
                f"not {values.dtype} {values.shape}"
            )
        if rows.ids is not None and not binary:
            raise UserError(f"{where}: a mask with ids has true or false, 0 or 1 in each row")
        if values.dtype.kind == "b" or rows.ids is not None:
            return self.of_vertices(of_rows, where)
        if binary and len(values) == self.n:
            if self.n <= 2 and len(np.unique(values)) == len(values):
                raise UserError(
                    f"{where} may be a row for each vertex, or a list of vertices",
                    "save it as bool: mask.astype(bool)",
                )
            return self.of_vertices(of_rows, where)
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

    def _of_rows(self, rows: Rows, where: str, partly: bool = False) -> np.ndarray | None:
        """The vertex of each row, None where row i is of vertex i."""
        if rows.ids is not None:
            if self._given:
                raise UserError(f"{where} has a column of ids, so --ids is not for it")
            return self._found(rows.ids, where, partly)
        if len(rows.values) != self.n:
            turned = rows.values.shape[1:] == (self.n,)
            raise UserError(
                f"{where} has {len(rows.values)} rows, the graph has {self.n} vertices",
                f"rows are vertices: transpose its {rows.values.shape}" if turned else self._hint(),
            )
        if not self._given and not self._consecutive:
            raise UserError(
                f"{where}: it is not clear which vertex a row is of, because the ids of the graph "
                f"are not consecutive numbers ({self._sample()})",
                "--ids FILE lists the ids of the rows; --ids sorted: rows follow increasing ids; a "
                "table may have a column 'id'",
            )
        return self._vertices

    def _listed(self, numbers: np.ndarray, where: str) -> np.ndarray:
        """Vertices from a list of their numbers or ids."""
        first = bool((self._ids[:1] == 0).all())
        same = first and self._consecutive and self._vertices is None
        meaning = self._numbers or ("ids" if same else None)
        if numbers.dtype.kind == "U" or meaning == "ids":
            span = f"outside 0..{self.n - 1}" if same else "that the graph does not have"
            return self._positions(numbers, where, f" names a vertex {span}:")
        if meaning is None:
            raise UserError(
                f"{where}: the numbers can be ids ({self._sample()}) or rows (0..{self.n - 1})",
                "give --mask-numbers ids or rows, or a bool for each vertex",
            )
        if len(numbers) and (int(numbers[0]) < 0 or int(numbers[-1]) >= self.n):
            raise UserError(f"{where} names a row outside 0..{self.n - 1}")
        return numbers if self._vertices is None else self._vertices[numbers]

    def _found(self, ids: np.ndarray, where: str, partly: bool = False) -> np.ndarray:
        """The vertex of each id; a UserError unless every vertex is there, or ``partly`` some."""
        after = f"; its ids are {self._sample()}"
        place = self._positions(ids, where, ": the graph has no vertex", after, self._hint())
        if len(ids) != self.n and not partly:
            absent = np.ones(self.n, bool)
            absent[place] = False
            first = shown_id(self._ids[int(np.argmax(absent))])
            raise UserError(
                f"{where} has {len(ids)} rows, the graph has {self.n} vertices; there is none for "
                f"vertex {first}"
            )
        return place

    def _positions(
        self, ids: np.ndarray, where: str, before: str, after: str = "", hint: str | None = None
    ) -> np.ndarray:
        """As :func:`positions` among the ids of the graph, whatever their kind."""
        if self._ids.dtype.kind == "U":
            ids = ids.astype(str)
        elif ids.dtype.kind == "U":
            raise UserError(f"{where}: the ids of the graph are integers, not {shown_id(ids[0])}")
        return positions(self._ids, ids, f"{where}{before}", after, hint)

    def _sample(self) -> str:
        shown = ", ".join(shown_id(value) for value in self._ids[:3])
        return f"{shown} …" if self.n > 3 else shown

    def _hint(self) -> str | None:
        """How a list of arcs is told its vertices, unless it was."""
        if given := self._source.get("vertices"):
            return f"--vertices {given} was given to import, which gives it {self.n:,} vertices"
        known = self._source.get("format", "edges") not in LISTS  # the file says how many there are
        if known or self._source.get("ids_given"):
            return None
        option = "--ids FILE" if self._ids.dtype.kind == "U" else "--vertices N or --ids FILE"
        return f"a list of arcs does not show vertices without arcs: import it with {option}"


FEATURE_STREAM, LABEL_STREAM = 1, 2
MASK_NUMBERS = ("ids", "rows")
ORTHOGONAL = "orthogonal:"  # features, of which columns are at right angles
AT_ONCE = 1 << 16  # rows that are multiplied at once


@dataclass(frozen=True)
class VertexFiles:
    """Vertex data in files, or from a generator.

    Row i of a file belongs to the vertex whose id is the i-th in ``ids``; without that, to vertex
    i, which a graph with ids of its own that are not consecutive numbers does not accept.

    Attributes
    ----------
    features : path, "random:D" or "orthogonal:D"
        (n, d) finite numbers, or D columns of normal random numbers; of "orthogonal" ones, made
        orthonormal. Replaces the graph's own,
        as do the following.
    labels : path or "random:C"
        (n,) integers or texts, −1 for a vertex without a label; or uniform over 0..C−1. A table
        with a column of ids may leave vertices out, and so may one of targets.
    targets : path
        (n,) or (n, c) numbers to be learned, or several labels a vertex as 0 and 1; NaN where one
        is unknown.
    masks : mapping of "train" / "val" / "test" to path
        (n,) bool, (n,) of 0 and 1, or the numbers of the vertices that are in. Of several splits,
        (n, splits) bool or 0 and 1; or a path with "*" for the number of the split, from 0.
    comments : str, optional
        The signs with which comments begin in text: see :class:`Layout`.
    ids : path or "sorted", optional
        The id of each row: a file; or the graph's ids in increasing order.
    mask_numbers : {"ids", "rows"}, optional
        Whether the numbers in masks are ids or rows of the files; where that is not the same.
    label_column : str, optional
        The column of the table of labels, or of that of features where there is none, by its name.
        Its other columns may be features.
    missing_labels : sequence of str
        Words for no label: see :func:`class_labels`.
    split : RandomSplit, optional
        Masks that are drawn, in place of all that there are.
    seed : int
        Seed of random features and labels, which use independent streams.
    """

    features: File | None = None
    labels: File | None = None
    targets: File | None = None
    masks: Mapping[str, File] = field(default_factory=dict)
    ids: File | None = None
    comments: str | None = None
    mask_numbers: str | None = None
    label_column: str | None = None
    missing_labels: Sequence[str] = ()
    split: RandomSplit | None = None
    seed: int = 0

    @property
    def of_labels(self) -> File | None:
        """Where labels are read from."""
        in_features = self.label_column is not None and self.labels is None
        return self.features if in_features else self.labels

    @property
    def _rows(self) -> list[File]:
        """The files with a row for each vertex, but for masks and ids."""
        sized = [self.features, self.labels]
        files = [value for value in sized if value is not None and random_size(value) is None]
        return files if self.targets is None else [*files, self.targets]

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        _check_masks_given(self.masks, self.split)
        column, table = self.label_column, self.of_labels
        if column is not None and (table is None or random_size(table) is not None):
            raise UserError(
                f"--label-column {column} is a column of a file, and there is none",
                "give the file as --labels, or as --features, whose other columns are the features",
            )
        _check_seed(self.seed)
        if str(self.labels).startswith(ORTHOGONAL):
            raise UserError(f"{self.labels!r}: classes are random:C, or in a file")
        if self.labels is not None and (random_size(self.labels) or 0) > MAX_CLASSES:
            raise UserError(f"{self.labels!r}: there can be at most {MAX_CLASSES} classes")
        if any(str(path).startswith("random:") for path in self.masks.values()):
            raise UserError("a mask is a file", "--split random:0.6,0.2,0.2 draws all three")
        if self.mask_numbers is not None and self.mask_numbers not in MASK_NUMBERS:
            raise unknown_name("meaning of the numbers in masks", self.mask_numbers, MASK_NUMBERS)
        if self.mask_numbers is not None and not self.masks:
            raise UserError("--mask-numbers says how masks are read, but there is no mask")
        files = [*self._rows, *(file for path in self.masks.values() for file in mask_files(path))]
        for file in files + ([] if self.ids is None or str(self.ids) == SORTED else [self.ids]):
            check_file(file)

    def check_ids_are_used(self) -> None:
        """A UserError if there are ids of rows, but no file with rows."""
        if self.ids is not None and not (self.masks or self._rows):
            raise UserError(
                "--ids says which vertex the rows of files are of, but there is no file",
                "give --features, --labels, --targets or a mask",
            )

    def facts(self, before: Mapping[str, object] | None = None) -> dict[str, object]:
        """The entries of the manifest: names of files, seed, and how masks were drawn.

        ``before`` are the names of the files that were attached earlier.
        """
        given = {"features": self.features, "labels": self.of_labels, "targets": self.targets}
        given |= {**self.masks, "ids": self.ids}
        attached = {name: Path(value).name for name, value in given.items() if value is not None}
        together = {**(before or {}), **attached}
        facts: dict[str, object] = {"attached": together} if together else {}
        if any(value.startswith("random:") for value in attached.values()):
            facts["seed"] = self.seed
        return facts if self.split is None else facts | {"split": self.split.facts()}


def attach(
    graph: Graph,
    files: VertexFiles,
    *,
    source: Mapping[str, object] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Graph:
    """The graph with vertex data from files or from a generator.

    Parameters
    ----------
    source : mapping, optional
        The entry of the manifest on the file of arcs, for hints.
    report : callable
        Called with columns and lines that were left out.

    Raises
    ------
    UserError
        If a file is missing or damaged, has the wrong shape or type, or holds numbers out of
        range; if it can be read in two ways; if a mask has a vertex without a label, or two masks
        of a split have a vertex in common.
    """
    files.check()
    features, labels, seed = files.features, files.of_labels, files.seed
    given: dict[str, _Given] = {}
    if features is not None and (width := random_size(features)):
        check_memory(4 * graph.n * width, f"{graph.n} x {width} random features")
        rng = generator(seed, FEATURE_STREAM)
        rows = rng.standard_normal((graph.n, width), dtype=np.float32)
        if str(features).startswith(ORTHOGONAL):
            _make_orthogonal(rows)
        graph = replace(graph, features=rows)
    elif features is not None:
        read = read_features(features, _others(files), files.comments)
        given["features"] = read, str(features)
    if labels is not None and (classes := random_size(labels)):
        drawn = generator(seed, LABEL_STREAM).integers(classes, size=graph.n, dtype=np.int32)
        graph = replace(graph, labels=drawn, class_names=None)
    elif labels is not None:
        given["labels"] = read_labels(labels, files.label_column, files.comments), str(labels)
    if files.targets is not None:
        given["targets"] = read_targets(files.targets, files.comments), str(files.targets)
    masks = {
        name: [(read_mask(file, name, files.comments), str(file)) for file in mask_files(path)]
        for name, path in files.masks.items()
    }
    for found, where in itertools.chain(given.values(), *masks.values()):
        if found.note:
            report(found.note)
        if found.comments:
            report(f"{where}: {found.comments:,} lines are comments")
    graph = _with_classes(graph, given, files.missing_labels, report)
    places = Places(graph, files.ids, files.mask_numbers, source, files.comments)
    return _placed(graph, places, given, masks, files.split, files.masks)


def check_random(features: int | None, classes: int | None) -> None:
    """A UserError unless they are positive, where there are to be random ones."""
    for name, size in (("features", features), ("classes", classes)):
        if size is not None and size < 1:
            raise UserError(f"{name} {size}: 1 or more, or none")


def attach_random(graph: Graph, features: int | None, classes: int | None, seed: int) -> Graph:
    """The graph with so many columns of random features, and labels of so many random classes."""
    columns = None if features is None else f"random:{features}"
    labels = None if classes is None else f"random:{classes}"
    return attach(graph, VertexFiles(columns, labels, seed=seed))


def attach_arrays(
    graph: Graph,
    *,
    features: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    targets: np.ndarray | None = None,
    masks: Mapping[str, np.ndarray] | None = None,
    split: RandomSplit | None = None,
    missing_labels: Sequence[str] = (),
    report: Callable[[str], None] = lambda line: None,
) -> Graph:
    """The graph with vertex data from arrays, row i of which belongs to vertex i.

    They are the arrays that :func:`attach` finds in files; messages call them x, y, targets and
    train_mask.
    """
    _check_masks_given(masks or {}, split)
    given: dict[str, _Given] = {}
    if features is not None:
        given["features"] = Rows(finite_features(features, "x")), "x"
    if labels is not None:
        given["labels"] = Rows(labels), "y"
    if targets is not None:
        given["targets"] = Rows(checked_targets(targets, "targets")), "targets"
    of_masks = {name: [(Rows(mask), f"{name}_mask")] for name, mask in (masks or {}).items()}
    # Row i is of vertex i, whatever that is called.
    unnamed = _with_classes(replace(graph, ids=None), given, missing_labels, report)
    placed = _placed(unnamed, Places(unnamed), given, of_masks, split, {})
    return replace(placed, ids=graph.ids)


def _others(files: VertexFiles) -> set[str]:
    """Columns of the table of features that are something else, in small letters."""
    table, column = str(files.features), files.label_column
    found: set[str] = set()
    if str(files.of_labels) == table:
        found |= set(LABELS) if column is None else {column.lower()}
    if str(files.targets) == table:
        found |= set(TARGETS)
    masks = files.masks.items()
    return found.union(*(mask_names(name) for name, path in masks if str(path) == table))


def _with_classes(
    graph: Graph,
    given: dict[str, _Given],
    missing: Sequence[str],
    report: Callable[[str], None],
) -> Graph:
    """The graph with the names of classes; labels that are ``given`` become their numbers."""
    if "labels" not in given:
        return graph
    rows, where = given["labels"]
    numbers, names = class_labels(rows.values, where, missing=missing, report=report)
    given["labels"] = replace(rows, values=numbers), where
    return replace(graph, class_names=names)


def _placed(
    graph: Graph,
    places: Places,
    given: Mapping[str, _Given],
    masks: Mapping[str, list[_Given]],
    split: RandomSplit | None,
    files: Mapping[str, File],
) -> Graph:
    """The graph with the rows where they belong, and masks that are drawn, or from ``files``."""
    if "features" in given:
        graph = replace(graph, features=places.of_vertices(*given["features"]))
    if "labels" in given:
        graph = replace(graph, labels=places.of_vertices(*given["labels"], absent=UNLABELLED))
    if "targets" in given:
        graph = replace(graph, targets=places.of_vertices(*given["targets"], absent=np.nan))
    loaded = {name: _mask_of(places, pieces) for name, pieces in masks.items()}
    graph = replace(graph, masks=dict(graph.masks) | loaded)
    if split is not None:
        graph = replace(graph, masks=draw_masks(graph, split))
    _check_masks(graph, files)
    return graph


def _mask_of(places: Places, pieces: list[_Given]) -> np.ndarray:
    """(n,) bool, or (n, splits) bool from one array or from one for each split."""
    found = [places.mask(*piece) for piece in pieces]
    if len(found) == 1:
        return found[0]
    for mask, (_, where) in zip(found, pieces, strict=True):
        if mask.ndim != 1:
            raise UserError(f"{where} holds several splits, and is one of several files")
    return np.stack(found, axis=1)


def _check_masks_given(masks: Mapping[str, object], split: RandomSplit | None) -> None:
    for name in masks:
        check_name("mask", name, MASKS)
    if masks and split is not None:
        raise UserError("--split draws all masks, and so does not go with files of masks")


def _check_masks(graph: Graph, files: Mapping[str, File]) -> None:
    """Refuse masks with vertices that have no label, or that are in another mask."""
    known = known_rows(graph)
    widths = {name: mask.shape[1] for name, mask in graph.masks.items() if mask.ndim == 2}
    if len(set(widths.values())) > 1:
        counts = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise UserError(f"the masks have different numbers of splits: {counts}")
    for name, mask in graph.masks.items():
        where = f"{files[name]}: the {name}" if name in files else f"the {name}"
        if known is None:
            hint = "give --labels or --targets too"
            raise UserError(f"{where} mask needs a graph with labels", hint)
        lacking = (mask if mask.ndim == 1 else mask.any(axis=1)) & ~known
        if lacking.any():
            vertex = int(np.argmax(lacking))
            raise UserError(f"{where} mask has vertex {vertex}, which has no label")
    for other, name in itertools.combinations([m for m in MASKS if m in graph.masks], 2):
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


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**64:
        raise UserError(f"seed {seed} is outside 0..2^64-1")


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of one purpose: each ``stream`` of a seed is independent of the others."""
    _check_seed(seed)
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))


def _make_orthogonal(rows: np.ndarray) -> None:
    """Make the columns of a random matrix orthonormal, in place; its rows where there are fewer.

    As ``torch.nn.init.orthogonal_``: the matrix times the inverse of the Cholesky factor of its
    Gram matrix, which is well conditioned for random columns.
    """
    if rows.shape[0] < rows.shape[1]:
        _make_orthogonal(rows.T)
        return
    gram = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE].astype(np.float64)
        gram += some.T @ some
    inverse = np.linalg.inv(np.linalg.cholesky(gram)).T
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        some[...] = some.astype(np.float64) @ inverse


def random_size(value: str | os.PathLike[str]) -> int | None:
    """D of "random:D" or "orthogonal:D"; None where ``value`` is a path."""
    text = str(value)
    if text.startswith(ORTHOGONAL):
        text = text.replace(ORTHOGONAL, "random:", 1)
    if not text.startswith("random:"):
        return None
    size = text.removeprefix("random:")
    if not (size.isdecimal() and size.isascii() and 0 < int(size) < 2**31):
        raise UserError(f"{text!r} is not 'random:NUMBER', such as random:16")
    return int(size)
