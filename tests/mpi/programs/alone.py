"""Under mpirun: training in which rank 1 raises, or is killed, in epoch 3 and the others go on.

Usage: alone.py raise|mistake|kill|exit G.graph PARTITION PIDS

Every rank writes its process id to PIDS/RANK first.
"""

import os
import signal
import sys
from pathlib import Path

from gcnmpi.mpi.process import run
from gcnmpi.options.config import from_table
from gcnmpi.run import trainer
from gcnmpi.run.problem import open_problem
from partition.errors import UserError


def fail(how: str) -> None:
    if how == "raise":
        raise ArithmeticError("on one rank only")
    if how == "mistake":
        raise UserError("a mistake on one rank only", "none")
    if how == "exit":
        sys.exit(5)
    os.kill(os.getpid(), signal.SIGKILL)


def main(comm) -> int:
    how, graph, partition, folder = sys.argv[1:]
    Path(folder, str(comm.rank)).write_text(str(os.getpid()))
    problem = open_problem(comm, graph, partition, from_table({"train": {"epochs": 10**6}}))

    def on_epoch(epoch) -> None:
        if comm.rank == 1 and epoch.epoch == 3:
            fail(how)

    trainer.train(problem, None, on_epoch)
    return 0


if __name__ == "__main__":
    run(main)
