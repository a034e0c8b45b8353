"""Tables of what a graph folder has by names: partitions, sets of pairs, sets of samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from rich.table import Column, Table

from partition import terminal
from partition.errors import shown
from partition.graph.aggregation import arrivals, loops
from partition.graph.graph import AT_ONCE, MASKS, UNLABELLED, Graph, known_rows, of_split
from partition.graph.links import PairSet, has_arcs
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.relations import names_of
from partition.graph.samples import SampleSet
from partition.graph.sparse_rows import SparseRows
from partition.graph.store import EXCHANGED, Partition, StoredGraph
from partition.graph.typed import by_type

MANY_COLUMNS = 16


def show_list(
    partitions: Sequence[Partition],
    sets: Sequence[Mapping[str, object]],
    samples: Sequence[Mapping[str, object]] = (),
) -> None:
    """Print a line per partition, and one per set of pairs or of samples, for ``list``."""
    heads = "k", "seed", "volume", "max send", "imbalance", "mixed\nvolume", "mixed\nmax send"
    heads_of = names("name", "model", "tool", "direction")
    table = Table(*heads_of, *numbers(*heads, "seconds"))
    for one in partitions:
        rows, mixed = one.metrics[one.direction], one.mixed.get(one.direction)
        table.add_row(
            one.name, one.model, one.tool, one.direction, str(one.k), plain(one.seed),
            number(rows.volume), number(max(rows.send_rows)), f"{rows.imbalance:.4f}",
            *([number(mixed.volume), number(max(mixed.send_rows))] if mixed else "--"),
            f"{one.seconds:.2f}",
        )  # fmt: skip
    if partitions or not (sets or samples):
        console().print(table)
    if sets:
        show_pair_sets(sets)
    if samples:
        show_sample_sets(samples)


def show_sample_sets(samples: Sequence[Mapping[str, Any]]) -> None:
    """Print a line per set of samples: its size, and the steps of each mask."""
    heads = "steps", "columns", "targets"
    table = Table(*names("samples"), *numbers(*heads, *MASKS), "made")
    for one in samples:
        sizes = [number(one[key]) for key in ("steps", "columns", "target_columns")]
        of_masks = [number(sum(b - a for a, b in one["ranges"].get(mask, ()))) for mask in MASKS]
        table.add_row(one["name"], *sizes, *of_masks, shown(one["made"]))
    console().print(table)


def show_samples(one: Mapping[str, Any]) -> None:
    """Print all about one set of samples, for ``info``."""
    table = facts_table(one["name"])
    for key in ("steps", "columns", "target_columns", "dtype"):
        table.add_row(key.replace("_", " "), plain(one[key]))
    for mask, some in one["ranges"].items():
        table.add_row(mask, ", ".join(f"{start}:{stop}" for start, stop in some[:MANY_COLUMNS]))
    kinds = ["state"] * one["columns"] + ["target"] * one["target_columns"]
    rows = zip(kinds, one["mean"], one["deviation"], one["unknown"], strict=True)
    for place, (kind, mean, deviation, unknown) in enumerate(itertools.islice(rows, MANY_COLUMNS)):
        place -= one["columns"] if kind == "target" else 0
        text = f"mean {mean:.6g}, deviation {deviation:.6g}, unknown {unknown:.2%}"
        table.add_row(f"{kind} {place}, in training", text)
    for key in ("made", "id"):
        table.add_row(key, shown(plain(one[key])))
    console().print(table)


def show_pair_sets(sets: Sequence[Mapping[str, Any]]) -> None:
    """Print a line per set of pairs; of arcs of the graph, if these were counted."""
    counted = all("arcs" in one for one in sets)
    heads = (*MASKS, *["of them\narcs"] * counted)
    table = Table(*names("pairs", "directed"), *numbers(*heads), "negatives", "candidates", "made")
    for one in sets:
        sizes = [number(one["positives"][mask]) for mask in MASKS]
        sizes += [number(sum(one["arcs"].values()))] if counted else []
        drawn = {"drawn": one["drawn"]} if one["drawn"] else {}
        table.add_row(
            one["name"], plain(one["directed"]), *sizes, plain(one["negatives"]),
            plain(one["candidates"] | drawn), shown(one["made"]),
        )  # fmt: skip
    console().print(table)


def show_pairs(one: Mapping[str, Any]) -> None:
    """Print all about one set of pairs, for ``info``."""
    table = facts_table(one["name"])
    for mask, size in one["positives"].items():
        table.add_row(mask, f"{size:,} pairs, {one['arcs'][mask]:,} of them arcs of the graph")
    for mask, size in one["negatives"].items():
        of = "which belong to a pair each" if mask == "train" else "common to all pairs"
        table.add_row(f"{mask} negatives", f"{size:,}, {of}")
    ends = {"second": "second end", "both": "second end, or, half of them, of the first"}
    for mask, size in one["candidates"].items():
        table.add_row(f"{mask} candidates", f"{size:,}, in place of the {ends[one['replaced']]}")
    for twin in one["twins"]:
        turned = " turned round" if twin["turned"] else ""
        text = f"{twin['other']}, the edges of {twin['relation']}{turned}"
        table.add_row("held out with", shown(text if twin["other"] else "the other direction"))
    some = [key for key in ("drawn", "relations") if one[key]]
    for key in (*some, "directed", "seed", "made", "id", "graph_id"):
        table.add_row(key.replace("_", " "), shown(plain(one[key])))
    console().print(table)


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
    return {
        "kind": "samples",
        "name": samples.name,
        "id": samples.id,
        "made": samples.made,
        "steps": samples.steps,
        "columns": samples.columns,
        "target_columns": samples.target_columns,
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
    graph, manifest = stored.graph, stored.manifest
    features, labels, classes = None, None, {}
    if graph.features is not None and graph.n:
        features = _range(graph.features)
    if graph.labels is not None:
        names = graph.class_names or tuple(map(str, range(graph.classes)))
        sizes = np.bincount(graph.labels[graph.labels != UNLABELLED], minlength=len(names))
        classes = dict(zip(names, sizes.tolist(), strict=False))
        labels = int(sizes.sum())
    targets = None
    if graph.targets is not None and graph.n:
        values = graph.targets[~np.isnan(graph.targets)]
        known = values if len(values) else np.zeros(1)
        targets = {
            "columns": int(graph.targets.shape[1]),
            "min": float(known.min()),
            "max": float(known.max()),
            "unknown": 1 - len(values) / graph.targets.size,
            "ones": float(np.mean(known == 1)),
        }
    ids = None
    if graph.ids is not None and graph.n:
        ids = {"first": graph.ids[0].item(), "last": graph.ids[-1].item()}
    weights = None
    if graph.weights is not None and graph.nnz:
        weights = {"min": float(graph.weights.min()), "max": float(graph.weights.max())}
    return {
        "vertices": graph.n,
        "arcs": graph.nnz,
        "directed": manifest.directed,
        "weights": weights,
        "ids": ids,
        "features": features,
        "labels": labels,
        "classes": classes,
        "targets": targets,
        "splits": graph.splits,
        "masks": {
            name: int(np.count_nonzero(mask)) for name, mask in of_split(graph, 0).masks.items()
        },
    }


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


def console() -> terminal.Console:
    """Standard output; wide enough for every table where it is not a terminal."""
    out = terminal.console(markup=False)
    if not out.is_terminal:
        out.width = 200
    return out


def facts_table(title: str) -> Table:
    """A table of names and what there is to say of each."""
    return titled(title, *names(""), Column(overflow="fold"), show_header=False)


def titled(title: str, *columns: Column | str, **form: Any) -> Table:
    """A table with a title."""
    return Table(*columns, title=title, title_justify="left", **form)


def names(*heads: str) -> list[Column]:
    """Columns of text that is not broken into lines."""
    return [Column(head, no_wrap=True) for head in heads]


def numbers(*heads: str) -> list[Column]:
    """Columns of numbers, right-aligned."""
    return [Column(head, justify="right") for head in heads]


def number(value: float) -> str:
    """A number as a cell shows it."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.4f}"


def plain(value: object) -> str:
    """A value of JSON as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
