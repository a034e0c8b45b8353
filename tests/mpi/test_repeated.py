"""Several runs of one launch."""

import json
import os
import signal

import pytest
from stored_graphs import store
from test_checkpoint import ranks_of, wait_for_epochs
from words import line

from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.run.record import read_run
from partition.importing.synthetic import sbm

EPOCHS, SEEDS = 160, (0, 1, 4)
OWN = (f"train.epochs={EPOCHS}", "train.eval_every=5", "dtype=float64", "model.dropout=0.4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    graph = sbm(120, 3, degree=6, features=5, noise=1.5, train=0.4, val=0.2, seed=3)
    return store(tmp_path_factory.mktemp("beside") / "g.graph", graph, 2)


def test_runs_that_were_stopped_go_on(launched, mpirun, folder, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    given = {"partition": "rp-2", "seeds": "0,1,4", "settings": OWN}
    done = mpirun(2, "gcnmpi", *line("repeat", folder, out=whole, quiet=True, **given))
    process = launched(2, *(words := line("repeat", folder, out=stopped, **given)))
    wait_for_epochs(stopped / "seed-1", 5, process)
    os.kill(ranks_of(stopped)[1], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_REQUEUE, err
    assert read_run(stopped / "seed-1").stop["signal"] == signal.SIGTERM
    assert not (stopped / "seed-4").exists()
    assert not (stopped / "summary.json").exists()
    # Complete runs are only read.
    before = (stopped / "seed-0" / "run.jsonl").stat().st_mtime_ns
    again = mpirun(2, "gcnmpi", *words, "--quiet")
    assert done.stdout == again.stdout
    assert (stopped / "seed-0" / "run.jsonl").stat().st_mtime_ns == before
    for seed in SEEDS:
        first, second = (read_run(out / f"seed-{seed}").epochs for out in (whole, stopped))
        assert len(first) == EPOCHS
        assert [epoch["loss"] for epoch in first] == [epoch["loss"] for epoch in second]
    facts = [json.loads((out / "summary.json").read_text()) for out in (whole, stopped)]
    assert facts[0] == facts[1]
    best = [
        max(e["val_accuracy"] or 0 for e in read_run(whole / f"seed-{n}").epochs) for n in SEEDS
    ]
    assert [run["val"] for run in facts[0]] == best


def test_a_run_that_fails_is_named(hear_mistakes, folder, tmp_path):
    own = {"settings": ("train.epochs=30", "train.optimizer=sgd"), "seeds": 0, "out": tmp_path}
    words = [*line("sweep", folder, partition="rp-2", quiet=True, **own)]
    words += ["--try", "train.lr=0.1,1e300,0.2"]
    told = [
        (words, ("train.lr=1e300/seed-0: the loss is", "lower train.lr")),
        ([*words, "--set", "task.name=links"], "train.lr=0.1/seed-0"),
    ]
    hear_mistakes(2, told)
    assert read_run(tmp_path / "train.lr=0.1" / "seed-0").end is not None
    assert not (tmp_path / "train.lr=0.2").exists()
    assert not (tmp_path / "summary.json").exists()
