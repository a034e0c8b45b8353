"""Text formats, the choice of a format, and what all readers refuse."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refuses
from traced import takes_less_than

from partition.errors import UserError
from partition.importing.assemble import build_graph
from partition.importing.readers import READERS, guess_format, read_source
from partition.importing.readers.numbering import number_vertices

BANNER = "%%MatrixMarket matrix coordinate "


def put(folder, name, content):
    """Write a text or bytes, through gzip where the name ends in .gz; the path."""
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder / name


def arcs_of(source):
    return list(zip(source.source.tolist(), source.target.tolist(), strict=True))


# Matrix Market


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz"])
@pytest.mark.parametrize(
    ("field", "tails", "weights"),
    [
        ("pattern", ("", "", ""), None),
        ("real", (" 1.5", " -2e-3", " 1"), [1.5, -2e-3, 1]),
        ("integer", (" 3", " -2", " 0"), [3, -2, 0]),
    ],
)
def test_mtx(tmp_path, name, field, tails, weights):
    entries = [f"{arc}{tail}\n" for arc, tail in zip(("1 2", "3 3", "3 1"), tails, strict=True)]
    text = f"{BANNER}{field} general\n% note\n%\n\n4 4 3\n" + "".join(entries)
    source = read_source(put(tmp_path, name, text))
    assert source.n == 4
    assert arcs_of(source) == [(0, 1), (2, 2), (2, 0)]
    assert source.weights is None if weights is None else source.weights.tolist() == weights
    assert (source.format, source.symmetric) == ("mtx", False)


def test_mtx_symmetric_is_not_mirrored_by_the_reader(tmp_path):
    source = read_source(put(tmp_path, "a.mtx", BANNER + "pattern symmetric\n3 3 2\n2 1\n3 3\n"))
    assert source.symmetric
    assert arcs_of(source) == [(1, 0), (2, 2)]


def test_mtx_without_entries_and_with_dos_line_ends(tmp_path):
    assert len(read_source(put(tmp_path, "a.mtx", BANNER + "real general\n3 3 0\n")).source) == 0
    dos = put(tmp_path, "b.mtx", BANNER + "real general\r\n2 2 1\r\n1 2 0.5\r\n")
    assert read_source(dos).weights.tolist() == [0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 does not begin with %%MatrixMarket"),
        ("3 3 1\n1 2\n", "line 1 does not begin with %%MatrixMarket"),
        ("%%MatrixMarket matrix coordinate pattern\n1 1 0\n", "line 1: expected"),
        ("%%MatrixMarket matrix array real general\n1 1\n", "layout 'array' is not supported"),
        (BANNER + "complex general\n1 1 0\n", "field 'complex' is not supported"),
        (BANNER + "real hermitian\n1 1 0\n", "symmetry 'hermitian' is not supported"),
        (BANNER + "real skew-symmetric\n1 1 0\n", "'skew-symmetric' is not supported"),
        (BANNER + "real general\n% only a comment\n", "line 3: expected 'ROWS COLUMNS ENTRIES'"),
        (BANNER + "real general\n3 3\n", "line 2: expected 'ROWS COLUMNS ENTRIES'"),
        (BANNER + "real general\n3 3 -1\n", "line 2: expected 'ROWS COLUMNS ENTRIES'"),
        (BANNER + "real general\n3 4 1\n1 1 1\n", "square, this one is 3 x 4"),
        (BANNER + "real general\n0 0 0\n", "without vertices"),
        (BANNER + "pattern general\n%\n3 3 2\n1 2\n4 1\n", "line 5: row index out of bounds"),
        (BANNER + "pattern general\n3 3 2\n1 2\n1 0\n", "line 4: column index out of bounds"),
        (BANNER + "pattern general\n3 3 2\n1 2\n", "announces 2 entries but holds 1"),
        (
            BANNER + "pattern general\n3 3 1\n1 2\n2 3\n",
            "line 4: more entries than the 1 announced",
        ),
        (BANNER + "pattern general\n3 3 2\n1 2\nx 3\n", "line 4: 'x' is not part of a number"),
        (BANNER + "pattern general\n3 3 2\n1 2\n2\n", "line 4: invalid integer"),
        (BANNER + "real general\n3 3 1\n1 2 1~", "line 3: '~' is not part of a number"),
        (BANNER + "real general\n3 3 1\n1 2 1\0\n", "line 3: .* is not part of a number"),
        (BANNER + "pattern general\n3 3 1\n1 2 0.5\n", "line 3: an entry of a pattern matrix"),
        (BANNER + "real general\n3 3 1\n1 2\n", "line 3: an entry of a real matrix has 3 columns"),
        (BANNER + "real general\n3 3 2\n1 2 1\n2 3 nan\n", "line 4: 'n' is not part"),
        (BANNER + "real general\n3 3 1\n1 2 1e999\n", "weight of entry 1 is inf"),
    ],
)
@pytest.mark.parametrize("name", ["bad.mtx", "bad.mtx.gz"])
def test_mtx_refuses(tmp_path, name, text, message):
    caught = refuses(message, read_source, put(tmp_path, name, text), "mtx")
    assert name in caught.message
    assert "\n" not in caught.message


@pytest.mark.parametrize("name", ["bad.mtx", "bad.mtx.gz"])
@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("9 9 4000000000", "more than a file of its size"),
        ("3000000000 3000000000 1", "3000000000 vertices for only 1 entries"),
        ("9 9 99999999999999999999", "expected 'ROWS COLUMNS ENTRIES'"),
    ],
)
def test_absurd_announcements_allocate_nothing(tmp_path, name, size, message):
    path = put(tmp_path, name, f"{BANNER}pattern general\n{size}\n1 2\n")

    def refused():
        refuses(message, read_source, path)

    assert takes_less_than(10_000_000, refused)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data(), n=st.integers(1, 30), weighted=st.booleans(), symmetric=st.booleans())
def test_mtx_round_trip(tmp_path, data, n, weighted, symmetric):
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    pairs = sorted(data.draw(st.sets(pair, max_size=60)))
    if symmetric:
        pairs = sorted({(max(p), min(p)) for p in pairs})
    value = st.floats(allow_nan=False, allow_infinity=False)
    values = [data.draw(value) if weighted else 1.0 for _ in pairs]
    row, column = np.array(pairs, int).reshape(-1, 2).T
    matrix = sp.coo_array((values, (row, column)), shape=(n, n))
    path = tmp_path / "r.mtx"
    kind = "symmetric" if symmetric else "general"
    scipy.io.mmwrite(path, matrix, field="real" if weighted else "pattern", symmetry=kind)
    graph, facts = build_graph(read_source(path))
    expected = matrix.tocsr()
    if symmetric:
        below = sp.coo_array(matrix)
        off = below.row != below.col
        mirror = (below.data[off], (below.col[off], below.row[off]))
        above = sp.coo_array(mirror, shape=(n, n))
        ends = [np.append(a, b) for a, b in zip(below.coords, above.coords, strict=True)]
        both = np.append(below.data, above.data)
        expected = sp.coo_array((both, tuple(ends)), shape=(n, n)).tocsr()
    expected.sort_indices()
    assert graph.indptr.tolist() == expected.indptr.tolist()
    assert graph.indices.tolist() == expected.indices.tolist()
    assert graph.adjacency().data.tolist() == expected.data.tolist()
    assert facts["arcs_read"] == len(pairs)


# Edge lists


@pytest.mark.parametrize("name", ["e.txt", "e.txt.gz", "e.gz", "e.edges", "e.tsv"])
def test_edge_list_with_any_ids(tmp_path, name):
    text = "# SNAP\n% other\n\n-7\t9000000000\n9000000000 5\n# within\n5 -7 # behind\n% and\n5 5\n"
    source = read_source(put(tmp_path, name, text))
    assert source.n == 3
    assert source.ids.tolist() == [-7, 5, 9000000000]
    assert arcs_of(source) == [(0, 2), (2, 1), (1, 0), (1, 1)]
    assert source.weights is None
    assert source.format == "edges"


def test_edge_list_weights_and_commas(tmp_path):
    source = read_source(put(tmp_path, "e.csv", "0,1,0.5\n2, 1 , -3\n"))
    assert arcs_of(source) == [(0, 1), (2, 1)]
    assert source.weights.tolist() == [0.5, -3]
    assert source.ids is None


@given(
    st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 30)] * 2), min_size=1)
)
def test_compact_numbers_ids_in_order(pairs):
    source, target = np.array(pairs, np.int64).T
    n, row, column, ids = number_vertices(source, target, "")
    known = sorted({end for pair in pairs for end in pair})
    assert n == len(known)
    assert (ids is None) == (known == list(range(n)))
    names = np.arange(n) if ids is None else ids
    assert names.tolist() == known
    assert list(zip(names[row].tolist(), names[column].tolist(), strict=True)) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no arcs"),
        ("# nothing\n\n", "holds no arcs"),
        ("1\n", "line 1: '1' is one column"),
        ("1 2 3 4\n", "line 1: '1 2 3 4' has 4 columns, and it is not clear"),
        ("source,target\n", "holds no arcs, only the header 'source,target'"),
        ("#\n1 2\n\n2 x\n", "line 4: '2 x' is not 'source target'"),
        ("#\n1 2\n2\n", "line 3: '2' has 1 columns, not 2: 'source target'"),
        ("1 2\n2 3 4\n", "line 2: '2 3 4' has 3 columns, not 2"),
        ("1 2.5\n", "line 1"),
        ("1 99999999999999999999\n", "line 1"),
        ("1 2 0.5\n1 2 w\n", "line 2: '1 2 w' is not 'source target weight'"),
        ("1 2 0.5\n1 2 inf\n", "weight of entry 2 is inf"),
        (BANNER + "pattern general\n2 2 1\n1 2\n", "is a Matrix Market file"),
    ],
)
@pytest.mark.parametrize("name", ["bad.txt", "bad.gz"])
def test_edge_list_refuses(tmp_path, name, text, message):
    caught = refuses(message, read_source, put(tmp_path, name, text), "edges")
    assert name in caught.message
    assert "\n" not in caught.message


# The choice of a format


def test_formats_are_judged_by_content_and_name(tmp_path):
    assert guess_format(put(tmp_path, "a.txt", BANNER + "pattern general\n")) == "mtx"
    assert guess_format(put(tmp_path, "a.gz", BANNER + "pattern general\n")) == "mtx"
    assert guess_format(put(tmp_path, "a.GZ", "1 2\n")) == "edges"
    assert guess_format(put(tmp_path, "a.mtx", "")) == "mtx"
    assert guess_format(put(tmp_path, "a.npz", "")) == "npz"
    put(tmp_path, "ind.x.graph", "")
    assert guess_format(tmp_path / "ind.x") == "planetoid"
    refuses("cannot tell the format", guess_format, put(tmp_path, "a.dat", "1 2\n"))
    refuses("is a folder", guess_format, tmp_path)


@pytest.mark.parametrize("format", ["auto", *READERS])
def test_missing_files_are_named(tmp_path, format):
    refuses(r"there is no file .*absent", read_source, tmp_path / "absent", format)


def test_unknown_format_names_the_nearest():
    caught = refuses(".", read_source, "a.mtx", "mtz")
    assert "did you mean 'mtx'?" in caught.hint


# Damaged files


@pytest.mark.parametrize("format", ["mtx", "edges"])
def test_truncated_and_corrupt_gzip(tmp_path, format):
    rng = np.random.default_rng(0)
    pairs = rng.integers(1, 1000, (5000, 2))
    body = "".join(f"{i} {j}\n" for i, j in pairs)
    head = BANNER + "pattern general\n1000 1000 5000\n" if format == "mtx" else ""
    whole = gzip.compress((head + body).encode())
    for size in (3, 12, 500, len(whole) - 4):
        with pytest.raises(UserError, match=r"truncated or damaged|more than a file of its size"):
            read_source(put(tmp_path, "cut", whole[:size]), format)
    middle = bytearray(whole)
    middle[len(whole) // 2 : len(whole) // 2 + 40] = bytes(40)
    refuses("cut", read_source, put(tmp_path, "cut", bytes(middle)), format)
