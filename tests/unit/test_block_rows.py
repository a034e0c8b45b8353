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
from gcnmpi.schemes.block_rows import share
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.replicated import NeededForecast
from partition.graph.metrics import measure

N = 50


@pytest.mark.parametrize(
    ("size", "copies"), [(1, 1), (4, 1), (2, 2), (4, 2), (6, 3), (12, 3), (8, 4), (10, 2), (3, 3)]
)
def test_the_busiest_ranks_are_among_those_named(size, copies):
    """And what is sent is received; what pairs of parts need is counted by runs."""
    graph = graph_of(np.random.default_rng(0).random((N, N)) < 0.08)
    parts = uneven_parts(N, size // copies)
    metrics = asdict(measure(graph, parts, size // copies))
    facts, rows = Facts(N, sum(metrics["nnz"]), False, True, 2, 8, metrics), np.bincount(parts)
    whole = BroadcastForecast(size, copies, facts, True)
    for forecast in (whole, NeededForecast(size, copies, facts)):
        volumes = [forecast.volume(rank, "aggregate", 1, 3) for rank in range(size)]
        assert max(v.sent for v in volumes) == max(volumes[r].sent for r in forecast.ranks())
        assert forecast.volume(0, "combine", 1, 3, 4) == NOTHING
        if forecast is whole or copies == 1:
            assert sum(v.sent for v in volumes) == sum(v.received for v in volumes)
    summed = 2 * (copies - 1) * rows[0] * 3 * 8 // copies  # over the copies of a block
    stages = [k for k in share(size // copies, copies, 0) if k]
    assert whole.volume(0, "aggregate", 1, 3).received == rows[stages].sum() * 3 * 8 + summed


def test_options_for_a_number_of_ranks():
    config = ReplicatedOptions(replication=3)
    assert (replicated.parts_needed(config, 12), bcast.ENTRY.parts(config, 12)) == (4, 0)
    refuses(r"does not divide the 8 ranks(.|\n)*1, 2, 4, 8", replicated.parts_needed, config, 8)
    assert bcast.ENTRY.variants(config, 8) == [config]
    grids = [(one.replication, one.sparse) for one in replicated.variants(config, 4)]
    assert grids == [(2, False), (2, True), (4, False), (4, True)]
    assert replicated.variants(config, 1) == []
