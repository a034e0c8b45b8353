"""A small cluster with Slurm on this machine, where there is one to be had."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from partition import PYTHON

# The nodes share this machine's cores. Not of the lab: mpirun, which submit brings into reach.
SETUP = 'unset VENV\n. "$CLUSTER_LAB/mpienv.sh"\nexport OMPI_MCA_btl=^ofi\n'


@dataclass(frozen=True)
class Lab:
    """Hosts head and node1 to node4.

    Attributes
    ----------
    folder : Path
        One that all hosts see.
    run : callable
        ``run(*words, check=True)``: a command of the lab's own program.
    start : callable
        ``start(*words)``: its process, which the end of the context kills.
    """

    folder: Path
    run: Callable[..., subprocess.CompletedProcess]
    start: Callable[..., contextlib.AbstractContextManager[subprocess.Popen]]

    def on_head(self, *words: str | os.PathLike) -> str:
        """The standard output of a command on the login node."""
        return self.run("on", "head", *words).stdout

    def gcnmpi(self, *words: str | os.PathLike, check: bool = True) -> str:
        """The output of a command of gcnmpi there; the virtual environment is not active."""
        command = ["env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *PYTHON, "gcnmpi", *words]
        done = self.run("on", "head", *command, check=check)
        return done.stdout + ("" if check else done.stderr)


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """The lab: the folder GCNMPI_LAB, or shared/cluster-lab beside the repository; else skipped."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "cluster-lab"
    program = Path(os.environ.get("GCNMPI_LAB", beside)) / "lab"
    if not program.is_file():
        pytest.skip(f"no cluster: there is no {program} (GCNMPI_LAB names its folder)")
    folder = tmp_path_factory.mktemp("cluster")
    # A socket's path, of which this is a part, is short.
    state = tmp_path_factory.getbasetemp().parent / f"lab-{os.getpid()}"
    root = Path(__file__).parents[2]
    variables = {"LAB_DIR": str(state), "VENV": str(Path(sys.executable).parents[1])}
    given = {"env": os.environ | variables, "cwd": folder, "stdin": subprocess.DEVNULL}

    def run(*words: str | os.PathLike, check: bool = True) -> subprocess.CompletedProcess:
        command = [str(program), *map(str, words)]
        done = subprocess.run(command, text=True, capture_output=True, timeout=900, **given)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    @contextlib.contextmanager
    def start(*words: str | os.PathLike) -> Iterator[subprocess.Popen]:
        command = [str(program), *map(str, words)]
        with subprocess.Popen(command, **given) as process:
            try:
                yield process
            finally:
                process.kill()

    checked = run("check", "--slurm", check=False)
    if checked.returncode:
        pytest.skip(f"no cluster: {checked.stderr.strip()}")
    (folder / "setup.sh").write_text(SETUP)
    # Submitted from this folder, jobs work in it, and import nothing from it.
    (folder / "random.py").write_text("raise SystemExit('imported from the working directory')\n")
    run("up", "--slurm", "--nodes", "4", "--share", str(folder), str(root))
    try:
        yield Lab(folder, run, start)
    finally:
        run("down")
