"""Tasks on arcs: the oracle's curve and metrics, rows in the folder's order, and mistakes."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from test_arcs import parallel
from words import sets

from gcnmpi.nn.describe import graph_of
from gcnmpi.options.config import load_config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
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
MGN = (ON, "model.name=mgn", "model.hidden=6,6")
NUMBERS = ("task.name=regression", "task.metrics=mae,r2")
METRICS = "task.metrics=f1_micro,f1_macro,roc_auc,average_precision"
PLATEAU = ("train.schedule=plateau", "train.plateau_patience=0")
CASES = [
    ("classes", (*MGN, METRICS, *PLATEAU)),
    ("classes", (*MGN, "train.memory=least", "task.class_weights=balanced")),
    ("classes", (*MGN, "task.name=labels", "graph.direction=out")),
    ("unmasked", (*MGN, "task.label_smoothing=0.1")),
    ("numbers", (*MGN, *NUMBERS, *PLATEAU)),
    ("numbers", (*MGN, *NUMBERS, "task.loss=huber", "model.dropout=0.3")),
    ("classes", (ON, METRICS, "own")),
    ("numbers", (ON, *NUMBERS, "own")),
]
RUNS = {
    3: ("uneven-3", CASES, ()),
    2: (None, CASES[::3], ("scheme.name=bcast",)),
    4: ("uneven-2", CASES[1::3], ("scheme.name=replicated", "scheme.replication=2")),
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
    of_arcs = {
        "classes": replace(data, labels=classes, masks=masks),
        "unmasked": replace(data, labels=classes),
        "numbers": replace(data, labels=numbers, masks=masks),
        "none": data,
        "unknown": replace(data, labels=classes, masks={"train": classes == -1}),
    }
    for name, arc_data in of_arcs.items():
        path = store(folder / f"{name}.graph", replace(graph, arc_data=arc_data))
        with_uneven_parts(path, (1, 2, 3), mixed=False)
    (folder / "own.py").write_text(dedent(OWN), "utf-8")
    return folder


@pytest.mark.parametrize("nranks", RUNS)
def test_a_task_on_arcs_is_that_of_one_process(verified, folder, nranks):
    partition, some, scheme = RUNS[nranks]
    cases = []
    for kind, settings in some:
        own = [s if s != "own" else f"model.name={folder}/own.py:build" for s in settings]
        cases.append((folder / f"{kind}.graph", partition, ["train.epochs=4", *own, *scheme]))
    verified(nranks, cases, "loss curve", "first gradient", "logits", "metrics")


def words(folder, command, graph, nranks, *more):
    partition = ["--partition", f"uneven-{nranks}"] if nranks > 1 else []
    return [command, folder / f"{graph}.graph", *partition, *more]


TRAINED = sets("dtype=float64", "train.epochs=6", *MGN)


def test_rows_are_in_the_order_of_the_folder_s_arcs(gcnmpi_lines, hear_mistakes, folder, tmp_path):
    file, float64 = tmp_path / "w.npz", sets("dtype=float64")
    graph = open_graph(folder / "classes.graph").graph
    ends = list(zip(arcs(graph).tolist(), graph.indices.tolist(), strict=True))
    single = max(i for i, pair in enumerate(ends) if ends.count(pair) == 1)
    several = next(pair for pair in ends if ends.count(pair) > 1)
    for name, rows in (
        ("rows", "7\n{} {}\n\n0\n".format(*ends[single])),
        ("several", "{} {}".format(*several)),
        ("no", "9999"),
    ):
        (tmp_path / f"{name}.txt").write_text(rows)
    train = ["--out", tmp_path / "run", "--quiet", "--save-weights", file, *TRAINED]
    lines = [words(folder, "train", "classes", 3, *train)]
    for name, what in {
        "logits.npy": (), "classes.npy": ("--classes",), "classes.csv": ("--classes",),
        "hidden.npy": ("--layer", 1), "picked.npy": ("--rows", tmp_path / "rows.txt"),
    }.items():  # fmt: skip
        more = ["--weights", file, *what, *float64, "--out", tmp_path / name]
        lines.append(words(folder, "infer", "classes", 3, *more))
    assert gcnmpi_lines(3, lines) == [[None] * 3] * len(lines)
    mistakes = []
    for name, told in (("several", "several parallel arcs"), ("no", "is no arc")):
        picked = ["--weights", file, "--rows", tmp_path / f"{name}.txt", "--out", tmp_path / "no"]
        mistakes.append((words(folder, "infer", "classes", 3, *picked[:-1], "no.npy"), told))
    hear_mistakes(3, mistakes)
    config = load_config(None, ("dtype=float64",), list(MGN))
    weights = {name: np.asarray(a) for name, a in read_weights(file, config).parameters.items()}
    expected = Problem(graph, "in", config).logits(weights)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("logits", "picked", "classes")}
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["picked"], expected[[7, single, 0]], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found["classes"], expected.argmax(axis=1))
    assert np.load(tmp_path / "hidden.npy").shape == (graph.n, 6)
    table = (tmp_path / "classes.csv").read_text().split()
    assert [int(line) for line in table] == found["classes"].tolist()


def test_the_arcs_that_train_are_forecast(folder):
    config = load_config(None, (), list(MGN))
    config = replace(config, graph=graph_of(config))
    stored = open_graph(folder / "classes.graph")
    data = stored.graph.arc_data
    trained = np.mean(data.masks["train"] & (data.labels >= 0))
    case = Setting(stored, config, Machine(), 1).case(Candidate(config.scheme, {}, 0, None), 1)
    own, _, entries = case.arcs(0)
    assert stored.graph.nnz <= entries <= stored.graph.nnz + stored.graph.n  # with the diagonal
    assert (own, case.train_rows(0)) == (stored.graph.n, round(entries * trained))


def test_mistakes_are_told_before_anything_is_loaded(hear_mistakes, folder, tmp_path):
    def line(graph, *settings):
        out = ["--out", tmp_path / "no", "--quiet"]
        return words(folder, "train", graph, 2, *out, *sets("train.epochs=2", *settings))

    own = f"model.name={folder}/own.py:build"
    mistakes = [
        (line("classes", ON), "model 'gcn' gives logits of vertices, and task.on = arcs"),
        (line("classes", own), "gives logits of arcs, and task.on = vertices"),
        (line("none", *MGN), "has no labels of arcs"),
        (line("numbers", *MGN), "has no labels of arcs"),
        (line("classes", *MGN, *NUMBERS), "has no targets of arcs"),
        (line("unknown", *MGN), "has no labelled arc to train on"),
        (line("classes", *MGN, "train.split=1"), "masks of arcs have one split"),
        (line("unmasked", *MGN, "train.patience=3"), "no labelled arc to validate on"),
    ]
    hear_mistakes(2, mistakes)
