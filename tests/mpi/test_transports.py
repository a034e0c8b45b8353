"""What carries the rows: the same bits and the predicted bytes by every transport."""

import json
import os

import pytest
from test_schemes import NUMBERS, make_graph
from words import latest, sets

from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run.record import read_run
from partition.graph.store import write_graph
from partition.pipeline.adding import add_partition

DROPOUT = ("model.dropout=0.4", "model.input_dropout=0.2")
CASES = [
    ("directed", "kernel=scipy", "model.hidden=[7]", "scheme.progress_chunks=3", *DROPOUT),
    ("symmetric", "model.hidden=[11,3]", "graph.normalize=row", *DROPOUT),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("transports") / "small.graph"
    write_graph(path, make_graph("directed"), source={})
    add_partition(path, "rp", 2)
    return path


@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 7])
def test_every_transport_equals_the_serial_run(mpirun, schemes_folder, tmp_path, nranks):
    cases = [
        {
            "graph": str(schemes_folder / f"{graph}.graph"),
            "partition": f"uneven-{nranks}",
            "settings": latest("train.epochs=4", f"scheme.transport={transport}", *settings),
            "fault": None,
            "directions": 1,
        }
        for transport in TRANSPORTS
        if transport != "nccl"  # tests/mpi/test_fake_gpu.py
        for graph, *settings in CASES
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = mpirun(nranks, "verify_cases.py", tmp_path / "cases.json", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    for case, result in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert (result["code"], result["missed"]) == (0, []), case
        assert set(result["checks"]) >= NUMBERS | {"training shared", "evaluation shared"}


@pytest.mark.parametrize(("nranks", "cases"), [(1, 12), (2, 12), (3, 6), (4, 4), (7, 2)])
def test_all_transports_move_the_same_bits(mpirun, tmp_path, nranks, cases):
    done = mpirun(nranks, "transports.py", tmp_path, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases agree" in done.stdout


def test_the_record_tells_memory_from_messages(mpirun, path, tmp_path):
    words = ["--partition", "rp-2", *sets("train.epochs=3", "kernel=scipy", "scheme.exchange=rows")]
    ends, losses = {}, []
    for transport in ("shared", "persistent", "persistent"):
        out = tmp_path / transport
        option = ["--set", f"scheme.transport={transport}", "--out", out]
        done = mpirun(2, "gcnmpi", "train", path, *words, *option)
        assert done.returncode == 0, done.stdout + done.stderr
        record = read_run(out)
        ends[transport] = record.end
        losses.append([epoch["loss"] for epoch in record.epochs])
    assert losses[0] == losses[1] == losses[2]
    shared, messages = ends["shared"], ends["persistent"]
    assert shared["shared_bytes"] == shared["shared_predicted"] == messages["bytes_received"]
    assert shared["bytes_sent"] == shared["messages_sent"] == messages["shared_bytes"] == [0, 0]
    assert all(0 <= share <= 1 for share in shared["hidden"] + messages["hidden"])


def test_verify_holds_what_is_read_against_what_was_predicted(mpirun, path):
    done = mpirun(2, "gcnmpi", "verify", path, "--partition", "rp-2", "--json",
                  "--set", "kernel=scipy", "--set", "scheme.transport=shared")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["training shared"]["ok"]
    assert not checks["training shared"]["note"].startswith("0 ")


def test_mistakes_are_heard_by_all(gcnmpi_lines, path):
    train = ["train", path, "--partition", "rp-2", "--set", "train.epochs=1", "--out", path / "x"]
    lines = [
        [*train, "--set", "scheme.transport=pigeon"],
        [*train, "--set", "scheme.progress_chunks=0"],
    ]
    says = ["pigeon", "scheme.progress_chunks is at least 1"]
    for (first, second), words in zip(gcnmpi_lines(2, lines), says, strict=True):
        assert first == second
        assert words in first


def small_run(path, out, transport, *settings, epochs=3):
    words = ["train", path, "--partition", "rp-2", "--out", out]
    always = ("kernel=scipy", f"scheme.transport={transport}", f"train.epochs={epochs}")
    return [*words, *sets(*always, *settings)]


def test_what_does_not_work_here_is_a_warning_of_one_line(mpirun, path, tmp_path):
    done = {
        # A component of Open MPI without windows to which memory can be attached.
        "onesided": mpirun(
            2, "gcnmpi", *small_run(path, tmp_path / "onesided", "onesided"),
            env={"OMPI_MCA_osc": "sm"},
        ),
        "shared": mpirun(
            2, "dying.py", "full", 1, "os.memfd_create", 1,
            *small_run(path, tmp_path / "shared", "shared"),
        ),
    }  # fmt: skip
    says = {"onesided": "lets no memory", "shared": "cannot map each other's memory"}
    for transport, run in done.items():
        assert run.returncode == 0, run.stdout + run.stderr
        (warning,) = [line for line in run.stderr.splitlines() if line.startswith("warning")]
        assert says[transport] in warning
        assert "'persistent' is used" in warning
        record = read_run(tmp_path / transport)
        assert record.start["config"]["scheme"]["transport"] == "persistent"
        assert sum(record.end["bytes_sent"]) > 0


def test_a_group_of_ranks_that_fails_leaves_no_others_waiting(mpirun, path, tmp_path):
    copies = ("scheme.name=replicated", "scheme.replication=2")
    words = small_run(path, tmp_path / "run", "shared", *copies)
    done = mpirun(4, "dying.py", "full", 1, "os.memfd_create", 2, *words)
    assert done.returncode == 2, done.stderr
    assert "rank 1: error: ranks of a node cannot map each other's memory" in done.stderr


@pytest.mark.parametrize("transport", ["shared", "onesided", "neighbor"])
def test_no_rank_waits_for_one_that_is_gone(mpirun, path, tmp_path, transport):
    before = set(os.listdir("/dev/shm"))
    words = small_run(path, tmp_path / "killed", transport, epochs=10**6)
    done = mpirun(2, "dying.py", "kill", 1, "gcnmpi.halo.exchange:Exchange._begin", 40, *words)
    assert done.returncode != 0
    assert len(read_run(tmp_path / "killed").epochs) > 3
    words = small_run(path, tmp_path / "hung", transport, "comm.timeout=6", epochs=10**6)
    done = mpirun(2, "dying.py", "hang", 1, "gcnmpi.halo.exchange:Exchange._begin", 40, *words)
    assert done.returncode != 0
    assert "has made no progress for 6 s" in done.stderr
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "gcnmpi" in name]


def test_more_threads_than_cores_are_mentioned(mpirun, path, tmp_path):
    words = ["--partition", "rp-2", "--set", "threads=4096", "--set", "kernel=scipy"]
    done = mpirun(2, "gcnmpi", "train", path, *words, "--set", "train.epochs=1", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("use 8192 threads") == 1
