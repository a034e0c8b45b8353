"""Everything that a graph folder says of itself, compared with what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from partition.errors import UserError
from partition.graph import store
from partition.graph.graph import check_arc_data, check_arcs, check_ends, check_targets, symmetry
from partition.graph.manifest import check_sums, content_id, data_id, file_arrays, sums_of
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.samples import list_samples, read_samples
from partition.graph.sparse_rows import SparseRows, check_rows
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import check_pairs, identified, list_pairs, read_pairs
from partition.pipeline.adding import measure_field

AT_ONCE = 1 << 22  # numbers that are looked at at once


class Finding(NamedTuple):
    """A thing that was looked at, and the fault that was found; None where there is none."""

    what: str
    wrong: str | None


def check_folder(path: Path) -> Iterator[Finding]:
    """Read all of a graph folder and compare it with itself; a finding for each thing looked at."""
    stored = store.open_graph(path, check=False)
    yield Finding("manifest, shapes and types of the arrays", None)
    for what, check in _CHECKS.items():
        yield _finding(what, check, stored)
    for name in store.list_partitions(path):
        yield _finding(f"partition {name}: parts, ids, metrics", _partition, stored, name)
    for name in list_pairs(path):
        what = f"pairs {name}: vertices, checksums, ids, none held out trains"
        yield _finding(what, _pairs, stored, name)
    for name in list_samples(path):
        yield _finding(f"samples {name}: numbers, moments, ids, ranges", _samples, stored, name)


def _finding(what: str, check: Callable[..., str | None], *arguments: object) -> Finding:
    try:
        return Finding(what, check(*arguments))
    except UserError as error:
        return Finding(what, error.message)


def _files(stored: StoredGraph) -> str | None:
    files = [*stored.path.glob("*.npy"), *stored.path.glob("features/*.npy")]
    found = {str(file.relative_to(stored.path).with_suffix("")) for file in files}
    more = sorted(found - file_arrays(stored.graph).keys())
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


def _features(stored: StoredGraph) -> str | None:
    features, wrong = stored.graph.features, None
    if isinstance(features, SparseRows):
        wrong = check_rows(features, 0, len(features))
        features = features.data[:, np.newaxis]
    every = [*stored.graph.type_features.values(), *([] if features is None else [features])]
    for rows in every:
        step = max(1, AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, len(rows), step):
            if not np.isfinite(rows[start : start + step]).all():
                wrong = wrong or "the features are not all finite"
    return wrong


def _relations(stored: StoredGraph) -> None:
    _arcs(stored)
    check_ends(stored.graph)


def _labels(stored: StoredGraph) -> str | None:
    graph, classes = stored.graph, stored.manifest.classes
    check_targets(graph, classes)
    if graph.labels is not None and not graph.class_names and graph.n and graph.classes != classes:
        return f"the manifest says {classes} classes, the largest label is {graph.classes - 1}"
    return None


def _masks(stored: StoredGraph) -> str | None:
    for (one, first), (other, second) in combinations(stored.graph.masks.items(), 2):
        # Of one column and several, the one counts for all splits.
        both = (first.reshape(len(first), -1) & second.reshape(len(second), -1)).any(axis=1)
        if both.any():
            return f"the masks {one} and {other} have {int(both.sum())} vertices in common"
    return None


def _arc_data(stored: StoredGraph) -> str | None:
    data, classes = stored.graph.arc_data, stored.manifest.arc_classes
    check_arc_data(stored.graph, classes)
    if data.class_names or data.targets or data.classes == classes:
        return None
    return f"the manifest says {classes} classes, there are {data.classes}"


def _ids(stored: StoredGraph) -> str | None:
    ids = stored.graph.ids
    if ids is not None and len(np.unique(ids)) < len(ids):
        return "an id in ids.npy is there twice"
    return None


def _sums(stored: StoredGraph) -> None:
    if stored.manifest.sums:
        sums = sums_of(file_arrays(stored.graph))
        check_sums(stored.path, sums, stored.manifest.sums)


def _content(stored: StoredGraph) -> str | None:
    graph, manifest = stored.graph, stored.manifest
    if content_id(graph) != manifest.id:
        return "indptr, indices or weights are not those that the manifest has the id of"
    if isinstance(graph.features, SparseRows) and check_rows(graph.features, 0, graph.n):
        return None  # which is a finding of its own; rows are made of them below
    if manifest.data_id and data_id(graph) != manifest.data_id:
        return "the data of vertices or arcs, ids or names of classes are not those of data_id"
    return None


def _partition(stored: StoredGraph, name: str) -> str | None:
    partition = store.read_partition(stored.path, name)
    _arcs(stored)
    for field in (*store.EXCHANGED, "nodes"):
        known: Mapping[str, Metrics | NodeTraffic] = getattr(partition, field)
        if not known:
            continue
        per_node = partition.nodes["in"].ranks_per_node if field == "nodes" else None
        measured = measure_field(field, stored, partition.parts, partition.k, per_node)
        for direction, figures in known.items():
            for key, value in vars(figures).items():
                if value is not None and getattr(measured[direction], key) != value:
                    return f"{field} of direction {direction!r}: {key} is not that of the parts"
    return None


def _pairs(stored: StoredGraph, name: str) -> str | None:
    pairs = read_pairs(stored.path, name)
    check_pairs(pairs, stored.graph.n)
    return None if identified(pairs).id == pairs.id else "the id is not that of the arrays"


def _samples(stored: StoredGraph, name: str) -> None:
    read_samples(stored.path, name, check=True)


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
