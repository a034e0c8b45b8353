"""Under mpirun: gcnmpi, one rank of which dies, hangs, or finds a disk full, at a given moment.

Usage: dying.py HOW RANK CALL NUMBER train …

At its NUMBER-th call of CALL (such as os.fsync) rank RANK is killed (HOW "kill"), sleeps for ever
("hang") or gets the error of a full disk, from then on ("full") or this once ("fault").
"""

import os
import signal
import sys
import time
from importlib import import_module

from gcnmpi.cli.main import cli
from gcnmpi.mpi.process import run


def break_at(how: str, call: str, number: int) -> None:
    holder_name, _, name = call.rpartition(".")
    module, _, holder_name = holder_name.partition(":")
    holder = import_module(module)
    holder = getattr(holder, holder_name) if holder_name else holder
    original, calls = getattr(holder, name), []

    def broken(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(calls) == number and how == "hang":
            time.sleep(10**6)
        if (len(calls) >= number and how == "full") or (len(calls) == number and how == "fault"):
            raise OSError(28, "No space left on device")
        return original(*arguments, **options)

    setattr(holder, name, broken)


def main(comm) -> int:
    how, rank, call, number, *words = sys.argv[1:]
    if comm.rank == int(rank):
        break_at(how, call, int(number))
    return cli.main(words, prog_name="gcnmpi", standalone_mode=False)(comm)


if __name__ == "__main__":
    run(main)
