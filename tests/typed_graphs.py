"""Small heterogeneous graphs, for tests."""

from __future__ import annotations

import numpy as np

from partition.graph.graph import Graph, arcs
from partition.graph.relations import Relation
from partition.importing.arcs import build_typed
from partition.importing.readers.source import RelationArcs, TypedSource

WRITES = Relation("author", "writes", "paper")
CITES = Relation("paper", "cites", "paper")
READS = Relation("author", "reads", "paper")
COUNTS = {"paper": 4, "author": 3, "venue": 2}
ENDS = {
    WRITES: [(0, 0), (1, 0), (2, 3)],
    CITES: [(0, 1), (1, 2)],
    READS: [(0, 0), (0, 1)],  # of the first author and paper there is another arc
}
FEATURES = {
    "paper": np.arange(8, dtype=np.float32).reshape(4, 2),
    "author": np.arange(9, dtype=np.float32).reshape(3, 3) / 4,
}


def source_of(ends=ENDS, **more) -> TypedSource:
    """Papers, authors and venues; papers have labels."""
    tables = [RelationArcs(one, *np.array(of, int).reshape(-1, 2).T) for one, of in ends.items()]
    data = {
        "features": FEATURES,
        "labels": {"paper": np.array([0, 1, 1, -1])},
        "masks": {"train": {"paper": np.array([True, True, False, False])}},
        "format": "test",
    }
    return TypedSource(COUNTS, tables, **(data | more))


def typed_graph(**options) -> Graph:
    """The graph of :func:`source_of`."""
    return build_typed(source_of(), **options)[0]


def relations_of(graph: Graph) -> dict[str, list[tuple[int, int]]]:
    """The arcs of each relation, by numbers within their types."""
    types = graph.vertex_types
    found: dict[str, list[tuple[int, int]]] = {}
    for number, relation in enumerate(graph.relations):
        some = np.flatnonzero(graph.arc_type == number)
        source = arcs(graph)[some] - types.range(relation.source).start
        target = np.asarray(graph.indices)[some] - types.range(relation.target).start
        found[str(relation)] = list(zip(source.tolist(), target.tolist(), strict=True))
    return found
