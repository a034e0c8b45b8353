"""Data of arcs: kept in step with the arcs, imported, attached, checked."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from command_line import as_json, refused, run
from ogb_folders import rows
from pyarrow import parquet
from small_graphs import from_arcs, make_folder

import gcnmpi
from partition.errors import UserError
from partition.graph.aggregation import aggregation_matrix
from partition.graph.arc_data import ArcData
from partition.graph.graph import arcs, merged
from partition.graph.metrics import measure
from partition.graph.mixed_metrics import measure_mixed
from partition.graph.store import open_graph
from partition.importing import on_disk, spools
from partition.importing.arcs import Settling
from partition.importing.arrays import import_arrays
from partition.importing.assemble import build_graph
from partition.importing.readers import Layout, Reading, Source, open_stream, read_source
from partition.importing.readers.arc_columns import ArcTable

ENDS = np.array([[0, 1, 0, 2, 2, 3, 3], [1, 0, 1, 2, 0, 0, 0]])
LIST = "source,target,w1,w2,kind,share\n" + "".join(
    f"{s},{t},{i},{i * 10},{kind},{i / 4}\n"
    for i, (s, t, kind) in enumerate(zip(*ENDS.tolist(), "abcabab", strict=True))
)


def numbered(**more):
    """The arcs above, each with its number as its feature."""
    features = np.arange(7, dtype=np.float32)[:, None]
    return Source(4, *ENDS, arc_data=ArcTable({"features": features}), **more)


def table(graph):
    """(source, target, feature) of each stored arc."""
    data = graph.arc_data
    ends = arcs(graph).tolist(), graph.indices.tolist()
    return list(zip(*ends, data.features[:, 0].astype(int).tolist(), strict=True))


RULES = {
    "merge": ({}, [(0, 1, 0), (1, 0, 1), (2, 0, 4), (2, 2, 3), (3, 0, 5)]),
    "loops dropped": ({"self_loops": "drop"}, [(0, 1, 0), (1, 0, 1), (2, 0, 4), (3, 0, 5)]),
    "undirected": (
        {"undirected": True, "duplicates": "sum"},
        [(0, 1, 0), (0, 2, 4), (0, 3, 5), (1, 0, 0), (2, 0, 4), (2, 2, 3), (3, 0, 5)],
    ),
    "keep": (
        {"duplicates": "keep"},
        [(0, 1, 0), (0, 1, 2), (1, 0, 1), (2, 0, 4), (2, 2, 3), (3, 0, 5), (3, 0, 6)],
    ),
    "keep both ways": (
        {"duplicates": "keep", "undirected": True, "self_loops": "drop"},
        [(0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 2, 4), (0, 3, 5), (0, 3, 6), (1, 0, 0), (1, 0, 1),
         (1, 0, 2), (2, 0, 4), (3, 0, 5), (3, 0, 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_data_stay_with_their_arcs(case, tmp_path):
    rules, expected = RULES[case]
    graph, facts = build_graph(numbered(), **rules)
    assert table(graph) == expected
    ids = graph.arc_data.ids
    assert ids.tolist() == [number for *_, number in expected]
    assert graph.parallel == (rules.get("duplicates") == "keep")
    assert facts["arc_data"] == {"rule": "first"}
    stored = open_graph(make_folder(tmp_path / "g.graph", graph))
    assert (stored.manifest.arc_features, stored.manifest.parallel) == (1, graph.parallel)
    assert table(stored.graph) == expected
    assert stored.manifest.directed != rules.get("undirected", False)
    assert stored.manifest.symmetric_values == rules.get("undirected", False)
    run("check", tmp_path / "g.graph")


def test_a_symmetric_file_has_each_row_twice():
    graph, _ = build_graph(numbered(symmetric=True))
    assert table(graph) == [
        (0, 1, 0), (0, 2, 4), (0, 3, 5), (1, 0, 0), (2, 0, 4), (2, 2, 3), (3, 0, 5),
    ]  # fmt: skip


def test_arcs_in_their_own_order_need_no_numbers():
    source = Source(3, np.array([0, 1, 2]), np.array([1, 2, 0]),
                    arc_data=ArcTable({"labels": np.array([5, -1, 7])}))  # fmt: skip
    data = build_graph(source)[0].arc_data
    assert data.ids is None
    assert (data.labels.tolist(), data.class_names) == ([0, -1, 1], ("5", "7"))


@pytest.mark.parametrize("few", [7, 10**6])
@pytest.mark.parametrize("case", RULES)
@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz", "e.npy", "ogb", "e.parquet"])
def test_on_disk_it_is_the_same(tmp_path, monkeypatch, case, name, few):
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: few)
    path = tmp_path / name
    layout = Layout(arc_features="w*", arc_label="kind")
    if name == "e.npy":
        np.save(path, ENDS)
        layout = Layout()
    elif name == "ogb":
        (path / "raw").mkdir(parents=True)
        rows(path / "raw" / "num-node-list.csv.gz", [4])
        rows(path / "raw" / "num-edge-list.csv.gz", [7])
        rows(path / "raw" / "edge.csv.gz", [f"{s},{t}" for s, t in ENDS.T.tolist()])
        rows(path / "raw" / "edge-feat.csv.gz", [f"{i},0.5" for i in range(7)])
        layout = Layout()
    elif name == "e.parquet":
        columns = {"source": ENDS[0], "target": ENDS[1], "w1": np.arange(7), "w2": np.ones(7)}
        parquet.write_table(pa.table(columns | {"kind": list("abcabab")}), path)
    else:
        path.write_bytes(gzip.compress(LIST.encode()) if name.endswith("gz") else LIST.encode())
    graph, facts = build_graph(read_source(path, layout=layout), **RULES[case][0])
    with spools.scratch_folder(tmp_path / "g.graph") as scratch:
        stream = open_stream(path, "auto", layout, Reading(spools.allocate_in(scratch)))
        other, other_facts = on_disk.build_on_disk(stream, scratch, 1e9, Settling(**RULES[case][0]))
        assert facts == other_facts
        assert np.array_equal(graph.indices, other.indices)
        columns, others = graph.arc_data.columns(), other.arc_data.columns()
        assert columns.keys() == others.keys()
        for key, column in columns.items():
            assert column.dtype == others[key].dtype
            np.testing.assert_array_equal(column, others[key])
        assert graph.arc_data.class_names == other.arc_data.class_names
    if name != "e.npy":
        assert table(graph) == RULES[case][1]


def test_columns_of_a_list_are_named_and_the_command_shows_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text(LIST)
    shown = run("import", "e.csv", "g.graph", "--arc-features", "w1,w2", "--arc-label", "kind")
    assert "feature 'w1', feature 'w2', label 'kind'; not read: 'share'" in shown.output
    assert "2 features, labels of 2 classes; of arcs that became one" in shown.output
    assert "2 features, labels of 2 classes" in run("info", "g.graph").output
    run("import", "e.csv", "h.graph", "--arc-features", "*", "--arc-label", "share",
        "--columns", "source,target,-,-,-,-", code=2)  # fmt: skip
    run("import", "e.csv", "h.graph", "--arc-features", "w*", "--arc-label", "share")
    labels = open_graph("h.graph").graph.arc_data.labels
    assert labels.tolist() == [[0.0], [0.25], [1.0], [0.75], [1.25]]
    run("import", "e.csv", "h.graph", "--force", "--arc-label", "share,w1")
    assert open_graph("h.graph").manifest.arc_targets == 2


def test_weights_can_be_a_feature(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 0.5\n3 2 2.5\n"
    (tmp_path / "e.mtx").write_text(text)
    run("import", "e.mtx", "g.graph", "--arc-features", "weight")
    stored = open_graph("g.graph")
    assert not stored.manifest.weighted
    assert stored.graph.arc_data.features.tolist() == [[0.5], [0.5], [2.5], [2.5]]
    assert stored.graph.arc_data.ids.tolist() == [0, 0, 1, 1]
    sp.save_npz("m.npz", sp.csr_array(np.array([[0, 3.0], [4, 0]])))
    run("import", "m.npz", "h.graph", "--arc-features", "weight")
    assert open_graph("h.graph").graph.arc_data.features.tolist() == [[3], [4]]
    (tmp_path / "e.txt").write_text("0 1 0.5\n1 2 0.25\n")
    run("import", "e.txt", "i.graph", "--arc-features", "3")
    assert open_graph("i.graph").graph.arc_data.features.tolist() == [[0.5], [0.25]]


def test_files_and_random_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("e.npy", ENDS)
    np.save("x.npy", np.arange(14.0).reshape(7, 2))
    np.save("y.npy", np.array(list("abcabab")))
    run("import", "e.npy", "g.graph", "--arc-features", "x.npy", "--arc-label", "y.npy")
    data = open_graph("g.graph").graph.arc_data
    assert data.features[:, 0].tolist() == [0, 2, 8, 6, 10]
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 1, 0, 0], ("a", "b"))
    run("import", "e.npy", "h.graph", "--arc-features", "x.npy", "--memory", "1GB")
    np.testing.assert_array_equal(open_graph("h.graph").graph.arc_data.features, data.features)
    before = open_graph("h.graph").manifest
    np.save("t.npy", np.array([1, 0, 0, 1, 0], bool))
    np.save("v.npy", np.array([0, 1, 0, 0, 0]))
    run("attach", "h.graph", "--arc-features", "random:3", "--arc-labels", "random:2",
        "--arc-train-mask", "t.npy", "--arc-val-mask", "v.npy", "--seed", 4)  # fmt: skip
    after = open_graph("h.graph").manifest
    assert (after.arc_features, after.arc_masks) == (3, ("train", "val"))
    assert before.id == after.id
    assert before.data_id != after.data_id
    assert after.source["arc_data_seed"] == 4
    one = np.array(open_graph("h.graph").graph.arc_data.features)
    run("attach", "h.graph", "--arc-features", "random:3", "--seed", 5)
    assert not np.array_equal(one, open_graph("h.graph").graph.arc_data.features)
    run("check", "h.graph")
    assert as_json("info", "h.graph")["manifest"]["arc_classes"] in (1, 2)
    assert "x.npy has 7 rows, the graph has 5 arcs" in refused(
        "attach", "h.graph", "--arc-features", "x.npy"
    )
    assert "common, the first is 0" in refused("attach", "h.graph", "--arc-test-mask", "t.npy")


WRONG = {
    "a column": (["--arc-features", "nothing"], "column of e.csv for --arc-features"),
    "texts": (["--arc-features", "kind"], "'a' in column 'kind' is not a number"),
    "two things": (["--arc-features", "w1", "--arc-label", "w1"], "cannot be two things"),
    "ends": (["--arc-features", "source"], "cannot be two things"),
    "other rows": (["--arc-features", "x.npy"], "x.npy has 3 rows, it lists 7 arcs"),
    "no file": (["--arc-features", "none.npy"], "there is no file none.npy"),
    "not finite": (["--arc-features", "nan.npy"], "of arc 2, column 0 are not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_one_line(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text(LIST)
    np.save("x.npy", np.ones((3, 2)))
    np.save("nan.npy", np.where(np.arange(7) == 2, np.nan, 1))
    words, message = WRONG[case]
    assert message in refused("import", "e.csv", "g.graph", *words)


def test_a_format_without_columns_of_arcs_says_so(tmp_path):
    np.save(tmp_path / "e.npy", ENDS)
    message = refused("import", tmp_path / "e.npy", tmp_path / "g.graph", "--arc-features", "a")
    assert "--arc-features is for mtx, edges, " in message


def test_damage_is_found(tmp_path):
    data = ArcData(np.ones((2, 3), np.float32), np.array([0, 2], np.int32))
    folder = make_folder(tmp_path / "g.graph", replace(from_arcs(3, [(0, 1), (1, 2)]),
                                                       arc_data=data))  # fmt: skip
    run("check", folder)
    np.save(folder / "arc_features.npy", np.array([[1, 2, 3], [4, np.nan, 6]], np.float32))
    assert "not finite" in run("check", folder, code=2).output
    np.save(folder / "arc_features.npy", np.ones((2, 2), np.float32))
    with pytest.raises(UserError, match=r"\(2, 2\), the manifest asks for \(2, 3\)"):
        open_graph(folder)


def test_parallel_arcs_count_once_where_rows_travel(tmp_path):
    graph, _ = build_graph(numbered(), duplicates="keep")
    plain = build_graph(Source(4, *ENDS), duplicates="sum")[0]
    one = merged(graph)
    for name in ("indptr", "indices", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(plain, name))
    assert merged(plain) is plain
    for direction in ("in", "out"):
        of_both = [aggregation_matrix(each, direction).toarray() for each in (graph, plain)]
        np.testing.assert_array_equal(*of_both)
    folder = make_folder(tmp_path / "g.graph", graph)
    parts = np.array([0, 1, 0, 1])
    for how, key in ((measure, "metrics"), (measure_mixed, "mixed")):
        np.savetxt(tmp_path / "parts.txt", parts, fmt="%d")
        run("import-parts", folder, tmp_path / "parts.txt", "--name", key)
        found = as_json("info", folder, key)[key]["in"]
        assert found["send_rows"] == how(plain, parts, 2, "in").send_rows
        assert found["nnz"] == how(plain, parts, 2, "in").nnz
    for model in ("hp", "gp", "mg", "rp"):
        run("add", folder, "--model", model, "-k", 2)
    run("check", folder)


def test_arrays_of_a_program(tmp_path):
    import_arrays(
        tmp_path / "g.graph", ENDS, n=5, duplicates="keep", arc_features=np.arange(7.0),
        arc_labels=np.arange(7) % 2, arc_masks={"train": np.arange(7) < 3},
    )  # fmt: skip
    data = open_graph(tmp_path / "g.graph").graph.arc_data
    assert data.features[:, 0].tolist() == [0, 2, 1, 4, 3, 5, 6]
    assert data.labels.tolist() == [0, 0, 1, 0, 1, 1, 0]
    assert data.masks["train"].tolist() == [True, True, True, False, False, False, False]
    with pytest.raises(UserError, match="arc_features has 3 rows, there are 7 arcs"):
        import_arrays(tmp_path / "h.graph", ENDS, arc_features=np.ones(3))


def test_folders_of_version_4_are_read(tmp_path):
    folder = make_folder(tmp_path / "g.graph", from_arcs(3, [(0, 1), (1, 2)]))
    file = folder / "manifest.json"
    facts = json.loads(file.read_text())
    new = [name for name in facts if name.startswith("arc_") or name == "parallel"]
    assert len(new) == 6
    old = {name: value for name, value in facts.items() if name not in new} | {"version": 4}
    file.write_text(json.dumps(old))
    stored = open_graph(folder)
    assert (stored.manifest.parallel, stored.graph.arc_data.columns()) == (False, {})
    run("check", folder)


def test_pyg_gets_data_of_arcs_back():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    graph = gcnmpi.graph.from_arrays(ENDS, n=4, arc_features=np.arange(7.0), arc_labels=ENDS[0] % 2)
    data = graph.to_pyg()
    assert data.edge_attr[:, 0].tolist() == [0, 1, 4, 3, 5]
    assert data.edge_label.tolist() == [0, 1, 0, 0, 1]
    assert data.edge_ids.dtype == torch.int64
    assert gcnmpi.graph.from_object(data).manifest.weighted, "an edge_attr of one column"
    again = gcnmpi.graph.from_object(data, arc_features="edge_attr")
    assert not again.manifest.weighted
    np.testing.assert_array_equal(again.arc_data.features, graph.arc_data.features)
    assert again.arc_data.labels.tolist() == data.edge_label.tolist()
