"""Nodes first, then ranks: the pieces that are partitioned, and what is gained."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import partitioned_graphs, random_graph

from partition.models.graph import graph_model, row_model
from partition.models.hypergraph import hypergraph_model
from partition.pipeline.nodes import induced, partition_nodes_first


@settings(max_examples=100)
@given(partitioned_graphs(), st.sampled_from(["in", "out"]))
def test_pieces_hold_what_is_inside(case, direction):
    graph, parts, _ = case
    members = np.flatnonzero(parts == parts[0])
    number = {int(v): i for i, v in enumerate(members)}
    graph_piece = induced(graph_model(graph, direction), members)
    whole = graph_model(graph, direction)
    for i, v in enumerate(members):
        near = whole.indices[whole.indptr[v] : whole.indptr[v + 1]].tolist()
        found = graph_piece.indices[graph_piece.indptr[i] : graph_piece.indptr[i + 1]].tolist()
        assert found == [number[u] for u in near if u in number]
    piece = induced(hypergraph_model(graph, direction), members)
    nets = np.split(hypergraph_model(graph, direction).pins,
                    hypergraph_model(graph, direction).indptr[1:-1])  # fmt: skip
    inside = [[number[v] for v in net.tolist() if v in number] for net in nets]
    found = [net.tolist() for net in np.split(piece.pins, piece.indptr[1:-1])] if piece.nets else []
    assert found == [net for net in inside if len(net) > 1]
    for net, owner in zip(found, piece.owners.tolist(), strict=True):
        assert owner in net
    rows = induced(row_model(graph, direction), members)
    for model in (rows, graph_piece, piece):
        assert model.weights.tolist() == row_model(graph, direction).weights[members].tolist()


def test_numbers_and_balance():
    model = row_model(random_graph(60, 300))
    asked = []

    def solve(piece, k, imbalance):
        asked.append((k, imbalance))
        return np.arange(len(piece.weights)) % k

    parts = partition_nodes_first(model, 6, 3, solve, 0.1)
    np.testing.assert_array_equal(parts // 3, np.arange(60) % 2)
    assert np.unique(parts).tolist() == list(range(6))
    assert asked[0] == (2, 0.05)
    loads = np.bincount(parts // 3, weights=model.weights)
    for (k, imbalance), load in zip(asked[1:], loads, strict=True):
        assert k == 3
        limit = 1.1 * model.weights.sum() / 6
        assert (1 + imbalance) * load / 3 == pytest.approx(limit) or imbalance == 0


@pytest.mark.parametrize(("k", "size"), [(7, 2), (4, 4), (4, 1), (4, 8), (6, 3)])
def test_what_cannot_be_done(k, size):
    model = row_model(random_graph(8, 20))

    def solve(piece, k, imbalance):
        return np.arange(len(piece.weights)) == 0  # one vertex in node 1

    assert partition_nodes_first(model, k, size, solve, 0.1) is None
