"""Folders of OGB's node property prediction, as they are downloaded (Hu et al., 2020).

``raw/edge.csv.gz node-feat.csv.gz node-label.csv.gz num-node-list.csv.gz num-edge-list.csv.gz``
without headers, or ``raw/data.npz node-label.npz``; and ``split/NAME/train.csv.gz valid.csv.gz
test.csv.gz``, lists of vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import (
    OGB_FILES,
    Allocate,
    Layout,
    Piece,
    Source,
    Stream,
    Tell,
)
from partition.importing.readers.archives import columns_of_pair, find_member, rows_of
from partition.importing.readers.classes import class_labels
from partition.importing.readers.columns import Columns
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.edge_list import arc_table
from partition.importing.readers.files import check_file, check_memory, finite_features, read_errors
from partition.importing.readers.text import LONGEST_ROW, Table, first_lines
from partition.importing.readers.vertex_files import checked_targets
from partition.records import npz_names, read_npz

SPLITS = {"train": "train", "valid": "val", "test": "test"}  # their names → ours
ARCS = Columns(
    separator=",", width=2, places=(0, 1), text=False, header=0, known=True, doubtful=False,
    note="",
)  # fmt: skip
READ = {"edge", "node-feat", "node-label", "num-node-list", "num-edge-list"}
READ_BINARY = {"edge_index", "node_feat", "num_nodes_list", "num_edges_list"}
NUMBERS_AT_ONCE = 1 << 22


def read(path: Path, layout: Layout | None = None) -> Source:
    """Read a folder with ``raw/`` and ``split/``; arcs are those of the files, none are added.

    Labels in one column of whole numbers are classes, −1 or NaN where there is none; others are
    targets.

    Raises
    ------
    UserError
        If it holds several graphs, or vertices of several types; if a file is missing or damaged,
        or does not fit the others.
    """

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        check_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize, f"{path}: {name}")
        return np.empty(shape, dtype)

    found = stream(path, layout or Layout(), allocate, lambda stage, done, total: None)
    ends = [(source, target) for source, target, _ in found.pieces]
    source, target = (np.concatenate(one) for one in zip(*ends, strict=True))
    return Source(n=_checked(found.n), source=source, target=target, **found.rest)


def stream(path: Path, layout: Layout, allocate: Allocate, tell: Tell) -> Stream:
    """The same a piece at a time, with the features in an array of ``allocate``."""
    raw = path / "raw"
    if not path.exists():
        raise UserError(f"there is no file or folder {path}")
    if any((raw / name).exists() for name in (*OGB_FILES[2:], "triplet-type-list.csv.gz")):
        raise UserError(
            f"{path} holds a graph with vertices of several types, such as ogbn-mag",
            "export the arcs between vertices of one type as a list, with their features and "
            "labels: docs/file-formats.md",
        )
    if not raw.is_dir():
        raise UserError(f"{path} is no folder of OGB: it has no folder raw")
    binary = (raw / "data.npz").exists()
    return (_binary if binary else _text)(path, raw, allocate, tell)


def _text(path: Path, raw: Path, allocate: Allocate, tell: Tell) -> Stream:
    edges = raw / "edge.csv.gz"
    n, narcs = (_only(raw / f"num-{what}-list.csv.gz", path) for what in ("node", "edge"))
    _check_vertices(n, path)
    label_file = raw / "node-label.csv.gz"
    labels = _table(label_file, n, np.dtype(np.float64), np.empty) if label_file.exists() else None
    feature_file = raw / "node-feat.csv.gz"
    features = None
    if feature_file.exists():
        size = feature_file.stat().st_size

        def told(at: int) -> None:
            tell("reading features", at, size)

        def given(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            return allocate("features", shape, dtype)

        features = _table(feature_file, n, np.dtype(np.float32), given, told)

    def pieces() -> Iterator[Piece]:
        count, size = 0, edges.stat().st_size
        with read_errors(edges):
            arcs = arc_table(edges, ARCS)
            for ends in arcs.pieces(lambda at: tell("reading arcs", at, size)):
                count += len(ends[0])
                yield *_inside(np.stack(ends), n, edges), None
        _check_count(edges, count, narcs)

    check_file(edges)
    stems = {file.name.split(".")[0] for file in raw.glob("*.csv.gz")}
    return Stream(pieces(), str(path), n=n, rest=_rest(path, n, features, labels, stems - READ))


def _binary(path: Path, raw: Path, allocate: Allocate, tell: Tell) -> Stream:
    file = raw / "data.npz"
    names = npz_names(file)
    counts = read_npz(file, ("num_nodes_list", "num_edges_list"))
    n, narcs = (
        _one_number(counts.get(f"num_{what}_list"), path, file) for what in ("nodes", "edges")
    )
    _check_vertices(n, path)
    arcs = find_member(file, "edge_index")
    if len(arcs.shape) != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise UserError(f"{arcs.where} holds {arcs.dtype} {arcs.shape}, not integers in (2, E)")
    _check_count(file, arcs.shape[1], narcs)
    features = None
    if "node_feat" in names:
        member = find_member(file, "node_feat")
        if len(member.shape) != 2 or member.shape[0] != n:
            raise UserError(f"{member.where} is of shape {member.shape}, not a row for each of {n}")
        features = allocate("features", member.shape, np.dtype(np.float32))
        start = 0
        for rows in rows_of(member, max(1, NUMBERS_AT_ONCE // max(1, member.shape[1]))):
            features[start : start + len(rows)] = finite_features(rows, member.where)
            start += len(rows)
            tell("reading features", start, n)

    def pieces() -> Iterator[Piece]:
        done = 0
        with read_errors(file):
            for ends in columns_of_pair(arcs, NUMBERS_AT_ONCE):
                yield *_inside(np.stack(ends), n, file), None
                done += len(ends[0])
                tell("reading arcs", done, narcs)
            if not done:
                yield np.empty(0, np.int64), np.empty(0, np.int64), None

    labels = None
    if (raw / "node-label.npz").exists():
        found = read_npz(raw / "node-label.npz")
        if "node_label" not in found:
            raise UserError(f"{raw / 'node-label.npz'} has no array node_label")
        labels = found["node_label"].reshape(len(found["node_label"]), -1).astype(np.float64)
        _check_rows(raw / "node-label.npz", len(labels), n)
    return Stream(
        pieces(), str(path), n=n, rest=_rest(path, n, features, labels, names - READ_BINARY)
    )


def _rest(
    path: Path, n: int, features: np.ndarray | None, labels: np.ndarray | None, unread: set[str]
) -> dict[str, Any]:
    """What belongs to the vertices, as fields of a Source."""
    if features is not None and not features.shape[1]:
        features = None
    rest: dict[str, Any] = {"format": "ogb", "features": features}
    split, masks = _masks(path, n)
    if labels is not None:
        rest |= _as_labels(labels, path)
    if masks and labels is None:
        masks, unread = {}, unread | {f"split/{split}"}  # masks of nothing that could be learned
    notes = {"columns": f"not read: {', '.join(sorted(unread))}"} if unread else {}
    return rest | {"masks": masks, "notes": notes}


def _as_labels(labels: np.ndarray, path: Path) -> dict[str, Any]:
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
    masks = {}
    for theirs, ours in SPLITS.items():
        for name in names:
            file = folder / name / f"{theirs}.csv.gz"
            if not file.exists():
                raise UserError(
                    f"there is no {file}",
                    "without the folder split, masks are drawn with --split, or given as files",
                )
            with read_errors(file):
                vertices = _integers(file)
            masks[ours] = np.zeros(n, bool)
            if len(vertices) and (vertices.min() < 0 or vertices.max() >= n):
                raise UserError(f"{file} names a vertex outside 0..{n - 1}")
            masks[ours][vertices] = True
    return (names[0] if names else ""), masks


def _table(
    path: Path, n: int, dtype: np.dtype, allocate: Any, tell: Any = lambda at: None
) -> np.ndarray:
    """(n, c) numbers out of lines of them, into an array of ``allocate(shape, dtype)``."""
    out: np.ndarray | None = None
    start = 0
    with read_errors(path):
        for rows in _rows(path, tell):
            out = allocate((n, rows.shape[1]), dtype) if out is None else out
            if start + len(rows) > n:
                raise UserError(f"{path} has more rows than the graph's {n} vertices")
            if dtype == np.float32:
                rows = finite_features(rows, f"{path}, from row {start + 1} on")
            out[start : start + len(rows)] = rows
            start += len(rows)
    _check_rows(path, start, n)
    assert out is not None, "there is a vertex"
    return out


def _rows(path: Path, tell: Any = lambda at: None) -> Iterator[np.ndarray]:
    """Lines of numbers, empty or ``""`` where one is unknown, as float64."""
    width = sum(line.count(",") + 1 for _, line in first_lines(path, 1, LONGEST_ROW))

    kinds = dict.fromkeys(range(width), pa.float64())
    table = Table(path, ",", width, kinds, comments="", nulls=True)
    for columns in table.pieces(tell):
        yield np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)


def _integers(path: Path) -> np.ndarray:
    """A number a line."""
    numbers = np.concatenate([np.empty(0), *(rows[:, 0] for rows in _rows(path))])
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        raise UserError(f"{path} holds something else than whole numbers")
    return numbers.astype(np.int64)


def _only(path: Path, folder: Path) -> int:
    check_file(path)
    with read_errors(path):
        return _one_number(_integers(path), folder, path)


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


def _check_vertices(n: int, path: Path) -> None:
    """Refuse a graph without vertices, or of more than memory holds."""
    if not n:
        raise UserError(f"{path} holds a graph without vertices")
    check_memory(16 * n, f"{path}: {n} vertices")


def _checked(n: int | None) -> int:
    assert n is not None
    return n


def _inside(ends: np.ndarray, n: int, where: Path) -> tuple[np.ndarray, np.ndarray]:
    source, target = ends_of(ends, str(where), "(2, E)")
    for one in (source, target):
        if len(one) and (one.min() < 0 or one.max() >= n):
            raise UserError(f"{where} names a vertex outside 0..{n - 1}")
    return source, target


def _check_rows(path: Path, rows: int, n: int) -> None:
    if rows != n:
        raise UserError(f"{path} has {rows} rows, the graph has {n} vertices")


def _check_count(path: Path, found: int, announced: int) -> None:
    if found != announced:
        raise UserError(
            f"{path} has {found} arcs, {announced} are announced", "fetch or make the file again"
        )
