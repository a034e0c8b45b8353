"""The models against the matrix they describe."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import from_arcs, partitioned_graphs

from partition.graph.aggregation import aggregation_matrix, normalised, row_sums
from partition.graph.graph import Graph
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


# The aggregation matrix against dense matrices written down entry by entry


def weighted(graph, weights):
    return Graph(graph.indptr, graph.indices, np.asarray(weights, np.float64))


def brute_force(n, entries, direction, self_loops, normalize):
    """M as a dense matrix and its pattern, by the words of its definition."""
    matrix, pattern = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
    for (source, target), weight in entries.items():
        place = (target, source) if direction == "in" else (source, target)
        matrix[place], pattern[place] = weight, True
    if self_loops:
        for i in range(n):
            if not pattern[i, i]:
                matrix[i, i], pattern[i, i] = 1, True
    degree = matrix.sum(axis=1)
    for i in range(n):
        for j in range(n):
            if normalize == "row":
                matrix[i, j] *= 1 / degree[i] if degree[i] else 0
            elif normalize == "sym":
                product = degree[i] * degree[j]
                matrix[i, j] *= 1 / np.sqrt(product) if product else 0
    return matrix, pattern


@st.composite
def weighted_graphs(draw):
    n = draw(st.integers(1, 7))
    vertex = st.integers(0, n - 1)
    weight = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    return n, draw(st.dictionaries(st.tuples(vertex, vertex), weight, max_size=20))


@settings(max_examples=300)
@given(
    weighted_graphs(),
    st.sampled_from(["in", "out"]),
    st.booleans(),
    st.sampled_from(["sym", "row", "none"]),
)
def test_aggregation_matrix(case, direction, self_loops, normalize):
    n, entries = case
    graph = weighted(from_arcs(n, entries), [entries[key] for key in sorted(entries)])
    matrix = aggregation_matrix(graph, direction, self_loops, normalize)
    expected, pattern = brute_force(n, entries, direction, self_loops, normalize)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-14, atol=0)
    # Stored zeros stay stored: they are rows that travel.
    stored = np.zeros((n, n), dtype=bool)
    stored[np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices] = True
    np.testing.assert_array_equal(stored, pattern)
    assert matrix.dtype == np.float64
    assert matrix.has_sorted_indices


def test_negative_row_sums_need_another_normalisation():
    graph = weighted(from_arcs(2, [(0, 1)]), [-4.0])
    refuses(r"graph\.normalize = 'sym'", aggregation_matrix, graph)
    assert aggregation_matrix(graph, normalize="row").toarray()[1].tolist() == [4 / 3, -1 / 3]
    one = np.ones(1)
    for degrees in ((-one, one), (one, -one)):  # of the row, of the column
        refuses("'sym'", normalised, one, *degrees, "sym")


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3) | st.sampled_from([1e-300, 1e300, 0.1])),
        max_size=30,
    ),
    st.randoms(use_true_random=False),
)
def test_row_sums_do_not_depend_on_the_order_of_the_entries(entries, random):
    def sums():
        rows = np.array([row for row, _ in entries], np.int32)
        return row_sums(rows, np.array([weight for _, weight in entries], np.float64), 5)

    found = sums()
    random.shuffle(entries)
    assert sums().tobytes() == found.tobytes()
    for row in range(5):
        mine = [weight for i, weight in entries if i == row]
        allowed = len(mine) * 2.0**-52 * math.fsum(map(abs, mine))
        assert abs(found[row] - math.fsum(mine)) <= allowed
        assert len(mine) != 1 or found[row] == mine[0]


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200])
def test_what_cancels_up_to_rounding_is_zero(unit):
    rows = np.repeat(np.arange(5), [3, 11, 2, 2, 3])
    weights = [0.1, 0.2, -0.3, *[0.1] * 10, -1.0, 1.0, -1.0, 1.0, -1 + 2e-15, 1e16, 1.0, -1e16]
    sums = row_sums(rows, np.array(weights) * unit, 5) / unit
    assert sums[:3].tolist() == [0, 0, 0]
    assert sums[3] == pytest.approx(2e-15, rel=0.1)
    assert sums[4] == 0  # 1e16 is given to within 1 only
    graph = weighted(from_arcs(3, [(0, 2), (1, 2), (2, 2)]), [0.1, 0.2, -0.3])
    for normalize in ("sym", "row"):
        assert not aggregation_matrix(graph, "in", False, normalize).toarray()[2].any()
