"""Small graphs for the unit tests."""

import numpy as np
from hypothesis import strategies as st

from partition.graph.graph import Graph, arcs
from partition.graph.store import write_graph


def from_arcs(n, pairs):
    """A graph of distinct (source, target) pairs."""
    pairs = sorted(set(pairs))
    source = np.array([s for s, _ in pairs], dtype=np.int64)
    indptr = np.searchsorted(source, np.arange(n + 1)).astype(np.int64)
    return Graph(indptr, np.array([t for _, t in pairs], dtype=np.int32))


def random_graph(n, narcs, seed=0):
    """A directed graph of about ``narcs`` random arcs, loops among them."""
    pairs = np.random.default_rng(seed).integers(0, n, (2, narcs)).tolist()
    return from_arcs(n, zip(*pairs, strict=True))


def arcs_in(graph):
    """(source, target) of each arc."""
    return list(zip(arcs(graph).tolist(), graph.indices.tolist(), strict=True))


def make_folder(path, graph, **facts):
    """Write a graph folder; its path."""
    write_graph(path, graph, source={}, **facts)
    return path


@st.composite
def partitioned_graphs(draw):
    """(graph, parts, k): directed, with loops, isolated vertices and empty parts."""
    n = draw(st.integers(1, 12))
    vertex = st.integers(0, n - 1)
    graph = from_arcs(n, draw(st.lists(st.tuples(vertex, vertex), max_size=40)))
    k = draw(st.integers(1, 6))
    parts = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return graph, np.array(parts, dtype=np.int32), k
