"""Graphs of other libraries as graph folders, and back."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import run
from refusals import refuses

import gcnmpi
from partition.errors import DataWarning
from partition.graph.store import open_graph
from partition.importing.objects import arrays_of
from partition.importing.readers import read_source

ARCS = [("b", "a"), ("a", "c"), ("c", "b"), ("b", "c")]


def named(name, package, **members):
    """An object of a class as another library has it."""
    return type(name, (), {"__module__": package, **members})()


def arcs_of(graph):
    matrix = graph.adjacency().tocoo()
    ids = np.arange(graph.n) if graph.ids is None else graph.ids
    return dict(zip(zip(ids[matrix.row].tolist(), ids[matrix.col].tolist(), strict=True),
                    matrix.data.tolist(), strict=True))  # fmt: skip


def test_networkx():
    nx = pytest.importorskip("networkx")
    found = gcnmpi.graph.from_object(nx.DiGraph(ARCS))
    assert found.ids.tolist() == ["b", "a", "c"]
    assert arcs_of(found) == dict.fromkeys(ARCS, 1.0)
    graph = nx.MultiGraph([(7, 3, {"weight": 2.0}), (3, 7, {"weight": 5.0}), (3, 3, {"weight": 1})])
    graph.add_node(9)
    for vertex in graph:
        graph.nodes[vertex].update(x=[vertex, 0.5], y=vertex % 2, train_mask=vertex == 9)
    found = gcnmpi.graph.from_object(graph, duplicates="sum")
    assert arcs_of(found) == {(7, 3): 7.0, (3, 7): 7.0, (3, 3): 1.0}
    assert (found.ids.tolist(), found.features[:, 0].tolist()) == ([7, 3, 9], [7, 3, 9])
    assert found.masks["train"].tolist() == [False, False, True]
    assert gcnmpi.graph.from_object(nx.path_graph(3)).ids is None
    assert gcnmpi.graph.from_object(nx.grid_2d_graph(1, 2)).ids.tolist() == ["(0, 0)", "(0, 1)"]
    says = "one of the two arcs of each edge would be missing"
    refuses(says, gcnmpi.graph.from_object, nx.path_graph(3), undirected=False)
    assert len(arcs_of(gcnmpi.graph.from_object(nx.DiGraph(ARCS), undirected=False))) == 4
    del graph.nodes[3]["y"]
    refuses("'y' is missing at 1 of 3 vertices", gcnmpi.graph.from_object, graph)


def test_igraph():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(0, 1), (1, 2)])
    refuses("the graph is undirected", gcnmpi.graph.from_object, graph, undirected=False)
    graph.vs["name"], graph.es["weight"], graph.vs["y"] = ["p", "q", "r"], [2, 3], [0, 1, 1]
    found = gcnmpi.graph.from_object(graph, split="per-class:1,0,1")
    assert arcs_of(found) == {("p", "q"): 2, ("q", "p"): 2, ("q", "r"): 3, ("r", "q"): 3}
    assert (found.labels.tolist(), set(found.masks)) == ([0, 1, 1], {"train", "test"})


def test_pandas_and_the_file_that_it_writes(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"w": [0.5, 2, 3, 4], "src": list("bacb"), "dst": list("acbc")})
    frame.to_csv(tmp_path / "e.csv", index=False)
    for arcs in (frame, frame.assign(src=[5, 3, 9, 5], dst=[3, 9, 5, 9])):
        found = gcnmpi.graph.from_object(arcs)
        pairs = zip(arcs["src"], arcs["dst"], strict=True)
        assert arcs_of(found) == dict(zip(pairs, arcs["w"], strict=True))
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
    data = named("Data", "torch_geometric.data.data", num_nodes=4, to_dict=lambda self: fields)
    found = gcnmpi.graph.from_object(data)
    assert arcs_of(found) == {(0, 1): 1.0, (1, 2): 3.0}
    assert (found.labels.tolist(), found.masks["val"].tolist()) == ([0, 1, 1, 0], [0, 1, 1, 0])
    for attr, weights in (([[1.0], [3]], {(0, 1): 1.0, (1, 2): 3.0}), (np.eye(2), None)):
        fields |= {"edge_weight": None, "edge_attr": Tensor(attr)}
        found = arcs_of(gcnmpi.graph.from_object(data))
        assert found == (weights or dict.fromkeys(found, 1.0))
    hetero = named("HeteroData", "torch_geometric.data.hetero_data", to_dict=lambda self: {})
    refuses("no graph of one type", gcnmpi.graph.from_object, hetero)

    graph = named(
        "DGLGraph", "dgl.heterograph", is_homogeneous=True, num_nodes=lambda self: 4,
        edges=lambda self, order: (Tensor([0, 1]), Tensor([1, 2])),
        ndata={"feat": fields["x"], "label": Tensor([0.5, 1, 2, np.nan])},
        edata={"w": Tensor([[1.0], [3]])},
    )  # fmt: skip
    found = gcnmpi.graph.from_object(graph)
    assert arcs_of(found) == {(0, 1): 1.0, (1, 2): 3.0}
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


def test_data_of_edges():
    graph = pytest.importorskip("networkx").MultiGraph()
    graph.add_edge(0, 1, w1=1.0, w2=[2.0, 3.0], kind="a")
    graph.add_edge(1, 2, w1=4.0, w2=[5.0, 6.0], kind="b")
    graph.add_edge(0, 1, w1=7.0, w2=[8.0, 9.0], kind="b")
    found = arrays_of(graph, "w*", "kind")
    assert found["arc_features"].tolist() == [[1, 2, 3], [7, 8, 9], [4, 5, 6]]
    assert found["arc_labels"].tolist() == ["a", "b", "b"]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"source": [0, 1], "target": [1, 0], "weight": [1, 2], "t": [3, 4]})
    found = arrays_of(frame, "weight,t")
    assert found["arc_features"].tolist() == [[1, 3], [2, 4]]
    assert "edge_weight" not in found
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
        assert arcs_of(graph) == arcs
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
