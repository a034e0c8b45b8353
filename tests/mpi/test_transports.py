"""Transports of the rows: the same bits and the predicted bytes by every transport."""

import os

import pytest
from axes import daily
from stored_graphs import small_graph, store
from test_schemes import NUMBERS
from words import sets

from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run.record import read_run

DROPOUT = ("model.dropout=0.4", "model.input_dropout=0.2")
CASES = [
    ("directed", "kernel=scipy", "model.hidden=[7]", "scheme.progress_chunks=3", *DROPOUT),
    ("symmetric", "model.hidden=[11,3]", "graph.normalize=row", *DROPOUT),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("transports") / "small.graph"
    return store(path, small_graph("directed"), 2)


@pytest.mark.parametrize("nranks", daily(7, 2))
def test_every_transport_equals_the_serial_run(verified, schemes_folder, nranks):
    """The cases take turns."""
    transports = [name for name in TRANSPORTS if name != "nccl"]  # tests/mpi/test_fake_gpu.py
    cases = []
    for i, transport in enumerate(transports):
        graph, *settings = CASES[(i + nranks) % 2]
        settings = ["train.epochs=3", f"scheme.transport={transport}", *settings]
        cases.append((schemes_folder / f"{graph}.graph", f"uneven-{nranks}", settings))
    verified(nranks, cases, *NUMBERS, "training shared", "evaluation shared")


@pytest.mark.parametrize(("nranks", "cases"), daily((3, 3), (2, 3), (4, 2)))
def test_all_transports_move_the_same_bits(run_cases, tmp_path, nranks, cases):
    assert run_cases("transports", nranks, [tmp_path]) == [cases]


def test_the_record_tells_memory_from_messages(gcnmpi_lines, path, tmp_path):
    names = ("shared", "persistent")
    lines = [small_run(path, tmp_path / name, name, "scheme.exchange=rows") for name in names]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 2
    records = [read_run(tmp_path / name) for name in names]
    losses = [[epoch["loss"] for epoch in record.epochs] for record in records]
    assert losses[0] == losses[1]
    shared, messages = (record.end for record in records)
    assert shared["shared_bytes"] == shared["shared_predicted"] == messages["bytes_received"]
    assert shared["bytes_sent"] == shared["messages_sent"] == messages["shared_bytes"] == [0, 0]
    assert all(0 <= share <= 1 for share in shared["hidden"] + messages["hidden"])


def test_mistakes_are_heard_by_all(hear_mistakes, path):
    chunks = small_run(path, path / "x", "shared", "scheme.progress_chunks=0")
    mistakes = [
        (small_run(path, path / "x", "pigeon"), "pigeon"),
        (chunks, "scheme.progress_chunks is at least 1"),
    ]
    hear_mistakes(2, mistakes)


def small_run(path, out, transport, *settings, epochs=3):
    words = ["train", path, "--partition", "rp-2", "--out", out]
    always = ("kernel=scipy", f"scheme.transport={transport}", f"train.epochs={epochs}")
    return [*words, *sets(*always, *settings)]


def test_what_does_not_work_here_is_a_warning_of_one_line(mpirun, path, tmp_path):
    refusing = small_run(path, tmp_path / "onesided", "onesided")
    full = ("broken.py", "full", 1, "os.memfd_create")
    done = {
        # A component of Open MPI without windows to which memory can be attached.
        "onesided": mpirun(2, "gcnmpi", *refusing, env={"OMPI_MCA_osc": "sm"}),
        "shared": mpirun(2, *full, *small_run(path, tmp_path / "shared", "shared")),
    }
    says = {"onesided": "lets no memory", "shared": "cannot map each other's memory"}
    for transport, run in done.items():
        (warning,) = [line for line in run.stderr.splitlines() if line.startswith("warning")]
        assert says[transport] in warning
        assert "'persistent' is used" in warning
        record = read_run(tmp_path / transport)
        assert record.start["config"]["scheme"]["transport"] == "persistent"
        assert sum(record.end["bytes_sent"]) > 0


def test_a_group_of_ranks_that_fails_leaves_no_others_waiting(mpirun, path, tmp_path):
    copies = ("scheme.name=replicated", "scheme.replication=2")
    words = small_run(path, tmp_path / "run", "shared", *copies)
    done = mpirun(4, "broken.py", "full", 1, "os.memfd_create@2", *words, code=2)
    assert "rank 1: error: ranks of a node cannot map each other's memory" in done.stderr


@pytest.mark.parametrize("transport", ["shared", "onesided"])
def test_no_rank_waits_for_one_that_is_gone(mpirun, path, tmp_path, transport):
    before = set(os.listdir("/dev/shm"))
    words = small_run(path, tmp_path / "killed", transport, epochs=10**6)
    begin = "gcnmpi.halo.exchange:Exchange._begin@40"
    done = mpirun(2, "broken.py", "SIGKILL", 1, begin, *words, code=None)
    assert done.returncode != 0
    assert len(read_run(tmp_path / "killed").epochs) > 3
    words = small_run(path, tmp_path / "hung", transport, "comm.timeout=3", epochs=10**6)
    done = mpirun(2, "broken.py", "hang", 1, begin, *words, code=None)
    assert done.returncode != 0
    assert "has made no progress for 3 s" in done.stderr
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "gcnmpi" in name]


def test_more_threads_than_cores_are_mentioned(mpirun, path, tmp_path):
    words = ["--partition", "rp-2", "--set", "threads=4096", "--set", "kernel=scipy"]
    done = mpirun(2, "gcnmpi", "train", path, *words, "--set", "train.epochs=1", "--out", tmp_path)
    assert done.stderr.count("use 8192 threads") == 1
