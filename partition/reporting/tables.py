"""Content of a graph folder as facts (JSON) and as tables; and tables of comparisons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Column, Table

from partition import terminal
from partition.errors import shown
from partition.graph.aggregation import arrivals, loops
from partition.graph.graph import (
    AT_ONCE,
    MASKS,
    UNLABELLED,
    Graph,
    SparseRows,
    by_type,
    known_rows,
    of_split,
)
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.relations import names_of
from partition.graph.samples import SampleSet
from partition.graph.store import EXCHANGED, Manifest, Partition, StoredGraph
from partition.graph.vertex_pairs import PairSet, has_arcs
from partition.pipeline.checking import Finding

_MANY = 40  # relations in a table
_MANY_CLASSES = 20
_MANY_COLUMNS = 16
_MANY_PARTS = 64
# Heads of the figures of an exchange, in a narrow table.
_FIGURES = {
    "volume": "volume", "max_send": "max send", "max_recv": "max\nreceive", "sums": "partial\nsums",
    "messages": "messages", "imbalance": "imbalance",
}  # fmt: skip
_ROWS = ("volume", "max_send", "max_recv", "messages", "imbalance")
_MIXED = ("volume", "max_send", "max_recv", "sums", "imbalance")
_Facts = Mapping[str, Any]
_Lines = list[tuple[str, object]]


def describe_partition(partition: Partition, *, lists: bool = True) -> dict[str, object]:
    """All that is stored of a partition but the part vector, and the totals of its metrics.

    With ``lists``, the figures of every part are included.
    """
    hidden = {"parts"} if lists else {"parts", *EXCHANGED, "nodes", "history"}
    totals: dict[str, Mapping[Any, Metrics | NodeTraffic]] = {
        "summary": partition.metrics, "mixed_summary": partition.mixed,
        "by_relation_summary": partition.by_relation, "node_summary": partition.nodes,
    }  # fmt: skip
    facts = {f.name: getattr(partition, f.name) for f in fields(partition) if f.name not in hidden}
    return facts | {key: _summaries(figures) for key, figures in totals.items()}


def _summaries(figures: Mapping[Any, Metrics | NodeTraffic]) -> dict[str, dict[str, float]]:
    """The totals of figures, by direction."""
    return {direction: each.summary() for direction, each in figures.items()}


def describe_pairs(pairs: PairSet, graph: Graph | None = None) -> dict[str, object]:
    """All about a set of pairs but its arrays; how many are arcs, if their graph is given."""
    arrays = {"positives", "negatives", "candidates", "relations", "relation_names", "twins"}
    of = pairs.relations
    facts = {f.name: getattr(pairs, f.name) for f in fields(pairs) if f.name not in arrays}
    numbers = np.concatenate([[-1], *of.values()])
    facts |= {
        "kind": "pairs",
        "positives": {mask: len(found) for mask, found in pairs.positives.items()},
        "negatives": {mask: len(found) for mask, found in pairs.negatives.items()},
        "candidates": {mask: found.shape[1] for mask, found in pairs.candidates.items()},
        "relations": int(numbers.max()) + 1,
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
    own = ("name", "id", "made", "steps", "columns", "target_columns")
    return {key: getattr(samples, key) for key in own} | {
        "kind": "samples",
        "dtype": str(samples.states.dtype),
        "ranges": {mask: [[*one] for one in some] for mask, some in samples.ranges.items()},
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "unknown": (1 - counts.sum(axis=0) / max(1, samples.n * samples.steps)).tolist(),
    }


def describe_data(stored: StoredGraph) -> dict[str, object]:
    """The result of an import, to be held against what was meant: see the keys.

    ``ids`` has ``first`` and ``last``, as they are numbered; ``features`` ``columns``, ``min``,
    ``max`` and ``zeros`` (a share), ``targets`` the shares ``unknown`` and of ``ones`` among the
    others; ``classes`` their vertices by name; ``masks`` theirs, of the first split.
    """
    graph = stored.graph
    masks = of_split(graph, 0).masks
    found: dict[str, Any] = {
        "vertices": graph.n, "arcs": graph.nnz, "directed": stored.manifest.directed,
        "weights": None, "ids": None, "features": None, "labels": None, "targets": None,
        "classes": {}, "splits": graph.splits,
        "masks": {name: int(np.count_nonzero(mask)) for name, mask in masks.items()},
    }  # fmt: skip
    if graph.weights is not None and graph.nnz:
        found["weights"] = _range([graph.weights])
    if graph.ids is not None and graph.n:
        found["ids"] = {"first": graph.ids[0].item(), "last": graph.ids[-1].item()}
    if (x := graph.features) is not None and graph.n:
        if isinstance(x, SparseRows):
            entries, pieces, width = x.entries, [np.zeros(1), x.data], x.width
        else:  # a slice at a time
            width = x.shape[1]
            step = max(1, (1 << 24) // width)
            pieces = [x[start : start + step] for start in range(0, len(x), step)]
            entries = sum(int(np.count_nonzero(piece)) for piece in pieces)
        kept = "sparse" if isinstance(x, SparseRows) else "dense"
        zeros = 1 - entries / x.size
        found["features"] = {"columns": width, **_range(pieces), "zeros": zeros, "kept": kept}
    if graph.labels is not None:
        names = graph.class_names or tuple(map(str, range(graph.classes)))
        sizes = np.bincount(graph.labels[graph.labels != UNLABELLED], minlength=len(names))
        found["classes"] = dict(zip(names, sizes.tolist(), strict=False))
        found["labels"] = int(sizes.sum())
    if graph.targets is not None and graph.n:
        values = graph.targets[~np.isnan(graph.targets)]
        known = values if len(values) else np.zeros(1)
        found["targets"] = {
            "columns": graph.targets.shape[1], **_range([known]),
            "unknown": 1 - len(values) / graph.targets.size, "ones": float(np.mean(known == 1)),
        }  # fmt: skip
    return found


def _range(pieces: Sequence[np.ndarray]) -> dict[str, float]:
    """The least and the largest number in some arrays."""
    least, most = min(piece.min() for piece in pieces), max(piece.max() for piece in pieces)
    return {"min": float(least), "max": float(most)}


def degrees(graph: Graph) -> dict[str, object]:
    """Least, mean and largest number of arcs out of and into a vertex; loops; isolated vertices.

    A vertex is isolated if no arc joins it to another one.
    """
    out_degree, in_degree, looped = np.diff(graph.indptr), np.diff(arrivals(graph)), loops(graph)
    spread = {
        name: {"min": 0, "mean": 0.0, "max": 0} if not graph.n
        else {"min": int(of.min()), "mean": float(of.mean()), "max": int(of.max())}
        for name, of in (("out", out_degree), ("in", in_degree))
    }  # fmt: skip
    isolated = int((out_degree + in_degree == 2 * looped).sum())
    return {**spread, "self_loops": int(looped.sum()), "isolated": isolated}


def describe_schema(graph: Graph) -> dict[str, object]:
    """The types of a graph with their vertices, columns of features and labels, and its relations.

    Empty of a homogeneous graph.
    """
    types = graph.vertex_types
    if types is None or graph.arc_type is None:
        return {}
    widths, known = by_type(graph), known_rows(graph)
    arcs = np.zeros(len(graph.relations), np.int64)
    for start in range(0, graph.nnz, AT_ONCE):
        arcs += np.bincount(graph.arc_type[start : start + AT_ONCE], minlength=len(arcs))
    vertices = []
    for name in types.names:
        own = types.range(name)
        vertices.append({
            "name": name,
            "vertices": len(own),
            "features": widths[name].shape[1] if name in widths else 0,
            "labelled": 0 if known is None else int(known[own.start : own.stop].sum()),
        })  # fmt: skip
    relations = zip(graph.relations, arcs.tolist(), strict=True)
    return {
        "vertex_types": vertices,
        "relations": [one._asdict() | {"arcs": count} for one, count in relations],
    }


def _print(*what: Table | str) -> None:
    """Print on the standard output; wide enough for every table where it is not a terminal."""
    out = terminal.console(markup=False)
    if not out.is_terminal:
        out.width = 200
    for each in what:
        out.print(each)


def _table(
    title: str | None, heads: Iterable[str], rows: Iterable[Sequence[object]], **form: Any
) -> Table:
    """A table. The heads of columns of numbers begin with ">", those of broken text with "~"."""
    columns = [
        Column(head.lstrip("~>"), justify="right" if head[:1] == ">" else "left",
               no_wrap=head[:1] not in ("~", ">"), overflow="fold")
        for head in heads
    ]  # fmt: skip
    table = Table(*columns, title=title, title_justify="left", **form)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) else _number(cell) for cell in row))
    return table


def _facts(title: str, rows: Iterable[tuple[str, object]]) -> Table:
    """A table of names and what there is to say of each; without those with an empty text."""
    known = ((name.replace("_", " "), shown(_plain(fact))) for name, fact in rows if fact != "")
    return _table(title, ["", "~"], known, show_header=False)


def _number(value: Any) -> str:
    """A number as a cell shows it."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.4f}"


def _plain(value: Any) -> str:
    """A value of JSON as people read it; of a long list its first items."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
        case [int(start), int(stop)]:  # a range of steps
            return f"{start}:{stop}"
        case list() | tuple():
            more = ["…"] if len(value) > _MANY_COLUMNS else []
            return ", ".join([*map(_plain, value[:_MANY_COLUMNS]), *more]) or "-"
        case Mapping():
            return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "-"
    return str(value)


def show_list(
    partitions: Sequence[Partition], pairs: Sequence[_Facts] = (), samples: Sequence[_Facts] = ()
) -> None:
    """Print a line per partition, per set of pairs, and per set of samples."""
    lines: list[list[object]] = []
    for one in partitions:
        rows, mixed = one.metrics[one.direction], one.mixed.get(one.direction)
        lines.append([
            one.name, one.model, one.tool, one.direction, one.k, _plain(one.seed),
            rows.volume, max(rows.send_rows), f"{rows.imbalance:.4f}",
            *([mixed.volume, max(mixed.send_rows)] if mixed else "--"), f"{one.seconds:.2f}",
        ])  # fmt: skip
    if partitions or not (pairs or samples):
        _print(_table(None, [
            "name", "model", "tool", "direction", ">k", ">seed", ">volume", ">max send",
            ">imbalance", ">mixed\nvolume", ">mixed\nmax send", ">seconds",
        ], lines))  # fmt: skip
    of_masks = [f">{mask}" for mask in MASKS]
    if pairs:
        counted = all("arcs" in one for one in pairs)  # how many of the pairs are
        heads = ["pairs", "directed", *of_masks, *[">of them\narcs"] * counted]
        _print(_table(None, [*heads, "~negatives", "~candidates", "~made"], ([
            one["name"], _plain(one["directed"]), *(one["positives"][mask] for mask in MASKS),
            *([sum(one["arcs"].values())] if counted else []), _plain(one["negatives"]),
            _plain(one["candidates"] | ({"drawn": one["drawn"]} if one["drawn"] else {})),
            shown(one["made"]),
        ] for one in pairs)))  # fmt: skip
    if samples:
        heads = ["samples", ">steps", ">columns", ">targets", *of_masks, "~made"]
        _print(_table(None, heads, ([
            one["name"], one["steps"], one["columns"], one["target_columns"],
            *(sum(b - a for a, b in one["ranges"].get(mask, ())) for mask in MASKS),
            shown(one["made"]),
        ] for one in samples)))  # fmt: skip


def show_set(one: _Facts) -> None:
    """Print all about one set of pairs or of samples, for ``info``."""
    rows = ((key, value) for key, value in one.items() if key not in ("name", "kind"))
    _print(_facts(one["name"], rows))


def show_graph(stored: StoredGraph, partitions: Sequence[Partition], info: _Facts) -> None:
    """Print a graph, for ``info``, with its degrees, what it has by names, and its schema."""
    manifest, degree = stored.manifest, info["degrees"]
    j, i = ("j", "i") if manifest.direction == "in" else ("i", "j")
    _print(_facts(f"{manifest.name}  ({stored.path})", [
        ("id", manifest.id),
        *_arcs_of(manifest, {}),
        *((f"{way}-degree", "{min:,} … {max:,}, mean {mean:.2f}".format(**degree[way]))
          for way in ("out", "in")),
        ("isolated vertices", degree["isolated"]),
        ("self-loops", degree["self_loops"]),
        ("direction", f"{manifest.direction}: an arc j→i lets vertex {i} sum the row of {j}"),
        *_vertices_of(manifest, {}),
        *((f"source: {key}", value) for key, value in manifest.source.items()),
    ]), *_schema_tables(info.get("schema")))  # fmt: skip
    if not partitions:
        _print(f"no partitions yet: gcn-partition add {stored.path} --model hp -k 4")
    sets = info.get("pairs", ()), info.get("samples", ())
    if partitions or any(sets):
        show_list(partitions, *sets)


def show_data(path: Path, manifest: Manifest, data: _Facts) -> None:
    """Print the content of a graph folder after an import, for a check at a glance."""
    source, n = manifest.source, manifest.n
    facts: _Lines = []
    rules = {"keep": "kept", "drop": "dropped", "merge": "merged", "sum": "added up"}
    for key in ("self_loops", "duplicates"):
        found: Any = source.get(key)
        if isinstance(found, Mapping) and found.get("found"):
            rule = str(found["rule"])
            text = f"{found['found']:,} {key.replace('_', '-')} {rules.get(rule, rule)}"
            if found.get("differ") and rule == "merge":
                text += f", {found['differ']:,} with another weight: the first was kept; "
                text += "--duplicates sum adds them up"
            facts += [("", text)]
    facts += [("columns", source.get("columns", ""))]
    facts += [("comments", f"{source['comments']:,} lines")] if "comments" in source else []
    ids = f"0 to {n - 1:,}: row i is vertex i"
    if data["ids"]:
        ids = f"row 0 is vertex {data['ids']['first']}, row {n - 1:,} is {data['ids']['last']}"
    rows = [*_arcs_of(manifest, data), *facts, ("ids", ids), *_vertices_of(manifest, data)]
    if drawn := source.get("split"):
        rows += [("", f"drawn: {_plain(drawn)}")]
    _print(_facts(str(path), rows))


def _arcs_of(manifest: Manifest, data: _Facts) -> _Lines:
    """The vertices and arcs of a graph; ``data`` is of :func:`describe_data`, or empty."""
    lines: _Lines = [("vertices", manifest.n)]
    if manifest.vertex_types:
        of_types = ", ".join(f"{name} {size:,}" for name, size in manifest.vertex_types.items())
        count = len(manifest.relations)
        lines += [("", f"{of_types}; {count:,} relation{'s' if count != 1 else ''}")]
    kind = "directed" if manifest.directed else "undirected (both arcs of an edge are stored)"
    weights = f"weights{_span(data.get('weights'))}" if manifest.weighted else "no weights"
    parallel = ", parallel ones kept" if manifest.parallel else ""
    lines += [("arcs", f"{manifest.nnz:,}, {kind}, {weights}{parallel}")]
    return [*lines, ("data of arcs", _arc_data(manifest))]


def _vertices_of(manifest: Manifest, data: _Facts) -> _Lines:
    """The features, labels, targets and masks of a graph; ``data`` as for :func:`_arcs_of`."""
    of_types = ", ".join(f"{name} {width}" for name, width in manifest.type_features.items())
    features = f"columns of types: {of_types}" if of_types else "none"
    if columns := manifest.features:
        of, entries = data.get("features") or {}, manifest.feature_entries
        zeros = of.get("zeros", 1 - entries / max(1, manifest.n * columns) if entries else None)
        features = f"{columns:,} columns{_span(of)}" + (f", {zeros:.1%} zeros" if zeros else "")
        features += f", kept {'sparse' if entries else 'dense'}"
    names = [f"{name}: {size:,}" for name, size in data.get("classes", {}).items()]
    names = names or [*manifest.class_names]
    more = [f"{len(names) - _MANY_CLASSES:,} more"] if len(names) > _MANY_CLASSES else []
    named = f" ({', '.join([*names[:_MANY_CLASSES], *more])})" if names else ""
    lines: _Lines = [("features", features)]
    lines += [("classes", f"{manifest.classes:,}{named}" if manifest.classes else "none")]
    known = data.get("labels")
    if known is not None and known < manifest.n:
        lines += [("", f"{manifest.n - known:,} vertices without a label")]
    if manifest.targets:
        text = f"{manifest.targets:,} columns"
        if of := data.get("targets"):
            text += (
                f"{_span(of)}, {of['unknown']:.1%} unknown, {of['ones']:.1%} of the others are 1"
            )
        lines += [("targets", text)]
    sizes = [f"{name} {size:,}" for name, size in data.get("masks", {}).items()]
    masks = ", ".join(sizes or manifest.masks)
    if manifest.splits > 1:
        masks = f"{manifest.splits:,} splits, in the first: {masks}"
    none = "none: all with a label train" if manifest.classes or manifest.targets else "none"
    return [*lines, ("masks", masks or none)]


def _span(values: Mapping[str, float] | None) -> str:
    return f" from {values['min']:g} to {values['max']:g}" if values else ""


def _arc_data(manifest: Manifest) -> str:
    """Columns of the arcs, and the rule by which arcs of the source that became one gave theirs."""
    kinds = {
        "{:,} features": manifest.arc_features,
        "labels of {:,} classes": manifest.arc_classes,
        "{:,} numbers to learn": manifest.arc_targets,
        "masks {}": ", ".join(manifest.arc_masks),
    }
    said = ", ".join(text.format(found) for text, found in kinds.items() if found)
    if said and "arc_data" in manifest.source and not manifest.parallel:
        said += "; of arcs that became one, and of both ways of an edge, those of the first listed"
    return said


def _schema_tables(schema: _Facts | None) -> Iterator[Table]:
    """The types, and the relations, a row each; of many relations those with the most arcs."""
    if not schema:
        return
    rows = [
        (row["name"], row["vertices"], row["features"] or "none", row["labelled"])
        for row in schema["vertex_types"]
    ]
    yield _table("vertex types", ["type", ">vertices", ">features", ">labelled"], rows)
    found = schema["relations"]
    if len(found) > _MANY:
        found = sorted(found, key=lambda row: -row["arcs"])
    lines = [
        (*(shown(row[key]) for key in ("source", "name", "target")), row["arcs"])
        for row in found[:_MANY]
    ]
    if rest := found[_MANY:]:
        lines.append(("…", f"{len(rest):,} more", "…", sum(row["arcs"] for row in rest)))
    yield _table("relations", ["~source", "~relation", "~target", ">arcs"], lines)


def show_checks(findings: Sequence[Finding]) -> None:
    """Print the findings of ``check``: a row for each thing that was looked at."""
    rows = [(shown(finding.what), shown(finding.wrong or "in order")) for finding in findings]
    _print(_table(None, ["~checked", "~found"], rows, box=box.SIMPLE_HEAD))


def show_partition(partition: Partition) -> None:
    """Print all about one partition, for ``info``."""
    first = ("k", "model", "tool", "tool_version", "direction", "seed", "imbalance", "options")
    facts: _Lines = [(key, getattr(partition, key)) for key in (*first, "deterministic")]
    facts += [("seconds", f"{partition.seconds:.2f}")]
    _print(_facts(partition.name, [*facts, ("id", partition.id), ("graph_id", partition.graph_id)]))
    _show_totals(partition.metrics, "one exchange, by direction of M")
    _show_totals(partition.mixed, "one mixed exchange")
    _show_totals(partition.by_relation, "one mixed exchange, means by relation")
    if partition.history:
        show_history(partition.history)
    for traffic in [*partition.nodes.values()][:1]:
        _show_totals(partition.nodes, f"on nodes of {traffic.ranks_per_node} ranks")
    exchanges = {"per part": partition.metrics, "per part, mixed exchange": partition.mixed}
    for title, by_direction in exchanges.items():
        if figures := by_direction.get(partition.direction):
            lists = {key: found for key, found in vars(figures).items() if isinstance(found, list)}
            lists |= figures.types or {}
            heads = [">part", *(f">{key.replace('_', ' ')}" for key in lists)]
            rows = [(part, *of) for part, of in enumerate(zip(*lists.values(), strict=True))]
            title = f"{title}, direction {partition.direction}"
            _print(_table(title, heads, rows[:_MANY_PARTS]))
    if partition.k > _MANY_PARTS:
        _print(f"… and {partition.k - _MANY_PARTS} more parts (--json has them all)")


def _show_totals(by_direction: Mapping[Any, Metrics | NodeTraffic], title: str) -> None:
    figures = _summaries(by_direction)
    for one in [*figures.values()][:1]:
        rows = [(key.replace("_", " "), *(of[key] for of in figures.values())) for key in one]
        _print(_table(title, ["", *(f">{direction}" for direction in figures)], rows))


def show_history(rows: Sequence[_Facts]) -> None:
    """The steps that led to a partition, or what was tried: a line each, with what changed."""
    tried = any("chosen" in row for row in rows)
    direction = next((row["direction"] for row in rows if "direction" in row), "")
    mixed = "mixed " if any(row.get("exchange") == "mixed" for row in rows) else ""
    figures = [f">{_FIGURES[key]}".replace("\n", " ") for key in _ROWS]
    heads = ["tried" if tried else "step", ">seconds", *figures]
    heads += [">predicted µs", "~"] if tried else []
    lines = []
    for i, row in enumerate(rows):
        known = "volume" in row
        cells = [_number(row[key]) if known else "-" for key in _ROWS]
        if i and known and not tried:  # what changed since the first step, but for the imbalance
            for place, key in enumerate(_ROWS[:-1]):
                if before := rows[0].get(key):
                    cells[place] += f" ({100 * (row[key] / before - 1):+.1f} %)"
        if tried:
            note = row["note"] + (" ← kept" if row["chosen"] else "")
            cells += [f"{1e6 * row['predicted']:,.1f}" if known else "-", note.strip()]
        lines.append([row["step"], f"{row['seconds']:.1f}" if row["seconds"] else "-", *cells])
    _print(_table(f"one {mixed}exchange, direction {direction}", heads, lines))


def show_comparison(rows: Sequence[_Facts]) -> None:
    """Print the figures that decide a comparison, in 100 columns; JSON has them all."""
    mapped = any(row["nodes"] for row in rows)
    keys = [key for key in _ROWS if not mapped or key != "max_recv"]
    lines, of_mixed = [], []
    for row in rows:
        ends: list[object] = [f"{row['seconds']:.1f}"]
        if mapped:
            ends.insert(0, row["nodes"]["inter_volume"] if row["nodes"] else "-")
        lines.append([*_compared(row, row, row["relative"], keys), *ends])
        of_mixed.append(_compared(row, row["mixed"], row["mixed_relative"], _MIXED))
    ratios = "(ratio to random rows"
    titles = {
        f"rows and messages of one exchange, direction {rows[0]['direction']} {ratios})":
            (keys, lines, [*[">between\nnodes"] * mapped, ">seconds"]),
        f"the same in a mixed exchange {ratios}, sent as rows)": (_MIXED, of_mixed, []),
    }  # fmt: skip
    for title, (figures, cells, more) in titles.items():
        heads = ["name", ">k", *(f">{_FIGURES[key]}" for key in figures), *more]
        if cells is lines or any(row["mixed"] for row in rows):
            form = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": cells is lines}
            _print(_table(title, heads, cells, **form))
    for k, baseline in sorted({(row["k"], row["baseline"]) for row in rows}):
        _print(f"ratios for k = {k}: to {baseline}")


def _compared(
    row: _Facts, figures: _Facts | None, relative: Mapping[str, float | None], keys: Sequence[str]
) -> list[object]:
    """The cells of a partition: figures, those that decide with their ratios to random rows."""
    cells: list[object] = [row["name"], row["k"]]
    for key in keys:
        ratio = relative.get(key)
        text = "-" if figures is None else _number(figures[key])
        if figures is not None and key in ("volume", "max_send"):
            text += " (-)" if ratio is None else f" ({ratio:.3f})"
        cells.append(text)
    return cells


def show_simulation(facts: _Facts) -> None:
    """Print for each partition the distribution of the volumes of batches."""
    fanouts = f", fan-outs {','.join(map(str, facts['fanouts']))}" if facts["fanouts"] else ""
    entries = "arcs" if facts["relations"] else "entries of M"
    spread = ">mean", ">sd", ">min", ">5%", ">median", ">95%", ">max", ">volume, relative"
    title = (
        f"rows and messages of one mini-batch, direction {facts['direction']}: "
        f"{facts['batches']:,} batches of {facts['batch']:,} vertices, sampler "
        f"{facts['sampler']}{fanouts}, {facts['entries']:,.0f} {entries} on average"
    )
    lines = []
    for row in facts["partitions"]:
        ratio, error = row["relative_volume"], row["relative_error"]
        relative = "-" if ratio is None else f"{ratio:.4f}"
        relative += "" if error is None else f" ± {error:.4f}"
        named = [row["name"], row["k"], relative]
        for key, figures in row.items():
            if isinstance(figures, Mapping):
                name, k, last = named if key == "volume" else ["", "", ""]
                cells = [f"{value:,.1f}" for value in figures.values()]
                lines.append([name, k, key.replace("_", " "), *cells, last])
    _print(_table(title, ["name", ">k", "", *spread], lines))


def show_models(rows: Sequence[_Facts]) -> None:
    """Print models, their tools, and the options of the tools."""
    lines = []
    for row in rows:
        options = [
            f"{name}={option['default']}: {option['help']}"
            + (f" ({' | '.join(option['choices'])})" if option["choices"] else "")
            for name, option in row["options"].items()
        ]
        text = row["missing"] or "\n".join(options)
        lines.append([row["model"], row["help"], row["tool"], text])
    heads = ["~model", "~describes", "~tool", "~options (--set NAME=VALUE)"]
    _print(_table(None, heads, lines))
