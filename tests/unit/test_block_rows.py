"""Block rows on paper: who multiplies with which blocks, what every rank sends and receives."""

from dataclasses import asdict

import numpy as np
import pytest
from refusals import refuses
from stored_graphs import graph_of, uneven_parts

from gcnmpi.core.volume import NOTHING
from gcnmpi.options.scheme import ReplicatedOptions
from gcnmpi.schemes import bcast, replicated
from gcnmpi.schemes.bcast import BroadcastForecast
from gcnmpi.schemes.block_rows import copy_of, share
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.replicated import NeededForecast
from partition.graph.metrics import exchange_matrix, measure

N = 50
GRAPH = graph_of(np.random.default_rng(0).random((N, N)) < 0.08)


def test_every_stage_is_in_the_share_of_one_copy():
    for count, copies in ((1, 1), (1, 3), (5, 3), (7, 2), (12, 4), (3, 8)):
        shares = [share(count, copies, copy) for copy in range(copies)]
        assert [stage for part in shares for stage in part] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert all(stage in shares[copy_of(count, copies, stage)] for stage in range(count))


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize(
    ("size", "copies"), [(1, 1), (4, 1), (2, 2), (4, 2), (6, 3), (12, 3), (8, 4), (10, 2), (3, 3)]
)
def test_what_moves_is_what_pairs_of_parts_need_or_whole_blocks(size, copies, folds):
    k, width = size // copies, 3
    parts = uneven_parts(N, k)
    metrics = asdict(measure(GRAPH, parts, k))
    facts = Facts(N, sum(metrics["nnz"]), False, folds, 2, 8, metrics)
    rows, pairs = np.bincount(parts, minlength=k), exchange_matrix(GRAPH, parts, k).toarray()
    blocks, needed = np.zeros((2, size), int)  # rows that a rank receives
    received, summed = {}, 2 * (copies - 1) * np.repeat(rows, copies) * width * 8 // copies
    for rank in range(size):
        block, copy = divmod(rank, copies)
        stages = np.array(share(k, copies, copy), int)
        blocks[rank] = rows[stages].sum() - (block in stages) * rows[block]
        column = pairs[stages, block]
        received[rank] = needed[rank], _ = int(column.sum()), int(np.count_nonzero(column))
    guessed, exact = (
        NeededForecast(size, copies, facts),
        NeededForecast(size, copies, facts, received),
    )
    for forecast, expected in (
        (BroadcastForecast(size, copies, facts, True), blocks), (exact, needed), (guessed, None)
    ):  # fmt: skip
        for product in ("aggregate", "aggregate_t"):
            volumes = [forecast.volume(rank, product, 1, width) for rank in range(size)]
            if expected is not None:
                assert sum(v.sent for v in volumes) == sum(v.received for v in volumes)
            if product == "aggregate" and expected is not None:
                assert [v.received for v in volumes] == (expected * width * 8 + summed).tolist()
            named = [volumes[rank] for rank in forecast.ranks()]
            assert max(v.sent for v in named) == max(v.sent for v in volumes)
        assert forecast.volume(0, "combine", 1, 3, 4) == NOTHING
    # Without pairs what is received is in proportion, and exact for one copy.
    ways = [[one.volume(r, "aggregate", 1, width) for r in range(size)] for one in (guessed, exact)]
    assert [v.sent for v in ways[0]] == [v.sent for v in ways[1]]
    assert sum(v.received for v in ways[0]) >= sum(v.received for v in ways[1])
    assert copies > 1 or ways[0] == ways[1]


def test_options_for_a_number_of_ranks():
    config = ReplicatedOptions(replication=3)
    assert (replicated.parts_needed(config, 12), bcast.ENTRY.parts(config, 12)) == (4, 0)
    refuses(r"does not divide the 8 ranks(.|\n)*1, 2, 4, 8", replicated.parts_needed, config, 8)
    assert bcast.ENTRY.variants(config, 8) == [config]
    grids = [(one.replication, one.sparse) for one in replicated.variants(config, 4)]
    assert grids == [(2, False), (2, True), (4, False), (4, True)]
    assert replicated.variants(config, 1) == []
