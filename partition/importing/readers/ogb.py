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

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import (
    OGB_FILES,
    TRIPLETS,
    Allocate,
    Layout,
    Piece,
    Reading,
    Stream,
    Tell,
)
from partition.importing.readers.arc_columns import ArcTable
from partition.importing.readers.archives import find_member
from partition.importing.readers.classes import class_labels
from partition.importing.readers.columns import Columns
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.edge_list import arc_table
from partition.importing.readers.files import (
    check_file,
    check_inside,
    check_vertices,
    finite_features,
    read_errors,
)
from partition.importing.readers.text import LONGEST_ROW, NO_COMMENTS, Comments, Table, open_table
from partition.importing.readers.vertex_files import checked_targets
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
        lambda: arc_table(edges, ARCS).pieces(lambda at: tell("reading arcs", at, size)),
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
