"""Groups of arcs of one relation into a vertex: how many there are, and their parts."""

import numpy as np
import pytest

from gcnmpi.layout.entries import parts_of
from partition.graph.graph import Graph
from partition.graph.relations import Relation, VertexTypes
from partition.graph.typed import group_count


@pytest.mark.parametrize("at_once", [1 << 22, 3000], ids=["counted", "of some vertices"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_groups_are_counted(direction, at_once, monkeypatch):
    monkeypatch.setattr("partition.graph.typed.COUNTED_AT_ONCE", at_once)
    random = np.random.default_rng(2)
    n, arcs = 2000, 12_000
    source, target = np.sort(random.integers(0, n, arcs)), random.integers(0, n, arcs)
    kinds = random.integers(0, 3, arcs).astype(np.uint8)
    graph = Graph(
        np.searchsorted(source, np.arange(n + 1)),
        target.astype(np.int32),
        vertex_types=VertexTypes.of_counts({"a": n}),
        relations=tuple(Relation("a", name, "a") for name in "xyz"),
        arc_type=kinds,
    )
    end = target if direction == "in" else source
    exact = len(np.unique(end * 3 + kinds))
    slack = 0 if at_once > arcs else 0.15
    assert group_count(graph, direction) == pytest.approx(exact, rel=slack or 1e-12)


def test_a_group_has_its_part_of_the_arcs_that_come_its_way():
    turned, starts = np.array([False, True, False, True]), np.array([0, 1, 3, 6, 8])
    found = parts_of(np.array([0, 0, 0, 1]), turned, starts)
    assert found.tolist() == [1 / 4, 1, 3 / 4, 1]
