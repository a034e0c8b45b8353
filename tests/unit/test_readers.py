"""Text formats, the choice of a format, and what all readers refuse."""

import bz2
import gzip
import io
import json
import lzma
import sys
import tarfile
import zipfile
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refuses
from traced import takes_less_than

from partition.importing.assemble import build_graph
from partition.importing.readers import (
    READERS,
    Layout,
    Reading,
    guess_format,
    open_stream,
    read_source,
    sizes,
    unpacking,
)

BANNER = "%%MatrixMarket matrix coordinate "


def put(folder, name, content, packs=True):
    """Write a text or bytes, through gzip where the name ends in .gz and it packs; the path."""
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(raw) if packs and name.endswith(".gz") else raw)
    return folder / name


def arcs_of(source):
    return list(zip(source.source.tolist(), source.target.tolist(), strict=True))


# Matrix Market


def test_mtx(tmp_path):
    for field, tails, weights in (
        ("pattern", ("", "", ""), None),
        ("real", (" 1.5", " -2e-3", " 1"), [1.5, -2e-3, 1]),
        ("integer", (" 3", " -2", " 0"), [3, -2, 0]),
    ):
        entries = [f"{arc}{tail}\n" for arc, tail in zip(("1 2", "3 3", "3 1"), tails, strict=True)]
        text = f"{BANNER}{field} general\n% note\n%\n\n4 4 3\n" + "".join(entries)
        for raw in (text, text.replace("\n", "\r\n")):
            source = read_source(put(tmp_path, "a.mtx.gz", raw))
            assert (source.n, arcs_of(source)) == (4, [(0, 1), (2, 2), (2, 0)])
            assert weights == (None if source.weights is None else source.weights.tolist())
            assert (source.format, source.symmetric) == ("mtx", False)


PATTERN, REALS = BANNER + "pattern general\n", BANNER + "real general\n"
MTX = {
    "": "line 1 does not begin with %%MatrixMarket",
    "3 3 1\n1 2\n": "line 1 does not begin with %%MatrixMarket",
    "%%MatrixMarket matrix coordinate pattern\n1 1 0\n": "line 1: expected",
    "%%MatrixMarket matrix array real general\n1 1\n": "layout 'array' is not supported",
    BANNER + "complex general\n1 1 0\n": "field 'complex' is not supported",
    BANNER + "real hermitian\n1 1 0\n": "symmetry 'hermitian' is not supported",
    BANNER + "real skew-symmetric\n1 1 0\n": "'skew-symmetric' is not supported",
    REALS + "% only a comment\n": "line 3: expected 'ROWS COLUMNS ENTRIES'",
    REALS + "3 3\n": "line 2: expected 'ROWS COLUMNS ENTRIES'",
    REALS + "3 3 -1\n": "line 2: expected 'ROWS COLUMNS ENTRIES'",
    REALS + "3 4 1\n1 1 1\n": "square, this one is 3 x 4",
    REALS + "0 0 0\n": "without vertices",
    PATTERN + "%\n3 3 2\n1 2\n4 1\n": "line 5: row index out of bounds",
    PATTERN + "3 3 2\n1 2\n1 0\n": "line 4: column index out of bounds",
    PATTERN + "3 3 2\n1 2\n": "announces 2 entries but holds 1",
    PATTERN + "3 3 1\n1 2\n2 3\n": "line 4: more entries than the 1 announced",
    PATTERN + "3 3 2\n1 2\nx 3\n": "line 4: 'x' is not part of a number",
    PATTERN + "3 3 2\n1 2\n2\n": "line 4: invalid integer",
    REALS + "3 3 1\n1 2 1~": "line 3: '~' is not part of a number",
    REALS + "3 3 1\n1 2 1\0\n": "line 3: .* is not part of a number",
    PATTERN + "3 3 1\n1 2 0.5\n": "line 3: an entry of a pattern matrix",
    REALS + "3 3 1\n1 2\n": "line 3: an entry of a real matrix has 3 columns",
    REALS + "3 3 2\n1 2 1\n2 3 nan\n": "line 4: 'n' is not part",
    REALS + "3 3 1\n1 2 1e999\n": "weight of entry 1 is inf",
}


@pytest.mark.parametrize("name", ["bad.mtx", "bad.mtx.gz"])
def test_mtx_refuses(tmp_path, name):
    for text, message in MTX.items():
        caught = refuses(message, read_source, put(tmp_path, name, text), "mtx")
        assert name in caught.message
        assert "\n" not in caught.message


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
    source = np.repeat(np.arange(n), np.diff(graph.indptr)).tolist()
    found = zip(
        zip(source, graph.indices.tolist(), strict=True), graph.adjacency().data, strict=True
    )
    assert list(found) == sorted(values.items())
    assert facts["arcs_read"] == len(pairs)


# Edge lists


# The choice of a format


def test_formats_are_judged_by_content_and_name(tmp_path):
    for name, text, format in (
        ("a.txt", BANNER + "pattern general\n", "mtx"),
        ("a.gz", BANNER + "pattern general\n", "mtx"),
        ("a.GZ", "1 2\n", "edges"),
        ("a.edges", "1 2\n", "edges"),
        ("a.tsv", "1 2\n", "edges"),
        ("a.mtx", "", "mtx"),
        ("a.npz", "", "npz"),
    ):
        assert guess_format(put(tmp_path, name, text)) == format
    put(tmp_path, "ind.x.graph", "")
    assert guess_format(tmp_path / "ind.x") == "planetoid"
    refuses("cannot tell the format", guess_format, put(tmp_path, "a.dat", "1 2\n"))
    refuses("is a folder", guess_format, tmp_path)
    assert "did you mean 'mtx'?" in refuses(".", read_source, "a.mtx", "mtz").hint
    for format in ("auto", *READERS):
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
    half = len(whole) // 2
    damaged = whole[:half] + bytes(40) + whole[half + 40 :]
    refuses("cut", read_source, put(tmp_path, "cut", damaged), format)


# Packed files, and files of partitioners

LIST, MATRIX = "0 1 2.5\n1 2 0.5\n", BANNER + "real general\n3 3 2\n1 2 2.5\n2 3 0.5\n"
ONE_SIGN = MATRIX.replace("%%Matrix", "%Matrix")


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "."), text)
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
    "a.txt.bz2": bz2.compress(LIST.encode()),
    "a.txt.xz": lzma.compress(LIST.encode()),
    "a.zst": pa.compress(LIST.encode(), "zstd", asbytes=True),
    "a.csv.zip": zipped(readme__md="x", some__txt=LIST),
    "a.tar": tarred(a__txt=LIST, b__txt="5 6\n"),
    "a.tar.gz": tarred("w:gz", other__mtx="", a__mtx=MATRIX),
    "a.tgz": tarred("w:gz", other__mtx=MATRIX),
    "a.tar.xz": tarred("w:xz", a__mtx=MATRIX),
    "a.mtx.gz": tarred("w:gz", a__mtx=MATRIX),
    "a.gz": tarred("w", a__mtx=MATRIX),
    "a.zip": zipped(a__txt__gz=gzip.compress(LIST.encode())),
    "a.edges": ONE_SIGN,
    "b.mtx": ONE_SIGN,
    "c.mtx": "\ufeff" + MATRIX.replace("%%Matrix", "% matrix"),
}


def test_what_is_packed_is_read_by_what_it_is(tmp_path):
    for name, content in PACKED.items():
        source = read_source(put(tmp_path, name, content, packs=False))
        assert arcs_of(source) == [(0, 1), (1, 2)], name
        assert source.weights.tolist() == [2.5, 0.5]


LZMA, BZ2, MANY = lzma.compress(LIST.encode()), bz2.compress(LIST.encode()), "1 2\n" * (1 << 16)
ZST = pa.compress(LIST.encode(), "zstd", asbytes=True)
REFUSED = [
    ("a.zip", zipped(b__txt=LIST, c__txt=LIST), "zip archive of 'b.txt', 'c.txt'"),
    ("a.tar.gz", tarred("w:gz", b__txt=LIST, c__txt=LIST), "tar archive of"),
    ("a.txt.xz", LZMA[:-20], "truncated or damaged"),
    ("a.txt.bz2", BZ2[:-9], "truncated or damaged"),
    ("a.txt.zst", ZST[:-3] + b"xyz", "a.txt.zst"),
    ("a.txt.gz", gzip.compress(zipped(a__txt=LIST)), "compressed again"),
    ("a.npy.gz", gzip.compress(b"x"), "compressed with gzip: the format npy"),
    ("a.txt.bz2", bz2.compress(MANY.encode()), "more than 100 times"),
    ("a.zip", zipped(a__txt=MANY), "more than 100 times"),
    ("a.hgr", "2 3\n1 2\n2 3\n", "hypergraph of hMETIS"),
]


def test_what_is_packed_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREE_CONTENT", 1 << 16)
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
    monkeypatch.setattr(sizes, "BLOCK", block)
    for text, weights in GRAPHS.values():
        source = read_source(put(tmp_path, "g.graph", text))
        assert (source.n, source.format, arcs_of(source)) == (4, "metis", ARCS)
        assert weights == (None if source.weights is None else source.weights.tolist())
        refuses("of METIS", read_source, put(tmp_path, "g.txt", text), "edges")
        refuses("--format metis", read_source, tmp_path / "g.txt")
    source = read_source(put(tmp_path, "g.metis", "5 1\n\n3\n2\n\n\n"))
    assert (source.n, arcs_of(source)) == (5, [(1, 2), (2, 1)])
    assert read_source(put(tmp_path, "h.metis", "2 0 011\n4\n4\n")).weights.tolist() == []
    assert read_source(put(tmp_path, "i.metis", "1 0 1\n\n")).n == 1


METIS = {
    "": "holds no graph",
    "4\n": "the first line is not",
    "2 1 2\n2\n1\n": "the first line",
    "2 1 1 1\n2 1\n1 1\n": "the first line is not",
    "3 1\n2\n1\n": "has lines of 2",
    "2 1\n2\n1\n2\n": "line 4: there are more",
    "2 1\n3\n1\n": "line 2: vertex 1 names",
    "2 1\n%\n1\n1\n": "line 3: vertex 1 names itself",
    "2 1\n2\n0\n": "line 3: vertex 2",
    "3 2\n2 3\n1\n\n": "line 2: vertex 1 has the neighbour 3.* line 4",
    "3 2\n2\n1 3\n\n": "line 3: vertex 2 has the neighbour 3.* line 4",
    "2 1 1\n2 5\n1 6\n": "with this weight",
    "2 1 1\n2 0\n1 0\n": "line 2: a weight",
    "2 1 1\n2\n1 1\n": "line 2: vertex 1 has 1 numbers",
    "2 2\n2\n1\n": "announces 2 edges",
    "2 0\n2\n1\n": "announces 0 edges",
    "2 1\n2\nx\n": "line 3: 'x' is not whole numbers",
    "2 1\n2.5\n1\n": "line 2",
    "2 1\n9999999999999999999\n1\n": "line 2",
}


def test_graphs_of_metis_that_are_wrong(tmp_path):
    for text, message in METIS.items():
        refuses(message, read_source, put(tmp_path, "g.graph", text), "metis")


SIZED = {
    "ring of METIS": ("6 6\n" + RING, "--format metis"),
    "hMETIS of pairs": ("3 4\n1 2\n2 3\n3 4\n", "import-parts"),
    "hMETIS": ("3 4\n1 2 3\n2 3\n1 4\n", "import-parts"),
    "weights of hMETIS": ("3 4 11\n5 1 2\n1 2 3\n2 1 4\n1\n1\n1\n1\n", "import-parts"),
    "PaToH": ("1 4 3 6\n1 2\n2 3\n3 4\n", "import-parts"),
    "matrix": ("4 4 3\n2 1 5\n3 1 2\n4 3 1\n", "MatrixMarket"),
    "weighted": ("4 4 3\n2 1 0.5\n3 1 -2e-1\n4 3 1\n", "MatrixMarket"),
    "sizes": ("5 4\n0 1\n1 2\n2 3\n3 4\n", "--header"),
    "banner": (ONE_SIGN, "--format mtx"),
}  # fmt: skip


def test_sizes_are_no_edge(tmp_path):
    for case, (text, hint) in SIZED.items():
        path = put(tmp_path, "e.txt", text)
        assert hint in refuses("sizes|Matrix Market", read_source, path, "edges").hint
        refuses("sizes|Matrix Market", open_stream, path, "edges", Layout(), Reading())
        if case in ("ring of METIS", "hMETIS of pairs", "sizes"):
            chosen = read_source(path, layout=Layout(columns="source,target"))
            assert len(chosen.source) == text.count("\n")


def test_edges_that_are_no_sizes(tmp_path):
    for text in ("3 4\n1 2\n2 3\n3 4\n5 1\n", "2 1\n1 2\n", "3 3\n1 2\n9 3\n1 1\n", LIST):
        source = read_source(put(tmp_path, "e.txt", text))
        assert len(source.source) == text.count("\n")


@pytest.mark.parametrize("form", ["graphml", "gml", "json"])
@pytest.mark.parametrize("directed", [False, True])
def test_files_of_networkx(tmp_path, form, directed):
    networkx = pytest.importorskip("networkx")
    graph = (networkx.DiGraph if directed else networkx.Graph)()
    graph.add_nodes_from([("b", {"y": 1}), ("a", {"y": 0}), ("c", {"y": 1})])
    graph.add_weighted_edges_from([("b", "a", 2.5), ("a", "c", 0.5)])
    if form == "json":
        text = json.dumps(networkx.node_link_data(graph))
    else:
        getattr(networkx, f"write_{form}")(graph, file := io.BytesIO())
        text = file.getvalue().decode()
    for name, raw in ((f"g.{form}", text), (f"g.{form}.gz", text.replace('"edges"', '"links"'))):
        source = read_source(put(tmp_path, name, raw))
        assert arcs_of(source) == [(0, 1), (1, 2)]
        assert source.ids.tolist() == ["b", "a", "c"]
        assert source.weights.tolist() == [2.5, 0.5]
        assert (source.symmetric, source.labels.tolist()) == (not directed, [1, 0, 1])
    refuses("not read as|neither", read_source, put(tmp_path, f"bad.{form}", '{"a": 1}'))


def test_files_of_networkx_without_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    refuses("package networkx", read_source, put(tmp_path, "g.gml", "graph [ ]"))
