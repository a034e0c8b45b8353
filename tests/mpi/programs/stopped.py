"""Under mpirun: gcnmpi, one rank of which gets a signal at a given moment, such as SIGSTOP.

Usage: stopped.py SIGNAL RANK WHEN train …

WHEN is a number of seconds after the start of this program, when the kernel sends the signal,
wherever the rank is then; or the call before which the rank sends it to itself.
"""

import os
import signal
import sys
import time
from importlib import import_module

from gcnmpi.mpi.launch import launched_rank
from gcnmpi.mpi.watch import kernel_timer


def send_at(call: str, number: int) -> None:
    module, _, name = call.rpartition(".")
    holder = import_module(module)
    original = getattr(holder, name)

    def struck(*arguments, **options):
        os.kill(os.getpid(), number)
        return original(*arguments, **options)

    setattr(holder, name, struck)


if __name__ == "__main__":
    number, rank, when = signal.Signals[sys.argv[1]], int(sys.argv[2]), sys.argv[3]
    sys.argv[1:4] = []
    if launched_rank(os.environ) == rank:
        if when[0].isdigit():
            kernel_timer(float(when), number)
            print(f"stops at {time.time() + float(when)}", file=sys.stderr, flush=True)
        else:
            send_at(when, number)
    from gcnmpi.cli.main import main

    main()
