"""Block rows on paper: who multiplies with which blocks, what every rank sends and receives."""

from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from gcnmpi.core.volume import NOTHING
from gcnmpi.layout.place import Place
from gcnmpi.options.scheme import ReplicatedOptions
from gcnmpi.schemes import bcast, replicated
from gcnmpi.schemes.bcast import BroadcastForecast
from gcnmpi.schemes.block_rows import copy_of, share
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.replicated import NeededForecast
from partition.graph.graph import Graph
from partition.graph.metrics import exchange_matrix, measure

N = 50
GRIDS = [(1, 1), (4, 1), (2, 2), (4, 2), (6, 2), (6, 3), (12, 3), (8, 4), (10, 2), (3, 3)]


def random_graph():
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(np.where(rng.random((N, N)) < 0.08, 1.0, 0.0))
    return Graph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))


def facts_of(graph, parts, k, folds=False):
    metrics = asdict(measure(graph, parts, k))
    return Facts(N, sum(metrics["nnz"]), False, folds, 2, 8, metrics)


def uneven(k):
    """Part 1 is empty where there are three or more."""
    shares = np.arange(k, 0, -1.0)
    shares[1:2] = 0 if k > 2 else 1
    return np.random.default_rng(k).choice(k, N, p=shares / shares.sum())


@pytest.mark.parametrize(("count", "copies"), [(1, 1), (1, 3), (5, 3), (7, 2), (12, 4), (3, 8)])
def test_every_stage_is_in_the_share_of_one_copy(count, copies):
    shares = [share(count, copies, copy) for copy in range(copies)]
    assert [stage for part in shares for stage in part] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(stage in shares[copy_of(count, copies, stage)] for stage in range(count))


@pytest.mark.parametrize(("size", "copies"), GRIDS)
def test_broadcasts_bring_each_share_of_the_blocks(size, copies):
    k = size // copies
    parts = uneven(k)
    forecast = BroadcastForecast(size, copies, facts_of(random_graph(), parts, k), True)
    rows = np.bincount(parts, minlength=k)
    width, volumes = 3, []
    for rank in range(size):
        block, copy = divmod(rank, copies)
        stages = share(k, copies, copy)
        received = sum(rows[stage] for stage in stages if stage != block)
        summed = 2 * (copies - 1) * rows[block] * width * 8 // copies
        volume = forecast.volume(rank, "aggregate", 1, width)
        assert volume.received == received * width * 8 + summed
        assert volume == forecast.volume(rank, "aggregate_t", 2, width)
        assert forecast.shape(rank, Place(0), width) == (rows[block], width)
        assert sum(one.entries for one in forecast.work(rank, "aggregate", 1, width)) <= (
            forecast.entries(rank)
        )
        volumes.append(volume)
    assert sum(v.sent for v in volumes) == sum(v.received for v in volumes)
    # Where c divides k the copies share equally, and nothing depends on P for c = 1.
    if copies == 1:
        assert [v.received for v in volumes] == ((N - rows) * width * 8).tolist()


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize(("size", "copies"), GRIDS)
def test_needed_rows_are_those_of_pairs_of_parts(size, copies, folds):
    k, graph = size // copies, random_graph()
    parts = uneven(k)
    pairs = exchange_matrix(graph, parts, k).toarray()
    received = {}
    for rank in range(size):
        block, copy = divmod(rank, copies)
        column = pairs[list(share(k, copies, copy)), block]
        received[rank] = int(column.sum()), int(np.count_nonzero(column))
    facts = facts_of(graph, parts, k, folds)
    exact = NeededForecast(size, copies, facts, received)
    for product in ("aggregate", "aggregate_t"):
        volumes = [exact.volume(rank, product, 1, 3) for rank in range(size)]
        assert sum(v.sent for v in volumes) == sum(v.received for v in volumes)
    moved = [exact.volume(rank, "aggregate", 1, 1) for rank in range(size)]
    reduced = sum(2 * (copies - 1) * exact.rows(rank // copies) * 8 // copies
                  for rank in range(size))  # fmt: skip
    assert sum(v.received for v in moved) == 8 * pairs.sum() + reduced
    # Without pairs what is received is in proportion, and exact for one copy.
    estimated = NeededForecast(size, copies, facts)
    guesses = [estimated.volume(rank, "aggregate", 1, 1) for rank in range(size)]
    assert [v.sent for v in guesses] == [v.sent for v in moved]
    assert sum(v.received for v in guesses) >= sum(v.received for v in moved)
    if copies == 1:
        assert guesses == moved
    assert exact.volume(0, "combine", 1, 3, 4) == NOTHING


def test_the_busiest_ranks_are_among_those_named():
    graph, size, copies = random_graph(), 12, 3
    facts = facts_of(graph, uneven(4), 4)
    for forecast in (BroadcastForecast(size, copies, facts, True),
                    NeededForecast(size, copies, facts)):  # fmt: skip
        volumes = [forecast.volume(rank, "aggregate", 1, 1) for rank in range(size)]
        named = [volumes[rank] for rank in forecast.ranks()]
        assert max(v.sent for v in named) == max(v.sent for v in volumes)


def test_options_for_a_number_of_ranks():
    config = ReplicatedOptions(replication=3)
    assert replicated.parts_needed(config, 12) == 4
    assert bcast.ENTRY.parts(config, 12) == 0
    refuses(r"does not divide the 8 ranks(.|\n)*1, 2, 4, 8", replicated.parts_needed, config, 8)
    assert bcast.ENTRY.variants(config, 8) == [config]
    grids = [(one.replication, one.sparse) for one in replicated.variants(config, 4)]
    assert grids == [(2, False), (2, True), (4, False), (4, True)]
    assert replicated.variants(config, 1) == []
