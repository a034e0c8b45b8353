"""Graphs of METIS, also of ParMETIS, KaHIP, KaMinPar, Chaco and the DIMACS challenge (.graph).

The first line is ``n m [fmt [ncon]]``; line i after it has the size of vertex i, its weights and
its neighbours from 1 on, each with a weight, as the three digits of fmt say. Each edge stands in
the lines of both its ends. Lines that begin with % are comments, an empty line is a vertex without
neighbours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.graph import index_dtype
from partition.importing.readers.files import content_limit
from partition.importing.readers.sizes import Lines, metis_width, number_lines
from partition.importing.readers.source import Layout, Source
from partition.resident import check_memory


def read(path: Path, layout: Layout) -> Source:
    """Read a graph of METIS: two arcs an edge, with weights where it has some.

    Sizes and weights of vertices are left out, which the notes say. A UserError names the line that
    is wrong: of a vertex that is not there or that is its own neighbour, or of an edge that stands
    in the line of one end only, or with two weights.
    """
    head, lines = _read_lines(path)
    width = metis_width(head)
    if width is None:
        raise UserError(
            f"{path}: the first line is not 'n m [fmt [ncon]]', but {' '.join(map(str, head))}",
            "fmt is of three digits 0 or 1: sizes, weights of vertices, weights of edges",
        )
    (before, each), (n, edges) = width, head[:2]
    if len(lines.counts) < n:
        raise UserError(f"{path} announces {n} vertices and has lines of {len(lines.counts)}")
    if (extra := np.flatnonzero(lines.counts[n:])).size:
        line = lines.numbers[n + extra[0]]
        raise UserError(f"{path}, line {line}: there are more lines than the {n} of vertices")
    counts, numbers = lines.counts[:n], lines.numbers[:n]
    wrong = np.flatnonzero((counts < before) | ((counts - before) % each > 0))
    if len(wrong):
        raise UserError(
            f"{path}, line {numbers[wrong[0]]}: vertex {wrong[0] + 1} has {counts[wrong[0]]} "
            f"numbers, not {before} and {each} for each neighbour"
        )
    # The place of each value in its line.
    place = np.arange(len(lines.values)) - np.repeat(np.cumsum(counts) - counts, counts)
    vertex = np.repeat(np.arange(n, dtype=index_dtype(n)), counts)
    ends = (place >= before) & ((place - before) % each == 0)
    source, target = vertex[ends], lines.values[ends] - 1
    outside = np.flatnonzero((target < 0) | (target >= n) | (target == source))
    if len(outside):
        at, named = int(source[outside[0]]), int(target[outside[0]]) + 1
        what = f"the vertex {named}, of 1..{n}" if named != at + 1 else "itself as a neighbour"
        raise UserError(f"{path}, line {numbers[at]}: vertex {at + 1} names {what}")
    weights = None
    if each == 2:
        weights = lines.values[np.flatnonzero(ends) + 1].astype(np.float64)
        if len(light := np.flatnonzero(weights < 1)):
            at = int(source[light[0]])
            raise UserError(f"{path}, line {numbers[at]}: a weight of an edge is at least 1")
    _check_symmetric(path, n, source, target, weights, numbers)
    if len(source) != 2 * edges:
        raise UserError(
            f"{path} announces {edges} edges and lists {len(source) / 2:g}",
            "the first line counts each edge once, lines of vertices have it twice",
        )
    left = "sizes or weights of vertices" if before else ""
    return Source(
        n=n,
        source=source,
        target=target.astype(index_dtype(n)),
        weights=weights,
        format="metis",
        notes={"columns": f"not read: {left}"} if left else {},
    )


def _read_lines(path: Path) -> tuple[list[int], Lines]:
    """The numbers of the first line, and all lines after it."""
    check_memory(12 * content_limit(path), f"{path}: a graph of METIS")
    blocks = list(number_lines(path)) or [Lines(*np.zeros((3, 0), np.int64))]
    every = Lines(
        *(np.concatenate([getattr(one, name) for one in blocks]) for name in vars(blocks[0]))
    )
    there = np.flatnonzero(every.counts)
    if not len(there):
        raise UserError(f"{path} holds no graph")
    first, count = int(there[0]), int(every.counts[there[0]])
    head = every.values[:count].tolist()
    rest = slice(first + 1, None)
    return head, Lines(every.numbers[rest], every.counts[rest], every.values[count:])


def _check_symmetric(
    path: Path,
    n: int,
    source: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray | None,
    numbers: np.ndarray,
) -> None:
    """A UserError unless each edge stands in the lines of both its ends, with one weight."""
    weight = np.zeros(len(source)) if weights is None else weights
    there = np.lexsort((weight, target, source))
    back = np.lexsort((weight, source, target))
    same = (source[there] == target[back]) & (target[there] == source[back])
    for fault, equal in (("", same), (" with this weight", weight[there] == weight[back])):
        wrong = np.flatnonzero(~equal)
        if not len(wrong):
            continue
        at = wrong[0]
        ahead = int(source[there[at]]), int(target[there[at]])
        behind = int(target[back[at]]), int(source[back[at]])
        u, v = ahead if ahead <= behind else behind[::-1]  # the smaller one has no counterpart
        raise UserError(
            f"{path}, line {numbers[u]}: vertex {u + 1} has the neighbour {v + 1}{fault}, and line "
            f"{numbers[v]}, of vertex {v + 1}, does not have {u + 1} so",
            "an edge stands in the lines of both its ends",
        )
