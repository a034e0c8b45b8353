"""What carries the rows: the same bits and the predicted bytes by every transport."""

import json

import pytest
from test_schemes import make_graph

from partition.pipeline import add_partition
from partition.store import write_graph


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("transports") / "small.graph"
    write_graph(path, make_graph(symmetric=False), source={})
    add_partition(path, "rp", 2)
    return path


@pytest.mark.parametrize(("nranks", "cases"), [(1, 12), (2, 12), (3, 6), (4, 4)])
def test_all_transports_move_the_same_bits(mpirun, tmp_path, nranks, cases):
    done = mpirun(nranks, "transports.py", tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases agree" in done.stdout


def test_the_record_tells_memory_from_messages(mpirun, path, tmp_path):
    words = ["--partition", "rp-2", "--set", "train.epochs=3", "--set", "kernel=scipy"]
    ends = {}
    for transport in ("shared", "persistent"):
        out = tmp_path / transport
        option = ["--set", f"scheme.transport={transport}", "--out", out]
        done = mpirun(2, "gcnmpi", "train", path, *words, *option)
        assert done.returncode == 0, done.stdout + done.stderr
        *_, last = (out / "run.jsonl").read_text().splitlines()
        ends[transport] = json.loads(last)
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


def test_a_library_without_windows_is_an_error_of_one_line(mpirun, path):
    words = ["--partition", "rp-2", "--set", "scheme.transport=onesided", "--out", path / "y"]
    done = mpirun(2, "gcnmpi", "train", path, *words, env={"OMPI_MCA_osc": "sm"})
    assert done.returncode == 2, done.stdout + done.stderr
    assert "one-sided communication does not work here" in done.stderr
    assert done.stderr.count("error:") == 1


def test_more_threads_than_cores_are_mentioned(mpirun, path, tmp_path):
    words = ["--partition", "rp-2", "--set", "threads=4096", "--set", "kernel=scipy"]
    done = mpirun(2, "gcnmpi", "train", path, *words, "--set", "train.epochs=1", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("want 8192 threads") == 1
