"""Refinement for mini-batches: its objective is the mean over batches, and it never gets worse."""

import itertools

import numpy as np
import pytest
from small_graphs import random_graph

from partition.graph.graph import row_sizes
from partition.models.hypergraph import connectivity, hypergraph_model
from partition.pipeline.solving import make_parts
from partition.refinement.batches import refine_for_batches

pytestmark = pytest.mark.slow
N = 9


def drawn(graph, parts, k, q):
    """The mean volume over all subsets of the vertices, each with its probability."""
    model, total = hypergraph_model(graph, "in"), 0.0
    for chosen in itertools.product([False, True], repeat=graph.n):
        batch = np.array(chosen)
        probability = q ** batch.sum() * (1 - q) ** (graph.n - batch.sum())
        for j in np.flatnonzero(batch):
            readers = model.pins[model.indptr[j] : model.indptr[j + 1]]
            readers = readers[batch[readers]]
            total += probability * len(set(parts[readers].tolist()) - {int(parts[j])})
    return total


@pytest.mark.parametrize("q", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("k", [2, 3])
def test_the_figure_is_the_mean_over_all_batches(q, k):
    graph = random_graph(N, 40, seed=k)
    start = np.arange(N) % k
    model = hypergraph_model(graph, "in")
    parts, figure = refine_for_batches(model, start, k, q, imbalance=0.5)
    assert figure == pytest.approx(drawn(graph, parts, k, q), rel=1e-12)
    assert figure <= drawn(graph, start, k, q) * (1 + 1e-12)
    weights = np.bincount(parts, weights=row_sizes(graph, "in"), minlength=k)
    assert weights.max() <= max(1.5 * weights.mean(), row_sizes(graph, "in").max())


@pytest.mark.parametrize("k", [4, 150])  # a part looks at all others, or at some
def test_batches_of_everything_are_full_batches(k):
    graph = random_graph(400, 3000, seed=1)
    model = hypergraph_model(graph, "in")
    start = np.arange(graph.n) % k
    parts, figure = refine_for_batches(model, start, k, 1.0, imbalance=0.1)
    assert figure == pytest.approx(connectivity(model, parts, k), rel=1e-12)
    assert figure < 0.95 * connectivity(model, start, k)
    assert np.array_equal(parts, refine_for_batches(model, start, k, 1.0, imbalance=0.1)[0])


@pytest.mark.parametrize("sampler", ["vertex", "neighbor"])
def test_the_model_of_batches_does_not_lose_to_that_of_rows(sampler):
    graph = random_graph(300, 2500, seed=4)
    fanouts = {"fanouts": "3,2"} if sampler == "neighbor" else {}
    parts = make_parts(
        graph, "shp", 4, options={"sampler": sampler, "batch": "30", "batches": 10} | fanouts
    )
    rows = make_parts(graph, "hp", 4)
    if sampler == "vertex":
        model, q = hypergraph_model(graph, "in"), 29 / 299
        best = refine_for_batches(model, rows, 4, q)[1]
        assert refine_for_batches(model, parts, 4, q)[1] <= best
    assert len(np.unique(parts)) == 4
