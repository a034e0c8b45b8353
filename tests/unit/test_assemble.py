"""From a source to a graph and to a folder."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import arcs_in

from partition.graph.graph import symmetry
from partition.importing.arcs import build_graph
from partition.importing.assemble import import_graph
from partition.importing.data_files import VertexFiles, attach
from partition.importing.readers.source import Source


def make_source(n, pairs, weights=None, **more):
    ends = np.array(pairs, np.int64).reshape(-1, 2).T
    weights = None if weights is None else np.array(weights, np.float64)
    return Source(n=n, source=ends[0], target=ends[1], weights=weights, format="test", **more)


def entries(graph):
    weights = [1.0] * graph.nnz if graph.weights is None else graph.weights.tolist()
    return dict(zip(arcs_in(graph), weights, strict=True))


def oracle(source, undirected, duplicates, self_loops):
    """build_graph with a dict of lists instead of sorted keys."""
    listed = collections.defaultdict(list)
    weights = np.ones(len(source.source)) if source.weights is None else source.weights
    for i, j, weight in zip(source.source, source.target, weights, strict=True):
        if i == j and self_loops == "drop":
            continue
        listed[(max(i, j), min(i, j)) if source.symmetric else (i, j)].append(weight)
    copies = sum(len(values) - 1 for values in listed.values())
    if duplicates == "error" and copies:
        return None, copies, 0
    differ = sum(value != values[0] for values in listed.values() for value in values)
    summed = duplicates == "sum"
    once = {arc: sum(of) if summed else of[0] for arc, of in listed.items()}
    if not (undirected or source.symmetric):
        return once, copies, differ
    mirrored = {}
    for i, j in [*once, *[(j, i) for i, j in once]]:
        there = [once[arc] for arc in ((i, j), (j, i)) if arc in once]
        mirrored[i, j] = sum(there) / len(there)
    return mirrored, copies, differ


COPIES, LOOPS = st.sampled_from(["merge", "sum", "error"]), st.sampled_from(["keep", "drop"])


@settings(max_examples=300)
@given(st.data(), st.integers(1, 8), *[st.booleans()] * 3, COPIES, LOOPS)
def test_build_graph_equals_a_dict(data, n, symmetric, undirected, weighted, duplicates, loops):
    vertex = st.integers(0, n - 1)
    pairs = data.draw(st.lists(st.tuples(vertex, vertex), max_size=30))
    # Sums and halves of small integers are exact.
    weights = [data.draw(st.integers(-4, 4)) for _ in pairs] if weighted else None
    source = make_source(n, pairs, weights, symmetric=symmetric)
    given_arcs = source.source.copy(), source.target.copy()
    expected, copies, differ = oracle(source, undirected, duplicates, loops)
    rules = {"undirected": undirected, "duplicates": duplicates, "self_loops": loops}
    if expected is None:
        refuses(rf"listed more than once; there are {copies} such", build_graph, source, **rules)
        return
    graph, facts = build_graph(source, **rules)
    assert [*entries(graph).items()] == sorted(expected.items())
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)
    assert (graph.weights is not None) == (weighted or (duplicates == "sum" and copies > 0))
    assert facts["arcs_read"] == len(pairs)
    assert facts["self_loops"] == {"found": sum(i == j for i, j in pairs), "rule": loops}
    found = facts["duplicates"]
    assert found == {"found": copies, "rule": duplicates} | ({"differ": differ} if differ else {})
    np.testing.assert_array_equal((source.source, source.target), given_arcs)
    if symmetric or undirected:
        assert symmetry(graph) == (True, True)


def test_build_graph_refuses():
    twice = make_source(2, [(0, 1)] * 2, [1e308, 1e308], ids=np.array([70, 90]))
    for source, rules, message in (
        (make_source(2, [(0, 2)]), {}, r"vertex outside 0\.\.1"),
        (make_source(2, []), {"duplicates": "max"}, "unknown rule for duplicates 'max'"),
        (make_source(2, []), {"self_loops": "no"}, "unknown rule for self-loops 'no'"),
        (twice, {"duplicates": "sum"}, "more than a float64 holds"),
        (twice, {"duplicates": "error"}, "arc 70 -> 90 is listed more than once"),
        (make_source(2**32, []), {}, "more than the 3037000499"),
    ):
        refuses(message, build_graph, source, **rules)


@pytest.fixture
def graph():
    return build_graph(make_source(4, [(0, 1), (1, 2)]))[0]


def save(folder, name, array):
    np.save(folder / name, array)
    return folder / name


ATTACHED = [
    ("features", np.ones((3, 2)), r"has 3 rows, the graph has 4 vertices"),
    ("features", np.ones(4), r"features must be rows of numbers"),
    ("features", np.array([[0], [1], [np.nan], [2]]), r"vertex 2, column 0 are not finite"),
    ("features", np.array([[None]] * 4, object), r"Object arrays are not read"),
    ("labels", np.zeros((4, 1), int), r"labels must be a vector of integers"),
    ("labels", np.array([0, 0, 0, -2]), r"label -2 of vertex 3 is outside"),
    ("train", np.ones(4), r"a mask is a vector of bool or of vertex numbers"),
    ("train", np.array([0, 4]), r"names a vertex outside 0\.\.3"),
    ("train", np.array([True, False, True, False]), r"train mask has vertex 2, which has no"),
]


def test_attach_refuses(tmp_path, graph):
    labels = save(tmp_path, "y.npy", np.array([0, 1, -1, 0]))
    for what, array, message in ATTACHED:
        path = save(tmp_path, "bad.npy", array)
        given = {"masks": {what: path}, "labels": labels} if what == "train" else {what: path}
        assert "bad.npy" in refuses(message, attach, graph, VertexFiles(**given)).message


def test_attach_refuses_bad_files_and_words(tmp_path, graph):
    whole = save(tmp_path, "x.npy", np.ones((4, 300))).read_bytes()
    for content in (whole[:-8], b"junk", b""):
        (tmp_path / "x.npy").write_bytes(content)
        refuses("x.npy", attach, graph, VertexFiles(features=tmp_path / "x.npy"))
    for word in ("random:", "random:0", "random:x", "random:-1"):
        refuses("is not 'random:NUMBER'", attach, graph, VertexFiles(features=word))
    large, _ = build_graph(make_source(10**6, []))
    refuses("GiB of memory", attach, large, VertexFiles(features="random:2000000000"))
    refuses(r"seed -1 is outside", attach, graph, VertexFiles(labels="random:2", seed=-1))
    mask = save(tmp_path, "m.npy", np.ones(4, bool))
    for name, says in (("tran", "unknown mask 'tran'"), ("train", "needs a graph with labels")):
        refuses(says, attach, graph, VertexFiles(masks={name: mask}))


def test_a_folder_that_cannot_be_written_is_reported_before_reading(tmp_path):
    absent, out = tmp_path / "absent.txt", tmp_path / "out.graph"
    (tmp_path / "there.graph").mkdir()
    (tmp_path / "file").write_text("")
    for name, options, message in (
        ("out", {}, r"ends in \.graph"),
        ("there.graph", {}, "is there already"),
        ("there.graph", {"overwrite": True}, "is not a graph folder"),
        ("file/out.graph", {}, "file is not a folder"),
        ("out.graph", {"direction": "up"}, "unknown direction"),
        ("out.graph", {"features": tmp_path / "x.npy"}, r"there is no file .*x\.npy"),
        ("out.graph", {}, "there is no file .*absent"),
    ):
        refuses(message, import_graph, absent, tmp_path / name, **options)
    (file := tmp_path / "e.txt").write_text("1 2\n1 2\n")
    refuses(r"e\.txt: the arc 1 -> 2", import_graph, file, out, duplicates="error")
    assert not out.exists()
