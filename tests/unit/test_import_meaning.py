"""Files of arcs, features, labels and masks are read as they are meant, or refused."""

import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from command_line import refused, run
from refusals import refuses

from partition.graph.store import open_graph, read_partition
from partition.importing.readers import Layout, read_source, triples
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


def test_masks_are_rows_of_0_and_1_or_lists_of_vertices(place):
    rows = np.array([1, 0, 1, 1, 0, 0])
    for array in (rows.astype(bool), rows.astype(np.uint8), rows, [0, 1], [5, 2], [1], []):
        np.save("t.npy", np.array(array, int) if isinstance(array, list) else array)
        graph = imported("--labels", "y.npy", "--train-mask", "t.npy")
        expected = sorted(array) if isinstance(array, list) else [0, 2, 3]
        assert np.flatnonzero(graph.masks["train"]).tolist() == expected


def test_masks_that_can_be_read_in_two_ways_or_overlap_are_refused(place):
    words = ["--labels", "random:2", "--train-mask", "t.npy"]
    np.save("t.npy", np.array([0, 1, 1, 0]))  # neither a row for each vertex, nor each vertex once
    assert "lists vertex 0 more than once" in denied(*words)
    (place / "two.txt").write_text("0 1\n")
    np.save("t.npy", np.array([0, 1]))
    assert "may be a row for each vertex, or a list" in denied(*words, source="two.txt")
    np.save("v.npy", np.array([1, 3]))
    assert "have 1 vertices in common, the first is 1" in denied(*words, "--test-mask", "v.npy")


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


CLASSES = {
    "numbers": ([1, 2, 3, 4, 5, 5], [0, 1, 2, 3, 4, 4], "12345"),
    "gaps": ([10, 50, -1, 10, 20, -1], [0, 2, -1, 0, 1, -1], ["10", "20", "50"]),
    "as they are": ([0, 1, -1, 0, 2, 2], [0, 1, -1, 0, 2, 2], []),
    "texts": (["b", "a", "", "b", "a", "-1"], [1, 0, -1, 1, 0, -1], "ab"),
    "whole": (["2.0", "10.0", "", "2.0", "nan", "2.0"], [0, 1, -1, 0, -1, 0], ["2", "10"]),
    "exponents": (["1.00e+00", "0.00e+00", "1e0", "-1", "", "-1"], [1, 0, 1, -1, -1, -1], []),
}


@pytest.mark.parametrize("case", CLASSES)
def test_classes_are_compact_and_keep_their_names(place, case):
    labels, expected, names = CLASSES[case]
    text = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    (place / "l.csv").write_text("id,label\n" + text)
    np.savez("l.npz", label=labels, other=np.arange(3))
    np.save("l.npy", labels)
    for form in ("csv", "npz", "npy"):
        assert imported("--labels", f"l.{form}").labels.tolist() == expected
        manifest = open_graph("g.graph").manifest
        assert (manifest.class_names, manifest.classes) == (tuple(names), max(expected) + 1)


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
    before = {file: file.read_bytes() for file in (place / "g.graph").rglob("*.n*")}
    (place / "y.csv").write_text("id,class\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(6)))
    np.save("t.npy", np.array([0, 3]))
    run("attach", "g.graph", "--features", "x.npy", "--labels", "y.csv", "--train-mask", "t.npy")
    stored = open_graph("g.graph")
    assert (stored.manifest.features, stored.manifest.class_names) == (1, ("a", "b"))
    assert np.flatnonzero(stored.graph.masks["train"]).tolist() == [0, 3]
    given = {"features": "x.npy", "labels": "y.csv", "train": "t.npy"}
    assert (stored.manifest.source["file"], stored.manifest.source["attached"]) == (
        "ring.txt",
        given,
    )
    assert all(file.read_bytes() == content for file, content in before.items())
    assert read_partition("g.graph", "rp-2").k == 2
    # The second command gives no features and no masks: both stay.
    run("attach", "g.graph", "--labels", "random:3", "--seed", "1")
    again = open_graph("g.graph")
    assert again.graph.features.tolist() == stored.graph.features.tolist()
    assert again.manifest.class_names == ()
    assert again.manifest.data_id != stored.manifest.data_id
    # Commands that are refused change nothing.
    np.save("short.npy", np.ones((5, 2)))
    for words, message in (
        ([], "there is nothing to attach"),
        (["--features", "short.npy"], "has 5 rows, the graph has 6 vertices"),
        (["--features", "absent.npy"], "there is no file absent.npy"),
    ):
        assert message in refused("attach", "g.graph", *words)
    assert "there is no graph" in refused("attach", "h.graph", "--features", "x.npy")
    assert open_graph("g.graph").manifest == again.manifest


# Ids, and whose row is whose


def test_rows_need_ids_where_those_of_the_graph_have_gaps(place):
    (place / "gap.txt").write_text("30 10\n10 20\n")
    np.save("x.npy", np.array([[30], [10], [20]]))
    assert "10, 20, 30" in denied("--features", "x.npy", source="gap.txt")
    (place / "ids.txt").write_text("30\n10\n20\n")
    graph = imported("--features", "x.npy", "--ids", "ids.txt", source="gap.txt")
    assert graph.ids.tolist() == graph.features[:, 0].tolist() == [30, 10, 20]
    assert graph.indices.tolist() == [1, 2]
    graph = imported("--features", "x.npy", "--ids", "sorted", source="gap.txt")
    assert (graph.ids.tolist(), graph.features[:, 0].tolist()) == ([10, 20, 30], [30, 10, 20])
    # Ids name vertices without arcs too, and must name all others.
    (place / "ids.txt").write_text("30\n-7\n10\n20\n")
    assert imported("--ids", "ids.txt", source="gap.txt").indptr.tolist() == [0, 1, 1, 2, 2]
    for listed, told in (("30\n7\n20\n", "the vertex 10"), ("30\n10\n30\n", "id 30 occurs twice")):
        (place / "ids.txt").write_text(listed)
        assert told in denied("--ids", "ids.txt", source="gap.txt")


def test_a_column_of_ids_says_whose_row_it_is(place):
    (place / "x.csv").write_text("id,a\n" + "".join(f"{i},{10 * i}\n" for i in (3, 1, 0, 5, 2, 4)))
    assert imported("--features", "x.csv").features[:, 0].tolist() == [0, 10, 20, 30, 40, 50]
    (place / "x.csv").write_text("id,a\n" + "".join(f"{i},{10 * i}\n" for i in (3, 1, 0, 5, 2, 9)))
    assert "the graph has no vertex 9; its ids are 0, 1, 2 …" in denied("--features", "x.csv")
    (place / "x.csv").write_text("id,a\n3,1\n1,1\n")
    assert "there is none for vertex 0" in denied("--features", "x.csv")
    (place / "x.csv").write_text("".join(f"{i},0.5\n" for i in range(6)))
    assert "ids, or features?" in denied("--features", "x.csv")


def test_errors_of_values_name_line_and_column_and_how_they_are_mended(place):
    for what, text, *says in (
        ("features", "id;f\n1;0,5\n", "line 2: '1;0,5': '0,5' in column 'f'", "0.5, not 0,5"),
        ("features", "id,f\n1;0.5\n", "line 2: '1;0.5' has 1 columns", "by ',', this one by ';'"),
        ("features", "id,f\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'f'", "fill it in"),
        ("features", "id,f\n1,2\n2,nan\n", "features of row 1, column 'f'", "fill them in"),
        ("targets", "id,y\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'y'", "write nan"),
    ):
        (place / "t.csv").write_text(text)
        said = denied(f"--{what}", "t.csv")
        assert all(words in said for words in ("t.csv", *says))


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
    (place / "y.csv").write_text("a\n" + "NA\n" * 5)
    assert "'NA' is a class like others" in run("attach", "g.graph", "--labels", "y.csv").stderr


PEOPLE = "id,age,kind,name,income\n" + "".join(
    f"{v},{20 + v},{'cat' if v % 2 else 'dog'},person {v},{v / 2}\n" for v in (3, 0, 5, 1, 4, 2)
)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["id", "node", "user_id", "userId", "index", "__index_level_0__"])
def test_one_table_has_all_data_and_ids_anywhere(place, form, name):
    (place / "people.csv").write_text(PEOPLE.replace("id,", f"{name},", 1))
    order, file = [3, 1, 0, 5, 2, 4], f"named.{form}"
    columns = {"h": order, "label": [v % 3 for v in order], "train_mask": [v < 2 for v in order]}
    pq.write_table(pa.table(columns | {name: order}), "named.parquet")
    csv.write_csv(pa.table(columns | {name: order}), "named.csv")
    if form == "parquet":
        pq.write_table(csv.read_csv("people.csv"), "people.parquet")
    words = ["--features", f"people.{form}", "--label-column", "kind"]
    words += ["--labels", f"people.{form}"] * (name == "id")
    assert "no features, but texts: 'name'" in run("import", "ring.txt", "g.graph", *words).stderr
    graph = open_graph("g.graph").graph
    np.testing.assert_array_equal(graph.features, [[20 + v, v / 2] for v in range(6)])
    assert (graph.labels.tolist(), graph.class_names) == ([1, 0] * 3, ("cat", "dog"))
    run("attach", "g.graph", "--features", file, "--labels", file, "--train-mask", file)
    graph = open_graph("g.graph").graph
    assert graph.features.tolist() == [[v] for v in range(6)]
    assert graph.labels.tolist() == [0, 1, 2] * 2
    assert graph.masks["train"].tolist() == [True] * 2 + [False] * 4


def test_tables_with_a_label_that_are_refused(place):
    (place / "people.csv").write_text(PEOPLE)
    (place / "bare.csv").write_text("0.5,1,cat\n1.5,2,dog\n")
    for words, told in (
        (["--features", "people.csv"], "--label-column kind"),
        (["--features", "people.csv", "--label-column", "kinds"], "did you mean 'kind'?"),
        (["--labels", "people.csv"], "--label-column NAME"),
        (["--features", "bare.csv"], "'cat' in column 3 is not a number"),
        (["--label-column", "kind"], "there is none"),
        (["--label-column", "kind", "--labels", "random:3"], "there is none"),
        (["--label-column", "kind", "--labels", "y.npy"], "has no columns with names"),
    ):
        assert told in denied(*words)


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
    for vertices, told in (
        ("6", "--vertices 0..5 or --vertices 1..6"), ("3", "there is a vertex 4"),
        ("0..3", "there is a vertex 4"), ("0..2999999999999", "GiB of memory"),
        *((wrong, f"--vertices {wrong}") for wrong in ("0", "x", "3..1", "9" * 30)),
    ):  # fmt: skip
        assert told in denied("--vertices", vertices, source="few.txt")
    told = denied("--features", "x.npy", "--vertices", "0..7", source="few.txt")
    assert "--vertices 0..7 was given" in told
    message = denied("--features", "x.npy", "--ids", "sorted", source="few.txt")
    assert "has 6 rows, the graph has 2 vertices" in message
    assert "--vertices N or --ids FILE" in message


# Columns


def test_a_column_of_times_is_not_taken_for_weights(place):
    (place / "t.txt").write_text("1 2 1580000000\n2 1 1580000777\n")
    assert "numbers from 1580000000 to 1580000777" in denied(source="t.txt")
    assert imported("--columns", "source,target", source="t.txt").weights is None
    graph = imported("--columns", "source,target,weight", source="t.txt")
    assert graph.weights.tolist() == [1580000000, 1580000777]
    (place / "t.txt").write_text("1 2 999\n2 1 5\n")
    assert imported(source="t.txt").weights.tolist() == [999, 5]
    (place / "t.txt").write_text("1 2 1000\n2 1 5\n")
    assert "numbers from 5 to 1000" in denied(source="t.txt")
    (place / "four.txt").write_text("1 2 0.5 1580000000\n")
    assert "has 4 columns" in denied(source="four.txt")
    graph = imported("--columns", "target,source,weight", source="four.txt")
    assert graph.weights.tolist() == [0.5]


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
        ("0 1 2\n1 0 0\n", {"columns": "source,target,weight"}, [(0, 1), (1, 0)], [2, 0]),
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


def test_ids_that_are_texts_stay_as_they_are_written(place):
    (place / "ids.txt").write_text("10\n7\n07\n007\n")
    (place / "e.txt").write_text("07 7\n7 10\n")
    (named := place / "t.txt").write_text("07 r 7\n7 s 10\n")
    layout = Layout(string_ids=True, ids=place / "ids.txt")
    typed = replace(layout, columns="source,relation,target")
    for found in (
        read_source("e.txt", layout=layout).ids,
        triples.read(named, typed).ids["entity"],
    ):
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
        ("9223372036854775808 2\n1 2\n", {}, "line 1: .* in column 1 is not an integer"),
        ("0x1f 2\n1 2\n", {}, "line 1: .*'0x1f' in column 1 is not an integer"),
        ("1,2\n0x1f,2\n", {}, "line 2: .*'0x1f' in column 1 is not an integer"),
        ("x7 2\n1 2\n2 1\n", {}, "line 1: .*'x7' in column 1 is not an integer(.|\n)*--string-ids"),
        ("1,2\nNA,2\n", {}, "line 2: .*'NA' in column 1 is not an integer(.|\n)*leave the row out"),
    ],
)
def test_lists_of_arcs_that_are_refused(tmp_path, text, options, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    caught = refuses(message, read_source, path, layout=Layout(**options))
    assert "\x1b" not in str(caught)
    assert "\n" not in caught.message


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
    told = ("6, directed", "from 0 to 5, 16.7% zeros", "2 (3: 2, 9: 3)", "1 vertices", "train 2")
    assert all(words in text for words in told)
    facts = json.loads(run("import", "ring.txt", "h.graph", *words, "--json").stdout)["summary"]
    assert (facts["classes"], facts["masks"]) == ({"3": 2, "9": 3}, {"train": 2})


OPTIONS = {
    "columns": ["--columns", "source,target"],
    "header": ["--no-header"],
    "string_ids": ["--string-ids"],
    "vertices": ["--vertices", "3"],
    "ids": ["--ids", "ids.txt"],
    "ids of rows": ["--ids", "ids.txt", "--features", "x3.npy"],
    "undirected": ["--undirected", "--direction", "out", "--duplicates", "sum"],
}
OF_ROWS = {"ids of rows", "undirected"}
TAKEN = {"txt": set(OPTIONS), "npy": {"vertices", "ids", *OF_ROWS}}
TAKEN |= dict.fromkeys(("mtx", "gnn.npz", "scipy.npz"), OF_ROWS)


@pytest.fixture
def forms(place):
    """A ring of three vertices in every form."""
    matrix = sp.csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    pairs = np.column_stack(matrix.nonzero())
    np.save("a.npy", pairs)
    sp.save_npz("a.scipy.npz", matrix)
    parts = ("data", "indices", "indptr", "shape")
    np.savez("a.gnn.npz", **{f"adj_{part}": getattr(matrix, part) for part in parts})
    np.savetxt("a.txt", pairs, "%d")
    head = "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n"
    (place / "a.mtx").write_text(head + "".join(f"{i} {j}\n" for i, j in pairs + 1))
    (place / "ids.txt").write_text("2\n0\n1\n")
    np.save("x3.npy", np.array([[2.0], [0.0], [1.0]]))


@pytest.mark.parametrize("form", TAKEN)
def test_every_format_takes_or_refuses_every_option(forms, form):
    arcs = {(0, 1), (1, 2), (2, 0)}
    for option, words in OPTIONS.items():
        if option not in TAKEN[form]:
            expected = "but there is no file" if option == "ids" else "is for edges"
            assert expected in denied(*words, source=f"a.{form}")
            continue
        graph = imported(*words, source=f"a.{form}")
        names = np.arange(3) if graph.ids is None else graph.ids.astype(int)
        ends = (names[of].tolist() for of in graph.adjacency().nonzero())
        both = arcs | {(j, i) for i, j in arcs} if option == "undirected" else arcs
        assert {*zip(*ends, strict=True)} == both
        assert option != "ids of rows" or graph.features[:, 0].tolist() == names.tolist()


# Every kind of file that features, labels, masks and ids can come in

VALUES = {
    "features": np.array([[0, 1.5], [2, 0], [0, 0], [-1, 3], [0.25, 0], [7, 0]], np.float32),
    "labels": np.array([1, 0, -1, 1, 0, 1]),
    "train-mask": np.array([True, False, False, True, False, False]),
}


def written(folder, what):
    """Name of each file with the values, which all forms of it have."""
    values = VALUES[what]
    rows = [",".join(map(str, np.atleast_1d(row).tolist())) for row in values]
    text, names = "\n".join(rows) + "\n", ["a", "b"][: rows[0].count(",") + 1]
    np.save(folder / "plain.npy", values)
    np.save(folder / "f.npy", np.asfortranarray(values))
    (folder / "x.npy.gz").write_bytes(gzip.compress((folder / "f.npy").read_bytes()))
    np.savez_compressed(folder / "x.npz", values)
    named = {what.replace("-", "_"): values, "more": np.ones(3), "edge_index": np.ones((2, 2), int)}
    np.savez(folder / "named.npz", **named)
    (folder / "x.csv").write_text(text)
    (folder / "header.csv").write_text("\n".join([",".join(names), text]))
    (folder / "x.tsv").write_text(text.replace(",", "\t").replace("\n", "\r\n"))
    (folder / "x.csv.gz").write_bytes(gzip.compress(text.replace(",", " ").encode()))
    found = ["plain.npy", "x.npy.gz", "x.npz", "named.npz", "x.csv", "header.csv", "x.tsv"]
    if what == "features":
        sp.save_npz(folder / "csr.npz", sp.csr_matrix(values))
        sp.save_npz(folder / "array.npz", sp.csr_array(values), compressed=False)
        found += ["csr.npz", "array.npz"]
    # As pandas writes it, in another order.
    names = ["0", "1"] if what == "features" else ["label"]
    lines = [f"{i},{row}" for i, row in enumerate(rows)][::-1]
    (folder / "pandas.csv").write_text("\n".join([",".join(["", *names]), *lines]) + "\n")
    return [*found, "x.csv.gz", "pandas.csv"]


@pytest.mark.parametrize("what", VALUES)
def test_every_kind_of_file(place, what):
    (place / "ids.txt").write_text("5\n4\n3\n2\n1\n0\n")
    words = [] if what == "labels" else ["--labels", "y.npy"]
    np.save("y.npy", VALUES["labels"])
    for file in written(place, what):
        for more in ([], ["--ids", "ids.txt"]):  # ids 5, 4 … in that order, the rows as they are
            if file == "pandas.csv" and more:
                told = denied(*words, f"--{what}", file, *more)
                assert "has a column of ids, so --ids is not for it" in told
                continue
            graph = imported(*words, f"--{what}", file, *more)
            found = graph.masks["train"] if what == "train-mask" else getattr(graph, what)
            np.testing.assert_array_equal(found, VALUES[what])
            assert graph.ids is None if not more else graph.ids.tolist() == [5, 4, 3, 2, 1, 0]


TABLES = {
    "1,2\n3\n": "line 2: '3' has 1 columns, not 2",
    "1,2\n\n3,x\n": "line 3: '3,x': 'x' in column 2 is not a number",
    "a,b\nc,d\n": "line 1: 'a,b' is not 2 numbers",
    "": "holds no features",
    "id\n1\n": "a column of ids, but no features",
    "id,a\n1,2\n1,3\n": "the id 1 occurs twice",
    "1,nan\n": "features of vertex 0, column 1 are not finite",
    "1,1e39\n": "features of vertex 0, column 1 are not finite",
    "id,a\n1,2\n1\n": "line 3: '1' has 1 columns",
    "id,a,b\nx,,2\ny,3,4\n": "line 2: 'x,,2': '' in column 'a' is not a number",
    "id,a,b\nx,1,2\ny,,4\n": "line 3: 'y,,4': '' in column 'a' is not a number",
}


@pytest.mark.parametrize("text", TABLES)
def test_tables_of_features_that_are_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    caught = refuses(TABLES[text], read_features, tmp_path / "x.csv")
    assert "x.csv" in caught.message
    assert "\n" not in caught.message


def test_arrays_that_are_not_as_they_are_read_are_refused(place):
    np.savez("a.npz", one=np.ones((6, 2)), two=np.ones((6, 2)))
    assert "a.npz holds 'one', 'two'" in denied("--features", "a.npz")
    sp.save_npz("coo.npz", sp.coo_matrix(np.eye(6)))
    assert "in the form 'coo', only csr" in denied("--features", "coo.npz")
    np.save("turned.npy", np.ones((2, 6)))
    assert "transpose its (2, 6)" in denied("--features", "turned.npy")
    np.save("matrix.npy", np.ones((6, 6), int))
    assert "scipy.sparse.save_npz" in denied(source="matrix.npy")
    np.savez("mine.npz", edge_index=np.ones((2, 6), int), x=np.ones((6, 2)))
    assert "gcnmpi.graph.from_arrays" in denied(source="mine.npz")
    np.save("x.npy", np.ones((6, 2)))
    (place / "x.npy").rename("x.csv")  # the content decides, not the name
    assert imported("--features", "x.csv").features.shape == (6, 2)


def test_an_adjacency_matrix_of_scipy(place):
    matrix = sp.csr_array((np.array([1, 2.5]), (np.array([0, 2]), np.array([1, 0]))), shape=(4, 4))
    sp.save_npz("a.npz", matrix)
    source = read_source("a.npz")
    assert (source.n, arcs_of(source), source.weights.tolist()) == (4, [(0, 1), (2, 0)], [1, 2.5])
    for save, given, told in (
        (sp.save_npz, matrix.tocoo(), "only csr is read"),
        (sp.save_npz, sp.csr_array((2, 3)), "is 2 x 3, not square"),
        (lambda file, a: np.savez(file, indptr=a), np.array([0, 1]), "has no array adj_indptr"),
        (lambda file, a: (place / file).write_text(a), "0 1\n", "a.npz is not an npz file"),
    ):
        save("a.npz", given)
        assert told in denied(source="a.npz")


@pytest.mark.parametrize(
    ("style", "names"), [("{}_{}", "class_names"), ("{}_matrix.{}", "idx_to_class")]
)
def test_relatives_of_gnn_benchmark(place, style, names):
    arrays = {"labels": np.array([1, 0]), names: np.array(["cat", "dog"])}
    arrays["node_names"] = np.array([None, {}], object)  # not touched
    for name, dense in (("adj", [[0, 1], [1, 0]]), ("attr", [[0, 2], [1, 0]])):
        matrix = sp.csr_array(np.array(dense, np.float32))
        for part in ("data", "indices", "indptr", "shape"):
            arrays[style.format(name, part)] = np.array(getattr(matrix, part))
    np.savez("b.npz", **arrays)
    graph = imported(source="b.npz")
    assert graph.adjacency().toarray().tolist() == [[0, 1], [1, 0]]
    assert graph.features.tolist() == [[0, 2], [1, 0]]
    assert (graph.labels.tolist(), graph.class_names) == ([1, 0], ("cat", "dog"))
    np.savez("b.npz", **arrays | {names: np.array([{}, None], object)})
    assert imported(source="b.npz").class_names is None
