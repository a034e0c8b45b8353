"""Balance by several constraints: weights, the repair, and what is recorded."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs, random_graph

from partition.graph.graph import row_sizes
from partition.graph.metrics import measure
from partition.importing.synthetic import rmat, sbm
from partition.models.descriptions import graph_model
from partition.pipeline import balance
from partition.pipeline.adding import add_partition, make_parts
from partition.pipeline.balance import Recipe, constraint_weights, limits, part_loads, repair


def excess(parts, k, weights, limit):
    loads = np.array([np.bincount(parts, weights=row, minlength=k) for row in weights])
    average = np.maximum(weights.sum(axis=1) / k, 1)
    return (np.maximum(loads - limit[:, np.newaxis], 0) / average[:, np.newaxis]).sum()


@settings(max_examples=100)
@given(partitioned_graphs(), st.sampled_from([0.0, 0.1, 1.0]))
def test_repair_never_adds_to_the_excess_and_empties_no_part(case, imbalance):
    graph, parts, k = case
    weights = constraint_weights(graph, "in", ("nnz", "rows"))
    model, limit = graph_model(graph), limits(weights, k, imbalance)
    found = repair(parts, k, weights, imbalance, model.indptr, model.indices)
    before, after = excess(parts, k, weights, limit), excess(found, k, weights, limit)
    assert after <= before + 1e-9
    assert set(parts.tolist()) <= set(found.tolist()) <= set(range(k))
    if before == 0:
        np.testing.assert_array_equal(found, parts)


def test_work_counts_entries_and_rows():
    graph = sbm(300, 3, degree=6, seed=1)
    nnz, rows, work = constraint_weights(graph, "in", ("nnz", "rows", "work"))
    np.testing.assert_array_equal(work, nnz + 32 * rows)
    parts = (np.arange(300) % 4).astype(np.int32)
    metrics = measure(graph, parts, 4)
    for name, weights in (("nnz", nnz), ("rows", rows), ("work", work)):
        loads = np.bincount(parts, weights=weights)
        assert part_loads(metrics, name) == loads.tolist()


def test_repair_reaches_both_limits_at_little_loss():
    graph = sbm(3000, 6, degree=10, intra=0.9, seed=2)
    rng = np.random.default_rng(0)
    communities = np.asarray(graph.labels).astype(np.int32)
    parts = np.where(rng.random(3000) < 0.15, 0, communities).astype(np.int32)
    weights = constraint_weights(graph, "in", ("nnz", "rows"))
    model = graph_model(graph)
    found = repair(parts, 6, weights, 0.02, model.indptr, model.indices)
    assert excess(found, 6, weights, limits(weights, 6, 0.02)) == 0
    assert measure(graph, found, 6).volume < measure(graph, parts, 6).volume
    # The cheapest moves bring vertices back to their community.
    moved = np.flatnonzero(found != parts)
    assert np.mean(found[moved] == communities[moved]) > 0.7


@pytest.mark.parametrize("model", ["gp", "hp"])
def test_models_balance_rows_and_entries(model):
    graph = rmat(10, 8000, seed=1)
    metrics = measure(graph, make_parts(graph, model, 4, Recipe(0.05, balance="nnz,rows")), 4)
    assert max(metrics.imbalance, metrics.row_imbalance) <= 0.0501
    # Also where there are nearly as many parts as vertices.
    small = sbm(40, 3, degree=6, intra=0.9, seed=0)
    parts = make_parts(small, model, 39, Recipe(balance="nnz,rows"))
    assert len(np.unique(parts)) == 39


def test_weights():
    graph = random_graph(20, 60)
    weights = constraint_weights(graph, "out", ("rows", "nnz"))
    np.testing.assert_array_equal(weights, [np.ones(20), row_sizes(graph, "out")])
    np.testing.assert_array_equal(balance.single_weight(weights[1:]), weights[1])
    assert balance.single_weight(weights).sum() == pytest.approx(2 * 20 * 1000, rel=1e-3)
    labelled = replace(graph, labels=np.where(np.arange(20) < 5, 0, -1).astype(np.int32))
    assert constraint_weights(labelled, "in", ("train",)).tolist() == [[1] * 5 + [0] * 15]
    # A limit is never below a vertex, or a whole number of rows.
    assert limits(np.array([[9, 1, 1, 1], [1, 1, 1, 1]]), 3, 0.0).tolist() == [9, 2]


def test_mistakes(tmp_path):
    assert balance.parse_balance(" rows, nnz,rows") == ("rows", "nnz")
    for text in ("nzz", "", "nnz,,rows"):
        refuses("unknown constraint of the balance", balance.parse_balance, text)
    path = make_folder(tmp_path / "small.graph", random_graph(40, 150))
    refuses("the graph has none", add_partition, path, "gp", 2, balance="nnz,train")
