"""Models and matrices of graphs, the memory that they take, and made-up graphs."""

import inspect
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from bter import bter, main, power_law, profile_of, resized
from command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import arcs_in, from_arcs, make_folder, partitioned_graphs

from partition import resident
from partition.graph import aggregation as columns_module
from partition.graph import graph as graph_module
from partition.graph import metrics
from partition.graph.aggregation import aggregation_matrix, column_pieces, normalised, row_sums
from partition.graph.graph import Graph, arcs, symmetry
from partition.graph.manifest import content_id
from partition.graph.metrics import measure, measure_mixed, measure_mixed_both
from partition.graph.store import open_graph, read_partition, write_graph
from partition.importing.synthetic import rmat, sbm
from partition.models.descriptions import (
    graph_model,
    hypergraph_model,
    medium_grain_model,
    row_model,
    without_large_nets,
)
from partition.pipeline import memory
from partition.pipeline.memory import within
from partition.refinement.objective import OBJECTIVES, Objective

directions = st.sampled_from(["in", "out"])


def connectivity(model, parts):
    """Σ over nets of the number of parts touched, less one."""
    nets = np.split(model.pins, model.indptr[1:-1]) if model.nets else []
    return sum(len(set(parts[net].tolist())) - 1 for net in nets)


@settings(max_examples=200)
@given(partitioned_graphs(), directions)
def test_connectivity_of_the_hypergraph_is_the_volume(case, direction):
    graph, parts, k = case
    model = hypergraph_model(graph, direction)
    assert connectivity(model, parts) == measure(graph, parts, k, direction).volume


@settings(max_examples=100)
@given(partitioned_graphs(), directions)
def test_connectivity_of_the_medium_grain_hypergraph_is_the_mixed_volume(case, direction):
    graph, parts, k = case
    any_assignment = medium_grain_model(graph, direction)
    best = medium_grain_model(graph, direction, parts)
    mixed = measure_mixed(graph, parts, k, direction)
    assert connectivity(best, parts) == mixed.volume
    assert connectivity(any_assignment, parts) >= mixed.volume
    assert np.bincount(parts, weights=best.weights, minlength=k).tolist() == mixed.nnz
    for model in (any_assignment, best):
        assert model.weights.sum() == aggregation_matrix(graph, direction, normalize="none").nnz
        first = model.pins[model.indptr[:-1]]
        np.testing.assert_array_equal(first, model.owners)  # every net pins its owner
        assert (np.diff(model.indptr) > 1).all()


@settings(max_examples=50)
@given(partitioned_graphs())
def test_entries_belong_to_the_shorter_line(case):
    graph, _, _ = case
    model = medium_grain_model(graph)
    matrix = graph.adjacency().T.toarray() != 0
    np.fill_diagonal(matrix, False)
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    owners = [j if columns[j] < rows[i] else i for i, j in np.argwhere(matrix)]
    assert model.weights.tolist() == (1 + np.bincount(owners, minlength=graph.n)).tolist()


@settings(max_examples=100)
@given(partitioned_graphs(), directions)
def test_models_are_the_columns_rows_and_symmetrised_pattern_of_m(case, direction):
    """Of a graph without the columns that have many entries; rows weigh what they did."""
    graph, _, _ = case
    model = hypergraph_model(graph, direction)
    matrix = aggregation_matrix(graph, direction, normalize="none").toarray() != 0
    for v in range(graph.n):
        net = model.pins[model.indptr[v] : model.indptr[v + 1]]
        np.testing.assert_array_equal(np.sort(net), np.flatnonzero(matrix[:, v]))
    of_graph = {most: graph_model(graph, direction, max_net=most) for most in (0, 1, 2, 3)}
    for most, each in of_graph.items():
        kept = matrix & (matrix.sum(axis=0) <= (most or graph.n))
        kept = (kept | kept.T) & ~np.eye(graph.n, dtype=bool)
        assert np.diff(each.indptr).tolist() == kept.sum(axis=1).tolist()
        np.testing.assert_array_equal(each.indices, np.nonzero(kept)[1])
    for each in (model, *of_graph.values(), row_model(graph, direction)):
        np.testing.assert_array_equal(each.weights, matrix.sum(axis=1))
    refuses("max_net = -1", graph_model, graph, max_net=-1)


def test_large_nets_are_left_out():
    model = hypergraph_model(from_arcs(5, [(0, 1), (0, 2), (0, 3), (1, 2)]))
    assert np.diff(model.indptr).tolist() == [4, 2, 1, 1, 1]
    fewer = without_large_nets(model, 2)
    assert fewer.owners.tolist() == [1, 2, 3, 4]
    nets = [sorted(net) for net in np.split(fewer.pins, fewer.indptr[1:-1])]
    assert nets == [[1, 2], [2], [3], [4]]
    assert fewer.weights is model.weights
    assert without_large_nets(fewer, 1).owners.tolist() == [2, 3, 4]
    assert without_large_nets(model, 4) is model


# The aggregation matrix against dense matrices written down entry by entry


def weighted(graph, weights):
    return Graph(graph.indptr, graph.indices, np.asarray(weights, np.float64))


def brute_force(n, entries, direction, self_loops, normalize):
    """M as a dense matrix and its pattern, by the words of its definition."""
    matrix, pattern = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
    for ends, weight in entries.items():
        place = ends[::-1] if direction == "in" else ends
        matrix[place], pattern[place] = weight, True
    for i in np.flatnonzero(~pattern.diagonal()) if self_loops else ():
        matrix[i, i], pattern[i, i] = 1, True
    degree = matrix.sum(axis=1)
    by = {"row": np.tile(degree, (n, 1)).T, "sym": np.sqrt(np.outer(degree, degree))}.get(normalize)
    return matrix if by is None else np.where(by, matrix / np.where(by, by, 1), 0), pattern


VERTEX, WEIGHT = st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0, 3.0])
ENTRIES = st.dictionaries(st.tuples(VERTEX, VERTEX), WEIGHT, max_size=20)


@settings(max_examples=300)
@given(ENTRIES, directions, st.booleans(), st.sampled_from(["sym", "row", "none"]))
def test_aggregation_matrix(entries, direction, self_loops, normalize):
    n = 7
    graph = weighted(from_arcs(n, entries), [entries[key] for key in sorted(entries)])
    matrix = aggregation_matrix(graph, direction, self_loops, normalize)
    expected, pattern = brute_force(n, entries, direction, self_loops, normalize)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-14, atol=0)
    # Stored zeros stay stored: they are rows that travel.
    stored = np.zeros((n, n), dtype=bool)
    stored[np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices] = True
    np.testing.assert_array_equal(stored, pattern)
    assert (matrix.dtype, matrix.has_sorted_indices) == (np.float64, True)


def test_negative_row_sums_need_another_normalisation():
    graph = weighted(from_arcs(2, [(0, 1)]), [-4.0])
    refuses(r"graph\.normalize = 'sym'", aggregation_matrix, graph)
    assert aggregation_matrix(graph, normalize="row").toarray()[1].tolist() == [4 / 3, -1 / 3]
    for row, column in ((-1, 1), (1, -1)):
        refuses("'sym'", normalised, np.ones(1), np.array([row]), np.array([column]), "sym")


EXTREME = st.sampled_from([1e-300, 1e300, 0.1])


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3) | EXTREME), max_size=30),
    st.randoms(use_true_random=False),
)
def test_row_sums_do_not_depend_on_the_order_of_the_entries(entries, random):
    def sums():
        rows = np.array([row for row, _ in entries], np.int32)
        return row_sums(rows, np.array([weight for _, weight in entries], np.float64), 5)

    found = sums()
    random.shuffle(entries)
    assert sums().tobytes() == found.tobytes()
    for row in range(5):
        mine = [weight for i, weight in entries if i == row]
        allowed = len(mine) * 2.0**-52 * math.fsum(map(abs, mine))
        assert abs(found[row] - math.fsum(mine)) <= allowed
        assert len(mine) != 1 or found[row] == mine[0]


# Partitions within a limit of memory


def test_measuring_in_pieces(monkeypatch):
    graph, k = rmat(9, 6000, seed=3), 5
    parts = np.random.default_rng(0).integers(0, k, graph.n).astype(np.int32)
    parts[parts == 3] = 2  # an empty part
    whole = [measure(graph, parts, k, "out"), *measure_mixed_both(graph, parts, k).values()]
    nets = hypergraph_model(graph, "out")
    monkeypatch.setattr(metrics, "AT_ONCE", 20)
    monkeypatch.setattr(columns_module, "PIECE", 50)
    monkeypatch.setattr(graph_module, "READ", 64)
    monkeypatch.setattr(column_pieces, "__defaults__", ("in", 50))
    again = [measure(graph, parts, k, "out"), *measure_mixed_both(graph, parts, k).values()]
    assert again == whole
    np.testing.assert_array_equal(hypergraph_model(graph, "out").pins, nets.pins)


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
    "none": ({"proc/self/cgroup": "8:cpu:/a\n0::/\n"}, []),
}  # fmt: skip


def test_limits_of_control_groups_of_both_versions(tmp_path):
    for case, (files, limits) in GROUPS.items():
        assert list(resident.group_limits(system(tmp_path / case, files))) == limits
    own = {"proc/self/cgroup": "0::/a/b\n", f"{V2}/a/b/cpu.max": "max 100000"}
    root = system(tmp_path / "cpu", own | {f"{V2}/a/cpu.max": "150000 100000"})
    assert list(resident.core_quotas(root).values()) == [1.5]


def system(root, files):
    """A folder with files in the places of those of the system."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEASURED = """
import json, sys
from partition.pipeline.adding import add_partition
from partition.resident import taken
said = []
add_partition(sys.argv[1], sys.argv[2], 8, name="m", direction="out", memory=1e12,
              report=said.append, overwrite=True)
print(json.dumps({"taken": taken(), "said": said}))
"""


def test_forecasts_are_upper_bounds_and_near(tmp_path):
    """Of a graph with hubs: not below what is taken, and at most 2.5 times as much."""
    folder = make_folder(tmp_path / "g.graph", rmat(15, 700_000, seed=1), direction="out")
    for model in ("rp", "gp"):
        command = [sys.executable, "-c", MEASURED, str(folder), model]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        own, other = found["taken"]
        forecast = found["said"][0].split(": ", 2)[2].split(", ")
        peak = max(float(part.rsplit(" ", 1)[1]) for part in forecast) * 1e9
        assert max(own, other) <= peak <= 2.5 * (own + other)
        told = found["said"][1].removeprefix("memory: taken ").split(" GB")[0]
        assert float(told) == pytest.approx(own / 1e9, abs=0.01)  # it is said before the end


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


# Generators: determinism, and the properties they are made for


def test_sbm_has_the_properties_asked_for():
    graph = sbm(6000, 5, degree=12, intra=0.7, features=9, seed=3, train=0.2, val=0.3)
    assert symmetry(graph) == (True, True)
    source, target = arcs(graph), graph.indices
    assert (source != target).all()
    assert graph.nnz / graph.n == pytest.approx(12, rel=0.01)
    assert (graph.labels[source] == graph.labels[target]).mean() == pytest.approx(0.7, abs=0.01)
    assert np.bincount(graph.labels).tolist() == [1200] * 5
    assert (graph.features.shape, graph.features.dtype) == ((6000, 9), np.float32)
    masks = [graph.masks[name] for name in ("train", "val", "test")]
    assert [int(mask.sum()) for mask in masks] == [1200, 1800, 3000]
    assert (np.sum(masks, axis=0) == 1).all()
    # Each class has its neighbours in every other class, not only in the next.
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (graph.labels[source], graph.labels[target]), 1)
    off = pairs[~np.eye(5, dtype=bool)]
    assert off.min() > 0.8 * off.mean()


def test_generators_are_functions_of_their_seed():
    for make in (
        lambda seed: sbm(500, 3, seed=seed),
        lambda seed: rmat(9, 3000, seed=seed, features=4, classes=3),
        lambda seed: bter(power_law(400), seed=seed, features=4, classes=3),
    ):
        first, again, other = make(1), make(1), make(2)
        assert content_id(first) == content_id(again) != content_id(other)
        assert (first.features == again.features).all()
        assert (first.labels == again.labels).all()
        assert (first.features != other.features).any()


def test_rmat_follows_its_probabilities():
    graph = rmat(12, 100_000, a=0.5, b=0.25, c=0.15, shuffle=False, seed=2)
    upper, left = arcs(graph) < 2048, graph.indices < 2048
    # Merged copies and dropped loops shift the shares a little.
    for quadrant, share in ((upper & left, 0.5), (upper & ~left, 0.25), (~upper & left, 0.15)):
        assert quadrant.mean() == pytest.approx(share, abs=0.05)
    assert rmat(4, 500, a=0, b=1, c=0, shuffle=False).indices.tolist() == [15]
    shuffled = np.diff(rmat(14, 200_000).indptr)
    assert shuffled.max() > 30 * shuffled.mean()
    assert shuffled[: 1 << 13].sum() / shuffled.sum() == pytest.approx(0.5, abs=0.1)
    assert [symmetry(rmat(9, 3000, undirected=both))[0] for both in (False, True)] == [False, True]


NAN = float("nan")
BAD = [
    (sbm, (9, 2), {"degree": [-1, NAN], "intra": [1.5, -0.1], "noise": [-1], "features": [0]}),
    (sbm, (9, 2), {"seed": [-1], "n": [10**12, 0], "train": [1.1, -0.1], "val": [1.0, -0.1]}),
    (sbm, (9,), {"classes": [0, 10, 10**12, [[1, 2]], [1, -1], [1, 1e-9]]}),
    (rmat, (3, 5), {"scale": [-1, 40], "arcs": [-5, 10**13], "a": [1.1, -0.1], "features": [0]}),
    (rmat, (3, 5), {"classes": [-1], "seed": [2**64]}),
    (power_law, (9,), {"n": [-1], "exponent": [-1], "min_degree": [9], "max_degree": [9, 0]}),
    (power_law, (9,), {"clustering": [1.1], "decay": [-1]}),
    (resized, (power_law(9),), {"factor": [0, 1e12], "vertices": [-1]}),
    (resized, (power_law(0, min_degree=0),), {"vertices": [5]}),
    (bter, (power_law(9),), {"features": [0], "classes": [0], "seed": [-1]}),
    (bter, (), {"profile": [resized(power_law(9), factor=5)]}),
]


def test_arguments_out_of_range():
    for make, usual, wrong in BAD:
        names = [*inspect.signature(make).parameters]
        for name, values in wrong.items():
            for value in values:
                given = dict(zip(names, usual, strict=False)) | {name: value}
                refuses(".", make, **given)


RANGES = ((2, 3), (3, 5), (5, 8), (8, 12), (12, 20))


def by_degree(graph):
    """Mean clustering coefficients of the vertices whose degrees are in each range."""
    matrix = graph.adjacency()
    degree, triangles = matrix.sum(axis=1), (matrix @ matrix).multiply(matrix).sum(axis=1)
    found = triangles / np.maximum(degree * (degree - 1), 1)
    return [found[(degree >= low) & (degree < high)].mean() for low, high in RANGES]


def test_bter_has_the_degrees_and_the_clustering_of_a_power_law():
    profile = power_law(3000, exponent=2.0, clustering=0.6, decay=0.05)
    graph = bter(profile, seed=1)
    assert symmetry(graph) == (True, True)
    assert (arcs(graph) != graph.indices).all()
    degree = np.sort(np.diff(graph.indptr))
    assert (degree == profile.degrees).mean() > 0.99
    # A power law: as many vertices of degree 2 as of degree 4, times 2 to the exponent.
    assert (degree == 2).sum() == pytest.approx(4 * (degree == 4).sum(), rel=0.05)
    for (low, high), found in zip(RANGES, by_degree(graph), strict=True):
        of_degree = profile.degrees[(profile.degrees >= low) & (profile.degrees < high)]
        assert found == pytest.approx(profile.clustering[of_degree].mean(), abs=0.06)
    # Numbered at random: neighbours are no nearer than others.
    assert np.abs(arcs(graph) - graph.indices).mean() == pytest.approx(1000, rel=0.1)


def test_bter_by_its_command(tmp_path):
    law, twin = (str(tmp_path / f"{name}.graph") for name in ("law", "twin"))
    words = ["-n", "300", "--exponent", "2.5", "--factor", "2", "--classes", "3"]
    main([law, *words], standalone_mode=False)
    main([twin, "--like", law], standalone_mode=False)
    theirs, ours = open_graph(law).manifest, open_graph(twin).manifest
    assert (theirs.n, theirs.directed, theirs.classes) == (300, False, 3)
    assert theirs.source.items() >= {"synthetic": "bter", "exponent": 2.5, "factor": 2}.items()
    assert (ours.n, ours.nnz) == (theirs.n, pytest.approx(theirs.nnz, rel=0.01))
    assert (ours.source["like"], ours.source["like_id"]) == ("law", theirs.id)
    words = ["x.graph", "--like", law, "--min-degree", "3"]
    refuses("--min-degree is of a power law", main, words, standalone_mode=False)


def test_bter_like_a_graph_and_denser_ones():
    pair = profile_of(from_arcs(4, [(0, 3), (3, 0)]))
    assert arcs_in(bter(pair, shuffle=False)) == [(2, 3), (3, 2)]  # in the order of degrees
    first = bter(power_law(2000, exponent=1.8, clustering=0.4), seed=2)
    profile = profile_of(first)
    again = bter(profile, seed=3)
    assert content_id(first) != content_id(again)
    assert (np.sort(np.diff(again.indptr)) == profile.degrees).mean() > 0.99
    assert by_degree(again) == pytest.approx(by_degree(first), abs=0.05)
    half = resized(profile, vertices=1000)
    assert half.degrees.mean() == pytest.approx(profile.degrees.mean(), rel=0.02)
    dense = resized(profile, factor=4)
    assert dense.clustering[4 * 5] == profile.clustering[5]
    graph = bter(dense, features=3, classes=5)
    assert graph.nnz == pytest.approx(4 * first.nnz, rel=0.03)
    assert (graph.features.shape, graph.classes, graph.masks) == ((2000, 3), 5, {})
