"""The manifest of a graph folder: facts about its graph, and by them the table of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from partition.errors import UserError, require
from partition.graph.content import TYPE_FEATURES, Known, content_id, data_id, sums_of
from partition.graph.folders import checked, map_array, read_json
from partition.graph.graph import AGAIN, DIRECTIONS, MASKS, ArcData, Graph, symmetry
from partition.graph.relations import Relation, Schema, VertexTypes, schema_fault
from partition.graph.sparse_rows import FILES as SPARSE_FILES
from partition.graph.sparse_rows import SparseRows
from partition.records import Count, Positive, one_of

_FORMAT = "gcnmpi-graph"
_VERSION, _TYPED_VERSION = 5, 6  # the latter of heterogeneous graphs, and of these alone
_TYPED = ("vertex_types", "relations", "type_features")  # fields that homogeneous graphs lack
# Version 1 has no data_id; 2 no targets, one split only, dense features; 3 no sums; 4 no data of
# arcs, and none that are parallel; 5 no types. Fields that a file lacks are the defaults.
_READABLE = (1, 2, 3, 4, _VERSION, _TYPED_VERSION)
# Types of fields, with the values that a file may have.
Direction = Annotated[str, one_of(DIRECTIONS)]
_Masks = tuple[Annotated[str, one_of(MASKS)], ...]


@dataclass(frozen=True)
class Manifest:
    """The description of a graph folder, as its file ``manifest.json`` has it.

    Attributes
    ----------
    directed : bool
        Whether the pattern of A differs from that of its transpose.
    id : str
        Content id of the structure: a hash of n, indptr, indices and weights. A partition
        carries the id of its graph.
    data_id : str
        Content id of the data of vertices and arcs: see :func:`partition.graph.content.data_id`.
        Empty where it is not known, in folders of format version 1.
    sums : mapping of str to str
        Of each file of arrays, its type and checksum: see :func:`partition.graph.content.sums_of`.
        Empty where they are not known, in folders of format versions 1 to 3.
    symmetric_pattern, symmetric_values : bool
        Whether A equals its transpose, as a pattern and with its values.
    direction : {"in", "out"}
        The direction that partitioning and training use unless they are told otherwise.
    features, classes : int
        Width of the feature rows and number of classes; 0 where there are none.
    feature_entries : int
        Entries of the features where they are kept as CSR; 0: they are a dense array.
    masks : tuple of str
        Which of "train", "val", "test" there are.
    class_names : tuple of str
        Names of the classes; empty where they are their numbers.
    targets : int
        Columns of the targets; 0 where there are none.
    splits : int
        How many splits the masks are of.
    parallel : bool
        Whether several arcs from one vertex to another may be stored.
    arc_features, arc_classes, arc_targets : int
        Columns of the features of arcs, their number of classes, or columns of numbers to be
        learned; 0 where there are none.
    arc_masks, arc_class_names : tuple of str
        As ``masks`` and ``class_names``, of arcs.
    vertex_types : mapping of str to int
        Of a heterogeneous graph, the types of vertices and how many there are, in their order.
    relations : tuple of Relation
        In the order of their numbers.
    type_features : mapping of str to int
        Columns of the features of types that have some of their own.
    source : mapping
        Where the graph came from: see :func:`partition.importing.assemble.import_graph`.
    """

    id: str
    name: str
    n: Count
    nnz: Count
    directed: bool
    symmetric_pattern: bool
    symmetric_values: bool
    weighted: bool
    direction: Direction
    features: Count
    classes: Count
    masks: _Masks
    source: Mapping[str, object]
    class_names: tuple[str, ...] = ()
    data_id: str = ""
    targets: Count = 0
    splits: Positive = 1
    feature_entries: Count = 0
    parallel: bool = False
    arc_features: Count = 0
    arc_classes: Count = 0
    arc_targets: Count = 0
    arc_masks: _Masks = ()
    arc_class_names: tuple[str, ...] = ()
    sums: Mapping[str, str] = field(default_factory=dict)
    vertex_types: Mapping[str, Count] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    type_features: Mapping[str, Count] = field(default_factory=dict)
    format: str = _FORMAT
    version: int = _VERSION

    @property
    def schema(self) -> Schema:
        """The types of vertices and relations."""
        of_types = {} if self.features else self.type_features
        return Schema(tuple(self.vertex_types), self.relations, tuple(of_types.items()))

    @property
    def inputs(self) -> int:
        """Columns of the rows that a network takes: see :func:`partition.graph.typed.inputs_of`."""
        return self.features or sum(self.type_features.values())

    @property
    def valued(self) -> bool:
        """Whether entries of A may differ from 1: arcs have weights, or parallel ones are added."""
        return self.weighted or self.parallel


def manifest_of(
    graph: Graph,
    arrays: Mapping[str, np.ndarray],
    name: str,
    direction: str,
    source: Mapping[str, object],
    known: Known | None = None,
) -> Manifest:
    """The manifest of a folder with a graph, of which ``arrays`` are the files.

    Facts that are ``known`` of them already are not found out again.
    """
    known = known or Known(symmetry(graph), {})
    pattern, values = known.symmetric
    missing = {name: array for name, array in arrays.items() if name not in known.sums}
    sums = {**known.sums, **sums_of(missing)}
    features, of_arcs, types = graph.features, graph.arc_data, graph.vertex_types
    return Manifest(
        id=content_id(graph),
        name=name,
        n=graph.n,
        nnz=graph.nnz,
        directed=not pattern,
        symmetric_pattern=pattern,
        symmetric_values=values,
        weighted=graph.weights is not None,
        direction=direction,
        features=0 if features is None else int(features.shape[1]),
        classes=graph.classes,
        masks=tuple(name for name in MASKS if name in graph.masks),
        source=dict(source),
        data_id=data_id(graph),
        class_names=graph.class_names or (),
        feature_entries=features.entries if isinstance(features, SparseRows) else 0,
        targets=0 if graph.targets is None else int(graph.targets.shape[1]),
        splits=graph.splits,
        parallel=graph.parallel,
        arc_features=of_arcs.width,
        arc_classes=of_arcs.classes,
        arc_targets=of_arcs.targets,
        arc_masks=tuple(name for name in MASKS if name in of_arcs.masks),
        arc_class_names=of_arcs.class_names or (),
        sums={name: sums[name] for name in arrays},
        vertex_types={} if types is None else types.counts,
        relations=graph.relations,
        type_features={name: int(x.shape[1]) for name, x in graph.type_features.items()},
        version=_VERSION if types is None else _TYPED_VERSION,
    )


def map_arrays(path: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    """The arrays of a graph folder by the names of their files, mapped, as its manifest says.

    A UserError if one is missing, damaged, or of another shape or kind.
    """
    m, entries = manifest, manifest.feature_entries
    n, nnz, splits = m.n, m.nnz, [(m.n, m.splits)] if m.splits > 1 else []
    table: list[tuple[str, object, str, tuple[int, ...]]] = [  # name, whether, kinds, shape
        ("indptr", True, "i", (n + 1,)),
        ("indices", True, "i", (nnz,)),
        ("weights", m.weighted, "f", (nnz,)),
        ("features", m.features and not entries, "f", (n, m.features)),
        ("features_indptr", entries, "i", (n + 1,)),
        ("features_indices", entries, "i", (entries,)),
        ("features_data", entries, "f", (entries,)),
        ("labels", m.classes, "i", (n,)),
        ("targets", m.targets, "f", (n, m.targets)),
        ("ids", (path / "ids.npy").exists(), "iU", (n,)),
        ("arc_features", m.arc_features, "f", (nnz, m.arc_features)),
        ("arc_labels", m.arc_classes, "i", (nnz,)),
        ("arc_labels", m.arc_targets, "f", (nnz, m.arc_targets)),
        ("arc_ids", (path / "arc_ids.npy").exists(), "i", (nnz,)),
        ("arc_type", m.vertex_types, "u", (nnz,)),
        *((f"arc_{name}_mask", True, "b", (nnz,)) for name in m.arc_masks),
        *((TYPE_FEATURES + name, True, "f", (m.vertex_types[name], width))
          for name, width in m.type_features.items()),
    ]  # fmt: skip
    arrays = {
        name: map_array(path / f"{name}.npy", kinds, shape)
        for name, there, kinds, shape in table
        if there
    }
    arrays |= {
        f"{name}_mask": map_array(path / f"{name}_mask.npy", "b", (n,), *splits) for name in m.masks
    }
    for name, last in (("indptr", nnz), ("features_indptr", entries)):
        if name in arrays and (arrays[name][0], arrays[name][-1]) != (0, last):
            found = f"{path}/{name}.npy goes from {arrays[name][0]} to {arrays[name][-1]}"
            raise UserError(f"{found}, the manifest says 0 to {last}", AGAIN)
    if m.sums and m.sums.keys() != arrays.keys():
        one = min(m.sums.keys() ^ arrays.keys())
        raise UserError(
            f"{path}/manifest.json is damaged: it contradicts itself about {one}.npy", AGAIN
        )
    return arrays


def graph_of(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> Graph:
    """The graph of a folder with these arrays."""
    m, get = manifest, arrays.get
    features: np.ndarray | SparseRows | None = get("features")
    if m.feature_entries:
        indptr, indices, data = (arrays[name] for name in SPARSE_FILES)
        features = SparseRows(indptr, indices, data, m.features)
    of_arcs = ArcData(
        get("arc_features"),
        get("arc_labels"),
        {name: arrays[f"arc_{name}_mask"] for name in m.arc_masks},
        get("arc_ids"),
        m.arc_class_names or None,
    )
    return Graph(
        arrays["indptr"],
        arrays["indices"],
        get("weights"),
        features,
        get("labels"),
        {name: arrays[f"{name}_mask"] for name in m.masks},
        get("ids"),
        m.class_names or None,
        get("targets"),
        of_arcs,
        m.parallel,
        VertexTypes.of_counts(m.vertex_types) if m.vertex_types else None,
        m.relations,
        get("arc_type"),
        {name: arrays[TYPE_FEATURES + name] for name in m.type_features},
    )


def stored_fields(manifest: Manifest) -> dict[str, object]:
    """The fields of a manifest as its file has them."""
    hidden = () if manifest.vertex_types else _TYPED
    return {name: value for name, value in vars(manifest).items() if name not in hidden}


def read_manifest(path: Path) -> Manifest:
    """The manifest of the graph folder ``path``.

    A UserError if there is none, it is damaged, or of a version that is not known.
    """
    file = path / "manifest.json"
    if not path.exists():
        raise UserError(f"there is no graph folder {path}", "gcn-partition import SOURCE OUT.graph")
    if not file.exists():
        hint = f"gcn-partition import {path} OUT.graph makes one of a file"
        what = f"{path} is not a graph folder: it has no manifest.json"
        raise UserError(what, hint if path.is_file() else None)
    facts = read_json(file)
    require(facts.get("format") == _FORMAT, f"{file} does not describe a graph")
    if facts.get("version") not in _READABLE:
        found, known = facts.get("version"), ", ".join(map(str, _READABLE))
        raise UserError(f"{path} has format version {found!r}, this program reads {known}", AGAIN)
    manifest = checked(file, facts, Manifest)
    if fault := _fault_of(manifest):
        raise UserError(f"{file} is damaged: {fault}", AGAIN)
    return manifest


def _fault_of(manifest: Manifest) -> str | None:
    """The first contradiction between fields of a manifest, or None."""
    m, symmetric = manifest, manifest.symmetric_pattern
    if m.directed == symmetric or (m.symmetric_values and not symmetric):
        return "directed and symmetric_… contradict each other"
    for of, names, classes, masks in (
        ("", m.class_names, m.classes, m.masks),
        ("arc_", m.arc_class_names, m.arc_classes, m.arc_masks),
    ):
        if names and len(names) != classes:
            return f"{of}class_names are not those of {classes} classes"
        if len(set(masks)) < len(masks):
            return f"{of}masks has a mask twice"
    if m.arc_classes and m.arc_targets:
        return "labels of arcs are classes or numbers, not both"
    return schema_fault(m.n, m.vertex_types, m.relations, m.type_features)
