"""Files of dgl.save_graphs, read without DGL; their bytes are written here by hand."""

import json
import struct

import numpy as np
import pytest
from command_line import run
from refusals import refuses

from partition.graph.store import open_graph, read_partition
from partition.importing.partfile import read_parts
from partition.importing.readers import dgl_bin, guess_format, read_source

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


def saved(
    path, form="coo", *, graphs=1, version=2, types=1, data=None, arcs=None, old=False, sizes=4
):
    """A file as DGL 2.1 writes it."""
    data, arcs = DATA if data is None else data, ARCS if arcs is None else arcs
    head = u64(dgl_bin.FILE, version, 2, graphs).ljust(4096, b"\0")
    labels = u64(1) + text("y") + array(np.ones(2, np.float32))
    bits = {"coo": 1, "csr": 2, "twice": 2, "csc": 4}[form] | (0 if old else 1 << 32)
    body = u64(dgl_bin.HETERO) + metagraph(types) + u64(1, dgl_bin.UNIT, bits, 7 | 1 << 32)
    body += metagraph() + in_form(form) + u64(1, sizes)
    body += tables(data) + tables(arcs)
    body += u64(1) + text("_N") + u64(1) + text("_E")
    path.write_bytes(head + u64(len(head) + 8 + len(labels)) + labels + body)
    return path


ARCS = {"w": np.array([[0.5], [1], [2]], np.float32), "t": SOURCE}
DATA = {
    "feat": np.arange(8, dtype=np.float32).reshape(4, 2),
    "label": np.array([0, 1, 1, 0]),
    "train_mask": np.array([1, 0, 0, 0], np.uint8),
    "year": np.array([1, 2, 3, 4]),
}


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_a_graph_comes_back_from_every_form(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "g.bin", form)
    source = read_source(path)
    assert (guess_format(path), source.n) == ("dgl", 4)
    assert (source.source.tolist(), source.target.tolist()) == ([2, 0, 2], [1, 2, 3])
    assert source.weights.tolist() == [0.5, 1, 2]
    assert source.notes == {"columns": "not read: t, year"}
    run("import", "g.bin", "g.graph")
    graph = open_graph("g.graph").graph
    np.testing.assert_array_equal(graph.features, DATA["feat"])
    assert graph.labels.tolist() == [0, 1, 1, 0]
    assert graph.masks["train"].tolist() == [True, False, False, False]


def test_other_files_are_refused(tmp_path):
    for change, message in (
        ({"graphs": 2}, "holds 2 graphs"),
        ({"version": 1}, "version 1 of DGL's format"),
        ({"old": True}, "an old version of DGL"),
        ({"types": 2}, "several types"),
        ({"sizes": 3}, r"vertices outside 0\.\.2"),
        ({"data": {"feat": np.zeros((3, 1))}}, "x has 3 rows"),
        ({"form": "twice"}, "."),
    ):
        refuses(message, read_source, saved(tmp_path / "g.bin", **change))


def partitioned(folder, **change):
    """Two parts of a graph: vertices 0 and 1, and 2 and 3, in graphs that have halos too."""
    facts = {"num_parts": 2, "node_map": {"_N": [[0, 2], [2, 4]]}, "etypes": {"_N:_E:_N": 0}}
    own = {0: [1, 0, 0], 1: [0, 1, 1]}
    for part, order in ((0, [0, 1, 2, 3]), (1, [2, 3, 0, 1])):
        inside = folder / f"part{part}"
        inside.mkdir(parents=True)
        arcs = {"inner_edge": np.array(own[part], np.uint8)}
        saved(inside / "graph.dgl", data={"_ID": np.array(order)}, arcs=arcs)
        rows = {"_N/feat": np.array([[part, 0.0], [part, 1]]), "_N/label": np.array([0, 1])}
        raw = u64(dgl_bin.TENSORS, 2, 2) + b"".join(text(k) + array(a) for k, a in rows.items())
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
    ("node_map", {"_N": [0, 2]}, "do not follow each other"),
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
