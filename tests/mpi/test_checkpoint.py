"""A run that was interrupted ends on the curve of one that was not, whatever ended it."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from threading import Timer

import numpy as np
import pytest
from refusals import refuses
from stored_graphs import store
from words import latest, line, processes_of, wait_until

from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.report.status import ask_to_stop
from gcnmpi.run.checkpoint_files import stored
from gcnmpi.run.record import read_run
from gcnmpi.run.weights_file import read_facts
from partition.graph.store import open_graph, remove_partition, write_graph
from partition.importing.synthetic import sbm
from partition.locks import folder_lock
from partition.pipeline.adding import add_partition

EPOCHS, HALF, LONG = 12, 5, 80
BASE = (
    "dtype=float64", "model.hidden=[8, 6]", "model.dropout=0.4", "model.input_dropout=0.2",
    "train.weight_decay=1e-3", "train.checkpoint_every=5",
)  # fmt: skip
SGD = ("train.optimizer=sgd", "train.momentum=0.9", "train.lr=0.1", "train.eval_every=3")
FEATURES = "model.train_features=true"
VARIANTS = {
    "adam": (),
    "trained features": (FEATURES, "dtype=float32"),
    "sharded weights": (FEATURES, "scheme.name=tensor3d"),
    "sgd, cached input": (*SGD, "model.input_dropout=0.0"),
}
NEVER = "train.checkpoint_every=0"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    about = {"degree": 8, "intra": 0.9, "features": 6, "noise": 1.5, "train": 0.3, "val": 0.2}
    made, other = (sbm(300, 3, seed=seed, **about) for seed in (0, 1))
    path = store(tmp_path_factory.mktemp("graphs") / "g.graph", made, 2, 3)
    add_partition(path, "gp", 3)
    masks = made.masks
    for name, like in {
        "other": other,
        # The same arcs, imported with other features, labels or masks.
        "features": replace(made, features=made.features + 1),
        "labels": replace(made, labels=(made.labels + 1) % 3),
        "masks": replace(made, masks=masks | {"train": masks["val"], "val": masks["train"]}),
    }.items():
        store(path.with_name(f"{name}.graph"), like, 3)
    return path


def train(graph, out, *settings, epochs=EPOCHS, partition="rp-3", **options):
    """The words of a command line; the grids need no partition."""
    settings = latest(*BASE, f"train.epochs={epochs}", *settings)
    grid = any(s.startswith("scheme.name=") and s != "scheme.name=p2p" for s in settings)
    partition = None if grid else partition
    own = {"quiet": True, "out": out, "partition": partition}
    return line("train", graph, settings=settings, **own, **options)


def curve(out):
    """Loss and accuracies of every epoch: all that must not depend on interruptions."""
    same = ("loss", "train_accuracy", "val_accuracy", "test_accuracy")
    return [[epoch[name] for name in same] for epoch in read_run(out).epochs]


def losses(out):
    return [loss for loss, *_ in curve(out)]


def kept(folder):
    """Names of the checkpoints, the newest first."""
    return [path.name for path in stored(folder / "checkpoints")]


@pytest.fixture(scope="module")
def runs(succeed, graph, tmp_path_factory):
    """Folders: of each variant "full", "half" (5 epochs), and others, resumed from half."""
    root = tmp_path_factory.mktemp("runs")

    def go(name, *settings, **options):
        return train(graph, root / name, *settings, **options)

    lines, two = [], []
    for name, own in VARIANTS.items():
        half = root / f"{name} half"
        full, rest = ({"save_weights": root / f"{name} {of}.npz"} for of in ("full", "rest"))
        elsewhere = (*own, "kernel=scipy", "scheme.name=p2p", "loading.order=degree")
        lines += [
            go(f"{name} full", *own, save_best=root / "best.npz", **full),
            go(f"{name} half", *own, epochs=HALF),
            go(f"{name} rest", *own, resume=half, **rest),
            go(f"{name} gp", *elsewhere, partition="gp-3", resume=half),
        ]
        checkpoint = half / "checkpoints" / "epoch-000005"
        two.append(go(f"{name} two", *own, "scheme.name=summa", resume=checkpoint))
    never, best = (*own, "train.eval_every=0"), root / "unevaluated.npz"
    succeed(
        3,
        *lines,
        go("mixed half", "scheme.exchange=mixed", epochs=HALF),
        go("adam rows", "scheme.exchange=rows", resume=root / "mixed half"),
        go("unevaluated", *never, resume=half, save_best=best),
        timeout=120,
    )
    succeed(2, *two)
    return root


@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_is_uninterrupted_bit_for_bit(runs, name):
    full, rest = read_run(runs / f"{name} full"), read_run(runs / f"{name} rest")
    expected = losses(runs / f"{name} full")
    assert losses(runs / f"{name} rest") == expected
    assert len(expected) == EPOCHS
    if "train.eval_every=3" not in VARIANTS[name]:  # that was evaluated once more at its half
        assert curve(runs / f"{name} full") == curve(runs / f"{name} rest")
        assert full.end["best_epoch"] == rest.end["best_epoch"] > 0
    for ending in (".npz", ".features.npy") if FEATURES in VARIANTS[name] else (".npz",):
        contents = [(runs / f"{name} {which}{ending}").read_bytes() for which in ("full", "rest")]
        assert contents[0] == contents[1]
    tolerance = 1e-5 if "dtype=float32" in VARIANTS[name] else 1e-10
    # Another partition, kernel and order; other ranks and scheme; the other exchange.
    for other in ("gp", "two", *(["rows"] if name == "adam" else [])):
        found = losses(runs / f"{name} {other}")
        np.testing.assert_allclose(found, expected, rtol=tolerance)
        assert found[:HALF] == expected[:HALF] or other == "rows"


def test_what_the_records_of_resumed_runs_say(runs):
    text = (runs / "adam rest" / "run.jsonl").read_text()
    records = [json.loads(one) for one in text.splitlines()]
    first, second = ["epoch"] * HALF, ["epoch"] * (EPOCHS - HALF)
    assert [one["event"] for one in records] == ["start", *first, "resume", *second, "end"]
    assert records[HALF + 1]["epoch"] == HALF
    end = records[-1]
    assert (end["epochs"], end["epochs_run"]) == (EPOCHS, EPOCHS - HALF)
    assert end["bytes_sent"] == end["bytes_predicted"]
    assert end["eval_bytes_sent"] == end["eval_bytes_predicted"]
    assert kept(runs / "adam rest") == ["epoch-000012", "epoch-000010"]
    # Without further evaluations, the best epoch is that of the first half.
    epochs = read_run(runs / f"{[*VARIANTS][-1]} half").epochs
    best = max(epochs, key=lambda epoch: epoch["val_accuracy"] or 0.0)
    facts = read_facts(runs / "unevaluated.npz")
    assert (facts["epoch"], facts["loss"]) == (best["epoch"], best["loss"])
    assert read_run(runs / "unevaluated").end["best_epoch"] == best["epoch"]


def wait_for_epochs(out, count, process):
    """Wait until so many epochs are in the record."""

    def there():
        assert process.poll() is None, process.communicate()
        record = out / "run.jsonl"
        return record.exists() and record.read_text().count('"event": "epoch"') >= count

    wait_until(there, message=f"no epoch {count}")


def test_a_signal_asks_for_a_checkpoint_and_an_end(succeed, launched, graph, tmp_path):
    """One that mpirun passes on, and one that another process asks for."""
    words = train(graph, tmp_path / "run", NEVER, epochs=LONG)
    count = 0
    for number in (signal.SIGUSR2, signal.SIGUSR1):
        process = launched(3, *words)
        wait_for_epochs(tmp_path / "run", count + 5, process)
        if number == signal.SIGUSR1:
            ask_to_stop(tmp_path / "run")
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == EXIT_REQUEUE, err
        stopped = read_run(tmp_path / "run")
        count = len(stopped.epochs)
        assert (stopped.stop["signal"], stopped.stop["epoch"]) == (number, count)
        assert count < LONG
    succeed(3, words, train(graph, tmp_path / "whole", epochs=LONG))
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


@pytest.mark.parametrize(("how", "code", "epoch"), [("no time", None, 3), ("SIGTERM", 75, 5)])
def test_the_last_epoch_is_kept(mpirun, succeed, runs, graph, tmp_path, how, code, epoch):
    """Also where there is no time to end the one that is on its way."""
    *_, variant = VARIANTS
    words = train(graph, tmp_path, NEVER, *VARIANTS[variant])
    mpirun(3, "broken.py", how, 0, "gcnmpi.run.ledger.maxima@4", *words, code=code)
    assert kept(tmp_path)[0] == f"epoch-{epoch:06d}"
    succeed(3, words)
    assert curve(tmp_path) == curve(runs / f"{variant} full")


def ranks_of(out):
    """Process ids of the ranks that write to this folder."""
    return [pid for pid, program in processes_of(out).items() if "python" in program]


def test_a_run_shares_nothing_and_ends_with_its_launcher(
    launched, hear_mistakes, open_mpi, graph, tmp_path
):
    out, weights = tmp_path / "run", tmp_path / "w.npz"
    process = launched(3, *train(graph, out, epochs=10**6, save_weights=weights))
    wait_for_epochs(out, 5, process)
    ranks = ranks_of(out)
    assert len(ranks) == 3
    for rank in ranks:  # they are there, and take no core from the others
        os.kill(rank, signal.SIGSTOP)
    before = (out / "run.jsonl").stat().st_ino
    lines = [
        ["at once", *train(graph, out)],
        ["at once", *train(graph, out, resume="never")],
        ["at once", *train(graph, tmp_path / "other", save_weights=weights)],
        ["at once", *train(graph, tmp_path / "other", save_best=weights)],
    ]
    used = "is in use: gcnmpi train"
    hear_mistakes(3, [(line, used) for line in lines])
    add_partition(graph, "rp", 2, overwrite=True)  # which nobody uses
    refuses(used, add_partition, graph, "rp", 3, overwrite=True)
    refuses(used, remove_partition, graph, "rp-3")
    refuses(used, write_graph, graph, open_graph(graph).graph, source={}, overwrite=True)
    assert (out / "run.jsonl").stat().st_ino == before
    assert not (out / "run.previous.jsonl").exists()
    for rank in ranks:
        os.kill(rank, signal.SIGCONT)
    process.kill()
    wait_until(lambda: not ranks_of(out), message="the ranks go on")
    if open_mpi:  # the processes by which MPICH's mpirun starts ranks end them at once
        assert read_run(out).stop["signal"] == signal.SIGHUP


# The end of which rank, at which of its calls; of a full disk, the checkpoints that there are.
ENDS = {
    "in an epoch": ("SIGKILL", 1, "gcnmpi.run.ledger.maxima@8", None),
    "before its name": ("SIGKILL", 0, "pathlib:Path.replace@10", None),
    "features": ("full", 2, "os.fsync@5", ["epoch-000005"]),
    "start of the record": ("full", 0, "os.write@1", []),
    "end of the record": ("full", 0, f"os.write@{EPOCHS + 2}", ["epoch-000010", "epoch-000012"]),
    "weights": ("fault", 0, "os.fsync", ["epoch-000012"]),
    "log": ("full", 0, "gcnmpi.run.logs.comma_separated:CsvLog.add@7", ["epoch-000005"]),
}


def test_what_ends_a_rank_costs_no_more_than_the_epochs_since(
    mpirun, succeed, graph, runs, tmp_path
):
    """A full disk is one error, and the checkpoint before is whole; so with weights at the end."""
    full, own, weights = "trained features full", VARIANTS["trained features"], tmp_path / "w.npz"
    lines = {name: train(graph, tmp_path / name, *own, log="csv") for name in ENDS}
    files = {"save_weights": weights, "save_best": tmp_path / "best.npz"}
    lines["weights"] = train(graph, tmp_path / "weights", NEVER, *own, **files)
    for name, (how, rank, call, left) in ENDS.items():
        code = None if left is None else 2
        done = mpirun(3, "broken.py", how, rank, call, *lines[name], code=code)
        assert done.returncode != 0, name
        if left is None:
            assert read_run(tmp_path / name).end is None, name
            assert len(read_run(tmp_path / name).epochs) >= 5, name
            continue
        assert done.stderr.count("error: ") == 1, (name, done.stderr)
        assert "No space left on device" in done.stderr, name
        assert sorted(kept(tmp_path / name)) == left, name
    succeed(3, *lines.values())
    for name in ENDS:
        assert curve(tmp_path / name) == curve(runs / full), name
        assert kept(tmp_path / name)[0] == "epoch-000012" or name == "weights", name
    assert weights.read_bytes() == (runs / f"{full}.npz").read_bytes()
    assert (tmp_path / "best.npz").exists()
    assert len((tmp_path / "log" / "epochs.csv").read_text().splitlines()) == 1 + EPOCHS


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def test_what_cannot_be_resumed_says_why(succeed, hear_mistakes, graph, runs, tmp_path):
    newest, both, none, over, unreadable, b = (tmp_path / str(number) for number in range(6))
    for copy in (newest, both, none, over):
        shutil.copytree(runs / "adam rest", copy)
        record = copy / "run.jsonl"  # without its end: it is not complete
        record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:-1]))
    truncate(newest / "checkpoints" / "epoch-000012" / "state.npz")
    for epoch in (10, 12):
        truncate(both / "checkpoints" / f"epoch-{epoch:06d}" / "epochs.jsonl")
    shutil.rmtree(none / "checkpoints")
    unreadable.mkdir()
    (unreadable / "checkpoints").symlink_to(tmp_path / "a disk that is not mounted")
    again = train(graph, over, "train.lr=0.02", resume="never")
    succeed(3, train(graph, newest), train(graph, none), again)
    half = {"resume": runs / "adam half"}
    mistakes = [
        (train(graph, both), "epochs.jsonl is truncated"),
        (train(graph, unreadable), "cannot read"),
        (train(graph, b, resume=both), "damaged"),
        (train(graph, b, resume=tmp_path), "no checkpoint"),
        (train(graph, b, "train.lr=0.5", **half), "train.lr 0.01"),
        (train(graph, b, "model.hidden=[8]", **half), "model.hidden"),
        (train(graph, b, "dtype=float32", **half), "dtype float64"),
        (train(graph, b, epochs=4, **half), "beyond train.epochs 4"),
        (train(graph.with_name("other.graph"), b, **half), "another graph"),
    ]
    for name in ("features", "labels", "masks"):
        words = train(graph.with_name(f"{name}.graph"), b, **half)
        mistakes.append((words, "other features, labels or masks"))
    hear_mistakes(3, mistakes)
    assert curve(newest) == curve(none) == curve(runs / "adam full") != curve(over)
    assert not read_run(none).resumes
    # The earlier run is kept.
    assert (over / "run.previous.jsonl").exists()
    previous = [path.name for path in stored(over / "checkpoints.previous")]
    assert previous == ["epoch-000012", "epoch-000010"]


def test_a_run_waits_for_one_that_is_about_to_end(succeed, graph, runs):
    (runs / "held").mkdir()
    held = folder_lock(runs / "held", "a test")
    held.__enter__()
    Timer(2.0, held.__exit__, (None, None, None)).start()
    began = time.monotonic()
    succeed(3, train(graph, runs / "held", epochs=2))
    assert time.monotonic() - began > 1.5


def test_a_finished_run_is_complete_and_nothing_of_it_is_written_again(succeed, graph, tmp_path):
    """Missing files are made, and another run is not the same."""
    root, lost = tmp_path / "run", tmp_path / "lost"
    files = {"save_weights": root / "w.npz", "save_best": root / "b.npz"}
    whole = train(graph, root, NEVER, epochs=3, **files)
    # Networks that fix a part of [graph], so that their record has another than was given.
    fixed = {name: tmp_path / name for name in ("sage", "gat")}
    lines = [train(graph, out, f"model.name={name}", epochs=3) for name, out in fixed.items()]
    succeed(3, whole, *lines)
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in root.iterdir()}
    more = {
        "lost": train(graph, lost, NEVER, epochs=3, save_weights=lost / "w.npz"),
        "other": train(graph, tmp_path / "other", "train.lr=0.02", epochs=3),
        "longer": train(graph, tmp_path / "longer", NEVER, epochs=4),
    }
    for name in more:
        shutil.copytree(root, tmp_path / name)
    (lost / "w.npz").write_bytes((root / "b.npz").read_bytes()[:-5])
    succeed(3, whole, *more.values(), *lines)
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in root.iterdir()}
    assert after == before
    assert not any((same / "run.previous.jsonl").exists() for same in (root, *fixed.values()))
    assert (lost / "w.npz").read_bytes() == (root / "w.npz").read_bytes()
    assert all((tmp_path / name / "run.previous.jsonl").exists() for name in ("other", "longer"))
    assert len(losses(tmp_path / "longer")) == 4
