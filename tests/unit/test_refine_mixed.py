"""Refinement for the mixed exchange: its counts, its balance, and that it is never worse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_refine import FLAT, FREE, check_prices, counts, moves_of, partitioned, price, score

from partition.graph.aggregation import columns
from partition.graph.metrics import measure_mixed
from partition.importing.synthetic import rmat
from partition.models.descriptions import medium_grain_model
from partition.refinement import core, mixed
from partition.refinement.mixed import refine_mixed
from partition.refinement.objective import Objective
from partition.refinement.search import finest_level, new_state

pytestmark = pytest.mark.slow
MIXED = Objective(exchange="mixed")


@settings(max_examples=50)
@given(partitioned(), st.sampled_from(["in", "out"]), st.integers(0, 2**32))
def test_counts_are_the_metrics_and_moves_keep_them(case, direction, seed):
    graph, parts, k = case
    level = finest_level(medium_grain_model(graph, direction, parts), None)

    def counted(parts):
        return new_state(level, parts, k, np.array([10**9]), messages=True)

    # At the parts whose best assignment it is, the hypergraph counts what the metrics do.
    state, expected = counted(parts), measure_mixed(graph, parts, k, direction)
    assert counts(state) == (expected.send_rows, expected.recv_rows, expected.nnz)
    assert state.messages[0] == expected.messages
    price(state)
    for v, b in moves_of(state, seed):
        core.move(state, v, b, FREE)
    again = counted(state.parts)
    for name in ("send", "recv", "loads", "sizes", "pairs", "messages", "cells"):
        if name != "cells" or state.facts["table"].all():
            assert np.array_equal(getattr(state, name), getattr(again, name)), name
    # After moves, an upper bound.
    assert measure_mixed(graph, state.parts, k, direction).volume <= state.send.sum()
    check_prices(state)


def matched(graph, parts, k, direction="in"):
    fixed, matrix = np.zeros((graph.n, 1), np.int64), columns(graph, direction)
    return mixed.new_matching(matrix, parts, k, fixed, (True,), 0.01)


@settings(max_examples=100)
@given(partitioned(), st.sampled_from(["in", "out"]), st.integers(0, 2**32))
def test_a_matching_counts_what_the_metrics_do(case, direction, seed):
    graph, parts, k = case
    state = matched(graph, parts, k, direction)
    price(state)
    for number, (v, b) in enumerate(moves_of(state, seed)):
        mixed.move(state, v, b, FREE)
        if number < 5:  # between complete marks a move is counted at once
            send = measure_mixed(graph, state.parts, k, direction).send_rows
            assert state.send.tolist() == send
            mixed.settle(state, 0.01)
    mixed.settle(state, 0.01)
    expected = measure_mixed(graph, state.parts, k, direction)
    assert counts(state) == (expected.send_rows, expected.recv_rows, expected.work)
    assert (state.sizes.tolist(), state.messages[0]) == (expected.rows, expected.messages)


@settings(max_examples=15)
@given(partitioned(), st.sampled_from([MIXED, Objective(max_recv=1, exchange="mixed")]))
def test_never_worse_and_balanced(case, objective):
    graph, parts, k = case
    new = refine_mixed(graph, parts, k, objective=objective, effort=0.1)
    old, after = (measure_mixed(graph, p, k) for p in (parts, new))
    heaviest, was = (matched(graph, each, k).weights.max() for each in (new, parts))
    if max(old.work) <= max(1.01 * sum(old.work) / k, was):
        assert max(after.work) <= max(1.01 * sum(after.work) / k, heaviest)
        assert score(after, objective) <= score(old, objective) + 1e-9


@pytest.fixture(scope="module")
def hubs():
    """Very unequal degrees, in and out."""
    return rmat(11, 30_000, seed=1)


@pytest.mark.parametrize("direction", ["in", "out"])
def test_lowers_the_mixed_exchange_within_the_balance(hubs, direction):
    start = np.random.default_rng(0).permutation(np.arange(hubs.n) % 8)
    asked = {"direction": direction, "imbalance": 0.02, "effort": 0.3}
    new = refine_mixed(hubs, start, 8, **asked)
    old, after = (measure_mixed(hubs, parts, 8, direction) for parts in (start, new))
    assert after.volume < 0.85 * old.volume
    assert max(after.send_rows) < 0.9 * max(old.send_rows)
    assert after.imbalance <= 0.02 + 1e-3
    assert np.array_equal(new, refine_mixed(hubs, start, 8, **asked))


def chosen(state, seed, energy, limit):
    """A vertex, the part that it should move to, below 0 if none, and the difference."""
    price(state, energy)
    v, random = seed % len(state.parts), np.array([seed + 1], np.uint64)
    desk = mixed.new_desk(len(state.sizes), state.sums.shape[1])
    state.limits[:] = limit
    lost = mixed.survey(state, v, desk, 1)
    return v, *mixed.choose(state, v, desk, lost, energy, False, random)


@settings(max_examples=100)
@given(partitioned(), st.integers(0, 2**32))
def test_a_move_costs_what_the_marks_say(case, seed):
    """But for the two parts themselves, whose pairs lose a vertex and get another."""
    graph, parts, k = case
    state = matched(graph, parts, k)
    energy = core.Energy(1.0, FLAT, FLAT, 0.0, 0.0)
    v, b, delta = chosen(state, seed, energy, 10**9)
    if b < 0:
        return
    before, a = state.pairs.copy(), state.parts[v]
    mixed.move(state, v, b, energy)
    change = state.pairs - before
    assert abs(change.sum() - delta) <= 2
    if not before[[a, b], [b, a]].any() and not state.pairs[[a, b], [b, a]].any():
        assert change.sum() == delta
