"""Fuzz every reader for as long as you like, guided by the lines it runs.

Usage: python scripts/fuzz.py [--seconds N | --programs N] [--seed N] [--keep FOLDER] [TARGET …]

An input that reaches a new pair of lines is kept and mutated further. Whatever is raised but
UserError, or takes too long or too much memory, is a crash: it is printed, kept in FOLDER, and
makes the exit code 1. Targets and mutations are those of tests/unit/fuzzing.py.

With --programs, the readers of pickles get so many pickles each whose instructions were changed, in
processes of 3 GB with 20 s for each pickle.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "unit")]

from fuzzing import PICKLES, Target, mutated, outcome, reprogrammed, targets  # noqa: E402

from partition.errors import UserError  # noqa: E402

OWN = (str(ROOT / "partition"), str(ROOT / "gcnmpi"))
SECONDS = 2.0
MEMORY = 1 << 30  # over what the libraries take
CHUNK = 2000  # pickles that one process reads
LIMIT_OF_PROGRAMS, SECONDS_OF_PROGRAMS = 3 << 30, 20


def main() -> int:
    """Fuzz the targets one after the other; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of processor time, for each target"
    )
    parser.add_argument("--programs", type=int, help="pickles of changed instructions instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-crashes"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    crashed = False
    with tempfile.TemporaryDirectory() as folder:
        every = targets(Path(folder, "made"))
        if arguments.programs:
            return programs(every, Path(folder, "work"), arguments)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        for name in arguments.targets or every:
            rng = random.Random(arguments.seed)
            found = fuzz(every[name], Path(folder, "work"), arguments.seconds, rng)
            line = f"{name:14} {found.inputs:7} inputs, {found.refused:7} refused, "
            line += f"{len(found.edges):5} pairs of lines, {len(found.crashes)} crashes"
            print(line, flush=True)
            for number, (place, (file, data)) in enumerate(found.crashes.items()):
                crashed = True
                arguments.keep.mkdir(parents=True, exist_ok=True)
                kept = arguments.keep / re.sub(r"\W", "-", f"{name}-{number}-{file}")
                kept.write_bytes(data)
                print(f"  {place}: {kept}")
    return int(crashed)


def programs(every: dict[str, Target], folder: Path, arguments: argparse.Namespace) -> int:
    """Read pickles of changed instructions, ``CHUNK`` of them in a process; the exit code."""
    failed = 0
    for name in arguments.targets or PICKLES:
        began, read, inputs = time.monotonic(), 0, 0
        worst = multiprocessing.Array("d", 2)  # seconds of a pickle, bytes of a process
        for start in range(0, arguments.programs, CHUNK):
            upto = min(start + CHUNK, arguments.programs)
            at, good = multiprocessing.Value("q", start), multiprocessing.Value("q", 0)
            while at.value < upto:  # a process that died goes on behind the pickle that it died of
                worker = multiprocessing.Process(
                    target=_chunk, args=(every[name], folder, arguments.seed, at, good, upto, worst)
                )
                worker.start()
                worker.join()
                if worker.exitcode:
                    failed += 1
                    said = f"  {name}: pickle {at.value} ended its process: {worker.exitcode}"
                    print(said, flush=True)
                    at.value += 1
            read, inputs = read + good.value, upto
        line = f"{name:10} {inputs:8} pickles, {read:7} read, {failed} failures so far, at most "
        line += f"{worst[0]:.2f} s and {worst[1] / 1e6:.0f} MB"
        print(f"{line}, {time.monotonic() - began:.0f} s together", flush=True)
    return int(failed > 0)


def _chunk(
    target: Target, folder: Path, seed: int, at: Any, good: Any, upto: int, worst: Any
) -> None:
    """Read the pickles from number ``at`` on; what is not read or refused ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_OF_PROGRAMS, LIMIT_OF_PROGRAMS))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends compiled code, too
    seeds = [entry for entry in target.seeds if entry[1].startswith(b"\x80")]
    file, valid, pack = seeds[0]
    outcome(target, folder, file, pack(valid))  # all files are there from now on
    while at.value < upto:
        rng = random.Random(f"{seed} {at.value}")
        file, valid, pack = rng.choice(seeds)
        (folder / file).write_bytes(pack(reprogrammed(valid, rng)))
        began = time.process_time()
        signal.alarm(SECONDS_OF_PROGRAMS)
        try:
            target.read(folder)
            good.value += 1
        except UserError:
            pass
        except BaseException:
            traceback.print_exc()
            os._exit(99)
        signal.alarm(0)
        worst[0] = max(worst[0], time.process_time() - began)
        (folder / file).write_bytes(target.files[file])
        at.value += 1
    worst[1] = max(worst[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


class Found:
    """The findings of fuzzing a target."""

    def __init__(self) -> None:
        self.inputs = self.refused = 0
        self.edges: set[tuple] = set()
        self.crashes: dict[str, tuple[str, bytes]] = {}


def fuzz(target: Target, folder: Path, seconds: float, rng: random.Random) -> Found:
    """Read mutated files for some seconds of processor time."""
    found, corpus, until = Found(), list(target.seeds), time.process_time() + seconds
    while time.process_time() < until:
        file, data, pack = rng.choice(corpus)
        data = mutated(data, rng)
        edges, place, refused = observed(target, folder, file, pack(data))
        found.inputs += 1
        found.refused += refused
        if place is not None:
            found.crashes.setdefault(place, (file, pack(data)))
        elif edges - found.edges and len(data) < 20_000:
            corpus.append((file, data, pack))
        found.edges |= edges
    return found


def observed(
    target: Target, folder: Path, file: str, data: bytes
) -> tuple[set[tuple], str | None, bool]:
    """Pairs of lines that reading runs through, where it crashed, and whether it refused."""
    edges: set[tuple] = set()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OWN):
            return None
        last = [0]

        def line(frame: FrameType, event: str, _: Any) -> Any:
            edges.add((frame.f_code, last[0], frame.f_lineno))
            last[0] = frame.f_lineno
            return line

        return line

    began, refused, place = time.process_time(), False, None
    sys.settrace(enter)
    try:
        refused = outcome(target, folder, file, data) is not None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(OWN)]
        at = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
        place = f"{type(error).__name__} in {at}"
    finally:
        sys.settrace(None)
    if time.process_time() - began > SECONDS:
        place = place or "too slow"
    return edges, place, refused


if __name__ == "__main__":
    sys.exit(main())
