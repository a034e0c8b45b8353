"""Partitions within a limit of memory: forecasts, choices, and pieces that equal the whole."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import weakref

import numpy as np
import pytest
from command_line import run
from hypothesis import given, settings
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs, random_graph

from gcnmpi.core.resident import allowed_bytes
from partition import resident
from partition.backends import Tool
from partition.backends import process as process_module
from partition.graph import columns as columns_module
from partition.graph import graph as graph_module
from partition.graph import mixed_metrics
from partition.graph.aggregation import aggregation_matrix
from partition.graph.columns import column_pieces, columns, loops, symmetrised
from partition.graph.graph import DIRECTIONS, REVERSED, row_sizes
from partition.graph.metrics import measure
from partition.graph.mixed_metrics import measure_mixed_both
from partition.graph.store import read_partition, write_graph
from partition.importing.synthetic import rmat
from partition.models.graph import GraphModel, graph_model
from partition.models.hypergraph import hypergraph_model
from partition.pipeline import memory
from partition.pipeline.memory import Sizes, forecast, within
from partition.refinement.objective import OBJECTIVES, Objective


@pytest.fixture(params=[1, 5, 10**6])
def small_pieces(request, monkeypatch):
    """Pieces of so many entries."""
    monkeypatch.setattr(graph_module, "READ", min(request.param, 7))
    return request.param


def test_pieces_of_columns_are_the_columns(small_pieces):
    for seed in range(5):
        graph = random_graph(30, 90, seed)
        for direction in DIRECTIONS:
            matrix = aggregation_matrix(graph, direction, normalize="none").tocsc()
            assert row_sizes(graph, REVERSED[direction]).tolist() == np.diff(matrix.indptr).tolist()
            indptr, rows = columns(graph, direction)
            covered = 0
            for first, last, some, found in column_pieces(graph, direction, small_pieces):
                assert (first, some[0]) == (covered, 0)
                assert last - first == 1 or len(found) <= small_pieces
                np.testing.assert_array_equal(found, rows[indptr[first] : indptr[last]])
                np.testing.assert_array_equal(some, indptr[first : last + 1] - indptr[first])
                covered = last
            assert covered == graph.n
            stored = rows == np.repeat(np.arange(graph.n), np.diff(indptr))
            assert np.count_nonzero(loops(graph)) == np.count_nonzero(stored)


def test_pieces_of_the_symmetrised_graph_are_the_whole(small_pieces):
    for seed in range(5):
        graph = random_graph(30, 90, seed)
        dense = graph.adjacency().toarray() != 0
        dense |= dense.T
        np.fill_diagonal(dense, False)
        for first, last, degree, indices in symmetrised(graph, small_pieces):
            np.testing.assert_array_equal(degree, dense[first:last].sum(axis=1))
            np.testing.assert_array_equal(indices, np.nonzero(dense[first:last])[1])


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


def test_a_model_in_files_leaves_memory():
    model = graph_model(random_graph(40, 200))
    whole, gone = model.indices.copy(), weakref.ref(model.indices)
    given = [model]
    del model
    with process_module.in_files(given.pop()) as mapped:
        gc.collect()
        assert gone() is None
        np.testing.assert_array_equal(mapped.indices, whole)
        # A process of a tool is given the same files; arrays of part of a file are written.
        view = GraphModel(mapped.weights, mapped.indptr, mapped.indices[:-1])
        assert process_module._file_of(mapped.indices).name == "indices.npy"
        assert process_module._file_of(view.indices) is None


# --- limits of the system -------------------------------------------------------------------------

GIB = 1 << 30
GROUPS = {
    "version 2": ({"proc/self/cgroup": "0::/a/b\n", **{
        f"sys/fs/cgroup/{where}": text for where, text in {
            "a/b/memory.max": "max", "a/b/memory.current": "5", "a/b/memory.stat": "",
            "a/memory.max": f"{2 * GIB}", "a/memory.current": f"{GIB}",
            "a/memory.stat": "inactive_file 7\nactive_file 3\nanon 1\n",
        }.items()}}, [(2 * GIB, GIB - 10)]),
    "version 1": ({"proc/self/cgroup": "9:cpu,cpuacct:/x\n8:memory:/a/b\n0::/\n", **{
        f"sys/fs/cgroup/memory/{where}": text for where, text in {
            "a/b/memory.limit_in_bytes": f"{GIB}", "a/b/memory.usage_in_bytes": "500",
            "a/b/memory.stat": "inactive_file 1\ntotal_inactive_file 70\ntotal_active_file 30\n",
            "a/memory.limit_in_bytes": f"{GIB // 2}", "a/memory.usage_in_bytes": "900",
            "a/memory.stat": "total_inactive_file 0\ntotal_active_file 0\n",
        }.items()}}, [(GIB, 400), (GIB // 2, 900)]),
    "version 1, named as outside": ({"proc/self/cgroup": "8:memory:/docker/123\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "500",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\ntotal_active_file 0\n",
    }, [(GIB, 500)]),
    "none": ({"proc/self/cgroup": "8:cpu:/a\n0::/\n"}, []),
    "no groups": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", GROUPS)
def test_limits_of_control_groups_of_both_versions(tmp_path, case):
    files, limits = GROUPS[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(resident.group_limits(tmp_path)) == limits


QUOTAS = {
    "version 2": ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                   "sys/fs/cgroup/a/cpu.max": "150000 100000"}, [1.5]),
    "version 1": ({"proc/self/cgroup": "4:cpu,cpuacct:/a\n",
                   "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
                   "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
                   "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
                   "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, [0.5]),
    "no groups": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTAS)
def test_quotas_of_cores_of_both_versions(tmp_path, case):
    files, quotas = QUOTAS[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(resident.core_quotas(tmp_path).values()) == quotas


def test_a_limit_on_addresses_counts_for_the_process_alone(monkeypatch):
    limits = {resource.RLIMIT_AS: (10 * GIB, 20 * GIB)}
    infinite = (resource.RLIM_INFINITY,) * 2
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, infinite))
    assert list(resident.process_limits()) == [(10 * GIB, "VmSize:")]
    assert 0 < allowed_bytes() < 10 * GIB
    assert resident.most_bytes() <= 10 * GIB
    refuses("this machine or job has 10", resident.check_memory, 11 * GIB, "it")
    limits.clear()
    assert allowed_bytes() == float("inf")


# --- forecasts ------------------------------------------------------------------------------------

MEASURED = """
import json, sys
from partition.pipeline.adding import add_partition
from partition.refinement.objective import Objective
from partition.resident import taken
said = []
add_partition(sys.argv[1], sys.argv[2], 8, name="m", direction="out", memory=1e12,
              report=said.append, refine=Objective() if sys.argv[3] else None, overwrite=True)
print(json.dumps({"taken": taken(), "said": said}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a graph with hubs."""
    path = tmp_path_factory.mktemp("memory") / "g.graph"
    return make_folder(path, rmat(15, 700_000, seed=1), direction="out")


@pytest.mark.parametrize(("model", "refined"), [("rp", ""), ("gp", "")])
def test_forecasts_are_upper_bounds_and_near(folder, model, refined):
    """Not below what is taken, and at most two and a half times as much."""
    command = [sys.executable, "-c", MEASURED, str(folder), model, refined]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    own, other = found["taken"]
    stages = dict(part.rsplit(" ", 1) for part in found["said"][0].split(": ", 2)[2].split(", "))
    peak = max(map(float, stages.values())) * 1e9
    assert max(own, other) <= peak <= 2.5 * (own + other)
    said = found["said"][1].removeprefix("memory: taken ").split(" GB")[0]
    assert float(said) == pytest.approx(own / 1e9, abs=0.01)  # it is said before the end


def sizes_of(n, mean, k=64):
    """Of a large graph with columns of all lengths."""
    nets = np.resize(np.array([mean // 4, mean // 2, mean, 9 * mean // 4]), n)
    return Sizes(n, int(nets.sum()) - n, nets, 4, k)


def test_forecasts_grow_with_the_graph():
    def peak(sizes, model="gp", refine=False, **options):
        tool = Tool(print, distribution="it", memory=lambda o, n, ends: 40 * ends + 300 * n)
        return max(forecast(sizes, tool, options, model, refine).values())

    small, large = sizes_of(10**5, 100), sizes_of(2 * 10**5, 100)
    assert peak(small) < peak(large) < 2 * peak(small)
    assert peak(large, max_net=100) < peak(large)
    assert peak(large, refine=True) >= peak(large)
    assert peak(large, max_net=100, refine=True) == pytest.approx(
        max(peak(large, max_net=100), forecast(large, Tool(print), {}, "rp", True)["refinement"])
    )


def test_what_fits_is_chosen():
    graph = rmat(12, 60_000, seed=2)
    free = within(graph, "gp", 8, 1e12)
    assert (free.tool, free.options["max_net"]) == ("metis", 0)
    fixed = within(graph, "gp", 8, 1e12, tool="metis", options={"max_net": 100})
    assert within(graph, "gp", 8, fixed.peak, tool="metis").options["max_net"] == 100
    assert within(graph, "gp", 8, free.peak - 1, tool="metis").options["max_net"] in memory.NETS
    caught = refuses(r"too little: --model gp takes 0.\d\d GB", within, graph, "gp", 8, 1e8)
    assert "give --memory 0." in str(caught)
    least = within(graph, "gp", 8, 1e12, tool="metis", options={"max_net": 30})
    refuses("leave --refine out", within, graph, "gp", 8, least.peak, refine=Objective())
    refuses("not known how much --model mg takes", within, graph, "mg", 8, 1e12)
    refuses("a mixed exchange, takes", within, graph, "gp", 8, 1e12, refine=OBJECTIVES["mixed"])


def test_the_limit_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph("g.graph", rmat(10, 9000, seed=2), source={})
    run("add", "g.graph", "--model", "gp", "-k", 4, "--name", "free")
    said = run("add", "g.graph", "--model", "gp", "-k", 4, "--name", "capped", "--memory", "8GB")
    assert "GB at most: model" in said.stderr
    free, capped = (read_partition("g.graph", name) for name in ("free", "capped"))
    np.testing.assert_array_equal(free.parts, capped.parts)
    assert (free.options, free.tool) == (capped.options, capped.tool)
    refused = run("add", "g.graph", "--model", "gp", "-k", 4, "--memory", "50MB", code=2).stderr
    assert "--memory 0.05GB is too little" in refused
    assert "hint: give --memory" in refused
    auto = run("add", "g.graph", "--model", "auto", "-k", 4, "--memory", "8GB", code=2).stderr
    assert "auto takes" in auto
    wrong = run("add", "g.graph", "--model", "rp", "-k", 4, "--memory", "much", code=2).stderr
    assert "not a size" in wrong
