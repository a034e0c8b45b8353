"""Runs of one launch side by side, each on a group of ranks: as if one after the other."""

import json
import os
import signal

import numpy as np
import pytest
from stored_graphs import store
from test_checkpoint import ranks_of, wait_for_epochs
from words import sets

from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.run.record import read_run
from partition.importing.synthetic import sbm

EPOCHS = 250
SEEDS = (0, 1, 4, 7)
OF_RUNS = sets(f"train.epochs={EPOCHS}", "train.eval_every=5", "dtype=float64", "model.dropout=0.4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    graph = sbm(120, 3, degree=6, features=5, noise=1.5, train=0.4, val=0.2, seed=3)
    return store(tmp_path_factory.mktemp("beside") / "g.graph", graph, 2)


def words(folder, out, *more):
    seeds = ",".join(map(str, SEEDS))
    of_runs = ["--partition", "rp-2", "--seeds", seeds, "--out", out, *OF_RUNS]
    return ["repeat", folder, *of_runs, *more]


def curves(out):
    runs = {seed: read_run(out / f"seed-{seed}") for seed in SEEDS}
    return {seed: [epoch["loss"] for epoch in run.epochs] for seed, run in runs.items()}


def test_runs_are_those_of_one_after_the_other_stopped_or_not(launched, mpirun, folder, tmp_path):
    one, beside = tmp_path / "one", tmp_path / "beside"
    done = mpirun(2, "gcnmpi", *words(folder, one, "--quiet"))
    process = launched(4, *words(folder, beside, "--groups", 2))
    wait_for_epochs(beside / "seed-0", 5, process)
    wait_for_epochs(beside / "seed-1", 5, process)
    os.kill(ranks_of(beside)[3], signal.SIGTERM)  # a rank of one group tells the other
    _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_REQUEUE, err
    assert err.count("the same command goes on") == 1
    assert "seed-0: epoch     1/250" in err
    assert "seed-1: epoch     1/250" in err
    begun = [read_run(path.parent) for path in beside.glob("*/run.jsonl")]
    assert sum(run.end is None for run in begun) == 2
    assert {run.stop["signal"] for run in begun if run.end is None} == {signal.SIGTERM}
    assert len(list(beside.glob("*/checkpoints/*"))) >= 2
    assert not (beside / "summary.json").exists()
    again = mpirun(4, "gcnmpi", *words(folder, beside, "--groups", 2, "--quiet"))
    assert again.stdout == done.stdout
    assert curves(beside) == curves(one)
    assert all(len(losses) == EPOCHS for losses in curves(one).values())
    facts = [json.loads((out / "summary.json").read_text()) for out in (one, beside)]
    assert facts[0] == facts[1]
    tests = [run["test"] for run in facts[0]]
    assert f"test {np.mean(tests):.4f} ± {np.std(tests, ddof=1):.4f}" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[1:5]] == [
        f"seed-{seed}" for seed in SEEDS
    ]
    best = [max(e["val_accuracy"] or 0 for e in read_run(one / f"seed-{n}").epochs) for n in SEEDS]
    assert [run["val"] for run in facts[0]] == best
    assert read_run(beside / "seed-7").start["ranks"] == 2
    # Complete runs are only read: by other groups, or one after the other.
    before = (beside / "seed-4" / "run.jsonl").stat().st_mtime_ns
    third = mpirun(2, "gcnmpi", *words(folder, beside, "--quiet"))
    assert third.stdout == done.stdout
    assert (beside / "seed-4" / "run.jsonl").stat().st_mtime_ns == before


def test_a_run_that_fails_ends_the_job_when_others_have_come_to_their_ends(
    hear_mistakes, folder, tmp_path
):
    out = tmp_path / "out"
    few = [*sets("train.epochs=30", "train.optimizer=sgd"), "--seeds", "0", "--out", out]
    line = ["sweep", folder, "--partition", "rp-2", *few, "--quiet", "--groups"]
    lr = "--try", "train.lr=1e300,0.1,0.2,0.3"
    told = [
        ([*line, 2, *lr], ("train.lr=1e300/seed-0: the loss is", "lower train.lr")),
        ([*line, 3, *lr], "--groups 3 does not divide 4 ranks"),
        ([*line, 2, "--try", "train.lr=0.1"], "--groups 2: there are 1 runs"),
        ([*line, 1, *lr], "rp-2"),
        ([*line, 2, *lr, "--set", "task.name=links"], "train.lr=1e300/seed-0"),
    ]
    hear_mistakes(4, told)
    assert read_run(out / "train.lr=0.1" / "seed-0").end is not None
    assert not (out / "train.lr=0.2").exists()
    assert not (out / "summary.json").exists()
