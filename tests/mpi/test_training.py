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
from gcnmpi.options.config import load_config
from gcnmpi.options.kernel import resolve
from gcnmpi.proof import oracle
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


def padded(graph, count):
    """With isolated vertices at the end that have features, but no label and no mask."""
    indptr = np.append(graph.indptr, np.full(count, graph.indptr[-1]))
    features = np.vstack((graph.features, np.full((count, graph.features.shape[1]), 7.0)))
    return replace(
        graph,
        indptr=indptr,
        features=features.astype(np.float32),
        labels=np.append(graph.labels, np.full(count, -1)).astype(np.int32),
        masks={name: np.append(mask, np.zeros(count, bool)) for name, mask in graph.masks.items()},
    )


def few_labels(graph):
    labels = np.where(np.arange(graph.n) % 3 == 0, graph.labels, -1).astype(np.int32)
    return replace(graph, labels=labels, masks={})


GRAPHS = {
    "directed": lambda: planted(),
    "undirected": lambda: planted(directed=False),
    "padded": lambda: padded(planted(), 17),
    "sparsely-labelled": lambda: few_labels(planted()),
    "small-weights": lambda: replace(planted(), weights=planted().weights * np.pi * 1e-3),
    "huge-features": lambda: replace(planted(), features=planted().features * np.float32(3e4)),
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
LONG = (*NO_DROPOUT, "train.epochs=200", "train.eval_every=0")
ONE_SGD_STEP = (*NO_DROPOUT, "train.optimizer=sgd", "train.lr=1.0", "train.epochs=1",
                "train.weight_decay=0.0")  # fmt: skip
VARIANTS = {
    "scipy": ("kernel=scipy",),
    "graphblas": ("kernel=graphblas",),
    "combine": ("model.order=combine",),
    "aggregate": ("model.order=aggregate",),
    "fold": ("scheme.backward=fold",),
    "small buffers": ("loading.max_buffer_mb=0.001",),
}

RUNS: dict[str, Run] = {}
for _graph in ("directed", "undirected"):
    for _dtype in ("float64", "float32"):
        RUNS[f"{_graph} {_dtype} 1"] = Run(1, _graph, "", (f"dtype={_dtype}",))
        for _ranks in (2, 4):
            for _model in ("rp", "block", "gp", "hp"):
                RUNS[f"{_graph} {_dtype} {_ranks} {_model}"] = Run(
                    _ranks, _graph, _model, (f"dtype={_dtype}",)
                )
    for _name, _settings in VARIANTS.items():
        RUNS[f"{_graph} {_name}"] = Run(4, _graph, "hp", _settings)
for _ranks in (1, 2, 4):
    RUNS[f"again {_ranks}"] = Run(_ranks, "directed", "gp", FLOAT32)
    RUNS[f"step {_ranks}"] = Run(_ranks, "directed", "rp", ONE_SGD_STEP)
for _kernel in ("native", "graphblas", "scipy"):
    RUNS[f"long {_kernel}"] = Run(1, "directed", "", (*LONG, *FLOAT32, f"kernel={_kernel}"))
for _betas in ("[0.9, 0.999]", "[0.9, 0.99999999]"):
    RUNS[f"long float64 {_betas}"] = Run(1, "directed", "", (*LONG, f"train.betas={_betas}"))
RUNS["long float32 [0.9, 0.99999999]"] = Run(
    1, "directed", "", (*LONG, *FLOAT32, "train.betas=[0.9, 0.99999999]")
)
RUNS |= {
    "constant 1": Run(1, "directed", "", NO_DROPOUT),
    "constant 4": Run(4, "directed", "hp", NO_DROPOUT),
    "no dead unit": Run(4, "directed", "rp", (*NO_DROPOUT, "train.epochs=1", "train.seed=2")),
    "constant, not kept": Run(4, "directed", "hp", (*NO_DROPOUT, "model.cache_input=false")),
    "one layer 1": Run(1, "directed", "", ("model.hidden=[]",)),
    "one layer 4": Run(4, "directed", "gp", ("model.hidden=[]",)),
    "padded": Run(4, "padded"),
    "never": Run(4, "directed", "rp", ("train.eval_every=0",)),
    "third": Run(4, "directed", "rp", ("train.eval_every=3", "train.epochs=7")),
    "unlabelled": Run(2, "sparsely-labelled", "rp", ONE_SGD_STEP),
    "small weights": Run(4, "small-weights", "rp", ("graph.normalize=none", "train.epochs=8")),
    "huge": Run(2, "huge-features", "rp", (*ONE_SGD_STEP, *FLOAT32)),
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


@pytest.mark.parametrize("graph", ["directed", "undirected"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_curve_for_every_kernel_order_and_exchange(runs, graph, variant):
    expected = runs[f"{graph} float64 1"].losses
    np.testing.assert_allclose(runs[f"{graph} {variant}"].losses, expected, rtol=1e-10)


def test_200_epochs_of_adam_in_float32_are_the_same_on_every_kernel(runs):
    exact = runs["long float64 [0.9, 0.999]"].losses
    curves = [runs[f"long {kernel}"].losses for kernel in ("native", "graphblas", "scipy")]
    assert len(exact) == 200
    for one, other in zip([exact, *curves], [*curves, exact], strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-6)


def test_a_moment_that_hardly_forgets_is_right_in_float32(runs):
    exact, found = (runs[f"long {dtype} [0.9, 0.99999999]"] for dtype in ("float64", "float32"))
    np.testing.assert_allclose(found.losses, exact.losses, rtol=5e-6)


def test_a_constant_input_may_be_kept_or_not(runs):
    expected = runs["constant 1"].losses
    assert runs["constant 4"].end["orders"][0] == "given"
    assert runs["constant, not kept"].end["orders"][0] != "given"
    for name in ("constant 4", "constant, not kept"):
        np.testing.assert_allclose(runs[name].losses, expected, rtol=1e-10)
    np.testing.assert_allclose(runs["one layer 4"].losses, runs["one layer 1"].losses, rtol=1e-10)


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
        if RUNS[name].ranks > 1 and name != "one layer 4":
            assert sum(end["bytes_sent"]) > 0, name


def test_bytes_are_rows_times_width_times_size_of_the_partition(gcnmpi_lines, data_dir, tmp_path):
    """Three layers of 16 on a real directed graph: the first, of kept M·H, sends nothing."""
    path = tmp_path / "slashdot.graph"
    made = {"features": "random:16", "labels": "random:16"}
    import_graph(data_dir / "soc-Slashdot0902.mtx.gz", path, **made)
    settings = ["model.hidden=[16, 16]", "train.epochs=3", "train.eval_every=2"]
    line = ["train", path, "--quiet", *sets(*settings)]
    cases = [("rp", "rows"), ("gp", "rows"), ("gp", "mixed")]
    for model in ("rp", "gp"):
        add_partition(path, model, 4)
    lines = [
        [*line, "--partition", f"{model}-4", "--set", f"scheme.exchange={exchange}",
         "--out", tmp_path / f"{model}-{exchange}"]
        for model, exchange in cases
    ]  # fmt: skip
    assert gcnmpi_lines(4, lines) == [[None] * 4] * 3
    volumes = []
    for model, exchange in cases:
        end = Record(tmp_path / f"{model}-{exchange}").end
        partition = read_partition(path, f"{model}-4", parts=False)
        metrics = (partition.metrics if exchange == "rows" else partition.mixed)["in"]
        sent, received = np.array(metrics.send_rows), np.array(metrics.recv_rows)
        volumes.append(sent.sum())
        # Layers 2 and 3, forward (expand) and backward (fold), 16 columns of 4 bytes, 3 epochs.
        expected = (3 * 2 * 16 * 4 * (sent + received)).tolist()
        assert end["bytes_sent"] == end["bytes_predicted"] == expected
        # Evaluated after epochs 2 and 3.
        assert end["eval_bytes_sent"] == (2 * 2 * 16 * 4 * sent).tolist()
        assert all(number > 0 for number in end["setup_bytes_sent"])
    assert volumes[2] < volumes[1] < volumes[0]


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


def test_loss_and_gradient_do_not_depend_on_the_number_of_ranks(runs):
    start = _initial(WIDTHS)
    gradients = {}
    for ranks in (1, 2, 4):
        after = runs[f"step {ranks}"].weights
        gradients[ranks] = np.concatenate([(start[name] - after[name]).ravel() for name in after])
    norm = np.linalg.norm(gradients[1])
    assert norm > 0.01
    for ranks in (2, 4):
        np.testing.assert_allclose(np.linalg.norm(gradients[ranks]), norm, rtol=1e-12)
        np.testing.assert_allclose(gradients[ranks], gradients[1], rtol=0, atol=1e-12 * norm)
        np.testing.assert_allclose(runs[f"step {ranks}"].losses, runs["step 1"].losses, rtol=1e-12)


def test_every_weight_of_every_layer_is_updated(runs):
    # With this seed no unit's ReLU is dead: serially, every weight has a gradient.
    after, before = runs["no dead unit"].weights, _initial(WIDTHS, seed=2)
    assert list(after) == list(before)
    for name, weight in after.items():
        assert weight.shape == before[name].shape
        # The first step of Adam moves what has a gradient by about the learning rate.
        moved = np.abs(weight - before[name])
        assert moved.min() > 0.009, name
        assert moved.max() < 0.011, name


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


def test_isolated_padding_adds_nothing_to_the_loss(runs):
    np.testing.assert_allclose(runs["padded"].losses, runs["directed float64 1"].losses, rtol=1e-10)
    for name in ("train_accuracy", "val_accuracy", "test_accuracy"):
        accuracy = runs["directed float64 1"].epochs[-1][name]
        assert runs["padded"].epochs[-1][name] == accuracy > 0


def test_matrix_values_are_not_rounded(runs, graphs):
    graph = open_graph(graphs / "small-weights.graph").graph
    assert 0 < np.abs(graph.weights).max() < 0.01
    run = RUNS["small weights"]
    config = load_config(None, BASE, over=run.settings)
    curve = oracle.train(graph, "in", config, 8)
    np.testing.assert_allclose(runs["small weights"].losses, curve.losses, rtol=1e-10)
    rounded = replace(graph, weights=np.round(graph.weights, 2))
    assert abs(oracle.train(rounded, "in", config, 1).losses[0] / curve.losses[0] - 1) > 1e-6


def test_softmax_of_huge_logits_is_finite(runs, graphs):
    graph = open_graph(graphs / "huge-features.graph").graph
    logits = _logits(graph, _initial(WIDTHS))
    assert np.abs(logits).max() > 1e4
    chosen = np.flatnonzero(graph.masks["train"] & (graph.labels >= 0))
    loss = _cross_entropy(logits[chosen], graph.labels[chosen]).mean()
    np.testing.assert_allclose(runs["huge"].losses[0], loss, rtol=1e-5)
    assert all(np.isfinite(weight).all() for weight in runs["huge"].weights.values())
