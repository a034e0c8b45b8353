"""Files of PyTorch Geometric and DGL, read without them and without running anything of them."""

import json
import os
import struct

import numpy as np
import pytest
import tensor_files as write
from command_line import run
from refusals import refuses

from partition.graph.store import open_graph, read_partition
from partition.importing.partfile import read_parts
from partition.importing.readers import Layout, dgl_bin, guess_format, read_source

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


WRAPPED = {
    "dict": lambda fields: fields,
    "data": as_data,
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
    ({"wrap": lambda f: write.instance(HETERO, "HeteroData", {"_node_store_dict": {}})}, "several"),
    ({"wrap": lambda f: ({"_global_store": {}}, None)}, "several types"),
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
    head = u64(dgl_bin.ARRAY, 0) + struct.pack("<iii", 1, 0, values.ndim) + kind
    return head + u64(*values.shape, values.nbytes) + values.tobytes()


def tables(data):
    return u64(1, len(data)) + b"".join(text(name) + array(a) for name, a in data.items())


def csr(rows, indptr, column, number=EMPTY):
    head = u64(dgl_bin.CSR, rows, rows)
    return head + array(indptr) + array(column) + array(number) + b"\0"


def metagraph(types=1):
    return u64(dgl_bin.IMMUTABLE) + csr(types, np.arange(types + 1), np.zeros(types, np.int64))


N, SOURCE, TARGET = 4, np.array([2, 0, 2]), np.array([1, 2, 3])


def in_form(form):
    if form == "coo":
        return u64(dgl_bin.COO, N, N) + array(SOURCE) + array(TARGET) + array(EMPTY) + b"\0\0"
    if form == "csc":
        return csr(N, np.array([0, 0, 1, 2, 3]), np.array([2, 0, 2]))
    number = np.array([1, 0, 1 if form == "twice" else 2])  # of an arc
    return csr(N, np.array([0, 1, 1, 3, 3]), np.array([2, 1, 3]), number)


def dgl_saved(path, form="coo", graphs=1, version=2, types=1, data=None, arcs=None, old=0, sizes=4):
    """A file as DGL 2.1 writes it."""
    data, arcs = DGL_DATA if data is None else data, ARCS if arcs is None else arcs
    head = u64(dgl_bin.FILE, version, 2, graphs).ljust(4096, b"\0")
    labels = u64(1) + text("y") + array(np.ones(2, np.float32))
    bits = {"coo": 1, "csr": 2, "twice": 2, "csc": 4}[form] | (0 if old else 1 << 32)
    body = u64(dgl_bin.HETERO) + metagraph(types) + u64(1, dgl_bin.UNIT, bits, 7 | 1 << 32)
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
    assert source.labels.tolist() == [0, 1, 1, 0]
    assert source.masks["train"].tolist() == [True, False, False, False]


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


def partitioned(folder, **change):
    """Two parts of a graph: vertices 0 and 1, and 2 and 3, in graphs that have halos too."""
    facts = {"num_parts": 2, "node_map": {"_N": [[0, 2], [2, 4]]}, "etypes": {"_N:_E:_N": 0}}
    own = {0: [1, 0, 0], 1: [0, 1, 1]}
    for part, order in ((0, [0, 1, 2, 3]), (1, [2, 3, 0, 1])):
        inside = folder / f"part{part}"
        inside.mkdir(parents=True)
        arcs = {"inner_edge": np.array(own[part], np.uint8)}
        dgl_saved(inside / "graph.dgl", data={"_ID": np.array(order)}, arcs=arcs)
        rows = {"_N/feat": np.array([[part, 0.0], [part, 1]]), "_N/label": np.array([0, 1])}
        raw = u64(dgl_bin.TENSORS, 2) + tables(rows)[8:]
        (inside / "node_feat.dgl").write_bytes(raw)
        facts[f"part-{part}"] = {"part_graph": f"part{part}/graph.dgl",
                                 "node_feats": f"part{part}/node_feat.dgl"}  # fmt: skip
    (folder / "tiny.json").write_text(json.dumps(facts | change))
    return folder


def test_a_partitioned_graph_is_put_together_and_its_parts_are_a_partition(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = read_source(partitioned(tmp_path / "tiny"))
    assert (source.format, source.n) == ("distdgl", 4)
    # The first arc in the numbers of part 0, the others in those of part 1.
    assert list(zip(source.source, source.target, strict=True)) == [(2, 1), (2, 0), (0, 1)]
    assert source.features.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert source.labels.tolist() == [0, 1, 0, 1]
    run("import", "tiny", "g.graph")
    run("import-parts", "g.graph", "tiny/tiny.json", "--name", "theirs")
    assert read_partition("g.graph", "theirs").parts.tolist() == [0, 0, 1, 1]


PARTITIONED = [
    ("node_map", {"a": [[0, 4]], "b": [[0, 1]]}, "several types"),
    ("node_map", {"_N": [[0, 2], [3, 4]]}, "do not follow each other"),
    ("node_map", {"_N": [[0, 2], [2, 1]]}, "do not rise"),
    ("node_map", {"_N": [[0, 3], [3, 4]]}, "not of 3 rows"),
    ("part-1", None, "does not name the files of part 1"),
    ("part-1", {"part_graph": "elsewhere"}, "there is no file"),
    ("part-1", {"part_graph": "part1/graph.dgl"}, "not all parts have feat"),
]


def test_spoiled_descriptions_are_refused(tmp_path):
    for number, (key, value, message) in enumerate(PARTITIONED):
        folder = partitioned(tmp_path / str(number), **{key: value})
        refuses(message, read_source, folder)
        refuses(r"describes 4 vertices|types|rise|follow", read_parts, folder / "tiny.json", 5)
