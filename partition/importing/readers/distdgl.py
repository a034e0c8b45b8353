"""Partitioned graphs of DistDGL and GraphStorm: a description in JSON, and a folder for each part.

Vertices are numbered as there: those of a part follow each other. So the description is also a
partition of the graph, see :func:`parts_of`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers import Layout, Source
from partition.importing.readers.dgl_bin import as_source, read_dgl, read_tensors
from partition.importing.readers.files import check_file
from partition.records import Json, open_regular
from partition.resident import check_memory

LONGEST = 1 << 26  # bytes of a description


def read(path: Path, layout: Layout) -> Source:
    """Put the parts of a graph together: arcs, and the data of the vertices.

    ``path`` is the folder, or the JSON file in it. A UserError if vertices or arcs are of several
    types, or a file is missing, damaged, or does not fit the others.
    """
    file = _description(path)
    facts = _read(file)
    starts = _starts(facts, file)
    n = int(starts[-1])
    ends: list[np.ndarray] = []
    found: dict[str, list[np.ndarray]] = {}
    for part, (first, last) in enumerate(pairwise(starts.tolist())):
        files = facts.get(f"part-{part}")
        if not isinstance(files, dict):
            raise UserError(f"{file} does not name the files of part {part}")
        graph = read_dgl(_file(file, files, "part_graph"))
        names, inner = graph.vertex_data.get("_ID"), graph.arc_data.get("inner_edge")
        listed = names is not None and names.shape == (graph.n,) and names.dtype.kind in "iu"
        if not listed or inner is None or inner.shape != graph.source.shape:
            raise UserError(f"{file}: the graph of part {part} does not say which arcs are its own")
        assert names is not None
        own = inner.astype(bool)
        ends.append(np.stack([names[graph.source[own]], names[graph.target[own]]]))
        if "node_feats" in files:
            for name, array in read_tensors(_file(file, files, "node_feats")).items():
                if not array.ndim or len(array) != last - first:
                    rows = f"not of {last - first} rows"
                    raise UserError(f"{file}: {name} of part {part} is {array.shape}, {rows}")
                found.setdefault(name.split("/", 1)[-1], []).append(array)
    short = [name for name, arrays in found.items() if len(arrays) < len(starts) - 1]
    if short:
        raise UserError(f"{file}: not all parts have {short[0]}")
    try:
        vertex_data = {name: np.concatenate(arrays) for name, arrays in found.items()}
    except ValueError as error:
        raise UserError(f"{file}: the parts do not fit each other: {error}") from error
    return as_source(n, np.concatenate(ends, axis=1), vertex_data, {}, str(file), "distdgl", layout)


def parts_of(path: Path, n: int) -> tuple[np.ndarray, int]:
    """The part of each vertex of a graph of n vertices, (n,) int32, and the number of parts."""
    starts = _starts(_read(path), path)
    if starts[-1] != n:
        raise UserError(f"{path} describes {starts[-1]} vertices, the graph has {n}")
    k = len(starts) - 1
    return np.repeat(np.arange(k, dtype=np.int32), np.diff(starts)), k


def _description(path: Path) -> Path:
    if not path.is_dir():
        check_file(path)
        return path
    files = sorted(path.glob("*.json"))
    if len(files) != 1:
        raise UserError(
            f"{path} holds {len(files)} descriptions: it is not clear which to read",
            f"give the file: {path}/NAME.json",
        )
    return files[0]


def _read(file: Path) -> dict[str, Json]:
    try:
        with open_regular(file) as stream:
            facts = json.loads(stream.read(LONGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    if not isinstance(facts, dict) or "node_map" not in facts:
        raise UserError(f"{file} does not describe a partitioned graph of DistDGL")
    return facts


def _starts(facts: dict[str, Json], file: Path) -> np.ndarray:
    """The first vertex of each part, and the number of all: (parts + 1,) int64."""
    node_map, etypes = facts["node_map"], facts.get("etypes", {})
    if not isinstance(node_map, dict) or not isinstance(etypes, dict):
        raise UserError(f"{file} is damaged: it lists no ranges of vertices", "partition it again")
    if len(node_map) != 1 or len(etypes) > 1:
        raise UserError(f"{file} describes a graph with vertices or arcs of several types")
    ranges = next(iter(node_map.values()))
    pairs = isinstance(ranges, list) and all(
        isinstance(pair, list) and [type(end) for end in pair] == [int, int] for pair in ranges
    )
    spans = np.array(ranges if pairs else [], object).reshape(-1, 2)
    firsts = [0, *spans[:, 1].tolist()]
    if not len(spans) or spans[:, 0].tolist() != firsts[:-1]:
        raise UserError(f"{file} is damaged: ranges of vertices do not follow each other")
    if firsts != sorted(firsts) or not 0 < firsts[-1] < 2**62:
        raise UserError(f"{file} is damaged: ranges of vertices do not rise")
    check_memory(16 * firsts[-1], f"{file}: {firsts[-1]} vertices")
    return np.array(firsts, np.int64)


def _file(description: Path, files: dict[str, Json], name: str) -> Path:
    inside = files.get(name)
    if not isinstance(inside, str):
        raise UserError(f"{description} does not name a file {name}")
    path = description.parent / inside
    check_file(path)
    return path
