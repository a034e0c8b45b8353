"""Files of arcs, features, labels and masks are read as they are meant, or refused."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from command_line import refused, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refuses

from partition.graph.store import open_graph, read_partition
from partition.importing.readers import Layout, Reading, open_stream, read_source, triples
from partition.importing.readers.vertex_files import read_features

RING = "".join(f"{i} {(i + 1) % 6}\n" for i in range(6))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a list of arcs between 0..5."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.txt").write_text(RING)
    np.save("y.npy", np.array([0, 1, 0, 1, 0, 1]))
    np.save("x.npy", np.arange(6, dtype=np.float32)[:, None])
    return tmp_path


def imported(*words, source="ring.txt"):
    run("import", source, "g.graph", "--force", *words)
    return open_graph("g.graph").graph


def denied(*words, source="ring.txt"):
    """The messages of an import that is refused."""
    return refused("import", source, "never.graph", *words)


def arcs_of(source):
    return list(zip(source.source.tolist(), source.target.tolist(), strict=True))


# Masks


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64])
def test_a_mask_of_0_and_1_is_a_mask(place, dtype):
    np.save("t.npy", np.array([1, 0, 1, 1, 0, 0], dtype))
    graph = imported("--labels", "y.npy", "--train-mask", "t.npy")
    assert np.flatnonzero(graph.masks["train"]).tolist() == [0, 2, 3]


def test_a_list_of_vertices_is_a_list(place):
    for vertices in ([0, 1], [5, 2], [1], []):
        np.save("t.npy", np.array(vertices, int))
        graph = imported("--labels", "y.npy", "--train-mask", "t.npy")
        assert np.flatnonzero(graph.masks["train"]).tolist() == sorted(vertices)


def test_masks_that_can_be_read_in_two_ways_are_refused(place):
    np.save("t.npy", np.array([0, 1, 1, 0]))  # neither a row for each vertex, nor each vertex once
    assert "lists vertex 0 more than once" in denied("--labels", "y.npy", "--train-mask", "t.npy")
    (place / "two.txt").write_text("0 1\n")
    np.save("t.npy", np.array([0, 1]))
    words = ["--labels", "random:2", "--train-mask", "t.npy"]
    assert "may be a row for each vertex, or a list" in denied(*words, source="two.txt")


def test_masks_that_overlap_are_refused(place):
    np.save("t.npy", np.array([0, 1, 2]))
    np.save("v.npy", np.array([2, 3]))
    message = denied("--labels", "y.npy", "--train-mask", "t.npy", "--test-mask", "v.npy")
    assert "the train mask and the test mask have 1 vertices in common, the first is 2" in message


def test_numbers_in_a_mask_of_a_graph_with_ids(place):
    (place / "ids.txt").write_text("1 2\n2 3\n3 4\n")
    np.save("t.npy", np.array([1, 2]))
    words = ["--labels", "random:2", "--train-mask", "t.npy"]
    assert "the numbers can be ids (1, 2, 3 …) or rows (0..3)" in denied(*words, source="ids.txt")
    graph = imported(*words, "--mask-numbers", "ids", source="ids.txt")
    assert np.flatnonzero(graph.masks["train"]).tolist() == [0, 1]
    graph = imported(*words, "--mask-numbers", "rows", source="ids.txt")
    assert np.flatnonzero(graph.masks["train"]).tolist() == [1, 2]
    assert "no mask" in denied("--mask-numbers", "ids")


# Labels


@pytest.mark.parametrize(
    ("labels", "expected", "names"),
    [
        ([1, 2, 3, 4, 5, 5], [0, 1, 2, 3, 4, 4], ["1", "2", "3", "4", "5"]),
        ([10000, 50000, -1, 10000, 20000, -1], [0, 2, -1, 0, 1, -1], ["10000", "20000", "50000"]),
        ([0, 1, -1, 0, 2, 2], [0, 1, -1, 0, 2, 2], []),
        (["b", "a", "", "b", "a", "-1"], [1, 0, -1, 1, 0, -1], ["a", "b"]),
        (["2.0", "10.0", "", "2.0", "nan", "2.0"], [0, 1, -1, 0, -1, 0], ["2", "10"]),
        (["1.00e+00", "0.00e+00", "1.00e+00", "-1", "", "-1"], [1, 0, 1, -1, -1, -1], []),
    ],
)
@pytest.mark.parametrize("form", ["npy", "csv", "npz"])
def test_classes_are_compact_and_keep_their_names(place, labels, expected, names, form):
    if form == "csv":
        text = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
        (place / "l.csv").write_text("id,label\n" + text)
    elif form == "npz":
        np.savez("l.npz", label=labels, other=np.arange(3))
    else:
        np.save("l.npy", labels)
    graph = imported("--labels", f"l.{form}")
    assert graph.labels.tolist() == expected
    manifest = open_graph("g.graph").manifest
    assert (list(manifest.class_names), manifest.classes) == (names, max(expected) + 1)


def test_labels_that_are_no_classes_are_refused(place):
    np.save("l.npy", np.arange(40))
    (place / "path.txt").write_text("".join(f"{i} {i + 1}\n" for i in range(39)))
    assert "40 different labels for 40 vertices" in denied("--labels", "l.npy", source="path.txt")
    (place / "l.csv").write_text("0.5\n1\n1\n2.5\n1\n1\n")
    assert "the label '0.5' is a number, not a class" in denied("--labels", "l.csv")
    np.save("l.npy", np.array([0, 1.0, np.nan, 0, 1, 1]))
    assert "not float64 (6,)" in denied("--labels", "l.npy")


def test_files_attached_to_a_folder_leave_arcs_and_partitions(place):
    run("import", "ring.txt", "g.graph", "--undirected")
    run("add", "g.graph", "--model", "rp", "-k", "2")
    before = {file.name: file.read_bytes() for file in (place / "g.graph").rglob("*.n*")}
    (place / "y.csv").write_text("id,class\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(6)))
    np.save("t.npy", np.array([0, 3]))
    run("attach", "g.graph", "--features", "x.npy", "--labels", "y.csv", "--train-mask", "t.npy")
    stored = open_graph("g.graph")
    assert (stored.manifest.features, stored.manifest.class_names) == (1, ("a", "b"))
    assert np.flatnonzero(stored.graph.masks["train"]).tolist() == [0, 3]
    assert stored.manifest.source["file"] == "ring.txt"
    assert stored.manifest.source["attached"] == {
        "features": "x.npy",
        "labels": "y.csv",
        "train": "t.npy",
    }
    for name, content in before.items():
        (file,) = (place / "g.graph").rglob(name)
        assert file.read_bytes() == content
    assert read_partition("g.graph", "rp-2").k == 2
    # The second command gives no features and no masks: both stay.
    run("attach", "g.graph", "--labels", "random:3", "--seed", "1")
    again = open_graph("g.graph")
    assert again.graph.features.tolist() == stored.graph.features.tolist()
    assert again.manifest.class_names == ()
    assert again.manifest.data_id != stored.manifest.data_id


def test_what_cannot_be_attached_changes_nothing(place):
    run("import", "ring.txt", "g.graph", "--labels", "y.npy")
    before = open_graph("g.graph").manifest
    np.save("short.npy", np.ones((5, 2)))
    for words, message in (
        ([], "there is nothing to attach"),
        (["--features", "short.npy"], "has 5 rows, the graph has 6 vertices"),
        (["--features", "absent.npy"], "there is no file absent.npy"),
    ):
        assert message in refused("attach", "g.graph", *words)
    assert "there is no graph" in refused("attach", "h.graph", "--features", "x.npy")
    assert open_graph("g.graph").manifest == before


# Ids, and whose row is whose


def test_rows_need_ids_where_those_of_the_graph_have_gaps(place):
    (place / "gap.txt").write_text("30 10\n10 20\n")
    np.save("x.npy", np.array([[30], [10], [20]]))
    message = denied("--features", "x.npy", source="gap.txt")
    assert "not clear which vertex a row is of" in message
    assert "10, 20, 30" in message
    (place / "ids.txt").write_text("30\n10\n20\n")
    graph = imported("--features", "x.npy", "--ids", "ids.txt", source="gap.txt")
    assert graph.ids.tolist() == graph.features[:, 0].tolist() == [30, 10, 20]
    assert graph.indices.tolist() == [1, 2]
    graph = imported("--features", "x.npy", "--ids", "sorted", source="gap.txt")
    assert graph.ids.tolist() == [10, 20, 30]
    assert graph.features[:, 0].tolist() == [30, 10, 20]


def test_ids_also_name_vertices_without_arcs_and_must_name_the_others(place):
    (place / "gap.txt").write_text("30 10\n")
    (place / "ids.txt").write_text("30\n-7\n10\n")
    assert imported("--ids", "ids.txt", source="gap.txt").indptr.tolist() == [0, 1, 1, 1]
    (place / "ids.txt").write_text("30\n7\n")
    assert "the vertex 10 is not in the file of --ids" in denied(
        "--ids", "ids.txt", source="gap.txt"
    )
    (place / "ids.txt").write_text("30\n10\n30\n")
    assert "the id 30 occurs twice" in denied("--ids", "ids.txt", source="gap.txt")


def test_a_column_of_ids_says_whose_row_it_is(place):
    (place / "x.csv").write_text("id,a\n" + "".join(f"{i},{10 * i}\n" for i in (3, 1, 0, 5, 2, 4)))
    assert imported("--features", "x.csv").features[:, 0].tolist() == [0, 10, 20, 30, 40, 50]
    (place / "x.csv").write_text("id,a\n" + "".join(f"{i},{10 * i}\n" for i in (3, 1, 0, 5, 2, 9)))
    assert "the graph has no vertex 9; its ids are 0, 1, 2 …" in denied("--features", "x.csv")
    (place / "x.csv").write_text("id,a\n3,1\n1,1\n")
    assert "there is none for vertex 0" in denied("--features", "x.csv")
    (place / "x.csv").write_text("".join(f"{i},0.5\n" for i in range(6)))
    assert "ids, or features?" in denied("--features", "x.csv")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["id", "node", "user_id", "userId", "index", "__index_level_0__"])
def test_a_column_of_ids_may_be_anywhere(place, name, form):
    order = [3, 1, 0, 5, 2, 4]
    for what, column, values in (
        ("--features", "f", [10.5 * v for v in order]),
        ("--targets", "y", [0.5 * v for v in order]),
        ("--labels", "label", [f"c{v % 2}" for v in order]),
        ("--train-mask", "train", [v < 2 for v in order]),
    ):
        file = place / f"t.{form}"
        if form == "parquet":
            pq.write_table(pa.table({column: values, name: order}), file)
        else:
            rows = zip(values, order, strict=True)
            file.write_text(f"{column},{name}\n" + "".join(f"{a},{b}\n" for a, b in rows))
        graph = imported(*(("--labels", "y.npy") if what == "--train-mask" else ()), what, file)
        if what == "--train-mask":
            assert graph.masks["train"].tolist() == [True, True] + [False] * 4
        elif what == "--labels":
            assert graph.labels.tolist() == [0, 1] * 3
        elif what == "--targets":
            assert graph.targets[:, 0].tolist() == [0.5 * v for v in range(6)]
        else:
            assert graph.features.tolist() == [[10.5 * v] for v in range(6)]


def test_errors_of_values_say_how_they_are_mended(place):
    for what, text, says, hint in (
        ("features", "id;f\n1;0,5\n", "line 2: '1;0,5': '0,5' in column 'f'", "0.5, not 0,5"),
        ("features", "id,f\n1;0.5\n", "line 2: '1;0.5' has 1 columns", "by ',', this one by ';'"),
        ("features", "id,f\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'f'", "fill it in"),
        ("features", "id,f\n1,2\n2,nan\n", "features of row 1, column 'f'", "fill them in"),
        ("targets", "id,y\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'y'", "write nan"),
    ):
        (place / "t.csv").write_text(text)
        said = denied(f"--{what}", "t.csv")
        assert "t.csv" in said
        assert says in said
        assert hint in said


def test_columns_that_may_both_have_ids(place):
    (place / "x.csv").write_text("f,node,id\n" + "".join(f"{i},{i},{i}\n" for i in range(6)))
    assert "'node' and 'id' may both have the ids" in denied("--features", "x.csv")
    (place / "x.csv").write_text(",f,id\n" + "".join(f"{9 - i},{i},{i}\n" for i in range(6)))
    assert imported("--features", "x.csv").features[:, 0].tolist() == list(range(6))
    (place / "x.csv").write_text("id,class\n#a,x\n#b,y\n#c,x\n")  # as infer writes it
    (place / "e.txt").write_text('"#a","#b"\n"#b","#c"\n"#c","#a"\n')
    assert imported("--labels", "x.csv", source="e.txt").labels.tolist() == [0, 1, 0]


def test_words_for_missing_labels(place):
    def labelled(words, *options):
        (place / "y.csv").write_text("".join(f"{word}\n" for word in words))
        graph = imported("--labels", "y.csv", *options)
        return graph.labels.tolist(), graph.class_names

    assert labelled(["1.0", "1", "2", "2.0", "nan", "-1"]) == ([0, 0, 1, 1, -1, -1], ("1", "2"))
    assert labelled(["1.0", "1", "x", "x", "1e0", "x"]) == ([0, 0, 1, 1, 0, 1], ("1", "x"))
    for word in ("unknown", "NA", "None", "null", "?"):
        words = [word, "1", "2", word, "1", "2"]
        with pytest.raises(AssertionError, match=f"label '{re.escape(word)}' stands among numbers"):
            labelled(words)
        without = ([-1, 0, 1, -1, 0, 1], ("1", "2"))
        assert labelled(words, "--missing-label", word) == without
        assert labelled(words, "--missing-label", "-1")[1] == ("1", "2", word)
    run("import", "ring.txt", "g.graph", "--force")
    (place / "y.csv").write_text(
        "id,label\n" + "".join(f"{v},{'NA' if v else 'a'}\n" for v in range(6))
    )
    assert (
        "label 'NA' is a class like others" in run("attach", "g.graph", "--labels", "y.csv").stderr
    )
    run("attach", "g.graph", "--labels", "y.csv", "--missing-label", "NA")
    assert open_graph("g.graph").graph.labels.tolist() == [0] + [-1] * 5


PEOPLE = "id,age,kind,name,income\n" + "".join(
    f"{v},{20 + v},{'cat' if v % 2 else 'dog'},person {v},{v / 2}\n" for v in (3, 0, 5, 1, 4, 2)
)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("option", [(), ("--labels", "people")])
def test_features_and_labels_in_one_table(place, form, option):
    file = place / f"people.{form}"
    (place / "people.csv").write_text(PEOPLE)
    if form == "parquet":
        pq.write_table(csv.read_csv("people.csv"), file)
    option = [file if word == "people" else word for word in option]
    done = run("import", "ring.txt", "g.graph", "--features", file, *option,
               "--label-column", "kind")  # fmt: skip
    assert "no features, but texts: 'name'" in done.stderr
    graph = open_graph("g.graph").graph
    np.testing.assert_array_equal(graph.features, [[20 + v, v / 2] for v in range(6)])
    assert graph.labels.tolist() == [1, 0] * 3
    assert graph.class_names == ("cat", "dog")
    # Into a folder that there is, from a table with ordinary names.
    (place / "named.csv").write_text("id,h,label,train_mask\n" + "".join(
        f"{v},{v},{v % 3},{int(v < 2)}\n" for v in range(6)))  # fmt: skip
    words = ("--features", "named.csv", "--labels", "named.csv", "--train-mask", "named.csv")
    run("attach", "g.graph", *words)
    graph = open_graph("g.graph").graph
    assert graph.features.tolist() == [[v] for v in range(6)]
    assert graph.labels.tolist() == [0, 1, 2] * 2
    assert graph.masks["train"].tolist() == [True] * 2 + [False] * 4


def test_tables_with_a_label_that_are_refused(place):
    (place / "people.csv").write_text(PEOPLE)
    (place / "bare.csv").write_text("0.5,1,cat\n1.5,2,dog\n")
    said = denied("--features", "people.csv")
    assert "line 2: the column 'kind' holds 'cat', not a number" in said
    assert "--label-column kind" in said
    said = denied("--features", "people.csv", "--label-column", "kinds")
    assert "unknown column of people.csv 'kinds'" in said
    assert "did you mean 'kind'?" in said
    assert "--label-column NAME" in denied("--labels", "people.csv")
    assert "'cat' in column 3 is not a number" in denied("--features", "bare.csv")
    for words in ((), ("--features", "random:3"), ("--labels", "random:3")):
        assert "there is none" in denied("--label-column", "kind", *words)
    assert "has no columns with names" in denied("--labels", "y.npy", "--label-column", "kind")


def test_a_table_of_labels_may_leave_vertices_out(place):
    (place / "y.csv").write_text("id,label\n4,b\n1,a\n5,b\n")
    (place / "t.csv").write_text("id,a,b\n2,0,1\n3,1,0\n")
    done = run("import", "ring.txt", "g.graph", "--labels", "y.csv", "--targets", "t.csv")
    graph = open_graph("g.graph").graph
    assert graph.labels.tolist() == [-1, 0, -1, -1, 1, 1]
    assert np.isnan(graph.targets).all(axis=1).tolist() == [True, True, False, False, True, True]
    assert "3 vertices without a label" in done.stdout
    (place / "x.csv").write_text("id,h\n4,1\n1,2\n")
    assert "there is none for vertex 0" in denied("--features", "x.csv")
    (place / "y.csv").write_text("id,label\n4,b\n7,a\n")
    assert "the graph has no vertex 7" in denied("--labels", "y.csv")


def test_hints_do_not_name_what_was_given_or_is_of_no_use(place):
    np.save("long.npy", np.ones((9, 1)))
    assert "--vertices N or --ids FILE" in denied("--features", "long.npy")
    said = denied("--features", "long.npy", "--vertices", "8")
    assert "--vertices 8 was given" in said
    assert "--vertices N" not in said
    run("import", "ring.txt", "g.graph", "--vertices", "8")
    assert "--vertices 8 was given" in refused("attach", "g.graph", "--features", "long.npy")
    sp.save_npz("a.npz", sp.eye(6, format="csr"))
    assert "hint" not in denied("--features", "long.npy", source="a.npz")


def test_duplicates_with_other_weights_are_told(place):
    (place / "twice.txt").write_text("0 1 2\n0 1 3\n0 1 2\n1 2 1\n1 2 1\n2 0 1\n")
    for more in ((), ("--memory", "4GB")):
        done = run("import", "twice.txt", "g.graph", "--force", *more)
        said = " ".join(done.stdout.split())
        assert "3 duplicates merged, 1 with another weight: the first was kept; --dup" in said
        assert open_graph("g.graph").graph.weights.tolist() == [2, 1, 1]
    said = " ".join(run("import", "twice.txt", "h.graph", "--duplicates", "sum").stdout.split())
    assert "3 duplicates added up" in said
    assert "another weight" not in said


def test_a_directed_graph_gets_a_word_about_undirected(place):
    advice = "--undirected adds the reverse of every arc"
    assert advice in run("import", "ring.txt", "g.graph").stderr
    for words in (("--undirected",), ("--direction", "out"), ("--direction", "in")):
        assert advice not in run("import", "ring.txt", "g.graph", "--force", *words).stderr


def test_a_heterophilous_graph(place):
    edges = np.array([[0, 1], [1, 2], [3, 1]])
    arrays = {"node_features": np.arange(8.0).reshape(4, 2), "node_labels": np.array([0, 1, 1, 0])}
    masks = {f"{name}_masks": np.zeros((3, 4), bool) for name in ("train", "val", "test")}
    for k, mask in enumerate(masks.values()):
        mask[range(3), [(k + split) % 4 for split in range(3)]] = True
    np.savez("roman.npz", edges=edges, **arrays, **masks)
    graph = imported(source="roman.npz")
    assert (graph.n, graph.nnz, graph.splits) == (4, 6, 3)
    assert not open_graph("g.graph").manifest.directed
    np.testing.assert_array_equal(graph.features, arrays["node_features"])
    assert graph.labels.tolist() == [0, 1, 1, 0]
    for name, mask in masks.items():
        np.testing.assert_array_equal(graph.masks[name.removesuffix("_masks")], mask.T)
    np.savez("bad.npz", edges=edges.T, **arrays)
    assert "edges is not (m, 2), but (2, 3)" in denied(source="bad.npz")


def test_ids_permute_rows_of_formats_that_number_their_vertices(place):
    np.save("e.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    (place / "m.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n")
    np.save("x3.npy", np.array([[5.0], [6], [7]]))
    (place / "ids.txt").write_text("2\n0\n1\n")
    graph = imported("--features", "x3.npy", "--ids", "ids.txt", source="m.mtx")
    assert graph.features[:, 0].tolist() == [6, 7, 5]
    assert graph.ids is None
    graph = imported("--features", "x3.npy", "--ids", "ids.txt", source="e.npy")
    assert graph.features[:, 0].tolist() == [5, 6, 7]
    assert graph.ids.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("text", "vertices", "n", "first"),
    [("0 4\n", "6", 6, 0), ("1 6\n", "6", 6, 1), ("1 4\n", "0..5", 6, 0), ("1 4\n", "1..6", 6, 1)],
)
def test_vertices_without_arcs_can_be_announced(place, text, vertices, n, first):
    (place / "few.txt").write_text(text)
    graph = imported("--vertices", vertices, "--features", "x.npy", source="few.txt")
    assert graph.n == n
    assert (0 if graph.ids is None else graph.ids[0]) == first
    assert graph.features[:, 0].tolist() == list(range(6))


def test_vertices_that_do_not_fit_are_refused(place):
    (place / "few.txt").write_text("1 4\n")
    assert "--vertices 0..5 or --vertices 1..6" in denied("--vertices", "6", source="few.txt")
    assert "there is a vertex 4" in denied("--vertices", "3", source="few.txt")
    assert "there is a vertex 4" in denied("--vertices", "0..3", source="few.txt")
    for wrong in ("0", "x", "3..1", "9" * 30):
        assert f"--vertices {wrong}" in denied("--vertices", wrong, source="few.txt")
    assert "GiB of memory" in denied("--vertices", "0..2999999999999", source="few.txt")
    message = denied("--features", "x.npy", "--ids", "sorted", source="few.txt")
    assert "has 6 rows, the graph has 2 vertices" in message
    assert "import it with --vertices N or --ids FILE" in message


# Columns


def test_a_column_of_times_is_not_taken_for_weights(place):
    (place / "t.txt").write_text("1 2 1580000000\n2 1 1580000777\n")
    message = denied(source="t.txt")
    assert "whole numbers from 1580000000 to 1580000777, weights or something else" in message
    assert "--columns source,target" in message
    assert imported("--columns", "source,target", source="t.txt").weights is None
    graph = imported("--columns", "source,target,weight", source="t.txt")
    assert graph.weights.tolist() == [1580000000, 1580000777]
    (place / "four.txt").write_text("1 2 0.5 1580000000\n")
    assert "has 4 columns, and it is not clear what they are" in denied(source="four.txt")
    assert imported("--columns", "target,source,weight", source="four.txt").weights.tolist() == [
        0.5
    ]


@pytest.mark.parametrize(
    ("text", "options", "arcs", "weights"),
    [
        ("source,target\n0,1\n1,2\n", {}, [(0, 1), (1, 2)], None),
        ("\ufeffTarget;Source;Weight\n1;0;0.5\n2;1;3\n", {}, [(0, 1), (1, 2)], [0.5, 3]),
        ("# c\nfrom\tto\ttime\n0\t1\t99999\n", {}, [(0, 1)], None),
        ("a,b\n0,1\n", {}, [(0, 1)], None),
        ("a,b,c\n0,1,2000\n", {"columns": "source,-,target"}, [(0, 1)], None),
        ("0\t1\t7\n\n1\t2\t8\n", {"columns": "source,target,-"}, [(0, 1), (1, 2)], None),
        ('"0","1"\r\n"1","2"\r\n', {}, [(0, 1), (1, 2)], None),
        ("0 1\r1 2\r", {}, [(0, 1), (1, 2)], None),
        ("0;1\n  \n1;2\n", {}, [(0, 1), (1, 2)], None),
        ("x y\ny x\n", {}, [(0, 1), (1, 0)], None),
        ("ann,knows,bob\nbob,likes,ann\n", {"columns": "source,-,target"}, [(0, 1), (1, 0)], None),
        ("New York;Oslo;1.5\nOslo;New York;2\n", {}, [(0, 1), (1, 0)], [1.5, 2]),
        ("user,friend\nann,bob\n", {"header": True}, [(0, 1)], None),
        ("user,friend\nann,bob\n", {"header": False}, [(3, 2), (0, 1)], None),
        ("a#b c%\nc% a#b\n", {}, [(0, 1), (1, 0)], None),
        ("0 1 # b c\n1 0 # d\n", {}, [(0, 1), (1, 0)], None),
        ("07 7\n7 07\n", {"string_ids": True}, [(0, 1), (1, 0)], None),
        ("0 1\n2 3\n", {"header": True}, [(0, 1)], None),
        # Not numbers of lines: as many weights as fractions, one weight, a name, or the user says.
        ("0 1 .5\n1 2 2\n2 0 1\n", {}, [(0, 1), (1, 2), (2, 0)], [0.5, 2, 1]),
        ("0 1 4\n1 2 4\n2 0 4\n", {}, [(0, 1), (1, 2), (2, 0)], [4, 4, 4]),
        ("u v w\n0 1 4\n1 2 3\n2 0 4\n", {}, [(0, 1), (1, 2), (2, 0)], [4, 3, 4]),
        (
            "0 1 2\n1 2 0\n2 0 1\n",
            {"columns": "source,target,weight"},
            [(0, 1), (1, 2), (2, 0)],
            [2, 0, 1],
        ),
        ("0 1 2\n1 2 0\n2 0 1\n", {"columns": "-,source,target"}, [(1, 2), (2, 0), (0, 1)], None),
    ],
)
def test_lists_of_arcs(tmp_path, text, options, arcs, weights):
    path = tmp_path / "e.txt"
    path.write_bytes(text.encode())
    source = read_source(path, layout=Layout(**options))
    assert arcs_of(source) == arcs
    assert (source.weights is None) == (weights is None)
    assert weights is None or source.weights.tolist() == weights


@pytest.mark.parametrize("columns", [None, "source,relation,target"], ids=["arcs", "triples"])
def test_ids_that_are_texts_stay_as_they_are_written(tmp_path, columns):
    path, ids = tmp_path / "e.txt", tmp_path / "ids.txt"
    path.write_text("07 7\n7 10\n" if columns is None else "07 r 7\n7 s 10\n")
    ids.write_text("10\n7\n07\n007\n")
    layout = Layout(columns=columns, string_ids=True, ids=ids)
    if columns is None:
        found = read_source(path, layout=layout).ids
    else:
        found = triples.read(path, layout).ids["entity"]
    assert found.tolist() == ["10", "7", "07", "007"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("user,friend\nann,bob\n", {}, r"line 1 \('user', 'friend'\) may be a header"),
        ("ann knows bob\n", {}, r"third column of 'ann knows bob' is not a weight"),
        ("0 5 7\n1 7 5\n2 5 6\n", {}, "holds 0, 1, 2, … to the end, sources or the numbers of"),
        ("1,5,7\n2,7,5\n3,5,6\n", {}, "holds 1, 2, 3, … to the end, sources or the numbers of"),
        ("a,b,time\n0,1,5\n", {}, r"'a,b,time' has 3 columns, and it is not clear"),
        ("0 1\n", {"columns": "source,weight"}, "must name source and target, each once"),
        ("0 1\n", {"columns": "source,target,colour"}, "'colour' is not a known column"),
        ("0 1\n", {"columns": "source,target,weight"}, "has 2 columns, --columns .* names more"),
        ("1.0 2.0\n", {}, "'1.0' is not an integer of 64 bits"),
        ("0 1\n1 x\n", {}, "line 2: '1 x' .*'x' in column 2 is not an integer"),
        ("0;1;0,5\n", {}, "line 1.*'0,5' in column 3 is not a number.*\n.*0.5, not 0,5"),
        ("a b\na c\nb\n", {}, r"line 3: 'b' has 1 columns, not 2"),
        ("a,b\na,\n", {}, "'' in column 2 is not a text of 1 to 256 characters"),
        ("a b\nb \udcff\n", {}, r"line 2: b'b \\xff' is not UTF-8"),
        ("0 1\n" * 9 + "0 \x00 1\n", {}, "line 10: there is a NUL"),
        ("\x1b[2Jred x\nx \x1b[2Jred\n", {"vertices": "3"}, "integers"),
        ("0 1\n1 \x1b[31m\n", {}, r"'1 \\x1b\[31m'"),
    ],
)
def test_lists_of_arcs_that_are_refused(tmp_path, text, options, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    caught = refuses(message, read_source, path, layout=Layout(**options))
    assert "\x1b" not in str(caught)
    assert "\n" not in caught.message


@pytest.mark.parametrize("rest", ["1 2\n2 1\n", "1,2\n2,1\n", "1\t2\n2\t1\n"])
@pytest.mark.parametrize(
    "word",
    ["9223372036854775808", "1e+05", "1.0", "NA", "nan", "?", "1_000", "0x1f", "x7", "9f86d0"],
)
def test_a_first_row_that_is_no_header_has_the_error_of_any_row(tmp_path, word, rest):
    path, separator = tmp_path / "e.txt", rest[1]
    rows = rest.splitlines(keepends=True)
    first = f"{word}{separator}2\n"
    for text, line in ((first + rest, 1), (rows[0] + first + rows[1], 2)):
        path.write_text(text)
        message = rf"line {line}: .*{re.escape(repr(word))} in column 1 is not an integer"
        caught = refuses(message, read_source, path)
        missing = word in ("NA", "nan", "?")
        number = word in ("1e+05", "1.0", "1_000", "0x1f")
        assert ("--string-ids" in caught.hint) == (not missing and not number)
        assert ("leave the row out" in caught.hint) == missing
        stream = open_stream(path, "edges", Layout(), Reading())
        refuses(message, list, stream.pieces)
        found = read_source(path, layout=Layout(string_ids=True, header=False))
        assert found.ids[found.source].tolist().count(word) == 1


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        ("#a b\nb #a\n", {}, "line 1: '#a b' may be a comment or a row"),
        ("b #a\n#a b\n", {}, "line 2: '#a b' may be a comment or a row"),
        ("#a b\nb #a\n", {"comments": "none"}, [("#a", "b"), ("b", "#a")]),
        ("#a b\nb c\nc b\n", {"comments": "#"}, [("b", "c"), ("c", "b")]),
        ("%a b\nb %a\n#c\n", {"comments": "#"}, [("%a", "b"), ("b", "%a")]),
        ("source,target\n#a,b\nb,#a\n", {}, [("#a", "b"), ("b", "#a")]),
        ("source,target\n# of it\n%a,b\n", {}, [("%a", "b")]),
        ("source,target\n# a,b\nb,c\n", {}, "line 2: '# a,b' may be a comment or a row"),
        ("source,target\n#a\nb,c\n", {}, "line 2: '#a' has 1 columns"),
        ('"#a",b\nb,"#a"\n', {}, [("#a", "b"), ("b", "#a")]),
        ("# of all links\n\n%C3 b\nb %C3\n", {}, "line 3: '%C3 b' may be a comment or a row"),
        ("#a,#b\n#b,#c\n", {}, "holds no arcs"),
        ("# Nodes: 2\n0\t1\n# within\n#1 0\n1 0 # behind\n", {}, [(0, 1), (1, 0)]),
        ("#target source\n1 0\n", {}, [(0, 1)]),
        ("0 1\n#a 5\n", {}, "line 2: '#a 5' .*'#a' in column 1 is not an integer"),
        ("source,target\n#a,#b\n#b,#a\n", {}, [("#a", "#b"), ("#b", "#a")]),
        ('"New York" Oslo\nOslo "New York"\n', {}, [("New York", "Oslo"), ("Oslo", "New York")]),
        ("u v\nv u\n", {}, r"line 1 \('u', 'v'\) may be a header or an arc"),
        ("v1 v2\nv2 v1\n", {}, [("v1", "v2"), ("v2", "v1")]),
        ("id_1,id_2\n0,1\n", {}, [(0, 1)]),
        ("a,b\nParis, FR\n", {"header": True}, [("Paris", "FR")]),
        ("Paris, FR\tRome\nRome\tParis, FR\n", {}, [("Paris, FR", "Rome"), ("Rome", "Paris, FR")]),
    ],
)
def test_comments_and_headers_among_rows(tmp_path, text, options, found):
    path = tmp_path / "e.txt"
    path.write_text(text)
    layout = Layout(**options)
    if isinstance(found, str):
        refuses(found, read_source, path, layout=layout)
        return
    source = read_source(path, layout=layout)
    names = np.arange(source.n) if source.ids is None else source.ids
    ends = zip(names[source.source].tolist(), names[source.target].tolist(), strict=True)
    assert list(ends) == found


def test_comments_are_counted(place):
    (place / "e.txt").write_text("# Nodes: 2\n0 1\n# within\n1 2\n")
    (place / "x.csv").write_text("# of 2024\nid,f\n2,1\n0,3\n1,2\n")
    for more in ((), ("--memory", "4GB")):
        done = run("import", "e.txt", "g.graph", "--force", "--features", "x.csv", *more)
        assert "comments │ 2 lines" in done.stdout
        assert "x.csv: 1 lines are comments" in done.stderr
        assert open_graph("g.graph").manifest.source["comments"] == 2
    assert "comments" in run("info", "g.graph").stdout


def test_text_ids_are_kept(place):
    (place / "s.csv").write_text('Ärger,b\nb,"c, d"\n')
    graph = imported("--no-header", source="s.csv")
    assert graph.ids.tolist() == ["b", "c, d", "Ärger"]
    (place / "x.csv").write_text("id;f\nÄrger;1\nc, d;2\nb;3\n")
    graph = imported("--no-header", "--features", "x.csv", source="s.csv")
    assert graph.features[:, 0].tolist() == [3, 2, 1]


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    text=st.booleans(),
    separator=st.sampled_from([" ", "\t", ",", ";"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    header=st.booleans(),
    weighted=st.booleans(),
    mark=st.booleans(),
)
def test_any_list_of_arcs_comes_back(tmp_path, data, text, separator, end, header, weighted, mark):
    letters = st.text("abßé", min_size=1, max_size=3)
    end_of_arc = letters if text else st.integers(-(2**63), 2**63 - 1)
    pairs = data.draw(st.lists(st.tuples(end_of_arc, end_of_arc), min_size=1, max_size=20))
    weights = [data.draw(st.floats(-99, 99)) for _ in pairs]
    lines = [separator.join(["source", "target", "weight"][: 2 + weighted])] if header else []
    for (i, j), weight in zip(pairs, weights, strict=True):
        lines.append(separator.join([str(i), str(j), repr(weight)][: 2 + weighted]))
    path = tmp_path / "any.txt"
    path.write_text(end.join(lines) + end, "utf-8-sig" if mark else "utf-8", newline="")
    # Texts of letters only never look like a header unless the first two are unique.
    source = read_source(path, layout=Layout(header=header))
    names = np.arange(source.n) if source.ids is None else source.ids
    found = list(zip(names[source.source].tolist(), names[source.target].tolist(), strict=True))
    assert found == pairs
    assert sorted(set(names.tolist())) == names.tolist()
    assert (source.weights.tolist() == weights) if weighted else source.weights is None


# Other forms of arcs and features


def test_an_edge_index(place):
    pairs = np.array([[0, 1], [1, 2], [2, 0]])
    for array in (pairs, pairs.T, np.asfortranarray(pairs.T), pairs.astype(np.uint16)):
        np.save("e.npy", array)
        assert arcs_of(read_source("e.npy")) == [(0, 1), (1, 2), (2, 0)]
    (place / "e.npy").write_text("0 1\n")
    refuses(r"e.npy is not a .npy array$", read_source, "e.npy")
    for array, message in (
        (pairs[:2], "it is not clear whether a row is an arc"),
        (pairs + 0.5, r"holds float64 \(3, 2\), not integers"),
        (np.ones((3, 3), int), r"holds int64 \(3, 3\)"),
        (np.zeros((2, 0), int), "holds no arcs"),
    ):
        np.save("e.npy", array)
        refuses(message, read_source, "e.npy")


def test_the_summary_says_what_came_out(place):
    np.save("y.npy", np.array([3, 3, 9, -1, 9, 9]))
    np.save("t.npy", np.array([0, 2]))
    words = ["--features", "x.npy", "--labels", "y.npy", "--train-mask", "t.npy"]
    text = run("import", "ring.txt", "g.graph", *words).output
    for line in (
        "g.graph",
        "6, directed",
        "row i is vertex i",
        "1 columns, from 0 to 5, 16.7% zeros",
        "2 (3: 2, 9: 3)",
        "1 vertices without a label",
        "train 2",
    ):
        assert line in text
    facts = json.loads(run("import", "ring.txt", "h.graph", *words, "--json").stdout)["summary"]
    assert facts["classes"] == {"3": 2, "9": 3}
    assert facts["masks"] == {"train": 2}


OPTIONS = {
    "columns": ["--columns", "source,target"],
    "header": ["--no-header"],
    "string_ids": ["--string-ids"],
    "vertices": ["--vertices", "3"],
    "ids": ["--ids", "ids.txt"],
    "ids of rows": ["--ids", "ids.txt", "--features", "x3.npy"],
    "sorted": ["--ids", "sorted", "--features", "x3.npy"],
    "numbers": ["--mask-numbers", "rows", "--labels", "random:2", "--test-mask", "t.npy"],
    "undirected": ["--undirected", "--direction", "out", "--duplicates", "sum"],
}
OF_ROWS = {"ids of rows", "sorted", "numbers", "undirected"}
TAKEN = {
    "txt": set(OPTIONS),
    "npy": set(OPTIONS) - {"columns", "header", "string_ids"},
    "mtx": OF_ROWS,
    "gnn.npz": OF_ROWS,
    "scipy.npz": OF_ROWS,
}


@pytest.mark.parametrize("form", TAKEN)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_format_takes_or_refuses_every_option(place, form, option):
    matrix = sp.csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    pairs = np.column_stack(matrix.nonzero())
    if form == "npy":
        np.save("a.npy", pairs)
    elif form == "scipy.npz":
        sp.save_npz("a.scipy.npz", matrix)
    elif form == "gnn.npz":
        parts = ("data", "indices", "indptr", "shape")
        np.savez("a.gnn.npz", **{f"adj_{part}": getattr(matrix, part) for part in parts})
    else:
        head = "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n"
        text = "".join(f"{i} {j}\n" for i, j in pairs + (form == "mtx"))
        (place / f"a.{form}").write_text(head + text if form == "mtx" else text)
    (place / "ids.txt").write_text("2\n0\n1\n")
    np.save("x3.npy", np.array([[2.0], [0.0], [1.0]]))
    np.save("t.npy", np.array([1]))
    if option not in TAKEN[form]:
        message = denied(*OPTIONS[option], source=f"a.{form}")
        expected = "but there is no file" if option == "ids" else "is for edges"
        assert expected in message
        return
    graph = imported(*OPTIONS[option], source=f"a.{form}")
    names = np.arange(3) if graph.ids is None else graph.ids.astype(int)
    found = {
        (int(names[i]), int(names[j])) for i, j in zip(*graph.adjacency().nonzero(), strict=True)
    }
    arcs = set(map(tuple, pairs.tolist()))
    assert found == (arcs | {(j, i) for i, j in arcs} if option == "undirected" else arcs)
    if option == "ids of rows":
        assert graph.features[:, 0].tolist() == names.tolist()
    elif option == "sorted":
        assert graph.features[:, 0].tolist() == [2, 0, 1]
    elif option == "numbers":
        assert np.flatnonzero(graph.masks["test"]).tolist() == [1]


# Every kind of file that features, labels, masks and ids can come in

VALUES = {
    "features": np.array([[0, 1.5], [2, 0], [0, 0], [-1, 3], [0.25, 0], [7, 0]], np.float32),
    "labels": np.array([1, 0, -1, 1, 0, 1]),
    "train-mask": np.array([True, False, False, True, False, False]),
}


def written(folder, what, form):
    values = VALUES[what]
    path = folder / f"{what}.{form}"
    text = "\n".join(",".join(map(str, np.atleast_1d(row).tolist())) for row in values) + "\n"
    if form == "npy":
        np.save(path, values)
    elif form == "npy.gz":
        np.save(folder / "a.npy", np.asfortranarray(values))
        path.write_bytes(gzip.compress((folder / "a.npy").read_bytes()))
    elif form == "npz":
        np.savez_compressed(path, values)
    elif form == "named.npz":
        name = {"train-mask": "train_mask"}.get(what, what)
        np.savez(path, **{name: values}, more=np.ones(3), edge_index=np.ones((2, 2), int))
    elif form == "csr.npz":
        sp.save_npz(path, sp.csr_matrix(values))
    elif form == "csr_array.npz":
        sp.save_npz(path, sp.csr_array(values), compressed=False)
    elif form == "csv":
        path.write_text(text)
    elif form == "header.csv":
        path.write_text(",".join(["a", "b"][: len(text.split()[0].split(","))]) + "\n" + text)
    elif form == "pandas.csv":  # DataFrame.to_csv
        lines = [f"{i},{line}" for i, line in enumerate(text.split())]
        names = ["", "0", "1"] if what == "features" else ["", "label"]
        path.write_text(",".join(names) + "\n")
        path.write_text(path.read_text() + "\n".join(reversed(lines)) + "\n")
    elif form == "tsv":
        path.write_text(text.replace(",", "\t").replace("\n", "\r\n"))
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(text.replace(",", " ").encode()))
    return path


FORMS = ["npy", "npy.gz", "npz", "named.npz", "csv", "header.csv", "pandas.csv", "tsv", "csv.gz"]


@pytest.mark.parametrize(
    ("what", "form"),
    [
        *((what, form) for what in VALUES for form in FORMS),
        ("features", "csr.npz"),
        ("features", "csr_array.npz"),
    ],
)
def test_every_kind_of_file(place, what, form):
    path = written(place, what, form)
    words = [] if what == "labels" else ["--labels", written(place, "labels", "npy")]
    graph = imported(*words, f"--{what}", path)
    found = graph.masks["train"] if what == "train-mask" else getattr(graph, what)
    np.testing.assert_array_equal(found, VALUES[what])
    ids = place / "ids.txt"
    ids.write_text("5\n4\n3\n2\n1\n0\n")
    words += [f"--{what}", path, "--ids", ids]
    if form == "pandas.csv":
        assert "has a column of ids, so --ids is not for it" in denied(*words)
    else:
        graph = imported(*words)  # ids 5, 4 … in that order, and the rows as they are
        found = graph.masks["train"] if what == "train-mask" else getattr(graph, what)
        np.testing.assert_array_equal(found, VALUES[what])
        assert graph.ids.tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3\n", "line 2: '3' has 1 columns, not 2"),
        ("1,2\n\n3,x\n", "line 3: '3,x': 'x' in column 2 is not a number"),
        ("a,b\nc,d\n", "line 1: 'a,b' is not 2 numbers"),
        ("", "holds no features"),
        ("id\n1\n", "a column of ids, but no features"),
        ("id,a\n1,2\n1,3\n", "the id 1 occurs twice"),
        ("1,nan\n", "features of vertex 0, column 1 are not finite"),
        ("1,1e39\n", "features of vertex 0, column 1 are not finite"),
        ("id,a\n1,2\n1\n", "line 3: '1' has 1 columns"),
        ("1;0,5\n", "line 1"),
        ("id,a,b\nx,,2\ny,3,4\n", "line 2: 'x,,2': '' in column 'a' is not a number"),
        ("id,a,b\nx,1,2\ny,,4\n", "line 3: 'y,,4': '' in column 'a' is not a number"),
    ],
)
def test_tables_of_features_that_are_refused(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    caught = refuses(message, read_features, tmp_path / "x.csv")
    assert "x.csv" in caught.message
    assert "\n" not in caught.message


def test_archives_that_can_be_read_in_two_ways_are_refused(place):
    np.savez("a.npz", one=np.ones((6, 2)), two=np.ones((6, 2)))
    message = denied("--features", "a.npz")
    assert "a.npz holds 'one', 'two': it is not clear which array to read" in message
    sp.save_npz("coo.npz", sp.coo_matrix(np.eye(6)))
    assert "a sparse matrix in the form 'coo', only csr" in denied("--features", "coo.npz")
    (place / "x.npz").write_text("1 2\n")
    np.save("x.npy", np.ones((6, 2)))
    (place / "x.npy").rename("x.csv")  # the content decides, not the name
    assert imported("--features", "x.csv").features.shape == (6, 2)
    assert "has 1 rows, the graph has 6" in denied("--features", "x.npz")


def test_an_adjacency_matrix_of_scipy(place):
    matrix = sp.csr_array((np.array([1, 2.5]), (np.array([0, 2]), np.array([1, 0]))), shape=(4, 4))
    sp.save_npz("a.npz", matrix)
    source = read_source("a.npz")
    assert (source.n, arcs_of(source), source.weights.tolist()) == (4, [(0, 1), (2, 0)], [1, 2.5])
    assert "is for edges, npy" in denied("--vertices", "4", source="a.npz")
    sp.save_npz("a.npz", matrix.tocoo())
    assert "only csr is read" in denied(source="a.npz")
    sp.save_npz("a.npz", sp.csr_array((2, 3)))
    assert "is 2 x 3, not square" in denied(source="a.npz")
    np.savez("a.npz", indptr=np.array([0, 1]))
    assert "has no array adj_indptr; it holds 'indptr'" in denied(source="a.npz")
    (place / "a.npz").write_text("0 1\n")
    assert "a.npz is not an npz file" in denied(source="a.npz")


@pytest.mark.parametrize("style", ["{}_{}", "{}_matrix.{}"])
@pytest.mark.parametrize("names", ["class_names", "idx_to_class"])
def test_relatives_of_gnn_benchmark(place, style, names):
    adjacency = sp.csr_array(np.array([[0, 1], [1, 0]], np.float32))
    attributes = sp.csr_array(np.array([[0, 2], [1, 0]], np.float32))
    arrays = {"labels": np.array([1, 0]), names: np.array(["cat", "dog"])}
    arrays["node_names"] = np.array([None, {}], object)  # not touched
    for name, matrix in (("adj", adjacency), ("attr", attributes)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[style.format(name, part)] = np.array(getattr(matrix, part))
    np.savez("b.npz", **arrays)
    graph = imported(source="b.npz")
    assert graph.adjacency().toarray().tolist() == [[0, 1], [1, 0]]
    assert graph.features.tolist() == [[0, 2], [1, 0]]
    assert (graph.labels.tolist(), graph.class_names) == ([1, 0], ("cat", "dog"))
    np.savez("b.npz", **arrays | {names: np.array([{}, None], object)})
    assert imported(source="b.npz").class_names is None


def test_hints_of_arrays_that_are_not_as_they_are_read(place):
    (place / "people.csv").write_text("id,age,kind\n0,,cat\n1,2,dog\n")
    said = denied("--features", "people.csv", "--label-column", "kind")
    assert "people.csv, line 2: '0,,cat': '' in column 'age' is not a number" in said
    np.save(place / "turned.npy", np.ones((2, 6)))
    assert "transpose its (2, 6)" in denied("--features", "turned.npy")
    np.save(place / "matrix.npy", np.ones((6, 6), int))
    assert "scipy.sparse.save_npz" in denied(source="matrix.npy")
    np.savez(place / "mine.npz", edge_index=np.ones((2, 6), int), x=np.ones((6, 2)))
    assert "gcnmpi.graph.from_arrays" in denied(source="mine.npz")
