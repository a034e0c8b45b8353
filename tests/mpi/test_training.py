"""Training: one curve for every P, partition, kernel and order; what the record says; and the
wrong results of other trainers, which must not happen here.

The small runs of one rank count share a launch.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import sets

from gcnmpi.core import rng
from gcnmpi.options.kernel import resolve
from gcnmpi.run.record import read_run
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph, read_partition
from partition.importing.assemble import import_graph
from partition.pipeline.adding import add_partition

N, WIDTH, CLASSES = 240, 12, 4
CORA_SETTINGS = ("dtype=float64", "train.epochs=100", "train.eval_every=100")
CORA = Path(__file__).parents[2] / "configs" / "cora.toml"


def planted(directed=True, n=N, seed=0):
    """A directed graph of communities, with hubs, weights, isolated vertices and masks."""
    random = np.random.default_rng(seed)
    labels = (np.arange(n) * CLASSES // n).astype(np.int32)
    chance = np.where(labels[:, np.newaxis] == labels, 0.08, 0.01)
    chance[:, :5] *= 5  # five vertices are in everyone's sum
    dense = np.where(random.random((n, n)) < chance, random.uniform(0.5, 2.0, (n, n)), 0.0)
    dense[-4:] = dense[:, -4:] = 0
    if not directed:
        dense = np.maximum(dense, dense.T)
    order = random.permutation(n)
    dense, labels = dense[order][:, order], labels[order]
    features = np.eye(CLASSES, WIDTH)[labels] + random.standard_normal((n, WIDTH))
    kind = random.integers(0, 3, n)
    masks = {name: kind == i for i, name in enumerate(("train", "val", "test"))}
    labels[random.random(n) < 0.1] = -1
    return graph_of(dense, features=features.astype(np.float32), labels=labels, masks=masks)


def few_labels(graph):
    labels = np.where(np.arange(graph.n) % 3 == 0, graph.labels, -1).astype(np.int32)
    return replace(graph, labels=labels, masks={})


GRAPHS = {
    "directed": lambda: planted(),
    "undirected": lambda: planted(directed=False),
    "sparsely-labelled": lambda: few_labels(planted()),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    root = tmp_path_factory.mktemp("graphs")
    for name, make in GRAPHS.items():
        store(root / f"{name}.graph", make(), 2, 4)
    for name, k, model in product(("directed", "undirected"), (2, 4), ("block", "gp", "hp")):
        add_partition(root / f"{name}.graph", model, k, imbalance=0.1, name=f"{model}-{k}")
    return root


@dataclass(frozen=True)
class Run:
    """One training run: ranks, graph, model of the partition, settings over BASE."""

    ranks: int
    graph: str
    model: str = "rp"
    settings: tuple[str, ...] = ()

    def line(self, root, out):
        path = root / f"{self.graph}.graph"
        partition = ["--partition", f"{self.model}-{self.ranks}"] if self.ranks > 1 else []
        words = ["train", path, *partition, "--quiet", "--out", out]
        words += ["--save-weights", out / "w.npz"]
        return [*words, *sets(*BASE, *self.settings)]


BASE = (
    "dtype=float64",
    "model.hidden=[8, 6]",
    "model.dropout=0.5",
    "model.input_dropout=0.3",
    "train.epochs=10",
    "train.weight_decay=5e-3",
    "train.weight_decay_layers=first",
    "train.eval_every=5",
)
FLOAT32 = ("dtype=float32",)
NO_DROPOUT = ("model.dropout=0.0", "model.input_dropout=0.0")
ONE_SGD_STEP = (*NO_DROPOUT, "train.optimizer=sgd", "train.lr=1.0", "train.epochs=1",
                "train.weight_decay=0.0")  # fmt: skip
RUNS: dict[str, Run] = {}
for _graph in ("directed", "undirected"):
    for _dtype in ("float64", "float32"):
        RUNS[f"{_graph} {_dtype} 1"] = Run(1, _graph, "", (f"dtype={_dtype}",))
        for _ranks in (2, 4):
            for _model in ("rp", "block", "gp", "hp"):
                RUNS[f"{_graph} {_dtype} {_ranks} {_model}"] = Run(
                    _ranks, _graph, _model, (f"dtype={_dtype}",)
                )
for _ranks in (1, 2, 4):
    RUNS[f"again {_ranks}"] = Run(_ranks, "directed", "gp", FLOAT32)
RUNS |= {
    "never": Run(4, "directed", "rp", ("train.eval_every=0",)),
    "third": Run(4, "directed", "rp", ("train.eval_every=3", "train.epochs=7")),
    "unlabelled": Run(2, "sparsely-labelled", "rp", ONE_SGD_STEP),
}


@pytest.fixture(scope="module")
def runs(gcnmpi_lines, graphs, tmp_path_factory):
    """The records and weights of all RUNS, by name."""
    root = tmp_path_factory.mktemp("runs")
    contents = _contents(graphs)
    for ranks in (1, 2, 4):
        chosen = {name: run for name, run in RUNS.items() if run.ranks == ranks}
        lines = [run.line(graphs, root / name) for name, run in chosen.items()]
        assert gcnmpi_lines(ranks, lines, timeout=300) == [[None] * ranks] * len(lines)
    assert _contents(graphs) == contents, "training changed the graph folder"
    return {name: Record(root / name) for name in RUNS}


class Record:
    """A run's record, its losses and its final weights."""

    def __init__(self, folder):
        run = read_run(folder)
        self.start, self.epochs, self.end, self.weights = run.start, run.epochs, run.end, {}
        self.losses = np.array([epoch["loss"] for epoch in self.epochs])
        if (folder / "w.npz").exists():
            with np.load(folder / "w.npz") as arrays:
                self.weights = dict(arrays)


def _contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


# One curve.


@pytest.mark.parametrize("graph", ["directed", "undirected"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_one_curve_for_every_rank_count_and_partition(runs, graph, dtype, tolerance):
    reference = runs[f"{graph} {dtype} 1"]
    assert len(reference.losses) == 10
    assert reference.losses[-1] < reference.losses[0]
    others = [name for name in RUNS if name.startswith(f"{graph} {dtype} ")]
    assert len(others) == 9
    for name in others:
        np.testing.assert_allclose(
            runs[name].losses, reference.losses, rtol=tolerance, err_msg=name
        )
        for weight, value in runs[name].weights.items():
            np.testing.assert_allclose(
                value, reference.weights[weight], rtol=0, atol=100 * tolerance, err_msg=name
            )
        if dtype == "float64":
            for mine, theirs in zip(runs[name].epochs, reference.epochs, strict=True):
                same = ("train_accuracy", "val_accuracy", "test_accuracy")
                assert [mine[key] for key in same] == [theirs[key] for key in same]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_same_run_twice_is_the_same_bit_for_bit(runs, ranks):
    first = runs[f"directed float32 {ranks}{' gp' if ranks > 1 else ''}"]
    again = runs[f"again {ranks}"]
    assert first.losses.tolist() == again.losses.tolist()
    assert all(np.array_equal(first.weights[name], again.weights[name]) for name in first.weights)


def test_another_launch_is_the_same_bit_for_bit(mpirun, runs, graphs, tmp_path):
    line = Run(2, "directed", "gp", FLOAT32).line(graphs, tmp_path / "run")
    done = mpirun(2, "gcnmpi", *line)
    assert done.stdout == done.stderr == ""  # --quiet
    assert Record(tmp_path / "run").losses.tolist() == runs["again 2"].losses.tolist()


def test_one_curve_on_cora(gcnmpi_lines, data_dir, tmp_path):
    import_graph(data_dir / "planetoid" / "ind.cora", tmp_path / "cora.graph")
    add_partition(tmp_path / "cora.graph", "hp", 4)
    words = ["--config", CORA, "--quiet", *sets(*CORA_SETTINGS)]
    line = ["train", tmp_path / "cora.graph", *words]
    alone = gcnmpi_lines(1, [[*line, "--out", tmp_path / "1"]])
    parts = gcnmpi_lines(4, [[*line, "--partition", "hp-4", "--out", tmp_path / "4"]])
    assert (alone, parts) == ([[None]], [[None] * 4])
    one, four = Record(tmp_path / "1"), Record(tmp_path / "4")
    assert len(one.losses) == 100
    np.testing.assert_allclose(four.losses, one.losses, rtol=1e-10)
    assert four.epochs[-1]["test_accuracy"] == one.epochs[-1]["test_accuracy"] > 0.79
    assert four.end["bytes_sent"] == four.end["bytes_predicted"]


# Bytes.


def test_bytes_counted_are_bytes_predicted(runs):
    for name, record in runs.items():
        end = record.end
        for what in ("bytes", "messages", "eval_bytes", "eval_messages"):
            assert end[f"{what}_sent"] == end[f"{what}_predicted"], (name, what)
        if RUNS[name].ranks > 1:
            assert sum(end["bytes_sent"]) > 0, name


# The record.


def test_evaluation_never_and_every_third_epoch(runs):
    keys = ("train_accuracy", "val_accuracy", "test_accuracy")
    never, third, fifth = runs["never"], runs["third"], runs["directed float64 4 rp"]
    assert all(epoch[key] is None for epoch in never.epochs for key in keys)
    assert never.end["eval_bytes_sent"] == [0, 0, 0, 0]
    evaluated = [e["epoch"] for e in third.epochs if all(e[key] is not None for key in keys)]
    assert evaluated == [3, 6, 7]
    assert all(0 <= e[key] <= 1 for e in third.epochs for key in keys if e[key] is not None)
    # Evaluation changes neither the losses nor what the training epochs send.
    assert never.losses.tolist() == fifth.losses.tolist()
    assert third.losses.tolist() == fifth.losses[:7].tolist()
    assert never.end["bytes_sent"] == fifth.end["bytes_sent"]
    eval_bytes = np.array(fifth.end["eval_bytes_sent"]) // 2
    assert third.end["eval_bytes_sent"] == (3 * eval_bytes).tolist()


def test_the_record_has_what_scripts_rely_on(runs, graphs):
    record = runs["directed float64 4 hp"]
    start, end = record.start, record.end
    path = graphs / "directed.graph"
    assert start["event"] == "start"
    assert start["graph_id"] == open_graph(path).manifest.id
    assert start["partition_id"] == read_partition(path, "hp-4").id
    assert (start["scheme"], start["kernel"], start["ranks"]) == ("p2p", resolve("auto")[0], 4)
    assert start["config"]["kernel"] == "auto"
    assert len(start["hosts"]) == 4
    assert [len(start["of_ranks"][name]) for name in ("rows", "entries", "peers")] == [4] * 3
    assert all(isinstance(host, str) for host in start["hosts"])
    assert start["devices"] == [None] * 4
    assert start["reduction"] == "mpi"
    assert start["config"]["train"]["weight_decay"] == 5e-3
    assert start["config"]["model"]["hidden"] == [8, 6]
    assert {"gcnmpi", "python", "numpy", "scipy", "mpi"} <= set(start["versions"])
    assert [epoch["epoch"] for epoch in record.epochs] == list(range(1, 11))
    for epoch in record.epochs:
        assert epoch["event"] == "epoch"
        assert set(epoch) == {
            "event", "epoch", "loss", "seconds", "time",
            "train_accuracy", "val_accuracy", "test_accuracy",
        }  # fmt: skip
        assert epoch["seconds"] > 0
    assert (end["event"], end["finished"], end["epochs"]) == ("end", True, 10)
    assert end["seconds_per_epoch"] == np.median([epoch["seconds"] for epoch in record.epochs])
    for name in ("bytes_sent", "bytes_predicted", "messages_sent", "peak_memory_bytes"):
        assert len(end[name]) == 4
    assert min(end["peak_memory_bytes"]) > 1e7
    for times in end["phases"].values():
        assert 0 <= times["min"] <= times["mean"] <= times["max"]
    assert {"load", "spmm", "gemm", "pack", "wait", "reduce", "update", "eval", "loss"} <= set(
        end["phases"]
    )


def test_defaults_without_config_and_out(mpirun, graphs, tmp_path):
    done = mpirun(2, "gcnmpi", "train", graphs / "directed.graph", "--partition", "rp-2",
                  "--set", "train.epochs=2", cwd=tmp_path)  # fmt: skip
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("directed-rp-2-")
    assert str(Path("runs") / folder.name) in done.stdout
    assert done.stderr.count("epoch     2/2") == 1
    record = Record(folder)
    assert record.start["config"]["dtype"] == "float32"
    assert record.start["config"]["model"]["hidden"] == [16]


def test_one_process_without_mpirun_keeps_the_earlier_record(graphs, tmp_path):
    command = [sys.executable, "-m", "gcnmpi", "train", graphs / "directed.graph", "--quiet"]
    command += ["--out", tmp_path / "run", "--set", "train.epochs=2", "--set"]
    for seed in (1, 2):
        done = subprocess.run(
            [*command, f"train.seed={seed}"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    record = Record(tmp_path / "run")
    assert record.start["partition_id"] is None
    assert record.start["config"]["train"]["seed"] == 2
    previous = (tmp_path / "run" / "run.previous.jsonl").read_text().splitlines()
    assert json.loads(previous[0])["config"]["train"]["seed"] == 1
    assert len(previous) == 4


# Wrong results of other trainers.


def _initial(widths, seed=0):
    """Weights before training, under the names of the saved ones."""
    weights = {}
    for k in range(1, len(widths)):
        weights[f"convs.{k - 1}.lin.weight"] = rng.glorot(seed, k, widths[k - 1], widths[k]).T
        weights[f"convs.{k - 1}.bias"] = np.zeros(widths[k])
    return weights


WIDTHS = (WIDTH, 8, 6, CLASSES)


def _logits(graph, weights, normalize="sym"):
    matrix = aggregation_matrix(graph, "in", True, normalize)
    h = np.asarray(graph.features, np.float64)
    depth = len(weights) // 2
    for k in range(depth):
        h = matrix @ h @ weights[f"convs.{k}.lin.weight"].T + weights[f"convs.{k}.bias"]
        h = np.maximum(h, 0) if k < depth - 1 else h
    return h


def _cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def test_labels_masks_and_features_are_not_changed_in_place(run_cases, graphs):
    path = graphs / "directed.graph"
    before = _contents(path)
    run_cases("in_memory", 2, [(path, "rp-2")])
    assert _contents(path) == before


def test_unlabelled_vertices_are_not_counted_as_class_0(runs, graphs):
    graph = open_graph(graphs / "sparsely-labelled.graph").graph
    logits = _logits(graph, _initial(WIDTHS))
    labelled = np.flatnonzero(graph.labels >= 0)
    loss = _cross_entropy(logits[labelled], graph.labels[labelled]).mean()
    wrong = _cross_entropy(logits, np.maximum(graph.labels, 0)).mean()
    assert abs(loss - wrong) > 1e-3
    np.testing.assert_allclose(runs["unlabelled"].losses[0], loss, rtol=1e-12)
