"""A process that was started without a launcher leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys

import pytest

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
