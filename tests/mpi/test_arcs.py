"""Networks with rows of arcs, and tasks on arcs, against the oracle.

On the schemes that bring whole rows together; rows are in the folder's order.
"""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from axes import ALL
from stored_graphs import graph_of, store, with_uneven_parts
from words import line

from gcnmpi.options.config import load_config
from gcnmpi.proof.oracle import Problem
from gcnmpi.run.weights import read_weights
from partition.graph.graph import ArcData, Graph, arcs
from partition.graph.store import open_graph
from partition.importing.synthetic import sbm

CHECKS = {f"{when} {what}" for when in ("training", "evaluation")
          for what in ("bytes", "received", "messages")}  # fmt: skip
CHECKS |= {"loss curve", "first gradient", "halo dot test"}

# All that no network of the program has: norms and dropout of rows of arcs, weights for rows of
# neighbours, products of both ends, and states of arcs that two layers read; for tasks on arcs, a
# norm over all rows of arcs, with self-loops that stand for no arc.
OWN = """
    from gcnmpi.nn.network import Builder


    def matrix(model):
        return "none", True


    def build(model, features, classes, arcs):
        b = Builder(features, arcs)
        x = b.linear(b.input, 6, "first", bias=True)
        e = b.linear(b.arc_features("mean"), 6, "arcs", bias=True)
        for k in (1, 2):
            e = b.add(e, b.add(b.source(b.linear(x, 6, f"a{k}")), b.target(x)))
            e = b.batch_norm(e, f"bn{k}")
            e = b.drop(b.activate(e, "relu"), 0.4, 100 + k)
            scores = b.end_dots(x, x, 2)
            weights = b.softmax(b.add(scores, b.head_dots(e, f"dots{k}", 2, k)))
            y = b.weighed_sum(b.drop(weights, 0.3, 200 + k), x)
            z = b.linear(b.reduce(e, "std", "max", "mean", "min"), 6, f"b{k}")
            x = b.layer_norm(b.add(b.add(y, z), x), f"ln{k}")
            b.output(x)
        b.output(b.linear(x, classes, "last", bias=True))
        return b.build()


    def on_arcs(model, features, classes, arcs):
        b = Builder(features, arcs)
        x = b.linear(b.input, 6, "first")
        e = b.add(b.linear(b.arc_features(), 6, "arcs"), b.add(b.source(x), b.target(x)))
        e = b.drop(b.activate(b.batch_norm(e, "bn"), "relu"), 0.3, 100)
        b.output(b.linear(e, classes, "last", bias=True))
        return b.build()
"""


def parallel(n, narcs, width=3):
    """Directed, with parallel arcs, self-loops, and vertices without arcs."""
    rng = np.random.default_rng(5)
    ends = rng.integers(0, n - 6, (2, narcs))
    ends = np.hstack((ends, ends[:, : narcs // 4]))
    source, target = ends[:, np.lexsort(ends[::-1])]
    labels = np.where(rng.random(n) < 0.1, -1, np.arange(n) % 4).astype(np.int32)
    indptr = np.searchsorted(source, np.arange(n + 1)).astype(np.int64)
    features = rng.standard_normal((n, 5)).astype(np.float32)
    data = ArcData(rng.standard_normal((len(source), width)).astype(np.float32))
    masks = {"train": np.arange(n) % 3 == 0, "val": np.arange(n) % 3 == 1}
    more = {"labels": labels, "masks": masks, "arc_data": data, "parallel": True}
    return Graph(indptr, target.astype(np.int32), features=features, **more)


def undirected():
    graph = sbm(60, 3, degree=5, features=4, train=0.4, val=0.2)
    features = np.random.default_rng(2).standard_normal((graph.nnz, 2)).astype(np.float32)
    return replace(graph, arc_data=ArcData(features))


def equal_neighbours(n=12):
    """Vertices with one neighbour, or two with equal features."""
    rng, dense = np.random.default_rng(8), np.zeros((n, n), bool)
    dense[np.append(rng.integers(0, n, n), [2, 7]), np.append(np.arange(n), [1, 4])] = True
    data = ArcData(rng.standard_normal((dense.sum(), 2)).astype(np.float32))
    labels = (np.arange(n) % 3).astype(np.int32)
    return graph_of(dense, features=np.ones((n, 3), np.float32), labels=labels, arc_data=data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arcs")
    for name, graph in {
        "parallel": parallel(47, 200), "edges": undirected(), "arcless": parallel(9, 0),
        "equal": equal_neighbours(),
    }.items():  # fmt: skip
        with_uneven_parts(store(folder / f"{name}.graph", graph), (1, 2, 3, 4), mixed=False)
    (folder / "own.py").write_text(dedent(OWN), "utf-8")
    return folder


GINE = ["model.name=gine", "model.hidden=[6]"]
ATTENTION = ["model.hidden=[6]", "model.heads=2", "model.arc_features=true"]
PNA = ["model.name=pna", "model.hidden=[6]", "model.linear_after=true"]
LEAST = "train.memory=least"
NETWORKS = [
    ("parallel", [*GINE, "model.dropout=0.4", "model.train_eps=true"]),
    ("parallel", [*GINE, "graph.direction=out", "model.norm=batch", "model.eps=0.3"]),
    ("edges", [*GINE, "kernel=scipy", "model.input_dropout=0.3", "train.eval_every=2"]),
    ("edges", [*GINE, "model.norm=layer", "model.residual=linear", "model.jk=cat"]),
    ("arcless", GINE),
    ("parallel", [*ATTENTION, "model.name=gat", "model.attention_dropout=0.4"]),
    ("parallel", [*ATTENTION, "model.name=gatv2", "model.concat=false", "model.norm=layer"]),
    ("parallel", [*ATTENTION, "model.name=transformer", "model.beta=true", "model.dropout=0.3"]),
    ("parallel", [*PNA, "model.scalers=identity+attenuation+linear", "model.arc_features=true"]),
    ("edges", [*PNA, "model.towers=3", "model.pre_layers=2", "model.aggregators=mean+std"]),
    ("arcless", PNA),
    ("parallel", ["model.name=mgn", "model.hidden=6,6", "model.dropout=0.2"]),
    ("arcless", ["model.name=mgn", "model.hidden=[6]", "model.reduction=mean"]),
    ("parallel", ["model.name=sage", "model.hidden=[6]", "model.aggregation=mean+max+min"]),
    # Keeping as little as they can.
    ("parallel", [*ATTENTION, "model.name=gat", "model.attention_dropout=0.4", LEAST]),
    ("edges", [*ATTENTION, "model.name=gatv2", "model.concat=false", LEAST]),
    ("parallel", [*ATTENTION, "model.name=transformer", "model.attention_dropout=0.4", LEAST]),
    ("edges", ["model.name=gatedgcn", "model.arc_features=true", "model.norm=batch", LEAST]),
    ("edges", ["model.name=gatedgcn", "model.residual=linear", LEAST]),
    ("edges", ["model.name=pna", "model.scalers=attenuation+linear", LEAST]),
    ("parallel", ["model.name=mgn", "model.hidden=[6,6]", "model.dropout=0.3", LEAST]),
    ("parallel", ["model.name=sage", "model.aggregation=mean+max+std", LEAST]),
    *((kind, ["own"]) for kind in ("parallel", "edges", "arcless")),
]
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
# Ranks, parts of the partition, and what the networks take in turn.
RUNS = {
    "whole rows": (3, "uneven-3", [[]]),
    "bcast": (2, None, [["scheme.name=bcast"]]),
    "copies": (4, "uneven-2", [COPIES, [*COPIES, "scheme.sparse=false"]]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_one_process(verified, folder, name):
    """All networks on three ranks; a quarter of them by each of the other schemes."""
    nranks, partition, turns = RUNS[name]
    start, step = {"whole rows": (0, 1), "bcast": (0, 4), "copies": (1, 4)}[name]
    cases = []
    for i, (kind, settings) in enumerate(NETWORKS if ALL else NETWORKS[start::step]):
        own = [s if s != "own" else f"model.name={folder}/own.py:build" for s in settings]
        given = ["train.epochs=3", *own, *turns[i % len(turns)]]
        cases.append((folder / f"{kind}.graph", partition, given))
    verified(nranks, cases, *CHECKS)


# Gradients of 0 in exact arithmetic, of which Adam without an eps would make full steps.
EQUAL = ["train.epochs=4", "train.eps=1e-15", "train.lr=0.05", "model.hidden=[6]"]
OF_EQUAL = [
    ["model.name=transformer", "model.heads=2", "model.norm=batch"],
    ["model.name=gat", "model.heads=2", "model.norm=layer", "model.train_features=true"],
    ["model.name=gatv2", "model.heads=2", "model.arc_features=true", "train.optimizer=adamw"],
    ["model.name=gatedgcn", "model.norm=batch", "model.train_features=true", "kernel=scipy"],
]


def test_rounding_errors_of_a_gradient_of_0_are_0(verified, folder):
    cases = [(folder / "equal.graph", "uneven-3", [*EQUAL, *settings]) for settings in OF_EQUAL]
    verified(3, cases, "loss curve", "final weights", "logits")


ON = "task.on=arcs"
MGN = f"{ON} model.name=mgn model.hidden=6,6"
NUMBERS = "task.name=regression task.metrics=mae,r2"
METRICS = "task.metrics=f1_micro,f1_macro,roc_auc,average_precision"
PLATEAU = "train.schedule=plateau train.plateau_patience=0"
TASKS = [
    ("classes", f"{MGN} {METRICS} {PLATEAU}"),
    ("classes", f"{MGN} train.memory=least task.class_weights=balanced"),
    ("classes", f"{MGN} task.name=labels graph.direction=out"),
    ("unmasked", f"{MGN} task.label_smoothing=0.1"),
    ("numbers", f"{MGN} {NUMBERS} {PLATEAU}"),
    ("numbers", f"{MGN} {NUMBERS} task.loss=huber model.dropout=0.3"),
    ("classes", f"{ON} {METRICS} own"),
    ("numbers", f"{ON} {NUMBERS} own"),
]
TASK_RUNS = {
    3: ("uneven-3", TASKS, ""),
    2: (None, TASKS[::3], "scheme.name=bcast"),
    4: ("uneven-2", TASKS[1::3], "scheme.name=replicated scheme.replication=2"),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    root = tmp_path_factory.mktemp("arc_tasks")
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
        path = store(root / f"{name}.graph", replace(graph, arc_data=arc_data))
        with_uneven_parts(path, (1, 2, 3), mixed=False)
    (root / "own.py").write_text(dedent(OWN), "utf-8")
    return root


def words_of(tasks, settings):
    return settings.replace(" own", f" model.name={tasks}/own.py:on_arcs").split()


@pytest.mark.parametrize("nranks", TASK_RUNS)
def test_a_task_on_arcs_is_that_of_one_process(verified, tasks, nranks):
    partition, some, scheme = TASK_RUNS[nranks]
    cases = []
    for kind, settings in some:
        given = ["train.epochs=4", *words_of(tasks, settings), *scheme.split()]
        cases.append((tasks / f"{kind}.graph", partition, given))
    verified(nranks, cases, "loss curve", "first gradient", "logits", "metrics")


def test_rows_are_in_the_order_of_the_folder_s_arcs(succeed, hear_mistakes, tasks, tmp_path):
    path, weights = tasks / "classes.graph", tmp_path / "w.npz"
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


def test_mistakes_are_told_before_anything_is_loaded(hear_mistakes, tasks, tmp_path):
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
        kind, *own = words_of(tasks, words)
        given = {"settings": own, "partition": "uneven-2", "out": tmp_path / "no"}
        mistakes.append((line("train", tasks / f"{kind}.graph", **given), says))
    hear_mistakes(2, mistakes)
