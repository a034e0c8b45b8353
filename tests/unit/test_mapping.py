"""Parts on nodes: traffic between them, and the numbers that make it least."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import partitioned_graphs

from partition.graph.metrics import exchange_matrix, measure, node_traffic
from partition.pipeline.nodes import join_parts, map_to_nodes


@settings(max_examples=100)
@given(partitioned_graphs(), st.sampled_from(["in", "out"]), st.integers(1, 7))
def test_node_traffic_by_hand(case, direction, size):
    graph, parts, k = case
    exchange = exchange_matrix(graph, parts, k, direction)
    traffic = node_traffic(exchange, size)
    nodes = -(-k // size)
    send, recv, inside, messages = ([0] * nodes for _ in range(4))
    for p, q in itertools.product(range(k), repeat=2):
        rows = int(exchange[p, q])
        if p // size == q // size:
            inside[p // size] += rows
        else:
            send[p // size] += rows
            recv[q // size] += rows
            messages[p // size] += rows > 0
    assert (traffic.send_rows, traffic.recv_rows, traffic.inside_rows) == (send, recv, inside)
    assert traffic.send_messages == messages
    figures = traffic.summary()
    volume = measure(graph, parts, k, direction).volume
    assert figures["inter_volume"] + figures["intra_volume"] == volume


def random_exchange(k, density, seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 100, (k, k)) * (rng.random((k, k)) < density)
    np.fill_diagonal(dense, 0)
    return sp.csr_array(dense)


def between(exchange, numbers, size):
    order = np.argsort(numbers)
    return node_traffic(exchange[order][:, order].tocsr(), size).summary()["inter_volume"]


@settings(max_examples=100)
@given(st.integers(1, 14), st.integers(1, 15), st.floats(0, 1), st.integers(0, 1000))
def test_a_permutation_that_is_no_worse(k, size, density, seed):
    exchange = random_exchange(k, density, seed)
    numbers = map_to_nodes(exchange, size)
    assert sorted(numbers.tolist()) == list(range(k))
    assert numbers.dtype == np.int32
    assert between(exchange, numbers, size) <= between(exchange, np.arange(k), size)


HALVES = [(*some, *sorted({*range(8)} - {*some})) for some in itertools.combinations(range(8), 4)]
ORDERS = {6: list(itertools.permutations(range(6))), 8: HALVES}


@pytest.mark.parametrize(
    ("k", "size", "seed"), [*((6, 2, seed) for seed in range(5)), (8, 4, 16), (8, 4, 17)]
)
def test_small_cases_reach_the_optimum(k, size, seed):
    exchange = random_exchange(k, 0.6, seed)
    best = min(between(exchange, np.argsort(order), size) for order in ORDERS[k])
    assert between(exchange, map_to_nodes(exchange, size), size) == best


def test_communities_are_found_and_the_last_node_may_be_smaller():
    home = np.random.default_rng(1).permutation(22) // 4  # five nodes of four parts, one of two
    exchange = sp.csr_array((home[:, None] == home) * 9 + 1 - 10 * np.eye(22, dtype=np.int64))
    numbers = map_to_nodes(exchange, 4)
    for node in range(6):
        members = np.flatnonzero(numbers // 4 == node)
        assert len(set(home[members].tolist())) == 1
        assert (np.diff(numbers[members]) > 0).all()  # their order stays
    np.testing.assert_array_equal(numbers, map_to_nodes(exchange, 4))


def test_joined_parts_are_communities_of_one_size():
    home = np.random.default_rng(2).permutation(20) // 4
    exchange = sp.csr_array((home[:, None] == home) * 9 + 1 - 10 * np.eye(20, dtype=np.int64))
    groups = join_parts(exchange, 5)
    assert groups.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(groups), [4] * 5)
    assert len(set(zip(home.tolist(), groups.tolist(), strict=True))) == 5
    np.testing.assert_array_equal(join_parts(exchange, 20), np.arange(20))
    refuses("20 parts into 3", join_parts, exchange, 3, error=ValueError)


def test_bad_node_sizes():
    with pytest.raises(ValueError, match="0 ranks per node"):
        map_to_nodes(sp.csr_array((3, 3), dtype=np.int64), 0)
    with pytest.raises(ValueError, match="0 ranks per node"):
        node_traffic(sp.csr_array((3, 3), dtype=np.int64), 0)
