"""calibrate, bench-schemes, the folder benchmarks and the doctor."""

import json
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import small_graph, store
from words import line

from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.planner.machine import LATER, Machine, read_machine
from partition.graph.store import read_partition
from partition.pipeline.adding import add_partition

SCIPY = ("kernel=scipy",)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = store(tmp_path_factory.mktemp("bench") / "small.graph", small_graph("directed"), 2)
    add_partition(path, "block", 2)
    return path


def records(done) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_calibrated_machine_and_what_is_measured_beside_what_it_predicts(
    mpirun, gcnmpi_lines, hear_mistakes, path, tmp_path
):
    file = tmp_path / "new" / "machine.json"
    mpirun(2, "gcnmpi", *line("calibrate", out=file, settings=SCIPY), timeout=120)
    machine, facts = read_machine(file)
    assert (facts["kernel"], facts["ranks"], facts["ranks_per_node"]) == ("scipy", 2, 2)
    expected = {"latency_intra", "bandwidth_intra", "dense_flop", *LATER} - {"disk_byte"}
    assert expected <= set(facts["measured"])  # no folder is named to write to
    assert "bandwidth_inter" not in facts["measured"]  # the default stays
    assert machine.bandwidth_inter == Machine().bandwidth_inter
    assert 0 < machine.latency_intra < 1
    assert min(machine.dense_flop, machine.copy_byte, machine.batch_step, machine.drawn_entry) > 0
    given = {"machine": file, "epochs": 2, "json": True, "settings": SCIPY}
    lines = records(mpirun(2, "gcnmpi", *line("bench-schemes", path, **given), timeout=240))
    measured = [one for one in lines if "skipped" not in one]
    given = {"machine": file, "epochs": 1, "schemes": "p2p", "settings": SCIPY}
    said = mpirun(2, "gcnmpi", *line("bench-schemes", path, **given), timeout=240).stdout
    assert {"p2p", "rp-2", "block-2"} <= set(said.split())
    names = {one["partition"] for one in measured if one["scheme"] == "p2p"}
    assert names == {"rp-2", "block-2"}
    for one in measured:
        assert one["received"] == one["predicted_received"] or one["scheme"] != "p2p"
        assert one["ratio"] == pytest.approx(one["seconds"] / one["predicted_seconds"])
        assert one["memory"] > 0
        assert np.isfinite(one["predicted_seconds"])
    placed = f"{path} --partition rp-2"
    mistakes = {
        f"bench-schemes {path} --partition rp-9": "rp-9",
        f"bench-schemes {path} --schemes p3p": "p3p",
        f"bench-schemes {path} --machine {path}/manifest.json": "does not describe a machine",
        f"calibrate --out {file}/x.json": "cannot write",
    }
    hear_mistakes(2, [(words.split(), says) for words, says in mistakes.items()])
    good = f"bench-schemes {placed} --schemes p2p --epochs 1"
    assert gcnmpi_lines(2, [good.split()]) == [[None, None]]


def test_benches_of_kernels_epochs_and_exchanges(mpirun, path):
    words = "--rmat 8x6 --kernels graphblas,scipy --widths 4,20 --rounds 2 --json"
    _, *lines = records(mpirun(1, BENCHMARKS / "spmm.py", *words.split()))
    assert {one["width"] for one in lines} == {4, 20}
    assert {one["kernel"] for one in lines} == {"graphblas", "scipy"}
    for one in lines:
        assert one["difference"] < 1e-5
        bound = one["bytes"]["cached"] / one["bandwidth"]
        assert one["share"]["cached"] == pytest.approx(bound / one["seconds"]["median"])
    options = f"{path} --partition rp-2 --rounds 2 --json"
    words = f"{options} --beside model.cache_input=false --set kernel=scipy"
    _, given, changed = records(mpirun(2, BENCHMARKS / "epoch.py", *words.split()))
    assert (given["name"], changed["name"]) == ("as given", "model.cache_input=false")
    assert (given["orders"][0], given["ratio"]) == ("given", {"median": 1, "low": 1, "high": 1})
    # Without the cache: one product with M more, or two, of some width.
    flops = [one["gflops"] * one["seconds"]["median"] for one in (given, changed)]
    assert flops[1] > flops[0]
    _, *lines = records(mpirun(2, BENCHMARKS / "exchange.py", *options.split(), "--widths", "3,5"))
    volume = sum(read_partition(path, "rp-2").metrics["in"].send_rows)
    assert {one["transport"] for one in lines} == set(TRANSPORTS) - {"nccl"}
    for one in lines:
        assert one["bytes"] + one["shared_bytes"] == volume * one["width"] * 4
        assert (one["shared_bytes"] > 0) == (one["transport"] == "shared")


def test_the_doctor_says_what_the_ranks_find(mpirun, path, tmp_path):
    words = ("doctor", path, "--partition", "rp-2", "--folder", tmp_path)
    done = mpirun(2, "gcnmpi", *words, "--json", code=None)
    found = json.loads(done.stdout)
    assert done.returncode == int(any(finding["problem"] for finding in found["findings"]))
    assert [seat["rank"] for seat in found["ranks"]] == [0, 1]
    assert all(seat["sees_folder"] and seat["free_memory"] > 0 for seat in found["ranks"])
    (link,) = found["links"]
    assert link["ranks"] == [0, 1]
    assert link["seconds"] > 0
    assert not list(tmp_path.glob(".doctor*"))
    done = mpirun(2, "gcnmpi", "doctor", "--folder", tmp_path / "nowhere", code=2)
    assert done.stderr.count("error: ") == 1
    assert "--folder names one that all hosts share" in done.stderr
