"""The symmetrised graph of M."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition.graph.graph import Graph, row_sizes
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
    """

    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray


def graph_model(graph: Graph, direction: str = "in") -> GraphModel:
    """The symmetrised graph: i and j are neighbours where M or its transpose has (i, j).

    Its edge cut only resembles the volume; the direction matters to the weights alone.
    """
    shape = (graph.n, graph.n)
    ones = np.ones(graph.nnz, dtype=np.int8)
    pattern = sp.csr_array((ones, np.asarray(graph.indices), np.asarray(graph.indptr)), shape=shape)
    both = (pattern + pattern.T).tocsr()
    row = np.repeat(np.arange(graph.n, dtype=both.indices.dtype), np.diff(both.indptr))
    proper = both.indices != row
    degree = np.bincount(row[proper], minlength=graph.n)
    return GraphModel(row_sizes(graph, direction), pointers(degree), both.indices[proper])
