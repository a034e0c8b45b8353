"""Heterogeneous graphs that leave a folder, and come back the same."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import as_json, refused, run
from typed_graphs import CITES, ENDS, READS, WRITES, relations_of, source_of

import gcnmpi
from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.importing.readers.typed_source import RelationArcs
from partition.importing.typed import import_typed

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


def test_weights_and_names_of_files(tmp_path):
    odd = [Relation("paper", name, "paper") for name in ("a/b", "a b", "a:b")]
    tables = [
        RelationArcs(one, np.array([0]), np.array([i]), np.array([0.1 + i]))
        for i, one in enumerate(odd)
    ]
    from dataclasses import replace

    manifest = import_typed(tmp_path / "g.graph", replace(source_of(), arcs=tables))
    facts = as_json("export", tmp_path / "g.graph", tmp_path / "t")
    assert facts["relations"] == [
        "paper-a_b-paper.csv", "paper-a_b-paper-1.csv", "paper-a_b-paper-2.csv",
    ]  # fmt: skip
    run("import", tmp_path / "t", tmp_path / "h.graph")
    assert open_graph(tmp_path / "h.graph").manifest.id == manifest.id
    assert "is there already" in refused("export", tmp_path / "g.graph", tmp_path / "t")
    run("export", tmp_path / "g.graph", tmp_path / "t", "--force")


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["cites"], [CITES]), (["author,reads,paper", "cites"], [CITES, READS])],
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


def test_a_graph_of_one_type_has_no_tables(tmp_path):
    run("synth", "sbm", tmp_path / "s.graph", "--vertices", "50", "--classes", "2")
    told = refused("export", tmp_path / "s.graph", tmp_path / "t")
    assert "one type of vertices and no relations" in told


@pytest.mark.parametrize("case", ["plain", "targets", "ids"])
def test_hetero_data_and_back(tmp_path, case):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    import_typed(tmp_path / "g.graph", source_of(**CASES[case]))
    graph = gcnmpi.graph.open(tmp_path / "g.graph")
    data = graph.to_pyg()
    assert data.node_types == ["paper", "author", "venue"]
    assert data[tuple(CITES)].edge_index.tolist() == np.array(ENDS[CITES]).T.tolist()
    assert data.edge_types == [tuple(one) for one in ENDS]
    if case == "ids":
        assert data["paper"].ids.tolist() == [3, 5, 7, 9]
    again = gcnmpi.graph.from_object(data)
    assert again.manifest.id == graph.manifest.id
    if case != "ids":
        assert again.manifest.data_id == graph.manifest.data_id
    torch.save(data, tmp_path / "d.pt")
    run("import", tmp_path / "d.pt", tmp_path / "d.graph")
    assert open_graph(tmp_path / "d.graph").manifest.data_id == again.manifest.data_id
    assert data[tuple(WRITES)].edge_index.dtype == torch.int64
