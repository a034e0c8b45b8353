"""The content of a file of a heterogeneous graph, in whatever form the file has."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.relations import Relation, number_relations, parse_relation
from partition.importing.readers import RELATION, arc_columns, arc_lists, checked_format, classes
from partition.importing.readers.files import check_file, check_inside, quoted, read_errors
from partition.importing.readers.npz import MASK_FIELDS, source_of, weights_name
from partition.importing.readers.npz import read as read_matrices
from partition.importing.readers.numbering import number_vertices, positions
from partition.importing.readers.reading import read_source
from partition.importing.readers.source import Layout, RelationArcs, Source, TypedSource
from partition.importing.readers.vertex_tables import NodeTable, plain, read_ids, read_nodes
from partition.records import npz_names, read_npz

Fields = Mapping[str, np.ndarray]


def typed_source_of(
    vertices: Mapping[str, Fields],
    arcs: Mapping[tuple[str, str, str], Fields],
    where: str,
    format: str,
    counts: Mapping[str, int | None],
) -> TypedSource:
    """A heterogeneous graph out of named arrays, as PyTorch Geometric calls them.

    Parameters
    ----------
    vertices : mapping of str to mapping of str to array
        Of each type ``x``, ``y``, ``train_mask`` and so on, those that there are.
    arcs : mapping of (source, name, target) to mapping of str to array
        Of each relation ``edge_index`` (2, E) by numbers within types, perhaps ``edge_weight``.
    where, format : str
    counts : mapping of str to int
        How many vertices each type has, where that is known.

    Raises
    ------
    UserError
        If there are no arcs, or an array does not fit the others.
    """
    relations = [Relation(*key) for key in arcs]
    names = list(dict.fromkeys([*vertices, *(t for r in relations for t in (r.source, r.target))]))
    unread: set[str] = set()
    found: dict[str, dict[str, np.ndarray]] = {"features": {}, "labels": {}, "targets": {}}
    masks: dict[str, dict[str, np.ndarray]] = {name: {} for name in MASKS}
    sizes: dict[str, int] = {}
    for name in names:
        given, at = vertices.get(name, {}), f"{where}, {name}"
        sizes[name] = n = _size(name, counts.get(name), given, arcs)
        if n:
            known = {key: array for key, array in given.items() if key in ("x", *MASK_FIELDS)}
            no_arcs = {"edge_index": np.empty((2, 0), np.int64)}
            one = source_of(known | no_arcs, at, format, Layout(), {}, n)
            found["features"] |= {} if one.features is None else {name: one.features}
            for mask, rows in one.masks.items():
                masks[mask][name] = rows
        if "y" in given:
            kind, values = classes.classes_or_targets(given["y"])
            _check_rows(values, n, f"{at}: y")
            found[kind][name] = values
        unread |= {f"{name}.{key}" for key in given if key not in ("x", "y", *MASK_FIELDS)}
    read = []
    for relation, fields in zip(relations, arcs.values(), strict=True):
        taken = ("edge_index", weights_name(fields))
        known = {key: array for key, array in fields.items() if key in taken}
        most = max(1, sizes[relation.source], sizes[relation.target])
        one = source_of(known, f"{where}, {relation}", format, Layout(), {}, most)
        read.append(RelationArcs(relation, one.source, one.target, one.weights))
        unread |= {f"{relation}.{key}" for key in fields if key not in known}
    more = ", …" if len(unread) > 12 else ""
    text = f"not read: {', '.join(map(quoted, sorted(unread)[:12]))}{more}"
    return TypedSource(
        sizes, read, masks={mask: rows for mask, rows in masks.items() if rows},
        format=format, notes={"columns": text} if unread else {}, **found,
    )  # fmt: skip


def checked(source: TypedSource, where: str) -> TypedSource:
    """The source, if its arcs and arrays are of the vertices that there are.

    A UserError if a relation is there twice, or has an end that its type does not have; or a type
    has another number of rows than vertices.
    """
    seen: set[Relation] = set()
    if not source.arcs:
        raise UserError(f"{where} holds no relations")
    for one in source.arcs:
        if one.relation in seen:
            raise UserError(f"{where}: the relation {one.relation} is there twice")
        seen.add(one.relation)
        for name, ends in ((one.relation.source, one.source), (one.relation.target, one.target)):
            check_inside(ends, source.counts[name], f"{where}, {one.relation}: {name}")
    columns = {"ids": source.ids, "features": source.features, "labels": source.labels}
    columns |= {"targets": source.targets, **source.masks}
    for what, by_type in columns.items():
        for name, rows in by_type.items():
            _check_rows(rows, source.counts[name], f"{where}, {name}: {what}")
    return source


def grouped(source: Source, relation: np.ndarray, names: Sequence[str]) -> TypedSource:
    """A graph of one type, "entity", whose arcs are of several relations.

    Parameters
    ----------
    source : Source
        All arcs, in the order of the file.
    relation : (m,) integers
        The number of the relation of each.
    names : sequence of str
        Of the relations.
    """
    order = np.argsort(relation, kind="stable")
    ends = np.searchsorted(relation[order], np.arange(len(names) + 1))
    arcs = []
    for number, name in enumerate(names):
        some = order[ends[number] : ends[number + 1]]
        one = Relation(_ENTITY, name, _ENTITY)
        arcs.append(RelationArcs(one, source.source[some], source.target[some]))
    ids = {} if source.ids is None else {_ENTITY: source.ids}
    return TypedSource({_ENTITY: source.n}, arcs, ids, format=source.format, notes=source.notes)


def _size(
    name: str, said: int | None, given: Fields, arcs: Mapping[tuple[str, str, str], Fields]
) -> int:
    """How many vertices a type has: as it is said, by its rows, or by the largest number."""
    if said is not None:
        return said
    rows = [len(given[key]) for key in ("x", "y", *MASK_FIELDS) if key in given]
    if rows:
        return rows[0]
    most = -1
    for (source, _, target), fields in arcs.items():
        index = fields.get("edge_index", np.empty((2, 0)))
        for side, end in enumerate((source, target)):
            if end == name and index.ndim == 2 and index.shape[0] == 2 and index.size:
                most = max(most, int(index[side].max()))
    return most + 1


def _check_rows(rows: np.ndarray, count: int, where: str) -> None:
    if not rows.ndim or len(rows) != count:
        given = len(rows) if rows.ndim else 0
        raise UserError(f"{where} has {given} rows, there are {count} vertices of that type")


_ENTITY = "entity"  # the type of all vertices
SCHEMA = "graph.toml"
# A word such as 007, which a number would lose digits of.
_ZEROS = re.compile(rb"(?:^|[\s,;])-?0[0-9]")


@dataclass(frozen=True)
class _Arcs:
    """Arcs of a table: the ids of their sources and of their targets, and their weights.

    ``unread`` are the columns that are nothing of these, ``comments`` how many lines were such.
    """

    file: Path
    ends: tuple[np.ndarray, np.ndarray]
    weights: np.ndarray | None
    unread: str = ""
    comments: int = 0


def read(path: Path, layout: Layout) -> TypedSource:
    """Read the tables that ``path`` lists, a TOML file or a folder with ``graph.toml``.

    Or those of ``layout.relation`` and ``layout.nodes``, in the folder ``path``. Vertices of a type
    without a table are those that occur in arcs, in increasing order of their ids. A UserError if
    a table is missing or damaged, or an arc has a vertex that its type does not have.
    """
    folder = path
    if not (layout.relation or layout.nodes):
        folder, layout = _listed(path, layout)
    files, nodes = _files(folder, layout)
    if not files:
        raise UserError(f"{path}: there are no relations", "--relation author,writes,paper=FILE")
    as_text = layout.string_ids
    relations = {r: _arcs(r, file, layout, as_text) for r, file in files.items()}
    in_arcs = (name for one in relations for name in (one.source, one.target))
    names = list(dict.fromkeys([*nodes, *in_arcs]))
    tables = {n: _table(n, nodes.get(n), as_text, layout.comments) for n in names}
    if not any(len(arcs.ends[0]) for arcs in relations.values()):
        raise UserError(f"{path}: no relation has an arc")
    ends: dict[str, list[tuple[np.ndarray, Path]]] = {name: [] for name in names}
    for relation, arcs in relations.items():
        for name, called in zip((relation.source, relation.target), arcs.ends, strict=True):
            ends[name].append((called, arcs.file))
    counts, ids, numbers = {}, {}, {}
    for name in names:
        known, numbered = _numbered(name, tables[name].ids, ends[name], as_text)
        counts[name], numbers[name] = len(known), iter(numbered)
        if not (known.dtype.kind == "i" and (known == np.arange(len(known))).all()):
            ids[name] = known
    unread = [f"{name}: {', '.join(t.unread)}" for name, t in tables.items() if t.unread]
    unread += [f"{r.name}: {arcs.unread}" for r, arcs in relations.items() if arcs.unread]
    notes: dict[str, object] = {"columns": f"not read: {'; '.join(unread)}"} if unread else {}
    comments = sum(arcs.comments for arcs in relations.values())
    if comments := comments + sum(table.comments for table in tables.values()):
        notes["comments"] = comments

    def of_types(field: str) -> dict[str, np.ndarray]:
        found = {name: getattr(table, field) for name, table in tables.items()}
        return {name: array for name, array in found.items() if array is not None}

    masks = {
        mask: {n: t.masks[mask] for n, t in tables.items() if mask in t.masks} for mask in MASKS
    }
    return checked(
        TypedSource(
            counts,
            [
                RelationArcs(r, next(numbers[r.source]), next(numbers[r.target]), arcs.weights)
                for r, arcs in relations.items()
            ],
            ids,
            features=of_types("features"),
            labels=of_types("labels"),
            targets=of_types("targets"),
            masks={mask: by_type for mask, by_type in masks.items() if by_type},
            format="tables",
            notes=notes,
        ),
        str(path),
    )


def _files(folder: Path, layout: Layout) -> tuple[dict[Relation, Path], dict[str, Path | int]]:
    """The tables of relations, and those of types, or numbers of vertices, in a folder."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder: with --relation and --nodes, SOURCE is the folder of their "
            "files"
        )
    relations: dict[Relation, Path] = {}
    for text in layout.relation:
        named, _, file = text.partition("=")
        if not file:
            raise UserError(f"--relation {text}", "--relation author,writes,paper=writes.csv")
        relation = parse_relation(named)
        if relation in relations:
            raise UserError(f"--relation {named} is given twice")
        relations[relation] = folder / file
    nodes: dict[str, Path | int] = {}
    for text in layout.nodes:
        name, _, value = text.partition("=")
        if not value or name in nodes:
            raise UserError(f"--nodes {text}", "--nodes paper=papers.parquet, once for each type")
        nodes[name] = int(value) if value.isdecimal() else folder / value
    return relations, nodes


class _Schema(msgspec.Struct, forbid_unknown_fields=True):
    """The content of ``graph.toml``."""

    relations: dict[str, str] = {}
    nodes: dict[str, str | int] = {}
    string_ids: bool = False


def _listed(path: Path, layout: Layout) -> tuple[Path, Layout]:
    """The folder of a TOML file, and the layout with the tables that it names there."""
    file = path / SCHEMA if path.is_dir() else path
    check_file(file)
    with read_errors(file):
        try:
            schema = msgspec.toml.decode(file.read_bytes(), type=_Schema)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = "it has the tables [relations] and [nodes], and perhaps string_ids"
            raise UserError(f"{file} does not list a graph: {error}", hint) from error
    relation, nodes = (
        tuple(f"{name}={value}" for name, value in table.items())
        for table in (schema.relations, schema.nodes)
    )
    as_text = layout.string_ids or schema.string_ids
    return file.parent, replace(layout, relation=relation, nodes=nodes, string_ids=as_text)


def _arcs(relation: Relation, file: Path, given: Layout, as_text: bool) -> _Arcs:
    """The arcs of a table. Integers are texts if one is not written as a number is, such as 007."""
    layout = Layout(
        header=given.header, comments=given.comments, string_ids=as_text,
        types=((relation.source, relation.target),),
    )  # fmt: skip
    as_written = False

    def look(lines: bytes) -> None:
        nonlocal as_written
        as_written = as_written or _ZEROS.search(lines) is not None

    format = checked_format(file, "auto", layout)
    if format not in ("edges", "parquet"):
        source = read_source(file, format, layout)
        ends = source.source, source.target
        if source.ids is not None:
            ends = source.ids[source.source], source.ids[source.target]
        return _Arcs(file, ends, source.weights)
    with read_errors(file):
        listed = arc_lists.find_arcs(file, layout)
        arcs, comments = listed.read(look)
    if not listed.text and as_written:
        return _arcs(relation, file, given, True)
    source, target = np.stack([arcs["source"], arcs["target"]])  # texts of one length
    return _Arcs(file, (source, target), arcs.get("weight"), ", ".join(listed.unread), comments)


def _table(name: str, given: Path | int | None, as_text: bool, comments: str | None) -> NodeTable:
    """The vertices of a type; without ids where they are not known, or 0 … n − 1."""
    if given is None:
        return NodeTable(None)
    if isinstance(given, int):
        if not 0 <= given < 2**48:
            raise UserError(f"{given} is no number of vertices")
        return NodeTable(np.arange(given))
    return read_nodes(given, name, as_text, comments)


def _numbered(
    name: str, known: np.ndarray | None, ends: list[tuple[np.ndarray, Path]], as_text: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The ids of a type in the order of its vertices, and the number of each end of arcs.

    ``known`` are the ids of its table. They are texts if one is no number, or not written as one.
    """
    coded = [_coded(called) for called, _ in ends]
    arrays = [
        array for array in (known, *(different for different, _ in coded)) if array is not None
    ]
    texts = [array for array in arrays if array.dtype.kind == "U" and len(array)]
    kind = str if any(as_text or not plain(array) for array in texts) else np.int64
    given = [different.astype(kind) for different, _ in coded]
    known = np.unique(np.concatenate(given)) if known is None else known.astype(kind)
    numbered = []
    for different, (_, codes), (_, file) in zip(given, coded, ends, strict=True):
        if not len(codes):
            numbered.append(np.empty(0, np.int64))
            continue
        if not len(known):
            raise UserError(f"{file}: there are no vertices of the type {name}")
        hint = f"--nodes {name}=FILE names all vertices of the type, or leave it out"
        numbered.append(
            positions(known, different, f"{file}: there is no {name}", hint=hint)[codes]
        )
    return known, numbered


def _coded(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids, and of each id its place among them; by Arrow, which is fast for texts."""
    found = pa.array(ids).dictionary_encode()
    return np.array(found.dictionary.to_pylist(), ids.dtype), found.indices.to_numpy()


def read_arrays(path: Path, layout: Layout) -> Source | TypedSource:
    """Read an ``.npz`` of (m,) integers ``row``, ``column``, ``relation``, or of other arrays.

    Perhaps with ``labels``, (n,) integers, −1 for none, and numbers of vertices in ``train``,
    ``val``, ``test``. A UserError if an array does not fit the others.
    """
    if not {"row", "column", RELATION} <= npz_names(path):
        return read_matrices(path, layout)
    arrays = read_npz(path)
    row, column, relation = (arrays[name].reshape(-1) for name in ("row", "column", RELATION))
    ends = arc_columns.ends_of(np.stack([row, column]), str(path), "(m,) each")
    if len(relation) != len(row) or relation.dtype.kind not in "iu":
        raise UserError(f"{path}: there are {len(row)} arcs, and {len(relation)} relations")
    labels = arrays.get("labels")
    n = int(max(end.max(initial=-1) for end in ends)) + 1 if labels is None else len(labels)
    given, number = np.unique(relation, return_inverse=True)
    arcs = Source(n, *ends, format="triples")
    masks = {}
    for name in MASKS:
        if name in arrays:
            check_inside(arrays[name], n, f"{path}, {name}")
            masks[name] = {_ENTITY: np.isin(np.arange(n), arrays[name])}
    found = grouped(arcs, number, list(map(str, given.tolist())))
    of_labels = {} if labels is None else {_ENTITY: labels}
    return checked(replace(found, labels=of_labels, masks=masks), str(path))


def read_triples(path: Path, layout: Layout) -> TypedSource:
    """Read a table of triples in text, Parquet or ``.npy``; ids are integers or texts.

    ``layout.columns`` says where sources, relations and targets stand. A UserError if the file
    holds none, or an id is not among those announced.
    """
    found, _, comments = arc_lists.read_pairs(path, layout)
    pairs, relation = found["positives"], found.get("relations")
    if relation is None or not len(pairs):
        raise UserError(f"{path} holds no triples")
    text = pairs.dtype.kind == "U"
    ids = None if layout.ids is None else read_ids(layout.ids, text=text, comments=layout.comments)
    names = None
    if text:
        names, places = np.unique(pairs, return_inverse=True)
        pairs = places.reshape(-1, 2)
    n, source, target, ids = number_vertices(
        pairs[:, 0], pairs[:, 1], str(path), names=names, vertices=layout.vertices, ids=ids
    )
    numbers, called = number_relations({"": relation}, str(path))
    number = numbers[""]
    if not called:
        given, number = np.unique(number, return_inverse=True)
        called = tuple(map(str, given.tolist()))
    notes = {"comments": comments} if comments else {}
    return grouped(
        Source(n, source, target, ids=ids, format="triples", notes=notes), number, called
    )
