"""Runs of gcnmpi.torch: their record, checkpoints and signals, and what is refused."""

import csv
import json
from importlib.util import find_spec

import numpy as np
import pytest
from stored_graphs import store

from gcnmpi.report.run_facts import facts_of
from gcnmpi.report.status import status
from gcnmpi.run.record import read_run
from partition.graph.store import read_partition
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
EPOCHS = 10
SIGNALS = ("SIGUSR1", "SIGTERM")
MISTAKES = {
    "never": "has no epoch",
    "outside": "outside of run.epochs",
    "nothing": "rank 0 did not call run.log in epoch 1",
    "one rank": "rank 1 makes the next epoch of a run at torch_runs.py",
    "epoch": "run.log was called with epoch 2 in epoch 1",
    "twice": "run.log was called twice in epoch 1",
    "loss": "the loss of epoch 1 is not the same on all ranks",
    "metrics": "the metrics of epoch 1 are not the same on all ranks",
    "name": "'lr' is no name of a metric",
    "object": "which has no state_dict",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    about = {"degree": 8, "intra": 0.9, "features": 6, "noise": 1.5, "train": 0.3, "val": 0.2}
    path = store(tmp_path_factory.mktemp("graphs") / "g.graph", sbm(200, 3, seed=0, **about), 2, 3)
    add_partition(path, "gp", 2)
    return path


@pytest.fixture
def launch(mpirun, graph, tmp_path):
    """Runs cases on so many ranks; what they came to."""

    def run(nranks, *cases, code=0, env=None):
        given = {"graph": str(graph), "parts": f"rp-{nranks}" if nranks > 1 else None}
        cases = [given | {"epochs": EPOCHS} | case for case in cases]
        for case in cases:
            case["out"] = str(tmp_path / case["out"])
            if case.get("resume", "never") not in ("auto", "never"):
                case["resume"] = str(tmp_path / case["resume"])
        (tmp_path / "cases.json").write_text(json.dumps(cases))
        return mpirun(
            nranks, "torch_runs.py", tmp_path / "cases.json", code=code, timeout=240, env=env
        )

    return run


def curve(out):
    return [[e["loss"], e["val_accuracy"]] for e in read_run(out).epochs]


def test_a_run_that_was_interrupted_is_one_that_was_not(launch, graph, tmp_path):
    every = {"checkpoint_every": 4}
    done = launch(
        2,
        {"out": "whole", "config": {"lr": 0.02}, "log": "csv,tensorboard"},
        {"out": "half", "epochs": 5},
        {"out": "half"},
        {"out": "half"},  # which is complete
        *({"out": sent, "stop": 3, "sent": sent} for sent in SIGNALS),
        *({"out": sent} for sent in SIGNALS),
        *(
            {"out": out, "own": True, "epochs": n}
            for out, n in (("own", 5), ("own", 9), ("own 9", 9))
        ),
    )
    told = [*["done"] * 4, *["exit code 75"] * len(SIGNALS), *["done"] * (len(SIGNALS) + 3)]
    assert done.stdout.splitlines() == told
    ends = [("kill", 4), ("raises", 8)]  # at a checkpoint, after one
    for how, epoch in ends:
        ended = launch(2, {"out": how, how: epoch, **every}, code=None)
        assert ended.returncode != 0
        assert ("RuntimeError: one rank alone" in ended.stderr) == (how == "raises")
    from_half = {"resume": "half/checkpoints/epoch-000005"}
    launch(1, {"out": "on-1", **from_half}, {"out": "grown", "epochs": 5})
    launch(2, *({"out": how, **every} for how, _ in ends), {"out": "grown"})
    for out in ("half", *SIGNALS, *dict(ends)):
        assert curve(tmp_path / out) == curve(tmp_path / "whole"), out
        same = [(tmp_path / name / "weights.pt").read_bytes() for name in ("whole", out)]
        assert same[0] == same[1], out
    assert curve(tmp_path / "own") == curve(tmp_path / "own 9") != curve(tmp_path / "whole")[:9]
    wanted = np.array(curve(tmp_path / "whole"))
    for out in ("on-1", "grown"):
        np.testing.assert_allclose(curve(tmp_path / out), wanted, rtol=0, atol=1e-12)
    assert curve(tmp_path / "on-1")[:5] == curve(tmp_path / "whole")[:5]

    record = read_run(tmp_path / "whole")
    assert record.end["bytes_sent"] == record.end["bytes_predicted"]
    # The rows that the partition is said to send, there and back, of 8 columns and of 3.
    rows = sum(read_partition(graph, "rp-2").metrics["in"]["send_rows"])
    assert sum(record.end["bytes_sent"]) == EPOCHS * 2 * (8 + 3) * 8 * rows
    assert record.start["config"]["script"] == {"lr": 0.02}
    assert "torch" in record.start["versions"]
    assert any("g.all_reduce_gradients(net)" in line for line in record.start["script"]["lines"])
    facts = status(tmp_path / "whole")
    assert (facts["state"], facts["epoch"], facts["epochs"]) == ("finished", EPOCHS, EPOCHS)
    assert facts_of("whole", "", record).sent.sum() > 0
    with open(tmp_path / "whole" / "epochs.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 1 + EPOCHS
    assert list((tmp_path / "whole" / "tensorboard").iterdir())
    assert read_run(tmp_path / "half").resumes == 1
    best = max(record.epochs, key=lambda epoch: epoch["val_accuracy"])
    assert record.end["best_epoch"] == best["epoch"]
    assert (tmp_path / "whole" / "best.pt").exists()


def test_a_loop_that_is_left_ends_the_run(launch, tmp_path):
    """Also before the epoch is logged; the same script then finds the run complete."""
    ways = [{"out": "left", "leave": 6}, {"out": "unlogged", "unlogged": 7}]
    launch(2, {"out": "six", "epochs": 6}, *ways, *ways)
    for case in ways:
        out = tmp_path / case["out"]
        assert curve(out) == curve(tmp_path / "six")
        assert read_run(out).end["stopped_early"]
        assert [path.name for path in (out / "checkpoints").iterdir()] == ["epoch-000006"]
        assert read_run(out).resumes == 0


def test_a_rank_that_stands_still_ends_the_run(launch):
    done = launch(2, {"out": "hung", "hangs": 3}, code=None, env={"GCNMPI_TIMEOUT": "10"})
    assert done.returncode != 0
    assert "has made no progress for 10 s" in done.stderr


def test_bytes_of_a_run_are_those_that_are_predicted(launch, tmp_path):
    """Of fetched rows and mixed exchanges; and of each of two runs with one graph."""
    cases = [{"fetch": True}, {"exchange": "mixed"}, {"exchange": "mixed", "fetch": True}]
    cases = [{"out": f"{n}", "again": str(tmp_path / f"{n}-again"), "epochs": 2, **case}
             for n, case in enumerate(cases)]  # fmt: skip
    launch(3, *cases)
    sent = []
    for n in range(len(cases)):
        first, second = (read_run(tmp_path / name).end for name in (f"{n}", f"{n}-again"))
        for what in ("bytes_sent", "bytes_received", "messages_sent", "shared_bytes"):
            kind, _, _ = what.partition("_")
            predicted = {"bytes_sent": "bytes", "bytes_received": "received"}.get(what, kind)
            assert first[what] == first[f"{predicted}_predicted"] == second[what], what
        sent.append(sum(first["bytes_sent"]))
    assert sent[1] < sent[2] < sent[0]


def test_mistakes_are_one_line_on_all_ranks(launch):
    cases = [{"out": name, "mistake": name} for name in MISTAKES]
    then = {
        "of another network: 0.weight is float64 (8, 6), and float64 (9, 6)": {"width": 9},
        "was made with script.lr None, this run has 1": {"config": {"lr": 1}},
        "beyond run.epochs(1)": {"epochs": 1},
        "there is no checkpoint": {"resume": "nowhere"},
    }
    there = [{"out": "there", **case} for case in ({"epochs": 2}, *then.values())]
    done = launch(2, *cases, *there)
    told = done.stdout.splitlines()
    for words, line in zip([*MISTAKES.values(), "done", *then], told, strict=True):
        assert words in line
