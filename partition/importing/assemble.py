"""Import of graph folders, from files, arrays and objects; and their export, as tables."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from partition.errors import UserError, check_name
from partition.graph.graph import (
    DIRECTIONS,
    MASKS,
    UNLABELLED,
    ArcData,
    Graph,
    SparseRows,
    by_type,
)
from partition.graph.graph import arcs as sources_of
from partition.graph.manifest import TYPE_FEATURES
from partition.graph.relations import Relation, number_relations
from partition.graph.store import Manifest, StoredGraph, check_target, open_graph, write_graph
from partition.importing import arcs, data_files
from partition.importing.readers import LISTS, STREAMS, checked_format, libraries
from partition.importing.readers.arc_columns import NO_DATA, ArcTable
from partition.importing.readers.reading import open_stream, read_graph
from partition.importing.readers.source import Layout, Reading, RelationArcs, Source, TypedSource
from partition.importing.readers.text import is_integer
from partition.importing.readers.typed_tables import SCHEMA, checked
from partition.importing.readers.vertex_tables import read_features
from partition.records import atomic_folder


def import_graph(
    source_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    *,
    report: Callable[[str], None] = lambda line: None,
    tell: Callable[[str, float, float], None] = lambda stage, done, total: None,
    **options: Any,
) -> Manifest:
    """Make a graph folder out of a graph file.

    ``source`` of its manifest has ``file``, ``format``, ``arcs_read``, ``symmetric_file`` (each
    edge listed once), ``self_loops`` and ``duplicates`` (``found`` and ``rule``; ``differ``: copies
    with another weight), ``undirected``, ``vertices``, ``columns``, ``comments`` (how many lines of
    a list are), ``arc_data``, and, where given, ``attached`` and ``arc_data_attached`` with their
    seeds, and ``split`` (``rule``, ``splits``, ``seed``). Of a synthetic graph it has the generator
    and its arguments.

    Parameters
    ----------
    source_path
        See :func:`partition.importing.readers.reading.read_source`.
    out_path, report
        See :func:`partition.graph.store.write_graph`.
    tell : callable
        Told the stage of the work, how much of it is done, and how much there is.
    options
        Fields of :class:`Import`, and of :class:`~partition.importing.data_files.VertexFiles` but
        ``ids`` and ``comments``.

    Raises
    ------
    UserError
        For a mistake in the arguments, before anything is read; for a bad file; or if the folder
        cannot be written.
    """
    asked = asked_for(source_path, out_path, **options)
    asked.check()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(libraries.local_file(asked.source))
        format = checked_format(source, asked.format, asked.layout)
        if asked.reverse and (format in STREAMS or asked.memory is not None):
            raise _no_relations(source)
        if asked.memory is None:
            found = read_graph(source, format, asked.layout)
            graph, facts = asked.built(found, source, report)
            del found
        else:
            scratch = stack.enter_context(arcs.scratch_folder(asked.out))
            reading = Reading(arcs.allocate_in(scratch), tell)
            stream = open_stream(source, format, asked.layout, reading)
            with named_errors(source):
                graph, facts = arcs.build_on_disk(
                    stream, scratch, asked.memory, asked.rules(), tell, asked.arc_files
                )
        return asked.write(graph, facts, report)


def import_arrays(
    out_path: data_files.File,
    edge_index: object,
    *,
    edge_weight: object = None,
    n: int | None = None,
    ids: object = None,
    features: object = None,
    labels: object = None,
    targets: object = None,
    masks: Mapping[str, object] | None = None,
    split: data_files.RandomSplit | None = None,
    arc_data: ArcTable = NO_DATA,
    arc_features: object = None,
    arc_labels: object = None,
    arc_masks: Mapping[str, object] | None = None,
    missing_labels: tuple[str, ...] = (),
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Manifest:
    """Make a graph folder out of arrays, with the checks of files that hold them.

    Parameters
    ----------
    out_path, report
        See :func:`partition.graph.store.write_graph`.
    edge_index : (2, E) integers, or SciPy sparse matrix
        Sources and targets of the arcs, numbers from 0; or an (n, n) matrix with a row for each
        source, whose entries are weights unless all are 1.
    edge_weight : (E,) numbers, optional
        Finite weights of the arcs; 1 without it.
    n : int, optional
        Number of vertices; without it, the rows of features, labels or targets, or the largest
        number in ``edge_index`` and 1.
    ids : (n,) integers or texts, optional
        The names of the vertices, each once; their numbers without it.
    features : (n, d) numbers, or SciPy sparse matrix, optional
    labels : (n,) integers or texts, optional
        Classes, −1 for a vertex without a label; also (n, 1).
    targets : (n,) or (n, c) numbers, optional
        See :func:`partition.importing.data_files.VertexFiles`.
    masks : mapping of "train" / "val" / "test" to array, optional
        (n,) bool, or 0 and 1, or numbers of vertices; or (n, splits) bool.
    split : RandomSplit, optional
        How masks are drawn, in place of ``masks``.
    arc_data : ArcTable, optional
        Data of the arcs that were picked of named arrays; those that follow replace its columns.
    arc_features : (E,) or (E, d) numbers, optional
        Of each arc that ``edge_index`` lists; of a matrix, of its entries row by row.
    arc_labels : (E,) integers or texts, or (E,) or (E, tasks) fractions, optional
        Classes, −1 for an arc without one; or numbers to be learned, NaN where unknown.
    arc_masks : mapping of "train" / "val" / "test" to (E,) bool, optional
    missing_labels : sequence of str
        Words for no label: see :func:`partition.importing.readers.classes.class_labels`.
    options
        Fields of :class:`Import` that say what becomes of arcs, and how the folder is written.

    Raises
    ------
    UserError
        For an array of another shape or kind, or arrays that are no graph; or if the folder cannot
        be written.
    """
    numpy = libraries.numpy_array
    x = None if features is None else numpy(features, "x", sparse=True)
    y = None if labels is None else numpy(labels, "y")
    y = y[:, 0] if y is not None and y.shape[1:] == (1,) else y
    wanted = None if targets is None else numpy(targets, "targets")
    of_masks = {name: numpy(mask, f"{name}_mask") for name, mask in (masks or {}).items()}
    files = data_files.VertexFiles(
        x, y, of_masks, targets=wanted, split=split, missing_labels=missing_labels
    )
    of_arcs: dict[str, Any] = {"features": arc_features, "labels": arc_labels, **(arc_masks or {})}
    of_arcs = {name: numpy(v, f"arc_{name}") for name, v in of_arcs.items() if v is not None}
    named = [of_arcs.pop(name, None) for name in ("features", "labels")]
    arc_files = data_files.ArcFiles(named[0], named[1], of_arcs)
    asked = Import(Path(), Path(out_path), files, arc_files, in_memory=True, **options)
    asked.check()
    rows = [len(array) for array in (x, y, wanted) if array is not None and array.ndim]
    n = rows[0] if n is None and rows else n
    found = libraries.source_of_arrays(edge_index, edge_weight, n)
    names = None if ids is None else libraries.checked_ids(ids, found.n)
    found = replace(found, ids=names, arc_data=arc_data)
    return asked.write(*asked.built(found, asked.source, report), report)


def import_typed(
    out_path: data_files.File,
    source: TypedSource,
    *,
    split: data_files.RandomSplit | None = None,
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Manifest:
    """Make a graph folder of a heterogeneous graph in memory.

    Parameters
    ----------
    out_path, report
        See :func:`partition.graph.store.write_graph`.
    source : TypedSource
    split : RandomSplit, optional
        How masks are drawn, in place of those of the source.
    options
        Fields of :class:`Import` that say what becomes of arcs, and how the folder is written.

    Raises
    ------
    UserError
        If an array does not fit the others, or the folder cannot be written.
    """
    files = data_files.VertexFiles(split=split)
    asked = Import(Path(), Path(out_path), files, in_memory=True, **options)
    asked.check()
    found = checked(source, "the graph")
    return asked.write(*asked.built(found, asked.source, report), report)


@dataclass(frozen=True)
class Import:
    """An import as it is asked for.

    Attributes
    ----------
    source : path
        See :func:`partition.importing.readers.reading.read_source`, as ``format``.
    out, direction, keep_features, overwrite
        See :func:`partition.graph.store.write_graph`.
    files : VertexFiles
    arc_files : ArcFiles
        Data of the arcs, in the order in which the source lists them.
    type_features
        See :func:`attach_files`.
    layout : Layout
        Its ``ids`` are for the files of features, labels and masks, too; "sorted" for these only.
    undirected, duplicates, self_loops
        See :func:`partition.importing.arcs.build_graph`; a heterogeneous graph is not made
        undirected.
    reverse : bool
        Of a heterogeneous graph: see :func:`partition.importing.arcs.build_typed`.
    memory : float, optional
        Bytes that the program may take: arcs are sorted in files beside ``out``, with the same
        result. See :func:`partition.importing.arcs.build_on_disk`.
    in_memory : bool
        The graph is given, and no file is read: ``source`` means nothing.
    """

    source: Path
    out: Path
    files: data_files.VertexFiles
    arc_files: data_files.ArcFiles = field(default_factory=data_files.ArcFiles)
    type_features: Mapping[str, data_files.File] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    format: str = "auto"
    undirected: bool = False
    reverse: bool = False
    duplicates: str = "merge"
    self_loops: str = "keep"
    direction: str = "in"
    keep_features: str = "auto"
    overwrite: bool = False
    memory: float | None = None
    in_memory: bool = False

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        self.rules()
        check_name("direction", self.direction, DIRECTIONS)
        self.files.check()
        self.arc_files.check()
        check_target(self.out, self.overwrite)

    def rules(self) -> arcs.ArcRules:
        """The rules for arcs, of which none were met."""
        return arcs.ArcRules(self.undirected, self.duplicates, self.self_loops)

    def built(
        self, found: Source | TypedSource, source: Path, report: Callable[[str], None]
    ) -> tuple[Graph, dict[str, object]]:
        """The graph of what was read, before the data of other files, and facts about it."""
        rules: dict[str, Any] = {"duplicates": self.duplicates, "self_loops": self.self_loops}
        where = "the graph" if self.in_memory else str(source)
        with contextlib.nullcontext() if self.in_memory else named_errors(source):
            if isinstance(found, Source):
                if self.reverse:
                    raise _no_relations(where)
                what = "there are" if self.in_memory else "it lists"
                table = self.arc_files.read(len(found.source), what)
                found = replace(found, arc_data=found.arc_data.with_columns(table))
                return arcs.build_graph(found, undirected=self.undirected, **rules)
            if self.undirected:
                raise UserError(
                    f"{where} has relations, and the reverse of one is another one",
                    "--reverse adds the reverse of each relation in place of --undirected",
                )
            for file in self.arc_files.in_files().values():
                raise UserError(
                    f"{file}: data of the arcs of several relations have no order in a file",
                    "gcn-partition attach takes a row for each arc of the folder",
                )
            rules |= {"reverse": self.reverse, "missing_labels": self.files.missing_labels}
            return arcs.build_typed(found, report=report, **rules)

    def with_data(
        self, graph: Graph, facts: Mapping[str, object], report: Callable[[str], None]
    ) -> tuple[Graph, dict[str, object]]:
        """The graph with the data of files and generators, and all that the manifest says of it."""
        facts = dict(facts)
        if self.layout.vertices is not None:
            facts["vertices"] = self.layout.vertices
        by_order = str(self.files.ids) == data_files.SORTED
        if not self.type_features and (by_order or facts["format"] not in LISTS):
            self.files.check_ids_are_used()
        about = facts | {"ids_given": self.layout.ids is not None}
        graph = data_files.attach(graph, self.files, source=about, report=report)
        graph = self.arc_files.with_random(graph)
        graph, of_types = _with_types(graph, self.type_features, self.files)
        facts |= self.files.facts(of_types) | self.arc_files.facts()
        if not self.in_memory:
            known = libraries.is_dataset(self.source)
            name = str(self.source) if known else self.source.absolute().name
            facts = {"file": name} | facts
        return graph, facts

    def write(
        self, graph: Graph, facts: Mapping[str, object], report: Callable[[str], None]
    ) -> Manifest:
        """Write the folder of a graph that was built, with its data."""
        graph, facts = self.with_data(graph, facts, report)
        return write_graph(
            self.out, graph, source=facts, direction=self.direction, overwrite=self.overwrite,
            report=report, keep_features=self.keep_features,
        )  # fmt: skip


def asked_for(source: data_files.File, out: data_files.File, **options: Any) -> Import:
    """An import by the arguments of :func:`import_graph`; None is an argument that is not given."""
    names = {each.name for each in fields(Import)}
    own = {name: options.pop(name) for name in names & options.keys()}
    given = {name: value for name, value in own.items() if value is not None}
    layout = given.get("layout", Layout())
    files = data_files.VertexFiles(ids=layout.ids, comments=layout.comments, **options)
    if str(layout.ids) == data_files.SORTED:  # which the list of arcs has no use for
        given["layout"] = replace(layout, ids=None)
    return Import(Path(source), Path(out), files, **given)


def _no_relations(source: object) -> UserError:
    """The refusal of --reverse for a graph without relations."""
    hint = "--undirected adds the reverse of every arc"
    return UserError(f"{source} has no relations that --reverse could turn", hint)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name the file in errors about its arcs."""
    try:
        yield
    except UserError as error:
        if str(path) in error.message:
            raise
        named = UserError(f"{path}: {error.message}", error.hint)
        vars(named).update(vars(error) | vars(named))  # such as which ranks have agreed on it
        raise named from error


def attach_files(
    path: data_files.File,
    *,
    keep_features: str = "auto",
    arc_files: data_files.ArcFiles | None = None,
    type_features: Mapping[str, data_files.File] | None = None,
    report: Callable[[str], None] = lambda line: None,
    **files: Any,
) -> Manifest:
    """Add data of vertices and arcs to a graph folder; arcs and partitions stay as they are.

    Parameters
    ----------
    path : path
        The folder.
    keep_features
        See :func:`partition.graph.store.write_graph`.
    arc_files : ArcFiles, optional
        Data of the arcs, in the order of the folder.
    type_features : mapping of str to path
        Files of the features of types of vertices. Which vertex a row is of is said as of other
        files: by a column of ids, or ``ids`` of the type; where its ids are consecutive numbers,
        row i is of its vertex i.
    files
        Fields of :class:`~partition.importing.data_files.VertexFiles`.

    Raises
    ------
    UserError
        As :func:`partition.importing.data_files.attach`; or if the folder cannot be written.
    """
    given, of_arcs = data_files.VertexFiles(**files), arc_files or data_files.ArcFiles()
    given.check()
    if not type_features:
        given.check_ids_are_used()
    stored = open_graph(path)
    if given.features is None and keep_features == "auto":  # they stay in the form that was chosen
        keep_features = "sparse" if isinstance(stored.graph.features, SparseRows) else "dense"
    facts: dict[str, Any] = dict(stored.manifest.source)
    graph = data_files.attach(of_arcs.attach(stored.graph), given, source=facts, report=report)
    graph, of_types = _with_types(graph, type_features or {}, given)
    facts |= of_arcs.facts()
    before = facts.pop("attached", {})
    if given.masks or given.split is not None:  # masks are not drawn as before any more
        facts.pop("split", None)
    if given.split is not None:
        before = {name: file for name, file in before.items() if name not in MASKS}
    facts |= given.facts({**before, **of_types})
    return write_graph(
        path, graph, source=facts, direction=stored.manifest.direction, overwrite=True,
        keep_features=keep_features,
    )  # fmt: skip


def _with_types(
    graph: Graph, files: Mapping[str, data_files.File], given: data_files.VertexFiles
) -> tuple[Graph, dict[str, object]]:
    """The graph with features of types from files, and these by the names that a manifest has."""
    if not files:
        return graph, {}
    types = graph.vertex_types
    if types is None:
        raise UserError(f"--features {next(iter(files))}=…: the graph has no vertex types")
    kept = {name: graph.features_of(name) for name in types.names}
    features = {name: rows for name, rows in kept.items() if rows is not None}
    for name, path in files.items():
        own, rows = types.range(name), read_features(path, comments=given.comments)
        if len(rows.values) != len(own):
            told = f"its features {len(rows.values):,} rows"
            raise UserError(f"{name} has {len(own):,} vertices, {told}")
        ids = None if graph.ids is None else np.asarray(graph.ids[own.start : own.stop])
        if ids is not None and ids.dtype.kind == "U":  # as the tables of the type have them
            ids = np.array([text.removeprefix(f"{name}:") for text in ids.tolist()])
        alone = Graph(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32), ids=ids)
        row_map = data_files.RowMap(alone, given.ids, comments=given.comments)
        features[name] = row_map.of_vertices(rows, str(path))
    named: dict[str, object] = {TYPE_FEATURES + k: Path(file).name for k, file in files.items()}
    return replace(graph, features=None, type_features=features), named


def taken_apart(graph: Graph) -> TypedSource:
    """The types and relations of a graph, each by itself, with the data that they have.

    :func:`partition.importing.arcs.build_typed` puts them together again. Vertices are numbers
    within their types, labels numbers of classes. A UserError if the graph has no types.
    """
    types = graph.vertex_types
    if types is None or graph.arc_type is None:
        raise UserError(
            "the graph has one type of vertices and no relations",
            "its files are plain .npy; gcnmpi.graph.open(…).to_pyg() makes a Data of it",
        )
    source, target, weights = sources_of(graph), np.asarray(graph.indices), graph.weights
    order = np.argsort(graph.arc_type, kind="stable")
    ends = np.searchsorted(graph.arc_type[order], np.arange(1, len(graph.relations)))
    tables = []
    for relation, some in zip(graph.relations, np.split(order, ends), strict=True):
        first, second = types.range(relation.source).start, types.range(relation.target).start
        own = None if weights is None else np.asarray(weights)[some]
        tables.append(RelationArcs(relation, source[some] - first, target[some] - second, own))
    rows = {"ids": graph.ids, "labels": graph.labels, "targets": graph.targets, **graph.masks}
    found: dict[str, dict[str, Any]] = {"ids": {}, "labels": {}, "targets": {}}
    for name, start, stop in zip(types.names, types.offsets[:-1], types.offsets[1:], strict=True):
        for what, array in rows.items():
            part = None if array is None else np.asarray(array[start:stop])
            if part is None or not _known(what, part).any():
                continue
            apart = what == "ids" and len(types.names) > 1
            found.setdefault(what, {})[name] = _own_ids(part, name) if apart else part
    named = {what: found.pop(what) for what in ("ids", "labels", "targets")}
    return TypedSource(
        types.counts, tables, features=by_type(graph), masks=found, format="tables", **named
    )


def _known(what: str, rows: np.ndarray) -> np.ndarray:
    """Which rows of ids, labels, targets or a mask say something."""
    known: np.ndarray = rows
    if what == "labels":
        known = rows != UNLABELLED
    elif what == "targets":
        known = ~np.isnan(rows)
    return np.ones(len(rows), bool) if what == "ids" else known


def export_tables(
    stored: StoredGraph, folder: str | os.PathLike[str], overwrite: bool = False
) -> dict[str, Any]:
    """Write a table for each relation and each type of a graph, and ``graph.toml`` that lists them.

    Relations are text with a header, ``source,target`` or ``source,target,weight``; types are
    Parquet, with the columns ``id``, ``x``, ``label``, ``target`` and masks that they have. The
    import of the folder gives the same graph.

    Parameters
    ----------
    stored : StoredGraph
        Of a heterogeneous graph.
    folder : path
        To be made.
    overwrite : bool
        Replace it, if it is one of such tables.

    Returns
    -------
    dict
        ``path``, and the names of the files of relations and of types.

    Raises
    ------
    UserError
        If the graph has no types, or the folder is there or cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not (overwrite and (folder / SCHEMA).is_file()):
        hint = "give another name" + ("" if overwrite else ", or --force")
        raise UserError(f"{folder} is there already", hint)
    source = taken_apart(stored.graph)
    files = _names_of_files(source)
    nodes: dict[str, str | int] = {}
    texts = [ids for ids in source.ids.values() if ids.dtype.kind == "U"]
    string_ids = any(is_integer(text) for ids in texts for text in ids.tolist())
    with atomic_folder(folder, overwrite=overwrite) as temporary:
        for one in source.arcs:
            _write_arcs(temporary / files[one.relation], one, source.ids)
        for name, count in source.counts.items():
            columns, nodes[name] = _columns(name, source, stored.graph.class_names), count
            if columns:
                nodes[name] = f"{name}.parquet"
                parquet.write_table(pa.table(columns), temporary / f"{name}.parquet")
        lines = ["string_ids = true"] if string_ids else []
        relations = {str(one): file for one, file in files.items()}
        tables: dict[str, Mapping[str, object]] = {"relations": relations, "nodes": nodes}
        for section, table in tables.items():
            # Texts and numbers of TOML are those of JSON.
            told = [[json.dumps(x, ensure_ascii=False) for x in pair] for pair in table.items()]
            lines += [f"[{section}]", *(" = ".join(pair) for pair in told)]
        (temporary / SCHEMA).write_text("\n".join(lines) + "\n", "utf-8")
    return {"path": str(folder), "relations": list(files.values()), "nodes": nodes}


def export_relations(
    stored: StoredGraph,
    path: str | os.PathLike[str],
    relations: Sequence[str],
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Write a graph folder with the arcs of some relations, and all vertices with their data.

    Parameters
    ----------
    stored : StoredGraph
        Of a heterogeneous graph.
    path, overwrite, report
        See :func:`partition.graph.store.write_graph`.
    relations : sequence of str
        Names of relations, or "source,name,target".

    Raises
    ------
    UserError
        If there is no such relation, or the folder cannot be written.
    """
    graph, source = stored.graph, taken_apart(stored.graph)
    asked = {"relations": np.array(relations)}
    numbers, _ = number_relations(asked, stored.manifest.name, graph.relations)
    wanted = [source.arcs[number] for number in np.unique(numbers["relations"])]
    made, _ = arcs.build_typed(replace(source, arcs=wanted))
    names = ("indptr", "indices", "weights", "arc_type", "parallel", "relations")
    of_arcs: dict[str, Any] = {name: getattr(made, name) for name in names}
    found, manifest = replace(graph, arc_data=ArcData(), **of_arcs), stored.manifest
    facts = {"relations of": manifest.name, "id of that": manifest.data_id}
    options: dict[str, Any] = {"overwrite": overwrite, "report": report}
    return write_graph(path, found, source=facts, direction=manifest.direction, **options)


def _own_ids(ids: np.ndarray, name: str) -> np.ndarray:
    """The ids of a type without its name, as integers where they all are."""
    texts = [text.removeprefix(f"{name}:") for text in ids.tolist()]
    if all(is_integer(text) and str(int(text)) == text for text in texts):
        return np.array(list(map(int, texts)), np.int64)
    return np.array(texts)


def _names_of_files(source: TypedSource) -> dict[Relation, str]:
    """A file for each relation, by its name."""
    found: dict[Relation, str] = {}
    for number, one in enumerate(source.arcs):
        if "," in one.relation.name or not one.relation.name.isprintable():
            raise UserError(f"the relation {one.relation.name!r} has no name that tables can have")
        plain = re.sub(r"[^A-Za-z0-9_.+=-]+", "_", "-".join(one.relation))[:120]
        name = f"{plain}.csv"
        taken = {each.lower() for each in found.values()}
        found[one.relation] = f"{plain}-{number}.csv" if name.lower() in taken else name
    return found


def _write_arcs(file: Path, one: RelationArcs, ids: Mapping[str, np.ndarray]) -> None:
    ends = {
        "source": (one.source, one.relation.source),
        "target": (one.target, one.relation.target),
    }
    columns = {end: ids[of][rows] if of in ids else rows for end, (rows, of) in ends.items()}
    columns |= {} if one.weights is None else {"weight": one.weights}
    csv.write_csv(pa.table(columns), file, csv.WriteOptions(quoting_style="needed"))


def _columns(
    name: str, source: TypedSource, class_names: tuple[str, ...] | None
) -> dict[str, pa.Array]:
    """The columns of a table of vertices; none where all is their number."""
    of = {"id": source.ids, "x": source.features, "label": source.labels, "target": source.targets}
    of |= {f"{mask}_mask": rows for mask, rows in source.masks.items()}
    columns = {called: np.asarray(rows[name]) for called, rows in of.items() if name in rows}
    if "x" in columns:
        columns["x"] = columns["x"].astype(np.float32)
    if "label" in columns and class_names is not None:
        columns["label"] = np.array([*class_names, ""])[columns["label"]]
    return {
        called: pa.array(rows)
        if rows.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        for called, rows in columns.items()
    }
