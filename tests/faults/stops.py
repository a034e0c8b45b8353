"""Stop a random rank of a training run at a random moment, again and again: each run must end.

Usage: python tests/faults/stops.py [--count 60] [--ranks 4] [--limit 4] [--seed 0] [--mpirun "…"]

Each run ends by itself within LIMIT (its comm.timeout) + 5 seconds of the stop, with an exit code
that is not 0, and says where ranks stood; one whose rank was stopped when it had left MPI, and
nobody waited for it, says that it was killed. The exit code is 1 if one did not. --mpirun gives the
words that start ranks, for runs on several hosts; the folder --folder is one that all of them see.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gcnmpi.mpi.launch import local_launcher
from partition.importing.synthetic import sbm

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS))
from stored_graphs import store  # noqa: E402 (found there only)
from words import line  # noqa: E402

PROGRAM = TESTS / "mpi" / "programs" / "broken.py"
LATE = 5.0  # seconds beyond comm.timeout
PATIENCE = 60.0  # after which a run is taken to hang


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limit", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mpirun", default=shlex.join(local_launcher()))
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    draw, outcomes, late, bad = random.Random(asked.seed), Counter(), [], 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        graph = sbm(300, 3, degree=8, intra=0.9, features=6, train=0.3, val=0.2, seed=0)
        store(folder / "g.graph", graph, asked.ranks)
        length = min(_run(asked, folder, 0, 1e6)[2] for _ in range(2))
        print(f"a run takes {length:.1f} s", flush=True)
        while sum(outcomes.values()) < asked.count:
            rank, when = draw.randrange(asked.ranks), draw.uniform(1e-3, length)
            code, said, _, ended = _run(asked, folder, rank, when)
            stopped = float(re.findall(r"stops at ([\d.]+)", said)[0])
            if code == 0 or (ended is not None and ended < stopped):
                continue  # it was over before
            words, kind = _outcome(said)
            outcomes[kind] += 1
            late.append(float("inf") if ended is None else ended - stopped)
            good = code not in (0, None) and late[-1] <= asked.limit + LATE and kind != "silent"
            bad += not good
            print(f"rank {rank} after {when:5.2f} s: ended {late[-1]:4.1f} s later, code {code}, "
                  f"{words}{'' if good else '   <--- WRONG'}", flush=True)  # fmt: skip
            if not good:
                print(said)
    late.sort()
    print(f"{dict(outcomes)}; ended after {late[0]:.1f}, median {late[len(late) // 2]:.1f}, "
          f"at most {late[-1]:.1f} s; {bad} wrong")  # fmt: skip
    return int(bad > 0)


def _run(
    asked: argparse.Namespace, folder: Path, rank: int, when: float
) -> tuple[int | None, str, float, float | None]:
    """Exit code and words of a run, its seconds, and the time when it ended, if it did."""
    own = f"comm.timeout={asked.limit}", "train.epochs=100", "train.checkpoint_every=25"
    given = {"partition": f"rp-{asked.ranks}", "out": folder / "run", "quiet": True}
    words = line("train", folder / "g.graph", settings=own, resume="never", **given)
    start = [*shlex.split(asked.mpirun), "-n", str(asked.ranks), sys.executable, PROGRAM]
    command = [*map(str, start), "SIGSTOP", str(rank), str(when), *map(str, words)]
    with tempfile.TemporaryFile() as file:
        began = time.time()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(when, PATIENCE) + PATIENCE)
        code, ended = process.returncode, time.time()
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(0)
        said = file.read().decode(errors="replace")
    return code, said, ended - began, None if code is None else ended


def _outcome(said: str) -> tuple[str, str]:
    """Where ranks stood, and how the run found out."""
    places = re.findall(r"rank (\d+) on .* has made no progress for .*, in (\S+?):\d+", said)
    places += re.findall(r"in error: rank (\d+) on .*\n.*\n *File .* in (\w+)", said)
    ranks = ", ".join(f"{rank} in {place}" for rank, place in sorted(set(places)))
    if "Timeout (" in said:
        return f"{ranks} (in C)", "told from C"
    if places:
        return ranks, "told"
    killed = "signal 9" in said or "Killed" in said
    return ("killed by the kernel's timer", "killed") if killed else ("nothing", "silent")


if __name__ == "__main__":
    sys.exit(main())
