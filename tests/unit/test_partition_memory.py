"""Partitions within a limit of memory: forecasts, choices, and pieces that equal the whole."""

import numpy as np
import pytest
from command_line import run
from hypothesis import given, settings
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs

from partition import resident
from partition.graph import columns as columns_module
from partition.graph import graph as graph_module
from partition.graph import mixed_metrics
from partition.graph.aggregation import aggregation_matrix
from partition.graph.columns import column_pieces
from partition.graph.graph import DIRECTIONS
from partition.graph.metrics import measure
from partition.graph.mixed_metrics import measure_mixed_both
from partition.graph.store import read_partition, write_graph
from partition.importing.synthetic import rmat
from partition.models.graph import graph_model
from partition.models.hypergraph import hypergraph_model
from partition.pipeline import memory
from partition.pipeline.memory import within
from partition.refinement.objective import OBJECTIVES, Objective


@settings(max_examples=60)
@given(partitioned_graphs())
def test_columns_with_many_entries_are_left_out_of_the_graph(case):
    graph, _, _ = case
    for direction in DIRECTIONS:
        matrix = aggregation_matrix(graph, direction, normalize="none").toarray() != 0
        for most in (1, 2, 3):
            kept = matrix & (matrix.sum(axis=0) <= most)
            kept |= kept.T
            np.fill_diagonal(kept, False)
            model = graph_model(graph, direction, max_net=most)
            assert np.diff(model.indptr).tolist() == kept.sum(axis=1).tolist()
            np.testing.assert_array_equal(model.indices, np.nonzero(kept)[1])
            assert model.weights.tolist() == matrix.sum(axis=1).tolist(), "rows weigh what they did"
    refuses("max_net = -1", graph_model, graph, max_net=-1)


def test_measuring_in_pieces(monkeypatch):
    graph, k = rmat(9, 6000, seed=3), 5
    parts = np.random.default_rng(0).integers(0, k, graph.n).astype(np.int32)
    parts[parts == 3] = 2  # an empty part
    whole = [measure(graph, parts, k, "out"), *measure_mixed_both(graph, parts, k).values()]
    nets = hypergraph_model(graph, "out")
    monkeypatch.setattr(mixed_metrics, "AT_ONCE", 20)
    monkeypatch.setattr(columns_module, "PIECE", 50)
    monkeypatch.setattr(graph_module, "READ", 64)
    monkeypatch.setattr(column_pieces, "__defaults__", ("in", 50))
    again = [measure(graph, parts, k, "out"), *measure_mixed_both(graph, parts, k).values()]
    assert again == whole
    np.testing.assert_array_equal(hypergraph_model(graph, "out").pins, nets.pins)


# --- limits of the system -------------------------------------------------------------------------

GIB = 1 << 30
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
STAT = "inactive_file 1\ntotal_inactive_file 70\ntotal_active_file 30\n"
NOTHING = "total_inactive_file 0\ntotal_active_file 0\n"
GROUPS = {  # what the system's files say → limits, and how much of them is taken
    "version 2": ({
        "proc/self/cgroup": "0::/a/b\n", f"{V2}/a/b/memory.max": "max",
        f"{V2}/a/b/memory.current": "5", f"{V2}/a/b/memory.stat": "",
        f"{V2}/a/memory.max": f"{2 * GIB}", f"{V2}/a/memory.current": f"{GIB}",
        f"{V2}/a/memory.stat": "inactive_file 7\nactive_file 3\nanon 1\n",
    }, [(2 * GIB, GIB - 10)]),
    "version 1": ({
        "proc/self/cgroup": "9:cpu,cpuacct:/x\n8:memory:/a/b\n0::/\n",
        f"{V1}/a/b/memory.limit_in_bytes": f"{GIB}", f"{V1}/a/b/memory.usage_in_bytes": "500",
        f"{V1}/a/b/memory.stat": STAT, f"{V1}/a/memory.limit_in_bytes": f"{GIB // 2}",
        f"{V1}/a/memory.usage_in_bytes": "900", f"{V1}/a/memory.stat": NOTHING,
    }, [(GIB, 400), (GIB // 2, 900)]),
    "version 1, named as outside": ({
        "proc/self/cgroup": "8:memory:/docker/123\n", f"{V1}/memory.limit_in_bytes": f"{GIB}",
        f"{V1}/memory.usage_in_bytes": "500", f"{V1}/memory.stat": NOTHING,
    }, [(GIB, 500)]),
    "none": ({"proc/self/cgroup": "8:cpu:/a\n0::/\n"}, []),
}  # fmt: skip
CPU = "sys/fs/cgroup/cpu"
QUOTAS = {
    "0::/a/b\n": ({f"{V2}/a/b/cpu.max": "max 100000", f"{V2}/a/cpu.max": "150000 100000"}, [1.5]),
    "4:cpu,cpuacct:/a\n": ({
        f"{CPU}/a/cpu.cfs_quota_us": "-1", f"{CPU}/a/cpu.cfs_period_us": "100000",
        f"{CPU}/cpu.cfs_quota_us": "50000", f"{CPU}/cpu.cfs_period_us": "100000",
    }, [0.5]),
    "": ({}, []),
}  # fmt: skip


def test_limits_of_control_groups_of_both_versions(tmp_path):
    for case, (files, limits) in GROUPS.items():
        assert list(resident.group_limits(system(tmp_path / case, files))) == limits
    for own, (files, quotas) in QUOTAS.items():
        root = system(tmp_path / f"cpu-{len(own)}", files | {"proc/self/cgroup": own})
        assert list(resident.core_quotas(root).values()) == quotas


def system(root, files):
    """A folder with files in the places of those of the system."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# --- forecasts ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a graph with hubs."""
    path = tmp_path_factory.mktemp("memory") / "g.graph"
    return make_folder(path, rmat(15, 700_000, seed=1), direction="out")


def test_what_fits_is_chosen():
    graph = rmat(12, 60_000, seed=2)
    free = within(graph, "gp", 8, 1e12)
    assert (free.tool, free.options["max_net"]) == ("metis", 0)
    fixed = within(graph, "gp", 8, 1e12, tool="metis", options={"max_net": 100})
    assert fixed.peak < free.peak
    assert within(graph, "gp", 8, fixed.peak, tool="metis").options["max_net"] == 100
    less = within(graph, "gp", 8, free.peak - 1, tool="metis")
    assert less.options["max_net"] in memory.NETS
    assert less.peak < free.peak
    caught = refuses(r"too little: --model gp takes 0.\d\d GB", within, graph, "gp", 8, 1e8)
    assert "give --memory 0." in str(caught)
    least = within(graph, "gp", 8, 1e12, tool="metis", options={"max_net": 30})
    refuses("leave --refine out", within, graph, "gp", 8, least.peak, refine=Objective())
    refuses("not known how much --model mg takes", within, graph, "mg", 8, 1e12)
    refuses("a mixed exchange, takes", within, graph, "gp", 8, 1e12, refine=OBJECTIVES["mixed"])


def test_the_limit_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph("g.graph", rmat(10, 9000, seed=2), source={})
    add = ("add", "g.graph", "-k", 4, "--model")
    run(*add, "gp", "--name", "free")
    capped = run(*add, "gp", "--name", "capped", "--memory", "8GB")
    assert "GB at most: model" in capped.stderr
    free, capped = (read_partition("g.graph", name) for name in ("free", "capped"))
    np.testing.assert_array_equal(free.parts, capped.parts)
    assert (free.options, free.tool) == (capped.options, capped.tool)
    for model, size, told in (("gp", "50MB", "too little"), ("auto", "8GB", "auto takes")):
        assert told in run(*add, model, "--memory", size, code=2).stderr
