"""Everything that a graph folder says of itself, compared with what is in it."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partition.errors import UserError
from partition.graph import graph as graphs
from partition.graph import manifest as manifests
from partition.graph import store, vertex_pairs
from partition.graph.graph import SparseRows, check_rows
from partition.graph.samples import list_samples, read_samples
from partition.graph.store import StoredGraph
from partition.pipeline.adding import measure_field


class Finding(NamedTuple):
    """A thing that was looked at, and the fault that was found; None where there is none."""

    what: str
    wrong: str | None


def check_folder(path: Path) -> Iterator[Finding]:
    """Read all of a graph folder and compare it with itself; a finding for each thing looked at."""
    stored = store.open_graph(path, check=False)
    yield Finding("manifest, shapes and types of the arrays", None)
    checks = {what: partial(check, stored) for what, check in _CHECKS.items()}
    for kind, (list_names, check, what) in _SETS.items():
        for name in list_names(path):
            checks[f"{kind} {name}: {what}"] = partial(check, stored, name)
    for what, check in checks.items():
        try:
            yield Finding(what, check())
        except UserError as error:
            yield Finding(what, error.message)


def _files(stored: StoredGraph) -> str | None:
    files = [*stored.path.glob("*.npy"), *stored.path.glob("features/*.npy")]
    found = {str(file.relative_to(stored.path).with_suffix("")) for file in files}
    more = sorted(found - manifests.file_arrays(stored.graph).keys())
    return f"{more[0]}.npy is there, but the manifest knows of none" if more else None


def _flags(stored: StoredGraph) -> str | None:
    graphs.check_arcs(stored.graph)  # the counting below indexes by them
    found = graphs.symmetry(stored.graph)
    for name, value in zip(("symmetric_pattern", "symmetric_values"), found, strict=True):
        if (known := getattr(stored.manifest, name)) != value:
            return f"the manifest says {name} = {known}, the arcs say {value}"
    return None


def _features(stored: StoredGraph, on: str = graphs.VERTICES) -> str | None:
    graph, wrong = stored.graph, None
    of_vertices: list[Any] = [*graph.type_features.values(), graph.features]
    for rows in of_vertices if on == graphs.VERTICES else [graph.arc_data.features]:
        if rows is None:
            continue
        if isinstance(rows, SparseRows):
            wrong, rows = check_rows(rows, 0, len(rows)), rows.data[:, np.newaxis]
        step = max(1, graphs.AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, len(rows), step):
            if not np.isfinite(rows[start : start + step]).all():
                wrong = wrong or "the features are not all finite"
    return wrong


def _labels(stored: StoredGraph, on: str = graphs.VERTICES) -> str | None:
    manifest, rows = stored.manifest, graphs.examples_of(stored.graph, on)
    classes = manifest.classes if on == graphs.VERTICES else manifest.arc_classes
    graphs.check_targets(stored.graph, classes, on)
    if not rows.class_names and rows.n and rows.classes != classes:
        return f"the manifest says {classes} classes, the largest label is {rows.classes - 1}"
    return None


def _masks(stored: StoredGraph, on: str = graphs.VERTICES) -> str | None:
    rows = graphs.examples_of(stored.graph, on)
    for (one, first), (other, second) in combinations(rows.masks.items(), 2):
        both = 0
        for start in range(0, rows.n, graphs.AT_ONCE):
            # Of one column and several, the one counts for all splits.
            masks = [mask[start : start + graphs.AT_ONCE].T for mask in (first, second)]
            both += int(np.atleast_2d(masks[0] & masks[1]).any(axis=0).sum())
        if both:
            return f"the masks {one} and {other} have {both} {on} in common"
    return None


def _ids(stored: StoredGraph) -> str | None:
    ids = stored.graph.ids
    twice = ids is not None and len(np.unique(ids)) < len(ids)
    return "an id in ids.npy is there twice" if twice else None


def _arc_data(stored: StoredGraph) -> str | None:
    ids = stored.graph.arc_data.ids
    if ids is not None and ids.min(initial=0) < 0:
        return "arc_ids.npy has a negative number"
    faults = (check(stored, graphs.ARCS) for check in (_features, _labels, _masks))
    return next(filter(None, faults), None)


def _relations(stored: StoredGraph) -> None:
    graphs.check_arcs(stored.graph)
    graphs.check_ends(stored.graph)


def _sums(stored: StoredGraph) -> None:
    if known := stored.manifest.sums:
        sums = manifests.sums_of(manifests.file_arrays(stored.graph))
        manifests.check_sums(stored.path, sums, known)


def _content(stored: StoredGraph) -> str | None:
    graph, manifest = stored.graph, stored.manifest
    if manifests.content_id(graph) != manifest.id:
        return "indptr, indices or weights are not those that the manifest has the id of"
    if isinstance(graph.features, SparseRows) and check_rows(graph.features, 0, graph.n):
        return None  # which is a finding of its own; rows are made of them below
    if manifest.data_id and manifests.data_id(graph) != manifest.data_id:
        return "the data of vertices or arcs, ids or names of classes are not those of data_id"
    return None


def _partition(stored: StoredGraph, name: str) -> str | None:
    partition = store.read_partition(stored.path, name)
    graphs.check_arcs(stored.graph)
    per_node = partition.nodes["in"].ranks_per_node if partition.nodes else None
    for field in (*store.EXCHANGED, "nodes"):
        known: dict[str, Any] = getattr(partition, field)
        found = known and measure_field(field, stored, partition.parts, partition.k, per_node)
        for direction, figures in known.items():
            for key, value in vars(figures).items():
                if value is not None and getattr(found[direction], key) != value:
                    return f"{field} of direction {direction!r}: {key} is not that of the parts"
    return None


def _pairs(stored: StoredGraph, name: str) -> str | None:
    pairs = vertex_pairs.read_pairs(stored.path, name)
    vertex_pairs.check_pairs(pairs, stored.graph.n)
    same = vertex_pairs.identified(pairs).id == pairs.id
    return None if same else "the id is not that of the arrays"


def _samples(stored: StoredGraph, name: str) -> None:
    read_samples(stored.path, name, check=True)


def _arcs(stored: StoredGraph) -> None:
    graphs.check_arcs(stored.graph)


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
_SETS: dict[str, Any] = {
    "partition": (store.list_partitions, _partition, "parts, ids, metrics"),
    "pairs": (vertex_pairs.list_pairs, _pairs, "vertices, checksums, ids, none held out trains"),
    "samples": (list_samples, _samples, "numbers, moments, ids, ranges"),
}
