"""Plans of all ranks together, made without MPI, and exchanges carried out by hand."""

import numpy as np
import pytest
from hypothesis import given
from small_graphs import partitioned_graphs

from gcnmpi.halo.exchange import addition_matrix
from gcnmpi.halo.plan import local_numbers, make_plan
from gcnmpi.layout import row_order
from gcnmpi.layout.placing import halo_of
from gcnmpi.layout.row_order import Block
from gcnmpi.options.scheme import ROW_ORDERS
from partition.graph.aggregation import aggregation_matrix, from_coordinates
from partition.graph.metrics import measure


def all_plans(matrix, parts, k):
    """A plan for every rank: its columns, its halo, and the rows that others ask it for."""
    owns = [np.flatnonzero(parts == rank) for rank in range(k)]
    columns = [matrix[own].indices for own in owns]
    halos = [halo_of(own, touched, parts) for own, touched in zip(owns, columns, strict=True)]
    plans = []
    for rank in range(k):
        asked = [halo[parts[halo] == rank] for halo in halos]
        counts = np.array([len(ids) for ids in asked])
        plans.append(
            make_plan(owns[rank], halos[rank], parts[halos[rank]], np.concatenate(asked), counts)
        )
    return plans


def messages(plans):
    """(sender, receiver) → global ids, as the senders and as the receivers see them."""
    sent, received = {}, {}
    for rank, p in enumerate(plans):
        for i, peer in enumerate(p.send_peers):
            rows = p.send_rows[p.send_offsets[i] : p.send_offsets[i + 1]]
            sent[rank, int(peer)] = p.own[rows].tolist()
        for i, peer in enumerate(p.recv_peers):
            halo = p.halo[p.recv_offsets[i] : p.recv_offsets[i + 1]]
            received[int(peer), rank] = halo.tolist()
    return sent, received


@given(partitioned_graphs())
def test_own_rows_and_halo_are_what_a_rank_needs(case):
    graph, parts, k = case
    matrix = aggregation_matrix(graph)
    plans = all_plans(matrix, parts, k)
    assert sorted(v for p in plans for v in p.own.tolist()) == list(range(graph.n))
    for rank, p in enumerate(plans):
        touched = set(matrix[p.own].indices.tolist())
        assert set(p.halo.tolist()) == touched - set(p.own.tolist())
        assert len(set(p.halo.tolist())) == p.nhalo
        assert (np.diff(p.own) > 0).all()
        keys = [(parts[v], v) for v in p.halo]
        assert keys == sorted(keys)
        assert rank not in parts[p.halo]
        assert (np.diff(p.send_offsets) > 0).all()  # no message is empty
        assert (np.diff(p.recv_offsets) > 0).all()


@given(partitioned_graphs())
def test_what_is_sent_is_what_is_received_and_what_the_metrics_say(case):
    graph, parts, k = case
    plans = all_plans(aggregation_matrix(graph), parts, k)
    sent, received = messages(plans)
    assert sent == received
    metrics = measure(graph, parts, k, "in")
    assert [p.nsend for p in plans] == metrics.send_rows
    assert [p.nhalo for p in plans] == metrics.recv_rows
    assert [len(p.send_peers) for p in plans] == metrics.send_messages
    assert [len(p.recv_peers) for p in plans] == metrics.recv_messages


@given(partitioned_graphs())
def test_an_expand_and_its_adjoint(case):
    """[own | halo] after an expand holds the rows; a fold adds to their owners."""
    graph, parts, k = case
    plans = all_plans(aggregation_matrix(graph), parts, k)
    x = np.random.default_rng(0).integers(-9, 9, graph.n).astype(float)
    packed = [x[p.own][p.send_rows] for p in plans]
    place = {
        (rank, int(peer)): packed[rank][p.send_offsets[i] : p.send_offsets[i + 1]]
        for rank, p in enumerate(plans)
        for i, peer in enumerate(p.send_peers)
    }
    for rank, p in enumerate(plans):
        halo = [place[int(peer), rank] for peer in p.recv_peers]
        np.testing.assert_array_equal(np.concatenate([*halo, []]), x[p.halo])
        ids = np.concatenate((p.own, p.halo))
        order = np.random.default_rng(rank).permutation(len(ids))
        np.testing.assert_array_equal(local_numbers(p.own, p.halo, ids[order]), order)
    # The adjoint: every rank adds 1 to each of its halo rows.
    for p in plans:
        sums = addition_matrix(p) @ np.ones(p.nsend)
        wanted = [sum(v in other.halo for other in plans) for v in p.own]
        np.testing.assert_array_equal(sums, wanted)


def test_a_rank_without_vertices_and_a_graph_without_edges():
    parts, nothing = np.array([0, 2, 0]), np.array([], np.int32)
    halo = halo_of(nothing, nothing, parts)
    p = make_plan(nothing, halo, parts[halo], nothing, np.zeros(3, np.int64))
    assert (p.nown, p.nhalo, p.nsend) == (0, 0, 0)
    assert len(p.send_peers) == len(p.recv_peers) == 0
    assert p.send_offsets.tolist() == p.recv_offsets.tolist() == [0]
    assert addition_matrix(p).shape == (0, 0)
    assert local_numbers(np.array([0, 2]), halo, np.array([2, 0])).tolist() == [1, 0]
    for unknown in (1, 3):
        with pytest.raises(ValueError, match="neither owns nor receives"):
            local_numbers(np.array([0, 2]), halo, np.array([2, unknown]))


# Orders of rows: permutations, near the diagonal where that is asked for.


def shuffled_path(count):
    """The entries of a path through all rows in a random order."""
    place = np.random.default_rng(0).permutation(count).astype(np.int32)
    return place[:-1], place[1:]


def block_of(row, column, count):
    """The block of entries at some rows and columns."""
    matrix = from_coordinates(row, column, np.ones(len(row), bool), (count, count))
    lengths = (np.bincount(of, minlength=count) for of in (row, column))
    far = 2 * np.count_nonzero(np.abs(row - column) >= row_order.FAR * count) >= max(len(row), 1)
    return Block(
        *lengths, far, pattern=(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    )


def bandwidth(row, column, first):
    place = np.argsort(first)
    return np.abs(place[row] - place[column]).max()


@pytest.mark.parametrize("name", list(ROW_ORDERS))
@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_without_entries(name, count):
    none = np.empty(0, np.int32)
    first = ROW_ORDERS.get(name)(block_of(none, none, count))
    assert first is None or sorted(first) == list(range(count))


@pytest.mark.parametrize("name", ["auto", "rcm", "degree"])
def test_every_row_comes_once(name):
    row, column = np.random.default_rng(1).integers(0, 50, (2, 80)).astype(np.int32)
    assert sorted(ROW_ORDERS.get(name)(block_of(row, column, 50))) == list(range(50))


@pytest.mark.parametrize(("name", "most"), [("auto", row_order.WINDOW), ("rcm", 1)])
def test_a_shuffled_path_is_put_in_order(name, most):
    row, column = shuffled_path(5000)
    assert bandwidth(row, column, ROW_ORDERS.get(name)(block_of(row, column, 5000))) <= most


def test_an_order_that_means_something_is_kept_but_in_windows():
    path, window = (np.arange(1499), np.arange(1, 1500)), row_order.WINDOW
    assert ROW_ORDERS.get("none")(block_of(*shuffled_path(300), 300)) is None
    first = ROW_ORDERS.get("auto")(block_of(*path, 1500))
    # Each row has an entry, but the last; each column, but the first, which its window ends with.
    assert first.tolist() == [*range(1, window), 0, *range(window, 1500)]


def test_rows_of_one_length_stand_together_in_windows():
    row, column = np.random.default_rng(3).integers(0, 1300, (2, 9000))
    near = np.abs(row - column) < 100
    row, column = row[near], column[near]
    first = ROW_ORDERS.get("auto")(block_of(row, column, 1300))
    lengths = np.bincount(row, minlength=1300)
    for start in range(0, 1300, row_order.WINDOW):
        rows = first[start : start + row_order.WINDOW]
        assert sorted(rows) == list(range(start, min(start + row_order.WINDOW, 1300)))
        assert np.all(np.diff(lengths[rows]) <= 0)


def test_hubs_come_first():
    row, column = np.array([0, 1, 2, 4, 4]), np.array([3, 3, 3, 1, 0])
    assert row_order.by_degree(block_of(row, column, 6)).tolist() == [3, 0, 1, 4, 2, 5]
