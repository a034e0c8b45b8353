"""Everything that a graph folder says of itself, compared with what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph import store
from partition.graph.content import (
    FILES,
    TYPE_FEATURES,
    check_sums,
    content_id,
    data_id,
    file_arrays,
    sums_of,
)
from partition.graph.graph import check_arc_data, check_arcs, check_labels, check_targets, symmetry
from partition.graph.links import check_pairs, identified, list_pairs, read_pairs
from partition.graph.manifest import EXCHANGED
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.samples import list_samples, read_samples
from partition.graph.sparse_rows import SparseRows, check_rows
from partition.graph.store import StoredGraph
from partition.graph.typed import check_ends
from partition.pipeline.measuring import measure_both, measure_nodes, measure_relations

AT_ONCE = 1 << 22  # numbers that are looked at at once


@dataclass(frozen=True)
class Finding:
    """A thing that was looked at, and the fault that was found; None where there is none."""

    what: str
    wrong: str | None


def check_folder(path: Path) -> Iterator[Finding]:
    """Read all of a graph folder and compare it with itself; a finding for each thing looked at."""
    stored = store.open_graph(path, check=False)
    yield Finding("manifest, shapes and types of the arrays", None)
    for what, check in _CHECKS.items():
        yield Finding(what, _said(lambda check=check: check(stored)))  # type: ignore[misc]
    for name in store.list_partitions(path):
        wrong = _said(lambda name=name: _partition(stored, name))  # type: ignore[misc]
        yield Finding(f"partition {name}: parts, ids, metrics", wrong)
    for name in list_pairs(path):
        wrong = _said(lambda name=name: _pairs(stored, name))  # type: ignore[misc]
        yield Finding(f"pairs {name}: vertices, checksums, ids, none held out trains", wrong)
    for name in list_samples(path):
        wrong = _said(lambda name=name: _samples(stored, name))  # type: ignore[misc]
        yield Finding(f"samples {name}: numbers, moments, ids, ranges", wrong)


def _samples(stored: StoredGraph, name: str) -> None:
    read_samples(stored.path, name, check=True)


def _said(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except UserError as error:
        return error.message


def _files(stored: StoredGraph) -> str | None:
    there = {file.stem for file in stored.path.glob("*.npy")} & set(FILES)
    there |= {TYPE_FEATURES + file.stem for file in stored.path.glob(f"{TYPE_FEATURES}*.npy")}
    more = sorted(there - file_arrays(stored.graph).keys())
    return f"{more[0]}.npy is there, but the manifest knows of none" if more else None


def _arcs(stored: StoredGraph) -> None:
    check_arcs(stored.graph, 0, stored.graph.n)


def _flags(stored: StoredGraph) -> str | None:
    _arcs(stored)  # the counting below indexes by them
    manifest, found = stored.manifest, symmetry(stored.graph)
    for name, value in zip(("symmetric_pattern", "symmetric_values"), found, strict=True):
        if getattr(manifest, name) != value:
            return f"the manifest says {name} = {getattr(manifest, name)}, the arcs say {value}"
    return None


def _sparse(stored: StoredGraph) -> str | None:
    features = stored.graph.features
    return check_rows(features, 0, len(features)) if isinstance(features, SparseRows) else None


def _features(stored: StoredGraph) -> str | None:
    if wrong := _sparse(stored):
        return wrong
    features = stored.graph.features
    if isinstance(features, SparseRows):
        features = features.data.reshape(-1, 1)
    for rows in (features, *stored.graph.type_features.values()):
        step = 1 if rows is None else max(1, AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, 0 if rows is None else len(rows), step):
            if not np.isfinite(rows[start : start + step]).all():  # type: ignore[index]
                return "the features are not all finite"
    return None


def _relations(stored: StoredGraph) -> None:
    _arcs(stored)
    check_ends(stored.graph, 0, stored.graph.n)


def _labels(stored: StoredGraph) -> str | None:
    graph, classes = stored.graph, stored.manifest.classes
    check_labels(graph, classes)
    check_targets(graph)
    if graph.labels is not None and not stored.manifest.class_names and graph.n:
        most = int(graph.labels.max()) + 1
        if most != classes:
            return f"the manifest says {classes} classes, the largest label is {most - 1}"
    return None


def _masks(stored: StoredGraph) -> str | None:
    for (one, first), (other, second) in combinations(stored.graph.masks.items(), 2):
        # Of one column and several, the one counts for all splits.
        both = (first.reshape(len(first), -1) & second.reshape(len(second), -1)).any(axis=1)
        if both.any():
            return f"the masks {one} and {other} have {int(both.sum())} vertices in common"
    return None


def _arc_data(stored: StoredGraph) -> str | None:
    data, manifest = stored.graph.arc_data, stored.manifest
    check_arc_data(data, 0, stored.graph.nnz, manifest.arc_classes)
    numbered = not data.class_names and not data.targets
    if numbered and data.classes != manifest.arc_classes:
        return f"the manifest says {manifest.arc_classes} classes, there are {data.classes}"
    return None


def _ids(stored: StoredGraph) -> str | None:
    ids = stored.graph.ids
    if ids is not None and len(np.unique(ids)) < len(ids):
        return "an id in ids.npy is there twice"
    return None


def _sums(stored: StoredGraph) -> None:
    if stored.manifest.sums:
        check_sums(stored.path, sums_of(file_arrays(stored.graph)), stored.manifest.sums)


def _content(stored: StoredGraph) -> str | None:
    manifest = stored.manifest
    if content_id(stored.graph) != manifest.id:
        return "indptr, indices or weights are not those that the manifest has the id of"
    if wrong := _sparse(stored):  # rows are made of them below
        return wrong
    if manifest.data_id and data_id(stored.graph) != manifest.data_id:
        return "the data of vertices or arcs, ids or names of classes are not those of data_id"
    return None


def _partition(stored: StoredGraph, name: str) -> str | None:
    partition = store.read_partition(stored.path, name)
    _arcs(stored)
    what = stored.merged, stored.manifest, partition.parts, partition.k
    for field in (*EXCHANGED, "nodes"):
        known: Mapping[str, Metrics | NodeTraffic] = getattr(partition, field)
        if not known:
            continue
        measured: Mapping[str, Metrics | NodeTraffic]
        if field == "nodes":
            measured = measure_nodes(*what, partition.nodes["in"].ranks_per_node)
        elif field == "by_relation":
            measured = measure_relations(stored, partition.parts, partition.k)
        else:
            measured = measure_both(*what, mixed=field == "mixed")
        for direction, figures in known.items():
            for key, value in vars(figures).items():
                if value is not None and getattr(measured[direction], key) != value:
                    return f"{field} of direction {direction!r}: {key} is not that of the parts"
    return None


def _pairs(stored: StoredGraph, name: str) -> str | None:
    pairs = read_pairs(stored.path, name)
    check_pairs(pairs, stored.graph.n)
    return None if identified(pairs).id == pairs.id else "the id is not that of the arrays"


_CHECKS: dict[str, Callable[[StoredGraph], str | None]] = {
    "files that the manifest does not name": _files,
    "arcs: targets in range, increasing, each once unless parallel; weights finite": _arcs,
    "flags: directed, symmetric pattern, symmetric values": _flags,
    "features: finite": _features,
    "labels and targets: within their classes, not infinite": _labels,
    "masks: no vertex in two": _masks,
    "ids: each once": _ids,
    "data of arcs: finite, labels within their classes, no arc in two masks": _arc_data,
    "relations: their types are those of the ends of each arc": _relations,
    "checksums of all files": _sums,
    "content ids: id, data_id": _content,
}
