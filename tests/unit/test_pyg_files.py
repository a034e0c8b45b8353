"""Files of PyTorch Geometric, read without it and without running anything of them."""

import os

import numpy as np
import tensor_files as write
from command_line import run
from refusals import refuses

from partition.graph.store import open_graph
from partition.importing.readers import Layout, guess_format, read_source

DATA, STORAGE = "torch_geometric.data.data", "torch_geometric.data.storage"
HETERO, KINDS = "torch_geometric.data.hetero_data", ("edge", "tensor")
ARRAYS = {
    "x": np.arange(8, dtype=np.float32).reshape(4, 2),
    "edge_index": np.array([[0, 1, 2], [1, 2, 0]]),
    "y": np.array([0, 2, 0, 2]),
    "train_mask": np.array([True, False, False, False]),
    "edge_weight": np.array([0.5, 1, 2], np.float32),
}


def saved(path, wrap=lambda fields: fields, **change):
    """``ARRAYS`` as tensors, in what ``wrap`` puts them into."""
    arrays = {name: a for name, a in (ARRAYS | change).items() if a is not None}
    fields = {
        name: write.tensor(name, a) if isinstance(a, np.ndarray) else a
        for name, a in arrays.items()
    }
    storages = {name: a.tobytes() for name, a in arrays.items() if isinstance(a, np.ndarray)}
    storages["slices"] = np.array([0, 3, 6]).tobytes()
    write.write_torch(path, wrap(fields), storages)
    return path


def as_data(fields):
    """A Data object as pickle writes it, since version 2."""
    store = write.instance(STORAGE, "GlobalStorage", {"_mapping": fields, "_parent": None})
    classes = {f"_{of}_attr_cls": write.named(DATA, f"Data{of.title()}Attr") for of in KINDS}
    return write.instance(DATA, "Data", classes | {"_store": store})


WRAPPED = {
    "dict": lambda fields: fields,
    "data": as_data,
    "dataset": lambda fields: (fields, None, write.named(DATA, "Data")),
    "older dataset": lambda fields: (as_data(fields), None),
    "one slice": lambda fields: (
        fields, {"x": write.tensor("slices", np.arange(3), 0, (2,), (1,))},
    ),
    "list": lambda fields: [as_data(fields)],
    "version 1": lambda fields: write.instance(DATA, "Data", fields | {"__num_nodes__": 4}),
}  # fmt: skip


def test_a_graph_comes_back_from_every_form(tmp_path):
    for wrap in WRAPPED.values():
        path = saved(tmp_path / "data.pt", wrap)
        source = read_source(path)
        assert (guess_format(path), source.format, source.n) == ("pyg", "pyg", 4)
        assert (source.source.tolist(), source.target.tolist()) == ([0, 1, 2], [1, 2, 0])
        np.testing.assert_array_equal(source.features, ARRAYS["x"])
        assert source.labels.tolist() == [0, 1, 0, 1]
        assert (source.class_names, source.weights.tolist()) == (("0", "2"), [0.5, 1, 2])
        assert source.masks["train"].tolist() == [True, False, False, False]


def test_the_folder_of_a_dataset_is_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Cora" / "processed").mkdir(parents=True)
    splits = np.eye(4, 2).astype(bool)
    saved(tmp_path / "Cora" / "processed" / "data.pt", WRAPPED["dataset"],
          train_mask=splits, edge_attr=np.ones((3, 2)), num_nodes=4)  # fmt: skip
    run("import", "Cora", "g.graph", "--undirected")
    stored = open_graph("g.graph")
    assert (stored.graph.splits, stored.manifest.directed) == (2, False)
    assert stored.manifest.source["columns"] == "data of arcs edge_attr"
    assert stored.manifest.arc_features == 2


def test_an_edge_attr_of_one_column_is_the_weights(tmp_path):
    file, bare = tmp_path / "data.pt", {"edge_weight": None}
    for attr in ([[0.5], [1], [2]], [0.5, 1, 2]):
        source = read_source(saved(file, **bare, edge_attr=np.array(attr)))
        assert source.weights.tolist() == [0.5, 1, 2]
        assert source.notes["columns"] == "weight edge_attr"
    ones = np.ones((3, 1))
    source = read_source(saved(file, edge_attr=ones))
    assert source.weights.tolist() == [0.5, 1, 2]
    assert source.notes["columns"] == "data of arcs edge_attr"
    layout = Layout(arc_features="edge_attr")
    source = read_source(saved(file, **bare, edge_attr=ones), layout=layout)
    assert source.weights is None
    assert source.arc_data.columns["features"].tolist() == [[1], [1], [1]]


def test_what_y_means(tmp_path):
    one = saved(tmp_path / "a.pt", y=np.array([[0], [1], [0], [-1]]))
    assert read_source(one).labels.tolist() == [0, 1, 0, -1]
    for y in (np.array([0.5, 1, 2, 3]), np.eye(4, 3)):
        source = read_source(saved(tmp_path / "b.pt", y=y, train_mask=None))
        assert source.labels is None
        np.testing.assert_array_equal(source.targets, y.reshape(4, -1))
    bare = {"x": None, "y": None, "train_mask": None, "edge_weight": None}
    assert read_source(saved(tmp_path / "c.pt", **bare)).n == 3
    assert read_source(saved(tmp_path / "d.pt", **bare, num_nodes=9)).n == 9


REFUSED = [
    ({"wrap": lambda f: (f, {"x": write.tensor("slices", np.arange(3))})}, "holds 2 graphs"),
    ({"wrap": lambda f: [f, f]}, "holds 2 graphs"),
    ({"wrap": lambda f: write.instance(HETERO, "HeteroData", {"_node_store_dict": {}})}, "several"),
    ({"wrap": lambda f: ({"_global_store": {}}, None)}, "several types"),
    ({"wrap": lambda f: f["x"]}, "holds no graph, but 'tensor'"),
    ({"edge_index": None}, "has no edge_index"),
    ({"edge_index": np.zeros((3, 2))}, "not integers in the shape"),
    ({"x": [1, 2]}, "x is no tensor, but 'list'"),
    ({"y": np.zeros(3, np.int64)}, "y has 3 rows, the graph has 4"),
    ({"train_mask": np.array([3])}, "not a bool for each of 4"),
    ({"edge_weight": np.ones(2)}, "not a number for each of 3 arcs"),
    ({"num_nodes": "4"}, "not a number of vertices"),
    ({"x": np.full((4, 1), np.nan)}, "not finite"),
]


def test_what_is_no_graph_is_refused(tmp_path):
    for change, message in REFUSED:
        refuses(message, read_source, saved(tmp_path / "data.pt", **change))


def test_nothing_of_a_file_is_run(tmp_path):
    call = write.call("os", "mkdir", str(tmp_path / "sprung"))
    layer = write.instance("torch_geometric.nn", "GCN", {})
    for content in (call, layer, {"x": call}, write.instance(DATA, "Data", call)):
        write.write_torch(file := tmp_path / "data.pt", content, {})
        refusal = refuses("has no use for: nothing of it was run", read_source, file)
        assert "from_object" in refusal.hint
    assert os.listdir(tmp_path) == ["data.pt"]
