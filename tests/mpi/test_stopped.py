"""A rank that somebody stops, or asks to end, ends the job: in whatever it and the others are.

And a process that was started without a launcher leaves nothing behind, however it ends.
"""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from stored_graphs import store
from words import line

from gcnmpi.mpi.watch import EXIT_REQUEUE
from partition.importing.synthetic import sbm

# Signal to rank 1 of 2, before which of its calls, and what the job says of rank 0 then.
STOP, OPENING, HERE = "SIGSTOP", "gcnmpi.run.trainer.open_problem", "in error: rank 0 on"
CASES = {
    "before MPI starts": (STOP, "gcnmpi.mpi.process.within", (HERE, "in start")),
    "loading": (STOP, OPENING, ("error: rank 0 on", "in gcnmpi.")),
    "in an epoch": (STOP, "gcnmpi.run.ledger.maxima", ("in gcnmpi.mpi.comm.maxima:",)),
    "in MPI's end": (STOP, "gcnmpi.mpi.process.finalize", (HERE, "in finish")),
    "leaving": (STOP, "sys.exit", ()),  # when nobody waits for it but the launcher
    "asked to end": ("SIGTERM", OPENING, ()),
}


@pytest.fixture(scope="module")
def jobs(mpirun, tmp_path_factory):
    """The folder, and the end of each job: all of them run at once, as they mostly wait."""
    folder = tmp_path_factory.mktemp("stopped")
    graph = store(folder / "g.graph", sbm(60, 3, degree=6, features=4, seed=0), 2)

    def run(name):
        number, call, _ = CASES[name]
        own = {"settings": ("comm.timeout=6", "train.epochs=2"), "out": folder / name}
        words = line("train", graph, partition="rp-2", **own)
        return mpirun(2, "broken.py", number, 1, call, *words, code=None, timeout=100)

    with ThreadPoolExecutor(len(CASES)) as pool:
        done = dict(zip(CASES, pool.map(run, CASES), strict=True))
    return folder, done


@pytest.mark.parametrize("name", CASES)
def test_a_rank_that_is_stopped_ends_the_job(jobs, name):
    folder, done = jobs
    assert done[name].returncode not in (0, 2, EXIT_REQUEUE), done[name].stderr
    assert all(words in done[name].stderr for words in CASES[name][2]), done[name].stderr
    record = folder / name / "run.jsonl"
    epochs = record.read_text().count('"event": "epoch"') if record.exists() else 0
    assert epochs == (2 if name in ("in MPI's end", "leaving") else 0)


PROGRAM = """
import os, signal, sys
import numpy as np
from gcnmpi.mpi import comm, process

def main(world):
    array = comm.node_array(world, (10,), np.int32, lambda: np.arange(10))
    comm.reduce_in_place(world, array.array)
    print(os.environ.get("TMPDIR"), flush=True)
    match sys.argv[1]:
        case "raises": raise ArithmeticError
        case "leaves": os._exit(5)
        case "is killed": os.kill(os.getpid(), signal.SIGKILL)
        case "is ended": os.kill(os.getpid(), signal.SIGTERM)
    return 0

process.run(main)
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [("ends", 0), ("raises", 1), ("leaves", 5), ("is killed", -9), ("is ended", -signal.SIGTERM)],
)
def test_nothing_is_left_of_a_process_alone(tmp_path, how, code):
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    temporary.mkdir()
    launchers = ("OMPI_", "PMIX_", "PMI_", "PRTE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    env |= {"TMPDIR": str(temporary), "OMPI_MCA_btl_sm_backing_directory": str(shared)}
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stdout.split() == [str(temporary)]
    assert list(shared.iterdir()) == list(temporary.iterdir()) == []
    if how == "raises":
        assert done.stderr.startswith("rank 0 failed:\nTraceback")
        assert done.stderr.rstrip().endswith("ArithmeticError")
    else:
        assert done.stderr == ""  # nor a word of MPI's own
