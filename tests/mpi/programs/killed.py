"""Under mpirun: gcnmpi, whose rank 0 is asked to end in its 4th epoch, and killed soon after.

Usage: killed.py RUN train …

It is killed once it has kept the state after the third epoch, and before it can end the fourth.
"""

import os
import signal
import sys
import time
from pathlib import Path

from gcnmpi.mpi.launch import launched_rank
from gcnmpi.run import trainer

LIMIT = 20.0  # seconds


def kill(run: Path) -> None:
    """As a launcher does that was interrupted."""
    os.kill(os.getpid(), signal.SIGTERM)
    until = time.monotonic() + LIMIT
    while not (run / "checkpoints" / "epoch-000003").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    run = Path(sys.argv.pop(1))
    trainer.SLOW = -1.0  # epochs of these graphs are short
    if launched_rank(os.environ) == 0:
        together, calls = trainer.maxima, []

        def maxima(*numbers):
            calls.append(numbers)
            if len(calls) == 4:
                kill(run)
            return together(*numbers)

        trainer.maxima = maxima
    from gcnmpi.cli.main import main

    main()
