"""Tables of what a graph folder has by names: partitions, sets of pairs, sets of samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from partition.errors import shown
from partition.graph.graph import MASKS
from partition.graph.store import Partition
from partition.reporting.cells import console, facts_table, names, number, numbers, plain

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
