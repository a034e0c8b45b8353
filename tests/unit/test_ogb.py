"""Folders of graphs as OGB publishes them; data sets by name, which libraries bring."""

import gzip
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from command_line import refused, run
from ogb_folders import rows, write_binary, write_text
from refusals import refuses

from partition.graph.store import open_graph
from partition.importing import datasets
from partition.importing.assemble import import_graph
from partition.importing.readers import guess_format, read_source

ENDS = np.array([[0, 1], [1, 2], [4, 0], [3, 3], [0, 1]])
X = np.array([[0.5, -1], [2, 3e-3], [0, 0], [7, 8], [9, 1]])
Y = np.array([[0], [2], [0], [2], [5]])
PARTS = ([0, 1], [2], [3, 4])


@pytest.mark.parametrize("write", [write_text, write_binary])
@pytest.mark.parametrize("memory", [None, 1e9])
def test_a_folder_comes_with_its_features_classes_and_split(tmp_path, write, memory):
    root = write(tmp_path / "ogbn_tiny", 6, ENDS, np.append(X, [[1, 1]], 0), np.append(Y, [[5]], 0),
                 PARTS)  # fmt: skip
    assert guess_format(root) == "ogb"
    import_graph(root, tmp_path / "g.graph", memory=memory)
    stored = open_graph(tmp_path / "g.graph")
    graph = stored.graph
    assert (graph.n, graph.nnz, graph.ids) == (6, 4, None)
    assert graph.adjacency().toarray()[4, 0] == 1
    np.testing.assert_array_equal(graph.features[:5], X.astype(np.float32))
    assert graph.labels.tolist() == [0, 1, 0, 1, 2, 2]
    assert graph.class_names == ("0", "2", "5")
    found = {name: np.flatnonzero(mask).tolist() for name, mask in graph.masks.items()}
    assert found == {"train": [0, 1], "val": [2], "test": [3, 4]}
    assert stored.manifest.source["file"] == "ogbn_tiny"
    assert stored.manifest.source["duplicates"] == {"found": 1, "rule": "merge"}


def test_labels_that_are_no_classes_are_targets(tmp_path):
    ends, many = ENDS[:2], np.array([[0, 1], [1, 1], [0, 0]])
    found = read_source(write_text(tmp_path / "a", 3, ends, labels=many))
    assert found.targets.tolist() == many.tolist()
    real = read_source(write_text(tmp_path / "b", 3, ends, labels=[[0.5], [1], [2]]))
    assert (real.labels, real.targets[:, 0].tolist()) == (None, [0.5, 1, 2])
    unknown = write_binary(tmp_path / "c", 3, ends, labels=np.array([[0.0], [np.nan], [1]]))
    assert read_source(unknown).labels.tolist() == [0, -1, 1]
    for text, expected in (
        (b'0\n""\n1\n""', [0, -1, 1, -1]),
        (b"0\n\n1\n\n", [0, -1, 1, -1]),
        (b"0,1\n,1\n0,\n", [[0, 1], [np.nan, 1], [0, np.nan]]),
    ):
        root = write_text(tmp_path / str(len(text)), len(expected), ends)
        (root / "raw" / "node-label.csv.gz").write_bytes(gzip.compress(text))
        found = read_source(root)
        found = found.targets if found.labels is None else found.labels
        np.testing.assert_array_equal(found, expected)


def test_what_is_not_read_is_noted_and_a_one_way_list_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = write_text(tmp_path / "o", 5, ENDS[:3], X, Y, PARTS)
    rows(root / "raw" / "node_year.csv.gz", range(5))
    result = run("import", "o", "g.graph")
    assert "import with --undirected" in result.stderr
    assert open_graph("g.graph").manifest.source["columns"] == "not read: node_year"
    assert "note" not in run("import", "o", "g.graph", "--undirected", "--force").stderr


SPOILED = [  # a file, its lines, and what is told
    ("edge_index_dict.npz", [1], "vertices of several types"),
    ("num-node-list.csv.gz", [2, 3], "holds 2 graphs"),
    ("num-node-list.csv.gz", [0], "without vertices"),
    ("num-node-list.csv.gz", [10**15], "of memory"),
    ("edge.csv.gz", [[0, 9]] * 5, "a vertex outside 0..4"),
    ("edge.csv.gz", [["x", 9]] * 5, "not an integer"),
    ("edge.csv.gz", [[0, 1]], "has 1 arcs, 5 are announced"),
    ("node-feat.csv.gz", X[:3], "has 3 rows"),
    ("node-label.csv.gz", [0] * 7, "more rows than the graph"),
    ("node-feat.csv.gz", [["nan", 1]] * 5, "not finite"),
    ("node-feat.csv.gz", [["a", 1]] * 5, "line 1: .a,1.: .a. in column 1 is not a"),
    ("num-node-list.csv.gz", None, "there is no file"),
    ("../split/time/test.csv.gz", None, "there is no"),
    ("../split/time/train.csv.gz", [9], "a vertex outside"),
    ("../split/b/train.csv.gz", [0], "the splits b, time"),
]


def test_spoiled_folders_are_refused(tmp_path):
    for number, (name, lines, message) in enumerate(SPOILED):
        root = write_text(tmp_path / str(number) / "o", 5, ENDS, X, Y, PARTS)
        if lines is None:
            (root / "raw" / name).unlink()
        else:
            rows(root / "raw" / name, lines)
        refuses(message, read_source, root)
        refuses(message, import_graph, root, root.parent / "g.graph", memory=1e9)
        assert [path.name for path in root.parent.iterdir()] == ["o"]


def test_spoiled_archives_are_refused(tmp_path):
    root = write_binary(tmp_path / "o", 5, ENDS, X[:3], Y)
    refuses("not a row for each of 5", read_source, root)
    counts = {"num_nodes_list": [3], "num_edges_list": [3]}
    index = np.zeros((2, 3), np.int64)
    for arrays, message in (
        (counts, "no array edge_index"),
        (counts | {"edge_index": np.zeros((3, 2))}, "not integers in"),
        (counts | {"edge_index": np.asfortranarray(index)}, "Fortran"),
        ({"edge_index": index}, "does not say how many"),
    ):
        np.savez(root / "raw" / "data.npz", **arrays)
        refuses(message, read_source, root)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gcnmpi"


def test_a_data_set_of_pyg_is_that_object(tmp_path):
    known = pytest.importorskip("torch_geometric.datasets", reason="PyG is not installed")
    run("import", "pyg:KarateClub", tmp_path / "karate.graph")
    stored, data = open_graph(tmp_path / "karate.graph"), known.KarateClub()[0]
    assert stored.manifest.source["file"] == "pyg:KarateClub"
    np.testing.assert_array_equal(stored.graph.features[:], data.x.numpy())
    np.testing.assert_array_equal(stored.graph.labels, data.y.numpy())
    assert stored.manifest.nnz == data.num_edges
    assert "unknown data set of pyg 'KarateClu'" in refused("import", "pyg:KarateClu", "a.graph")
    told = refused("import", "pyg:FakeDataset/x/y", tmp_path / "a.graph")
    assert told.startswith("error: the library cannot load pyg:FakeDataset/x/y: TypeError")
    assert len(told.splitlines()) == 2


def test_a_data_set_of_dgl_is_saved_by_it(tmp_path, monkeypatch):
    dgl, data = ModuleType("dgl"), ModuleType("dgl.data")
    data.Cora = type("Cora", (), {"__len__": lambda self: 1, "__getitem__": lambda self, i: "it"})
    data.Two = type("Two", (), {"__len__": lambda self: 2})
    dgl.save_graphs = lambda path, graphs: Path(path).write_text(str(graphs))
    for module in (dgl, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with datasets.local_file(Path("dgl:Cora")) as path:
        assert (path.suffix, path.read_text()) == (".bin", "['it']")
    assert not path.exists()
    assert "dgl:Two has 2 graphs" in refused("import", "dgl:Two", tmp_path / "a.graph")


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    monkeypatch.setitem(sys.modules, "dgl", None)
    for source, command in (("ogb:ogbn-arxiv", "pip install ogb"), ("dgl:Cora", "pip install dgl")):
        told = refused("import", source, tmp_path / "a.graph")
        assert "this needs the Python package" in told
        assert command in told
