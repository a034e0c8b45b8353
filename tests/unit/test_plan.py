"""Plans of all ranks together, made without MPI, and exchanges carried out by hand."""

import numpy as np
import pytest
from hypothesis import given
from small_graphs import partitioned_graphs

from gcnmpi.halo.exchange import addition_matrix
from gcnmpi.halo.plan import local_numbers, make_plan
from gcnmpi.layout.placing import halo_of
from partition.graph.aggregation import aggregation_matrix
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
        # Slices of the halo and of the packed rows follow each other, none is empty.
        for peers, offsets, end in (
            (p.recv_peers, p.recv_offsets, p.nhalo),
            (p.send_peers, p.send_offsets, p.nsend),
        ):
            assert (offsets[0], offsets[-1]) == (0, end)
            assert len(offsets) == len(peers) + 1
            assert (np.diff(offsets) > 0).all()
            assert (np.diff(peers) > 0).all()


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
