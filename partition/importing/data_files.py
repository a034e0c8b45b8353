"""Data of vertices and arcs: files with a row for each, arrays, random numbers and drawn masks."""

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from partition.errors import UserError, check_name, installing, require
from partition.graph.graph import MASKS, UNLABELLED, ArcData, Graph, known_rows
from partition.graph.hashing import key, mixed
from partition.graph.samples import Steps, with_columns
from partition.importing.readers import LISTS, arc_columns, numbering, vertex_tables
from partition.importing.readers.classes import MAX_CLASSES, class_labels
from partition.importing.readers.files import check_file, finite_features
from partition.importing.readers.names import LABELS, TARGETS, mask_names
from partition.importing.readers.source import Allocate
from partition.importing.readers.vertex_tables import Rows
from partition.records import NUMBERS, TEXTS, map_npy
from partition.resident import check_memory

File = str | os.PathLike[str]
_ARCS_AT_ONCE = 1 << 20
_Data = File | np.ndarray
# Rows, and their name in messages.
_Given = tuple[Rows, str]

_PER_CLASS = "per-class"
SPLIT_EXAMPLES = "random:0.6,0.2,0.2 or per-class:20,500,1000"
_AMOUNTS = {"random": r"[0-9]?\.?[0-9]{1,18}", _PER_CLASS: r"[0-9]{1,10}"}
_MAX_SPLITS = 10_000
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
        total = sum(self.amounts)
        require(self.amounts[0] > 0, f"--split {self.rule} leaves no vertex to train on")
        fits = self.per_class or total <= 1
        require(fits, f"--split {self.rule}: the shares add up to {float(total):g}")
        fits = 1 <= self.splits <= _MAX_SPLITS
        require(fits, f"{self.splits} splits are not 1 to {_MAX_SPLITS}")
        _check_seed(self.seed)

    @property
    def per_class(self) -> bool:
        """Whether vertices to train on are counted in each class."""
        return self.rule.startswith(_PER_CLASS)

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
    if known is None or (split.per_class and not graph.classes):
        what, hint = "labels", "give --labels or --targets too"
        if split.per_class:
            what, hint = "classes", "give --labels, or shares: --split random:0.6,0.2,0.2"
        raise UserError(f"--split {split.rule} needs a graph with {what}", hint)
    if split.per_class:
        known = np.asarray(graph.labels) != UNLABELLED
        classes = np.asarray(graph.labels)[known]
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
        sizes = [int(share * len(order)) for share in split.amounts]
        if sum(split.amounts) == 1:
            last = max(i for i, share in enumerate(split.amounts) if share)
            sizes[last] += len(order) - sum(sizes)
        for name, share, size in zip(MASKS, split.amounts, sizes, strict=True):
            left = f"no vertex is left for {name}, of {len(order)} with a label"
            require(bool(size or not share), f"--split {split.rule}: {left}")
    else:
        by_class = np.argsort(classes[order], kind="stable")
        ordered = classes[order][by_class]
        place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        training = np.empty(len(order), bool)
        training[by_class] = place < int(split.amounts[0])
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


SORTED = "sorted"


class RowMap:
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
        text = self._ids.dtype.kind == "U"
        same = text or (self._ids == np.arange(graph.n) + self._ids[0]).all()
        self._consecutive, self._given, where = bool(same) and not text, ids is not None, "ids"
        self._vertices: np.ndarray | None = None  # of each row; None: row i is of vertex i
        if isinstance(ids, np.ndarray):
            numbering.check_ids(ids, where)
        elif str(ids) == SORTED:
            ids = np.sort(self._ids)
        elif ids is not None:
            ids, where = vertex_tables.read_ids(ids, text=text, comments=comments), str(ids)
        if isinstance(ids, np.ndarray):
            vertices = self._found(ids, where)
            self._vertices = None if (vertices == np.arange(self.n)).all() else vertices

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

    def steps(self, steps: Steps, where: str) -> Steps:
        """Steps whose rows are in the order of the graph's vertices.

        A UserError if nobody can say which vertex a row is of, because the ids of the graph are not
        consecutive numbers.
        """
        if len(steps.shape) != 3 or steps.shape[1] != self.n:
            return steps  # which :func:`write_samples` refuses
        vertices = self._of_rows(Rows(np.empty(self.n, bool)), where)
        if vertices is None:
            return steps
        return _ReorderedSteps(steps, np.argsort(vertices), steps.shape, steps.dtype)

    def mask(self, rows: Rows, where: str) -> np.ndarray:
        """A mask from bool, from 0 and 1, or from the numbers of the vertices that are in.

        Of several splits, (n, splits) bool or 0 and 1.
        """
        values, binary = rows.values, arc_columns.is_binary(rows.values)
        named = rows.ids is not None
        several = values.ndim == 2 and not named
        kinds = "biu" if named or several else "biuU"
        if (values.ndim != 1 and not several) or values.dtype.kind not in kinds:
            raise UserError(
                f"{where}: a mask is a vector of bool or of vertex numbers, "
                f"not {values.dtype} {values.shape}"
            )
        if (named or several) and not (binary and np.prod(values.shape[1:])):
            what = "with ids" if named else "of several splits"
            raise UserError(f"{where}: a mask {what} holds bool, or 0 and 1")
        of_rows = named or several or values.dtype.kind == "b"
        if of_rows or (binary and len(values) == self.n):
            if not of_rows and self.n <= 2 and len(np.unique(values)) == len(values):
                raise UserError(
                    f"{where} may be a row for each vertex, or a list of vertices",
                    "save it as bool: mask.astype(bool)",
                )
            found = self.of_vertices(replace(rows, values=values.astype(bool)), where)
            return found[:, 0] if found.shape[1:] == (1,) else found
        listed, times = np.unique(values, return_counts=True)
        if len(listed) < len(values):
            twice = numbering.shown_id(listed[int(np.argmax(times > 1))])
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
            require(not self._given, f"{where} has a column of ids, so --ids is not for it")
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
        inside = not len(numbers) or 0 <= int(numbers[0]) <= int(numbers[-1]) < self.n
        require(inside, f"{where} names a row outside 0..{self.n - 1}")
        return numbers if self._vertices is None else self._vertices[numbers]

    def _found(self, ids: np.ndarray, where: str, partly: bool = False) -> np.ndarray:
        """The vertex of each id; a UserError unless every vertex is there, or ``partly`` some."""
        after = f"; its ids are {self._sample()}"
        place = self._positions(ids, where, ": the graph has no vertex", after, self._hint())
        if len(ids) != self.n and not partly:
            absent = np.ones(self.n, bool)
            absent[place] = False
            first = numbering.shown_id(self._ids[int(np.argmax(absent))])
            raise UserError(
                f"{where} has {len(ids)} rows, the graph has {self.n} vertices; there is none for "
                f"vertex {first}"
            )
        return place

    def _positions(
        self, ids: np.ndarray, where: str, before: str, after: str = "", hint: str | None = None
    ) -> np.ndarray:
        """Where ids stand among those of the graph, whatever their kind."""
        text = self._ids.dtype.kind == "U"
        if ids.dtype.kind == "U" and not text:
            shown = numbering.shown_id(ids[0])
            raise UserError(f"{where}: the ids of the graph are integers, not {shown}")
        ids = ids.astype(str) if text else ids
        return numbering.positions(self._ids, ids, f"{where}{before}", after, hint)

    def _sample(self) -> str:
        shown = ", ".join(numbering.shown_id(value) for value in self._ids[:3])
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


@dataclass(frozen=True)
class _ReorderedSteps:
    """Steps with another row for each vertex: ``rows``, (n,) integers."""

    steps: Steps
    rows: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, some: slice) -> np.ndarray:
        """Some of the steps."""
        rows: np.ndarray = self.steps[some][:, self.rows]
        return rows


def open_steps(path: Path) -> Steps:
    """An array (steps, vertices, columns) in an ``.npy``, or in a folder or archive of Zarr.

    Zarr is read piece by piece. Of two axes, the last one is that of the only column. A UserError
    if the file cannot be read, or is of something else than numbers.
    """
    found: Any
    if path.suffix == ".npy":
        found = map_npy(path, kinds="fiu")
    else:
        try:
            import zarr
        except ImportError:
            what = "is no .npy, and Zarr, which may read it, is not installed"
            raise UserError(f"{path} {what}", installing("zarr")) from None
        try:
            found = zarr.open_array(str(path), mode="r")
        except Exception as error:  # of its many storage classes, each has errors of its own
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            hint = "give the path of an array within the store"
            raise UserError(f"cannot read {path} with Zarr: {reason}", hint) from error
    if len(found.shape) == 2:
        found = with_columns(found[:])
    if np.dtype(found.dtype).kind not in "fiu" or len(found.shape) != 3:
        raise UserError(
            f"{path} holds {found.dtype} of shape {tuple(found.shape)}",
            "samples are numbers (steps, vertices, columns)",
        )
    return cast(Steps, found)


MASK_NUMBERS = ("ids", "rows")
_ORTHOGONAL = "orthogonal:"  # features, of which columns are at right angles
_AT_ONCE = 1 << 16  # rows that are multiplied at once
# The values of vertices that a file with ids has no row for, where it may leave some out.
_ABSENT = {"labels": UNLABELLED, "targets": np.nan}


@dataclass(frozen=True)
class _Attached:
    """Data of vertices or arcs: in files, in arrays, or from a generator."""

    features: _Data | None = None
    labels: _Data | None = None
    masks: Mapping[str, _Data] = field(default_factory=dict)
    seed: int = 0
    _in_manifest: ClassVar = ("attached", "seed")

    def given(self) -> dict[str, _Data]:
        """Features, labels, targets and masks that are given, by their names in a graph."""
        named = {"features": self.features, "labels": self.labels, **self.masks}
        return {name: value for name, value in named.items() if value is not None}

    def paths(self) -> dict[str, File]:
        """Of these, the files."""
        return {
            name: value
            for name, value in self.given().items()
            if not isinstance(value, np.ndarray) and (name in MASKS or _random_size(value) is None)
        }

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        for name in self.masks:
            check_name("mask", name, MASKS)
        _check_seed(self.seed)

    def facts(self, before: Mapping[str, object] | None = None) -> dict[str, object]:
        """The entries of the manifest: names of files, and the seed of what is random.

        ``before`` are the names of the files that were attached earlier.
        """
        given = {**self.given(), "ids": getattr(self, "ids", None)}.items()
        names = {k: Path(v).name for k, v in given if isinstance(v, str | os.PathLike)}
        drawn = any(name.startswith("random:") for name in names.values())
        together, (attached, seed) = {**(before or {}), **names}, self._in_manifest
        facts: dict[str, object] = {attached: together} if together else {}
        return facts | ({seed: self.seed} if drawn else {})


@dataclass(frozen=True)
class VertexFiles(_Attached):
    """Vertex data in files, in arrays, or from a generator.

    In place of a file there may be an array, row i of which is of vertex i: messages call it x, y,
    targets or train_mask. Row i of a file belongs to the vertex whose id is the i-th in ``ids``;
    without that, to vertex i, which a graph with ids of its own that are not consecutive numbers
    does not accept.

    Attributes
    ----------
    features : path, "random:D" or "orthogonal:D"
        (n, d) finite numbers, or D columns of normal random numbers; of "orthogonal" ones, made
        orthonormal. Replaces the graph's own, as do the following.
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

    targets: _Data | None = None
    ids: File | None = None
    comments: str | None = None
    mask_numbers: str | None = None
    label_column: str | None = None
    missing_labels: Sequence[str] = ()
    split: RandomSplit | None = None

    @property
    def of_labels(self) -> _Data | None:
        """Where labels are read from."""
        in_features = self.label_column is not None and self.labels is None
        return self.features if in_features else self.labels

    def given(self) -> dict[str, _Data]:
        """Features, labels, targets and masks that are given, by their names in a graph."""
        named = {"features": self.features, "labels": self.of_labels, "targets": self.targets}
        named |= self.masks
        return {name: value for name, value in named.items() if value is not None}

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        super().check()
        both = bool(self.masks) and self.split is not None
        require(not both, "--split draws all masks, and so does not go with files of masks")
        column, table = self.label_column, self.of_labels
        if column is not None and (table is None or _random_size(table) is not None):
            raise UserError(
                f"--label-column {column} is a column of a file, and there is none",
                "give the file as --labels, or as --features, whose other columns are the features",
            )
        classes = 0 if self.labels is None else _random_size(self.labels) or 0
        at_angles = classes and str(self.labels).startswith(_ORTHOGONAL)
        require(not at_angles, f"{self.labels!r}: classes are random:C, or in a file")
        most = f"{self.labels!r}: there can be at most {MAX_CLASSES} classes" if classes else ""
        require(classes <= MAX_CLASSES, most)
        if any(str(path).startswith("random:") for path in self.masks.values()):
            raise UserError("a mask is a file", "--split random:0.6,0.2,0.2 draws all three")
        if self.mask_numbers is not None:
            check_name("meaning of the numbers in masks", self.mask_numbers, MASK_NUMBERS)
            wrong = "--mask-numbers says how masks are read, but there is no mask"
            require(bool(self.masks), wrong)
        for name, value in self.paths().items():
            for file in vertex_tables.mask_files(value) if name in MASKS else [value]:
                check_file(file)
        if self.ids is not None and str(self.ids) != SORTED:
            check_file(self.ids)

    def check_ids_are_used(self) -> None:
        """A UserError if there are ids of rows, but no file with rows."""
        if self.ids is not None and not self.paths():
            raise UserError(
                "--ids says which vertex the rows of files are of, but there is no file",
                "give --features, --labels, --targets or a mask",
            )

    def facts(self, before: Mapping[str, object] | None = None) -> dict[str, object]:
        """The entries of the manifest: also how masks were drawn."""
        drawn = {} if self.split is None else {"split": self.split.facts()}
        return super().facts(before) | drawn


def attach(
    graph: Graph,
    files: VertexFiles,
    *,
    source: Mapping[str, object] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Graph:
    """The graph with vertex data from files, from arrays or from a generator.

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
    wanted, ids = files.given(), graph.ids
    if any(isinstance(value, np.ndarray) for value in wanted.values()):
        graph = replace(graph, ids=None)  # row i is of vertex i, whatever that is called
    found = _random_data(wanted, graph.n, "", files.seed, (1, 2))
    given = {name: _read(name, value, files) for name, value in wanted.items() if name not in found}
    for rows, where in itertools.chain(*given.values()):
        if rows.note:
            report(rows.note)
        if rows.comments:
            report(f"{where}: {rows.comments:,} lines are comments")
    if "labels" in given:
        [(rows, where)] = given["labels"]
        missing = files.missing_labels
        labels, names = class_labels(rows.values, where, missing=missing, report=report)
        given["labels"], found["class_names"] = [(replace(rows, values=labels), where)], names
    row_map = RowMap(graph, files.ids, files.mask_numbers, source, files.comments)
    masks = dict(graph.masks)
    for name, pieces in given.items():
        if name in MASKS:
            masks[name] = _mask_of(row_map, pieces)
        else:
            found[name] = row_map.of_vertices(*pieces[0], absent=_ABSENT.get(name))
    graph = replace(graph, **found, masks=masks)
    if files.split is not None:
        graph = replace(graph, masks=draw_masks(graph, files.split))
    _check_masks(graph, files.masks)
    return replace(graph, ids=ids)


def _read(name: str, value: _Data, files: VertexFiles) -> list[_Given]:
    """The rows of a file or an array, by its name in a graph; of a mask perhaps several files."""
    where, comments = str(value), files.comments
    if isinstance(value, np.ndarray):
        where = {"features": "x", "labels": "y", "targets": "targets"}.get(name, f"{name}_mask")
        if name == "features":
            value = finite_features(value, where)
        elif name == "targets":
            value = vertex_tables.checked_targets(value, where)
        return [(Rows(value), where)]
    if name in MASKS:
        paths = vertex_tables.mask_files(value)
        return [(vertex_tables.read_mask(file, name, comments), str(file)) for file in paths]
    if name == "features":
        rows = vertex_tables.read_features(value, _others(files), comments)
    elif name == "labels":
        rows = vertex_tables.read_labels(value, files.label_column, comments)
    else:
        rows = vertex_tables.read_targets(value, comments)
    return [(rows, where)]


def check_random(features: int | None, classes: int | None) -> None:
    """A UserError unless they are positive, where there are to be random ones."""
    for name, size in (("features", features), ("classes", classes)):
        require(size is None or size >= 1, f"{name} {size}: 1 or more, or none")


def attach_random(graph: Graph, features: int | None, classes: int | None, seed: int) -> Graph:
    """The graph with so many columns of random features, and labels of so many random classes."""
    columns = None if features is None else f"random:{features}"
    labels = None if classes is None else f"random:{classes}"
    return attach(graph, VertexFiles(columns, labels, seed=seed))


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


def _mask_of(row_map: RowMap, pieces: list[_Given]) -> np.ndarray:
    """(n,) bool, or (n, splits) bool from one array or from one for each split."""
    found = [row_map.mask(*piece) for piece in pieces]
    if len(found) == 1:
        return found[0]
    for mask, (_, where) in zip(found, pieces, strict=True):
        require(mask.ndim == 1, f"{where} holds several splits, and is one of several files")
    return np.stack(found, axis=1)


def _check_masks(graph: Graph, files: Mapping[str, _Data]) -> None:
    """Refuse masks with vertices that have no label, or that are in another mask."""
    known = known_rows(graph)
    widths = {name: mask.shape[1] for name, mask in graph.masks.items() if mask.ndim == 2}
    counts = ", ".join(f"{name} {width}" for name, width in widths.items())
    same = len(set(widths.values())) <= 1
    require(same, f"the masks have different numbers of splits: {counts}")
    for name, mask in graph.masks.items():
        file = files.get(name)
        where = f"the {name} mask"
        if isinstance(file, str | os.PathLike):
            where = f"{file}: {where}"
        if known is None:
            raise UserError(f"{where} needs a graph with labels", "give --labels or --targets too")
        lacking = (mask if mask.ndim == 1 else mask.any(axis=1)) & ~known
        vertex = int(np.argmax(lacking))
        require(not lacking[vertex], f"{where} has vertex {vertex}, which has no label")
    _check_disjoint(graph.masks, "vertices")


def _check_disjoint(masks: Mapping[str, np.ndarray], what: str) -> None:
    """A UserError if one of the vertices or arcs, ``what`` they are, is in two masks of a split."""
    for one, other in itertools.combinations([name for name in MASKS if name in masks], 2):
        both = np.atleast_2d(masks[one].T) & np.atleast_2d(masks[other].T)  # (splits, n)
        if both.any():
            split = int(np.argmax(both.any(axis=1)))
            of = f" of split {split}" if len(both) > 1 else ""
            raise UserError(
                f"the {one} mask and the {other} mask{of} have {int(both[split].sum())} {what} in "
                f"common, the first is {int(np.argmax(both[split]))}",
                f"accuracy on training {what} does not show that on others",
            )


def _check_seed(seed: int) -> None:
    require(0 <= seed < 2**64, f"seed {seed} is outside 0..2^64-1")


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of one purpose: each ``stream`` of a seed is independent of the others."""
    _check_seed(seed)
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))


def _random_data(
    given: Mapping[str, _Data], count: int, of: str, seed: int, streams: tuple[int, int]
) -> dict[str, Any]:
    """Columns of a graph, or of its arcs, that are asked for as "random:D".

    Parameters
    ----------
    given : mapping
        Features and labels, among others.
    count, of : int, str
        How many rows there are; " of arcs" where they are of these.
    streams : (int, int)
        Those of the random numbers of features and of labels: see :func:`generator`.
    """
    found: dict[str, Any] = {}
    for name, stream in zip(("features", "labels"), streams, strict=True):
        size = _random_size(given[name]) if name in given else None
        if size is None:
            continue
        rng = generator(seed, stream)
        if name == "labels":
            labels = rng.integers(size, size=count, dtype=np.int32)
            found |= {"labels": labels, "class_names": None}
        else:
            check_memory(4 * count * size, f"{count} x {size} random features{of}")
            found["features"] = rng.standard_normal((count, size), dtype=np.float32)
            if str(given[name]).startswith(_ORTHOGONAL):
                _make_orthogonal(found["features"])
    return found


def _make_orthogonal(rows: np.ndarray) -> None:
    """Make the columns of a random matrix orthonormal, in place; its rows where there are fewer.

    As ``torch.nn.init.orthogonal_``: the matrix times the inverse of the Cholesky factor of its
    Gram matrix, which is well conditioned for random columns.
    """
    if rows.shape[0] < rows.shape[1]:
        _make_orthogonal(rows.T)
        return
    gram = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE].astype(np.float64)
        gram += some.T @ some
    inverse = np.linalg.inv(np.linalg.cholesky(gram)).T
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        some[...] = some.astype(np.float64) @ inverse


def _random_size(value: _Data) -> int | None:
    """D of "random:D" or "orthogonal:D"; None where ``value`` is a path or an array."""
    kind, _, size = (
        type(value).__name__ if isinstance(value, np.ndarray) else str(value)
    ).partition(":")
    if kind not in ("random", "orthogonal"):
        return None
    fits = re.fullmatch("0*[1-9][0-9]{0,9}", size) and int(size) < 2**31
    require(bool(fits), f"'{kind}:{size}' is not 'random:NUMBER', such as random:16")
    return int(size)


def _in_memory(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array to be filled."""
    check_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize, name)
    return np.empty(shape, dtype)


def in_order(
    table: arc_columns.ArcTable, numbers: np.ndarray | None, allocate: Allocate = _in_memory
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
    found, ids = dict(table.columns), None
    if numbers is not None:
        for name, column in found.items():
            out = allocate(f"arc_{name}", (len(numbers), *column.shape[1:]), column.dtype)
            for piece in _pieces(numbers):
                out[piece] = column[numbers[piece]]
            found[name] = out
        own = (np.arange(piece.start, piece.stop) for piece in _pieces(numbers))
        same = all(map(np.array_equal, own, (numbers[piece] for piece in _pieces(numbers))))
        ids = None if same else numbers
    labels, class_names = found.pop("labels", None), None
    features = found.pop("features", None)
    if labels is not None and labels.ndim == 1:
        values = np.empty(0, np.int64)
        for piece in _pieces(labels):
            values = np.union1d(values, labels[piece])
            check_classes(values)
        classes, class_names = class_numbers(values, table.names)
        listed, labels = labels, allocate("arc_classes", (len(labels),), np.dtype(np.int32))
        for piece in _pieces(listed):
            labels[piece] = classes[np.searchsorted(values, listed[piece])]
    _check_disjoint(found, "arcs")
    return ArcData(features, labels, found, ids, class_names)


def _pieces(rows: np.ndarray) -> list[slice]:
    return [
        slice(at, min(at + _ARCS_AT_ONCE, len(rows))) for at in range(0, len(rows), _ARCS_AT_ONCE)
    ]


def check_classes(values: np.ndarray) -> None:
    """A UserError if there are too many different labels."""
    require(len(values) <= MAX_CLASSES, f"arcs have more than {MAX_CLASSES} different labels")


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


@dataclass(frozen=True)
class ArcFiles(_Attached):
    """Data of arcs in files, in arrays, or from a generator.

    In place of the path of a file there may be an array.

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

    _in_manifest = ("arc_data_attached", "arc_data_seed")

    def in_files(self) -> dict[str, str]:
        """Names of the files and arrays in messages."""
        paths = self.paths()
        return {
            name: str(paths.get(name, f"arc_{name}_mask" if name in MASKS else f"arc_{name}"))
            for name, value in self.given().items()
            if name in paths or isinstance(value, np.ndarray)
        }

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        super().check()
        for value in self.given().values():
            at_angles = str(value).startswith(_ORTHOGONAL)
            require(not at_angles, f"{value!r}: columns of arcs are random:D, or in a file")
        for file in self.paths().values():
            check_file(file)

    def mapped(self) -> dict[str, np.ndarray]:
        """The arrays that are in files, and those that are given as such."""
        kinds, given = NUMBERS + TEXTS, self.given()
        return {
            name: value if isinstance(value, np.ndarray) else map_npy(Path(value), kinds=kinds)
            for name, value in given.items()
            if name in self.in_files()
        }

    def check_rows(self, arrays: Mapping[str, np.ndarray], count: int, what: str) -> None:
        """A UserError if an array has not a row for each of so many arcs.

        ``what`` they are, for the message: "the graph has" so many.
        """
        for name, array in arrays.items():
            rows = len(array) if array.ndim else 0
            wrong = f"{self.in_files()[name]} has {rows} rows, {what} {count} arcs"
            require(array.ndim > 0 and rows == count, wrong)

    def read(self, count: int, what: str) -> arc_columns.ArcTable:
        """Data of ``count`` arcs from files; a UserError if one is damaged or has other rows."""
        arrays = self.mapped()
        self.check_rows(arrays, count, what)
        return arc_columns.arc_table(arrays, self.in_files())

    def attach(self, graph: Graph) -> Graph:
        """The graph with data of arcs from files, row i of which is of arc i, or from a generator.

        A UserError if a file is missing or damaged, or has not a row for each arc; or an arc is in
        two masks.
        """
        self.check()
        read, data = in_order(self.read(graph.nnz, "the graph has"), None), graph.arc_data
        found: dict[str, Any] = {"masks": {**data.masks, **read.masks}}
        _check_disjoint(found["masks"], "arcs")
        if read.features is not None:
            found["features"] = read.features
        if read.labels is not None:
            found |= {"labels": read.labels, "class_names": read.class_names}
        return self.with_random(replace(graph, arc_data=replace(data, **found)))

    def with_random(self, graph: Graph) -> Graph:
        """The graph with the random data of arcs that are asked for."""
        drawn = _random_data(self.given(), graph.nnz, " of arcs", self.seed, (3, 4))
        return replace(graph, arc_data=replace(graph.arc_data, **drawn))
