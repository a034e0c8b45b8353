"""The formats that bring features and labels: planetoid and gnn-benchmark."""

import collections
import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from partition.graph.graph import arcs
from partition.importing.assemble import build_graph
from partition.importing.readers import read_source

# Ten vertices in three classes; 0..5 in allx, of which 0..1 train; tests are 8, 6, 9 and 7 is in
# no file. The features of vertex v are v + 1 and its class.
CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, -1, 2, 1])
ORDER = [8, 6, 9]


def planetoid_parts():
    features = np.column_stack([np.arange(1, 11), np.maximum(CLASSES, 0)]).astype(np.float32)
    onehot, graph = np.eye(3, dtype=np.int32)[CLASSES], collections.defaultdict(list)
    graph.update({0: [1, 1, 2], 1: [0], 2: [0], 6: [9], 8: [8], 3: []})
    rows = {"x": features[:2], "allx": features[:6], "tx": features[ORDER]}
    return {name: sp.csr_matrix(some) for name, some in rows.items()} | {
        "y": onehot[:2], "ally": onehot[:6], "ty": np.asfortranarray(onehot[ORDER]),
        "graph": graph, "test.index": "".join(f"{vertex}\n" for vertex in ORDER).encode(),
    }  # fmt: skip


def write_planetoid(folder, parts, protocol=2):
    for name, value in parts.items():
        raw = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
        (folder / f"ind.toy.{name}").write_bytes(raw)
    return folder / "ind.toy"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_planetoid_puts_every_row_in_its_place(tmp_path, protocol):
    source = read_source(write_planetoid(tmp_path, planetoid_parts(), protocol))
    assert source.n == 10
    assert source.features.dtype == np.float32
    assert source.features[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 9, 10]
    assert source.labels.tolist() == CLASSES.tolist()
    assert source.labels.dtype == np.int32
    members = {name: np.flatnonzero(mask).tolist() for name, mask in source.masks.items()}
    assert members == {"train": [0, 1], "val": [2, 3, 4, 5], "test": [6, 8, 9]}
    graph, facts = build_graph(source)
    pairs = list(zip(arcs(graph).tolist(), graph.indices.tolist(), strict=True))
    assert pairs == [(0, 1), (0, 2), (1, 0), (2, 0), (6, 9), (8, 8), (9, 6)]  # 9 → 6 was missing
    assert facts["duplicates"]["found"] == 1


class Hostile:
    def __init__(self, call, *args):
        self.call = call, args

    def __reduce__(self):
        return self.call


OTHER = sp.csr_matrix(np.eye(6, 2, dtype=np.float32))
OTHER.indices = OTHER.indices[:1]
PLANETOID = [
    ("x", Hostile(os.system, "true"), r"posix\.system|nt\.system"),
    ("graph", Hostile(eval, "1"), r"eval"),
    ("allx", Hostile(np.ndarray, (10**12,)), r"toy.allx"),
    ("allx", Hostile(bytearray, 10**12), r"bytearray"),
    ("graph", [[1], [0]], r"does not hold a dict"),
    ("graph", {0: [10]}, r"names a vertex outside 0\.\.9"),
    ("graph", {0: [0.5]}, r"something else than whole numbers"),
    ("graph", {0: [2**70]}, r"beyond 64 bits"),
    ("graph", dict.fromkeys(range(10), list(range(10)) * 9), r"more neighbours than"),
    ("y", np.array(["a"], object), r"damaged array"),
    ("y", 5, r"holds a int, not an array"),
    ("allx", OTHER, r"allx: 1 indices but 2 values"),
    ("ally", np.ones((6, 3)), r"rows with a single 1"),
    ("ally", np.eye(5, 3), r"has 6 rows, its labels 5"),
    ("tx", sp.csr_matrix((3, 5), dtype=np.float32), r"differ in their columns"),
    ("tx", sp.csr_matrix(np.full((3, 2), np.nan)), r"features of vertex 0, column 0"),
    ("test.index", b"8 6\n", r"names 2 vertices, tx has 3"),
    ("test.index", b"8 6 x\n", r"not a list of vertex numbers"),
    ("test.index", b"8 6 6\n", r"one of them twice"),
    ("test.index", b"8 6 5\n", r"not those after the 6"),
    ("test.index", b"8 6 999999999999\n", r"not those after the 6"),
    ("test.index", b"", r"names no vertex"),
]


def test_planetoid_refuses(tmp_path):
    for part, value, message in PLANETOID:
        prefix = write_planetoid(tmp_path, planetoid_parts() | {part: value})
        caught = refuses(message, read_source, prefix)
        assert "\n" not in caught.message
        assert "toy" in caught.message
    prefix = write_planetoid(tmp_path, planetoid_parts() | {"ally": np.zeros((6, 3))})
    assert read_source(prefix).labels[:6].tolist() == [-1] * 6
    (tmp_path / "ind.toy.ty").unlink()
    refuses(r"there is no file .*ind\.toy\.ty", read_source, prefix)


# gnn-benchmark


def npz_arrays(**changes):
    adjacency = sp.csr_array(np.array([[0, 1, 1], [0, 0, 1], [0, 0, 1]], np.float32))
    attributes = sp.csr_array(np.array([[0, 2], [1, 0], [0, 0]], np.float32))
    arrays = {"labels": np.array([1, 0, -1])}
    for name, matrix in (("adj", adjacency), ("attr", attributes)):
        arrays[f"{name}_data"] = matrix.data
        arrays[f"{name}_indices"] = matrix.indices
        arrays[f"{name}_indptr"] = matrix.indptr
        arrays[f"{name}_shape"] = np.array(matrix.shape)
    arrays["class_names"] = np.array(["a", None], object)  # must not be unpickled
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def write_npz(folder, **changes):
    np.savez_compressed(folder / "toy.npz", **npz_arrays(**changes))
    return folder / "toy.npz"


def test_npz_with_weights_dense_attributes_and_without(tmp_path):
    dense = np.arange(6.0).reshape(3, 2)
    weights = np.array([1, 2, 3, 4.0])
    source = read_source(write_npz(tmp_path, attr_matrix=dense, adj_data=weights))
    assert source.features.tolist() == dense.tolist()
    assert source.weights.tolist() == weights.tolist()
    bare = read_source(write_npz(tmp_path, attr_indptr=None, labels=None))
    assert bare.features is None
    assert bare.labels is None


NPZ = [
    ({"adj_indptr": None}, r"has no array adj_indptr"),
    ({"adj_data": None}, r"has no array adj_data"),
    ({"adj_shape": np.array([3, 4])}, r"3 x 4, not square"),
    ({"adj_shape": np.array([2**40, 2**40])}, r"4 row pointers do not fit the shape"),
    ({"adj_shape": np.array([3.0, 3.0])}, r"not a pair of integers"),
    ({"adj_indptr": np.array([0, 3, 2, 4])}, r"row pointers do not rise"),
    ({"adj_indptr": np.array([0, 2, 3, 9])}, r"row pointers do not rise"),
    ({"adj_indices": np.array([1, 2, 3, 2])}, r"column index is outside 0\.\.2"),
    ({"adj_indices": np.array([1, 2, 2.0, 2])}, r"indices is not a vector of integers"),
    ({"adj_data": np.array([1, 2, np.nan, 1])}, r"weight of entry 3 is nan"),
    ({"adj_data": np.ones(3)}, r"4 indices but 3 values"),
    ({"attr_data": np.array([1, np.inf])}, r"features of vertex 1, column 0"),
    ({"attr_data": np.array([1e300, 1])}, r"features of vertex 0, column 1"),
    ({"attr_shape": np.array([3, 10**12])}, r"1000000000000 columns for only 2 entries"),
    ({"attr_matrix": np.ones((2, 2))}, r"attributes of 2 vertices, the graph has 3"),
    ({"labels": np.array([0, 1])}, r"labels of 2 vertices, the graph has 3"),
    ({"labels": np.array([0, 1, -2])}, r"label -2 of vertex 2 is outside"),
    ({"labels": np.array([[0], [1], [1]])}, r"labels must be a vector of integers"),
    ({"labels": np.array([0, 1, 0.5])}, r"labels must be a vector of integers"),
    ({"labels": np.array([0, None, 1], object)}, r"labels: Object arrays"),
]


def test_npz_refuses(tmp_path):
    for changes, message in NPZ:
        caught = refuses(message, read_source, write_npz(tmp_path, **changes))
        assert "\n" not in caught.message
        assert "toy.npz" in caught.message
