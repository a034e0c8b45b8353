"""The JSON files of a graph folder, checked by the types of the fields that they describe."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Required, TypedDict, TypeVar

import msgspec
import numpy as np

from partition.errors import UserError
from partition.graph.content import FILES, Known, content_id, data_id
from partition.graph.graph import AGAIN, DIRECTIONS, MASKS, Graph, symmetry
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.relations import Relation, Schema, schema_fault
from partition.graph.sparse_rows import SparseRows
from partition.records import Count, Positive, Whole, one_of, open_regular, printable, to_json

FORMAT = "gcnmpi-graph"
VERSION, TYPED_VERSION = 5, 6  # the latter of heterogeneous graphs, and of these alone
TYPED = ("vertex_types", "relations", "type_features")  # fields that homogeneous graphs lack
# Version 1 has no data_id; 2 no targets, one split only, dense features; 3 no sums; 4 no data of
# arcs, and none that are parallel; 5 no types.
READABLE = (1, 2, 3, 4, VERSION, TYPED_VERSION)
PARTITION_FORMAT = "gcnmpi-partition"
PARTITION_VERSION = 1
EXCHANGES = ("rows", "mixed")  # of rows of H alone, or of partial sums too
SUMMED = ("mixed", "by_relation")  # figures of exchanges with partial sums
EXCHANGED = ("metrics", *SUMMED)  # figures of a partition that are metrics of an exchange
MADE_FOR_MIXED = ("mg",)  # models whose objective is the volume of a mixed exchange
# The figures in a row of a history whose partition was measured.
STEP_FIGURES = ("volume", "max_send", "max_recv", "messages", "imbalance")
MAX_JSON = 1 << 28  # bytes of a file that is read whole
# Types of fields, with the values that a file may have.
Direction = Annotated[str, one_of(DIRECTIONS)]
Masks = tuple[Annotated[str, one_of(MASKS)], ...]
T = TypeVar("T")


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
    masks: Masks
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
    arc_masks: Masks = ()
    arc_class_names: tuple[str, ...] = ()
    sums: Mapping[Annotated[str, one_of(FILES)], str] = field(default_factory=dict)
    vertex_types: Mapping[str, Count] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    type_features: Mapping[str, Count] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION

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


@dataclass(frozen=True)
class Partition:
    """A named assignment of vertices to parts, with all that is needed to make it again.

    Attributes
    ----------
    parts : (n,) int32
        Part of each vertex, 0..k−1.
    graph_id : str
        ``Manifest.id`` of the graph it was made for.
    direction : {"in", "out"}
        The direction of M that its model described.
    imbalance : float or None
        The imbalance that was asked for, as a fraction of the average part weight.
    metrics : mapping of direction to Metrics
        Of this partition for M in each direction.
    mixed : mapping of direction to Metrics
        The same for the mixed exchange; empty in partitions stored before there was one.
    by_relation : mapping of direction to Metrics
        The same for the mixed exchange of means by relation, of a graph with relations.
    nodes : mapping of direction to NodeTraffic
        Traffic between nodes, of a partition that was mapped to them; otherwise empty.
    history : sequence of mapping
        The steps that were done, or tried: a row each, ``step``, ``seconds`` and figures.
    seconds : float
        Time the tool took.
    deterministic : bool
        Whether the same command gives the same parts again.
    id : str
        Content id of the part vector, given to it by :func:`write_partition`.
    """

    name: str
    parts: np.ndarray
    k: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    graph_id: str
    model: str
    tool: str
    tool_version: str
    direction: Direction
    seed: Whole | None = None
    imbalance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[Direction, Metrics] = field(default_factory=dict)
    mixed: Mapping[Direction, Metrics] = field(default_factory=dict)
    by_relation: Mapping[Direction, Metrics] = field(default_factory=dict)
    nodes: Mapping[Direction, NodeTraffic] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    deterministic: bool = True
    id: str = ""

    @property
    def exchange(self) -> str:
        """The exchange that it was refined for, or else that its model counts."""
        kept = [row["exchange"] for row in self.history if row.get("chosen") and "exchange" in row]
        refined = self.options.get("refine") or {}
        said = (self.options.get("exchange"), refined.get("exchange"), *kept[-1:])
        found = next((exchange for exchange in said if exchange in EXCHANGES), None)
        return found or EXCHANGES[self.model in MADE_FOR_MIXED]


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
    known = known or Known(symmetry(graph))
    pattern, values = known.symmetric
    features, of_arcs = graph.features, graph.arc_data
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
        sums=known.all_sums(arrays),
        vertex_types={} if graph.vertex_types is None else graph.vertex_types.counts,
        relations=graph.relations,
        type_features={name: int(x.shape[1]) for name, x in graph.type_features.items()},
        version=VERSION if graph.vertex_types is None else TYPED_VERSION,
    )


def stored_fields(manifest: Manifest) -> dict[str, object]:
    """The fields of a manifest as its file has them."""
    hidden = () if manifest.vertex_types else TYPED
    return {name: value for name, value in asdict(manifest).items() if name not in hidden}


def read_manifest(path: Path) -> Manifest:
    """The manifest of the graph folder ``path``.

    A UserError if there is none, it is damaged, or of a version that is not known.
    """
    file = path / "manifest.json"
    if not path.exists():
        raise UserError(f"there is no graph folder {path}", "gcn-partition import SOURCE OUT.graph")
    if not file.exists():
        raise UserError(
            f"{path} is not a graph folder: it has no manifest.json",
            f"gcn-partition import {path} OUT.graph makes one of a file"
            if path.is_file()
            else None,
        )
    facts = read_json(file)
    if facts.get("format") != FORMAT:
        raise UserError(f"{file} does not describe a graph")
    if facts.get("version") not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise UserError(
            f"{path} has format version {facts.get('version')!r}, this program reads {known}",
            AGAIN,
        )
    manifest = checked(file, facts, Manifest)
    fault = _fault_of(manifest)
    if fault is not None:
        raise UserError(f"{file} is damaged: {fault}", AGAIN)
    return manifest


def _fault_of(manifest: Manifest) -> str | None:
    """What fields of a manifest say against each other."""
    symmetric = manifest.symmetric_pattern
    if manifest.directed == symmetric or (manifest.symmetric_values and not symmetric):
        return "directed and symmetric_… contradict each other"
    for of in ("", "arc_"):
        names, classes, masks = (
            getattr(manifest, f"{of}{name}") for name in ("class_names", "classes", "masks")
        )
        if names and len(names) != classes:
            return f"{of}class_names are not those of {classes} classes"
        if len(set(masks)) < len(masks):
            return f"{of}masks has a mask twice"
    if manifest.arc_classes and manifest.arc_targets:
        return "labels of arcs are classes or numbers, not both"
    types = manifest.vertex_types, manifest.relations, manifest.type_features
    return schema_fault(manifest.n, *types)


def read_description(file: Path) -> Partition:
    """A partition without its parts, from the file that describes it."""
    facts = read_json(file)
    version = facts.pop("version", None)
    if facts.pop("format", None) != PARTITION_FORMAT or version != PARTITION_VERSION:
        raise UserError(f"{file} is not a version {PARTITION_VERSION} partition")
    partition = checked(file, facts | {"parts": np.empty(0, np.int32)}, Partition)
    checked(file, partition.options, _Options)
    checked(file, partition.history, list[_Step])
    if not _is_whole(partition.history):
        raise UserError(f"{file} is damaged: history does not hold what it should")
    for name in (*EXCHANGED, "nodes"):
        by_direction = getattr(partition, name)
        if by_direction and set(by_direction) != set(DIRECTIONS):
            raise UserError(f"{file} is damaged: {name} lacks a direction")
        for direction, figures in by_direction.items():
            summed = name not in SUMMED or None not in (figures.send_sums, figures.recv_sums)
            if not summed or not _are_of_parts(figures, partition.k):
                raise UserError(f"{file} is damaged: {name} of direction {direction!r}")
    return partition


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of anybody's.

    A UserError if it cannot be read, is too long, or holds something else.
    """
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MAX_JSON:
                raise UserError(f"{file} is damaged: it is longer than {MAX_JSON >> 20} MiB")
            facts = msgspec.json.decode(stream.read(size))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}") from error
    if not isinstance(facts, dict):
        raise UserError(f"{file} does not hold a JSON object")
    return dict(printable(facts))


def dump_json(stream: IO[str], facts: Mapping[str, object]) -> None:
    """The form that JSON files of a graph folder have."""
    json.dump(facts, stream, indent=1, default=to_json)
    stream.write("\n")


def checked(file: Path, facts: object, kind: type[T]) -> T:
    """An object of a type, as ``file`` has its facts; a UserError says which is of another type."""
    if is_dataclass(kind) and isinstance(facts, dict):
        unknown = facts.keys() - {entry.name for entry in fields(kind)}
        if unknown:
            raise UserError(f"{file} is damaged: it has an unknown field {min(unknown)[:100]!r}")
    try:
        return msgspec.convert(facts, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is damaged: {error}") from None


class _Step(TypedDict, total=False):
    """A row of a history: what is shown of it."""

    step: Required[str]
    seconds: Required[float]
    volume: float
    max_send: float
    max_recv: float
    messages: float
    imbalance: float
    predicted: float
    direction: str
    note: str
    chosen: object


class _Options(TypedDict, total=False):
    """What a refinement goes on with."""

    balance: str
    ranks_per_node: Positive | None


def _is_whole(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows that were measured have all figures, and all rows a choice if one has."""
    tried = any("chosen" in row for row in history)
    always = {"note", "chosen"} if tried else set()
    measured = {*STEP_FIGURES, "predicted"} if tried else {*STEP_FIGURES}
    return all(always | (measured if "volume" in row else set()) <= row.keys() for row in history)


def _are_of_parts(figures: Metrics | NodeTraffic, k: int) -> bool:
    """Whether figures have a number, not negative, for each part, or for each node."""
    count = k
    if isinstance(figures, NodeTraffic):  # the last node may hold fewer parts
        count = -(-k // figures.ranks_per_node)
    elif figures.k != k:
        return False
    lists = [value for value in vars(figures).values() if isinstance(value, list)]
    lists += (getattr(figures, "types", None) or {}).values()
    return all(len(one) == count and min(one) >= 0 for one in lists)
