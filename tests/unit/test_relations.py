"""Heterogeneous graphs: folders, imports, checks, made-up ones, tables of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import typed_graphs
from command_line import refused, run
from ogb_folders import rows
from pyarrow import csv, parquet
from refusals import refuses
from small_graphs import make_folder
from stored_graphs import change_array, change_json
from typed_graphs import CITES, COUNTS, ENDS, READS, WRITES, relations_of, source_of, typed_graph

import gcnmpi
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import inputs_of
from partition.graph.relations import Relation, number_relations, relation_dtype
from partition.graph.store import open_graph, read_partition
from partition.graph.vertex_pairs import read_pairs
from partition.importing.arcs import build_typed
from partition.importing.assemble import import_typed
from partition.pipeline.balance import constraint_weights, single_constraints


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "g.graph", typed_graph())


def test_a_folder_keeps_types_and_relations(folder, tmp_path):
    stored = open_graph(folder)
    graph, manifest = stored.graph, stored.manifest
    assert (dict(manifest.vertex_types), manifest.relations) == (COUNTS, tuple(ENDS))
    assert manifest.type_features == {"paper": 2, "author": 3}
    assert graph.vertex_types.of(np.arange(9)).tolist() == [0] * 4 + [1] * 3 + [2] * 2
    assert isinstance(graph.features_of("author"), np.memmap)
    np.testing.assert_array_equal(graph.features_of("author"), typed_graphs.FEATURES["author"])
    assert graph.features_of("venue") is None
    refuses("unknown vertex type 'papers'", graph.features_of, "papers")
    assert (graph.arc_type.dtype, graph.parallel) == (np.uint8, True)
    assert relations_of(graph) == {str(relation): sorted(pairs) for relation, pairs in ENDS.items()}
    assert graph.labels.tolist() == [0, 1, 1, -1] + [-1] * 5
    assert graph.masks["train"].tolist() == [True, True] + [False] * 7
    refuses("different widths", gcnmpi.propagate, folder, "sgc")
    # Without types it is as it was, also its M.
    whole, same = (aggregation_matrix(each).toarray() for each in (graph, typed_plain()))
    np.testing.assert_array_equal(whole, same)
    plain = open_graph(make_folder(tmp_path / "plain.graph", typed_plain()))
    assert (manifest.version, plain.manifest.version) == (6, 5)


def test_features_of_one_width_are_those_of_all_vertices(tmp_path):
    path = tmp_path / "a.graph"
    features = {name: np.full((n, 2), i, np.float32) for i, (name, n) in enumerate(COUNTS.items())}
    import_typed(path, source_of(features=features))
    graph = open_graph(path).graph
    assert (graph.type_features, graph.features_of("author").tolist()) == ({}, [[1, 1]] * 3)
    assert graph.features[:, 0].tolist() == [0] * 4 + [1] * 3 + [2] * 2
    np.save(file := tmp_path / "x.npy", np.ones((2, 5), np.float32))
    run("attach", path, "--features", f"venue={file}")
    manifest = open_graph(path).manifest
    assert manifest.type_features == {"paper": 2, "author": 2, "venue": 5}
    assert manifest.source["attached"] == {"features/venue": "x.npy"}
    for given, told in (("papers", "vertex type 'papers'"), ("paper", "has 4 vertices, its feat")):
        assert told in refused("attach", path, "--features", f"{given}={file}")
    run("attach", path, "--features", "random:3")
    manifest = open_graph(path).manifest
    assert (manifest.features, manifest.type_features) == (3, {})


def test_ids_cover_types_and_relations(tmp_path, folder):
    first = open_graph(folder).manifest
    found = {first.data_id}
    renamed = {Relation(r.source, f"{r.name}2", r.target): e for r, e in ENDS.items()}
    counts = {"paper": 4, "author": 2, "venue": 3}
    for source, same in (
        (source_of(renamed), True),
        (source_of(features={"paper": typed_graphs.FEATURES["paper"]}), True),
        (replace(source_of({CITES: ENDS[CITES]}), counts=counts, features={}), False),
    ):
        import_typed(tmp_path / f"{len(found)}.graph", source)
        manifest = open_graph(tmp_path / f"{len(found)}.graph").manifest
        assert (manifest.id == first.id) == same
        found.add(manifest.data_id)
    assert len(found) == 4


SPOILED = [  # the last arc is of an author
    ("arc_type", -1, 1, "is of the relation paper,cites,paper, whose source"),
    ("arc_type", 0, 0, "is of the relation author,writes,paper, whose source"),
    ("arc_type", 0, 9, "arc_type.npy has a relation outside 0..2"),
    ("features/author", 0, 7.5, "features/author.npy does not hold"),
]
MANIFESTS = [
    ("vertex_types", {"paper": 4, "author": 3}, "have 7 vertices, not 9"),
    ("relations", [["a", "b", "c"]], "a,b,c is no relation of its vertex types"),
    ("relations", [list(WRITES)] * 2, "no relations, too many, or one twice"),
    ("vertex_types", {"../x": 9}, "'../x' is no name of a vertex type"),
    ("type_features", {"x": 1}, "features of 'x', which is no vertex type"),
    ("type_features", {"paper": 7}, "features/paper.npy holds float32"),
]


def test_a_damaged_folder_is_refused(folder):
    run("check", folder)
    for name, at, value, message in SPOILED:
        good = (folder / f"{name}.npy").read_bytes()
        change_array(folder, name, at, value)
        assert message in run("check", folder, code=2).stderr
        (folder / f"{name}.npy").write_bytes(good)
    good = (folder / "manifest.json").read_text()
    for key, value, message in MANIFESTS:
        change_json(folder / "manifest.json", **{key: value})
        assert message in refused("info", folder)
        (folder / "manifest.json").write_text(good)


def test_many_relations_take_two_bytes(tmp_path):
    triples = [(i % 7, f"r{i % 300}", i % 5) for i in range(2000)]
    (tmp_path / "t.tsv").write_text("".join(f"{s}\t{r}\t{t}\n" for s, r, t in triples))
    path = tmp_path / "t.graph"
    run("import", tmp_path / "t.tsv", path, "--columns", "source,relation,target")
    graph = open_graph(path).graph
    assert (graph.arc_type.dtype, len(graph.relations)) == (np.uint16, 300)
    found = {(s, name.split(",")[1], t) for name, of in relations_of(graph).items() for s, t in of}
    assert found == set(triples)
    refuses("65,537 relations are more", relation_dtype, 65537)


BY, NEARLY = Relation("paper", "by", "author"), [(i % 5, i % 7) for i in range(30)]
REVERSED = [  # relations, what is added, what is said
    ({WRITES: [(0, 0)], WRITES.reverse(): [(0, 0)]}, [], "writes,paper has a reverse"),
    ({WRITES: [(0, 1)], BY: [(1, 0)]}, [], "reverse: paper,by"),
    ({WRITES: NEARLY, BY: [(v, u) for u, v in NEARLY[:29]]}, [], "with 96.3% of its edges"),
    ({WRITES: [(0, 1)], BY: [(2, 0)]}, ["paper,rev_writes,author", "author,rev_by,paper"], ""),
    ({CITES: [(0, 1), (1, 0), (2, 2)]}, [], "paper,cites,paper is symmetric"),
    ({CITES: [(0, 1)]}, ["paper,rev_cites,paper"], ""),
]


@pytest.mark.parametrize(("ends", "added", "told"), REVERSED, ids=range(len(REVERSED)))
def test_reverses_are_added_once(ends, added, told):
    said: list[str] = []
    graph, facts = build_typed(source_of(ends), reverse=True, report=said.append)
    assert facts["reverse"] == added
    assert told in "\n".join(said)
    found = relations_of(graph)
    for name in added:
        source, back, target = name.split(",")
        there = f"{target},{back.removeprefix('rev_')},{source}"
        assert sorted((t, s) for s, t in found[there]) == found[name]
    again = source_of({r: found[str(r)] for r in graph.relations})
    assert build_typed(again, reverse=True)[1]["reverse"] == []


def test_rules_hold_within_a_relation():
    twice = source_of({WRITES: [(0, 0), (0, 0)], CITES: [(1, 1), (0, 1)]})
    graph, facts = build_typed(twice, self_loops="drop")
    assert relations_of(graph) == {str(WRITES): [(0, 0)], str(CITES): [(0, 1)]}
    assert (facts["duplicates"]["found"], facts["self_loops"]["found"]) == (1, 1)
    graph, _ = build_typed(twice, duplicates="keep")
    assert relations_of(graph)[str(WRITES)] == [(0, 0), (0, 0)]
    refuses("the arc 4 -> 0 is listed more than once", build_typed, twice, duplicates="error")


def test_triples_and_their_pairs_have_one_numbering(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    triples = {"train": "a\tlikes\tb\nb\tlikes\tc\na\tknows\tb\n"}
    triples |= {"valid": "a\tlikes\tc\n", "test": "c\tlikes\ta\n"}
    for name, text in triples.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    columns = ("--columns", "source,relation,target")
    run("import", "train.tsv", "kg.graph", *columns)
    graph = open_graph("kg.graph").graph
    assert (graph.vertex_types.names, graph.ids.tolist()) == (("entity",), ["a", "b", "c"])
    known = {"entity,knows,entity": [(0, 1)], "entity,likes,entity": [(0, 1), (1, 2)]}
    assert relations_of(graph) == known
    words = ["--train", "train.tsv", "--val", "valid.tsv", "--test", "test.tsv", *columns]
    run("pairs", "kg.graph", *words, "--name", "own")
    pairs = read_pairs("kg.graph", "own")
    assert pairs.relation_names == ("knows", "likes")
    assert [pairs.relations[mask].tolist() for mask in ("train", "val")] == [[1, 1, 0], [1]]
    (tmp_path / "valid.tsv").write_text("a\tloves\tc\n")
    assert "unknown relation" in refused("pairs", "kg.graph", *words, "--name", "other")
    twice = [CITES, Relation("author", "cites", "paper")]
    for told, *given in (
        ("there is a relation -1", {"a": np.array([-1])}, "f"),
        ("not all whole numbers", {"a": np.array(["x"]), "b": np.array([1])}, "f"),
        ("2 relations are called 'cites'", {"": np.array(["cites"])}, "f", twice),
    ):
        refuses(told, number_relations, *given)


def test_arrays_with_relations(tmp_path):
    arrays = {"row": [0, 2, 1], "column": [1, 0, 2], "relation": [7, 3, 7]}
    more = {"labels": [0, -1, 1, 1], "train": [0, 2], "test": [3]}
    np.savez(tmp_path / "a.npz", **arrays, **more)
    run("import", tmp_path / "a.npz", tmp_path / "a.graph")
    graph = open_graph(tmp_path / "a.graph").graph
    assert relations_of(graph) == {"entity,3,entity": [(2, 0)], "entity,7,entity": [(0, 1), (1, 2)]}
    assert (graph.labels.tolist(), graph.masks["train"].tolist()) == ([0, -1, 1, 1], [1, 0, 1, 0])
    np.savez(file := tmp_path / "b.npz", **arrays | {"relation": [7]})
    assert "there are 3 arcs, and 1 relations" in refused("import", file, tmp_path / "b.graph")


def write_tables(place):
    papers = "id,f,g,label,split,title\np1,0,1,cs,train,A\np2,2,3,ml,train,B\np3,4,5,ml,test,C\n"
    (place / "papers.csv").write_text(papers + "p9,6,7,,,D\n")
    (place / "writes.csv").write_text("author,paper\nann,p1\nbob,p1\ncy,p9\n")
    (place / "cites.csv").write_text("source,target,weight\np1,p2,0.5\np2,p3,2\n")
    words = "--relation author,writes,paper=writes.csv --relation paper,cites,paper=cites.csv "
    return (words + "--nodes paper=papers.csv --nodes venue=2").split()


def test_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("import", ".", "a.graph", *write_tables(tmp_path))
    stored = open_graph("a.graph")
    graph = stored.graph
    assert graph.vertex_types.counts == {"paper": 4, "venue": 2, "author": 3}
    names = ["paper:p9", "venue:0", "venue:1", "author:ann", "author:bob", "author:cy"]
    assert graph.ids.tolist()[3:] == names
    writes = [(0, 0), (1, 0), (2, 3)]
    assert relations_of(graph) == {str(WRITES): writes, str(CITES): [(0, 1), (1, 2)]}
    assert (graph.class_names, graph.labels[:4].tolist()) == (("cs", "ml"), [0, 1, 1, -1])
    assert graph.weights.tolist() == [0.5, 2, 1, 1, 1]
    assert np.flatnonzero(graph.masks["test"]).tolist() == [2]
    np.testing.assert_array_equal(graph.features_of("paper"), np.arange(8.0).reshape(4, 2))
    # The same from a description, and from a table of other names.
    (tmp_path / "graph.toml").write_text(
        '[relations]\n"author,writes,paper" = "writes.csv"\n"paper,cites,paper" = "cites.csv"\n'
        '[nodes]\npaper = "papers.parquet"\nvenue = 2\n'
    )
    columns = {"id": ["p1", "p2", "p3", "p9"], "x": [[0.0, 1], [2, 3], [4, 5], [6, 7]]}
    columns |= {"y": ["cs", "ml", "ml", ""], "train_mask": [True, True, False, False]}
    columns["test_mask"] = [False, False, True, False]
    parquet.write_table(pa.table(columns), tmp_path / "papers.parquet")
    for source in (".", "graph.toml"):
        run("import", source, "b.graph", "--force")
        assert open_graph("b.graph").manifest.data_id == stored.manifest.data_id


IDS = [  # arcs, a table, options, ids
    ("7,1\n8,2\n", "7\n8\n", [], ["7", "8"]), ("007,1\n08,2\n", "007\n08\n", [], ["007", "08"]),
    ("007,1\n7,2\n", None, [], ["007", "7"]),
    ("07,1\n10,2\n", "10\n07\nx\n", [], ["10", "07", "x"]),
    ("7,1\n10,2\n", None, ["--string-ids"], ["10", "7"]),
    ("07,1\n10,2\n", "10\n07\n", ["--string-ids"], ["10", "07"]),
]  # fmt: skip


def test_ids_stay_as_they_are_written(tmp_path, monkeypatch):
    """Ids of the other type are numbers, whatever stands beside them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.csv").write_text("source,target,weight\n1,2,0.5\n2,10,1\n")
    for arcs_of_a, table, more, expected in IDS:
        (tmp_path / "w.csv").write_text(f"source,target\n{arcs_of_a}")
        words = ["--relation", "a,w,p=w.csv", "--relation", "p,c,p=c.csv", *more]
        if table is not None:
            (tmp_path / "a.csv").write_text(f"id\n{table}")
            words += ["--nodes", "a=a.csv"]
        run("import", ".", "g.graph", "--force", *words)
        graph = open_graph("g.graph").graph
        numbers = ["1", "10", "2"] if more else ["1", "2", "10"]
        for type, ids in (("a", expected), ("p", numbers)):
            own = graph.vertex_types.range(type)
            assert graph.ids[own.start : own.stop].tolist() == [f"{type}:{one}" for one in ids]


@pytest.mark.parametrize(
    ("form", "put"), [("csv", csv.write_csv), ("parquet", parquet.write_table)]
)
@pytest.mark.parametrize("ids", [["U1", "U2"], [0, 1]], ids=["texts", "numbers"])
def test_pairs_in_columns_called_as_types_are_of_these(tmp_path, monkeypatch, form, put, ids):
    monkeypatch.chdir(tmp_path)
    held = {"train": (0, 0), "valid": (1, 1), "test": (1, 0)}
    listed = {mask: ([ids[user]], [ids[item]]) for mask, (user, item) in held.items()}
    for name, (users, items) in (listed | {"buys": (ids, ids[::-1])}).items():
        put(pa.table({"user_id": users, "item_id": items}), f"{name}.{form}")
    (tmp_path / "sells.csv").write_text("user_id,item_id\n")
    tables = {"buys": form, "sells": "csv"}
    run(
        "import", ".", "g.graph", *(f"--relation=user,{of},item={of}.{tables[of]}" for of in tables)
    )
    run("pairs", "g.graph", "--from", ".")
    types, pairs = open_graph("g.graph").graph.vertex_types, read_pairs("g.graph", "links")
    for found, (user, item) in zip(pairs.positives.values(), held.values(), strict=True):
        expected = [types.range("user").start + user, types.range("item").start + item]
        assert found.tolist() == [expected]


WRITTEN = ["--relation", "author,writes,paper=writes.csv"]
TABLES = [
    (["--nodes", "a=3"], "there are no relations"),
    (["--relation", "a,b=x.csv"], "'a,b' is no relation"),
    ([*WRITTEN, "--nodes", "paper=1"], "there is no paper 'p1'"),
    ([*WRITTEN, "--undirected"], "--reverse"),
    (["--relation", "a,b,c=bare.csv"], "or the first two a and c"),
    ([*WRITTEN, "--columns", "source,target"], "name their columns in a header"),
    (["--relation", "a,b,c=none.csv"], "no relation has an arc"),
    ([*WRITTEN, "--nodes", "paper=bare.csv"], "the first line names the columns"),
    (["--relation", "a,b,c=writes.csv"] * 2, "--relation a,b,c is given twice"),
]


def test_tables_that_are_no_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    (tmp_path / "bare.csv").write_text("x,y,val\nann,p1,zzz\n")
    (tmp_path / "none.csv").write_text("a,c\n")
    for words, message in TABLES:
        assert message in refused("import", ".", "g.graph", *words)
    (tmp_path / "e.txt").write_text("0 1\n")
    assert "is no folder" in refused("import", "e.txt", "g.graph", *WRITTEN)
    assert "has no relations that --reverse" in refused("import", "e.txt", "g.graph", "--reverse")


def write_ogb(root):
    """The folder of ogbn-mag in small."""
    raw = root / "raw"
    rows(raw / "num-node-dict.csv.gz", ["paper,author,venue", "4,3,2"])
    rows(raw / "triplet-type-list.csv.gz", [",".join(relation) for relation in ENDS])
    for relation, pairs in ENDS.items():
        rows(raw / "relations" / "___".join(relation) / "edge.csv.gz", pairs)
    rows(raw / "node-feat" / "paper" / "node-feat.csv.gz", typed_graphs.FEATURES["paper"])
    rows(raw / "node-feat" / "author" / "node-feat.csv.gz", typed_graphs.FEATURES["author"])
    rows(raw / "node-feat" / "paper" / "node_year.csv.gz", [2000] * 4)
    rows(raw / "node-label" / "paper" / "node-label.csv.gz", [0, 1, 1, "nan"])
    for name, vertices in (("train", [0, 1]), ("valid", [2])):
        rows(root / "split" / "time" / "paper" / f"{name}.csv.gz", vertices)
    return root


def test_a_folder_of_ogb(tmp_path):
    run("import", write_ogb(tmp_path / "mag"), tmp_path / "m.graph")
    stored = open_graph(tmp_path / "m.graph")
    graph = stored.graph
    assert dict(stored.manifest.vertex_types) == COUNTS
    assert relations_of(graph) == {str(r): sorted(pairs) for r, pairs in ENDS.items()}
    assert graph.labels[:4].tolist() == [0, 1, 1, -1]
    assert graph.masks["val"].tolist() == [False, False, True] + [False] * 6
    np.testing.assert_array_equal(graph.features_of("author"), typed_graphs.FEATURES["author"])
    rows(tmp_path / "mag" / "raw" / "relations" / "___".join(CITES) / "edge.csv.gz", [(0, 4)])
    assert "paper,cites,paper: paper" in refused("import", tmp_path / "mag", tmp_path / "n.graph")


def test_a_network_reads_features_of_types_side_by_side(folder):
    graph = open_graph(folder).graph
    rows, expected = inputs_of(graph), np.zeros((9, 5), np.float32)
    expected[:4, :2], expected[4:7, 2:] = typed_graphs.FEATURES.values()
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(rows[2:][np.array([3, 0, 0])], expected[[5, 2, 2]])
    np.testing.assert_array_equal(rows[1:8, 1:4][np.arange(7)], expected[1:8, 1:4])
    assert (rows.shape, len(rows[5:]), rows[:, 3:].shape) == ((9, 5), 4, (9, 2))


# Types and relations as they are shown, made up, balanced and exported


def typed_plain():
    none = {"vertex_types": None, "relations": (), "arc_type": None, "type_features": {}}
    return replace(typed_graph(), **none)


def test_many_relations_are_not_all_listed(tmp_path):
    ends = {Relation("paper", f"r{i}", "author"): [(0, 0)] * (i % 3 > 0) for i in range(60)}
    import_typed(tmp_path / "m.graph", source_of(ends))
    shown = run("info", tmp_path / "m.graph").stdout
    assert [word in shown for word in ("20 more", "r1 ", "r0 ")] == [True, True, False]


def test_mistakes_of_a_made_up_graph(tmp_path):
    for option, given, message in (
        ("--types", "paper", "--types paper: 'paper'"),
        ("--types", "a/b:3", "'a/b' is no name of one type"),
        ("--relations", "a-b-c:3", "has the type 'a', which is none"),
        ("--types", "paper:3,author:9", "4 classes are too many"),
    ):
        assert message in refused("synth", "hetero", tmp_path / "w.graph", option, given)
    plain = make_folder(tmp_path / "p.graph", typed_plain())
    words = ["--model", "gp", "-k", "2", "--balance", "types"]
    assert "balance by types: the graph has no vertex types" in refused("add", plain, *words)
    assert "one type of vertices and no relations" in refused("export", plain, tmp_path / "t")


def test_types_are_balanced_and_recorded(tmp_path):
    path, types = tmp_path / "h.graph", {"paper": 400, "author": 600, "venue": 20}
    relations = "author-writes-paper:2000,paper-cites-paper:800,paper-at-venue:400"
    words = "--types", "paper:400,author:600:8,venue:20:0", "--relations", relations, "--reverse"
    run("synth", "hetero", path, *words)
    graph = open_graph(path).graph
    names = single_constraints(graph, ("nnz", "types"))
    assert names == ("nnz", "type:paper", "type:author", "type:venue")
    weights = constraint_weights(graph, "in", ("types",))
    assert weights.sum(axis=1).tolist() == [*types.values()]
    words = "--model gp -k 4 --imbalance 0.1 --balance nnz,types --name even"
    run("add", path, *words.split())
    metrics = read_partition(path, "even").metrics["in"]
    for name, n in types.items():
        assert sum(metrics.types[name]) == n
        assert max(metrics.types[name]) <= max(1.1 * n / 4, n / 4 + 1)
    assert metrics.summary()["type_imbalance"] <= 0.2 + 1e-9
    run("check", path)


HALF = np.array([[0.5], [np.nan], [1], [2]])
CASES = {
    "plain": {}, "names": {"labels": {"paper": np.array(["ml", "cs", "cs", ""])}},
    "targets": {"labels": {}, "targets": {"paper": HALF}, "masks": {}},
    "splits": {"masks": {"train": {"paper": np.eye(4, 2, dtype=bool)}}},
    "ids": {"ids": {"paper": np.array([3, 5, 7, 9])}},
    "texts that look like numbers": {"ids": {"author": np.array(["007", "7", "9"])}},
    "nothing": {"features": {}, "labels": {}, "masks": {}},
    "nothing of labels": {"labels": {}, "masks": {}},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tables_are_the_same_graph(tmp_path, case):
    path = tmp_path / "g.graph"
    manifest = import_typed(path, source_of(**CASES[case]), reverse=True)
    run("export", path, tmp_path / "tables")
    run("import", tmp_path / "tables", tmp_path / "again.graph")
    again = open_graph(tmp_path / "again.graph").manifest
    assert (again.id, again.data_id) == (manifest.id, manifest.data_id)
    assert "is there already" in refused("export", path, tmp_path / "tables")


@pytest.mark.parametrize("kept", [[CITES], [CITES, READS]], ids=len)
def test_a_graph_of_some_relations(tmp_path, kept):
    """All vertices and their data stay, and arcs of other relations between the same ends go."""
    path, other = tmp_path / "g.graph", tmp_path / "some.graph"
    whole = import_typed(path, source_of(**CASES["names"]))
    run("export", path, other, *(f"--relation={one if one == READS else one.name}" for one in kept))
    graph, some = open_graph(path).graph, open_graph(other).graph
    assert some.relations == tuple(kept)
    assert relations_of(some) == {str(one): relations_of(graph)[str(one)] for one in kept}
    assert open_graph(other).manifest.schema.features == whole.schema.features
    assert (some.class_names, some.labels.tolist()) == (graph.class_names, graph.labels.tolist())
    run("check", other)
    assert "is there already" in refused("export", path, other, "--relation", "cites")


def test_an_object_of_dgl(tmp_path):
    class Edges(dict):
        def __call__(self, etype, order):
            return np.array(ENDS[etype]).T

    data = {name: {"feat": x} for name, x in typed_graphs.FEATURES.items()} | {"venue": {}}
    frames = {name: SimpleNamespace(data=of) for name, of in data.items()}
    arcs = Edges.fromkeys(ENDS, SimpleNamespace(data={}))
    members = {"ntypes": [*COUNTS], "canonical_etypes": [*ENDS], "is_homogeneous": False}
    members |= {"nodes": frames, "edges": arcs, "num_nodes": lambda self, name: COUNTS[name]}
    made = type("DGLGraph", (), {"__module__": "dgl.heterograph"} | members)()
    expected = import_typed(tmp_path / "e.graph", source_of(**CASES["nothing of labels"]))
    assert gcnmpi.graph.from_object(made).manifest.data_id == expected.data_id


def test_hetero_data_and_back(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    for case in ("plain", "targets", "ids"):
        import_typed(tmp_path / "g.graph", source_of(**CASES[case]), overwrite=True)
        graph = gcnmpi.graph.open(tmp_path / "g.graph")
        data = graph.to_pyg()
        assert data[tuple(CITES)].edge_index.tolist() == np.array(ENDS[CITES]).T.tolist()
        assert data.edge_types == [tuple(one) for one in ENDS]
        again = gcnmpi.graph.from_object(data)
        assert again.manifest.id == graph.manifest.id
        assert (again.manifest.data_id == graph.manifest.data_id) == (case != "ids")
        for saved in (data, data.to_dict()):
            torch.save(saved, tmp_path / "d.pt")
            run("import", tmp_path / "d.pt", tmp_path / "d.graph", "--force")
            assert open_graph(tmp_path / "d.graph").manifest.data_id == again.manifest.data_id
    assert data["paper"].ids.tolist() == [3, 5, 7, 9]
    drawn = gcnmpi.graph.from_object(data, split="random:0.34,0.66,0", reverse=True)
    assert sum(int(mask.sum()) for mask in drawn.masks.values()) == 3
    assert len(drawn.manifest.relations) == 6
