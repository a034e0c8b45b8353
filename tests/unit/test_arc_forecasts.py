"""Rows of arcs on paper: how many a rank has, and the memory that they take."""

from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store

from gcnmpi.layout.place import Place, Space
from gcnmpi.options.config import from_table
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import memory
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.graph import ArcData
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic import sbm

N, K = 400, 4


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    graph = sbm(N, 3, degree=7, features=5)
    numbers = np.arange(graph.nnz, dtype=np.int32)
    data = ArcData(
        np.ones((graph.nnz, 6), np.float32), numbers % 5 - 1, {"train": numbers % 2 == 0}
    )
    graph = replace(graph, arc_data=data)
    return open_graph(store(tmp_path_factory.mktemp("forecasts") / "g.graph", graph, K))


def case_of(stored, task=(), **model):
    config = from_table({"task": dict(task), "model": model})
    partition = read_partition(stored.path, f"rp-{K}")
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


def test_the_arcs_that_train_are_counted(stored):
    data = stored.graph.arc_data
    share = np.mean(data.masks["train"] & (data.labels >= 0))
    for rank in range(K):
        case = case_of(stored, {"on": "arcs"}, name="mgn", hidden=[6])
        assert case.train_rows(rank) == round(case.arcs(rank)[2] * share) > 0
