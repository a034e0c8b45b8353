"""Tasks, metrics, splits and what ends training, on several ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store
from words import line, sets

from gcnmpi.run.record import read_run
from partition.graph.store import open_graph
from partition.importing.synthetic import sbm

LABELS = "task.name=labels task.metrics=average_precision,f1_micro,f1_macro,accuracy"
NUMBERS = "task.name=regression task.metrics=mae,r2"
CLASSES = "task.metrics=f1_micro,f1_macro,roc_auc,average_precision"
TASKS = (
    CLASSES,
    f"{CLASSES} task.class_weights=1,2,0.5 task.label_smoothing=0.1",
    "task.class_weights=balanced task.metric=f1_macro train.clip_norm=0.05",
    f"{LABELS} train.optimizer=adamw train.weight_decay=0.1",
    f"{LABELS} task.class_weights=balanced task.label_smoothing=0.2",
    f"{NUMBERS} train.clip_norm=0.5 train.schedule=cosine train.warmup=2",
    f"{NUMBERS} task.loss=absolute train.schedule=step train.step_epochs=2",
    f"{NUMBERS} task.loss=huber train.schedule=plateau train.plateau_patience=0",
    f"{CLASSES} train.split=1 train.patience=3 train.epochs=9",
    f"{LABELS} model.train_features=true train.clip_norm=0.01",
)
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
def path(tmp_path_factory):
    return store(tmp_path_factory.mktemp("tasks") / "g.graph", make_graph(), 2, 3, 4)


@pytest.mark.parametrize("nranks", [3, 4])
def test_metrics_are_exact_however_vertices_are_spread(run_cases, nranks):
    (found,) = run_cases("metrics", nranks, [20])
    assert max(found.values()) <= 1e-12, found
    assert len(found) == 15


def test_a_task_of_a_file_of_its_own_has_one_curve(run_cases, path):
    """Its examples, work, evaluation and serial twin: see programs/rating_task.py."""
    random = np.random.default_rng(1)
    np.save(path / "ratings.npy", np.c_[random.integers(0, 120, (50, 2)), random.random(50)])
    names = {"loss curve", "final weights", "metrics", "finite differences", "training bytes"}
    case = {"graph": path, "settings": ["task.name=ratings", "task.columns=3", "model.hidden=5"]}
    for nranks, partition in ((1, None), (3, "rp-3")):
        more = case | {"partition": partition, "directions": 2}
        (found,) = run_cases("rating_task", nranks, [more])
        assert found["missed"] == []
        assert names <= {*found["checks"]}


def test_every_task_is_that_of_one_process(verified, path):
    """The other schemes take turns."""
    cases = []
    for i, settings in enumerate(TASKS):
        for scheme, partition in (("p2p", "rp-4"), SCHEMES[i % len(SCHEMES)]):
            given = [f"scheme.name={scheme}", "train.epochs=6", *settings.split()]
            cases.append((path, partition, given))
    verified(4, cases, "metrics")


LONG = "dtype=float64 train.epochs=60 train.lr=0.05 train.checkpoint_every=4"
WATCHED = (f"{LONG} train.schedule=plateau train.plateau_patience=2 train.patience=12 "
           "train.decay=0.5")  # fmt: skip


def test_runs_that_watch_the_validation_metric(succeed, hear_mistakes, path, tmp_path):
    none = store(tmp_path / "none.graph", replace(open_graph(path).graph, masks={}), 3)
    whole, cut, no = tmp_path / "whole", tmp_path / "cut", tmp_path / "no"

    def train(graph, out, settings, **more):
        options = {"settings": settings.split(), "partition": "rp-3", "out": out}
        return line("train", graph, **options, **more)

    succeed(
        3,
        train(path, whole, WATCHED),
        train(path, cut, f"{WATCHED} train.epochs=7"),
        train(path, cut, WATCHED),
        train(path, whole, WATCHED),  # complete, though 60 epochs were not run
        train(path, tmp_path / "split", LONG, split=1),
        train(path, tmp_path / "numbers", f"{LONG} {NUMBERS}"),
    )
    mistakes = [
        (train(path, no, LONG, split=2), "there is no split 2"),
        (train(none, no, WATCHED), "train.patience: "),
        (train(none, no, f"{LONG} train.schedule=plateau"), "train.schedule = plateau: "),
        (train(path, whole, f"{WATCHED} train.patience=5"), "train.patience"),
    ]
    hear_mistakes(3, mistakes)
    one, other, split = read_run(whole), read_run(cut), read_run(tmp_path / "split")
    assert len(one.epochs) == one.end["best_epoch"] + 12 < 60
    assert one.end["stopped_early"]
    best = one.epochs[one.end["best_epoch"] - 1]
    assert one.end["best_test_accuracy"] == best["test_accuracy"]
    # The second launch went on after 7 epochs, with the same rates and the same end.
    assert other.resumes == 1
    for name in ("loss", "val_accuracy"):
        assert [e[name] for e in one.epochs] == [e[name] for e in other.epochs]
    assert split.epochs[0]["loss"] != one.epochs[0]["loss"]
    numbers = read_run(tmp_path / "numbers")
    assert numbers.start["metric"] == "rmse"
    assert numbers.end["best_val_rmse"] == min(e["val_rmse"] for e in numbers.epochs)


def test_a_grid_of_keys(succeed, hear_mistakes, path, tmp_path):
    few = (*sets("train.epochs=3"), "--quiet", "--partition", "rp-2")
    o, p = (["--out", tmp_path / name, *few] for name in "op")
    mistakes = {
        "--try train.lr": "is not of the form KEY=V",
        "--try train.lrr=1,2": "unknown config key 'train.lrr'",
        "--try train.lr=1,x": "train.lr takes a number",
        "--try train.seed=1,2": "give --seeds",
        "--try train.lr=1 --set train.seed=1": "give --seeds",
        "--try train.lr=1 --seeds 3..1": "is no number or range",
        "--try train.lr=1 --splits 7": "there is no split 7",
        "--try train.lr=1 --try train.lr=2": "given twice",
    }
    # A run is there once, under whatever name: runs spelled otherwise, and of splits. A key that a
    # run may change as it goes on tells it from others where they are to differ in that key.
    good = "--try train.lr=0.1,0.01 --try model.hidden=4,[4,4] --seeds 0..1"
    launched = [["sweep", path, *o, *good.split()]]
    for words in (
        "repeat --seeds 0",
        "repeat --seeds 0 --splits all",
        "sweep --try train.epochs=2,3 --seeds 0",
        "sweep --try train.lr=0.1 --try model.hidden=4,[4] --seeds 0",
        "sweep --try model.hidden=[4] --try train.lr=1e-1 --seeds 0",
    ):
        verb, *rest = words.split()
        launched.append([verb, path, *(p[:2] + p[4:] if "epochs" in words else p), *rest])
    succeed(2, *launched)
    told = [(["sweep", path, *o, *words.split()], says) for words, says in mistakes.items()]
    hear_mistakes(2, told)
    names = {str(run.parent.relative_to(p[1])) for run in p[1].rglob("run.jsonl")}
    last = "train.lr=0.1,model.hidden=4/seed-0"
    assert names == {
        "seed-0", "split-1-seed-0", "train.epochs=2/seed-0", "train.epochs=3/seed-0", last,
    }  # fmt: skip
    assert [run["name"] for run in json.loads((p[1] / "summary.json").read_text())] == [last]
    facts = json.loads((o[1] / "summary.json").read_text())
    assert len(facts) == 8
    points = {f"train.lr={lr},model.hidden={h}" for lr in ("0.1", "0.01") for h in ("4", "[4,4]")}
    assert {run["point"] for run in facts} == points
    for run in facts:
        record = read_run(o[1] / run["name"])
        assert record.epochs[run["epoch"] - 1]["test_accuracy"] == run["test"]
        assert record.start["config"]["train"]["lr"] == float(run["point"].split(",")[0][9:])
