"""Epochs as CUDA graphs (``gpu.graph``), on the stand-in for CuPy.

There, work of a captured stream is kept with the numbers that were passed, and done when the graph
is launched: what an epoch changes and a graph does not see gives wrong numbers. Whatever CUDA does
not allow meanwhile is an error.
"""

import json
import shutil

import numpy as np
import pytest
from axes import ALL, NETWORKS, VARIANTS, settings_of
from stored_graphs import small_graph, store
from test_fake_gpu import fake
from words import sets

from gcnmpi.run.record import read_run

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with")

DROPOUT = "model.dropout=0.5"
REST = "the host computes"
# Name → settings, and how the reason begins for which there is no graph.
CASES = {
    "adam, cosine": (["train.schedule=cosine", "train.warmup=2", DROPOUT], None),
    "sgd": (["train.optimizer=sgd", "train.momentum=0.9", "train.lr=0.1", DROPOUT], None),
    "step, float64": (["train.schedule=step", "train.step_epochs=2", "dtype=float64"], None),
    "clipped, trained features": (
        ["train.clip_norm=0.01", "train.weight_decay=0.01", "model.train_features=true"], None,
    ),
    "other metrics": (["task.metrics=f1_macro,roc_auc", DROPOUT], None),
    "bcast, gat": (["scheme.name=bcast", "model.name=gat", DROPOUT], None),
    "replicated": (["scheme.name=replicated", "scheme.replication=1", DROPOUT], None),
    "summa": (["scheme.name=summa"], f"{REST} within the products of scheme 'summa'"),
    "weights": (["task.class_weights=balanced", "task.label_smoothing=0.1", DROPOUT], None),
    "labels": (["task.name=labels", "task.metrics=accuracy"], None),
    "cusparse": (["gpu.spmm=cusparse"], "CuPy makes no graphs with gpu.spmm = 'cusparse'"),
}  # fmt: skip


def test_graphs_change_no_bit_of_any_network(mpirun, schemes_folder):
    names = [*NETWORKS, *VARIANTS][:: 1 if ALL else 3]
    path = schemes_folder / "directed.graph"
    cases = compared(mpirun, path, [settings_of(name) for name in names], "late")
    for name, case in zip(names, cases, strict=True):
        # The rule that is declared is what CUDA says.
        assert (case["why"], case["said"]) == (None, None), (name, case)
        assert case["from_host"] < 1e-4, name
        assert case["same"], name
        check_counts(case)


def test_graphs_change_no_bit_with_other_settings(mpirun, schemes_folder):
    path = schemes_folder / "directed.graph"
    cases = compared(mpirun, path, [settings for settings, _ in CASES.values()], "early")
    for (name, (_, why)), case in zip(CASES.items(), cases, strict=True):
        assert case["why"] == why, name
        assert (case["said"] is None) == (why is None), (name, case)
        if why is None:
            assert case["same"], name
            assert case["before"]["epoch"]["waits"] == 1, name


def test_sparse_features_are_part_of_a_graph(mpirun, tmp_path):
    path = store(tmp_path / "sparse.graph", small_graph("directed"), keep_features="sparse")
    (case,) = compared(mpirun, path, [["model.input_dropout=0.4"]], "late")
    assert (case["why"], case["said"], case["same"]) == (None, None, True), case
    check_counts(case)


def check_counts(case):
    """Of an epoch: the graph, its number and the update; of an evaluation: the graph, counting."""
    for name, most in (("epoch", 5), ("evaluation", 2)):
        before, after = case["before"][name], case["after"][name]
        assert before["waits"] == 1
        assert after["launches"] <= most
        assert after["launches"] < before["launches"]
        assert (after["copies"], after["waits"]) == (1, 1)


def compared(mpirun, graph, cases, streams):
    """The comparison by repeat_epochs.py of each case."""
    words = ["repeat_epochs.py", graph, json.dumps([list(case) for case in cases])]
    done = mpirun(1, *words, env=fake(FAKE_STREAMS=streams), timeout=240)
    return json.loads(done.stdout)


SCHEDULE = ("train.schedule=cosine", "train.period=9", "train.checkpoint_every=2")
RUN = ("kernel=cupy", DROPOUT, *SCHEDULE)


def test_a_run_goes_on_with_graphs_as_without(mpirun, schemes_folder, tmp_path):
    found = {}
    for graph, steps in (("no", (9,)), ("yes", (4, 9))):
        out = tmp_path / graph
        for epochs in steps:
            settings = *RUN, f"gpu.graph={graph}", f"train.epochs={epochs}"
            train(mpirun, schemes_folder, 1, settings, out)
        record = read_run(out)
        assert record.start["config"]["gpu"]["graph"] == graph
        with np.load(out / "w.npz") as file:
            found[graph] = [e["loss"] for e in record.epochs], {k: file[k] for k in file.files}
    curve, weights = found.pop("no")
    assert len(curve) == 9
    for again, others in found.values():
        assert again == curve
        for name, array in weights.items():
            if array.dtype.kind == "f":
                np.testing.assert_array_equal(others[name], array)


WITHOUT_GRAPH = [
    (2, (), "2 ranks exchange rows within an epoch"),
    (1, ("train.batches=vertex,20",), "no batch of train.batches is like"),
]


@pytest.mark.parametrize(("nranks", "settings", "why"), WITHOUT_GRAPH)
def test_a_graph_that_cannot_be_is_one_error_or_one_warning(
    mpirun, schemes_folder, tmp_path, nranks, settings, why
):
    common = ("kernel=cupy", "train.epochs=1", *settings)
    asked = *common, "gpu.graph=yes"
    done = train(mpirun, schemes_folder, nranks, asked, tmp_path / "yes", code=2)
    assert done.stderr.count(f"error: gpu.graph is 'yes', and {why}") == 1, done.stderr
    assert "or set gpu.graph=no" in done.stderr
    done = train(mpirun, schemes_folder, nranks, (*common, "gpu.graph=auto"), tmp_path / "auto")
    assert done.stderr.count(f"warning: gpu.graph: epochs are no CUDA graph: {why}") == 1
    assert read_run(tmp_path / "auto").start["config"]["gpu"]["graph"] == "no"


@pytest.mark.parametrize("broken", ["capture", "launch"])
def test_a_device_that_makes_no_graph_is_one_error(mpirun, schemes_folder, tmp_path, broken):
    settings, env = ("kernel=cupy", "gpu.graph=yes"), {"FAKE_GRAPHS": broken}
    done = train(mpirun, schemes_folder, 1, settings, tmp_path / "run", code=2, **env)
    message = "error: an epoch cannot be made a CUDA graph: cudaErrorNotSupported"
    assert done.stderr.count(message) == 1, done.stderr
    assert "hint: set gpu.graph=no" in done.stderr


def train(mpirun, folder, nranks, settings, out, code=0, **variables):
    """A run, with its weights in w.npz."""
    words = ["gcnmpi", "train", folder / "directed.graph", "--out", out, *sets(*settings)]
    words += ["--save-weights", out / "w.npz"]
    words += ["--partition", f"uneven-{nranks}"] if nranks > 1 else []
    return mpirun(nranks, *words, code=code, env=fake(**variables))
