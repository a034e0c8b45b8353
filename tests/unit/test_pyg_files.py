"""Files of PyTorch Geometric and DGL, read without them and without running anything; objects."""

import os
import struct
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import tensor_files as write
from command_line import run
from refusals import refuses

import gcnmpi
from partition.errors import DataWarning, UserError
from partition.graph.store import open_graph
from partition.importing.readers import guess_format
from partition.importing.readers.libraries import arrays_of
from partition.importing.readers.reading import read_source
from partition.importing.readers.source import Layout
from partition.importing.readers.torch_files import MAGIC

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
    of = {name: a for name, a in arrays.items() if isinstance(a, np.ndarray)}
    fields = arrays | {name: write.tensor(name, a) for name, a in of.items()}
    storages = {name: a.tobytes() for name, a in of.items()}
    storages["slices"] = np.array([0, 3, 6]).tobytes()
    write.write_torch(path, wrap(fields), storages)
    return path


def as_data(fields):
    """A Data object as pickle writes it, since version 2."""
    store = write.instance(STORAGE, "GlobalStorage", {"_mapping": fields, "_parent": None})
    classes = {f"_{of}_attr_cls": write.named(DATA, f"Data{of.title()}Attr") for of in KINDS}
    return write.instance(DATA, "Data", classes | {"_store": store})


def with_adjacency(fields):
    """The arcs as a SparseTensor of torch_sparse, transposed."""
    ends = (write.tensor("edge_index", ARRAYS["edge_index"], at, (3,), (1,)) for at in (3, 0))
    row, column, value = *ends, fields["edge_weight"]
    parts = {"_row": row, "_col": column, "_value": value, "_sparse_sizes": (4, 4)}
    storage = write.instance("torch_sparse.storage", "SparseStorage", parts)
    matrix = write.instance("torch_sparse.tensor", "SparseTensor", {"storage": storage})
    return {name: fields[name] for name in ("x", "y", "train_mask")} | {"adj_t": matrix}


WRAPPED = {
    "adjacency": with_adjacency, "dict": lambda fields: fields, "data": as_data,
    "dataset": lambda fields: (fields, None, write.named(DATA, "Data")),
    "older dataset": lambda fields: (as_data(fields), None),
    "slice": lambda fields: (fields, {"x": write.tensor("slices", np.arange(3), 0, (2,), (1,))}),
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
        assert (source.labels.tolist(), source.class_names) == ([0, 1, 0, 1], ("0", "2"))
        assert source.weights.tolist() == [0.5, 1, 2]
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
    assert stored.manifest.arc_features == 2


def test_an_edge_attr_of_one_column_is_the_weights(tmp_path):
    file, bare = tmp_path / "data.pt", {"edge_weight": None}
    for attr in ([[0.5], [1], [2]], [0.5, 1, 2]):
        source = read_source(saved(file, **bare, edge_attr=np.array(attr)))
        assert source.weights.tolist() == [0.5, 1, 2]
    ones = np.ones((3, 1))
    assert read_source(saved(file, edge_attr=ones)).weights.tolist() == [0.5, 1, 2]
    layout = Layout(arc_features="edge_attr")
    source = read_source(saved(file, **bare, edge_attr=ones), layout=layout)
    assert (source.weights, source.arc_data.columns["features"].tolist()) == (None, ones.tolist())


def test_what_y_means(tmp_path):
    one = saved(tmp_path / "a.pt", y=np.array([[0], [1], [0], [-1]]))
    assert read_source(one).labels.tolist() == [0, 1, 0, -1]
    for y in (np.array([0.5, 1, 2, 3]), np.eye(4, 3)):
        source = read_source(saved(tmp_path / "b.pt", y=y, train_mask=None))
        assert source.labels is None
        np.testing.assert_array_equal(source.targets, y.reshape(4, -1))
    bare = dict.fromkeys(("x", "y", "train_mask", "edge_weight"))
    for n, given in ((3, {}), (9, {"num_nodes": 9})):
        assert read_source(saved(tmp_path / "c.pt", **bare, **given)).n == n


REFUSED = [
    ({"wrap": lambda f: (f, {"x": write.tensor("slices", np.arange(3))})}, "holds 2 graphs"),
    (
        {"wrap": lambda f: write.instance(HETERO, "HeteroData", {"_node_store_dict": {}})},
        "holds no rel",
    ),
    ({"wrap": lambda f: ({"_global_store": {}}, None)}, "holds no relations"),
    ({"wrap": lambda f: f["x"]}, "holds no graph, but 'tensor'"),
    ({"edge_index": None}, "has no edge_index"),
    ({"edge_index": np.zeros((3, 2))}, "not integers in the shape"),
    ({"x": [1, 2]}, "x is no tensor, but 'list'"),
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
        refuses("has no use for: nothing of it was run", read_source, file)
    assert os.listdir(tmp_path) == ["data.pt"]


# Files of dgl.save_graphs, whose bytes are written here by hand

CODES = {"i": 0, "u": 1, "f": 2}
EMPTY = np.empty(0, np.int64)


def u64(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def text(word):
    return u64(len(word)) + word.encode()


def array(values):
    kind = struct.pack("<BBH", CODES[values.dtype.kind], 8 * values.itemsize, 1)
    head = u64(MAGIC["array"], 0) + struct.pack("<iii", 1, 0, values.ndim) + kind
    return head + u64(*values.shape, values.nbytes) + values.tobytes()


def tables(data):
    return u64(1, len(data)) + b"".join(text(name) + array(a) for name, a in data.items())


def csr(rows, indptr, column, number=EMPTY):
    head = u64(MAGIC["csr"], rows, rows)
    return head + array(indptr) + array(column) + array(number) + b"\0"


def metagraph(types=1):
    return u64(MAGIC["immutable"]) + csr(types, np.arange(types + 1), np.zeros(types, np.int64))


N, SOURCE, TARGET = 4, np.array([2, 0, 2]), np.array([1, 2, 3])


def in_form(form):
    if form == "coo":
        return u64(MAGIC["coo"], N, N) + array(SOURCE) + array(TARGET) + array(EMPTY) + b"\0\0"
    if form == "csc":
        return csr(N, np.array([0, 0, 1, 2, 3]), np.array([2, 0, 2]))
    number = np.array([1, 0, 1 if form == "twice" else 2])  # of an arc
    return csr(N, np.array([0, 1, 1, 3, 3]), np.array([2, 1, 3]), number)


def dgl_saved(path, form="coo", graphs=1, version=2, types=1, data=None, arcs=None, old=0, sizes=4):
    """A file as DGL 2.1 writes it."""
    data, arcs = DGL_DATA if data is None else data, ARCS if arcs is None else arcs
    head = u64(MAGIC["file"], version, 2, graphs).ljust(4096, b"\0")
    labels = u64(1) + text("y") + array(np.ones(2, np.float32))
    bits = {"coo": 1, "csr": 2, "twice": 2, "csc": 4}[form] | (0 if old else 1 << 32)
    body = u64(MAGIC["hetero"]) + metagraph(types) + u64(1, MAGIC["unit"], bits, 7 | 1 << 32)
    body += metagraph() + in_form(form) + u64(1, sizes) + tables(data) + tables(arcs)
    body += u64(1) + text("_N") + u64(1) + text("_E")
    path.write_bytes(head + u64(len(head) + 8 + len(labels)) + labels + body)
    return path


ARCS = {"w": np.array([[0.5], [1], [2]], np.float32), "t": SOURCE}
DGL_DATA = {
    "feat": np.arange(8, dtype=np.float32).reshape(4, 2),
    "label": np.array([0, 1, 1, 0]),
    "train_mask": np.array([1, 0, 0, 0], np.uint8),
    "year": np.array([1, 2, 3, 4]),
}


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_dgl_a_graph_comes_back_from_every_form(tmp_path, form):
    path = dgl_saved(tmp_path / "g.bin", form)
    source = read_source(path)
    assert (guess_format(path), source.n) == ("dgl", 4)
    assert (source.source.tolist(), source.target.tolist()) == ([2, 0, 2], [1, 2, 3])
    assert source.weights.tolist() == [0.5, 1, 2]
    assert source.notes == {"columns": "not read: t, year"}
    np.testing.assert_array_equal(source.features, DGL_DATA["feat"])
    assert (source.labels.tolist(), *source.masks["train"]) == ([0, 1, 1, 0], 1, 0, 0, 0)


def test_other_files_are_refused(tmp_path):
    for change, message in (
        ({"graphs": 2}, "holds 2 graphs"),
        ({"version": 1}, "version 1 of DGL's format"),
        ({"old": True}, "an old version of DGL"),
        ({"types": 2}, "several types"),
        ({"sizes": 3}, r"vertices outside 0\.\.2"),
        ({"form": "twice"}, "."),
    ):
        refuses(message, read_source, dgl_saved(tmp_path / "g.bin", **change))


DAMAGED = [
    "an end where more",
    "where one has to be",
    "data of several types",
    "dimensions",
    "which is not read",
    "bytes for an array",
    "row pointers that do not rise",
]


def test_every_kind_of_damage_is_told(tmp_path):
    path = dgl_saved(tmp_path / "g.bin", "csr")
    raw, told = path.read_bytes(), set()
    for at in range(4096, len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        try:
            read_source(path)
        except UserError as error:
            told.add(error.message)
    assert all(str(path) in message for message in told)
    assert not [damage for damage in DAMAGED if damage not in "".join(told)]


# Objects of other libraries as graph folders, and back

EDGES = [("b", "a"), ("a", "c"), ("c", "b"), ("b", "c")]


def object_of(name, package, **members):
    """An object of a class as another library has it."""
    return type(name, (), {"__module__": package, **members})()


def weights_of(graph):
    matrix = graph.adjacency().tocoo()
    ids = np.arange(graph.n) if graph.ids is None else graph.ids
    return dict(zip(zip(ids[matrix.row].tolist(), ids[matrix.col].tolist(), strict=True),
                    matrix.data.tolist(), strict=True))  # fmt: skip


def test_networkx():
    nx = pytest.importorskip("networkx")
    found = gcnmpi.graph.from_object(nx.DiGraph(EDGES))
    assert found.ids.tolist() == ["b", "a", "c"]
    assert weights_of(found) == dict.fromkeys(EDGES, 1.0)
    graph = nx.MultiGraph([(7, 3, {"weight": 2.0}), (3, 7, {"weight": 5.0}), (3, 3, {"weight": 1})])
    graph.add_node(9)
    for vertex in graph:
        graph.nodes[vertex].update(x=[vertex, 0.5], y=vertex % 2, train_mask=vertex == 9)
    found = gcnmpi.graph.from_object(graph, duplicates="sum")
    assert weights_of(found) == {(7, 3): 7.0, (3, 7): 7.0, (3, 3): 1.0}
    assert (found.ids.tolist(), found.features[:, 0].tolist()) == ([7, 3, 9], [7, 3, 9])
    assert found.masks["train"].tolist() == [False, False, True]
    assert gcnmpi.graph.from_object(nx.path_graph(3)).ids is None
    assert gcnmpi.graph.from_object(nx.grid_2d_graph(1, 2)).ids.tolist() == ["(0, 0)", "(0, 1)"]
    says = "one of the two arcs of each edge would be missing"
    refuses(says, gcnmpi.graph.from_object, nx.path_graph(3), undirected=False)
    assert len(weights_of(gcnmpi.graph.from_object(nx.DiGraph(EDGES), undirected=False))) == 4
    del graph.nodes[3]["y"]
    refuses("'y' is missing at 1 of 3 vertices", gcnmpi.graph.from_object, graph)


def test_igraph():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(0, 1), (1, 2)])
    refuses("the graph is undirected", gcnmpi.graph.from_object, graph, undirected=False)
    graph.vs["name"], graph.es["weight"], graph.vs["y"] = ["p", "q", "r"], [2, 3], [0, 1, 1]
    found = gcnmpi.graph.from_object(graph, split="per-class:1,0,1")
    assert weights_of(found) == {("p", "q"): 2, ("q", "p"): 2, ("q", "r"): 3, ("r", "q"): 3}
    assert (found.labels.tolist(), set(found.masks)) == ([0, 1, 1], {"train", "test"})


def test_pandas_and_the_file_that_it_writes(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"w": [0.5, 2, 3, 4], "src": list("bacb"), "dst": list("acbc")})
    frame.to_csv(tmp_path / "e.csv", index=False)
    for arcs in (frame, frame.assign(src=[5, 3, 9, 5], dst=[3, 9, 5, 9])):
        found = gcnmpi.graph.from_object(arcs)
        pairs = zip(arcs["src"], arcs["dst"], strict=True)
        assert weights_of(found) == dict(zip(pairs, arcs["w"], strict=True))
    ids = read_source(tmp_path / "e.csv").ids.tolist()
    assert ids == gcnmpi.graph.from_object(frame).ids.tolist() == ["a", "b", "c"]
    for wrong, says in (
        (frame.rename(columns={"src": "k"}), "it is not clear which are arcs"),
        (frame.assign(src=[5, 3, 9, None]), "row 3 of the data frame lacks a vertex"),
        (frame.assign(src=[5.0, 3, 9, 1]), "ids in the data frame are fractions"),
    ):
        refuses(says, gcnmpi.graph.from_object, wrong)


class Tensor:
    """As far as an array is asked of a tensor."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def detach(self):
        return self

    cpu = detach

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_pyg_and_dgl_as_far_as_they_are_asked():
    fields = {"edge_index": Tensor([[0, 1], [1, 2]]), "x": Tensor(np.eye(4)),
              "y": Tensor([[0], [1], [1], [0]]), "val_mask": Tensor([0, 1, 1, 0]),
              "edge_weight": Tensor([1.0, 3])}  # fmt: skip
    data = object_of("Data", "torch_geometric.data.data", num_nodes=4, to_dict=lambda self: fields)
    found = gcnmpi.graph.from_object(data)
    assert weights_of(found) == {(0, 1): 1.0, (1, 2): 3.0}
    assert (found.labels.tolist(), found.masks["val"].tolist()) == ([0, 1, 1, 0], [0, 1, 1, 0])
    for attr, weights in (([[1.0], [3]], {(0, 1): 1.0, (1, 2): 3.0}), (np.eye(2), None)):
        fields |= {"edge_weight": None, "edge_attr": Tensor(attr)}
        found = weights_of(gcnmpi.graph.from_object(data))
        assert found == (weights or dict.fromkeys(found, 1.0))
    matrix = SimpleNamespace(sparse_sizes=lambda: (4, 4), coo=lambda: ([1, 2], [0, 1], [1.0, 3]))
    fields |= {"edge_index": None, "edge_attr": None, "adj_t": matrix}
    assert weights_of(gcnmpi.graph.from_object(data)) == {(0, 1): 1.0, (1, 2): 3.0}
    hetero = object_of("HeteroData", "torch_geometric.data.hetero_data", to_dict=lambda self: {})
    refuses("no graph of one type", gcnmpi.graph.from_object, hetero)

    graph = object_of(
        "DGLGraph", "dgl.heterograph", is_homogeneous=True, num_nodes=lambda self: 4,
        edges=lambda self, order: (Tensor([0, 1]), Tensor([1, 2])),
        ndata={"feat": fields["x"], "label": Tensor([0.5, 1, 2, np.nan])},
        edata={"w": Tensor([[1.0], [3]])},
    )  # fmt: skip
    found = gcnmpi.graph.from_object(graph)
    assert weights_of(found) == {(0, 1): 1.0, (1, 2): 3.0}
    assert (found.labels, found.targets[:3, 0].tolist()) == (None, [0.5, 1, 2])


def test_other_objects_and_options():
    more = {"features": np.ones((3, 2)), "ids": [4, 2, 9]}
    found = gcnmpi.graph.from_object(sp.eye_array(3).tocsr(), **more)
    assert (found.nnz, found.features.shape, found.ids.tolist()) == (3, (3, 2), [4, 2, 9])
    refuses("no graph that is known", gcnmpi.graph.from_object, [1, 2])
    for ids, says in (([4, 4], "the id 4 occurs twice"), ([4], "not one for each of 2 vertices")):
        refuses(says, gcnmpi.graph.from_arrays, [[0], [1]], n=2, ids=ids)


def test_back_to_pyg():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    graph = gcnmpi.graph.from_arrays(
        [[0, 2], [1, 0]], np.eye(3), [0, 1, -1], ids=list("abc"), edge_weight=[0.5, 2],
        train_mask=[True, False, False],
    )  # fmt: skip
    data = graph.to_pyg()
    assert data.validate()
    assert (data.edge_index.tolist(), data.edge_weight.tolist()) == ([[0, 2], [1, 0]], [0.5, 2])
    assert (data.y.tolist(), data.ids, data.x.dtype) == ([0, 1, -1], list("abc"), torch.float32)
    assert data.train_mask.tolist() == [True, False, False]
    again = gcnmpi.graph.from_object(data)
    assert again.manifest.id == graph.manifest.id
    ends = [[2, 0], [0, 1]]
    data = gcnmpi.graph.from_arrays(ends, arc_features=[3, 4], arc_labels=[1, 0]).to_pyg()
    assert {*data.keys()} == {
        "num_nodes",
        *(f"edge_{n}" for n in ("index", "attr", "label", "ids")),
    }
    again = gcnmpi.graph.from_object(data, arc_features="edge_attr")
    found = again.arc_data.features[:, 0].tolist(), again.arc_data.labels.tolist(), again.classes
    assert found == ([4, 3], [0, 1], 0)


def test_data_of_edges():
    graph = pytest.importorskip("networkx").MultiGraph()
    graph.add_edge(0, 1, w1=1.0, w2=[2.0, 3.0], kind="a")
    graph.add_edge(1, 2, w1=4.0, w2=[5.0, 6.0], kind="b")
    graph.add_edge(0, 1, w1=7.0, w2=[8.0, 9.0], kind="b")
    found = arrays_of(graph, "w*", "kind")["arc_data"].columns
    assert found["features"].tolist() == [[1, 2, 3], [7, 8, 9], [4, 5, 6]]
    assert found["labels"].tolist() == [0, 1, 1]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"source": [0, 1], "target": [1, 0], "weight": [1, 2], "t": [3, 4]})
    found = arrays_of(frame, "weight,t")
    features = found["arc_data"].columns["features"].tolist()
    assert (features, "edge_weight" in found) == ([[1, 3], [2, 4]], False)
    refuses("column of the graph for arc_features", arrays_of, frame, "nothing")


SPARSE = {
    "coo": lambda x, e, w: {"x": x.to_sparse(), "edge_index": e, "edge_weight": w},
    "csr": lambda x, e, w: {"x": x.to_sparse_csr(), "edge_index": e, "edge_weight": w},
    "csc": lambda x, e, w: {"x": x.to_sparse_csc(), "edge_index": e, "edge_weight": w},
    "bfloat16": lambda x, e, w: {"x": x.bfloat16(), "edge_index": e, "edge_weight": w},
    "adj_t csr": lambda x, e, w: {"x": x, "adj_t": _adjacency(e.flip(0), w).to_sparse_csr()},
    "adj_t csc": lambda x, e, w: {"x": x, "adj_t": _adjacency(e.flip(0), w).to_sparse_csc()},
    "adj_t coo": lambda x, e, w: {"x": x, "adj_t": _adjacency(e.flip(0), w)},
    "adj": lambda x, e, w: {"x": x, "adj": _adjacency(e, w)},
}


def _adjacency(ends, weights):
    torch = pytest.importorskip("torch")
    return torch.sparse_coo_tensor(ends, weights, (4, 4))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("case", SPARSE)
@pytest.mark.parametrize("of", ["dict", "data", "typed"])
def test_sparse_tensors_from_objects_and_files_alike(tmp_path, case, of):
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    ends, weights = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]), torch.arange(1, 6.0)
    fields = SPARSE[case](torch.eye(4) + 2, ends, weights)
    data = pyg.Data(**fields)
    if of == "typed":
        data = pyg.HeteroData()
        data["v"].x = fields.pop("x")
        for name, value in fields.items():
            data["v", "to", "v"][name] = value
    torch.save(data if of == "data" else data.to_dict(), tmp_path / "d.pt")
    run("import", tmp_path / "d.pt", tmp_path / "g.graph")
    for graph in (gcnmpi.graph.open(tmp_path / "g.graph"), gcnmpi.graph.from_object(data)):
        arcs = {tuple(ends[:, i].tolist()): i + 1.0 for i in range(5)}
        assert weights_of(graph) == arcs
        x = open_graph(graph.path).graph.features_of("v") if of == "typed" else graph.features
        np.testing.assert_array_equal(np.asarray(x), np.eye(4) + 2)


def test_whole_numbers_that_float32_does_not_have_are_told(tmp_path):
    large, ends = np.array([[1 << 24, 3], [(1 << 24) + 1, 0]]), np.array([[0, 1], [1, 0]])
    for x in (large, sp.csr_array(large.astype(float))):
        with pytest.warns(DataWarning, match="x: whole numbers beyond 16,777,216 are rounded"):
            gcnmpi.graph.from_arrays(ends, x=x)
    np.save(tmp_path / "x.npy", large)
    (tmp_path / "x.csv").write_text("f,g\n16777216,3\n16777217,0\n")
    (tmp_path / "e.txt").write_text("0 1\n1 0\n")
    for name in ("x.npy", "x.csv"):
        words = ("import", tmp_path / "e.txt", tmp_path / f"{name}.graph")
        told = run(*words, "--features", tmp_path / name).stderr
        assert told.count("whole numbers beyond") == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        for x in (large[:1].repeat(2, 0), large + 0.5):
            gcnmpi.graph.from_arrays(ends, x=x)
