"""calibrate, bench-schemes, bench and the comparison with peers."""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import small_graph, store
from words import sets

from gcnmpi.options.config import from_table
from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.planner.machine import LATER, Machine, read_machine
from gcnmpi.proof import oracle
from partition.graph.store import read_partition, remove_partition, write_graph, write_partition
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = store(tmp_path_factory.mktemp("bench") / "small.graph", small_graph("directed"), 2)
    add_partition(path, "block", 2)
    return path


@pytest.fixture(scope="module")
def machine_file(mpirun, tmp_path_factory):
    file = tmp_path_factory.mktemp("machine") / "new" / "machine.json"
    done = mpirun(2, "gcnmpi", "calibrate", "--out", file, "--set", "kernel=scipy", timeout=120)
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
    assert set(facts["measured"]) >= LATER - {"disk_byte"}  # no folder is named to write to
    assert machine.batch_step > 0
    assert machine.drawn_entry > 0


def test_measured_beside_predicted(mpirun, path, machine_file):
    words = ["--machine", machine_file, "--epochs", "2", "--set", "kernel=scipy", "--json"]
    done = mpirun(2, "gcnmpi", "bench-schemes", path, *words, timeout=240)
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


def test_mistakes_are_heard_by_all(gcnmpi_lines, hear_mistakes, path, machine_file):
    placed = f"{path} --partition rp-2"
    mistakes = {
        f"bench-schemes {path} --partition rp-9": "rp-9",
        f"bench-schemes {path} --schemes p3p": "p3p",
        f"bench-schemes {path} --machine {path}/manifest.json": "does not describe a machine",
        f"calibrate --out {machine_file}/x.json": "cannot write",
        f"bench spmm {path}": "one process",
        f"bench spmm {path} --widths 4,x": "--widths",
        f"bench epoch {placed} --beside threads=3": "threads",
        f"bench epoch {placed} --out {path}/manifest.json/x": "cannot write",
        f"bench exchange {placed} --transports pigeon": "pigeon",
        f"bench exchange {placed} --set scheme.name=bcast": "scheme",
    }
    hear_mistakes(2, [(line.split(), says) for line, says in mistakes.items()])
    good = ["bench-schemes", path, "--schemes", "p2p", "--epochs", "1", "--partition", "rp-2"]
    assert gcnmpi_lines(2, [good]) == [[None, None]]


def records(done) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_bench_spmm(mpirun, tmp_path):
    out = tmp_path / "new" / "spmm.jsonl"
    words = ["--rmat", "8x6", "--kernels", "graphblas,scipy", "--widths", "4,20", "--rounds", "2"]
    machine, *lines = records(mpirun(1, "gcnmpi", "bench", "spmm", *words, "--json", "--out", out))
    assert machine["threads"] >= 1
    assert machine["cache_bytes"] > 0
    assert {(line["width"], line["kernel"]) for line in lines} == {
        (width, kernel) for width in (4, 20) for kernel in ("graphblas", "scipy")
    }
    for line in lines:
        times = line["seconds"]
        assert 0 < times["low"] <= times["median"] <= times["high"]
        assert line["difference"] < 1e-5
        assert line["bytes"]["compulsory"] <= line["bytes"]["gathered"]
        flops = 2 * line["entries"] * line["width"]
        assert line["gflops"] == pytest.approx(flops / times["median"] / 1e9)
        bound = line["bytes"]["cached"] / line["bandwidth"]
        assert line["share"]["cached"] == pytest.approx(bound / times["median"])
    assert [json.loads(line) for line in out.read_text().splitlines()] == [machine, *lines]


def test_bench_epoch(mpirun, path):
    words = ["--partition", "rp-2", "--rounds", "2", "--beside", "model.cache_input=false"]
    done = mpirun(2, "gcnmpi", "bench", "epoch", path, *words, "--set", "kernel=scipy", "--json")
    _, given, changed = records(done)
    assert (given["name"], changed["name"]) == ("as given", "model.cache_input=false")
    assert given["orders"][0] == "given"
    assert given["ratio"] == {"median": 1, "low": 1, "high": 1}
    assert {"spmm", "gemm", "reduce"} <= set(given["phases"])
    assert "load" not in given["phases"]
    # Without the cache: one product with M more, or two, of some width.
    assert changed["gflops"] * changed["seconds"]["median"] > (
        given["gflops"] * given["seconds"]["median"]
    )


def test_bench_exchange(mpirun, path):
    words = ["--partition", "rp-2", "--rounds", "2", "--widths", "3,5"]
    done = mpirun(2, "gcnmpi", "bench", "exchange", path, *words)
    assert "expand" in done.stdout
    assert "fold" in done.stdout
    _, *lines = records(mpirun(2, "gcnmpi", "bench", "exchange", path, *words, "--json"))
    volume = sum(read_partition(path, "rp-2").metrics["in"].send_rows)
    assert {line["transport"] for line in lines} == set(TRANSPORTS) - {"nccl"}
    for line in lines:
        assert line["bytes"] + line["shared_bytes"] == volume * line["width"] * 4
        assert (line["shared_bytes"] > 0) == (line["transport"] == "shared")


@pytest.fixture
def for_mixed(path):
    block = read_partition(path, "block-2")
    made = dataclasses.replace(block, name="for-mixed", options={"exchange": "mixed"})
    write_partition(path, made)
    yield made.name
    remove_partition(path, made.name)


CROWDED = sets(f"threads={os.cpu_count()}", "kernel=scipy", "scheme.exchange=rows")


@pytest.mark.parametrize(
    "words",
    [
        ["bench-schemes", "--schemes", "p2p", "--epochs", "1"],
        ["infer", "--out", "y.npy", "--weights", "w.npz"],
    ],
    ids=lambda words: words[0],
)
def test_partitions_of_the_wrong_exchange_and_cores_are_told_of(
    mpirun, gcnmpi_lines, path, for_mixed, tmp_path, words
):
    if "w.npz" in words:
        trained = ["--partition", "block-2", "--set", "train.epochs=1", "--out", tmp_path / "run"]
        trained += ["--save-weights", tmp_path / "w.npz"]
        assert gcnmpi_lines(2, [["train", path, *trained]]) == [[None] * 2]
    done = mpirun(2, "gcnmpi", *words, path, "--partition", for_mixed, *CROWDED, cwd=tmp_path)
    assert done.stderr.count("warning: partition 'for-mixed' was made for the mixed exchange") == 1
    assert done.stderr.count(f" use {2 * (os.cpu_count() or 1)} threads, but may run on ") == 1


BENCH_PEERS = Path(__file__).parents[2] / "scripts" / "bench_peers.py"


@pytest.fixture
def made(tmp_path):
    graph = sbm(200, 3, degree=6, features=5, seed=1, train=0.5)
    write_graph(tmp_path / "made.graph", graph, source={})
    return graph


def test_our_side_of_the_comparison_with_peers(shell, path, made, tmp_path):
    words = "--model 3x4 --rounds 2 --epochs 2 --peers torch --out peers.jsonl"
    shell(f"python {BENCH_PEERS} made.graph {words}", timeout=120)
    found = [json.loads(line) for line in (tmp_path / "peers.jsonl").read_text().splitlines()]
    ours = [line for line in found if line["peer"] == "gcnmpi"]
    assert [line["config"]["model"]["cache_input"] for line in ours] == [True, False]
    curve = oracle.train(made, "in", from_table({"model": {"hidden": [4, 4]}}), 1)
    for line in ours:
        assert line["loss"] == pytest.approx(curve.losses[0], rel=1e-5)
        assert line["ratio"]["median"] == 1
        assert 0 < line["import_bytes"] < line["peak_bytes"]
    has_torch = importlib.util.find_spec("torch") is not None
    assert all(("missing" in line) != has_torch for line in found if line["peer"] == "torch")
    done = shell(f"python {BENCH_PEERS} {path} {words}", code=2)
    assert "--undirected" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("--network gat --heads 2", {"name": "gat", "heads": 2}),
        ("--network sage --aggregate max --cache on", {"name": "sage", "aggregation": "max"}),
        ("--network gin --cache on", {"name": "gin"}),
    ],
)
def test_other_networks_are_compared(shell, made, tmp_path, words, model):
    peers = "pyg,pyg-csr,dgl"  # where they are installed
    words += f" --model 2x4 --rounds 1 --epochs 1 --peers {peers} --out peers.jsonl"
    shell(f"python {BENCH_PEERS} made.graph {words}", timeout=300)
    found = [json.loads(line) for line in (tmp_path / "peers.jsonl").read_text().splitlines()]
    assert [line["peer"] for line in found] == ["gcnmpi", *peers.split(",")]
    curve = oracle.train(made, "in", from_table({"model": {"hidden": [4], **model}}), 1)
    for line in found:
        if "missing" not in line:
            assert line["loss"] == pytest.approx(curve.losses[0], rel=1e-5)


def test_options_of_another_network_are_refused(shell, made):
    done = shell(f"python {BENCH_PEERS} made.graph --network sage --heads 4", code=2)
    assert "model.heads is an option of models gat, gatv2" in done.stderr
