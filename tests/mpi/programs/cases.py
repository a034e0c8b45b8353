"""Under mpirun: cases of other programs, as long as the tests ask for some; a start costs seconds.

Usage: cases.py FOLDER

A byte from the pipe FOLDER/RANK means that FOLDER/N.json, for N = 0, 1 …, is there, {"program",
"cases", "timeout"}; the results ``PROGRAM.of_case(comm, case)`` of rank 0 go to FOLDER/found.json,
and a byte to the pipe FOLDER/found. The job ends when nobody can write to the pipes of the ranks.
"""

import faulthandler
import itertools
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from gcnmpi.mpi.process import run


def main(comm) -> int:
    folder = Path(sys.argv[1])
    pipe = os.open(folder / str(comm.rank), os.O_RDONLY | os.O_NONBLOCK)  # the tests may be gone
    os.set_blocking(pipe, True)
    # To wait in MPI would take a core.
    for number in itertools.takewhile(lambda _: os.read(pipe, 1), itertools.count()):
        asked = json.loads((folder / f"{number}.json").read_text())
        faulthandler.dump_traceback_later(asked["timeout"] - 5)  # where it hangs, if it does
        of_case = import_module(asked["program"]).of_case
        found = [of_case(comm, case) for case in asked["cases"]]
        if comm.rank == 0:
            (folder / "found.json").write_text(json.dumps(found))
            (folder / "found").write_bytes(b"!")
    return 0


if __name__ == "__main__":
    run(main)
