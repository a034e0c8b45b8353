"""Folders of OGB's node property prediction, as they are downloaded (Hu et al., 2020).

``raw/edge.csv.gz node-feat.csv.gz node-label.csv.gz num-node-list.csv.gz num-edge-list.csv.gz``
without headers, or ``raw/data.npz node-label.npz``; and ``split/NAME/train.csv.gz valid.csv.gz
test.csv.gz``, lists of vertices. A graph with types has such files in folders of its types.

Masks are those of the only folder in ``split/``. Labels in one column of whole numbers are classes
(NaN: none), others targets; ``edge-feat.csv.gz`` or ``edge_feat`` is the features of arcs. The
summary names files that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.relations import Relation
from partition.importing.readers import OGB_FILES, TRIPLETS, arc_columns, classes, files
from partition.importing.readers.names import MASK_OF
from partition.importing.readers.source import (
    ALL,
    Layout,
    Piece,
    Reading,
    RelationArcs,
    Stream,
    TypedSource,
)
from partition.importing.readers.text import (
    LONGEST_LINE,
    LONGEST_ROW,
    NO_COMMENTS,
    Comments,
    TextTable,
    lines_of,
    open_table,
    text_blocks,
    words_of,
)
from partition.importing.readers.typed_tables import checked
from partition.importing.readers.vertex_tables import checked_targets
from partition.records import npz_names, read_npz

# Names without suffixes, in the folder and in data.npz.
READ = {"edge", "node-feat", "node-label", "num-node-list", "num-edge-list", "edge-feat"}
READ_BINARY = {"edge_index", "node_feat", "num_nodes_list", "num_edges_list", "edge_feat"}
UNREAD = ("edge_reltype", "node_year")  # of graphs with types
NUMBERS_AT_ONCE = 1 << 22


# The file of the arcs, the announced numbers of vertices and arcs, what gives pieces of sources and
# targets, arrays by their names in data.npz and "labels", and names of files that are not read.
_Raw = tuple[Path, int, int, Callable[[], Iterator[Sequence[np.ndarray]]], dict[str, Any], set[str]]


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
    read = _binary if (raw / "data.npz").exists() else _text
    file, n, narcs, ends_in_pieces, found, unread = read(path, raw, reading)

    def pieces() -> Iterator[Piece]:
        count = 0
        with files.read_errors(file):
            for pair in ends_in_pieces():
                ends = arc_columns.ends_of(np.stack(pair), str(file), "(2, E)")
                for one in ends:
                    files.check_inside(one, n, file)
                yield Piece(*ends, None, {})
                count += len(ends[0])
        _check_count(file, count, narcs)
        if not count:
            yield Piece(np.empty(0, np.int64), np.empty(0, np.int64), None, {})

    masks, labels, rest = _masks(path, n), found["labels"], dict[str, object]()
    features, of_arcs = (
        None if array is None or not array.shape[1] else array
        for array in (found["node_feat"], found["edge_feat"])
    )
    if of_arcs is not None:
        rest["arc_data"] = arc_columns.ArcTable({"features": of_arcs})
    if labels is not None:
        kind, values = classes.classes_or_targets(labels, whole=True)
        where = f"{path}: node-label"
        if kind == "labels":
            rest["labels"], rest["class_names"] = classes.class_labels(values, where)
        else:
            rest["targets"] = checked_targets(values, where)
    name = _only_split(path)
    if name and (labels is None or not masks):
        masks, unread = {}, unread | {f"split/{name}"}  # masks of nothing that could be learned
    notes = {"columns": f"not read: {', '.join(sorted(unread))}"} if unread else {}
    rest |= {"format": "ogb", "features": features, "masks": masks, "notes": notes}
    return Stream(pieces(), str(path), n=n, rest=rest)


def _text(path: Path, raw: Path, reading: Reading) -> _Raw:
    sizes = [raw / f"num-{what}-list.csv.gz" for what in ("node", "edge")]
    n, narcs = (_only_number(_whole_numbers(file), path, file) for file in sizes)
    files.check_vertices(n, path)
    found = {
        "labels": _rows(raw / "node-label.csv.gz", n, np.float64, ALL),
        "node_feat": _rows(raw / "node-feat.csv.gz", n, np.float32, reading),
        "edge_feat": _rows(raw / "edge-feat.csv.gz", narcs, np.float32, reading),
    }
    edges = raw / "edge.csv.gz"
    files.check_file(edges)
    unread = {file.name.split(".")[0] for file in raw.glob("*.csv.gz")} - READ
    return edges, n, narcs, partial(_arcs, edges, reading), found, unread


def _binary(path: Path, raw: Path, reading: Reading) -> _Raw:
    file = raw / "data.npz"
    names = npz_names(file)
    counts = read_npz(file, ("num_nodes_list", "num_edges_list"))
    n, narcs = (
        _only_number(counts.get(f"num_{what}_list"), path, file) for what in ("nodes", "edges")
    )
    files.check_vertices(n, path)
    arcs = files.find_member(file, "edge_index")
    if len(arcs.shape) != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise UserError(f"{arcs.where} holds {arcs.dtype} {arcs.shape}, not integers in (2, E)")
    _check_count(file, arcs.shape[1], narcs)

    def table(name: str, count: int) -> np.ndarray | None:
        if name not in names or not count:
            return None
        member = files.find_member(file, name)
        if len(member.shape) != 2 or member.shape[0] != count:
            text = f"not a row for each of {count}"
            raise UserError(f"{member.where} is of shape {member.shape}, {text}")
        rows = member.rows(max(1, NUMBERS_AT_ONCE // max(1, member.shape[1])))
        return _filled(rows, member.where, count, np.float32, reading, name)

    def ends() -> Iterator[Sequence[np.ndarray]]:
        done = 0
        for pair in arcs.pairs(NUMBERS_AT_ONCE):
            yield pair
            done += len(pair[0])
            reading.tell("reading", done, narcs)

    found = {"node_feat": table("node_feat", n), "edge_feat": table("edge_feat", narcs)}
    labelled, labels = raw / "node-label.npz", None
    if labelled.exists():
        labels = read_npz(labelled).get("node_label")
        if labels is None:
            raise UserError(f"{labelled} has no array node_label")
        labels = labels.reshape(len(labels), -1).astype(np.float64)
        _check_rows(labelled, len(labels), n)
    found["labels"] = labels
    return file, n, narcs, ends, found, names - READ_BINARY


def read_hetero(path: Path, layout: Layout) -> TypedSource:
    """Read the graph of a folder with ``raw/`` and ``split/``; no arcs are added.

    A UserError if a file is missing or damaged, or does not fit the others.
    """
    raw = path / "raw"
    names, counts = _lines(raw / "num-node-dict.csv.gz", 2)
    if len(names) != len(counts) or not all(word.isdecimal() for word in counts):
        raise UserError(f"{raw}/num-node-dict.csv.gz does not have a number for each vertex type")
    sizes = dict(zip(names, map(int, counts), strict=True))
    arcs = []
    for relation in sorted(Relation(*words[:3]) for words in _lines(raw / TRIPLETS)):
        if not {relation.source, relation.target} <= sizes.keys():
            raise UserError(f"{raw}/{TRIPLETS}: {relation} is not of the types {', '.join(names)}")
        file = raw / "relations" / "___".join(relation) / "edge.csv.gz"
        files.check_file(file)
        with files.read_errors(file):
            pieces = [np.stack(pair) for pair in _arcs(file, ALL)]
        ends = np.concatenate([np.empty((2, 0), np.int64), *pieces], axis=1)
        arcs.append(RelationArcs(relation, *ends))
    found: dict[str, dict[str, np.ndarray]] = {"features": {}, "labels": {}, "targets": {}}
    masks: dict[str, dict[str, np.ndarray]] = {}
    for name, n in sizes.items():
        folders = [raw / what / name / f"{what}.csv.gz" for what in ("node-feat", "node-label")]
        features = _rows(folders[0], n, np.float32, ALL)
        if features is not None and features.shape[1]:
            found["features"][name] = features
        labels = _rows(folders[1], n, np.float64, ALL)
        if labels is not None:
            kind, values = classes.classes_or_targets(labels, whole=True)
            found[kind][name] = values
        for mask, rows in _masks(path, n, name).items():
            masks.setdefault(mask, {})[name] = rows
    there = {file.name.split(".")[0] for file in raw.rglob("*.csv.gz")}
    unread = [name for name in UNREAD if name in there]
    notes = {"columns": f"not read: {', '.join(unread)}"} if unread else {}
    masks = {mask: masks[mask] for mask in MASKS if mask in masks}
    source = TypedSource(sizes, arcs, masks=masks, format="ogb-hetero", notes=notes, **found)
    return checked(source, str(path))


def _masks(path: Path, n: int, type: str = "") -> dict[str, np.ndarray]:
    """The masks of the only split; of a type, those that it has."""
    folder, masks = path / "split" / _only_split(path), dict[str, np.ndarray]()
    if folder.name == "split" or any(folder.glob("*.pt")):  # pairs: gcn-partition pairs --from
        return masks
    for theirs in ("train", "valid", "test"):
        file = folder / type / f"{theirs}.csv.gz"
        if type and not file.exists():
            continue
        if not file.exists():
            raise UserError(
                f"there is no {file}",
                "without the folder split, masks are drawn with --split, or given as files",
            )
        vertices = _whole_numbers(file)
        files.check_inside(vertices, n, file)
        masks[MASK_OF[theirs]] = np.isin(np.arange(n), vertices)
    return masks


def _only_split(path: Path) -> str:
    """The name of the only folder in ``split/``, empty without one; a UserError for several."""
    names = sorted(inner.name for inner in (path / "split").glob("*") if inner.is_dir())
    if len(names) > 1:
        raise UserError(
            f"{path / 'split'} holds the splits {', '.join(names)}: it is not clear which to take",
            "move the others elsewhere",
        )
    return names[0] if names else ""


def _arcs(file: Path, reading: Reading) -> Iterator[Sequence[np.ndarray]]:
    """Sources and targets in a file of them, some at a time."""
    table = TextTable(
        file, Comments(NO_COMMENTS), separator=",", width=2,
        kinds=dict.fromkeys(range(2), pa.int64()), longest=LONGEST_LINE, meaning="source target",
    )  # fmt: skip
    return (pair for *_, pair in table.pieces(Reading(tell=reading.tell)))


def _rows(file: Path, count: int, dtype: type, reading: Reading) -> np.ndarray | None:
    """A row of numbers for each vertex or arc; None where there is no file."""
    if not file.exists() or not count:
        return None
    name = file.name.split(".")[0]
    with files.read_errors(file):
        return _filled(_number_rows(file), str(file), count, dtype, reading, name)


def _filled(
    pieces: Iterator[np.ndarray], where: str, n: int, dtype: type, reading: Reading, name: str
) -> np.ndarray:
    """(n, c) numbers out of rows of them that come in pieces, in an array that is allocated."""
    out: np.ndarray | None = None
    start, of = 0, "arcs" if name.startswith("edge") else "vertices"
    for rows in pieces:
        if out is None:
            out = reading.allocate(name, (n, rows.shape[1]), np.dtype(dtype))
        if start + len(rows) > n:
            raise UserError(f"{where} has more rows than the graph's {n} {of}")
        if dtype == np.float32:
            rows = files.finite_features(rows, f"{where}, from row {start + 1} on", "row")
        out[start : start + len(rows)] = rows
        start += len(rows)
        reading.tell("reading", start, n)
    _check_rows(where, start, n, of)
    assert out is not None, "there is a vertex"
    return out


def _number_rows(path: Path) -> Iterator[np.ndarray]:
    """Lines of numbers, empty or ``""`` where one is unknown, as float64."""
    table = open_table(path, LONGEST_ROW, NO_COMMENTS)
    width = table.line(0).count(",") + 1 if table.lines else 0
    kinds = dict.fromkeys(range(width), pa.float64())
    table = replace(table, separator=",", width=width, kinds=kinds, nulls=True)
    for *_, columns in table.pieces(ALL):
        yield np.stack(columns, axis=1)


def _whole_numbers(path: Path) -> np.ndarray:
    """A number a line."""
    files.check_file(path)
    with files.read_errors(path):
        numbers = np.concatenate([np.empty(0), *(rows[:, 0] for rows in _number_rows(path))])
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        raise UserError(f"{path} holds something else than whole numbers")
    return numbers.astype(np.int64)


def _lines(file: Path, count: int | None = None) -> list[list[str]]:
    """The words of each line of a short file; a UserError unless there are ``count`` lines."""
    files.check_file(file)
    with files.read_errors(file):
        lines = [
            words_of(line, ",")
            for first, block in text_blocks(file)
            for _, line in lines_of(first, block)
        ]
    if (count is not None and len(lines) != count) or any(len(w) < 3 for w in lines * (not count)):
        raise UserError(f"{file} does not hold what such a file of OGB does")
    return lines


def _only_number(numbers: np.ndarray | None, folder: Path, where: Path) -> int:
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
