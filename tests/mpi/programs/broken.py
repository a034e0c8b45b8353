"""Under mpirun: gcnmpi, one rank of which fails in a given way at a given moment.

Usage: broken.py HOW RANK WHEN train …

WHEN is MODULE.CALL or MODULE:CLASS.CALL, and perhaps @NUMBER, at whose NUMBER-th call (the first)
the rank fails. HOW is a signal that it gets ("SIGKILL"), a sleep without end ("hang"), an exception
("raise"), a mistake of the user's ("mistake"), an exit code ("exit"), to be asked to end and killed
before it can ("no time"), or the error of a full disk, this once ("fault") or from then on
("full"). For a signal, WHEN may also be a number of seconds after the start of this program, when
the kernel sends the signal, wherever the rank is then.
"""

import os
import signal
import sys
import time
from importlib import import_module

from gcnmpi.mpi.launch import launched_rank
from gcnmpi.mpi.watch import kernel_timer
from partition.errors import UserError


def fail(how: str) -> None:
    """Fail in this way; after some signals the rank goes on."""
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
        return
    if how == "no time":  # as of a launcher that was interrupted
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(10**6)
    raise {
        "raise": ArithmeticError("on one rank only"),
        "mistake": UserError("a mistake on one rank only", "none"),
        "exit": SystemExit(5),
    }.get(how, OSError(28, "No space left on device"))


def break_at(how: str, when: str) -> None:
    """Fail before a call."""
    call, _, number = when.partition("@")
    holder, _, name = call.rpartition(".")
    module, _, cls = holder.partition(":")
    holder = getattr(import_module(module), cls) if cls else import_module(module)
    original, calls = getattr(holder, name), []

    def broken(*arguments, **options):
        calls.append(arguments)
        late = len(calls) - int(number or 1)
        if late == 0 or (late > 0 and how == "full"):
            fail(how)
        return original(*arguments, **options)

    setattr(holder, name, broken)


if __name__ == "__main__":
    how, rank, when = sys.argv[1:4]
    sys.argv[1:4] = []
    if how == "no time":
        import_module("gcnmpi.run.trainer").SLOW = -1.0  # epochs of these graphs are short
    if launched_rank(os.environ) == int(rank):
        if when[0].isdigit():
            kernel_timer(float(when), signal.Signals[how])
            print(f"stops at {time.time() + float(when)}", file=sys.stderr, flush=True)
        else:
            break_at(how, when)
    from gcnmpi.cli.main import main

    main()
