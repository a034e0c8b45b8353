"""Tasks on arcs: the oracle's curve and metrics, rows in the folder's order, and mistakes."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from test_arcs import parallel
from words import line

from gcnmpi.options.config import load_config
from gcnmpi.proof.oracle import Problem
from gcnmpi.run.weights import read_weights
from partition.graph.graph import arcs
from partition.graph.store import open_graph

# With self-loops that stand for no arc, and a norm over all rows of arcs.
OWN = """
    from gcnmpi.nn.network import Builder


    def matrix(model):
        return "none", True


    def build(model, features, classes, arcs):
        b = Builder(features, arcs)
        x = b.linear(b.input, 6, "first")
        e = b.add(b.linear(b.arc_features(), 6, "arcs"), b.add(b.source(x), b.target(x)))
        e = b.drop(b.activate(b.batch_norm(e, "bn"), "relu"), 0.3, 100)
        b.output(b.linear(e, classes, "last", bias=True))
        return b.build()
"""
ON = "task.on=arcs"
MGN = f"{ON} model.name=mgn model.hidden=6,6"
NUMBERS = "task.name=regression task.metrics=mae,r2"
METRICS = "task.metrics=f1_micro,f1_macro,roc_auc,average_precision"
PLATEAU = "train.schedule=plateau train.plateau_patience=0"
CASES = [
    ("classes", f"{MGN} {METRICS} {PLATEAU}"),
    ("classes", f"{MGN} train.memory=least task.class_weights=balanced"),
    ("classes", f"{MGN} task.name=labels graph.direction=out"),
    ("unmasked", f"{MGN} task.label_smoothing=0.1"),
    ("numbers", f"{MGN} {NUMBERS} {PLATEAU}"),
    ("numbers", f"{MGN} {NUMBERS} task.loss=huber model.dropout=0.3"),
    ("classes", f"{ON} {METRICS} own"),
    ("numbers", f"{ON} {NUMBERS} own"),
]
RUNS = {
    3: ("uneven-3", CASES, ""),
    2: (None, CASES[::3], "scheme.name=bcast"),
    4: ("uneven-2", CASES[1::3], "scheme.name=replicated scheme.replication=2"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arc_tasks")
    graph, rng = parallel(47, 200), np.random.default_rng(8)
    data, masked = graph.arc_data, rng.integers(0, 4, graph.nnz)
    masks = {name: masked == k for k, name in enumerate(("train", "val", "test"))}
    classes = rng.integers(-1, 3, graph.nnz).astype(np.int32)
    numbers = rng.standard_normal((graph.nnz, 2)).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.3] = np.nan
    for name, arc_data in {
        "classes": replace(data, labels=classes, masks=masks),
        "unmasked": replace(data, labels=classes),
        "numbers": replace(data, labels=numbers, masks=masks),
        "none": data,
        "unknown": replace(data, labels=classes, masks={"train": classes == -1}),
    }.items():
        path = store(folder / f"{name}.graph", replace(graph, arc_data=arc_data))
        with_uneven_parts(path, (1, 2, 3), mixed=False)
    (folder / "own.py").write_text(dedent(OWN), "utf-8")
    return folder


def words_of(folder, settings):
    return settings.replace(" own", f" model.name={folder}/own.py:build").split()


@pytest.mark.parametrize("nranks", RUNS)
def test_a_task_on_arcs_is_that_of_one_process(verified, folder, nranks):
    partition, some, scheme = RUNS[nranks]
    cases = []
    for kind, settings in some:
        given = ["train.epochs=4", *words_of(folder, settings), *scheme.split()]
        cases.append((folder / f"{kind}.graph", partition, given))
    verified(nranks, cases, "loss curve", "first gradient", "logits", "metrics")


def test_rows_are_in_the_order_of_the_folder_s_arcs(succeed, hear_mistakes, folder, tmp_path):
    path, weights = folder / "classes.graph", tmp_path / "w.npz"
    graph, config = open_graph(path).graph, load_config(None, ["dtype=float64", *MGN.split()])
    ends = list(zip(arcs(graph).tolist(), graph.indices.tolist(), strict=True))
    single = max(i for i, pair in enumerate(ends) if ends.count(pair) == 1)
    several = next(pair for pair in ends if ends.count(pair) > 1)
    for name, rows in {
        "rows": "7\n{} {}\n\n0\n".format(*ends[single]),
        "several": "{} {}".format(*several),
        "no": "9999",
    }.items():
        (tmp_path / f"{name}.txt").write_text(rows)
    own = ["dtype=float64", "train.epochs=6", *MGN.split()]
    given = {"partition": "uneven-3", "settings": ["dtype=float64"], "weights": weights}
    train = {"partition": "uneven-3", "out": tmp_path / "run", "save_weights": weights}
    lines = [line("train", path, settings=own, **train)]
    for name, what in {
        "logits.npy": {}, "classes.npy": {"classes": True}, "classes.csv": {"classes": True},
        "hidden.npy": {"layer": 1}, "picked.npy": {"rows": tmp_path / "rows.txt"},
    }.items():  # fmt: skip
        lines.append(line("infer", path, out=tmp_path / name, **what, **given))
    succeed(3, *lines)
    told = {"several": "several parallel arcs", "no": "is no arc"}
    no = line("infer", path, out=tmp_path / "no.npy", **given)
    lines = [([*no, "--rows", tmp_path / f"{name}.txt"], says) for name, says in told.items()]
    hear_mistakes(3, lines)
    arrays = {name: np.asarray(a) for name, a in read_weights(weights, config).parameters.items()}
    expected = Problem(graph, "in", config).logits(arrays)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("logits", "picked", "classes")}
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["picked"], expected[[7, single, 0]], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found["classes"], expected.argmax(axis=1))
    assert np.load(tmp_path / "hidden.npy").shape == (graph.n, 6)
    table = (tmp_path / "classes.csv").read_text().split()
    assert [int(text) for text in table] == found["classes"].tolist()


def test_mistakes_are_told_before_anything_is_loaded(hear_mistakes, folder, tmp_path):
    mistakes = []
    for words, says in {
        f"classes {ON}": "model 'gcn' gives logits of vertices, and task.on = arcs",
        "classes own": "gives logits of arcs, and task.on = vertices",
        f"none {MGN}": "has no labels of arcs",
        f"numbers {MGN}": "has no labels of arcs",
        f"classes {MGN} {NUMBERS}": "has no targets of arcs",
        f"unknown {MGN}": "has no labelled arc to train on",
        f"classes {MGN} train.split=1": "masks of arcs have one split",
        f"unmasked {MGN} train.patience=3": "no labelled arc to validate on",
    }.items():
        kind, *own = words_of(folder, words)
        given = {"settings": own, "partition": "uneven-2", "out": tmp_path / "no"}
        mistakes.append((line("train", folder / f"{kind}.graph", **given), says))
    hear_mistakes(2, mistakes)
