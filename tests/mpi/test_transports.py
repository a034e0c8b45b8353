"""Transports of the rows: the same bits and the predicted bytes by every transport."""

import os

import pytest
from axes import daily
from stored_graphs import small_graph, store
from test_schemes import NUMBERS
from words import line

from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run.record import read_run

CASES = [
    ("directed", "kernel=scipy", "model.hidden=[7]", "scheme.progress_chunks=3"),
    ("symmetric", "model.hidden=[11,3]", "graph.normalize=row"),
]
COPIES = ("scheme.name=replicated", "scheme.replication=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """``run(out, transport, *settings, epochs=3)`` → the words of a command line on two parts."""
    path = store(tmp_path_factory.mktemp("graph") / "g.graph", small_graph("directed"), 2)

    def words(out, transport, *settings, epochs=3):
        always = ("kernel=scipy", f"scheme.transport={transport}", f"train.epochs={epochs}")
        return line("train", path, partition="rp-2", out=out, settings=(*always, *settings))

    return words


@pytest.mark.parametrize("nranks", daily(7, 2))
def test_every_transport_equals_the_serial_run(verified, schemes_folder, nranks):
    """The cases take turns."""
    transports = [name for name in TRANSPORTS if name != "nccl"]  # tests/mpi/test_fake_gpu.py
    cases = []
    for i, transport in enumerate(transports):
        graph, *settings = CASES[(i + nranks) % 2]
        own = [f"scheme.transport={transport}", "train.epochs=3", "model.dropout=0.4", *settings]
        cases.append((schemes_folder / f"{graph}.graph", f"uneven-{nranks}", own))
    verified(nranks, cases, *NUMBERS, "training shared", "evaluation shared")


@pytest.mark.parametrize("nranks", daily(3, 2, 4))
def test_all_transports_move_the_same_bits(run_cases, tmp_path, nranks):
    run_cases("products", nranks, [(tmp_path, False)])


def test_mistakes_are_heard_by_all(hear_mistakes, run, tmp_path):
    chunks = run(tmp_path, "shared", "scheme.progress_chunks=0")
    told = [(run(tmp_path, "pigeon"), "pigeon"), (chunks, "progress_chunks is at least 1")]
    hear_mistakes(2, told)


def test_what_does_not_work_here_is_a_warning_of_one_line(mpirun, run, tmp_path):
    """And more threads than cores are mentioned."""
    full = ("broken.py", "full", 1, "os.memfd_create")
    refusing = run(tmp_path / "onesided", "onesided", "threads=4096")
    done = {
        # A component of Open MPI without windows to which memory can be attached.
        "onesided": mpirun(2, "gcnmpi", *refusing, env={"OMPI_MCA_osc": "sm"}),
        "shared": mpirun(2, *full, *run(tmp_path / "shared", "shared")),
    }
    assert done["onesided"].stderr.count("use 8192 threads") == 1
    says = {"onesided": "lets no memory", "shared": "cannot map each other's memory"}
    for transport, ended in done.items():
        warnings = [text for text in ended.stderr.splitlines() if text.startswith("warning")]
        (warning,) = [text for text in warnings if "'persistent' is used" in text]
        assert says[transport] in warning
        record = read_run(tmp_path / transport)
        assert record.start["config"]["scheme"]["transport"] == "persistent"
        assert sum(record.end["bytes_sent"]) > 0
        assert all(0 <= share <= 1 for share in record.end["hidden"])


def test_no_rank_waits_for_one_that_fails_or_is_gone(mpirun, run, tmp_path):
    words = run(tmp_path / "run", "shared", *COPIES)
    done = mpirun(4, "broken.py", "full", 1, "os.memfd_create@2", *words, code=2)
    assert "rank 1: error: ranks of a node cannot map each other's memory" in done.stderr
    before, begin = set(os.listdir("/dev/shm")), "gcnmpi.halo.exchange:Exchange._begin@40"
    for how, transport in (("SIGKILL", "shared"), ("hang", "onesided")):
        words = run(tmp_path / how, transport, "comm.timeout=3", epochs=10**6)
        done = mpirun(2, "broken.py", how, 1, begin, *words, code=None)
        assert done.returncode != 0
        assert len(read_run(tmp_path / how).epochs) > 3
        assert "has made no progress for 3 s" in done.stderr or how == "SIGKILL"
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "gcnmpi" in name]
