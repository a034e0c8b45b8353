"""The models against the matrix they describe."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import from_arcs, partitioned_graphs

from partition.graph.aggregation import aggregation_matrix
from partition.graph.metrics import measure
from partition.graph.mixed_metrics import measure_mixed
from partition.models.graph import graph_model, row_model
from partition.models.hypergraph import hypergraph_model, without_large_nets
from partition.models.medium_grain import medium_grain_model

directions = st.sampled_from(["in", "out"])


def connectivity(model, parts):
    """Σ over nets of the number of parts touched, less one."""
    nets = np.split(model.pins, model.indptr[1:-1]) if model.nets else []
    return sum(len(set(parts[net].tolist())) - 1 for net in nets)


@settings(max_examples=200)
@given(partitioned_graphs(), directions)
def test_connectivity_of_the_hypergraph_is_the_volume(case, direction):
    graph, parts, k = case
    model = hypergraph_model(graph, direction)
    assert connectivity(model, parts) == measure(graph, parts, k, direction).volume


@settings(max_examples=100)
@given(partitioned_graphs(), directions)
def test_connectivity_of_the_medium_grain_hypergraph_is_the_mixed_volume(case, direction):
    graph, parts, k = case
    any_assignment = medium_grain_model(graph, direction)
    best = medium_grain_model(graph, direction, parts)
    mixed = measure_mixed(graph, parts, k, direction)
    assert connectivity(best, parts) == mixed.volume
    assert connectivity(any_assignment, parts) >= mixed.volume
    assert np.bincount(parts, weights=best.weights, minlength=k).tolist() == mixed.nnz
    for model in (any_assignment, best):
        assert model.weights.sum() == aggregation_matrix(graph, direction, normalize="none").nnz
        first = model.pins[model.indptr[:-1]]
        np.testing.assert_array_equal(first, model.owners)  # every net pins its owner
        assert (np.diff(model.indptr) > 1).all()


@settings(max_examples=50)
@given(partitioned_graphs())
def test_entries_belong_to_the_shorter_line(case):
    graph, _, _ = case
    model = medium_grain_model(graph)
    matrix = graph.adjacency().T.toarray() != 0
    np.fill_diagonal(matrix, False)
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    work = np.ones(graph.n, int)
    for i, j in zip(*np.nonzero(matrix), strict=True):
        work[j if columns[j] < rows[i] else i] += 1
    np.testing.assert_array_equal(model.weights, work)


@settings(max_examples=100)
@given(partitioned_graphs(), directions)
def test_models_are_the_columns_rows_and_symmetrised_pattern_of_m(case, direction):
    graph, _, _ = case
    model, of_graph = hypergraph_model(graph, direction), graph_model(graph, direction)
    matrix = aggregation_matrix(graph, direction, normalize="none").toarray() != 0
    both = (matrix | matrix.T) & ~np.eye(graph.n, dtype=bool)
    for v in range(graph.n):
        net = model.pins[model.indptr[v] : model.indptr[v + 1]]
        np.testing.assert_array_equal(np.sort(net), np.flatnonzero(matrix[:, v]))
        near = of_graph.indices[of_graph.indptr[v] : of_graph.indptr[v + 1]]
        np.testing.assert_array_equal(np.sort(near), np.flatnonzero(both[v]))
    for each in (model, of_graph, row_model(graph, direction)):
        np.testing.assert_array_equal(each.weights, matrix.sum(axis=1))


def test_large_nets_are_left_out():
    model = hypergraph_model(from_arcs(5, [(0, 1), (0, 2), (0, 3), (1, 2)]))
    assert np.diff(model.indptr).tolist() == [4, 2, 1, 1, 1]
    fewer = without_large_nets(model, 2)
    assert fewer.owners.tolist() == [1, 2, 3, 4]
    nets = [sorted(net) for net in np.split(fewer.pins, fewer.indptr[1:-1])]
    assert nets == [[1, 2], [2], [3], [4]]
    assert fewer.weights is model.weights
    assert without_large_nets(fewer, 1).owners.tolist() == [2, 3, 4]
    assert without_large_nets(model, 4) is model
