"""Cells and columns of the tables that the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Column, Table

from partition import terminal
from partition.errors import shown
from partition.graph.metrics import Metrics, NodeTraffic
from partition.graph.store import Manifest, Partition, StoredGraph
from partition.pipeline.checking import Finding
from partition.reporting.describe import (
    console,
    facts_table,
    names,
    number,
    numbers,
    plain,
    show_list,
    summaries,
    titled,
)

MANY_PARTS = 64


def show_graph(
    stored: StoredGraph,
    degree: Mapping[str, Any],
    partitions: Sequence[Partition],
    sets: Sequence[Mapping[str, Any]],
    schema: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Print a graph, for ``info``, with its degrees, what it has by names, and its schema."""
    manifest = stored.manifest
    table = facts_table(f"{manifest.name}  ({stored.path})")
    table.add_row("id", manifest.id)
    table.add_row("vertices", f"{manifest.n:,}")
    kind = "directed" if manifest.directed else "undirected (both arcs of an edge are stored)"
    weights = "weighted" if manifest.weighted else "no weights"
    parallel = ", parallel ones kept" if manifest.parallel else ""
    table.add_row("arcs", f"{manifest.nnz:,}, {kind}, {weights}{parallel}")
    if of_arcs := _arc_data(manifest):
        table.add_row("data of arcs", of_arcs)
    for name in ("out", "in"):
        spread = degree[name]
        text = f"{spread['min']:,} … {spread['max']:,}, mean {spread['mean']:.2f}"
        table.add_row(f"{name}-degree", text)
    table.add_row("isolated vertices", f"{degree['isolated']:,}")
    table.add_row("self-loops", f"{degree['self_loops']:,}")
    table.add_row("direction", f"{manifest.direction}: {DIRECTION_TEXT[manifest.direction]}")
    table.add_row("features", "of types" if manifest.type_features else _features(manifest))
    names = ", ".join(map(shown, manifest.class_names[:MANY_CLASSES]))
    more = ", …" if len(manifest.class_names) > MANY_CLASSES else ""
    named = f" ({names}{more})" if names else ""
    table.add_row("labels", f"{manifest.classes:,} classes{named}" if manifest.classes else "none")
    table.add_row("targets", f"{manifest.targets:,} columns" if manifest.targets else "none")
    splits = f"; {manifest.splits:,} splits" if manifest.splits > 1 else ""
    table.add_row("masks", (", ".join(manifest.masks) or "none") + splits)
    for key, value in manifest.source.items():
        table.add_row(f"source: {key.replace('_', ' ')}", plain(value))
    out = console()
    out.print(table)
    for each in schema_tables(schema):
        out.print(each)
    if not partitions:
        out.print(f"no partitions yet: gcn-partition add {stored.path} --model hp -k 4")
    if partitions or sets or samples:
        show_list(partitions, sets, samples)


def _arc_data(manifest: Manifest) -> str:
    """Columns of the arcs, and the rule by which arcs of the source that became one gave theirs."""
    said = [f"{manifest.arc_features:,} features"] if manifest.arc_features else []
    said += [f"labels of {manifest.arc_classes:,} classes"] if manifest.arc_classes else []
    said += [f"{manifest.arc_targets:,} numbers to learn"] if manifest.arc_targets else []
    said += [f"masks {', '.join(manifest.arc_masks)}"] if manifest.arc_masks else []
    rule = ""
    if said and "arc_data" in manifest.source and not manifest.parallel:
        rule = "; of arcs that became one, and of both ways of an edge, those of the first listed"
    return ", ".join(said) + rule


def _features(manifest: Manifest) -> str:
    """How many columns, and how they are kept."""
    if not manifest.features:
        return "none"
    if not manifest.feature_entries:
        return f"{manifest.features:,} columns, kept dense"
    share = manifest.feature_entries / max(1, manifest.n * manifest.features)
    return f"{manifest.features:,} columns, kept sparse: {share:.2%} are not 0"


def show_checks(findings: Sequence[Finding]) -> None:
    """Print the findings of ``check``: a row for each thing that was looked at."""
    table = Table("checked", "found", box=box.SIMPLE_HEAD)
    for finding in findings:
        table.add_row(shown(finding.what), shown(finding.wrong or "in order"))
    console().print(table)


def show_data(path: Path, manifest: Manifest, data: Mapping[str, Any]) -> None:
    """Print the content of a graph folder after an import, for a check at a glance."""
    table = facts_table(str(path))
    table.add_row("vertices", f"{data['vertices']:,}")
    if manifest.vertex_types:
        of_types = ", ".join(f"{name} {n:,}" for name, n in manifest.vertex_types.items())
        count = len(manifest.relations)
        table.add_row("", f"{of_types}; {count:,} relation{'s' if count != 1 else ''}")
    kind = "directed" if data["directed"] else "undirected"
    table.add_row("arcs", f"{data['arcs']:,}, {kind}{_span(', weights', data['weights'])}")
    for key in ("self_loops", "duplicates"):
        found = manifest.source.get(key)
        if isinstance(found, Mapping) and found.get("found"):
            rule = RULES.get(found["rule"], found["rule"])
            table.add_row("", f"{found['found']:,} {key.replace('_', '-')} {rule}{_other(found)}")
    if of_arcs := _arc_data(manifest):
        table.add_row("data of arcs", of_arcs)
    if "columns" in manifest.source:
        table.add_row("columns", shown(str(manifest.source["columns"])))
    if "comments" in manifest.source:
        table.add_row("comments", f"{manifest.source['comments']:,} lines")
    if data["ids"]:
        first, last = (shown(str(data["ids"][key])) for key in ("first", "last"))
        table.add_row("ids", f"row 0 is vertex {first}, row {data['vertices'] - 1:,} is {last}")
    else:
        table.add_row("ids", f"0 to {data['vertices'] - 1:,}: row i is vertex i")
    features = data["features"]
    widths = ", ".join(f"{name} {width}" for name, width in manifest.type_features.items())
    text = f"columns of types: {widths}" if widths else "none"
    if features:
        text = f"{features['columns']:,} columns{_span(',', features)}, "
        text += f"{features['zeros']:.1%} zeros, kept {features['kept']}"
    table.add_row("features", text)
    sizes = [f"{shown(name)}: {size:,}" for name, size in data["classes"].items()]
    more = f" and {len(sizes) - MANY_CLASSES:,} more" if len(sizes) > MANY_CLASSES else ""
    classes = f"{len(sizes):,} ({', '.join(sizes[:MANY_CLASSES])}{more})" if sizes else "none"
    table.add_row("classes", classes)
    if data["labels"] is not None and data["labels"] < data["vertices"]:
        table.add_row("", f"{data['vertices'] - data['labels']:,} vertices without a label")
    targets = data["targets"]
    if targets:
        text = f"{targets['columns']:,} columns{_span(',', targets)}, "
        text += f"{targets['unknown']:.1%} unknown, {targets['ones']:.1%} of the others are 1"
        table.add_row("targets", text)
    masks = ", ".join(f"{name} {count:,}" for name, count in data["masks"].items())
    if data["splits"] > 1:
        masks = f"{data['splits']:,} splits, in the first: {masks}"
    if drawn := manifest.source.get("split"):
        masks += f" (drawn: {shown(plain(drawn))})"
    none = "none: all with a label train" if sizes or targets else "none"
    table.add_row("masks", masks or none)
    console().print(table)


def _other(found: Mapping[str, object]) -> str:
    """How duplicates with other weights were settled."""
    if not found.get("differ") or found["rule"] != "merge":
        return ""
    return (
        f", {found['differ']:,} with another weight: the first was kept; --duplicates sum adds "
        "them up"
    )


RULES = {"keep": "kept", "drop": "dropped", "merge": "merged", "sum": "added up"}
MANY_CLASSES = 20


def _span(before: str, values: Mapping[str, float] | None) -> str:
    return f"{before} from {values['min']:g} to {values['max']:g}" if values else ""


def show_partition(partition: Partition) -> None:
    """Print all about one partition, for ``info``."""
    table = facts_table(partition.name)
    for key in (
        "k", "model", "tool", "tool_version", "direction", "seed", "imbalance", "options",
        "deterministic",
    ):  # fmt: skip
        table.add_row(key.replace("_", " "), plain(getattr(partition, key)))
    table.add_row("seconds", f"{partition.seconds:.2f}")
    table.add_row("id", partition.id)
    table.add_row("graph id", partition.graph_id)
    out = console()
    out.print(table)

    _show_totals(out, partition.metrics, "one exchange, by direction of M")
    if partition.mixed:
        _show_totals(out, partition.mixed, "one mixed exchange")
    if partition.by_relation:
        _show_totals(out, partition.by_relation, "one mixed exchange, means by relation")

    if partition.history:
        show_history(partition.history)
    if partition.nodes:
        per_node = next(iter(partition.nodes.values())).ranks_per_node
        _show_totals(out, partition.nodes, f"on nodes of {per_node} ranks")

    direction = partition.direction
    exchanges = {"per part": partition.metrics, "per part, mixed exchange": partition.mixed}
    for title, by_direction in exchanges.items():
        if direction not in by_direction:
            continue
        figures = vars(by_direction[direction])
        lists = {key: value for key, value in figures.items() if isinstance(value, list)}
        lists |= by_direction[direction].types or {}
        heads = numbers("part", *(key.replace("_", " ") for key in lists))
        parts = titled(f"{title}, direction {direction}", *heads)
        for part in range(min(partition.k, MANY_PARTS)):
            parts.add_row(str(part), *(f"{counts[part]:,}" for counts in lists.values()))
        out.print(parts)
    if partition.k > MANY_PARTS:
        out.print(f"… and {partition.k - MANY_PARTS} more parts (--json has them all)")


def _show_totals(
    out: terminal.Console, by_direction: Mapping[str, Metrics | NodeTraffic], title: str
) -> None:
    figures = summaries(by_direction)
    totals = titled(title, "", *numbers(*figures))
    for key in next(iter(figures.values()), ()):
        row = [number(values[key]) for values in figures.values()]
        totals.add_row(key.replace("_", " "), *row)
    out.print(totals)


def show_history(rows: Sequence[Mapping[str, Any]]) -> None:
    """The steps that led to a partition, or what was tried: a line each, with what changed."""
    tried = any("chosen" in row for row in rows)
    direction = next((row["direction"] for row in rows if "direction" in row), "")
    mixed = "mixed " if any(row.get("exchange") == "mixed" for row in rows) else ""
    heads = *names("tried" if tried else "step"), *numbers("seconds", *STEPS.values())
    more = [*numbers("predicted µs"), Column("")] if tried else []
    table = titled(f"one {mixed}exchange, direction {direction}", *heads, *more)
    for i, row in enumerate(rows):
        known = "volume" in row
        seconds = f"{row['seconds']:.1f}" if row["seconds"] else "-"
        before = rows[0] if i and not tried else {}
        cells = [_with_change(row[key], before.get(key)) if known else "-" for key in STEPS]
        if tried:
            note = row["note"] + (" ← kept" if row["chosen"] else "")
            cells += [f"{1e6 * row['predicted']:,.1f}" if known else "-", note.strip()]
        table.add_row(row["step"], seconds, *cells)
    console().print(table)


def show_comparison(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures that decide a comparison, in 100 columns; JSON has them all."""
    direction = rows[0]["direction"]
    mapped = any(row["nodes"] for row in rows)
    shown = {key: title for key, title in COMPARED.items() if not mapped or key != "max_recv"}
    heads = "k", *shown.values(), *["between\nnodes"] * mapped, "seconds"
    title = f"rows and messages of one exchange, direction {direction} (ratio to random rows)"
    table = titled(title, *names("name"), *numbers(*heads), collapse_padding=True, **OPEN)
    for row in rows:
        cells = _compared(row, row["relative"], shown)
        if mapped:
            cells.append(number(row["nodes"]["inter_volume"]) if row["nodes"] else "-")
        table.add_row(row["name"], str(row["k"]), *cells, f"{row['seconds']:.1f}")
    out = console()
    out.print(table)
    if any(row["mixed"] for row in rows):
        out.print(_mixed_comparison(rows))
    for k, baseline in sorted({(row["k"], row["baseline"]) for row in rows}):
        out.print(f"ratios for k = {k}: to {baseline}")


def _mixed_comparison(rows: Sequence[Mapping[str, Any]]) -> Table:
    title = "the same in a mixed exchange (ratio to random rows, sent as rows)"
    table = titled(title, *names("name"), *numbers("k", *MIXED.values()), **OPEN)
    for row in rows:
        known = row["mixed"]
        cells = _compared(known, row["mixed_relative"], MIXED) if known else ["-"] * len(MIXED)
        table.add_row(row["name"], str(row["k"]), *cells)
    return table


def show_simulation(facts: Mapping[str, Any]) -> None:
    """Print for each partition the distribution of the volumes of batches."""
    fanouts = f", fan-outs {','.join(map(str, facts['fanouts']))}" if facts["fanouts"] else ""
    entries = "arcs" if facts["relations"] else "entries of M"
    spread = "mean", "sd", "min", "5%", "median", "95%", "max", "volume, relative"
    title = (
        f"rows and messages of one mini-batch, direction {facts['direction']}: "
        f"{facts['batches']:,} batches of {facts['batch']:,} vertices, sampler "
        f"{facts['sampler']}{fanouts}, {facts['entries']:,.0f} {entries} on average"
    )
    table = titled(title, *names("name"), *numbers("k"), "", *numbers(*spread))
    for row in facts["partitions"]:
        ratio, error = row["relative_volume"], row["relative_error"]
        relative = "-" if ratio is None else f"{ratio:.4f}"
        relative += "" if error is None else f" ± {error:.4f}"
        for key, figures in row.items():
            if isinstance(figures, Mapping):
                first = key == "volume"
                table.add_row(
                    row["name"] if first else "", str(row["k"]) if first else "",
                    key.replace("_", " "), *(f"{value:,.1f}" for value in figures.values()),
                    relative if first else "",
                )  # fmt: skip
    console().print(table)


def show_models(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print models, their tools, and the options of the tools."""
    table = Table("model", "describes", "tool", "options (--set NAME=VALUE)")
    for row in rows:
        options = "\n".join(
            f"{name}={option['default']}: {option['help']}"
            + (f" ({' | '.join(option['choices'])})" if option["choices"] else "")
            for name, option in row["options"].items()
        )
        table.add_row(row["model"], row["help"], row["tool"], row["missing"] or options)
    console().print(table)


DIRECTION_TEXT = {
    "in": "an arc j→i lets vertex i sum the row of j",
    "out": "an arc j→i lets vertex j sum the row of i",
}

ROWS = {"volume": "volume", "max_send": "max send", "max_recv": "max\nreceive"}
COMPARED = ROWS | {"messages": "messages", "imbalance": "imbalance"}
MIXED = ROWS | {"sums": "partial\nsums", "imbalance": "imbalance"}
STEPS = COMPARED | {"max_recv": "max receive"}
WITH_RATIO = ("volume", "max_send")
OPEN: dict[str, object] = {"box": box.SIMPLE_HEAD, "pad_edge": False}


def _compared(
    row: Mapping[str, Any], relative: Mapping[str, float | None], keys: Iterable[str]
) -> list[str]:
    """Figures, those that decide with their ratios to random rows."""
    return [
        _with_ratio(row[key], relative[key]) if key in WITH_RATIO else number(row[key])
        for key in keys
    ]


def _with_ratio(value: float, ratio: float | None) -> str:
    return f"{number(value)} ({'-' if ratio is None else f'{ratio:.3f}'})"


def _with_change(value: float, before: float | None) -> str:
    if not before or isinstance(value, float):
        return number(value)
    return f"{number(value)} ({100 * (value / before - 1):+.1f} %)"


MANY = 40  # relations in a table


def schema_tables(schema: Mapping[str, Any]) -> list[Table]:
    """The types, and the relations, a row each; of many relations those with the most arcs."""
    if not schema:
        return []
    right = [Column(head, justify="right") for head in ("vertices", "features", "labelled")]
    types = Table("type", *right, title="vertex types", title_justify="left")
    for row in schema["vertex_types"]:
        columns = f"{row['features']:,}" if row["features"] else "none"
        types.add_row(row["name"], f"{row['vertices']:,}", columns, f"{row['labelled']:,}")
    found = schema["relations"]
    if len(found) > MANY:
        found = sorted(found, key=lambda row: -row["arcs"])
    heads = [Column(head) for head in ("source", "relation", "target")]
    relations = Table(
        *heads, Column("arcs", justify="right"), title="relations", title_justify="left"
    )
    for row in found[:MANY]:
        words = (shown(row[key]) for key in ("source", "name", "target"))
        relations.add_row(*words, f"{row['arcs']:,}")
    if rest := found[MANY:]:
        relations.add_row("…", f"{len(rest):,} more", "…", f"{sum(row['arcs'] for row in rest):,}")
    return [types, relations]
