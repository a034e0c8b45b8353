"""Parts on nodes: traffic between them, the numbers that make it least, and nodes first."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import as_json, run
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs, random_graph

from partition.graph.metrics import exchange_matrix, node_traffic
from partition.importing.synthetic import sbm
from partition.models.descriptions import graph_model, hypergraph_model, row_model
from partition.pipeline.adding import (
    add_partition,
    induced,
    join_parts,
    map_to_nodes,
    partition_nodes_first,
)
from partition.reporting.comparison import compare

directions = st.sampled_from(["in", "out"])


@settings(max_examples=100)
@given(partitioned_graphs(), directions, st.integers(1, 7))
def test_node_traffic_by_hand(case, direction, size):
    graph, parts, k = case
    exchange = exchange_matrix(graph, parts, k, direction)
    traffic, nodes = node_traffic(exchange, size), -(-k // size)
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
    assert (figures["inter_volume"], figures["intra_volume"]) == (sum(send), sum(inside))


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
    assert (sorted(numbers.tolist()), numbers.dtype) == (list(range(k)), np.int32)
    assert between(exchange, numbers, size) <= between(exchange, np.arange(k), size)


HALVES = [(*some, *sorted({*range(8)} - {*some})) for some in itertools.combinations(range(8), 4)]
ORDERS = {6: list(itertools.permutations(range(6))), 8: HALVES}


def test_small_cases_reach_the_optimum():
    for k, size, seed in [*((6, 2, seed) for seed in range(5)), (8, 4, 16), (8, 4, 17)]:
        exchange = random_exchange(k, 0.6, seed)
        best = min(between(exchange, np.argsort(order), size) for order in ORDERS[k])
        assert between(exchange, map_to_nodes(exchange, size), size) == best
        for call in (map_to_nodes, node_traffic):
            refuses("0 ranks per node", call, exchange, 0, error=ValueError)


def communities(n, seed):
    """The communities of parts, four in each, and an exchange that is large within them."""
    home = np.random.default_rng(seed).permutation(n) // 4
    return home, sp.csr_array((home[:, None] == home) * 9 + 1 - 10 * np.eye(n, dtype=np.int64))


def test_communities_are_found_and_the_last_node_may_be_smaller():
    home, exchange = communities(22, 1)
    numbers = map_to_nodes(exchange, 4)
    for node in range(6):
        members = np.flatnonzero(numbers // 4 == node)
        assert len(set(home[members].tolist())) == 1
        assert (np.diff(numbers[members]) > 0).all()  # their order stays
    home, exchange = communities(20, 2)
    groups = join_parts(exchange, 5)
    assert (groups.dtype, np.bincount(groups).tolist()) == (np.int32, [4] * 5)
    assert len(set(zip(home.tolist(), groups.tolist(), strict=True))) == 5
    np.testing.assert_array_equal(join_parts(exchange, 20), np.arange(20))
    refuses("20 parts into 3 of as many each", join_parts, exchange, 3, error=ValueError)


@settings(max_examples=100)
@given(partitioned_graphs(), directions)
def test_pieces_hold_what_is_inside(case, direction):
    graph, parts, _ = case
    members = np.flatnonzero(parts == parts[0])
    number = {int(v): i for i, v in enumerate(members)}
    models = [of(graph, direction) for of in (graph_model, hypergraph_model, row_model)]
    of_graph, of_nets, rows = models
    pieces = [induced(model, members) for model in models]

    def lists(model, values):
        return [of.tolist() for of in np.split(values, model.indptr[1:-1])]

    def inside(model, values):
        return [[number[v] for v in of if v in number] for of in lists(model, values)]

    near = inside(of_graph, of_graph.indices)
    assert lists(pieces[0], pieces[0].indices) == [near[v] for v in members]
    found = lists(pieces[1], pieces[1].pins) if pieces[1].nets else []
    assert found == [net for net in inside(of_nets, of_nets.pins) if len(net) > 1]
    assert all(o in net for net, o in zip(found, pieces[1].owners.tolist(), strict=True))
    for piece in pieces:
        assert piece.weights.tolist() == rows.weights[members].tolist()


def test_nodes_first_numbers_and_balance():
    model, asked = row_model(random_graph(60, 300)), []

    def solve(piece, k, imbalance):
        asked.append((k, imbalance))
        return np.arange(len(piece.weights)) % k

    parts = partition_nodes_first(model, 6, 3, solve, 0.1)
    np.testing.assert_array_equal(parts // 3, np.arange(60) % 2)
    assert (np.unique(parts).tolist(), asked[0]) == ([*range(6)], (2, 0.05))
    limit = 1.1 * model.weights.sum() / 6
    loads = np.bincount(parts // 3, weights=model.weights)
    for (k, imbalance), load in zip(asked[1:], loads, strict=True):
        assert k == 3
        assert (1 + imbalance) * load / 3 == pytest.approx(limit) or imbalance == 0
    one = lambda piece, k, imbalance: np.arange(len(piece.weights)) == 0  # noqa: E731
    for k, size in ((7, 2), (4, 4), (4, 1), (4, 8), (6, 3)):
        model = row_model(random_graph(8, 20))
        assert partition_nodes_first(model, k, size, one, 0.1) is None


@pytest.mark.slow
def test_partitions_for_nodes_of_several_ranks(tmp_path):
    path = make_folder(tmp_path / "c.graph", sbm(1200, 3, degree=12, intra=0.95, seed=2))
    between = {}
    for mapping in ("nodes-first", "flat"):
        made = add_partition(path, "gp", 12, ranks_per_node=4, mapping=mapping, name=mapping)
        between[mapping] = sum(made.nodes["in"].send_rows)
        assert made.options.items() >= {"ranks_per_node": 4, "mapping": mapping}.items()
    random = add_partition(path, "rp", 12, ranks_per_node=4)
    assert max(between.values()) < 0.4 * sum(random.nodes["in"].send_rows)
    rows = compare(path, ["flat", "nodes-first"])
    assert {row["name"]: row["nodes"]["inter_volume"] for row in rows} == between
    refuses("unknown mapping 'flt'", add_partition, path, "gp", 4, ranks_per_node=2, mapping="flt")
    run("add", path, "--model=gp", "-k4", "--ranks-per-node=2")
    facts = as_json("info", path, "gp-4-2pernode")
    assert facts["node_summary"]["in"]["inter_volume"] == sum(facts["nodes"]["in"]["send_rows"])
