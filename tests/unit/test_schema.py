"""Types and relations as they are shown, made up, balanced and exported."""

from dataclasses import replace

import numpy as np
import pytest
from command_line import as_json, refused, run
from small_graphs import make_folder
from typed_graphs import CITES, ENDS, READS, WRITES, relations_of, source_of, typed_graph

import gcnmpi
from partition.graph.relations import Relation
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic_typed import hetero
from partition.importing.typed import import_typed
from partition.pipeline.balance import constraint_weights, single_constraints

WORDS = (
    "--types", "paper:400,author:600:8,venue:20:0", "--relations",
    "author-writes-paper:2000,paper-cites-paper:800,paper-at-venue:400", "--reverse",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    run("synth", "hetero", tmp_path / "h.graph", *WORDS)
    return tmp_path / "h.graph"


def test_info_shows_types_and_relations(folder):
    shown = run("info", folder).stdout
    schema = as_json("info", folder)["schema"]
    assert schema["vertex_types"] == [
        {"name": "paper", "vertices": 400, "features": 16, "labelled": 400},
        {"name": "author", "vertices": 600, "features": 8, "labelled": 0},
        {"name": "venue", "vertices": 20, "features": 0, "labelled": 0},
    ]
    names = [row["name"] for row in schema["relations"]]
    assert names == ["writes", "cites", "at", "rev_writes", "rev_cites", "rev_at"]
    assert sum(row["arcs"] for row in schema["relations"]) == open_graph(folder).graph.nnz
    for row in schema["vertex_types"] + schema["relations"]:
        assert row["name"] in shown
    assert "schema" not in as_json("info", make_folder(folder.parent / "p.graph", typed_plain()))


def typed_plain():
    none = {"vertex_types": None, "relations": (), "arc_type": None, "type_features": {}}
    return replace(typed_graph(), **none)


def test_many_relations_are_not_all_listed(tmp_path):
    ends = {Relation("paper", f"r{i}", "author"): [(0, 0)] * (i % 3 > 0) for i in range(60)}
    import_typed(tmp_path / "m.graph", source_of(ends))
    shown = run("info", tmp_path / "m.graph").stdout
    assert "20 more" in shown
    assert "r1 " in shown
    assert "r0 " not in shown


def test_a_made_up_graph_is_the_same_for_the_same_seed(folder, tmp_path):
    run("synth", "hetero", tmp_path / "i.graph", *WORDS)
    run("synth", "hetero", tmp_path / "j.graph", *WORDS, "--seed", "1")
    ids = [open_graph(tmp_path / f"{name}.graph").manifest.data_id for name in "hij"]
    assert ids[0] == ids[1] != ids[2]
    run("check", folder)
    graph = open_graph(folder).graph
    assert {name: int(mask.sum()) for name, mask in graph.masks.items()} == {
        "train": 40, "val": 40, "test": 320,
    }  # fmt: skip


def test_relations_tell_the_labels():
    types = {"paper": (600, 0), "author": (400, 0)}
    cites, likes = Relation("paper", "cites", "paper"), Relation("paper", "likes", "paper")
    graph = hetero(types, {cites: 9000, likes: 9000}, classes=3, intra=0.9)
    labels = graph.labels[:600]
    for shift, pairs in enumerate(relations_of(graph).values()):
        source, target = np.array(pairs).T
        follows = (labels[source] + shift) % 3 == labels[target]
        assert 0.9 < follows.mean() < 0.97


def test_mistakes_of_a_made_up_graph(tmp_path):
    for option, given, message in (
        ("--types", "paper", "--types paper: 'paper'"),
        ("--types", "a/b:3", "'a/b' is no name of one type"),
        ("--relations", "a-b:3", "'a-b' is no relation of its own"),
        ("--relations", "a-b-c:3", "has the type 'a', which is none"),
        ("--types", "paper:3,author:9", "4 classes are too many"),
    ):
        assert message in refused("synth", "hetero", tmp_path / "w.graph", option, given)
    plain = make_folder(tmp_path / "p.graph", typed_plain())
    told = refused("add", plain, "--model", "gp", "-k", "2", "--balance", "types")
    assert "balance by types: the graph has no vertex types" in told
    told = refused("export", plain, tmp_path / "t")
    assert "one type of vertices and no relations" in told


def test_types_are_balanced_and_recorded(folder):
    graph = open_graph(folder).graph
    names = single_constraints(graph, ("nnz", "types"))
    assert names == ("nnz", "type:paper", "type:author", "type:venue")
    weights = constraint_weights(graph, "in", ("types",))
    assert weights.sum(axis=1).tolist() == [400, 600, 20]
    words = ("--model", "gp", "-k", "4", "--imbalance", "0.1")
    run("add", folder, *words, "--balance", "nnz,types", "--name", "even")
    metrics = read_partition(folder, "even").metrics["in"]
    counts = {"paper": 400, "author": 600, "venue": 20}
    for name, n in counts.items():
        assert sum(metrics.types[name]) == n
        assert max(metrics.types[name]) <= max(1.1 * n / 4, n / 4 + 1)
    assert metrics.summary()["type_imbalance"] <= 0.2 + 1e-9
    assert "type imbalance" in run("info", folder, "even").stdout
    run("check", folder)


HALF = np.array([[0.5], [np.nan], [1], [2]])
CASES = {
    "plain": {},
    "names": {"labels": {"paper": np.array(["ml", "cs", "cs", ""])}},
    "targets": {"labels": {}, "targets": {"paper": HALF}, "masks": {}},
    "splits": {"masks": {"train": {"paper": np.eye(4, 2, dtype=bool)}}},
    "ids": {"ids": {"paper": np.array([3, 5, 7, 9])}},
    "texts": {"ids": {"author": np.array(["ann", "bob", "cy"])}},
    "texts that look like numbers": {"ids": {"author": np.array(["007", "7", "9"])}},
    "nothing": {"features": {}, "labels": {}, "masks": {}},
}


@pytest.mark.parametrize("case", CASES)
def test_tables_are_the_same_graph(tmp_path, case):
    path = tmp_path / "g.graph"
    manifest = import_typed(path, source_of(**CASES[case]), reverse=True)
    facts = as_json("export", path, tmp_path / "tables")
    assert "author-writes-paper.csv" in facts["relations"]
    run("import", tmp_path / "tables", tmp_path / "again.graph")
    again = open_graph(tmp_path / "again.graph").manifest
    assert (again.id, again.data_id) == (manifest.id, manifest.data_id)
    assert again.relations == manifest.relations


@pytest.mark.parametrize(
    ("names", "kept"), [(["cites"], [CITES]), (["author,reads,paper", "cites"], [CITES, READS])]
)
def test_a_graph_of_some_relations(tmp_path, names, kept):
    """All vertices and their data stay, and arcs of other relations between the same ends go."""
    path, other = tmp_path / "g.graph", tmp_path / "some.graph"
    whole = import_typed(path, source_of(**CASES["names"]))
    run("export", path, other, *(word for name in names for word in ("--relation", name)))
    graph, some = open_graph(path).graph, open_graph(other).graph
    assert some.relations == tuple(kept)
    assert relations_of(some) == {str(one): relations_of(graph)[str(one)] for one in kept}
    assert open_graph(other).manifest.schema.features == whole.schema.features
    assert (some.class_names, some.labels.tolist()) == (graph.class_names, graph.labels.tolist())
    run("check", other)
    told = refused("export", path, tmp_path / "x.graph", "--relation", "citess")
    assert "did you mean 'cites'?" in told
    assert "is there already" in refused("export", path, other, "--relation", "cites")


def test_hetero_data_and_back(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    for case in ("plain", "targets", "ids"):
        import_typed(tmp_path / "g.graph", source_of(**CASES[case]), overwrite=True)
        graph = gcnmpi.graph.open(tmp_path / "g.graph")
        data = graph.to_pyg()
        assert data.node_types == ["paper", "author", "venue"]
        assert data[tuple(CITES)].edge_index.tolist() == np.array(ENDS[CITES]).T.tolist()
        assert data.edge_types == [tuple(one) for one in ENDS]
        again = gcnmpi.graph.from_object(data)
        assert again.manifest.id == graph.manifest.id
        assert (again.manifest.data_id == graph.manifest.data_id) == (case != "ids")
        for saved in (data, data.to_dict()):
            torch.save(saved, tmp_path / "d.pt")
            run("import", tmp_path / "d.pt", tmp_path / "d.graph", "--force")
            assert open_graph(tmp_path / "d.graph").manifest.data_id == again.manifest.data_id
        assert data[tuple(WRITES)].edge_index.dtype == torch.int64
    assert data["paper"].ids.tolist() == [3, 5, 7, 9]
    drawn = gcnmpi.graph.from_object(data, split="random:0.34,0.66,0", reverse=True)
    assert sum(int(mask.sum()) for mask in drawn.masks.values()) == 3
    assert len(drawn.manifest.relations) == 6
