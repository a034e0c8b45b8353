"""calibrate and bench-schemes under mpirun."""

import json

import numpy as np
import pytest
from test_schemes import make_graph

from gcnmpi.machine import Machine, read_machine
from partition.pipeline import add_partition
from partition.store import write_graph


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "small.graph"
    write_graph(path, make_graph(symmetric=False), source={})
    add_partition(path, "rp", 2)
    add_partition(path, "block", 2)
    return path


@pytest.fixture(scope="module")
def machine_file(mpirun, tmp_path_factory):
    file = tmp_path_factory.mktemp("machine") / "new" / "machine.json"
    done = mpirun(2, "gcnmpi", "calibrate", "--out", file, "--set", "kernel=scipy", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(file) in done.stdout
    return file


def test_the_calibrated_machine(machine_file):
    machine, facts = read_machine(machine_file)
    assert facts["kernel"] == "scipy"
    assert facts["ranks"] == facts["ranks_per_node"] == 2
    assert {"latency_intra", "bandwidth_intra", "dense_flop"} <= set(facts["measured"])
    assert "bandwidth_inter" not in facts["measured"]  # the default stays
    assert machine.bandwidth_inter == Machine().bandwidth_inter
    assert 0 < machine.latency_intra < 1
    assert machine.dense_flop > 0
    assert machine.copy_byte > 0


def test_measured_beside_predicted(mpirun, path, machine_file):
    words = ["--machine", machine_file, "--epochs", "2", "--set", "kernel=scipy", "--json"]
    done = mpirun(2, "gcnmpi", "bench-schemes", path, *words, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    measured = [line for line in lines if "skipped" not in line]
    assert {line["partition"] for line in measured if line["scheme"] == "p2p"} == {
        "rp-2",
        "block-2",
    }
    for line in measured:
        assert line["received"] == line["predicted_received"] or line["scheme"] != "p2p"
        assert line["ratio"] == pytest.approx(line["seconds"] / line["predicted_seconds"])
        assert line["memory"] > 0
        assert np.isfinite(line["predicted_seconds"])


def test_mistakes_are_heard_by_all(gcnmpi_lines, path, machine_file):
    lines = [
        ["bench-schemes", path, "--partition", "rp-9"],
        ["bench-schemes", path, "--schemes", "p3p"],
        ["bench-schemes", path, "--machine", path / "manifest.json"],
        ["calibrate", "--out", machine_file / "x.json"],
        ["bench-schemes", path, "--schemes", "p2p", "--epochs", "1", "--partition", "rp-2"],
    ]
    says = ["rp-9", "p3p", "does not describe a machine", "cannot write"]
    *heard, good = gcnmpi_lines(2, lines)
    for (first, second), words in zip(heard, says, strict=True):
        assert first == second
        assert words in first
    assert good == [None, None]
