"""The symmetrised graph of M; and its rows alone, for tools that do not look at the arcs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partition.errors import require
from partition.graph.aggregation import symmetrised
from partition.graph.graph import REVERSED, Graph, row_sizes
from partition.graph.sampling import pointers


@dataclass(frozen=True)
class GraphModel:
    """An undirected graph without loops; each edge is stored at both of its ends.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (n + 1,) integers
    indices : integers
        ``indices[indptr[i]:indptr[i+1]]`` are the neighbours of vertex i.
    costs : integers, optional
        Of each stored edge, what cutting it costs; 1 where None. METIS alone looks at them.
    """

    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    costs: np.ndarray | None = None


def graph_model(graph: Graph, direction: str = "in", *, max_net: int = 0) -> GraphModel:
    """The symmetrised graph: i and j are neighbours where M or its transpose has (i, j).

    Its edge cut only resembles the volume. Columns of M with more than ``max_net`` entries, the
    diagonal among them, are left out, unless it is 0: rows of H that most parts need whatever is
    done. The direction matters to the weights, and to these columns.
    """
    require(max_net >= 0, f"max_net = {max_net}: it is a number of entries, 0 for no limit")
    left_out, arcs = None, graph.nnz
    if max_net:
        sizes = row_sizes(graph, REVERSED[direction])
        left_out, arcs = (sizes > max_net, direction), int(sizes[sizes <= max_net].sum())
    degree = np.zeros(graph.n, np.int64)
    # As many as there can be: what is never written takes no memory.
    indices, found = np.empty(2 * arcs, graph.indices.dtype), 0
    for first, last, some, neighbours in symmetrised(graph, left_out=left_out):
        degree[first:last] = some
        indices[found : found + len(neighbours)] = neighbours
        found += len(neighbours)
    return GraphModel(row_sizes(graph, direction), pointers(degree), indices[:found])


@dataclass(frozen=True)
class RowModel:
    """Rows and nothing between them, for tools that do not look at the arcs.

    Attributes
    ----------
    weights : (n,) int64
    """

    weights: np.ndarray


def row_model(graph: Graph, direction: str = "in") -> RowModel:
    """The rows of M with their weights alone."""
    return RowModel(row_sizes(graph, direction))
