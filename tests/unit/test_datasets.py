"""Data sets by name, ``pyg:…``, ``ogb:…``, ``dgl:…``: libraries bring them, readers read them."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from command_line import refused, run
from ogb_folders import write_text

from partition.graph.store import open_graph
from partition.importing import datasets


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


def test_a_data_set_of_ogb_is_its_folder(tmp_path, cache, monkeypatch):
    library = ModuleType("ogb.nodeproppred")

    class NodePropPredDataset:
        def __init__(self, name, root):
            if name == "ogbn-products":
                raise ConnectionError("no route\nto host")
            print("Downloading")
            self.root = write_text(cache / "ogb" / "ogbn_arxiv", 3, [(0, 1), (1, 2)])

    library.NodePropPredDataset = NodePropPredDataset
    monkeypatch.setitem(sys.modules, "ogb", ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", library)
    made = run("import", "ogb:ogbn-arxiv", tmp_path / "arxiv.graph")
    assert "Downloading" not in made.stdout
    monkeypatch.delattr(library, "NodePropPredDataset")  # it is there already
    run("import", "ogb:ogbn-arxiv", tmp_path / "again.graph")
    first, again = (open_graph(tmp_path / f"{name}.graph").manifest for name in ("arxiv", "again"))
    assert first.id == again.id
    library.NodePropPredDataset = NodePropPredDataset
    told = refused("import", "ogb:ogbn-products", tmp_path / "products.graph")
    assert "cannot load ogb:ogbn-products: ConnectionError: no route to host\n" in told
    assert "no node property data set" in refused("import", "ogb:arxiv", tmp_path / "a.graph")


def test_a_data_set_of_dgl_is_saved_by_it(tmp_path, monkeypatch):
    dgl, data = ModuleType("dgl"), ModuleType("dgl.data")
    data.Cora = type("Cora", (), {"__len__": lambda self: 1, "__getitem__": lambda self, i: "it"})
    data.Two = type("Two", (), {"__len__": lambda self: 2})
    dgl.save_graphs = lambda path, graphs: Path(path).write_text(str(graphs))
    monkeypatch.setitem(sys.modules, "dgl", dgl)
    monkeypatch.setitem(sys.modules, "dgl.data", data)
    with datasets.local_file(tmp_path / "x") as path:
        assert path == tmp_path / "x"
    source = Path("dgl:Cora")
    with datasets.local_file(source) as path:
        assert path.suffix == ".bin"
        assert path.read_text() == "['it']"
    assert not path.exists()
    assert "dgl:Two has 2 graphs" in refused("import", "dgl:Two", tmp_path / "a.graph")


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    monkeypatch.setitem(sys.modules, "dgl", None)
    for source, command in (("ogb:ogbn-arxiv", "pip install ogb"), ("dgl:Cora", "pip install dgl")):
        told = refused("import", source, tmp_path / "a.graph")
        assert "this needs the Python package" in told
        assert command in told
