"""Facts of what a graph folder has: of its graph, partitions, sets of pairs and of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from partition.graph.aggregation import arrivals, loops
from partition.graph.graph import AT_ONCE, UNLABELLED, Graph, known_rows, of_split
from partition.graph.links import PairSet, has_arcs
from partition.graph.manifest import EXCHANGED
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.relations import names_of
from partition.graph.samples import SampleSet
from partition.graph.sparse_rows import SparseRows
from partition.graph.store import Partition, StoredGraph
from partition.graph.typed import by_type


def describe_partition(partition: Partition, *, lists: bool = True) -> dict[str, object]:
    """All that is stored of a partition but the part vector, and the totals of its metrics.

    With ``lists``, the figures of every part are included.
    """
    hidden = {"parts"} if lists else {"parts", *EXCHANGED, "nodes", "history"}
    facts = {f.name: getattr(partition, f.name) for f in fields(partition) if f.name not in hidden}
    return facts | {
        "summary": summaries(partition.metrics),
        "mixed_summary": summaries(partition.mixed),
        "by_relation_summary": summaries(partition.by_relation),
        "node_summary": summaries(partition.nodes),
    }


def summaries(figures: Mapping[str, Metrics | NodeTraffic]) -> dict[str, dict[str, float]]:
    """The totals of figures, by direction."""
    return {direction: each.summary() for direction, each in figures.items()}


def describe_pairs(pairs: PairSet, graph: Graph | None = None) -> dict[str, object]:
    """All about a set of pairs but its arrays; how many are arcs, if their graph is given."""
    arrays = {"positives", "negatives", "candidates", "relations", "relation_names", "twins"}
    of = pairs.relations
    facts = {f.name: getattr(pairs, f.name) for f in fields(pairs) if f.name not in arrays}
    relations = [int(found.max()) + 1 for found in pairs.relations.values() if len(found)]
    facts |= {
        "kind": "pairs",
        "positives": {mask: len(found) for mask, found in pairs.positives.items()},
        "negatives": {mask: len(found) for mask, found in pairs.negatives.items()},
        "candidates": {mask: found.shape[1] for mask, found in pairs.candidates.items()},
        "relations": max(relations, default=0),
    }
    if graph is not None:
        facts["arcs"] = {
            mask: int(np.count_nonzero(has_arcs(graph, found, pairs.directed, of.get(mask))))
            for mask, found in pairs.positives.items()
        }
        names = names_of(graph.relations) or ("",)
        facts["twins"] = [
            {"relation": names[one.relation], "other": names[one.other], "turned": one.turned}
            for one in pairs.twins or ()
        ]
    return facts


def describe_samples(samples: SampleSet) -> dict[str, object]:
    """All about a set of samples but its numbers; the moments of its training steps."""
    (counts, _, _), (mean, deviation) = samples.moments, samples.scales()
    every = samples.n * samples.steps
    own = ("name", "id", "made", "steps", "columns", "target_columns")
    return {key: getattr(samples, key) for key in own} | {
        "kind": "samples",
        "dtype": str(samples.states.dtype),
        "ranges": {mask: [[*one] for one in some] for mask, some in samples.ranges.items()},
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "unknown": (1 - counts.sum(axis=0) / max(1, every)).tolist(),
    }


def describe_data(stored: StoredGraph) -> dict[str, object]:
    """The result of an import, to be held against what was meant: see the keys.

    ``ids`` has ``first`` and ``last``, as they are numbered; ``features`` ``columns``, ``min``,
    ``max`` and ``zeros`` (a share), ``targets`` the shares ``unknown`` and of ``ones`` among the
    others; ``classes`` their vertices by name; ``masks`` theirs, of the first split.
    """
    graph = stored.graph
    found: dict[str, object] = dict.fromkeys(("weights", "ids", "features", "labels", "targets"))
    found |= {"vertices": graph.n, "arcs": graph.nnz, "directed": stored.manifest.directed}
    found |= {"classes": {}, "splits": graph.splits}
    if graph.weights is not None and graph.nnz:
        found["weights"] = {"min": float(graph.weights.min()), "max": float(graph.weights.max())}
    if graph.ids is not None and graph.n:
        found["ids"] = {"first": graph.ids[0].item(), "last": graph.ids[-1].item()}
    if graph.features is not None and graph.n:
        found["features"] = _range(graph.features)
    if graph.labels is not None:
        names = graph.class_names or tuple(map(str, range(graph.classes)))
        sizes = np.bincount(graph.labels[graph.labels != UNLABELLED], minlength=len(names))
        found["classes"] = dict(zip(names, sizes.tolist(), strict=False))
        found["labels"] = int(sizes.sum())
    if graph.targets is not None and graph.n:
        values = graph.targets[~np.isnan(graph.targets)]
        known = values if len(values) else np.zeros(1)
        found["targets"] = {
            "columns": int(graph.targets.shape[1]),
            "min": float(known.min()),
            "max": float(known.max()),
            "unknown": 1 - len(values) / graph.targets.size,
            "ones": float(np.mean(known == 1)),
        }
    masks = of_split(graph, 0).masks
    return found | {"masks": {name: int(np.count_nonzero(mask)) for name, mask in masks.items()}}


def _range(features: np.ndarray | SparseRows) -> dict[str, object]:
    """Least and largest entry, the share of zeros and how they are kept, a slice at a time."""
    if isinstance(features, SparseRows):
        return {
            "columns": features.width,
            "min": min(0.0, float(features.data.min())),
            "max": max(0.0, float(features.data.max())),
            "zeros": 1 - features.entries / features.size,
            "kept": "sparse",
        }
    step = max(1, (1 << 24) // features.shape[1])
    slices = [features[start : start + step] for start in range(0, len(features), step)]
    return {
        "columns": int(features.shape[1]),
        "min": min(float(piece.min()) for piece in slices),
        "max": max(float(piece.max()) for piece in slices),
        "zeros": 1 - sum(int(np.count_nonzero(piece)) for piece in slices) / features.size,
        "kept": "dense",
    }


def degrees(graph: Graph) -> dict[str, object]:
    """Least, mean and largest number of arcs out of and into a vertex; loops; isolated vertices.

    A vertex is isolated if no arc joins it to another one.
    """
    out_degree, in_degree, looped = np.diff(graph.indptr), np.diff(arrivals(graph)), loops(graph)
    return {
        "out": _spread(out_degree),
        "in": _spread(in_degree),
        "self_loops": int(looped.sum()),
        "isolated": int((out_degree + in_degree == 2 * looped).sum()),
    }


def _spread(degree: np.ndarray) -> dict[str, float]:
    if not len(degree):
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": int(degree.min()), "mean": float(degree.mean()), "max": int(degree.max())}


def describe_schema(graph: Graph) -> dict[str, object]:
    """The types of a graph with their vertices, columns of features and labels, and its relations.

    Empty of a homogeneous graph.
    """
    types = graph.vertex_types
    if types is None or graph.arc_type is None:
        return {}
    widths = {name: int(x.shape[1]) for name, x in by_type(graph).items()}
    known = known_rows(graph)
    arcs = np.zeros(len(graph.relations), np.int64)
    for start in range(0, graph.nnz, AT_ONCE):
        arcs += np.bincount(graph.arc_type[start : start + AT_ONCE], minlength=len(arcs))
    vertices = []
    for name in types.names:
        own = types.range(name)
        labelled = 0 if known is None else int(known[own.start : own.stop].sum())
        facts = {"name": name, "vertices": len(own), "features": widths.get(name, 0)}
        vertices.append(facts | {"labelled": labelled})
    relations = [
        one._asdict() | {"arcs": int(count)}
        for one, count in zip(graph.relations, arcs, strict=True)
    ]
    return {"vertex_types": vertices, "relations": relations}
