"""Rows of arcs on paper: how many a rank has, and the memory that they take."""

from dataclasses import replace

import numpy as np
import pytest
from small_graphs import from_arcs

from gcnmpi.layout.place import Place, Space
from gcnmpi.options.config import from_table
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import memory
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.arc_data import ArcData
from partition.graph.store import open_graph, read_partition, write_graph
from partition.pipeline.adding import add_partition

N, K, OF_ARCS = 400, 4, 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    ends = np.random.default_rng(0).integers(0, N, (2, 3000))
    ends = ends[:, ends[0] != ends[1]]
    graph = from_arcs(N, [*zip(*ends, strict=True)])
    path = tmp_path_factory.mktemp("forecasts") / "g.graph"
    of_arcs = ArcData(np.ones((graph.nnz, OF_ARCS), np.float32))
    given = {"features": np.ones((N, 5), np.float32), "labels": np.arange(N, dtype=np.int32) % 3}
    write_graph(path, replace(graph, arc_data=of_arcs, **given), source={})
    add_partition(path, "rp", k=K, name="rp")
    return open_graph(path)


def case_of(stored, **model):
    config, partition = from_table({"model": model}), read_partition(stored.path, "rp")
    candidate = Candidate(config.scheme, {}, K, partition)
    return Setting(stored, config, Machine(), 16).case(candidate, K)


@pytest.mark.parametrize(("name", "drops"), [("transformer", True), ("gine", False)])
def test_arcs_have_keys_where_they_are_dropped(stored, monkeypatch, name, drops):
    """A key of eight bytes for each of them."""
    more = {"attention_dropout": 0.5} if drops else {}
    case, entries = case_of(stored, name=name, dropout=0.5, **more), Place(1, space=Space.ENTRIES)
    assert case.program.drops_entries == drops
    assert not case_of(stored, name=name).program.drops_entries
    needed = memory(case)
    monkeypatch.setattr(type(case.program), "drops_entries", False)
    keys = {8 * drops * case.rows(rank, entries) for rank in range(K)}
    assert needed - memory(case) in keys
