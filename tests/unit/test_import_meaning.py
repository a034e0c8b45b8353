"""Files of arcs, features, labels and masks are read as they are meant, or refused."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from command_line import refused, run
from refusals import refuses

from partition.graph.store import open_graph, read_partition
from partition.importing.readers.reading import read_source
from partition.importing.readers.source import Layout
from partition.importing.readers.vertex_tables import read_features

RING = "".join(f"{i} {(i + 1) % 6}\n" for i in range(6))
ROWS = np.arange(6, dtype=np.float32)[:, None]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a list of arcs between 0..5."""
    monkeypatch.chdir(tmp_path)
    save("ring.txt", RING)
    save("y.npy", [0, 1, 0, 1, 0, 1])
    save("x.npy", ROWS)
    return tmp_path


def save(name, content):
    """A text, or an array; the name."""
    if isinstance(content, str):
        Path(name).write_text(content, newline="")
    else:
        np.save(name, np.array(content, int) if isinstance(content, list) else content)
    return name


def imported(*words, source="ring.txt"):
    run("import", source, "g.graph", "--force", *words)
    return open_graph("g.graph").graph


def denied(*words, source="ring.txt"):
    """The messages of an import that is refused."""
    return refused("import", source, "never.graph", *words)


def arcs_of(source):
    """The arcs that were read, by ids, and their weights."""
    ids = np.arange(source.n) if source.ids is None else source.ids
    ends = zip(ids[source.source].tolist(), ids[source.target].tolist(), strict=True)
    return list(ends), None if source.weights is None else source.weights.tolist()


def members(graph, mask="train"):
    return np.flatnonzero(graph.masks[mask]).tolist()


# Masks and labels


def test_masks_are_rows_of_0_and_1_or_lists_of_vertices_or_ids(place):
    rows = np.array([1, 0, 1, 1, 0, 0])
    for array in (rows.astype(bool), rows.astype(np.uint8), rows, [0, 1], [5, 2], [1], []):
        save("t.npy", array)
        graph = imported("--labels", "y.npy", "--train-mask", "t.npy")
        assert members(graph) == (sorted(array) if isinstance(array, list) else [0, 2, 3])
    words = ["--labels", "random:2", "--train-mask", save("t.npy", [0, 1, 1, 0])]
    assert "lists vertex 0 more than once" in denied(*words)
    save("t.npy", [0, 1])
    told = denied(*words, source=save("two.txt", "0 1\n"))
    assert "may be a row for each vertex, or a list" in told
    told = denied(*words, "--test-mask", save("v.npy", [1, 3]))
    assert "have 1 vertices in common, the first is 1" in told
    save("t.npy", [1, 2])
    ids = save("ids.txt", "1 2\n2 3\n3 4\n")
    assert "the numbers can be ids (1, 2, 3 …) or rows (0..3)" in denied(*words, source=ids)
    for numbers, found in (("ids", [0, 1]), ("rows", [1, 2])):
        assert members(imported(*words, "--mask-numbers", numbers, source=ids)) == found
    assert "no mask" in denied("--mask-numbers", "ids")


CLASSES = [  # as written; the classes; their names
    ([1, 2, 3, 4, 5, 5], [0, 1, 2, 3, 4, 4], "12345"),
    ([10, 50, -1, 10, 20, -1], [0, 2, -1, 0, 1, -1], ["10", "20", "50"]),
    ([0, 1, -1, 0, 2, 2], [0, 1, -1, 0, 2, 2], []),
    (["b", "a", "", "b", "a", "-1"], [1, 0, -1, 1, 0, -1], "ab"),
    (["2.0", "10.0", "", "2.0", "nan", "2.0"], [0, 1, -1, 0, -1, 0], ["2", "10"]),
    (["1.00e+00", "0.00e+00", "1e0", "-1", "", "-1"], [1, 0, 1, -1, -1, -1], []),
    (["1.0", "1", "2", "2.0", "nan", "-1"], [0, 0, 1, 1, -1, -1], "12"),
    (["1.0", "1", "x", "x", "1e0", "x"], [0, 0, 1, 1, 0, 1], "1x"),
]


def test_classes_are_compact_and_keep_their_names(place):
    for labels, expected, names in CLASSES:
        save("l.csv", "id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
        np.savez("l.npz", label=labels, other=np.arange(3))
        np.save("l.npy", labels)
        for form in ("csv", "npz", "npy"):
            assert imported("--labels", f"l.{form}").labels.tolist() == expected
            manifest = open_graph("g.graph").manifest
            assert (manifest.class_names, manifest.classes) == (tuple(names), max(expected) + 1)


def test_words_for_missing_labels_and_labels_that_are_no_classes(place):
    for word in ("unknown", "NA", "None", "null", "?"):
        words = ["--labels", save("y.csv", f"{word}\n1\n2\n" * 2)]
        assert f"label '{word}' stands among numbers" in denied(*words)
    graph = imported(*words, "--missing-label", word)
    assert (graph.labels.tolist(), graph.class_names) == ([-1, 0, 1] * 2, ("1", "2"))
    assert imported(*words, "--missing-label", "-1").class_names == ("1", "2", word)
    save("y.csv", "a\n" + "NA\n" * 5)
    assert "'NA' is a class like others" in run("attach", "g.graph", "--labels", "y.csv").stderr
    path = save("path.txt", "".join(f"{i} {i + 1}\n" for i in range(39)))
    told = denied("--labels", save("l.npy", np.arange(40)), source=path)
    assert "40 different labels for 40 vertices" in told
    told = denied("--labels", save("l.csv", "0.5\n1\n1\n2.5\n1\n1\n"))
    assert "the label '0.5' is a number, not a class" in told
    assert "not float64 (6,)" in denied("--labels", save("l.npy", np.array([0, 1, np.nan] * 2)))


def test_files_attached_to_a_folder_leave_arcs_and_partitions(place):
    imported("--undirected")
    run("add", "g.graph", "--model", "rp", "-k", "2")
    before = {file: file.read_bytes() for file in (place / "g.graph").rglob("*.n*")}
    save("y.csv", "id,class\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(6)))
    given = {"features": "x.npy", "labels": "y.csv", "train": save("t.npy", [0, 3])}
    run("attach", "g.graph", "--features", "x.npy", "--labels", "y.csv", "--train-mask", "t.npy")
    stored = open_graph("g.graph")
    assert (stored.manifest.features, stored.manifest.class_names) == (1, ("a", "b"))
    assert members(stored.graph) == [0, 3]
    assert stored.manifest.source.items() >= {"file": "ring.txt", "attached": given}.items()
    assert all(file.read_bytes() == content for file, content in before.items())
    assert read_partition("g.graph", "rp-2").k == 2
    # The second command gives no features and no masks: both stay.
    run("attach", "g.graph", "--labels", "random:3", "--seed", "1")
    again = open_graph("g.graph")
    assert again.graph.features.tolist() == stored.graph.features.tolist()
    assert (again.manifest.class_names, members(again.graph)) == ((), [0, 3])
    # Commands that are refused change nothing.
    words = "--features", save("short.npy", np.ones((5, 2)))
    assert "has 5 rows, the graph has 6" in refused("attach", "g.graph", *words)
    assert "there is nothing to attach" in refused("attach", "g.graph")
    assert open_graph("g.graph").manifest == again.manifest


# Ids, and whose row is whose


def test_rows_need_ids_where_those_of_the_graph_have_gaps(place):
    gap = save("gap.txt", "30 10\n10 20\n")
    save("x.npy", np.array([[30], [10], [20]]))
    assert "10, 20, 30" in denied("--features", "x.npy", source=gap)
    graph = imported("--features", "x.npy", "--ids", save("ids.txt", "30\n10\n20\n"), source=gap)
    assert graph.ids.tolist() == graph.features[:, 0].tolist() == [30, 10, 20]
    assert graph.indices.tolist() == [1, 2]
    graph = imported("--features", "x.npy", "--ids", "sorted", source=gap)
    assert (graph.ids.tolist(), graph.features[:, 0].tolist()) == ([10, 20, 30], [30, 10, 20])
    same = imported("--features", "x.npy", "--ids", "sorted", source=save("e.txt", "3 4\n4 5\n"))
    assert (same.ids.tolist(), same.features[:, 0].tolist()) == ([3, 4, 5], [30, 10, 20])
    assert "but there is no file" in denied("--ids", "sorted", source=gap)
    # Ids name vertices without arcs too, and must name all others.
    save("ids.txt", "30\n-7\n10\n20\n")
    assert imported("--ids", "ids.txt", source=gap).indptr.tolist() == [0, 1, 1, 2, 2]
    for listed, told in (("30\n7\n20\n", "the vertex 10"), ("30\n10\n30\n", "id 30 occurs twice")):
        assert told in denied("--ids", save("ids.txt", listed), source=gap)


def test_a_column_of_ids_says_whose_row_it_is(place):
    for text, says in (
        (",a,id\n9,0,0\n8,10,1\n7,20,2\n6,30,3\n5,40,4\n4,50,5\n", [0, 10, 20, 30, 40, 50]),
        ("id,a\n3,3\n1,1\n0,0\n5,5\n2,2\n9,9\n", "no vertex 9; its ids are 0, 1, 2 …"),
        ("id,a\n3,1\n1,1\n", "there is none for vertex 0"),
        ("0,.5\n1,.5\n2,.5\n3,.5\n4,.5\n5,.5\n", "ids, or features?"),
        ("id,a\nx,0\ny,1\n", "the ids of the graph are integers, not 'x'"),
        ("f,node,id\n0,0,0\n1,1,1\n2,2,2\n", "'node' and 'id' may both have the ids"),
    ):
        save("x.csv", text)
        if isinstance(says, str):
            assert says in denied("--features", "x.csv")
        else:
            assert imported("--features", "x.csv").features[:, 0].tolist() == says
    # As infer writes it; and tables that leave vertices out.
    save("e.txt", '"#a","#b"\n"#b","#c"\n"#c","#a"\n')
    save("y.csv", "id,class\n#a,x\n#b,y\n#c,x\n")
    assert imported("--labels", "y.csv", source="e.txt").labels.tolist() == [0, 1, 0]
    save("y.csv", "id,label\n4,b\n1,a\n5,b\n")
    graph = imported("--labels", "y.csv", "--targets", save("t.csv", "id,a,b\n2,0,1\n3,1,0\n"))
    assert graph.labels.tolist() == [-1, 0, -1, -1, 1, 1]
    assert np.isnan(graph.targets).all(axis=1).tolist() == [True, True, False, False, True, True]
    assert "no vertex 7" in denied("--labels", save("y.csv", "id,label\n4,b\n7,a\n"))


PEOPLE = "id,age,kind,name,income\n" + "".join(
    f"{v},{20 + v},{'cat' if v % 2 else 'dog'},person {v},{v / 2}\n" for v in (3, 0, 5, 1, 4, 2)
)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["id", "node", "user_id", "userId", "index", "__index_level_0__"])
def test_one_table_has_all_data_and_ids_anywhere(place, form, name):
    save("people.csv", PEOPLE.replace("id,", f"{name},", 1))
    order, file = [3, 1, 0, 5, 2, 4], f"named.{form}"
    columns = {"h": order, "label": [v % 3 for v in order], "train_mask": [v < 2 for v in order]}
    for table, stem in ((pa.table(columns | {name: order}), "named"), (None, "people")):
        table = table or csv.read_csv("people.csv")
        (pq.write_table if form == "parquet" else csv.write_csv)(table, f"{stem}.{form}")
    words = ["--features", f"people.{form}", "--label-column", "kind"]
    words += ["--labels", f"people.{form}"] * (name == "id")
    assert "no features, but texts: 'name'" in run("import", "ring.txt", "g.graph", *words).stderr
    graph = open_graph("g.graph").graph
    np.testing.assert_array_equal(graph.features, [[20 + v, v / 2] for v in range(6)])
    assert (graph.labels.tolist(), graph.class_names) == ([1, 0] * 3, ("cat", "dog"))
    run("attach", "g.graph", "--features", file, "--labels", file, "--train-mask", file)
    graph = open_graph("g.graph").graph
    np.testing.assert_array_equal(graph.features, ROWS)
    assert (graph.labels.tolist(), members(graph)) == ([0, 1, 2] * 2, [0, 1])


def test_errors_of_tables_name_line_and_column_and_how_they_are_mended(place):
    save("people.csv", PEOPLE)
    for words, text, *says in (
        ("--features", "id;f\n1;0,5\n", "line 2: '1;0,5': '0,5' in column 'f'", "0.5, not 0,5"),
        ("--features", "id,f\n1;0.5\n", "line 2: '1;0.5' has 1 columns", "by ',', this one by ';'"),
        ("--features", "id,f\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'f'", "fill it in"),
        ("--targets", "id,y\n1,2\n2,NA\n", "line 3: '2,NA': 'NA' in column 'y'", "write nan"),
        ("--features", "0.5,1,cat\n1.5,2,dog\n", "'cat' in column 3 is not a number"),
        ("--features", PEOPLE, "--label-column kind"),
        ("--label-column kinds --features", PEOPLE, "did you mean 'kind'?"),
        ("--labels", PEOPLE, "--label-column NAME"),
        ("--label-column kind --labels random:3", "", "there is none"),
        ("--label-column kind --labels y.npy", "", "has no columns with names"),
    ):
        save("t.csv", text)
        said = denied(*words.split(), *["t.csv"] * bool(text))
        assert all(part in said for part in says)
        assert "t.csv" in said or not text


def test_duplicates_with_other_weights_are_told(place):
    save("twice.txt", "# of it\n0 1 2\n0 1 3\n0 1 2\n1 2 1\n1 2 1\n2 0 1\n")
    first = "3 duplicates merged, 1 with another weight: the first was kept; --dup"
    summed = "--duplicates sum", "3 duplicates added up", 7
    for more, told, weight in (("", first, 2), ("--memory 4GB", first, 2), summed):
        done = run("import", "twice.txt", "g.graph", "--force", *more.split())
        said = " ".join(done.stdout.split())
        assert told in said
        assert "comments │ 1 lines" in said
        assert ("another weight" in said) == (told == first)
        assert open_graph("g.graph").graph.weights[0] == weight


def test_vertices_without_arcs_can_be_announced(place):
    for text, vertices, first in (
        ("0 4\n", "6", 0), ("1 6\n", "6", 1), ("1 4\n", "0..5", 0), ("1 4\n", "1..6", 1)
    ):  # fmt: skip
        words = "--vertices", vertices, "--features", "x.npy"
        graph = imported(*words, source=save("few.txt", text))
        assert (graph.n, 0 if graph.ids is None else graph.ids[0]) == (6, first)
        np.testing.assert_array_equal(graph.features, ROWS)
    for vertices, told in (
        ("6", "--vertices 0..5 or --vertices 1..6"),
        ("3", "there is a vertex 4"),
        ("0..2999999999999", "GiB of memory"),
        *((wrong, f"--vertices {wrong}") for wrong in ("0", "x", "3..1", "9" * 30)),
    ):
        assert told in denied("--vertices", vertices, source="few.txt")
    words = "--features", "x.npy"
    assert "0..7 was given" in denied(*words, "--vertices", "0..7", source="few.txt")
    told = denied(*words, "--ids", "sorted", source="few.txt")
    assert "has 6 rows, the graph has 2 vertices" in told


# Lists of arcs

FIRST, PAIR, THREE = {"columns": "-,source,target"}, {"columns": "source,target"}, "source,-,target"
WEIGHTED = {"columns": "source,target,weight"}
LISTS = [  # text, options, arcs, weights
    ("\ufeffTarget;Source;Weight\n1;0;0.5\n2;1;3\n", {}, [(0, 1), (1, 2)], [0.5, 3]),
    ("# c\nfrom\tto\ttime\n0\t1\t99999\n", {}, [(0, 1)]),
    ("a,b,c\n0,1,2000\n", {"columns": THREE}, [(0, 2000)]),
    ("0\t1\t7\n\n1\t2\t8\n", {"columns": "source,target,-"}, [(0, 1), (1, 2)]),
    ('"0","1"\r\n"1","2"\r\n', {}, [(0, 1), (1, 2)]),
    ("0 1\r1 2\r", {}, [(0, 1), (1, 2)]),
    ("ann,knows,bob\nbob,likes,ann\n", {"columns": THREE}, [("ann", "bob"), ("bob", "ann")]),
    ("New York;Oslo;1.5\nRom;Oslo;2\n", {}, [("New York", "Oslo"), ("Rom", "Oslo")], [1.5, 2]),
    ("user,friend\nann,bob\n", {"header": False}, [("user", "friend"), ("ann", "bob")]),
    ("a#b c%\nc% a#b\n", {}, [("a#b", "c%"), ("c%", "a#b")]),
    ("0 1 # b c\n1 0 # d\n", {}, [(0, 1), (1, 0)]),
    ("07 7\n7 07\n", {"string_ids": True}, [("07", "7"), ("7", "07")]),
    ("0 1\n2 3\n", {"header": True}, [(2, 3)]),
    ("1 2 1580000000\n2 1 1580000777\n", PAIR, [(1, 2), (2, 1)]),
    ("1 2 1580000000\n2 1 15\n", WEIGHTED, [(1, 2), (2, 1)], [1580000000, 15]),
    ("1 2 0.5 1580000000\n", {"columns": "target,source,weight"}, [(2, 1)], [0.5]),
    # Not numbers of lines: as many weights as fractions, one weight, a name, or the user says.
    ("0 1 .5\n1 2 2\n2 0 1\n", {}, [(0, 1), (1, 2), (2, 0)], [0.5, 2, 1]),
    ("0 1 4\n1 2 4\n2 0 4\n", {}, [(0, 1), (1, 2), (2, 0)], [4, 4, 4]),
    ("u v w\n0 1 4\n1 2 3\n2 0 4\n", {}, [(0, 1), (1, 2), (2, 0)], [4, 3, 4]),
    ("0 1 2\n1 0 0\n", WEIGHTED, [(0, 1), (1, 0)], [2, 0]),
    ("0 1 2\n1 2 0\n2 0 1\n", FIRST, [(1, 2), (2, 0), (0, 1)]),
    # Comments and headers among rows.
    ("#a b\nb #a\n", {"comments": "none"}, [("#a", "b"), ("b", "#a")]),
    ("%a b\nb %a\n#c\n", {"comments": "#"}, [("%a", "b"), ("b", "%a")]),
    ("source,target\n# of it\n%a,b\n", {}, [("%a", "b")]),
    ('"#a",b\nb,"#a"\n', {}, [("#a", "b"), ("b", "#a")]),
    ("# Nodes: 2\n0\t1\n# within\n#1 0\n1 0 # behind\n", {}, [(0, 1), (1, 0)]),
    ("# SNAP\n% it\n\n-7\t9000000000\n9000000000 -7\n", {}, [(-7, 9 * 10**9), (9 * 10**9, -7)]),
    ("#target source\n1 0\n", {}, [(0, 1)]),
    ("source,target\n#a,#b\n#b,#a\n", {}, [("#a", "#b"), ("#b", "#a")]),
    ('"New York" Oslo\nOslo "New York"\n', {}, [("New York", "Oslo"), ("Oslo", "New York")]),
    ("a,b\nParis, FR\n", {"header": True}, [("Paris", "FR")]),
    ("Paris, FR\tRome\nRome\tParis, FR\n", {}, [("Paris, FR", "Rome"), ("Rome", "Paris, FR")]),
]
NUMBERED = "to the end, sources or the numbers of"
REFUSED = [  # text, options, what the message says
    ("", {}, "holds no arcs"),
    ("source,target\n", {}, "holds no arcs, only the header 'source,target'"),
    ("1\n", {}, "line 1: '1' is one column"),
    ("1 2 3 4\n", {}, "line 1: '1 2 3 4' has 4 columns, and it is not clear"),
    ("#\n1 2\n\n2 x\n", {}, "line 4: '2 x' .*'x' in column 2 is not an integer"),
    ("#\n1 2\n2\n", {}, "line 3: '2' has 1 columns, not 2: 'source target'"),
    ("1 2 0.5\n1 2 w\n", {}, "line 2: '1 2 w' is not 'source target weight'"),
    ("1 2 0.5\n1 2 inf\n", {}, "weight of entry 2 is inf"),
    ("1 2 1000\n2 1 5\n", {}, "numbers from 5 to 1000"),
    ("user,friend\nann,bob\n", {}, r"line 1 \('user', 'friend'\) may be a header"),
    ("ann knows bob\n", {}, r"third column of 'ann knows bob' is not a weight"),
    ("0 5 7\n1 7 5\n2 5 6\n", {}, f"holds 0, 1, 2, … {NUMBERED}"),
    ("1,5,7\n2,7,5\n3,5,6\n", {}, f"holds 1, 2, 3, … {NUMBERED}"),
    ("0 1\n", {"columns": "source,weight"}, "must name source and target, each once"),
    ("0 1\n", {"columns": "source,target,colour"}, "'colour' is not a known column"),
    ("0 1\n", WEIGHTED, "has 2 columns, --columns .* names more"),
    ("1.0 2.0\n", {}, "'1.0' is not an integer of 64 bits"),
    ("0;1;0,5\n", {}, "line 1.*'0,5' in column 3 is not a number.*\n.*0.5, not 0,5"),
    ("a,b\na,\n", {}, "'' in column 2 is not a text of 1 to 256 characters"),
    ("a b\nb \udcff\n", {}, r"line 2: b'b \\xff' is not UTF-8"),
    ("0 1\n" * 9 + "0 \x00 1\n", {}, "line 10: there is a NUL"),
    ("\x1b[2Jred x\nx \x1b[2Jred\n", {"vertices": "3"}, "integers"),
    ("9223372036854775808 2\n1 2\n", {}, "line 1: .* in column 1 is not an integer"),
    ("1,2\n0x1f,2\n", {}, "line 2: .*'0x1f' in column 1 is not an integer"),
    ("x7 2\n1 2\n2 1\n", {}, "line 1: .*'x7' in column 1 is not an integer(.|\n)*--string-ids"),
    ("1,2\nNA,2\n", {}, "line 2: .*'NA' in column 1 is not an integer(.|\n)*leave the row out"),
    ("a b\nb c\n#c d e\n", {}, "line 3(.|\n)*if the line is a comment, --comments '#'"),
    ("#a b\nb #a\n", {}, "line 1: '#a b' may be a comment or a row"),
    ("# of all links\n\n%C3 b\nb %C3\n", {}, "line 3: '%C3 b' may be a comment or a row"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", {}, "a Matrix Market file"),
]


@pytest.mark.parametrize("name", ["e.txt", "e.gz"])
def test_lists_of_arcs(place, name):
    def put(text):
        raw = text.encode("utf-8", "surrogateescape")
        (place / name).write_bytes(gzip.compress(raw) if name == "e.gz" else raw)
        return name

    for text, options, arcs, *weights in LISTS:
        found = arcs_of(read_source(put(text), "edges", Layout(**options)))
        assert found == (arcs, weights[0] if weights else None), text
    for text, options, message in REFUSED:
        caught = refuses(message, read_source, put(text), "edges", Layout(**options))
        assert name in caught.message or "columns" in options
        assert not {"\x1b", "\n"} & {*caught.message}


# Other forms of arcs and features


def test_an_edge_index(place):
    pairs = np.array([[0, 1], [1, 2], [2, 0]])
    for array in (pairs, pairs.T, np.asfortranarray(pairs.T), pairs.astype(np.uint16)):
        assert arcs_of(read_source(save("e.npy", array)))[0] == [(0, 1), (1, 2), (2, 0)]
    for array, message in (
        ("0 1\n", r"e.npy is not a .npy array$"),
        (pairs[:2], "it is not clear whether a row is an arc"),
        (pairs + 0.5, r"holds float64 \(3, 2\), not integers"),
        (np.ones((3, 3), int), r"holds int64 \(3, 3\)"),
        (np.zeros((2, 0), int), "holds no arcs"),
    ):
        refuses(message, read_source, save("e.npy", array))


VALUES = {
    "features": np.array([[0, 1.5], [2, 0], [0, 0], [-1, 3], [0.25, 0], [7, 0]], np.float32),
    "labels": np.array([1, 0, -1, 1, 0, 1]),
    "train-mask": np.array([True, False, False, True, False, False]),
}


def written(what):
    """The name of each file with these values: one of every kind."""
    values = VALUES[what]
    rows = [",".join(map(str, np.atleast_1d(row).tolist())) for row in values]
    text = "\n".join(rows) + "\n"
    yield save("plain.npy", values)
    for name, of in (("f.npy", np.asfortranarray(values)), ("f.csv", text.replace(",", " "))):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(save(name, of)).read_bytes()))
        yield f"{name}.gz"
    np.savez_compressed("x.npz", values)
    named = {what.replace("-", "_"): values, "more": np.ones(3), "edge_index": np.ones((2, 2), int)}
    np.savez("named.npz", **named)
    yield from ("x.npz", "named.npz")
    yield save("x.csv", text)
    yield save("header.csv", "# a note\n" + "a,b"[: 1 + 2 * rows[0].count(",")] + "\n" + text)
    yield save("x.tsv", text.replace(",", "\t").replace("\n", "\r\n"))
    if what == "features":
        sp.save_npz("csr.npz", sp.csr_matrix(values))
        sp.save_npz("array.npz", sp.csr_array(values), compressed=False)
        yield from ("csr.npz", "array.npz")
    # As pandas writes it, in another order.
    lines = [f"{i},{row}" for i, row in enumerate(rows)][::-1]
    head = ",0,1" if what == "features" else ",label"
    yield save("pandas.csv", "\n".join([head, *lines]) + "\n")


@pytest.mark.parametrize("what", VALUES)
def test_every_kind_of_file(place, what):
    save("ids.txt", "5\n4\n3\n2\n1\n0\n")
    words = [] if what == "labels" else ["--labels", save("y.npy", VALUES["labels"])]
    for file in written(what):
        for more in ([], ["--ids", "ids.txt"]):  # ids 5, 4 … in that order, the rows as they are
            if file == "pandas.csv" and more:
                assert "has a column of ids" in denied(*words, f"--{what}", file, *more)
                continue
            graph = imported(*words, f"--{what}", file, *more)
            found = graph.masks["train"] if what == "train-mask" else getattr(graph, what)
            np.testing.assert_array_equal(found, VALUES[what])
            assert graph.ids is None if not more else graph.ids.tolist() == [5, 4, 3, 2, 1, 0]


TABLES = {
    "1,2\n3\n": "line 2: '3' has 1 columns, not 2", "a,b\nc,d\n": "line 1: 'a,b' is not 2 numbers",
    "": "holds no features", "id\n1\n": "a column of ids, but no features",
    "id,a\n1,2\n1,3\n": "the id 1 occurs twice",
    "1,nan\n": "features of vertex 0, column 1 are not finite",
    "id,a\n1,2\n1\n": "line 3: '1' has 1 columns",
    "id,a,b\nx,,2\ny,3,4\n": "line 2: 'x,,2': '' in column 'a' is not a number",
}  # fmt: skip


def test_tables_of_features_that_are_refused(place):
    for text, message in TABLES.items():
        assert "x.csv" in refuses(message, read_features, place / save("x.csv", text)).message


def test_arrays_that_are_not_as_they_are_read_are_refused(place):
    two = np.ones((6, 2))
    np.savez("two.npz", one=two, two=two)
    np.savez("mine.npz", edge_index=np.ones((2, 6), int), x=two)
    np.savez("part.npz", indptr=np.array([0, 1]))
    sp.save_npz("coo.npz", sp.coo_matrix(np.eye(6)))
    sp.save_npz("wide.npz", sp.csr_array((2, 3)))
    save("text.npz", "0 1\n")
    save("turned.npy", np.ones((2, 6)))
    save("matrix.npy", np.ones((6, 6), int))
    assert "two.npz holds 'one', 'two'" in denied("--features", "two.npz")
    assert "transpose its (2, 6)" in denied("--features", "turned.npy")
    for name, told in (
        ("matrix.npy", "scipy.sparse.save_npz"),
        ("mine.npz", "gcnmpi.graph.from_arrays"),
        ("coo.npz", "only csr is read"),
        ("wide.npz", "is 2 x 3, not square"),
        ("part.npz", "has no array adj_indptr"),
        ("text.npz", "text.npz is not an npz file"),
    ):
        assert told in denied(source=name)
    (place / save("x.npy", two)).rename("x.csv")  # the content decides, not the name
    assert imported("--features", "x.csv").features.shape == (6, 2)
    matrix = sp.csr_array((np.array([1, 2.5]), (np.array([0, 2]), np.array([1, 0]))), shape=(4, 4))
    sp.save_npz("a.npz", matrix)
    source = read_source("a.npz")
    assert (source.n, *arcs_of(source)) == (4, [(0, 1), (2, 0)], [1, 2.5])


def test_a_heterophilous_graph(place):
    edges = np.array([[0, 1], [1, 2], [3, 1]])
    arrays = {"node_features": np.arange(8.0).reshape(4, 2), "node_labels": np.array([0, 1, 1, 0])}
    masks = {f"{name}_masks": np.zeros((3, 4), bool) for name in ("train", "val", "test")}
    for k, mask in enumerate(masks.values()):
        mask[range(3), [(k + split) % 4 for split in range(3)]] = True
    np.savez("roman.npz", edges=edges, **arrays, **masks)
    graph = imported(source="roman.npz")
    assert (graph.n, graph.nnz, graph.splits) == (4, 6, 3)  # of both directions
    np.testing.assert_array_equal(graph.features, arrays["node_features"])
    assert graph.labels.tolist() == [0, 1, 1, 0]
    for name, mask in masks.items():
        np.testing.assert_array_equal(graph.masks[name.removesuffix("_masks")], mask.T)
    np.savez("bad.npz", edges=edges.T, **arrays)
    assert "edges is not (m, 2), but (2, 3)" in denied(source="bad.npz")
