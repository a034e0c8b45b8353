"""Records of real runs about their ranks: all that a page and logs need, and none disagrees."""

import csv
import json

import numpy as np
import pytest
from stored_graphs import store
from words import sets

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.report.page import report_figures, write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.run.record import read_run
from partition.graph.store import read_partition
from partition.importing.synthetic import rmat
from partition.pipeline.adding import add_partition

RANKS = 3
CASES = {
    "folds": ["scheme.exchange=rows", "train.eval_every=2"],
    "mixed": ["scheme.exchange=mixed"],
    "rounded": ["comm.precision=bf16", "model.hidden=[5,6]"],
    "attention": ["model.name=gat", "model.heads=2", "scheme.transport=shared"],
    "grid": ["scheme.name=tensor3d", "scheme.grid=3x1x1"],
}
# Of whom it is known who sends to whom.
EVERY = {"folds", "mixed", "rounded", "attention"}


@pytest.fixture(scope="module")
def runs(gcnmpi_lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    path = store(folder / "g.graph", rmat(7, 600, features=4, classes=3))
    add_partition(path, "gp", RANKS)

    def train(name, epochs, *settings):
        words = sets(f"train.epochs={epochs}", *settings)
        return ["train", path, "--partition", f"gp-{RANKS}", *words, "--quiet",
                "--out", folder / name]  # fmt: skip

    keeps = ["train.checkpoint_every=4"]
    lines = [train(name, 6, *settings) for name, settings in CASES.items()]
    log = ["--log", "csv"]
    lines += [train("again", epochs, *keeps) + log for epochs in (6, 9)]
    lines.append([*train("unknown", 6), "--log", "cvs"])
    *trained, unknown = gcnmpi_lines(RANKS, lines)
    assert trained == [[None] * RANKS] * (len(lines) - 1)
    assert unknown[0].startswith("unknown log 'cvs'")
    assert not (folder / "unknown").exists()
    return folder


@pytest.mark.parametrize("name", CASES)
def test_who_sends_how_much_to_whom_and_phases_are_those_of_the_run(runs, name):
    record = read_run(runs / name)
    pairs, found = facts_of(name, "", record).pairs, facts_of(name, "", record)
    assert (pairs is not None) == (name in EVERY)
    if name == "attention":  # what does not travel in messages is read by those who need it
        shared = np.array(record.end["shared_bytes"]) / record.end["epochs_run"]
        np.testing.assert_array_equal(pairs.sum(axis=0), found.received + shared)
    elif pairs is not None:
        np.testing.assert_array_equal(pairs.sum(axis=1), found.sent)
        np.testing.assert_array_equal(pairs.sum(axis=0), found.received)
        assert not pairs.diagonal().any()
    assert [(s["after"], s["epoch"]) for s in record.samples] == [(i, i + 1) for i in range(6)]
    for phase, seconds in record.end["rank_phases"].items():
        summary = record.end["phases"][phase]
        assert min(seconds) == pytest.approx(summary["min"], rel=1e-4)
        assert max(seconds) == pytest.approx(summary["max"], rel=1e-4)
        # A phase is entered before the first epoch and after the last one too: not all is sampled.
        if phase in EPOCH_PHASES and max(seconds):
            sampled = sum(np.array(s["seconds"].get(phase, [0] * RANKS)) for s in record.samples)
            assert (sampled <= np.array(seconds) * 1.02 + 1e-6).all()
    for sample in record.samples:
        assert {"spmm", "gemm", "loss", "update"} <= set(sample["seconds"])
    assert set(record.end["rank_phases"]) <= {*EPOCH_PHASES, "load"}


def test_what_ranks_hold_is_what_the_partition_says(runs):
    metrics = read_partition(runs / "g.graph", f"gp-{RANKS}", parts=False).metrics["in"]
    ranks = read_run(runs / "folds").ranks
    assert (ranks["rows"], ranks["entries"]) == (metrics.rows, metrics.nnz)
    assert [sum(rows) for rows in ranks["peer_rows"]] == metrics.send_rows
    assert [len(peers) for peers in ranks["peers"]] == metrics.send_messages
    assert all(read_run(runs / name).ranks["memory_forecast_bytes"] > 1e6 for name in CASES)


def test_a_page_of_real_runs_has_every_figure(runs, tmp_path):
    found = [facts_of(name, name, read_run(runs / name)) for name in CASES]
    write_report(tmp_path / "page.html", found)
    page = (tmp_path / "page.html").read_text()
    assert "NOT equal" not in page
    assert page.count("equal to those predicted") == len(CASES)
    keys = {figure.key for figure in report_figures(found[:1])}
    assert {"loss", "phases", "waiting", "bytes", "sent", "entries", "memory"} <= keys


def test_a_run_that_goes_on_has_every_epoch_once_in_its_log(runs):
    rows = list(csv.DictReader((runs / "again" / "epochs.csv").open()))
    record = read_run(runs / "again")
    assert [int(row["epoch"]) for row in rows] == list(range(1, 10))
    assert [float(row["loss"]) for row in rows] == [epoch["loss"] for epoch in record.epochs]
    assert [s["epoch"] for s in record.samples] == list(range(1, 10))
    records = [json.loads(line) for line in (runs / "again" / "run.jsonl").open()]
    assert sum("of_ranks" in one for one in records) == 2
