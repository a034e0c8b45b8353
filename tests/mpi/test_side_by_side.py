"""Runs of one launch side by side, each on a group of ranks: as if one after the other."""

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

EPOCHS, SEEDS = 160, (0, 1, 4, 7)
OWN = (f"train.epochs={EPOCHS}", "train.eval_every=5", "dtype=float64", "model.dropout=0.4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    graph = sbm(120, 3, degree=6, features=5, noise=1.5, train=0.4, val=0.2, seed=3)
    return store(tmp_path_factory.mktemp("beside") / "g.graph", graph, 2)


def test_runs_are_those_of_one_after_the_other_stopped_or_not(launched, mpirun, folder, tmp_path):
    one, beside = tmp_path / "one", tmp_path / "beside"
    given = {"partition": "rp-2", "seeds": "0,1,4,7", "settings": OWN}
    words = line("repeat", folder, out=beside, groups=2, **given)
    done = mpirun(2, "gcnmpi", *line("repeat", folder, out=one, quiet=True, **given))
    process = launched(4, *words)
    for seed in (0, 1):
        wait_for_epochs(beside / f"seed-{seed}", 5, process)
    os.kill(ranks_of(beside)[3], signal.SIGTERM)  # a rank of one group tells the other
    _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_REQUEUE, err
    begun = [read_run(path.parent) for path in beside.glob("*/run.jsonl")]
    stopped = [run.stop["signal"] for run in begun if run.end is None]
    assert stopped == [signal.SIGTERM] * 2
    assert len(list(beside.glob("*/checkpoints/*"))) >= 2
    assert not (beside / "summary.json").exists()
    again = mpirun(4, "gcnmpi", *words, "--quiet")
    # Complete runs are only read: by other groups, or one after the other.
    before = (beside / "seed-4" / "run.jsonl").stat().st_mtime_ns
    third = mpirun(2, "gcnmpi", *line("repeat", folder, out=beside, quiet=True, **given))
    assert done.stdout == again.stdout == third.stdout
    assert (beside / "seed-4" / "run.jsonl").stat().st_mtime_ns == before
    for seed in SEEDS:
        first, second = (read_run(out / f"seed-{seed}").epochs for out in (one, beside))
        assert len(first) == EPOCHS
        assert [epoch["loss"] for epoch in first] == [epoch["loss"] for epoch in second]
    facts = [json.loads((out / "summary.json").read_text()) for out in (one, beside)]
    assert facts[0] == facts[1]
    best = [max(e["val_accuracy"] or 0 for e in read_run(one / f"seed-{n}").epochs) for n in SEEDS]
    assert [run["val"] for run in facts[0]] == best
    assert read_run(beside / "seed-7").start["ranks"] == 2


def test_a_run_that_fails_ends_the_job_when_others_have_come_to_their_ends(
    hear_mistakes, folder, tmp_path
):
    own = {"settings": ("train.epochs=30", "train.optimizer=sgd"), "seeds": 0, "out": tmp_path}
    words = [*line("sweep", folder, partition="rp-2", quiet=True, **own), "--groups"]
    lr = "--try", "train.lr=1e300,0.1,0.2,0.3"
    told = [
        ([*words, 2, *lr], ("train.lr=1e300/seed-0: the loss is", "lower train.lr")),
        ([*words, 3, *lr], "--groups 3 does not divide 4 ranks"),
        ([*words, 2, "--try", "train.lr=0.1"], "--groups 2: there are 1 runs"),
        ([*words, 1, *lr], "rp-2"),
        ([*words, 2, *lr, "--set", "task.name=links"], "train.lr=1e300/seed-0"),
    ]
    hear_mistakes(4, told)
    assert read_run(tmp_path / "train.lr=0.1" / "seed-0").end is not None
    assert not (tmp_path / "train.lr=0.3").exists()
    assert not (tmp_path / "summary.json").exists()
