"""Features that are kept as CSR: what they read like, when they are, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
from small_graphs import make_folder
from stored_graphs import change_array

from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.describe import network_of
from gcnmpi.options.config import from_table
from partition.errors import UserError
from partition.graph import sparse_rows
from partition.graph.graph import Graph
from partition.graph.sparse_rows import SparseRows, check_rows, from_dense, kept_form
from partition.graph.store import open_graph, write_graph
from partition.importing.assemble import attach_files


def random_rows(n=50, width=200, filled=0.03):
    random = np.random.default_rng(2)
    values = random.standard_normal((n, width)).astype(np.float32)
    dense = np.where(random.random((n, width)) < filled, values, np.float32(0))
    dense[7] = dense[0] = dense[-1] = 0
    return dense


def test_it_reads_like_the_dense_array():
    dense = random_rows()
    sparse = from_dense(dense)
    for name in ("shape", "dtype", "ndim", "size", "nbytes"):
        assert getattr(sparse, name) == getattr(dense, name)
    assert sparse.entries == np.count_nonzero(dense)
    np.testing.assert_array_equal(np.asarray(sparse), dense)
    assert sparse.tobytes() == dense.tobytes()
    assert np.asarray(sparse, np.float64).dtype == np.float64
    picked = np.array([3, 0, 49, 3])
    for rows in (slice(None), slice(10, 20), slice(48, 99), slice(5, 5), slice(30, 10)):
        np.testing.assert_array_equal(np.asarray(sparse[rows]), dense[rows])
        np.testing.assert_array_equal(np.asarray(sparse[rows, 10:60]), dense[rows, 10:60])
        assert sparse[rows, 10:60].shape == dense[rows, 10:60].shape
        np.testing.assert_array_equal(np.asarray(sparse[rows][2:7]), dense[rows][2:7])
    np.testing.assert_array_equal(sparse[picked], dense[picked])
    np.testing.assert_array_equal(sparse[10:20, 5:9][np.array([4, 1])], dense[10:20, 5:9][[4, 1]])
    np.testing.assert_array_equal(sparse[dense[:, 1] == 0], dense[dense[:, 1] == 0])
    counts, columns, values = sparse[10:20].picked(np.array([5, 0, 5]))
    rows, expected = np.nonzero(dense[[15, 10, 15]])
    np.testing.assert_array_equal(counts, np.bincount(rows, minlength=3))
    np.testing.assert_array_equal(columns, expected)
    np.testing.assert_array_equal(values, dense[[15, 10, 15]][rows, expected])


@pytest.mark.parametrize(
    ("filled", "least", "sparse"),
    [(0.03, 0, True), (0.2, 0, False), (0.03, 1 << 20, False), (0.0, 0, False)],
)
def test_what_is_kept_sparse(monkeypatch, filled, least, sparse):
    monkeypatch.setattr(sparse_rows, "LEAST_BYTES", least)
    dense = random_rows(filled=filled)
    assert isinstance(kept_form(dense), SparseRows) == sparse
    assert isinstance(kept_form(dense, "sparse"), SparseRows) == bool(filled)
    for form in (dense, from_dense(random_rows())):
        assert isinstance(kept_form(form, "dense"), np.ndarray)
    assert isinstance(kept_form(from_dense(dense)), SparseRows)
    assert kept_form(None) is None


def graph_with(features):
    n = len(features)
    return Graph(np.arange(n + 1), np.roll(np.arange(n), 1).astype(np.int32), features=features)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_folder_keeps_them_in_their_form_and_gives_them_back(tmp_path, monkeypatch, form):
    monkeypatch.setattr(sparse_rows, "LEAST_BYTES", 0)  # they are worth being sparse
    dense = random_rows()
    graph = replace(graph_with(dense), labels=np.zeros(50, np.int32))
    path = make_folder(tmp_path / "g.graph", graph, keep_features=form)
    names = [f"features_{part}" for part in ("data", "indices", "indptr")]
    names = ["features"] if form == "dense" else names
    assert sorted(file.stem for file in path.glob("features*")) == names
    np.save(tmp_path / "train.npy", np.array([1, 5]))
    attach_files(path, masks={"train": tmp_path / "train.npy"})
    stored = open_graph(path)
    entries = np.count_nonzero(dense) if form == "sparse" else 0
    assert stored.manifest.feature_entries == entries
    assert stored.graph.masks["train"].nonzero()[0].tolist() == [1, 5]
    assert isinstance(stored.graph.features, SparseRows) == (form == "sparse")
    np.testing.assert_array_equal(np.asarray(stored.graph.features), dense)
    again = write_graph(tmp_path / "again.graph", stored.graph, source={}, keep_features="sparse")
    other = write_graph(tmp_path / "other.graph", graph, source={}, keep_features="sparse")
    assert again.feature_entries == other.feature_entries


def test_damage_is_found(tmp_path):
    path = make_folder(tmp_path / "g.graph", graph_with(random_rows()), keep_features="sparse")
    for part, value, says in (
        ("indptr", 10**6, "do not go from 0|row pointers"),
        ("indices", 200, "outside of them"),
        ("indices", -1, "outside of them"),
    ):
        good = np.load(path / f"features_{part}.npy")
        change_array(path, f"features_{part}", -1, value)
        try:
            wrong = check_rows(open_graph(path).graph.features, 0, 50)
        except UserError as error:
            wrong = error.message
        assert re.search(says, wrong)
        np.save(path / f"features_{part}.npy", good)
    rows = from_dense(random_rows())
    assert check_rows(rows, 0, 50) is None
    row = int(np.flatnonzero(np.diff(rows.indptr) > 1)[0])
    rows.indices[rows.indptr[row]] = rows.indices[rows.indptr[row] + 1]
    assert "do not rise" in check_rows(rows, 0, 50)


ORDERS = ("combine", "aggregate")
NETWORKS = {
    "gcn": (0,),
    "gcn input_dropout=0.5": (0, 1),
    "gat input_dropout=0.5": (0, 1),
    **dict.fromkeys(("sage", "gatv2", "gcnii", "appnp", "sgc", "mlp", "gin"), (0,)),
    **dict.fromkeys(("sign", "gcn order=aggregate", "gcn train_features=true"), ()),
    "sage aggregation=max": (),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_which_networks_multiply_with_them(name):
    kind, *options = name.split()
    model = {"name": kind} | dict(option.split("=") for option in options)
    model = {key: float(v) if v[0] == "0" else v == "true" or v for key, v in model.items()}
    config = from_table({"model": model}).model
    network = network_of(config, 3000, 4)
    target = Target(ORDERS, lambda place: None)
    program = compile_network(network, target, config, sparse=True)
    assert program.sparse == NETWORKS[name]
    steps = (*program.forward, *program.backward, *program.evaluation)
    if program.sparse:
        assert not any(
            step.reads[0] in program.sparse for step in steps if not step.name.startswith("sparse_")
        )
        # Nothing of that many columns is in memory.
        kept = (*program.buffers, *(program.values[i] for i in program.kept))
        assert max(value.width for value in kept) < 3000
    else:
        assert program == compile_network(network, target, config)
