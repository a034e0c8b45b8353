"""A run that was interrupted ends on the curve of one that was not, whatever ended it."""

import contextlib
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
from refusals import refuses
from stored_graphs import store
from words import sets

from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.report.status import ask_to_stop
from gcnmpi.run.checkpoint_files import stored
from gcnmpi.run.record import read_run
from gcnmpi.run.weights_file import read_facts
from partition.graph.store import open_graph, remove_partition, write_graph
from partition.importing.synthetic import sbm
from partition.locks import folder_lock
from partition.pipeline.adding import add_partition

EPOCHS, HALF = 12, 5
BASE = (
    "dtype=float64",
    "model.hidden=[8, 6]",
    "model.dropout=0.4",
    "model.input_dropout=0.2",
    "train.weight_decay=1e-3",
    "train.checkpoint_every=5",
)
SGD = ("train.optimizer=sgd", "train.momentum=0.9", "train.lr=0.1", "train.eval_every=3")
VARIANTS = {
    "adam": (),
    "trained features": ("model.train_features=true", "dtype=float32"),
    "sharded weights": ("model.train_features=true", "scheme.name=tensor3d"),
    "sgd, cached input": (*SGD, "model.input_dropout=0.0"),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    about = {"degree": 8, "intra": 0.9, "features": 6, "noise": 1.5, "train": 0.3, "val": 0.2}
    made, other = (sbm(300, 3, seed=seed, **about) for seed in (0, 1))
    path = store(tmp_path_factory.mktemp("graphs") / "g.graph", made, 2, 3)
    add_partition(path, "gp", 3)
    store(path.with_name("other.graph"), other, 3)
    # The same arcs, imported with other features, labels or masks.
    for name, change in {
        "features": {"features": made.features + 1},
        "labels": {"labels": (made.labels + 1) % 3},
        "masks": {"masks": made.masks | {"train": made.masks["val"], "val": made.masks["train"]}},
    }.items():
        store(path.with_name(f"{name}.graph"), replace(made, **change), 3)
    return path


def train(graph, out, *settings, epochs=EPOCHS, partition="rp-3", words=()):
    """The words of a command line."""
    schemes = [setting for setting in settings if setting.startswith("scheme.name=")]
    if schemes and schemes[-1] != "scheme.name=p2p":  # the grids need none
        partition = None
    given = sets(*BASE, f"train.epochs={epochs}", *settings)
    words = [*(["--partition", partition] if partition else []), *given, *words]
    return ["train", graph, "--quiet", "--out", out, *words]


def curve(out):
    """Loss and accuracies of every epoch: all that must not depend on interruptions."""
    same = ("loss", "train_accuracy", "val_accuracy", "test_accuracy")
    return [[epoch[name] for name in same] for epoch in read_run(out).epochs]


@pytest.fixture(scope="module")
def runs(gcnmpi_lines, graph, tmp_path_factory):
    """Folders: of each variant "full", "half" (5 epochs), and "rest", resumed from half."""
    root = tmp_path_factory.mktemp("runs")
    lines = []
    for name, settings in VARIANTS.items():
        weights = ("--save-weights", root / f"{name} full.npz", "--save-best", root / "best.npz")
        lines.append(train(graph, root / f"{name} full", *settings, words=weights))
        lines.append(train(graph, root / f"{name} half", *settings, epochs=HALF))
        resume = ("--resume", root / f"{name} half")
        weights = ("--save-weights", root / f"{name} rest.npz")
        lines.append(train(graph, root / f"{name} rest", *settings, words=(*resume, *weights)))
        lines.append(train(graph, root / f"{name} rest", *settings, words=weights))
        settings = (*settings, "kernel=scipy", "scheme.name=p2p", "loading.order=degree")
        words = train(graph, root / f"{name} gp", *settings, partition="gp-3", words=resume)
        lines.append(words)
    half, rest = root / "mixed half", root / "mixed then rows"
    lines.append(train(graph, half, "scheme.exchange=mixed", epochs=HALF))
    lines.append(train(graph, rest, "scheme.exchange=rows", words=("--resume", half)))
    words = (*resume, "--save-best", root / "unevaluated.npz")
    lines.append(
        train(graph, root / "unevaluated", *VARIANTS[name], "train.eval_every=0", words=words)
    )
    assert gcnmpi_lines(3, lines, timeout=120) == [[None] * 3] * len(lines)
    lines = [
        train(graph, root / f"{name} two", *settings, "scheme.name=summa",
              words=("--resume", root / f"{name} half" / "checkpoints" / "epoch-000005"))
        for name, settings in VARIANTS.items()
    ]  # fmt: skip
    assert gcnmpi_lines(2, lines, timeout=60) == [[None] * 2] * len(lines)
    return root


@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_is_uninterrupted_bit_for_bit(runs, name):
    full, rest = read_run(runs / f"{name} full"), read_run(runs / f"{name} rest")
    assert len(full.epochs) == len(rest.epochs) == EPOCHS
    if "train.eval_every=3" not in VARIANTS[name]:  # that was evaluated once more at its half
        assert curve(runs / f"{name} full") == curve(runs / f"{name} rest")
        assert full.end["best_epoch"] == rest.end["best_epoch"] > 0
    losses = [e["loss"] for e in full.epochs]
    assert losses == [e["loss"] for e in rest.epochs]
    trained = "model.train_features=true" in VARIANTS[name]
    for ending in (".npz", *([".features.npy"] if trained else [])):
        contents = [(runs / f"{name} {which}{ending}").read_bytes() for which in ("full", "rest")]
        assert contents[0] == contents[1]
    tolerance = 1e-5 if "dtype=float32" in VARIANTS[name] else 1e-10
    for other in ("gp", "two"):  # another partition, kernel and order; other ranks and scheme
        found = [row[0] for row in curve(runs / f"{name} {other}")]
        np.testing.assert_allclose(found, losses, rtol=tolerance)
        assert found[:HALF] == losses[:HALF]


def test_a_run_goes_on_with_the_other_exchange_and_without_evaluations(runs):
    found = [row[0] for row in curve(runs / "mixed then rows")]
    np.testing.assert_allclose(found, [row[0] for row in curve(runs / "adam full")], rtol=1e-10)
    *_, name = VARIANTS
    epochs = read_run(runs / f"{name} half").epochs
    best = max(epochs, key=lambda epoch: epoch["val_accuracy"] or 0.0)
    facts = read_facts(runs / "unevaluated.npz")
    assert (facts["epoch"], facts["loss"]) == (best["epoch"], best["loss"])
    assert read_run(runs / "unevaluated").end["best_epoch"] == best["epoch"]


def test_what_the_record_of_a_resumed_run_says(runs):
    lines = (runs / "adam rest" / "run.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    # It was called twice, and the second time there was nothing left to do.
    first, second = ["epoch"] * HALF, ["epoch"] * (EPOCHS - HALF)
    assert [one["event"] for one in records] == ["start", *first, "resume", *second, "end"]
    end = records[-1]
    assert (end["epochs"], end["epochs_run"]) == (EPOCHS, EPOCHS - HALF)
    assert end["bytes_sent"] == end["bytes_predicted"]
    assert end["eval_bytes_sent"] == end["eval_bytes_predicted"]
    assert records[HALF + 1]["epoch"] == HALF
    assert kept(runs / "adam rest" / "checkpoints") == ["epoch-000012", "epoch-000010"]


def kept(folder):
    """Names of the checkpoints, the newest first."""
    return [path.name for path in stored(folder)]


# Long enough to be interrupted, short enough to be waited for.
LONG = 80


@pytest.fixture(scope="module")
def long_curve(gcnmpi_lines, graph, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    assert gcnmpi_lines(3, [train(graph, out, epochs=LONG)]) == [[None] * 3]
    return curve(out)


def wait_for_epochs(out, count, process):
    """Wait until so many epochs are in the record."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        record = out / "run.jsonl"
        if record.exists() and record.read_text().count('"event": "epoch"') >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"no epoch {count}: {process.communicate()}")


@pytest.mark.parametrize("number", [signal.SIGUSR2, "stop"])
def test_a_signal_asks_for_a_checkpoint_and_an_end(
    gcnmpi_lines, launched, graph, long_curve, tmp_path, number
):
    out = tmp_path / "run"
    words = train(graph, out, "train.checkpoint_every=0", epochs=LONG)
    process = launched(3, *words)
    wait_for_epochs(out, 5, process)
    if number == "stop":  # from another process
        ask_to_stop(out)
        number = signal.SIGUSR1
    else:  # which mpirun passes on
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_REQUEUE, err
    assert "stopped as asked after epoch" in err
    stopped = read_run(out)
    assert stopped.stop["signal"] == number
    assert stopped.stop["epoch"] == len(stopped.epochs) < LONG
    assert gcnmpi_lines(3, [words]) == [[None] * 3]
    assert curve(out) == long_curve


@pytest.mark.parametrize("variant", ["adam", "sgd, cached input"])
def test_the_last_epoch_is_kept_where_there_is_no_time(
    mpirun, gcnmpi_lines, runs, graph, tmp_path, variant
):
    words = train(graph, tmp_path, "train.checkpoint_every=0", *VARIANTS[variant])
    mpirun(3, "killed.py", tmp_path, *words, code=None)
    assert kept(tmp_path / "checkpoints") == ["epoch-000003"]
    assert gcnmpi_lines(3, [words]) == [[None] * 3]
    assert curve(tmp_path) == curve(runs / f"{variant} full")


def test_ctrl_c_leaves_a_stop_in_the_record(launched, graph, tmp_path):
    # Open MPI gives its ranks half a second, which a machine that is busy may need for less.
    for attempt in range(3):
        out = tmp_path / str(attempt)
        process = launched(3, *train(graph, out, epochs=10**6))
        wait_for_epochs(out, 5, process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode != 0
        run = read_run(out)
        assert run.end is None
        if run.stop is not None:
            break
    assert run.stop["signal"] in (signal.SIGINT, signal.SIGTERM)
    assert run.stop["epoch"] == len(run.epochs)
    assert (out / "checkpoints" / run.stop["checkpoint"] / "manifest.json").exists()


def test_a_run_shares_nothing_and_ends_with_its_launcher(
    launched, hear_mistakes, open_mpi, graph, tmp_path
):
    weights = ("--save-weights", tmp_path / "w.npz")
    process = launched(3, *train(graph, tmp_path / "run", epochs=10**6, words=weights))
    wait_for_epochs(tmp_path / "run", 5, process)
    ranks = ranks_of(process)
    assert len(ranks) == 3
    for rank in ranks:  # they are there, and take no core from the others
        os.kill(rank, signal.SIGSTOP)
    before = (tmp_path / "run" / "run.jsonl").stat().st_ino
    lines = [
        train(graph, tmp_path / "run"),
        ["at once", *train(graph, tmp_path / "run", words=("--resume", "never"))],
        ["at once", *train(graph, tmp_path / "other", words=weights)],
        ["at once", *train(graph, tmp_path / "other", words=("--save-best", tmp_path / "w.npz"))],
    ]
    hear_mistakes(3, [(line, "is in use: gcnmpi train") for line in lines])
    add_partition(graph, "rp", 2, overwrite=True)  # which nobody uses
    refuses("is in use: gcnmpi train", add_partition, graph, "rp", 3, overwrite=True)
    refuses("is in use: gcnmpi train", remove_partition, graph, "rp-3")
    again = open_graph(graph).graph
    refuses("is in use: gcnmpi train", write_graph, graph, again, source={}, overwrite=True)
    assert (tmp_path / "run" / "run.jsonl").stat().st_ino == before
    assert not (tmp_path / "run" / "run.previous.jsonl").exists()
    for rank in ranks:
        os.kill(rank, signal.SIGCONT)
    process.kill()
    until = time.monotonic() + 60
    while set(ranks) & set(parents()):
        assert time.monotonic() < until, "the ranks go on"
        time.sleep(0.05)
    stop = read_run(tmp_path / "run").stop
    if open_mpi:  # the processes by which MPICH's mpirun starts ranks end them at once
        assert stop["signal"] == signal.SIGHUP


def ranks_of(process) -> list[int]:
    """Process ids of the ranks of an mpirun, its children or theirs."""
    every = parents()
    near = {process.pid, *(number for number, (_, of) in every.items() if of == process.pid)}
    return [number for number, (name, of) in every.items() if of in near and "python" in name]


def parents() -> dict[int, tuple[str, int]]:
    """Name and parent of every process that runs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, fields = path.read_text().rsplit(")", 1)
            state, parent, *_ = fields.split()
            if state != "Z":  # it only waits to be buried
                found[int(path.parent.name)] = (name, int(parent))
    return found


# Who dies, and at which of its calls of what: in an epoch, and at steps of a checkpoint.
DEATHS = {
    "in an epoch": (1, "gcnmpi.run.trainer.maxima@8"),
    "writing features": (2, "os.fsync@5"),
    "before its name": (0, "pathlib:Path.replace@10"),
}
# Who finds the disk full, at which of its calls of what; the checkpoints that there are then.
FULL = {
    "features": (2, "os.fsync@5", ["epoch-000005"]),
    "start of the record": (0, "os.write@1", []),
    "end of the record": (0, f"os.write@{EPOCHS + 2}", ["epoch-000010", "epoch-000012"]),
}


def test_what_ends_a_rank_costs_no_more_than_the_epochs_since(
    mpirun, gcnmpi_lines, graph, runs, tmp_path
):
    """A full disk is one error, and the checkpoint before is whole."""
    lines = {}
    for name, (rank, call, *left) in (DEATHS | FULL).items():
        words = train(graph, tmp_path / name, *VARIANTS["trained features"])
        how = "full" if left else "SIGKILL"
        done = mpirun(3, "broken.py", how, rank, call, *words, code=2 if left else None)
        if left:
            assert done.stderr.count("error: ") == 1, (name, done.stderr)
            assert "No space left on device" in done.stderr, name
            assert ".tmp" not in done.stderr, name
            checkpoints = tmp_path / name / "checkpoints"
            there = sorted(os.listdir(checkpoints)) if checkpoints.exists() else []
            assert there == left[0], name
        else:
            assert done.returncode != 0, name
            assert read_run(tmp_path / name).end is None, name
            assert len(read_run(tmp_path / name).epochs) >= 5, name
        lines[name] = words
    assert gcnmpi_lines(3, lines.values(), timeout=60) == [[None] * 3] * len(lines)
    for name in lines:
        assert curve(tmp_path / name) == curve(runs / "trained features full"), name
        assert kept(tmp_path / name / "checkpoints") == ["epoch-000012", "epoch-000010"], name


def test_weights_that_cannot_be_written_at_the_end_are_not_lost(
    mpirun, gcnmpi_lines, graph, runs, tmp_path
):
    weights = ("--save-weights", tmp_path / "w.npz", "--save-best", tmp_path / "best.npz")
    words = train(graph, tmp_path / "run", "train.checkpoint_every=0", words=weights)
    done = mpirun(3, "broken.py", "fault", 0, "os.fsync", *words, code=2)
    assert "best.npz: No space left on device" in done.stderr
    assert "epoch-000012: the same command" in done.stderr
    assert gcnmpi_lines(3, [words]) == [[None] * 3]
    assert curve(tmp_path / "run") == curve(runs / "adam full")
    assert (tmp_path / "w.npz").read_bytes() == (runs / "adam full.npz").read_bytes()
    assert (tmp_path / "best.npz").exists()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def test_what_cannot_be_resumed_says_why(gcnmpi_lines, hear_mistakes, graph, runs, tmp_path):
    for name in ("newest", "both", "none"):
        shutil.copytree(runs / "adam rest", tmp_path / name)
        record = tmp_path / name / "run.jsonl"  # without its end: it is not complete
        record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:-1]))
    truncate(tmp_path / "newest" / "checkpoints" / "epoch-000012" / "state.npz")
    for epoch in (10, 12):
        truncate(tmp_path / "both" / "checkpoints" / f"epoch-{epoch:06d}" / "epochs.jsonl")
    shutil.rmtree(tmp_path / "none" / "checkpoints")
    (tmp_path / "unreadable").mkdir()
    (tmp_path / "unreadable" / "checkpoints").symlink_to(tmp_path / "a disk that is not mounted")
    half = ("--resume", runs / "adam half")
    b, other = tmp_path / "b", graph.with_name("other.graph")
    good = [train(graph, tmp_path / "newest"), train(graph, tmp_path / "none")]
    assert gcnmpi_lines(3, good) == [[None] * 3] * 2
    mistakes = [
        (train(graph, tmp_path / "both"), "epochs.jsonl is truncated"),
        (train(graph, tmp_path / "unreadable"), "cannot read"),
        (train(graph, b, words=("--resume", tmp_path / "both")), "damaged"),
        (train(graph, b, words=("--resume", tmp_path)), "no checkpoint"),
        (train(graph, b, "train.lr=0.5", words=half), "train.lr 0.01"),
        (train(graph, b, "model.hidden=[8]", words=half), "model.hidden"),
        (train(graph, b, "dtype=float32", words=half), "dtype float64"),
        (train(graph, b, epochs=4, words=half), "beyond train.epochs 4"),
        (train(other, b, words=half), "another graph"),
    ]
    for name in ("features", "labels", "masks"):
        line = train(graph.with_name(f"{name}.graph"), b, words=half)
        mistakes.append((line, "other features, labels or masks"))
    hear_mistakes(3, mistakes)
    assert curve(tmp_path / "newest") == curve(tmp_path / "none") == curve(runs / "adam full")
    warnings = read_run(tmp_path / "newest").start["warnings"]
    assert any("state.npz is truncated; going on from the one before" in w for w in warnings)
    assert not read_run(tmp_path / "none").resumes


def test_a_run_waits_for_one_that_is_about_to_end(gcnmpi_lines, graph, tmp_path):
    lines = [train(graph, tmp_path / name, epochs=2) for name in ("free", "held")]
    assert gcnmpi_lines(3, lines[:1]) == [[None] * 3]  # from here on there are ranks
    (tmp_path / "held").mkdir()
    with contextlib.ExitStack() as held:
        held.enter_context(folder_lock(tmp_path / "held", "a test"))
        Timer(2.0, held.pop_all().close).start()
        assert gcnmpi_lines(3, lines[1:]) == [[None] * 3]


def test_never_starts_over_and_keeps_what_was_there(gcnmpi_lines, graph, runs, tmp_path):
    shutil.copytree(runs / "adam rest", tmp_path / "run")
    words = train(graph, tmp_path / "run", "train.lr=0.02", words=("--resume", "never"))
    assert gcnmpi_lines(3, [words]) == [[None] * 3]
    assert curve(tmp_path / "run") != curve(runs / "adam full")
    assert (tmp_path / "run" / "run.previous.jsonl").exists()
    assert kept(tmp_path / "run" / "checkpoints.previous") == ["epoch-000012", "epoch-000010"]


FIXED = ("sage", "gat")


def test_a_finished_run_is_complete_and_nothing_of_it_is_written_again(
    gcnmpi_lines, graph, tmp_path
):
    """With and without checkpoints; what is missing is made, and another run is not the same."""
    root = tmp_path / "run"
    words = ("--save-weights", root / "w.npz", "--save-best", root / "b.npz")
    line = train(graph, root, "train.checkpoint_every=0", epochs=3, words=words)
    # Networks that fix a part of [graph], so that their record has another than was given.
    fixed = [train(graph, tmp_path / name, f"model.name={name}", epochs=3) for name in FIXED]
    assert gcnmpi_lines(3, [line, *fixed]) == [[None] * 3] * 3
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in root.iterdir()}
    more = [
        train(graph, tmp_path / "lost", "train.checkpoint_every=0", epochs=3,
              words=("--save-weights", tmp_path / "lost" / "w.npz")),
        train(graph, tmp_path / "other", "train.lr=0.02", epochs=3),
        train(graph, tmp_path / "longer", "train.checkpoint_every=0", epochs=4),
    ]  # fmt: skip
    for name in ("lost", "other", "longer"):
        shutil.copytree(root, tmp_path / name)
    (tmp_path / "lost" / "w.npz").write_bytes((root / "b.npz").read_bytes()[:-5])
    assert gcnmpi_lines(3, [line, *more, *fixed]) == [[None] * 3] * 6
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in root.iterdir()}
    assert after == before
    for same in (root, *(tmp_path / name for name in FIXED)):
        assert not (same / "run.previous.jsonl").exists()
    assert (tmp_path / "lost" / "w.npz").read_bytes() == (root / "w.npz").read_bytes()
    for name in ("other", "longer"):
        assert (tmp_path / name / "run.previous.jsonl").exists()
    assert len(read_run(tmp_path / "longer").epochs) == 4
