#!/usr/bin/env python3
"""Small faults put into the program, one at a time: do the tests notice?

    scripts/mutants.py [--folder DIR] [--jobs N] [--count FILE] [ID or FILE…]

tests/mutants/*.toml list the faults, each with the tests that must catch it. They are put into
copies of this checkout, each with an environment of its own, which stay in DIR if one is given.
IDs, beginnings of IDs, or files of the list choose among the faults. Each is caught by the first
test that fails; with --count, all these tests are run, and FILE says how many failed. The exit code
is 1 if a fault is caught by none, or if its line is not found once. Faults whose tests are all
skipped, as those of PyTorch where it is missing, are said to be not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "tests" / "mutants"
LIMIT = 900  # seconds; tests that do not end have noticed
PREPARE = ". scripts/environment.sh test && exec "
# Copies take nothing of an environment that is active here, such as its mpirun.
PLACES = os.environ["PATH"].split(os.pathsep)
OUTSIDE = {name: text for name, text in os.environ.items() if name not in ("VENV", "VIRTUAL_ENV")}
OUTSIDE["PATH"] = os.pathsep.join(place for place in PLACES if place != f"{sys.prefix}/bin")


@dataclass(frozen=True)
class Fault:
    """``now`` stands once in ``file``, and ``fault`` is put in its place."""

    id: str
    file: str
    now: str
    fault: str
    tests: tuple[str, ...]

    def unclear(self, root: Path) -> str:
        """Why it cannot be put in, if so."""
        path = root / self.file
        count = path.read_text().count(self.now) if path.is_file() else 0
        gone = [test for test in self.tests if not (root / test.partition("::")[0]).is_file()]
        if count != 1:
            return f"{self.file} has its line {count} times"
        return f"there are no {', '.join(gone)}" if gone or not self.tests else ""


@dataclass(frozen=True)
class Found:
    """How many tests caught it in so many seconds, the first of them, and whether any was run."""

    fault: Fault
    caught: int
    first: str
    seconds: float
    run: bool

    def __str__(self) -> str:
        says = f"caught by {self.caught}, {self.first}" if self.caught else "SURVIVED"
        says = says if self.run else "NOT RUN: its tests are skipped here"
        return f"{self.fault.id}: {says} ({self.seconds:.0f} s)"


def read_faults(words: list[str]) -> list[Fault]:
    """The faults that the words choose; all, if there are none."""
    faults = [
        Fault(**{**entry, "tests": tuple(entry["tests"])})
        for path in sorted(LISTS.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["fault"]
    ]
    names = [fault.id for fault in faults]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"two faults have the id {min(twice)}")

    def chosen(fault: Fault) -> bool:
        return any(fault.id.startswith(word) or fault.file == word for word in words)

    return [fault for fault in faults if not words or chosen(fault)]


def copied(folder: Path) -> Path:
    """The files of this checkout that git knows or would take, and no other module, in a folder."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_mtime != (ROOT / name).stat().st_mtime:
            shutil.copy2(ROOT / name, path)
    for path in folder.glob("[!.]*/**/*.py"):
        if str(path.relative_to(folder)) not in names:
            path.unlink()
    return folder


def tested(root: Path, fault: Fault, every: bool) -> Found:
    """The result of its tests in a copy that has the fault."""
    path = root / fault.file
    right, changed = path.read_text(), path.stat().st_mtime + 2
    begin = time.monotonic()
    try:
        path.write_text(right.replace(fault.now, fault.fault))
        os.utime(path, (changed, changed))  # else Python may take its compiled module of before
        code, output = run_tests(root, fault.tests, every)
    finally:
        path.write_text(right)
        os.utime(path, (changed + 2, changed + 2))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
    if code not in (0, 1):  # not even collected, or not at an end
        collected, _ = run_tests(root, (*fault.tests, "--collect-only"), every)
        if collected:
            raise SystemExit(f"{', '.join(fault.tests)}: no tests without a fault either")
        failed = failed or [output.strip().rsplit("\n", 1)[-1][:80]]
    passed = re.search(r"^[.sx]*[.][.sx]*(?: +\[|$)", output, re.M)  # a dot among the progress
    run, seconds = bool(failed or passed), time.monotonic() - begin
    return Found(fault, len(failed), failed[0] if failed else "", seconds, run)


def run_tests(root: Path, tests: tuple[str, ...], every: bool) -> tuple[int, str]:
    words = ["python", "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
    words += [] if every else ["-x"]
    process = subprocess.Popen(
        ["bash", "-c", f'{PREPARE} "$@"', "bash", *words],
        cwd=root,
        env=OUTSIDE,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -1, f"no end within {LIMIT} s"
    return process.returncode, output


def results(faults: list[Fault], folder: Path, jobs: int, every: bool) -> Iterator[Found]:
    """Found faults, in the order of the list."""
    copies: Queue[Path] = Queue()
    for number in range(jobs):
        copy = copied(folder / str(number))
        prepare = ["bash", "-c", f"{PREPARE} true"]
        subprocess.run(prepare, cwd=copy, env=OUTSIDE, check=True, stdout=sys.stderr)
        copies.put(copy)

    def one(fault: Fault) -> Found:
        copy = copies.get()
        try:
            return tested(copy, fault, every)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("chosen", nargs="*", metavar="ID or FILE")
    parser.add_argument("--folder", type=Path, help="where the copies stay")
    parser.add_argument("--jobs", type=int, default=1, help="copies that are tested at a time")
    parser.add_argument("--count", type=Path, help="JSON file of how many tests fail with each")
    options = parser.parse_args()
    faults = read_faults(options.chosen)
    for fault in faults:
        if why := fault.unclear(ROOT):
            sys.exit(f"{fault.id}: {why}")
    found = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = options.folder or Path(temporary)
        for one in results(faults, folder.resolve(), options.jobs, options.count is not None):
            found.append(one)
            print(one, flush=True)
    survived = [one.fault.id for one in found if one.run and not one.caught]
    print(f"{sum(one.caught > 0 for one in found)} of {len(found)} faults are caught")
    if options.count:
        counts = {one.fault.id: one.caught for one in found}
        options.count.write_text(json.dumps(counts, indent=1) + "\n")
        print(f"median of the tests that catch one: {statistics.median(counts.values())}")
    print(*(f"survived: {name}" for name in survived), sep="\n", end="\n" if survived else "")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
