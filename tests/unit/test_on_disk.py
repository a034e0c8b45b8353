"""Graphs that are sorted in files are those that are made in memory; and data of arcs."""

import gzip
import itertools

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from axes import covering
from command_line import as_json, refused, run
from ogb_folders import rows, write_text
from pyarrow import parquet
from small_graphs import make_folder

from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import arcs, merged
from partition.graph.metrics import measure, measure_mixed
from partition.graph.store import open_graph
from partition.importing import arcs as on_disk
from partition.importing.readers.arc_columns import ArcTable
from partition.importing.readers.reading import open_stream, read_source
from partition.importing.readers.source import Layout, Reading, Source

RULES = list(itertools.product(("merge", "sum"), ("keep", "drop"), (False, True)))


@pytest.fixture(params=[4, 50, 10**6])
def few(request, monkeypatch):
    """So many arcs are sorted at a time; more, where a vertex has more."""
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: request.param)
    monkeypatch.setattr(on_disk, "FEWEST_ARCS", 16)
    return request.param


def same_graph(folder, source, layout=None, **rules):
    """Build a graph in memory and in files; whether both are the same, to the bit."""
    layout = layout or Layout()
    graph, facts = on_disk.build_graph(read_source(source, layout=layout), **rules)
    with on_disk.scratch_folder(folder / "g.graph") as scratch:
        stream = open_stream(source, "auto", layout, Reading(on_disk.allocate_in(scratch)))
        other, other_facts = on_disk.build_on_disk(stream, scratch, 1e9, on_disk.ArcRules(**rules))
        assert facts == other_facts
        found, others = columns_of(graph), columns_of(other)
        assert found.keys() == others.keys()
        for name, column in found.items():
            assert column.dtype == others[name].dtype
            np.testing.assert_array_equal(column, others[name])
    return graph


def columns_of(graph):
    """All arrays of a graph, by name."""
    names = ("indptr", "indices", "weights", "ids")
    found = {name: getattr(graph, name) for name in names if getattr(graph, name) is not None}
    return found | graph.arc_data.columns() | {"names": np.array(graph.arc_data.class_names)}


def write_list(path, random, kind, rows):
    """A list of arcs with copies, loops and vertices without arcs; of 0 rows, a ring."""
    span = {"small": (0, 40), "gaps": (-500, 500), "wide": (-(2**62), 2**62)}[kind]
    ids = np.unique(random.integers(*span, 40))
    ends = np.stack([ids, np.roll(ids, 1)], 1)
    if rows:
        ends = ids[random.integers(0, len(ids), (rows, 2))]
        ends = np.append(ends, ends[:7], axis=0)
        ends[:3, 1] = ends[:3, 0]
    columns = [ends[:, 0].tolist(), ends[:, 1].tolist()]
    if path.name.startswith("weighted"):
        columns.append((random.standard_normal(len(ends)) * 1e3).tolist())
    separator = "," if path.suffix == ".csv" else " "
    rows = zip(*columns, strict=True)
    text = "".join(separator.join(map(repr, row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return ids


@pytest.mark.parametrize("name", ["plain.txt", "plain.csv", "weighted.txt.gz"])
@pytest.mark.parametrize("kind", ["small", "gaps", "wide"])
def test_lists_of_arcs(tmp_path, few, name, kind):
    random = np.random.default_rng(len(name) + len(kind))
    ids = write_list(tmp_path / name, random, kind, {4: 0, 50: 40}.get(few, 400))
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"{i}\n" for i in random.permutation(ids).tolist()))
    layouts = [Layout(), Layout(ids=listed)]
    if kind == "gaps":
        layouts.append(Layout(vertices=f"{ids.min() - 3}..{ids.max() + 2}"))
    for layout in layouts:
        for rules in random.permutation(np.array(RULES, object))[:3]:
            named = dict(zip(("duplicates", "self_loops", "undirected"), rules, strict=True))
            same_graph(tmp_path, tmp_path / name, layout, **named)


def test_too_little_memory_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.txt").write_text("0 1\n0 2\n0 3\n1 2\n")
    (tmp_path / "e.mtx").write_text("%%MatrixMarket")
    for file, size, says in (
        ("e.txt", "100MB", "give --memory 0.33GB or more"),
        ("e.txt", "0.32GB", "is too little"),
        ("e.txt", "x", "is not a size"),
        ("e.mtx", "1G", "read as a whole"),
    ):
        assert says in refused("import", file, "g.graph", "--memory", size)
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: 2)
    assert "vertex 0 has 3 arcs" in refused("import", "e.txt", "g.graph", "--memory", "1G")


def test_the_disk_has_room_for_an_array_before_anything_is_written_to_it(tmp_path):
    array = on_disk.allocate_in(tmp_path)("x", (1000, 100), np.dtype(np.float64))
    assert (tmp_path / "x").stat().st_blocks * 512 >= array.nbytes  # else SIGBUS on a full disk


# Data of arcs: kept in step with the arcs, imported, attached, checked

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


MERGED = [(0, 1, 0), (1, 0, 1), (2, 0, 4), (2, 2, 3), (3, 0, 5)]
BOTH = [(0, 1), (0, 1), (0, 1), (0, 2), (0, 3), (0, 3)]  # ways round, with these numbers of arcs
SUMMED = [(0, 1, 0), (0, 2, 4), (0, 3, 5), (1, 0, 0), (2, 0, 4), (2, 2, 3), (3, 0, 5)]
KEPT = [(*ends, number) for ends, number in zip(BOTH, [0, 1, 2, 4, 5, 6], strict=True)]
KEPT = sorted([*KEPT, *((j, i, number) for i, j, number in KEPT), (2, 2, 3)])
ARC_RULES = {
    "merge": ({}, MERGED),
    "loops dropped": ({"self_loops": "drop"}, [row for row in MERGED if row[0] != row[1]]),
    "undirected": ({"undirected": True, "duplicates": "sum"}, SUMMED),
    "keep": ({"duplicates": "keep"}, sorted([*MERGED, (0, 1, 2), (3, 0, 6)])),
    "keep both ways": ({"duplicates": "keep", "undirected": True}, KEPT),
}


LIST_OF, FEATURES = Layout(arc_features="w*", arc_label="kind"), [(i, 0.5) for i in range(7)]
FORMS = dict.fromkeys(("e.csv", "e.csv.gz", "e.parquet"), LIST_OF) | {"e.npy": None, "ogb": None}


def written(path):
    """A file of the arcs above, in the form that its name says."""
    if path.name == "e.npy":
        np.save(path, ENDS)
    elif path.name == "ogb":
        rows(write_text(path, 4, ENDS.T.tolist()) / "raw" / "edge-feat.csv.gz", FEATURES)
    elif path.name == "e.parquet":
        columns = {"source": ENDS[0], "target": ENDS[1], "w1": np.arange(7), "w2": np.ones(7)}
        parquet.write_table(pa.table(columns | {"kind": list("abcabab")}), path)
    else:
        raw = LIST.encode()
        path.write_bytes(gzip.compress(raw) if path.name.endswith("gz") else raw)
    return path


@pytest.mark.parametrize(("case", "name", "few"), covering([*ARC_RULES], [*FORMS], [7, 10**6]))
def test_on_disk_it_is_the_same(tmp_path, monkeypatch, case, name, few):
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: few)
    rules, expected = ARC_RULES[case]
    graph = same_graph(tmp_path, written(tmp_path / name), FORMS[name], **rules)
    stored = open_graph(make_folder(tmp_path / "h.graph", graph))
    if name != "e.npy":
        assert table(graph) == table(stored.graph) == expected
    assert stored.graph.parallel == (rules.get("duplicates") == "keep")
    assert stored.manifest.symmetric_values == rules.get("undirected", False)
    run("check", tmp_path / "h.graph")


def test_columns_of_a_list_are_named_and_the_command_shows_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text(LIST)
    run("import", "e.csv", "h.graph", "--arc-features", "w*", "--arc-label", "share")
    labels = open_graph("h.graph").graph.arc_data.labels
    assert labels.tolist() == [[0.0], [0.25], [1.0], [0.75], [1.25]]
    run("import", "e.csv", "h.graph", "--force", "--arc-label", "share,w1")
    assert open_graph("h.graph").manifest.arc_targets == 2
    # Weights can be a feature; a symmetric file has each row twice.
    text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 0.5\n3 2 2.5\n"
    (tmp_path / "e.mtx").write_text(text)
    (tmp_path / "e.txt").write_text("0 1 0.5\n1 2 0.25\n")
    sp.save_npz("m.npz", sp.csr_array(np.array([[0, 3.0], [4, 0]])))
    for file, column, expected in (
        ("e.mtx", "weight", [0.5, 0.5, 2.5, 2.5]),
        ("m.npz", "weight", [3, 4]),
        ("e.txt", "3", [0.5, 0.25]),
    ):
        run("import", file, "i.graph", "--force", "--arc-features", column)
        stored = open_graph("i.graph")
        assert not stored.manifest.weighted
        assert stored.graph.arc_data.features[:, 0].tolist() == expected


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
    stored = open_graph("h.graph")
    np.testing.assert_array_equal(stored.graph.arc_data.features, data.features)
    np.save("t.npy", np.array([1, 0, 0, 1, 0], bool))
    np.save("v.npy", np.array([0, 1, 0, 0, 0]))
    words = ["--arc-features", "random:3", "--arc-labels", "random:2", "--seed", 4]
    run("attach", "h.graph", *words, "--arc-train-mask", "t.npy", "--arc-val-mask", "v.npy")
    again = open_graph("h.graph")
    assert (again.manifest.arc_features, again.manifest.arc_masks) == (3, ("train", "val"))
    assert again.manifest.data_id != stored.manifest.data_id
    one = np.array(again.graph.arc_data.features)
    run("attach", "h.graph", "--arc-features", "random:3", "--seed", 5)
    assert not np.array_equal(one, open_graph("h.graph").graph.arc_data.features)
    run("attach", "h.graph", "--arc-features", "v.npy", "--arc-labels", "v.npy")
    data = open_graph("h.graph").graph.arc_data
    assert data.features[:, 0].tolist() == data.labels.tolist() == [0, 1, 0, 0, 0]
    assert "1 features, labels of 2 classes, masks" in run("info", "h.graph").stdout
    run("check", "h.graph")
    for words, told in (
        (["--arc-features", "x.npy"], "x.npy has 7 rows, the graph has 5 arcs"),
        (["--arc-test-mask", "t.npy"], "common, the first is 0"),
    ):
        assert told in refused("attach", "h.graph", *words)
    assert "is for mtx, edges" in refused("import", "e.npy", "i.graph", "--arc-features", "a")


def test_mistakes_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text(LIST)
    np.save("x.npy", np.ones((3, 2)))
    np.save("nan.npy", np.where(np.arange(7) == 2, np.nan, 1))
    for words, message in (
        ("--memory 1GB --string-ids", "--memory is for ids that are integers"),
        ("--arc-features nothing", "column of e.csv for --arc-features"),
        ("--arc-features kind", "'a' in column 'kind' is not a number"),
        ("--arc-features w1 --arc-label w1", "cannot be two things"),
        ("--arc-features x.npy", "x.npy has 3 rows, it lists 7 arcs"),
        ("--arc-features nan.npy", "of arc 2, column 0 are not finite"),
    ):
        assert message in refused("import", "e.csv", "g.graph", *words.split())


def test_parallel_arcs_count_once_where_rows_travel(tmp_path):
    graph, _ = on_disk.build_graph(numbered(), duplicates="keep")
    plain = on_disk.build_graph(Source(4, *ENDS), duplicates="sum")[0]
    one = merged(graph)
    np.testing.assert_array_equal(one.adjacency().toarray(), plain.adjacency().toarray())
    assert merged(plain) is plain
    for direction in ("in", "out"):
        of_both = [aggregation_matrix(each, direction).toarray() for each in (graph, plain)]
        np.testing.assert_array_equal(*of_both)
    folder, parts = make_folder(tmp_path / "g.graph", graph), np.array([0, 1, 0, 1])
    np.savetxt(tmp_path / "parts.txt", parts, fmt="%d")
    run("import-parts", folder, tmp_path / "parts.txt", "--name", "p")
    found = as_json("info", folder, "p")
    for how, key in ((measure, "metrics"), (measure_mixed, "mixed")):
        figures, told = how(plain, parts, 2, "in"), found[key]["in"]
        assert (told["send_rows"], told["nnz"]) == (figures.send_rows, figures.nnz)
