"""Refinement: its counts are the metrics', its result is never worse, and it keeps the balance."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import from_arcs, random_graph

from partition.deadline import Deadline
from partition.graph.graph import Graph, row_sizes
from partition.graph.metrics import measure
from partition.importing.synthetic import sbm
from partition.models.descriptions import hypergraph_model
from partition.refinement import core
from partition.refinement.core import choose, new_desk, survey
from partition.refinement.objective import Objective
from partition.refinement.search import (
    cluster,
    contract,
    finest_level,
    new_state,
    refine,
    refine_for_batches,
)

pytestmark = pytest.mark.slow

FREE = core.Energy(1.0, core.Price(0.5, 3.0, 2), core.Price(0.25, 3.0, 2), 1.0, 0.0)
FLAT = core.Price(0.0, 1.0, 0)


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[Graph, np.ndarray, int]:
    """A small directed graph, possibly with hubs, loops and isolated vertices, and parts."""
    n, k = draw(st.integers(2, 30)), draw(st.integers(2, 40) | st.integers(65, 70))
    vertex = st.integers(0, n - 1)
    arcs = draw(st.lists(st.tuples(vertex, vertex), max_size=120))
    if draw(st.booleans()):
        hub = draw(vertex)
        arcs += [(hub, i) for i in range(n)]
    seed = draw(st.integers(0, 2**32))
    return from_arcs(n, arcs), np.random.default_rng(seed).integers(0, k, n).astype(np.int32), k


def price(state, energy=FREE):
    for p in range(len(state.sizes)):
        core.set_prices(state, p, energy)


def moves_of(state, seed, most=40):
    """Random vertices, each with another part than it has by then."""
    rng = np.random.default_rng(seed)
    for _ in range(most):
        v, b = int(rng.integers(len(state.parts))), int(rng.integers(len(state.sizes)))
        if b != state.parts[v]:
            yield v, b


def counts(state):
    """Rows that each part sends and receives, and its load."""
    return state.send.tolist(), state.recv.tolist(), state.loads[:, 0].tolist()


def check_prices(state):
    prices = state.send_price.copy(), state.recv_price.copy()
    price(state)
    assert np.allclose(prices, (state.send_price, state.recv_price))


@settings(max_examples=100)
@given(partitioned(), st.sampled_from(["in", "out"]), st.integers(0, 2**32))
def test_counts_after_random_moves_are_the_metrics(case, direction, seed):
    graph, parts, k = case
    level = finest_level(hypergraph_model(graph, direction), None)
    state = new_state(level, parts, k, np.array([10**9]), messages=True)
    price(state)
    for v, b in moves_of(state, seed):
        core.move(state, v, b, FREE)
    expected = measure(graph, state.parts, k, direction)
    assert counts(state) == (expected.send_rows, expected.recv_rows, expected.nnz)
    assert (state.sizes.tolist(), state.messages[0]) == (expected.rows, expected.messages)
    check_prices(state)


@settings(max_examples=100)
@given(partitioned(), st.integers(0, 2**32), st.sampled_from([0.0, 50.0]))
def test_a_move_costs_what_it_was_said_to(case, seed, evenness):
    """With linear prices the estimate is exact: volume alone, or weights too small to bend."""
    graph, parts, k = case
    level = finest_level(hypergraph_model(graph), None)
    limit = level.weights.sum()
    state = new_state(level, parts, k, np.array([limit]), messages=False)
    energy = core.Energy(1.0, FLAT, FLAT, 0.0, 0.0, evenness)

    def height():
        return state.send.sum() + evenness / 2 * np.square(state.loads / limit).sum()

    before, random = height(), np.array([seed + 1], np.uint64)
    vertex, desk = seed % graph.n, new_desk(k)
    price(state, energy)
    seen = survey(state, vertex, desk, True, False, random)
    b, delta = choose(state, vertex, desk, seen, True, energy, random)
    core.move(state, vertex, b, energy)
    assert height() - before == pytest.approx(delta)


OTHERS = {"max_send": 0}, {"total": 0, "max_recv": 1}, {"messages": 1}
OBJECTIVES = [Objective(), *(Objective(**one) for one in OTHERS)]


@settings(max_examples=25)
@given(partitioned(), st.sampled_from(OBJECTIVES))
def test_never_worse_and_balanced(case, objective):
    graph, parts, k = case
    model = hypergraph_model(graph)
    refined = refine(model, parts, k, objective=objective, effort=0.2)
    old, new = measure(graph, parts, k), measure(graph, refined, k)
    limit = max(1.01 * sum(old.nnz) / k, model.weights.max())
    assert max(new.nnz) <= max(max(old.nnz), limit)
    assert all(rows > 0 for rows, was in zip(new.rows, old.rows, strict=True) if was)
    if max(old.nnz) <= limit:
        assert score(new, objective) <= score(old, objective) + 1e-9


def score(metrics, objective: Objective) -> float:
    figures = metrics.volume, max(metrics.send_rows), max(metrics.recv_rows), metrics.messages
    weights = objective.total, objective.max_send, objective.max_recv, objective.messages
    return sum(weight * np.log1p(each) for weight, each in zip(weights, figures, strict=True))


@pytest.fixture(scope="module")
def communities() -> Graph:
    return sbm(4000, 8, degree=12, intra=0.9, seed=3)


def random_parts(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(n, dtype=np.int32) % k)


def test_finds_planted_communities_in_balance_whatever_the_start(communities):
    model, even = hypergraph_model(communities), random_parts(communities.n, 8)
    for start in (even, np.minimum(random_parts(communities.n, 16), 7)):
        first = refine(model, start, 8, imbalance=0.05, effort=0.3, seed=5)
        old, new = (measure(communities, parts, 8) for parts in (start, first))
        assert new.volume < 0.5 * old.volume
        assert max(new.send_rows) < 0.5 * max(old.send_rows)
        assert new.imbalance <= 0.051
    for seed in (5, 6):
        again = refine(model, start, 8, imbalance=0.05, effort=0.3, seed=seed)
        assert np.array_equal(first, again) == (seed == 5)
    assert np.array_equal(even, random_parts(communities.n, 8)), "the start is left as it is"
    # A part takes what just fits.
    model = hypergraph_model(from_arcs(4, [(0, 1), (1, 0), (2, 3), (3, 2)]))
    assert refine(model, np.array([0, 0, 0, 1]), 2, imbalance=0).tolist() == [0, 0, 1, 1]


def test_a_start_that_is_none_is_refused(communities):
    model, n = hypergraph_model(communities), communities.n
    refuses(f"for {n} vertices", refine, model, np.zeros(n + 1, int), 2, error=ValueError)
    refuses(r"outside 0\.\.1", refine, model, np.full(n, 2), 2, error=ValueError)


def test_a_deadline_ends_it_and_is_told_of(communities):
    model, start = hypergraph_model(communities), random_parts(communities.n, 8)
    for paced in (True, False):
        over, endless = Deadline(0, paced=paced), Deadline(paced=paced)
        assert np.array_equal(refine(model, start, 8, imbalance=1, deadline=over), start)
        refine(model, start, 8, imbalance=1, effort=0.2, deadline=endless)
        assert (over.decided, endless.decided) == (True, False)
        assert Deadline(1e6, paced=paced).spent() < 0.5 < over.spent() == 1


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


def test_compiled_code_is_kept_where_nobody_else_can_write(tmp_path, monkeypatch):
    monkeypatch.setattr(core.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = Path(core._private_folder())
    assert folder.parent == tmp_path
    assert core._private_folder() == str(folder)
    folder.chmod(0o770)  # what is in it could be anybody's, and would be executed
    assert core._private_folder() == ""
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert core._private_folder() == ""


def test_coarser_levels_cost_what_the_finest_does(communities):
    start = random_parts(communities.n, 8)
    level = finest_level(hypergraph_model(communities), None)
    state = new_state(level, start, 8, np.array([10**9]), messages=False)
    labels = np.empty(communities.n, np.int32)
    clusters = cluster(state, labels, np.array([500]), 100, np.array([1], np.uint64))
    assert clusters < 0.7 * communities.n
    coarse = contract(level, labels, clusters)
    assert coarse.weights.max() <= 500
    parts = np.empty(clusters, np.int32)
    parts[labels] = start
    assert np.array_equal(parts[labels], start), "clusters do not cross parts"
    below = new_state(coarse, parts, 8, np.array([10**9]), messages=False)
    assert counts(below) == counts(state)
