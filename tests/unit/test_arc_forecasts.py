"""Rows of arcs on paper: how many a rank has, and the memory that they take."""

from dataclasses import replace

import numpy as np
import pytest
from small_graphs import from_arcs

from gcnmpi.layout.place import Place, Space
from gcnmpi.layout.runtime import Source
from gcnmpi.nn.compile.on_scheme import program_on
from gcnmpi.options.config import from_table
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.case import Case, workload
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import memory
from gcnmpi.schemes.forecast import make_facts
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


def case_of(stored, model, trains=True, **scheme):
    config = from_table({"model": model, "scheme": scheme})
    source = Source(stored, read_partition(stored.path, "rp"), "in")
    work = workload(stored, config)
    size = K * scheme.get("replication", 1)
    program, demand = program_on(work.network, source, work.config, size, trains)
    entry = SCHEMES.get(config.scheme.name)
    forecast = entry.forecast(config.scheme, size, make_facts(source, work.config, demand))
    return Case(forecast, size, work, Machine(), 16, program)


@pytest.mark.parametrize(("name", "drops"), [("transformer", True), ("gine", False)])
def test_arcs_have_keys_where_they_are_dropped(stored, monkeypatch, name, drops):
    model = {"name": name, "dropout": 0.5, "attention_dropout": 0.5}
    read = {"gine": ("name", "dropout")}.get(name, tuple(model))
    dropped = case_of(stored, {key: model[key] for key in read}).program
    assert dropped.drops_entries == drops
    assert not case_of(stored, {"name": name}).program.drops_entries
    case = case_of(stored, {key: model[key] for key in read})
    needed, entries = memory(case), Place(1, space=Space.ENTRIES)
    monkeypatch.setattr(type(case.program), "drops_entries", False)
    keys = {8 * drops * case.rows(rank, entries) for rank in range(K)}
    assert needed - memory(case) in keys
