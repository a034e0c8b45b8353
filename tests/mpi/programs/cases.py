"""Under mpirun: cases of other programs, as long as the tests ask for some; a start costs seconds.

Usage: cases.py FOLDER PID

FOLDER/N.json, for N = 0, 1 …, is {"program", "cases"}, or null at the end; the results
``PROGRAM.of_case(comm, case)`` of rank 0 go to FOLDER/N.out.json. The job ends with process PID.
"""

import itertools
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from gcnmpi.mpi.process import run


def main(comm) -> int:
    folder, asking = Path(sys.argv[1]), int(sys.argv[2])
    for number in itertools.count():
        pause = 0.01
        while not (folder / f"{number}.json").exists():  # to wait in MPI would take a core
            os.kill(asking, 0)
            time.sleep(pause)
            pause = min(1.1 * pause, 0.1)
        asked = json.loads((folder / f"{number}.json").read_text())
        if asked is None:
            return 0
        of_case = import_module(asked["program"]).of_case
        found = [of_case(comm, case) for case in asked["cases"]]
        if comm.rank == 0:
            (folder / "found").write_text(json.dumps(found))
            (folder / "found").rename(folder / f"{number}.out.json")
    return 0


if __name__ == "__main__":
    run(main)
