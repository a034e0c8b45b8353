"""Every reader of graphs but those of torch and DGL, the choice of one, and what all refuse."""

import bz2
import collections
import gzip
import io
import json
import lzma
import os
import pickle
import resource
import shutil
import sys
import tarfile
import zipfile
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from command_line import refused, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ogb_folders import rows, write_binary, write_text
from refusals import refuses
from small_graphs import arcs_in
from traced import takes_less_than

from partition import records
from partition.graph.store import open_graph
from partition.importing import readers
from partition.importing.arcs import allocate_in, build_graph
from partition.importing.assemble import import_graph
from partition.importing.readers import files, libraries, metis_files, parquet
from partition.importing.readers.reading import open_stream, read_source
from partition.importing.readers.source import Layout, Reading
from partition.importing.readers.vertex_tables import read_features, read_labels

BANNER = "%%MatrixMarket matrix coordinate "


def put(folder, name, content, packs=True):
    """Write a text or bytes, through gzip where the name ends in .gz and it packs; the path."""
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(raw) if packs and name.endswith(".gz") else raw)
    return folder / name


def arcs_of(source):
    return list(zip(source.source.tolist(), source.target.tolist(), strict=True))


# Matrix Market


PATTERN, REALS = BANNER + "pattern general\n", BANNER + "real general\n"
MTX = {
    "3 3 1\n1 2\n": "line 1 does not begin with %%MatrixMarket",
    "%%MatrixMarket matrix coordinate pattern\n1 1 0\n": "line 1: expected",
    "%%MatrixMarket matrix array real general\n1 1\n": "layout 'array' is not supported",
    BANNER + "complex general\n1 1 0\n": "field 'complex' is not supported",
    BANNER + "real skew-symmetric\n1 1 0\n": "'skew-symmetric' is not supported",
    REALS + "3 3\n": "line 2: expected 'ROWS COLUMNS ENTRIES'",
    REALS + "3 4 1\n1 1 1\n": "square, this one is 3 x 4", REALS + "0 0 0\n": "without vertices",
    PATTERN + "%\n3 3 2\n1 2\n4 1\n": "line 5: row index out of bounds",
    PATTERN + "3 3 2\n1 2\n1 0\n": "line 4: column index out of bounds",
    PATTERN + "3 3 2\n1 2\n": "announces 2 entries but holds 1",
    PATTERN + "3 3 1\n1 2\n2 3\n": "line 4: more entries than the 1 announced",
    PATTERN + "3 3 2\n1 2\n2\n": "line 4: invalid integer",
    REALS + "3 3 1\n1 2 1~": "line 3: '~' is not part of a number",
    PATTERN + "3 3 1\n1 2 0.5\n": "line 3: an entry of a pattern matrix",
    REALS + "3 3 1\n1 2\n": "line 3: an entry of a real matrix has 3 columns",
    REALS + "3 3 2\n1 2 1\n2 3 nan\n": "line 4: 'n' is not part",
    REALS + "3 3 1\n1 2 1e999\n": "weight of entry 1 is inf",
}  # fmt: skip


@pytest.mark.parametrize("name", ["bad.mtx", "bad.mtx.gz"])
def test_mtx_refuses(tmp_path, name):
    for text, message in MTX.items():
        told = refuses(message, read_source, put(tmp_path, name, text), "mtx").message
        assert (name in told, "\n" in told) == (True, False)


@pytest.mark.parametrize("name", ["bad.mtx", "bad.mtx.gz"])
def test_absurd_announcements_allocate_nothing(tmp_path, name):
    for size, message in (
        ("9 9 4000000000", "more than a file of its size"),
        ("3000000000 3000000000 1", "3000000000 vertices for only 1 entries"),
        ("9 9 99999999999999999999", "expected 'ROWS COLUMNS ENTRIES'"),
    ):
        path = put(tmp_path, name, f"{BANNER}pattern general\n{size}\n1 2\n")
        assert takes_less_than(10_000_000, partial(refuses, message, read_source, path))


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data(), n=st.integers(1, 30), weighted=st.booleans(), symmetric=st.booleans())
def test_mtx_round_trip(tmp_path, data, n, weighted, symmetric):
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    pairs = sorted(data.draw(st.sets(pair, max_size=60)))
    if symmetric:
        pairs = sorted({(max(p), min(p)) for p in pairs})
    value = st.floats(allow_nan=False, allow_infinity=False)
    values = {(i, j): data.draw(value) if weighted else 1.0 for i, j in pairs}
    ends = np.array(pairs, int).reshape(-1, 2).T
    matrix = sp.coo_array((list(values.values()), tuple(ends)), shape=(n, n))
    path, kind = tmp_path / "r.mtx", "symmetric" if symmetric else "general"
    scipy.io.mmwrite(path, matrix, field="real" if weighted else "pattern", symmetry=kind)
    graph, facts = build_graph(read_source(path))
    if symmetric:
        values |= {(j, i): value for (i, j), value in values.items()}
    found = zip(arcs_in(graph), graph.adjacency().data, strict=True)
    assert list(found) == sorted(values.items())
    assert facts["arcs_read"] == len(pairs)


# The choice of a format


def test_formats_are_judged_by_content_and_name(tmp_path):
    for name, text, format in (
        *((name, BANNER + "pattern general\n", "mtx") for name in ("a.txt", "a.gz")),
        *((f"a.{end}", "1 2\n", "edges") for end in ("GZ", "edges", "tsv")),
        ("a.mtx", "", "mtx"),
        ("a.npz", "", "npz"),
    ):
        assert readers.guess_format(put(tmp_path, name, text)) == format
    put(tmp_path, "ind.x.graph", "")
    assert readers.guess_format(tmp_path / "ind.x") == "planetoid"
    refuses("cannot tell the format", readers.guess_format, put(tmp_path, "a.dat", "1 2\n"))
    refuses("is a folder", readers.guess_format, tmp_path)
    assert "did you mean 'mtx'?" in refuses(".", read_source, "a.mtx", "mtz").hint
    for format in ("auto", *readers.READERS):
        refuses(r"there is no file .*absent", read_source, tmp_path / "absent", format)


# Damaged files


@pytest.mark.parametrize("format", ["mtx", "edges"])
def test_truncated_and_corrupt_gzip(tmp_path, format):
    pairs = np.random.default_rng(0).integers(1, 1000, (5000, 2))
    head = BANNER + "pattern general\n1000 1000 5000\n" if format == "mtx" else ""
    whole = gzip.compress((head + "".join(f"{i} {j}\n" for i, j in pairs)).encode())
    for size in (3, 12, 500, len(whole) - 4):
        cut = put(tmp_path, "cut", whole[:size])
        refuses(r"truncated or damaged|more than a file of its size", read_source, cut, format)
    damaged = whole[: len(whole) // 2].ljust(len(whole), b"\0")
    refuses("cut", read_source, put(tmp_path, "cut", damaged), format)


# Packed files, and files of partitioners

LIST, MATRIX = "0 1 2.5\n1 2 0.5\n", BANNER + "real general\n3 3 2\n1 2 2.5\n2 3 0.5\n"
ONE_SIGN = MATRIX.replace("%%Matrix", "%Matrix")


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "."), text)
            archive.filelist[-1].filename = name.replace("__", ".").removeprefix("nameless")
    return file.getvalue()


def tarred(mode="w", **members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(f"../{name.replace('__', '.')}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return file.getvalue()


PACKED = {
    "a.txt.bz2": bz2.compress(LIST.encode()), "a.txt.xz": lzma.compress(LIST.encode()),
    "a.zst": pa.compress(LIST.encode(), "zstd", asbytes=True),
    "a.csv.zip": zipped(readme__md="x", some__txt=LIST),
    "a.tar": tarred(a__txt=LIST, b__txt="5 6\n"),
    "a.tar.gz": tarred("w:gz", other__mtx="", a__mtx=MATRIX),
    "a.tgz": tarred("w:gz", other__mtx=MATRIX), "a.mtx.gz": tarred("w:gz", a__mtx=MATRIX),
    "a.gz": tarred("w", a__mtx=MATRIX), "a.zip": zipped(a__txt__gz=gzip.compress(LIST.encode())),
    "a.edges": ONE_SIGN, "b.mtx": ONE_SIGN,
    "c.mtx": "\ufeff" + MATRIX.replace("%%Matrix", "% matrix"),
}  # fmt: skip


def test_what_is_packed_is_read_by_what_it_is(tmp_path):
    for name, content in PACKED.items():
        source = read_source(put(tmp_path, name, content, packs=False))
        assert arcs_of(source) == [(0, 1), (1, 2)], name
        assert source.weights.tolist() == [2.5, 0.5]


MANY = "1 2\n" * (1 << 16)
REFUSED = [
    ("a.zip", zipped(b__txt=LIST, c__txt=LIST), "zip archive of 'b.txt', 'c.txt'"),
    ("a.tar.gz", tarred("w:gz", b__txt=LIST, c__txt=LIST), "tar archive of"),
    ("a.txt.xz", PACKED["a.txt.xz"][:-20], "truncated or damaged"),
    ("a.txt.bz2", PACKED["a.txt.bz2"][:-9], "truncated or damaged"),
    ("a.txt.zst", PACKED["a.zst"][:-3] + b"xyz", "a.txt.zst"),
    ("a.txt.gz", gzip.compress(zipped(a__txt=LIST)), "compressed again"),
    ("a.npy.gz", gzip.compress(b"x"), "compressed with gzip: the format npy"),
    ("a.txt.bz2", bz2.compress(MANY.encode()), "more than 100 times"),
    ("a.zip", zipped(nameless=LIST), "zip archive of nothing"),
    ("a.zip", zipped(a__txt=MANY), "more than 100 times"),
    ("a.hgr", "2 3\n1 2\n2 3\n", "hypergraph of hMETIS"),
]


def test_what_is_packed_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREE_CONTENT", 1 << 16)
    for name, content, message in REFUSED:
        refuses(message, read_source, put(tmp_path, name, content, packs=False))


RING = "2 6\n1 3\n2 4\n3 5\n4 6\n5 1\n"
ARCS = [(0, 1), (0, 2), (1, 0), (2, 0), (2, 3), (3, 2)]
GRAPHS = {  # of METIS, with the weights of ARCS where there are some
    "plain": ("4 3\n2 3\n1\n1 4\n3\n", None),
    "edges": ("% note\n4 3 1\n2 5 3 6\n1 5\n%x\n1 6 4 7\n3 7\n\n", [5, 6, 5, 6, 7, 7]),
    "vertices": ("4 3 010\n9 2 3\n9 1\n9 1 4\n9 3", None),
    "all": ("4 3 111 2\n8 9 9 2 5 3 6\n8 9 9 1 5\n8 9 9 1 6 4 7\n8 9 9 3 7\n", [5, 6, 5, 6, 7, 7]),
    "sizes": ("4 3 100\r\n1 2 3\r\n1 1\r\n1 1 4\r\n1 3\r\n", None),
}  # fmt: skip


@pytest.mark.parametrize("block", [1 << 20, 3])
def test_graphs_of_metis(tmp_path, monkeypatch, block):
    monkeypatch.setattr(metis_files, "BLOCK", block)
    for text, weights in GRAPHS.values():
        source = read_source(put(tmp_path, "g.graph", text))
        assert (source.n, source.format, arcs_of(source)) == (4, "metis", ARCS)
        assert weights == (None if source.weights is None else source.weights.tolist())
        refuses("of METIS", read_source, put(tmp_path, "g.txt", text), "edges")
        refuses("--format metis", read_source, tmp_path / "g.txt")
    source = read_source(put(tmp_path, "g.metis", "5 1\n\n3\n2\n\n\n"))
    assert (source.n, arcs_of(source)) == (5, [(1, 2), (2, 1)])
    assert read_source(put(tmp_path, "h.metis", "2 0 011\n4\n4\n")).weights.tolist() == []


METIS = {
    "": "holds no graph", "2 1 2\n2\n1\n": "the first line",
    "2 1 001 1\n2 1\n1 1\n": "the first line", "3 1\n2\n1\n": "has lines of 2",
    "2 1\n2\n1\n2\n": "line 4: there are more", "2 1\n3\n1\n": "line 2: vertex 1 names",
    "2 1\n2\n0\n": "line 3: vertex 2",
    "3 2\n2 3\n1\n\n": "line 2: vertex 1 has the neighbour 3.* line 4",
    "3 2\n2\n1 3\n\n": "line 3: vertex 2 has the neighbour 3.* line 4",
    "2 1 1\n2 5\n1 6\n": "with this weight", "2 1 1\n2 0\n1 0\n": "line 2: a weight",
    "2 1 1\n2\n1 1\n": "line 2: vertex 1 has 1 numbers", "2 0\n2\n1\n": "announces 0 edges",
    "2 2\n2\n1\n": "announces 2 edges", "2 1\n2\nx\n": "line 3: 'x' is not whole numbers",
    "2 1\n9999999999999999999\n1\n": "line 2",
}  # fmt: skip


def test_graphs_of_metis_that_are_wrong(tmp_path):
    for text, message in METIS.items():
        refuses(message, read_source, put(tmp_path, "g.graph", text), "metis")


SIZED = {
    "ring of METIS": ("6 6\n" + RING, "--format metis"),
    "hMETIS": ("3 4\n1 2 3\n2 3\n1 4\n", "import-parts"),
    "weights of hMETIS": ("3 4 11\n5 1 2\n1 2 3\n2 1 4\n1\n1\n1\n1\n", "import-parts"),
    "PaToH": ("1 4 3 6\n1 2\n2 3\n3 4\n", "import-parts"),
    "matrix": ("4 4 3\n2 1 5\n3 1 2\n4 3 1\n", "MatrixMarket"),
    "sizes": ("5 4\n0 1\n1 2\n2 3\n3 4\n", "--header"), "banner": (ONE_SIGN, "--format mtx"),
}  # fmt: skip


def test_sizes_are_no_edge(tmp_path):
    for case, (text, hint) in SIZED.items():
        path = put(tmp_path, "e.txt", text)
        assert hint in refuses("sizes|Matrix Market", read_source, path, "edges").hint
        given = path, "edges", Layout(), Reading()
        refuses("sizes|Matrix Market", open_stream, *given)
        if case in ("ring of METIS", "sizes"):
            chosen = read_source(path, layout=Layout(columns="source,target"))
            assert len(chosen.source) == text.count("\n")
    for text in ("3 4\n1 2\n2 3\n3 4\n5 1\n", "2 1\n1 2\n", "3 3\n1 2\n9 3\n1 1\n"):
        assert len(read_source(put(tmp_path, "e.txt", text)).source) == text.count("\n")


@pytest.mark.parametrize("form", ["graphml", "gml", "json"])
@pytest.mark.parametrize("directed", [False, True])
def test_files_of_networkx(tmp_path, monkeypatch, form, directed):
    networkx = pytest.importorskip("networkx")
    graph = (networkx.DiGraph if directed else networkx.Graph)()
    graph.add_nodes_from([("b", {"y": 1}), ("a", {"y": 0}), ("c", {"y": 1})])
    graph.add_weighted_edges_from([("b", "a", 2.5), ("a", "c", 0.5)])
    text = json.dumps(networkx.node_link_data(graph))
    if form != "json":
        getattr(networkx, f"write_{form}")(graph, file := io.BytesIO())
        text = file.getvalue().decode()
    for name, raw in ((f"g.{form}", text), (f"g.{form}.gz", text.replace('"edges"', '"links"'))):
        source = read_source(put(tmp_path, name, raw))
        assert (arcs_of(source), source.weights.tolist()) == ([(0, 1), (1, 2)], [2.5, 0.5])
        assert (source.ids.tolist(), source.labels.tolist()) == (["b", "a", "c"], [1, 0, 1])
        assert source.symmetric != directed
    refuses("not read as|neither", read_source, put(tmp_path, f"bad.{form}", '{"a": 1}'))
    monkeypatch.setitem(sys.modules, "networkx", None)
    refuses("package networkx", read_source, put(tmp_path, "g.gml", "graph [ ]"))


# The formats that bring features and labels: planetoid and gnn-benchmark

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
    assert (source.n, source.features.dtype, source.labels.dtype) == (10, np.float32, np.int32)
    assert source.features[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 9, 10]
    assert source.labels.tolist() == CLASSES.tolist()
    members = {name: np.flatnonzero(mask).tolist() for name, mask in source.masks.items()}
    assert members == {"train": [0, 1], "val": [2, 3, 4, 5], "test": [6, 8, 9]}
    graph, facts = build_graph(source)
    # 9 → 6 was missing.
    assert arcs_in(graph) == [(0, 1), (0, 2), (1, 0), (2, 0), (6, 9), (8, 8), (9, 6)]
    assert facts["duplicates"]["found"] == 1


class Hostile:
    def __init__(self, call, *args):
        self.call = call, args

    def __reduce__(self):
        return self.call


OTHER = sp.csr_matrix(np.eye(6, 2, dtype=np.float32))
OTHER.indices = OTHER.indices[:1]
SHAPELESS = sp.csr_matrix(np.eye(6, 2, dtype=np.float32))
SHAPELESS._shape = (6, 2**100)
PLANETOID = [
    ("x", Hostile(os.system, "true"), r"posix\.system|nt\.system"),
    ("allx", Hostile(np.ndarray, (10**12,)), r"toy.allx"),
    ("graph", [[1], [0]], r"does not hold a dict"),
    ("graph", {0: [10]}, r"names a vertex outside 0\.\.9"),
    ("graph", {0: [0.5]}, r"something else than whole numbers"),
    ("graph", dict.fromkeys(range(10), list(range(10)) * 9), r"more neighbours than"),
    ("y", np.array(["a"], object), r"damaged array"),
    ("allx", OTHER, r"allx: 1 indices but 2 values"),
    ("ally", np.ones((6, 3)), r"rows with a single 1"),
    ("ally", np.eye(5, 3), r"has 6 rows, its labels 5"),
    ("tx", sp.csr_matrix((3, 5), dtype=np.float32), r"differ in their columns"),
    ("tx", sp.csr_matrix(np.full((3, 2), np.nan)), r"features of vertex 0, column 0"),
    ("graph", {0: [2**70]}, r"a number beyond 64 bits"),
    ("allx", SHAPELESS, r"a CSR matrix without a shape"),
    ("test.index", b"8 6\n", r"names 2 vertices, tx has 3"),
    ("test.index", b"8 6 x\n", r"not a list of vertex numbers"),
    ("test.index", b"8 6 6\n", r"one of them twice"),
    ("test.index", b"8 6 5\n", r"not those after the 6"), ("test.index", b"", r"names no vertex"),
]  # fmt: skip


def test_planetoid_refuses(tmp_path):
    for part, value, message in PLANETOID:
        prefix = write_planetoid(tmp_path, planetoid_parts() | {part: value})
        assert "toy" in refuses(message, read_source, prefix).message
    prefix = write_planetoid(tmp_path, planetoid_parts() | {"ally": np.zeros((6, 3))})
    assert read_source(prefix).labels[:6].tolist() == [-1] * 6
    (tmp_path / "ind.toy.ty").unlink()
    refuses(r"there is no file .*ind\.toy\.ty", read_source, prefix)


# gnn-benchmark


def write_npz(folder, **changes):
    adjacency = sp.csr_array(np.array([[0, 1, 1], [0, 0, 1], [0, 0, 1]], np.float32))
    attributes = sp.csr_array(np.array([[0, 2], [1, 0], [0, 0]], np.float32))
    arrays = {"labels": np.array([1, 0, -1])}
    for name, matrix in (("adj", adjacency), ("attr", attributes)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{name}_{part}"] = np.array(getattr(matrix, part))
    arrays["class_names"] = np.array(["a", None], object)  # must not be unpickled
    arrays = {key: value for key, value in (arrays | changes).items() if value is not None}
    np.savez_compressed(folder / "toy.npz", **arrays)
    return folder / "toy.npz"


NPZ = [
    ({"adj_indptr": None}, r"has no array adj_indptr"),
    ({"adj_shape": np.array([3, 4])}, r"3 x 4, not square"),
    ({"adj_shape": np.array([2**40, 2**40])}, r"4 row pointers do not fit the shape"),
    ({"adj_shape": np.array([3.0, 3.0])}, r"not a pair of integers"),
    ({"adj_indptr": np.array([0, 3, 2, 4])}, r"row pointers do not rise"),
    ({"adj_indices": np.array([1, 2, 3, 2])}, r"column index is outside 0\.\.2"),
    ({"adj_indices": np.array([1, 2, 2.0, 2])}, r"indices is not a vector of integers"),
    ({"adj_data": np.array([1, 2, np.nan, 1])}, r"weight of entry 3 is nan"),
    ({"adj_data": np.ones(3)}, r"4 indices but 3 values"),
    ({"attr_data": np.array([1, np.inf])}, r"features of vertex 1, column 0"),
    ({"attr_shape": np.array([3, 10**12])}, r"1000000000000 columns for only 2 entries"),
    ({"attr_matrix": np.ones((2, 2))}, r"attributes of 2 vertices, the graph has 3"),
    ({"labels": np.array([0, 1, -2])}, r"label -2 of vertex 2 is outside"),
    ({"labels": np.array([0, 1, 0.5])}, r"labels must be a vector of integers"),
    ({"labels": np.array([0, None, 1], object)}, r"labels: Object arrays"),
]


def test_npz_refuses(tmp_path):
    for changes, message in NPZ:
        assert "toy.npz" in refuses(message, read_source, write_npz(tmp_path, **changes)).message
    named = read_source(write_npz(tmp_path, class_names=np.array([b"a", b"b"])))
    assert (named.class_names, named.labels.tolist()) == (("a", "b"), [1, 0, -1])
    bare = read_source(write_npz(tmp_path, labels=None, attr_indptr=None))
    assert (bare.features, bare.labels, arcs_of(bare)) == (None, None, arcs_of(named))


# Folders of graphs as OGB publishes them; data sets by name

ENDS = np.array([[0, 1], [1, 2], [4, 0], [3, 3], [0, 1]])
X = np.array([[0.5, -1], [2, 3e-3], [0, 0], [7, 8], [9, 1]])
Y = np.array([[0], [2], [0], [2], [5]])
PARTS = ([0, 1], [2], [3, 4])


@pytest.mark.parametrize("write", [write_text, write_binary])
@pytest.mark.parametrize("memory", [None, 1e9])
def test_a_folder_comes_with_its_features_classes_and_split(tmp_path, write, memory):
    root = write(tmp_path / "ogbn_tiny", 6, ENDS, np.append(X, [[1, 1]], 0), np.append(Y, [[5]], 0),
                 PARTS)  # fmt: skip
    assert readers.guess_format(root) == "ogb"
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
        *((text, [0, -1, 1, -1]) for text in (b'0\n""\n1\n""', b"0\n\n1\n\n")),
        (b"0,1\n,1\n0,\n", [[0, 1], [np.nan, 1], [0, np.nan]]),
    ):
        root = write_text(tmp_path / str(len(text)), len(expected), ends)
        (root / "raw" / "node-label.csv.gz").write_bytes(gzip.compress(text))
        found = read_source(root)
        found = found.targets if found.labels is None else found.labels
        np.testing.assert_array_equal(found, expected)


SPOILED = [  # a file, its lines, and what is told
    ("edge_index_dict.npz", [1], "vertices of several types"),
    ("num-node-list.csv.gz", [2, 3], "holds 2 graphs"),
    ("num-node-list.csv.gz", [10**15], "of memory"),
    ("num-node-list.csv.gz", [0], "a graph without vertices"),
    ("edge.csv.gz", [[0, 9]] * 5, "a vertex outside 0..4"),
    ("edge.csv.gz", [[0, 1]], "has 1 arcs, 5 are announced"),
    ("node-feat.csv.gz", X[:3], "has 3 rows"),
    ("node-label.csv.gz", [0] * 7, "more rows than the graph"),
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
    counts, index = {"num_nodes_list": [3], "num_edges_list": [3]}, np.zeros((2, 3), np.int64)
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
    np.testing.assert_array_equal(stored.graph.features[:], data.x.numpy())
    np.testing.assert_array_equal(stored.graph.labels, data.y.numpy())
    assert stored.manifest.nnz == data.num_edges
    assert "unknown data set of pyg 'KarateClu'" in refused("import", "pyg:KarateClu", "a.graph")
    run("import", "pyg:FakeHeteroDataset", tmp_path / "typed.graph")
    assert len(open_graph(tmp_path / "typed.graph").manifest.vertex_types) == 3
    told = refused("import", "pyg:FakeDataset/x/y", tmp_path / "a.graph")
    assert told.startswith("error: the library cannot load pyg:FakeDataset/x/y: TypeError")


def test_a_data_set_of_ogb_is_its_folder_and_is_loaded_once(tmp_path, cache, monkeypatch):
    def loaded(name, root):
        assert not (cache / "ogb").exists()
        return SimpleNamespace(root=write_text(Path(root) / "ogbn_tiny", 3, [(0, 1), (1, 2)]))

    library = SimpleNamespace(NodePropPredDataset=loaded)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", library)
    for name in ("a", "b"):
        told = run("import", "ogb:ogbn-tiny", tmp_path / f"{name}.graph")
        assert open_graph(tmp_path / f"{name}.graph").manifest.nnz == 2
    assert "--undirected" in told.stderr  # of OGB, where arcs go one way
    assert "is no node property data set" in refused("import", "ogb:tiny", tmp_path / "c.graph")


def test_a_data_set_of_dgl_is_saved_by_it(tmp_path, cache, monkeypatch):
    dgl, data = ModuleType("dgl"), ModuleType("dgl.data")
    data.Cora = type("Cora", (list,), {"__init__": lambda self, root: self.append(root)})
    data.Two = type("Two", (), {"__len__": lambda self: 2})
    dgl.save_graphs = lambda path, graphs: Path(path).write_text(str(graphs))
    for module in (dgl, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with libraries.local_file(Path("dgl:Cora")) as path:
        assert (path.suffix, path.read_text()) == (".bin", f"['{cache}/dgl/Cora']")
    assert not path.exists()
    assert "dgl:Two has 2 graphs" in refused("import", "dgl:Two", tmp_path / "a.graph")
    for name in ("ogb.nodeproppred", "dgl.data"):
        monkeypatch.setitem(sys.modules, name, None)
    for source in ("ogb:ogbn-arxiv", "dgl:Cora"):
        told = refused("import", source, tmp_path / "a.graph")
        assert f"pip install {source[:3]}" in told


# Parquet: lists of arcs and tables of vertices


def table_of(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def in_pieces(path):
    reading = Reading(allocate_in(path.parent))
    return list(open_stream(path, "auto", Layout(), reading).pieces)


def test_lists_of_arcs_with_ids_of_both_kinds(tmp_path):
    columns = {"weight": [0.5, 2], "dst": [7, 9], "kind": ["k", "l"], "src": [5, 7]}
    path = table_of(tmp_path / "e.parquet", **columns)
    source = read_source(path)
    assert (source.format, source.n, source.ids.tolist()) == ("parquet", 3, [5, 7, 9])
    assert (source.source.tolist(), source.target.tolist()) == ([0, 1], [1, 2])
    assert source.weights.tolist() == [0.5, 2]
    coded = pa.array(["y", "x"]).dictionary_encode()
    source = read_source(table_of(tmp_path / "t.parquet", a=coded, b=["z", "y"]))
    assert (source.ids.tolist(), source.source.tolist()) == (["x", "y", "z"], [1, 0])
    source = read_source(path, layout=Layout(columns="-,source,-,target", string_ids=True))
    assert (source.ids.tolist(), source.source.tolist()) == (["5", "7", "9"], [1, 2])
    assert read_source(path, layout=Layout(vertices="0..9")).n == 10


def test_what_is_unclear_or_damaged_is_refused(tmp_path, monkeypatch):
    for columns, message in (
        ({"a": [1], "b": [2], "c": [3]}, "the columns 'a', 'b', 'c', and it is not clear"),
        ({"source": [1, None], "target": [1, 2]}, "lacks 1 of its values"),
        ({"source": [0.5], "target": [1.5]}, "ids are float64"),
        ({"source": [1], "target": [2], "weight": ["x"]}, "weights are"),
        ({"source": [1], "target": [2], "weight": [np.inf]}, "not a finite number"),
        (dict.fromkeys(("source", "target"), pa.array([], pa.int64())), "no arcs"),
    ):
        path = table_of(tmp_path / "e.parquet", **columns)
        refuses(message, read_source, path)
        refuses(message, in_pieces, path)
    raw = table_of(tmp_path / "e.parquet", source=[1], target=[2]).read_bytes()
    name = raw.replace(b"target", b"targe\xff")
    for spoiled in (raw[:-9], raw[:4] + bytes(8) + raw[12:], b"PAR1", name):
        path.write_bytes(spoiled)
        refuses("truncated or damaged", read_source, path)
    lists = table_of(tmp_path / "x.parquet", n=[1, 2], x=[[1.0, 2], [3, 4]])
    assert read_features(lists).values.tolist() == [[1, 2], [3, 4]]
    for column, told in (([[1.0], [1.0, 2.0]], "different lengths"), (["a"], "'x' holds no numb")):
        refuses(told, read_features, table_of(tmp_path / "x.parquet", x=column))
    monkeypatch.setattr(parquet, "FREE_ARCHIVE", 1 << 10)
    table_of(tmp_path / "e.parquet", source=np.zeros(1 << 17, int), target=np.zeros(1 << 17, int))
    refuses("unpacks to more than 200 times its size", read_source, tmp_path / "e.parquet")


# Files that are made to exhaust memory, time or patience


MIBS = 18 << 20


BOMBS = {
    "newlines": (b"\n" * MIBS, "16 MiB of blanks and empty lines"),
    "late newlines": (b"1 2\n" + b"\n" * MIBS, "16 MiB of blanks and empty lines"),
    "comments": (b"#" + b" " * 4000 + b"\n", "MiB of comments"),
    "digits": (b"1" * MIBS, "longer than 65,536 bytes"),
    "zeros": (bytes(MIBS), "there is a NUL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("form", ["e.txt", "e.txt.gz"])
def test_lists_without_end_are_refused(tmp_path, name, form):
    raw, message = BOMBS[name]
    path = put(tmp_path, form, raw * (MIBS // 4000 if name == "comments" else 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuses(message, read_source, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_tables_without_end_are_refused(tmp_path):
    begin = PATTERN.encode() + b"3 3 1\n"
    for read, name, raw, message in (
        (read_source, "a.mtx", PATTERN.encode() + b"\n" * MIBS, "lines are comments or empty"),
        (read_source, "a.mtx", PATTERN.encode() + b" " * MIBS, "expected 'ROWS COLUMNS ENTRIES'"),
        (read_source, "a.mtx", begin + b" " * MIBS + b"1 2\n", "no entries but blanks"),
        (read_features, "t.csv", b"\n" * MIBS, "16 MiB of blanks and empty lines"),
        (read_labels, "t.csv", bytes(MIBS), "there is a NUL"),
        (read_features, "t.csv", b"1\n" + b" " * MIBS, "16 MiB of blanks|line 2 is longer"),
    ):
        refuses(message, read, put(tmp_path, name, raw))


def test_files_out_of_proportion_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FREE_ARCHIVE", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    refuses("more than 200 times its size, 4,194,432", read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    assert read_features(tmp_path / "x.npz").values.shape == (1 << 18, 2)
    monkeypatch.setattr(files, "FREE_CONTENT", 1 << 20)
    packed = put(tmp_path, "e.txt.gz", (b"1 2" + b" " * 4000 + b"\n") * (1 << 9))
    refuses("unpacks to more than 100 times its size", read_source, packed)


def test_pipes_and_devices_are_refused(tmp_path):
    for name in ("f.txt", "f.mtx", "f.npz", "f.npy", "f.gz"):
        os.mkfifo(tmp_path / name)
        for read in (read_source, read_features, read_labels):
            refuses("is a pipe, not a file", read, tmp_path / name)
    refuses("is a device, not a file", read_source, "/dev/zero")


def test_pickles_are_not_loaded(tmp_path):
    trap = Hostile(os.mkdir, str(tmp_path / "sprung"))
    (tmp_path / "x.npy").write_bytes(pickle.dumps(trap, 4))
    np.save(tmp_path / "o.npy", np.array([trap], object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", labels=np.array([trap], object))
    for name, message in (("x.npy", "pickle"), ("o.npy", "Object arrays"), ("o.npz", "Object")):
        for read in (read_features, read_labels):
            refuses(message, read, tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    told = refused("import", tmp_path / "e.txt", tmp_path / "h.graph")
    assert "h.graph: it takes 0 MiB, 0 are free" in told
    assert os.listdir(tmp_path) == ["e.txt"]
