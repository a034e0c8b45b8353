"""Tasks, metrics, splits and what ends training, on several ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store
from words import sets

from gcnmpi.run.record import read_run
from partition.graph.store import open_graph
from partition.importing.synthetic import sbm

ALL_LABELS = "task.metrics=average_precision,f1_micro,f1_macro,accuracy"
LABELS = ("task.name=labels", ALL_LABELS)
NUMBERS = ("task.name=regression", "task.metrics=mae,r2")
CLASSES = ("task.metrics=f1_micro,f1_macro,roc_auc,average_precision",)
TASKS = {
    "classes": CLASSES,
    "weights": (*CLASSES, "task.class_weights=1,2,0.5", "task.label_smoothing=0.1"),
    "balanced": ("task.class_weights=balanced", "task.metric=f1_macro", "train.clip_norm=0.05"),
    "labels": (*LABELS, "train.optimizer=adamw", "train.weight_decay=0.1"),
    "labels, weights": (*LABELS, "task.class_weights=balanced", "task.label_smoothing=0.2"),
    "numbers": (*NUMBERS, "train.clip_norm=0.5", "train.schedule=cosine", "train.warmup=2"),
    "absolute": (*NUMBERS, "task.loss=absolute", "train.schedule=step", "train.step_epochs=2"),
    "huber": (*NUMBERS, "task.loss=huber", "train.schedule=plateau", "train.plateau_patience=0"),
    "split": (*CLASSES, "train.split=1", "train.patience=3", "train.epochs=9"),
    "trained features": (*LABELS, "model.train_features=true", "train.clip_norm=0.01"),
}
SCHEMES = (("replicated", "rp-2"), ("summa", None), ("tensor3d", None))


def make_graph():
    """Directed by its weights, with classes, targets of which some are unknown, and two splits."""
    graph = sbm(120, 3, degree=6, intra=0.8, features=5, noise=1.5, seed=3)
    random = np.random.default_rng(0)
    targets = np.eye(3)[graph.labels] * random.choice([1.0, 1.0, 0.0], (120, 3))
    targets = np.where(random.random((120, 3)) < 0.3, np.nan, targets).astype(np.float32)
    targets[-7:] = np.nan
    of_split = random.integers(0, 4, (120, 2))
    of_split[:4, 0], of_split[-7:] = [0, 0, 1, 2], 3
    masks = {name: of_split == k for k, name in enumerate(("train", "val", "test"))}
    return replace(graph, targets=targets, masks=masks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return store(tmp_path_factory.mktemp("tasks") / "g.graph", make_graph(), 2, 3, 4)


@pytest.mark.parametrize("nranks", [3, 4])
def test_metrics_are_exact_however_vertices_are_spread(run_cases, nranks):
    (found,) = run_cases("metrics", nranks, [20])
    assert max(found.values()) <= 1e-12, found
    assert len(found) == 15


def test_every_task_is_that_of_one_process(verified, folder):
    """The other schemes take turns."""
    cases = []
    for i, settings in enumerate(TASKS.values()):
        for scheme, partition in (("p2p", "rp-4"), SCHEMES[i % len(SCHEMES)]):
            given = [f"scheme.name={scheme}", "train.epochs=6", *settings]
            cases.append((folder, partition, given))
    verified(4, cases, "metrics")


def train(graph, out, *settings, words=()):
    partition = ["--partition", "rp-3"]
    return ["train", graph, "--quiet", *partition, "--out", out, *words, *sets(*settings)]


LONG = ("dtype=float64", "train.epochs=60", "train.lr=0.05", "train.checkpoint_every=4")
WATCHED = (*LONG, "train.schedule=plateau", "train.plateau_patience=2", "train.patience=12",
           "train.decay=0.5")  # fmt: skip


def test_runs_that_watch_the_validation_metric(gcnmpi_lines, hear_mistakes, folder, tmp_path):
    more = replace(open_graph(folder).graph, masks={})
    none = store(folder.with_name("none.graph"), more, 3)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    short = [word.replace("train.epochs=60", "train.epochs=7") for word in WATCHED]
    good = [
        train(folder, whole, *WATCHED),
        train(folder, cut, *short),
        train(folder, cut, *WATCHED),
        train(folder, whole, *WATCHED),  # complete, though 60 epochs were not run
        train(folder, tmp_path / "split", *LONG, words=["--split", "1"]),
        train(folder, tmp_path / "numbers", *LONG, *NUMBERS),
    ]
    assert gcnmpi_lines(3, good) == [[None] * 3] * len(good)
    no = tmp_path / "no"
    mistakes = [
        (train(folder, no, *LONG, words=["--split", "2"]), "there is no split 2"),
        (train(none, no, *WATCHED), "train.patience: "),
        (train(none, no, *LONG, "train.schedule=plateau"), "train.schedule = plateau: "),
        (train(folder, whole, *WATCHED, "train.patience=5"), "train.patience"),
    ]
    hear_mistakes(3, mistakes)
    one, other = read_run(whole), read_run(cut)
    assert len(one.epochs) < 60
    assert one.end["stopped_early"]
    assert one.end["best_epoch"] + 12 == len(one.epochs)
    best = one.epochs[one.end["best_epoch"] - 1]
    assert one.end["best_test_accuracy"] == best["test_accuracy"]
    # The second launch went on after 7 epochs, with the same rates and the same end.
    assert other.resumes == 1
    for name in ("loss", "val_accuracy"):
        assert [e[name] for e in one.epochs] == [e[name] for e in other.epochs]
    split = read_run(tmp_path / "split")
    assert split.epochs[0]["loss"] != one.epochs[0]["loss"]
    numbers = read_run(tmp_path / "numbers")
    assert numbers.start["metric"] == "rmse"
    lowest = min(e["val_rmse"] for e in numbers.epochs)
    assert numbers.end["best_val_rmse"] == lowest


def test_a_grid_of_keys(gcnmpi_lines, hear_mistakes, folder, tmp_path):
    def line(command, *words):
        return [command, folder, "--out", tmp_path / "o", "--partition", "rp-2", *words]

    few = [*sets("train.epochs=3"), "--quiet", "--seeds", "0..1"]
    mistakes = {
        ("--try", "train.lr"): "is not of the form KEY=V",
        ("--try", "train.lrr=1,2"): "unknown config key 'train.lrr'",
        ("--try", "train.lr=1,x"): "train.lr takes a number",
        ("--try", "train.seed=1,2"): "give --seeds",
        ("--try", "train.lr=1", "--set", "train.seed=1"): "give --seeds",
        ("--try", "train.lr=1", "--seeds", "3..1"): "is no number or range",
        ("--try", "train.lr=1", "--splits", "7"): "there is no split 7",
        ("--try", "train.lr=1", "--try", "train.lr=2"): "given twice",
    }
    good = line("sweep", "--try", "train.lr=0.1,0.01", "--try", "model.hidden=4,[4,4]", *few)
    # A run is there once, under whatever name: runs spelled otherwise, and of splits. A key that a
    # run may change as it goes on tells it from others where they are to differ in that key.
    p = ["--out", tmp_path / "p", "--partition", "rp-2", "--quiet"]
    launched = [
        good,
        ["repeat", folder, *p, *sets("train.epochs=3"), "--seeds", "0"],
        ["repeat", folder, *p, *sets("train.epochs=3"), "--seeds", "0", "--splits", "all"],
        ["sweep", folder, *p, "--try", "train.epochs=2,3", "--seeds", "0"],
        ["sweep", folder, *p, "--try", "train.lr=0.1", "--try", "model.hidden=4,[4]", *few[:2],
         "--seeds", "0"],
        ["sweep", folder, *p, "--try", "model.hidden=[4]", "--try", "train.lr=1e-1", *few[:2],
         "--seeds", "0"],
    ]  # fmt: skip
    assert gcnmpi_lines(2, launched) == [[None, None]] * len(launched)
    hear_mistakes(2, [(line("sweep", *words), says) for words, says in mistakes.items()])
    names = {str(path.parent.relative_to(tmp_path / "p"))
             for path in (tmp_path / "p").rglob("run.jsonl")}  # fmt: skip
    assert names == {
        "seed-0", "split-1-seed-0", "train.epochs=2/seed-0", "train.epochs=3/seed-0",
        "train.lr=0.1,model.hidden=4/seed-0",
    }  # fmt: skip
    last = json.loads((tmp_path / "p" / "summary.json").read_text())
    assert [run["name"] for run in last] == ["train.lr=0.1,model.hidden=4/seed-0"]
    facts = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert len(facts) == 8
    assert {run["point"] for run in facts} == {
        f"train.lr={lr},model.hidden={hidden}"
        for lr in ("0.1", "0.01")
        for hidden in ("4", "[4,4]")
    }
    for run in facts:
        record = read_run(tmp_path / "o" / run["name"])
        assert record.epochs[run["epoch"] - 1]["test_accuracy"] == run["test"]
        assert record.start["config"]["train"]["lr"] == float(run["point"].split(",")[0][9:])
