"""Records of real runs about their ranks: all that a page and logs need, and none disagrees."""

import csv

import numpy as np
import pytest
from stored_graphs import store
from words import line

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.report.page import write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.run.record import read_run
from partition.graph.store import read_partition
from partition.importing.synthetic import rmat
from partition.pipeline.adding import add_partition

RANKS = 3
CASES = {
    "folds": "scheme.exchange=rows train.eval_every=2",
    "mixed": "scheme.exchange=mixed",
    "rounded": "comm.precision=bf16 model.hidden=[5,6]",
    "attention": "model.name=gat model.heads=2 scheme.transport=shared",
    "grid": "scheme.name=tensor3d scheme.grid=3x1x1",  # where it is not known who sends to whom
}


@pytest.fixture(scope="module")
def runs(succeed, hear_mistakes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    path = store(folder / "g.graph", rmat(7, 600, features=4, classes=3))
    add_partition(path, "gp", RANKS)

    def train(name, epochs, settings="", log=None):
        own = {"settings": [f"train.epochs={epochs}", *settings.split()], "log": log}
        return line("train", path, partition=f"gp-{RANKS}", out=folder / name, **own)

    lines = [train(name, 6, settings) for name, settings in CASES.items()]
    lines += [train("again", epochs, "train.checkpoint_every=4", "csv") for epochs in (6, 9)]
    succeed(RANKS, *lines)
    hear_mistakes(RANKS, [(train("unknown", 6, log="cvs"), "unknown log 'cvs'")])
    assert not (folder / "unknown").exists()
    return folder


@pytest.mark.parametrize("name", CASES)
def test_who_sends_how_much_to_whom_and_phases_are_those_of_the_run(runs, name):
    record = read_run(runs / name)
    found = facts_of(name, "", record)
    pairs = found.pairs
    assert (pairs is None) == (name == "grid")
    if pairs is not None:
        # Rows that do not travel in messages are read by those who need them.
        shared = np.array(record.end.shared_bytes) / record.end.epochs_run
        np.testing.assert_array_equal(pairs.sum(axis=0), found.received + shared)
        assert name == "attention" or pairs.sum(axis=1).tolist() == found.sent.tolist()
        assert not pairs.diagonal().any()
    assert [(s.after, s.epoch) for s in record.phase_samples] == [(i, i + 1) for i in range(6)]
    for phase, seconds in record.end.rank_phases.items():
        summary = record.end.phases[phase]
        found = summary["min"], summary["max"]
        assert (min(seconds), max(seconds)) == pytest.approx(found, rel=1e-4)
        # A phase is entered before the first epoch and after the last one too: not all is sampled.
        if phase in EPOCH_PHASES and max(seconds):
            sampled = sum(np.array(s.seconds.get(phase, [0] * RANKS)) for s in record.phase_samples)
            assert (sampled <= np.array(seconds) * 1.02 + 1e-6).all()
    assert all({"spmm", "gemm", "loss", "update"} <= set(s.seconds) for s in record.phase_samples)
    assert set(record.end.rank_phases) <= {*EPOCH_PHASES, "load"}


def test_ranks_pages_and_logs_agree_with_partitions_and_runs(runs, tmp_path):
    metrics = read_partition(runs / "g.graph", f"gp-{RANKS}", parts=False).metrics["in"]
    ranks = read_run(runs / "folds").start.of_ranks
    assert (ranks.rows, ranks.entries) == (metrics.rows, metrics.nnz)
    assert [sum(rows) for rows in ranks.peer_rows] == metrics.send_rows
    assert [len(peers) for peers in ranks.peers] == metrics.send_messages
    found = [facts_of(name, name, read_run(runs / name)) for name in CASES]
    write_report(tmp_path / "page.html", found)
    assert "NOT equal" not in (tmp_path / "page.html").read_text()
    # A run that goes on has every epoch once in its log.
    rows = list(csv.DictReader((runs / "again" / "epochs.csv").open()))
    record = read_run(runs / "again")
    assert [int(row["epoch"]) for row in rows] == list(range(1, 10))
    assert [float(row["loss"]) for row in rows] == [epoch["loss"] for epoch in record.epochs]
    assert [s.epoch for s in record.phase_samples] == list(range(1, 10))
