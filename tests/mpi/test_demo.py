"""``gcnmpi demo``: its commands run as they are printed, and the loss is one of all ranks."""

import json
import os
import subprocess

import pytest

from partition.startup import PYTHON

pytestmark = pytest.mark.usefixtures("launching")  # ranks that wait take no core from the others


def started(folder, *words, **environment):
    return subprocess.run(
        [*PYTHON, "gcnmpi", "demo", "--out", "made here", *words],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_loss_is_the_same_for_one_rank_and_four_on_every_partition(tmp_path):
    done = started(tmp_path, "--vertices", "300", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    losses = {}
    for record in tmp_path.glob("made here/*/run.jsonl"):
        entries = map(json.loads, record.read_text(encoding="utf-8").splitlines())
        losses[record.parent.name] = [e["loss"] for e in entries if "loss" in e and "epoch" in e]
    assert losses.keys() == {"one", "rp-4", "gp-4", "hp-4"}
    assert len(losses["one"]) == 3
    for found in losses.values():
        assert found == pytest.approx(losses["one"], rel=1e-5)
    assert (tmp_path / "made here" / "report.html").exists()
    assert "$ mpirun -n 4 gcnmpi train 'made here/demo.graph' --partition hp-4" in done.stdout


def test_a_demo_is_no_rank(tmp_path):
    done = started(tmp_path, OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0")
    assert done.returncode == 2
    assert "start it without mpirun" in done.stderr
    assert not (tmp_path / "made here").exists()
