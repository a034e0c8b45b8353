"""From a graph file to a graph folder: read, build the CSR arrays, attach vertex data, write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, check_name
from partition.graph.graph import DIRECTIONS, MASKS, ArcData, Graph, SparseRows
from partition.graph.manifest import TYPE_FEATURES
from partition.graph.store import Manifest, check_target, open_graph, write_graph
from partition.importing.arc_data import ArcFiles, in_order
from partition.importing.arcs import ArcRules, check_number
from partition.importing.datasets import is_dataset, local_file
from partition.importing.on_disk import allocate_in, build_on_disk, scratch_folder
from partition.importing.readers import LISTS, STREAMS, checked_format
from partition.importing.readers.reading import open_stream, read_graph
from partition.importing.readers.source import Layout, Reading, Source, Tell, TypedSource
from partition.importing.readers.vertex_tables import read_features
from partition.importing.typed import (
    build_typed,
    refuse_undirected,
    vertices_of_type,
    with_type_features,
)
from partition.importing.vertex_data import SORTED, Places, VertexFiles, attach

__all__ = ["VertexFiles", "attach", "attach_files", "build_graph", "import_graph"]


def import_graph(
    source_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    *,
    report: Callable[[str], None] = lambda line: None,
    tell: Tell = lambda stage, done, total: None,
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
        Fields of :class:`Import`, and of :class:`VertexFiles` but ``ids`` and ``comments``.

    Raises
    ------
    UserError
        For a mistake in the arguments, before anything is read; for a bad file; or if the folder
        cannot be written.
    """
    asked = asked_for(source_path, out_path, **options)
    asked.check()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(local_file(asked.source))
        format = checked_format(source, asked.format, asked.of_arcs)
        if asked.reverse and (format in STREAMS or asked.memory is not None):
            raise no_relations(source)
        if asked.memory is None:
            found = read_graph(source, format, asked.of_arcs)
            with named_errors(source):
                graph, facts = asked.built(found, source, report)
            del found
        else:
            scratch = stack.enter_context(scratch_folder(asked.out))
            reading = Reading(allocate_in(scratch), tell)
            stream = open_stream(source, format, asked.of_arcs, reading)
            with named_errors(source):
                graph, facts = build_on_disk(
                    stream, scratch, asked.memory, asked.rules(), tell, asked.arc_files
                )
        graph, facts = asked.with_data(graph, facts, report)
        return write_graph(
            asked.out, graph, source=facts, direction=asked.direction, overwrite=asked.overwrite,
            report=report, keep_features=asked.keep_features,
        )  # fmt: skip


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
        ``ids`` may also be "sorted", and is for the files of features, labels and masks, too.
    undirected, duplicates, self_loops
        See :func:`build_graph`.
    reverse : bool
        Of a heterogeneous graph: see :func:`partition.importing.typed.build_typed`.
    memory : float, optional
        Bytes that the program may take: arcs are sorted in files beside ``out``, with the same
        result. See :func:`partition.importing.on_disk.build_on_disk`.
    """

    source: Path
    out: Path
    files: VertexFiles
    arc_files: ArcFiles = field(default_factory=ArcFiles)
    type_features: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
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

    def check(self) -> None:
        """Refuse the mistakes that show before any file is read."""
        self.rules()
        check_name("direction", self.direction, DIRECTIONS)
        self.files.check()
        self.arc_files.check()
        check_target(self.out, self.overwrite)

    def rules(self) -> ArcRules:
        """The rules for arcs, of which none were met."""
        return ArcRules(self.undirected, self.duplicates, self.self_loops)

    def built(
        self, found: Source | TypedSource, source: Path, report: Callable[[str], None]
    ) -> tuple[Graph, dict[str, object]]:
        """The graph of what was read, before the data of other files, and facts about it."""
        rules = {"duplicates": self.duplicates, "self_loops": self.self_loops}
        if isinstance(found, TypedSource):
            refuse_undirected(self.undirected, source)
            for file in self.arc_files.in_files().values():
                raise UserError(
                    f"{file}: data of the arcs of several relations have no order in a file",
                    "gcn-partition attach takes a row for each arc of the folder",
                )
            missing = self.files.missing_labels
            return build_typed(
                found, reverse=self.reverse, report=report, missing_labels=missing, **rules
            )
        if self.reverse:
            raise no_relations(source)
        table = self.arc_files.read(len(found.source), "it lists")
        found = replace(found, arc_data=found.arc_data.with_columns(table))
        return build_graph(found, undirected=self.undirected, **rules)

    @property
    def of_arcs(self) -> Layout:
        """The layout of the list of arcs; ``ids = "sorted"`` is of other files."""
        return replace(self.layout, ids=None) if self._by_order else self.layout

    @property
    def _by_order(self) -> bool:
        return str(self.layout.ids) == SORTED

    def with_data(
        self, graph: Graph, facts: Mapping[str, object], report: Callable[[str], None]
    ) -> tuple[Graph, dict[str, object]]:
        """The graph with the data of files and generators, and all that the manifest says of it."""
        facts = dict(facts)
        if self.layout.vertices is not None:
            facts["vertices"] = self.layout.vertices
        if not self.type_features and (self._by_order or facts["format"] not in LISTS):
            self.files.check_ids_are_used()
        about = facts | {"ids_given": self.layout.ids is not None and not self._by_order}
        graph = attach(graph, self.files, source=about, report=report)
        graph = self.arc_files.with_random(graph)
        graph, of_types = _with_types(graph, self.type_features, self.files)
        name = str(self.source) if is_dataset(self.source) else self.source.absolute().name
        data = self.files.facts(of_types) | self.arc_files.facts()
        return graph, {"file": name} | facts | data


def asked_for(
    source: str | os.PathLike[str], out: str | os.PathLike[str], **options: Any
) -> Import:
    """An import by the arguments of :func:`import_graph`; None is an argument that is not given."""
    names = {each.name for each in fields(Import)}
    own = {name: options.pop(name) for name in names & options.keys()}
    given = {name: value for name, value in own.items() if value is not None}
    layout = given.get("layout", Layout())
    files = VertexFiles(ids=layout.ids, comments=layout.comments, **options)
    return Import(Path(source), Path(out), files, **given)


def no_relations(source: Path) -> UserError:
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
    path: str | os.PathLike[str],
    *,
    keep_features: str = "auto",
    arc_files: ArcFiles | None = None,
    type_features: Mapping[str, str | os.PathLike[str]] | None = None,
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
        Fields of :class:`VertexFiles`.

    Raises
    ------
    UserError
        As :func:`attach`; or if the folder cannot be written.
    """
    given = VertexFiles(**files)
    given.check()
    if not type_features:
        given.check_ids_are_used()
    stored = open_graph(path)
    if given.features is None and keep_features == "auto":  # they stay in the form that was chosen
        keep_features = "sparse" if isinstance(stored.graph.features, SparseRows) else "dense"
    of_arcs = arc_files or ArcFiles()
    graph = attach(
        of_arcs.attach(stored.graph), given, source=stored.manifest.source, report=report
    )
    graph, of_types = _with_types(graph, type_features or {}, given)
    facts = dict(stored.manifest.source) | of_arcs.facts()
    attached = facts.pop("attached", {})
    before = attached if isinstance(attached, dict) else {}
    if given.masks or given.split is not None:  # masks are not drawn as before any more
        facts.pop("split", None)
    if given.split is not None:
        before = {name: file for name, file in before.items() if name not in MASKS}
    facts |= given.facts({**before, **of_types})
    return write_graph(
        path, graph, source=facts, direction=stored.manifest.direction, overwrite=True,
        keep_features=keep_features,
    )  # fmt: skip


def _of_type(
    graph: Graph, name: str, path: str | os.PathLike[str], files: VertexFiles
) -> np.ndarray:
    """Features of the vertices of a type, in their order."""
    rows = read_features(path, comments=files.comments)
    if graph.vertex_types is None or len(rows.values) != len(graph.vertex_types.range(name)):
        return rows.values  # which is refused
    places = Places(vertices_of_type(graph, name), files.ids, comments=files.comments)
    return places.of_vertices(rows, str(path))


def _with_types(
    graph: Graph, files: Mapping[str, str | os.PathLike[str]], given: VertexFiles
) -> tuple[Graph, dict[str, object]]:
    """The graph with features of types from files, and these by the names that a manifest has."""
    if not files:
        return graph, {}
    read = {name: _of_type(graph, name, file, given) for name, file in files.items()}
    named: dict[str, object] = {
        TYPE_FEATURES + name: Path(file).name for name, file in files.items()
    }
    return with_type_features(graph, read), named


def build_graph(
    source: Source,
    *,
    undirected: bool = False,
    duplicates: str = "merge",
    self_loops: str = "keep",
) -> tuple[Graph, dict[str, object]]:
    """Sort arcs into CSR form, and settle self-loops and duplicates by the rules given.

    Self-loops are settled first, then duplicates, then the graph is made undirected.

    Parameters
    ----------
    source : Source
    undirected : bool
        Take the union of A and its transpose; where both arcs exist with different weights, each
        gets their mean. Where duplicates are kept, every arc but a loop gets a reverse of its own.
    duplicates : {"merge", "sum", "keep", "error"}
        Arcs listed more than once: one arc with the first weight; one arc with the sum of the
        weights (of ones, where the file has none); as many arcs, in the order of the source; or an
        error. In a symmetric source i–j and j–i are the same edge. Of arcs that become one, and of
        both directions of an edge, the one that is listed first gives its data.
    self_loops : {"keep", "drop"}

    Returns
    -------
    graph : Graph
    facts : dict
        For the manifest: ``format``, ``arcs_read`` (entries of the file), ``symmetric_file``,
        ``self_loops`` and ``duplicates`` (``found`` and ``rule`` each; copies beyond the first
        are duplicates, of which ``differ`` have another weight), ``undirected``.

    Raises
    ------
    UserError
        For an unknown rule, a vertex outside 0..n−1, too many vertices, duplicates where they
        are an error, or a sum of weights that is not finite.
    """
    rules = ArcRules(undirected, duplicates, self_loops)
    n = source.n
    check_number(n)
    for ends in (source.source, source.target):
        if len(ends) and (ends.min() < 0 or ends.max() >= n):
            raise UserError(f"an arc has a vertex outside 0..{n - 1}")

    has_data = bool(source.arc_data.columns)
    numbers = np.arange(len(source.source)) if has_data or rules.parallel else None
    keys = rules.settle(rules.keys_of(source, numbers))
    rules.check_copies(n, source.ids)
    if source.symmetric or rules.undirected:
        keys = rules.merge_reverse(rules.with_reverse(keys, n))

    graph = Graph(
        **keys.csr(n),
        features=source.features,
        labels=source.labels,
        targets=source.targets,
        masks=dict(source.masks),
        class_names=source.class_names,
        ids=source.ids,
        arc_data=in_order(source.arc_data, keys.numbers) if has_data else ArcData(),
        parallel=rules.parallel,
    )
    facts = rules.facts(len(source.source), source.symmetric, has_data)
    return graph, {"format": source.format} | facts | dict(source.notes)
