"""Folders of OGB with several types of vertices, such as ogbn-mag, as they are downloaded.

``raw/num-node-dict.csv.gz triplet-type-list.csv.gz``, ``raw/relations/A___NAME___B/edge.csv.gz``,
``raw/node-feat/TYPE/node-feat.csv.gz``, ``raw/node-label/TYPE/node-label.csv.gz``, and
``split/NAME/TYPE/train.csv.gz valid.csv.gz test.csv.gz``, lists of vertices of a type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.relations import Relation
from partition.importing.readers import TRIPLETS, Layout
from partition.importing.readers.blocks import text_blocks
from partition.importing.readers.edge_list import arc_table
from partition.importing.readers.files import check_file, check_inside, read_errors
from partition.importing.readers.ogb import (
    ARCS,
    SPLITS,
    filled,
    number_rows,
    only_split,
    whole_numbers,
)
from partition.importing.readers.text import lines_of, words_of
from partition.importing.readers.typed_source import RelationArcs, TypedSource, checked

UNREAD = ("edge_reltype", "node_year")


def read(path: Path, layout: Layout) -> TypedSource:
    """Read the graph of a folder with ``raw/`` and ``split/``; no arcs are added.

    A UserError if a file is missing or damaged, or does not fit the others.
    """
    raw = path / "raw"
    names, counts = _lines(raw / "num-node-dict.csv.gz", 2)
    if len(names) != len(counts) or not all(word.isdecimal() for word in counts):
        raise UserError(f"{raw}/num-node-dict.csv.gz does not have a number for each vertex type")
    sizes = dict(zip(names, map(int, counts), strict=True))
    relations = sorted(Relation(*words[:3]) for words in _lines(raw / TRIPLETS))
    arcs = []
    for relation in relations:
        if not {relation.source, relation.target} <= sizes.keys():
            raise UserError(f"{raw}/{TRIPLETS}: {relation} is not of the types {', '.join(names)}")
        arcs.append(RelationArcs(relation, *_ends(raw / "relations" / "___".join(relation))))
    found: dict[str, Any] = {"features": {}, "labels": {}, "targets": {}}
    for name, n in sizes.items():
        features = _numbers(raw / "node-feat" / name / "node-feat.csv.gz", n, np.float32)
        if features is not None and features.shape[1]:
            found["features"][name] = features
        labels = _numbers(raw / "node-label" / name / "node-label.csv.gz", n, np.float64)
        if labels is not None:
            kind, values = _labels(labels)
            found[kind][name] = values
    there = {file.name.split(".")[0] for file in raw.rglob("*.csv.gz")}
    unread = [name for name in UNREAD if name in there]
    notes = {"columns": f"not read: {', '.join(unread)}"} if unread else {}
    masks = _masks(path, sizes)
    source = TypedSource(sizes, arcs, masks=masks, format="ogb-hetero", notes=notes, **found)
    return checked(source, str(path))


def _lines(file: Path, count: int | None = None) -> list[list[str]]:
    """The words of each line of a short file; a UserError unless there are ``count`` lines."""
    check_file(file)
    with read_errors(file):
        lines = [
            words_of(line, ",")
            for first, block in text_blocks(file)
            for _, line in lines_of(first, block)
        ]
    if (count is not None and len(lines) != count) or any(len(w) < 3 for w in lines * (not count)):
        raise UserError(f"{file} does not hold what such a file of OGB does")
    return lines


def _ends(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of a relation; none where the file is empty."""
    file = folder / "edge.csv.gz"
    check_file(file)
    with read_errors(file):
        pieces = [np.stack(pair) for pair in arc_table(file, ARCS).pieces(lambda at: None)]
    source, target = np.concatenate([np.empty((2, 0), np.int64), *pieces], axis=1)
    return source, target


def _numbers(file: Path, n: int, dtype: type) -> np.ndarray | None:
    """(n, c) numbers of the vertices of a type; None where there is no file."""
    if not file.exists() or not n:
        return None
    with read_errors(file):
        return filled(
            number_rows(file), str(file), n, dtype, lambda name, *form: np.empty(*form), "node"
        )


def _labels(labels: np.ndarray) -> tuple[str, np.ndarray]:
    """Whole numbers in one column are classes, −1 for none; others are targets."""
    known = ~np.isnan(labels)
    if labels.shape[1] == 1 and (labels[known] == np.floor(labels[known])).all():
        return "labels", np.where(known, labels, -1)[:, 0].astype(np.int64)
    return "targets", labels


def _masks(path: Path, sizes: dict[str, int]) -> dict[str, dict[str, np.ndarray]]:
    """The masks of the only split, of the types that have some."""
    name = only_split(path)
    masks: dict[str, dict[str, np.ndarray]] = {}
    for theirs, ours in SPLITS.items():
        for kind, n in sizes.items():
            file = path / "split" / name / kind / f"{theirs}.csv.gz"
            if name and file.exists():
                with read_errors(file):
                    vertices = whole_numbers(file)
                check_inside(vertices, n, file)
                mask = np.zeros(n, bool)
                mask[vertices] = True
                masks.setdefault(ours, {})[kind] = mask
    return masks
