"""Folders of OGB's node property prediction, as they are downloaded (Hu et al., 2020).

``raw/edge.csv.gz node-feat.csv.gz node-label.csv.gz num-node-list.csv.gz num-edge-list.csv.gz``
without headers, or ``raw/data.npz node-label.npz``; and ``split/NAME/train.csv.gz valid.csv.gz
test.csv.gz``, lists of vertices. A graph with types has such files in folders of its types.

Masks are those of the only folder in ``split/``. Labels in one column of whole numbers are classes
(NaN: none), others targets; ``edge-feat.csv.gz`` or ``edge_feat`` is the features of arcs. The
summary names files that are not read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from partition.errors import UserError, require
from partition.graph.graph import MASKS
from partition.graph.relations import Relation
from partition.importing.readers import OGB_FILES, TRIPLETS, arc_columns, files, source, text
from partition.importing.readers.classes import classes_or_targets
from partition.importing.readers.names import MASK_OF
from partition.importing.readers.npz import learned
from partition.importing.readers.typed_tables import checked
from partition.records import npz_names, read_npz

# Names without suffixes, in the folder and in data.npz.
_READ = {"edge", "node-feat", "node-label", "num-node-list", "num-edge-list", "edge-feat"}
_READ_BINARY = {"edge_index", "node_feat", "num_nodes_list", "num_edges_list", "edge_feat"}
_UNREAD = ("edge_reltype", "node_year")  # of graphs with types
_AT_ONCE = 1 << 22  # numbers
_BINARY = "data.npz"
# Sources and targets in a file of them, some at a time.
_Pairs = Callable[[], Iterator[Sequence[np.ndarray]]]


def stream(path: Path, layout: source.Layout, reading: source.Reading) -> source.Stream:
    """Read a folder with ``raw/`` and ``split/``; arcs are those of the files, none are added.

    Labels in one column of whole numbers are classes, −1 or NaN where there is none; others are
    targets. A UserError if it holds several graphs, or vertices of several types; if a file is
    missing or damaged, or does not fit the others.
    """
    raw = path / "raw"
    require(path.exists(), f"there is no file or folder {path}")
    if any((raw / name).exists() for name in (*OGB_FILES[2:], TRIPLETS)):
        raise UserError(
            f"{path} holds a graph with vertices of several types, such as ogbn-mag",
            f"its folder raw needs {TRIPLETS}, and --format ogb-hetero or none",
        )
    require(raw.is_dir(), f"{path} is no folder of OGB: it has no folder raw")
    binary = (raw / _BINARY).exists()
    n, narcs = (_count(path, raw, what) for what in ("node", "edge"))
    files.check_vertices(n, path)
    file = raw / (_BINARY if binary else "edge.csv.gz")
    if binary:
        unread, pairs = npz_names(file) - _READ_BINARY, _binary_pairs(file, narcs, reading)
    else:
        files.check_file(file)
        unread = {each.name.split(".")[0] for each in raw.glob("*.csv.gz")} - _READ
        pairs = _text_pairs(file, reading)
    labels = _table(raw, "node-label", n, np.float64, source.ALL)
    features = _table(raw, "node-feat", n, np.float32, reading)
    of_arcs = _table(raw, "edge-feat", narcs, np.float32, reading)

    def pieces() -> Iterator[source.Piece]:
        count = 0
        with files.read_errors(file):
            for pair in pairs():
                ends = arc_columns.ends_of(np.stack(pair), str(file), "(2, E)")
                for one in ends:
                    files.check_inside(one, n, file)
                yield source.Piece(*ends, None, {})
                count += len(ends[0])
        _check_count(file, count, narcs)
        if not count:
            yield source.Piece(np.empty(0, np.int64), np.empty(0, np.int64), None, {})

    masks, name = _masks(path, n), _only_split(path)
    if name and (labels is None or not masks):
        masks, unread = {}, unread | {f"split/{name}"}  # masks of nothing that could be learned
    notes = {"columns": f"not read: {', '.join(sorted(unread))}"} if unread else {}
    rest = {} if labels is None else learned(labels, f"{path}: node-label", whole=True)
    rest |= {"format": "ogb", "features": features, "masks": masks, "notes": notes}
    if of_arcs is not None:
        rest["arc_data"] = arc_columns.ArcTable({"features": of_arcs})
    return source.Stream(pieces(), str(path), n=n, rest=rest)


def _text_pairs(file: Path, reading: source.Reading) -> _Pairs:
    table = text.TextTable(
        file, text.Comments(text.NO_COMMENTS), separator=",", width=2,
        kinds=dict.fromkeys(range(2), pa.int64()), longest=text.LONGEST_LINE,
        meaning="source target",
    )  # fmt: skip
    return lambda: (pair for *_, pair in table.pieces(source.Reading(tell=reading.tell)))


def _binary_pairs(file: Path, count: int, reading: source.Reading) -> _Pairs:
    arcs = files.NpzArray(file, "edge_index")
    if len(arcs.shape) != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise UserError(f"{arcs.where} holds {arcs.dtype} {arcs.shape}, not integers in (2, E)")
    _check_count(file, arcs.shape[1], count)

    def pairs() -> Iterator[Sequence[np.ndarray]]:
        done = 0
        for pair in arcs.pairs(_AT_ONCE):
            yield pair
            reading.tell("reading", done := done + len(pair[0]), count)

    return pairs


def read_hetero(path: Path, layout: source.Layout) -> source.TypedSource:
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
        known = {relation.source, relation.target} <= sizes.keys()
        require(known, f"{raw}/{TRIPLETS}: {relation} is not of the types {', '.join(names)}")
        file = raw / "relations" / "___".join(relation) / "edge.csv.gz"
        files.check_file(file)
        with files.read_errors(file):
            pieces = [np.stack(pair) for pair in _text_pairs(file, source.ALL)()]
        ends = np.concatenate([np.empty((2, 0), np.int64), *pieces], axis=1)
        arcs.append(source.RelationArcs(relation, *ends))
    found: dict[str, dict[str, np.ndarray]] = {"features": {}, "labels": {}, "targets": {}}
    masks: dict[str, dict[str, np.ndarray]] = {mask: {} for mask in MASKS}
    for name, n in sizes.items():
        features, labels = (
            _table(raw / what / name, what, n, dtype, source.ALL)
            for what, dtype in (("node-feat", np.float32), ("node-label", np.float64))
        )
        if features is not None:
            found["features"][name] = features
        if labels is not None:
            kind, values = classes_or_targets(labels, whole=True)
            found[kind][name] = values
        for mask, rows in _masks(path, n, name).items():
            masks[mask][name] = rows
    there = {file.name.split(".")[0] for file in raw.rglob("*.csv.gz")}
    unread = [name for name in _UNREAD if name in there]
    notes = {"columns": f"not read: {', '.join(unread)}"} if unread else {}
    masks = {mask: by_type for mask, by_type in masks.items() if by_type}
    graph = source.TypedSource(sizes, arcs, masks=masks, format="ogb-hetero", notes=notes, **found)
    return checked(graph, str(path))


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


def _table(
    raw: Path, name: str, count: int, dtype: type, reading: source.Reading
) -> np.ndarray | None:
    """A row of numbers for each vertex or arc, in an array that is allocated; None without one."""
    file, key = raw / f"{name}.csv.gz", name.replace("-", "_")
    if (raw / _BINARY).exists():
        file = raw / (_BINARY if name != "node-label" else "node-label.npz")
    there = file.exists() and (file.name != _BINARY or key in npz_names(file))
    if not there or not count:
        return None
    out: np.ndarray | None = None
    start, of, where = 0, "arcs" if name.startswith("edge") else "vertices", str(file)
    with files.read_errors(file):
        pieces = _number_rows(file)
        if file.name == _BINARY:
            member = files.NpzArray(file, key)
            where, shape = member.where, member.shape
            fits = len(shape) == 2 and shape[0] == count
            require(fits, f"{where} is of shape {shape}, not a row for each of {count}")
            pieces = member.rows(max(1, _AT_ONCE // max(1, shape[1])))
        elif file.suffix == ".npz":
            arrays = read_npz(file)
            require(key in arrays, f"{file} has no array {key}")
            pieces = iter([arrays[key].reshape(len(arrays[key]), -1).astype(np.float64)])
        for rows in pieces:
            if out is None:
                out = reading.allocate(name, (count, rows.shape[1]), np.dtype(dtype))
            if start + len(rows) > count:
                raise UserError(f"{where} has more rows than the graph's {count} {of}")
            if dtype == np.float32:
                rows = files.finite_features(rows, f"{where}, from row {start + 1} on", "row")
            out[start : start + len(rows)] = rows
            reading.tell("reading", start := start + len(rows), count)
    if start != count:
        raise UserError(f"{where} has {start} rows, the graph has {count} {of}")
    assert out is not None, "there is a row"
    return out if out.shape[1] else None


def _number_rows(path: Path) -> Iterator[np.ndarray]:
    """Lines of numbers, empty or ``""`` where one is unknown, as float64."""
    table = text.open_table(path, text.LONGEST_ROW, text.NO_COMMENTS)
    width = table.line(0).count(",") + 1 if table.lines else 0
    kinds = dict.fromkeys(range(width), pa.float64())
    table = replace(table, separator=",", width=width, kinds=kinds, nulls=True)
    for *_, columns in table.pieces(source.ALL):
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
            text.words_of(line, ",")
            for first, block in text.text_blocks(file)
            for _, line in text.lines_of(first, block)
        ]
    if (count is not None and len(lines) != count) or any(len(w) < 3 for w in lines * (not count)):
        raise UserError(f"{file} does not hold what such a file of OGB does")
    return lines


def _count(folder: Path, raw: Path, what: str) -> int:
    """How many vertices or arcs the only graph has: a "node" or an "edge"."""
    where = raw / _BINARY
    if where.exists():
        numbers = read_npz(where, (f"num_{what}s_list",)).get(f"num_{what}s_list", np.empty(0))
    else:
        numbers = _whole_numbers(where := raw / f"num-{what}-list.csv.gz")
    if numbers.dtype.kind not in "iu" or not numbers.size:
        raise UserError(f"{where} does not say how many vertices and arcs there are")
    require(numbers.size == 1, f"{folder} holds {numbers.size} graphs, one is read")
    number = int(numbers.reshape(-1)[0])
    require(0 <= number < 2**62, f"{where} says {number}, which is no number of vertices or arcs")
    return number


def _check_count(path: Path, found: int, announced: int) -> None:
    if found != announced:
        raise UserError(
            f"{path} has {found} arcs, {announced} are announced", "fetch or make the file again"
        )
