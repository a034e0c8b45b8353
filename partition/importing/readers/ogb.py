"""Folders of OGB's node property prediction, as they are downloaded (Hu et al., 2020).

``raw/edge.csv.gz node-feat.csv.gz node-label.csv.gz num-node-list.csv.gz num-edge-list.csv.gz``
without headers, or ``raw/data.npz node-label.npz``; and ``split/NAME/train.csv.gz valid.csv.gz
test.csv.gz``, lists of vertices.

Masks are those of the only folder in ``split/``. Labels in one column of whole numbers are classes
(NaN: none), others targets; ``edge-feat.csv.gz`` or ``edge_feat`` is the features of arcs. The
summary names files that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.graph.relations import Relation
from partition.importing.readers import OGB_FILES, TRIPLETS
from partition.importing.readers.arc_columns import ArcTable
from partition.importing.readers.classes import class_labels
from partition.importing.readers.columns import Columns, table_of_arcs
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.files import (
    check_file,
    check_inside,
    check_vertices,
    find_member,
    finite_features,
    read_errors,
)
from partition.importing.readers.source import Allocate, Layout, Piece, Reading, Stream, Tell
from partition.importing.readers.text import (
    LONGEST_ROW,
    NO_COMMENTS,
    Comments,
    Table,
    lines_of,
    open_table,
    text_blocks,
    words_of,
)
from partition.importing.readers.typed_tables import RelationArcs, TypedSource, checked
from partition.importing.readers.vertex_tables import checked_targets
from partition.records import npz_names, read_npz

SPLITS = {"train": "train", "valid": "val", "test": "test"}  # their names → ours
ARCS = Columns(
    separator=",", width=2, places=(0, 1), text=False, header=0, known=True,
    comments=Comments(NO_COMMENTS),
)  # fmt: skip
READ = {"edge", "node-feat", "node-label", "num-node-list", "num-edge-list", "edge-feat"}
READ_BINARY = {"edge_index", "node_feat", "num_nodes_list", "num_edges_list", "edge_feat"}
NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class _Raw:
    """The files of the folder raw, in either form.

    Attributes
    ----------
    file : path
        The file of the arcs, of which ``ends`` are pieces: sources and targets.
    n, narcs : int
        The announced numbers of vertices and arcs.
    features, labels : (n, c) array, optional
    arc_features : (narcs, d) array, optional
    unread : set of str
    """

    file: Path
    n: int
    narcs: int
    ends: Callable[[], Iterator[Sequence[np.ndarray | pa.Array]]]
    features: np.ndarray | None
    labels: np.ndarray | None
    arc_features: np.ndarray | None
    unread: set[str]


def stream(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read a folder with ``raw/`` and ``split/``; arcs are those of the files, none are added.

    Labels in one column of whole numbers are classes, −1 or NaN where there is none; others are
    targets. A UserError if it holds several graphs, or vertices of several types; if a file is
    missing or damaged, or does not fit the others.
    """
    raw = path / "raw"
    if not path.exists():
        raise UserError(f"there is no file or folder {path}")
    if any((raw / name).exists() for name in (*OGB_FILES[2:], TRIPLETS)):
        raise UserError(
            f"{path} holds a graph with vertices of several types, such as ogbn-mag",
            f"its folder raw needs {TRIPLETS}, and --format ogb-hetero or none",
        )
    if not raw.is_dir():
        raise UserError(f"{path} is no folder of OGB: it has no folder raw")
    found = (_binary if (raw / "data.npz").exists() else _text)(
        path, raw, reading.allocate, reading.tell
    )

    def pieces() -> Iterator[Piece]:
        count = 0
        with read_errors(found.file):
            for pair in found.ends():
                ends = ends_of(np.stack(pair), str(found.file), "(2, E)")
                for one in ends:
                    check_inside(one, found.n, found.file)
                yield Piece(*ends, None, {}, count)
                count += len(ends[0])
        _check_count(found.file, count, found.narcs)
        if not count:
            yield Piece(np.empty(0, np.int64), np.empty(0, np.int64), None, {}, 0)

    return Stream(pieces(), str(path), n=found.n, rest=_rest(path, found))


def _text(path: Path, raw: Path, allocate: Allocate, tell: Tell) -> _Raw:
    n, narcs = (_only(raw / f"num-{what}-list.csv.gz", path) for what in ("node", "edge"))
    check_vertices(n, path)

    def table(what: str, dtype: type, count: int, allocated: Allocate) -> np.ndarray | None:
        file = raw / f"{what}.csv.gz"
        if not file.exists() or not count:
            return None
        size = file.stat().st_size
        with read_errors(file):
            rows = number_rows(file, lambda at: tell(f"reading {what}", at, size))
            return filled(rows, str(file), count, dtype, allocated, what)

    labels = table("node-label", np.float64, n, lambda name, *form: np.empty(*form))
    features = table("node-feat", np.float32, n, allocate)
    arc_features = table("edge-feat", np.float32, narcs, allocate)
    edges = raw / "edge.csv.gz"
    check_file(edges)
    size = edges.stat().st_size
    return _Raw(
        edges, n, narcs,
        lambda: table_of_arcs(edges, ARCS).pieces(lambda at: tell("reading arcs", at, size)),
        features, labels, arc_features,
        {file.name.split(".")[0] for file in raw.glob("*.csv.gz")} - READ,
    )  # fmt: skip


def _binary(path: Path, raw: Path, allocate: Allocate, tell: Tell) -> _Raw:
    file = raw / "data.npz"
    names = npz_names(file)
    counts = read_npz(file, ("num_nodes_list", "num_edges_list"))
    n, narcs = (
        _one_number(counts.get(f"num_{what}_list"), path, file) for what in ("nodes", "edges")
    )
    check_vertices(n, path)
    arcs = find_member(file, "edge_index")
    if len(arcs.shape) != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise UserError(f"{arcs.where} holds {arcs.dtype} {arcs.shape}, not integers in (2, E)")
    _check_count(file, arcs.shape[1], narcs)

    def table(name: str, count: int) -> np.ndarray | None:
        if name not in names or not count:
            return None
        member = find_member(file, name)
        if len(member.shape) != 2 or member.shape[0] != count:
            text = f"not a row for each of {count}"
            raise UserError(f"{member.where} is of shape {member.shape}, {text}")
        rows = member.rows(max(1, NUMBERS_AT_ONCE // max(1, member.shape[1])))
        return filled(
            rows, member.where, count, np.float32, allocate, name,
            lambda at: tell(f"reading {name}", at, count),
        )  # fmt: skip

    features, arc_features = table("node_feat", n), table("edge_feat", narcs)

    def ends() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        done = 0
        for pair in arcs.pairs(NUMBERS_AT_ONCE):
            yield pair
            done += len(pair[0])
            tell("reading arcs", done, narcs)

    labels = None
    if (raw / "node-label.npz").exists():
        found = read_npz(raw / "node-label.npz")
        if "node_label" not in found:
            raise UserError(f"{raw / 'node-label.npz'} has no array node_label")
        labels = found["node_label"].reshape(len(found["node_label"]), -1).astype(np.float64)
        _check_rows(raw / "node-label.npz", len(labels), n)
    return _Raw(file, n, narcs, ends, features, labels, arc_features, names - READ_BINARY)


def _rest(path: Path, found: _Raw) -> dict[str, object]:
    """The data of the vertices, as fields of a Source."""
    features, labels, unread = found.features, found.labels, found.unread
    if features is not None and not features.shape[1]:
        features = None
    rest: dict[str, object] = {"format": "ogb", "features": features}
    if found.arc_features is not None and found.arc_features.shape[1]:
        rest["arc_data"] = ArcTable({"features": found.arc_features})
    split, masks = _masks(path, found.n)
    if labels is not None:
        rest |= _as_labels(labels, path)
    if split and (labels is None or not masks):
        masks, unread = {}, unread | {f"split/{split}"}  # masks of nothing that could be learned
    notes = {"columns": f"not read: {', '.join(sorted(unread))}"} if unread else {}
    return rest | {"masks": masks, "notes": notes}


def _as_labels(labels: np.ndarray, path: Path) -> dict[str, object]:
    """(n, c) numbers as classes, or as targets."""
    known = ~np.isnan(labels)
    whole = labels.shape[1] == 1 and bool((labels[known] == np.floor(labels[known])).all())
    if not whole:
        return {"targets": checked_targets(labels, f"{path}: node-label")}
    numbers = np.where(known, labels, -1)[:, 0].astype(np.int64)
    classes, names = class_labels(numbers, f"{path}: node-label")
    return {"labels": classes, "class_names": names}


def _masks(path: Path, n: int) -> tuple[str, dict[str, np.ndarray]]:
    """The name of the split and its masks; nothing where there is none."""
    folder, name = path / "split", only_split(path)
    if name and any((folder / name).glob("*.pt")):  # pairs: gcn-partition pairs --from
        return name, {}
    masks = {}
    for theirs, ours in SPLITS.items():
        if name:
            file = folder / name / f"{theirs}.csv.gz"
            if not file.exists():
                raise UserError(
                    f"there is no {file}",
                    "without the folder split, masks are drawn with --split, or given as files",
                )
            with read_errors(file):
                vertices = whole_numbers(file)
            masks[ours] = np.zeros(n, bool)
            check_inside(vertices, n, file)
            masks[ours][vertices] = True
    return name, masks


def only_split(path: Path) -> str:
    """The name of the only folder in ``split/``, empty without one; a UserError for several."""
    folder = path / "split"
    names = (
        sorted(inner.name for inner in folder.iterdir() if inner.is_dir())
        if folder.is_dir()
        else []
    )
    if len(names) > 1:
        raise UserError(
            f"{folder} holds the splits {', '.join(names)}: it is not clear which to take",
            "move the others elsewhere",
        )
    return names[0] if names else ""


def filled(
    pieces: Iterator[np.ndarray],
    where: str,
    n: int,
    dtype: type,
    allocate: Allocate,
    name: str,
    tell: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """(n, c) numbers out of rows of them that come in pieces, in an array of ``allocate``."""
    out: np.ndarray | None = None
    start, of = 0, "arcs" if name.startswith("edge") else "vertices"
    for rows in pieces:
        if out is None:
            out = allocate(name, (n, rows.shape[1]), np.dtype(dtype))
        if start + len(rows) > n:
            raise UserError(f"{where} has more rows than the graph's {n} {of}")
        if dtype == np.float32:
            rows = finite_features(rows, f"{where}, from row {start + 1} on", "row")
        out[start : start + len(rows)] = rows
        start += len(rows)
        tell(start)
    _check_rows(where, start, n, of)
    assert out is not None, "there is a vertex"
    return out


def number_rows(path: Path, tell: Callable[[int], None] = lambda at: None) -> Iterator[np.ndarray]:
    """Lines of numbers, empty or ``""`` where one is unknown, as float64."""
    first = open_table(path, LONGEST_ROW, NO_COMMENTS).lines[:1]
    width = sum(line.count(",") + 1 for _, line in first)
    kinds = dict.fromkeys(range(width), pa.float64())
    table = Table(path, ",", width, kinds, comments=Comments(NO_COMMENTS), nulls=True)
    for columns in table.pieces(tell):
        yield np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)


def whole_numbers(path: Path) -> np.ndarray:
    """A number a line."""
    numbers = np.concatenate([np.empty(0), *(rows[:, 0] for rows in number_rows(path))])
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        raise UserError(f"{path} holds something else than whole numbers")
    return numbers.astype(np.int64)


def _only(path: Path, folder: Path) -> int:
    check_file(path)
    with read_errors(path):
        return _one_number(whole_numbers(path), folder, path)


def _one_number(numbers: np.ndarray | None, folder: Path, where: Path) -> int:
    """The number of vertices or arcs of the only graph."""
    if numbers is None or numbers.dtype.kind not in "iu" or not numbers.size:
        raise UserError(f"{where} does not say how many vertices and arcs there are")
    if numbers.size > 1:
        raise UserError(f"{folder} holds {numbers.size} graphs, one is read")
    number = int(numbers.reshape(-1)[0])
    if not 0 <= number < 2**62:
        raise UserError(f"{where} says {number}, which is no number of vertices or arcs")
    return number


def _check_rows(path: Path | str, rows: int, n: int, of: str = "vertices") -> None:
    if rows != n:
        raise UserError(f"{path} has {rows} rows, the graph has {n} {of}")


def _check_count(path: Path, found: int, announced: int) -> None:
    if found != announced:
        raise UserError(
            f"{path} has {found} arcs, {announced} are announced", "fetch or make the file again"
        )


UNREAD = ("edge_reltype", "node_year")


def read_hetero(path: Path, layout: Layout) -> TypedSource:
    """Read the graph of a folder with ``raw/`` and ``split/``; no arcs are added.

    A UserError if a file is missing or damaged, or does not fit the others.
    """
    raw = path / "raw"
    names, counts = _lines(raw / "num-node-dict.csv.gz", 2)
    if len(names) != len(counts) or not all(word.isdecimal() for word in counts):
        raise UserError(f"{raw}/num-node-dict.csv.gz does not have a number for each vertex type")
    sizes = dict(zip(names, map(int, counts), strict=True))
    relations = sorted(Relation(*words[:3]) for words in _lines(raw / TRIPLETS))
    arcs = []
    for relation in relations:
        if not {relation.source, relation.target} <= sizes.keys():
            raise UserError(f"{raw}/{TRIPLETS}: {relation} is not of the types {', '.join(names)}")
        arcs.append(RelationArcs(relation, *_ends(raw / "relations" / "___".join(relation))))
    found: dict[str, Any] = {"features": {}, "labels": {}, "targets": {}}
    for name, n in sizes.items():
        features = _numbers(raw / "node-feat" / name / "node-feat.csv.gz", n, np.float32)
        if features is not None and features.shape[1]:
            found["features"][name] = features
        labels = _numbers(raw / "node-label" / name / "node-label.csv.gz", n, np.float64)
        if labels is not None:
            kind, values = _labels(labels)
            found[kind][name] = values
    there = {file.name.split(".")[0] for file in raw.rglob("*.csv.gz")}
    unread = [name for name in UNREAD if name in there]
    notes = {"columns": f"not read: {', '.join(unread)}"} if unread else {}
    masks = _masks_of_types(path, sizes)
    source = TypedSource(sizes, arcs, masks=masks, format="ogb-hetero", notes=notes, **found)
    return checked(source, str(path))


def _lines(file: Path, count: int | None = None) -> list[list[str]]:
    """The words of each line of a short file; a UserError unless there are ``count`` lines."""
    check_file(file)
    with read_errors(file):
        lines = [
            words_of(line, ",")
            for first, block in text_blocks(file)
            for _, line in lines_of(first, block)
        ]
    if (count is not None and len(lines) != count) or any(len(w) < 3 for w in lines * (not count)):
        raise UserError(f"{file} does not hold what such a file of OGB does")
    return lines


def _ends(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of a relation; none where the file is empty."""
    file = folder / "edge.csv.gz"
    check_file(file)
    with read_errors(file):
        pieces = [np.stack(pair) for pair in table_of_arcs(file, ARCS).pieces(lambda at: None)]
    source, target = np.concatenate([np.empty((2, 0), np.int64), *pieces], axis=1)
    return source, target


def _numbers(file: Path, n: int, dtype: type) -> np.ndarray | None:
    """(n, c) numbers of the vertices of a type; None where there is no file."""
    if not file.exists() or not n:
        return None
    with read_errors(file):
        return filled(
            number_rows(file), str(file), n, dtype, lambda name, *form: np.empty(*form), "node"
        )


def _labels(labels: np.ndarray) -> tuple[str, np.ndarray]:
    """Whole numbers in one column are classes, −1 for none; others are targets."""
    known = ~np.isnan(labels)
    if labels.shape[1] == 1 and (labels[known] == np.floor(labels[known])).all():
        return "labels", np.where(known, labels, -1)[:, 0].astype(np.int64)
    return "targets", labels


def _masks_of_types(path: Path, sizes: dict[str, int]) -> dict[str, dict[str, np.ndarray]]:
    """The masks of the only split, of the types that have some."""
    name = only_split(path)
    masks: dict[str, dict[str, np.ndarray]] = {}
    for theirs, ours in SPLITS.items():
        for kind, n in sizes.items():
            file = path / "split" / name / kind / f"{theirs}.csv.gz"
            if name and file.exists():
                with read_errors(file):
                    vertices = whole_numbers(file)
                check_inside(vertices, n, file)
                mask = np.zeros(n, bool)
                mask[vertices] = True
                masks.setdefault(ours, {})[kind] = mask
    return masks
