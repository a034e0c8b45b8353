"""Fixtures that all tests share: real graphs, and programs under mpirun."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gcnmpi.mpi.launch import local_launcher
from partition.errors import UserError
from partition.startup import PYTHON

PROGRAMS = Path(__file__).parent / "mpi" / "programs"
PACKAGES = {"gcnmpi": "gcnmpi", "gcn-partition": "partition"}
UNIT = Path(__file__).parent / "unit"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="only tests/unit without its slow tests, and a few launches: those marked as quick",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what --quick leaves out."""
    if not config.getoption("--quick"):
        return

    def is_quick(item: pytest.Item) -> bool:
        if UNIT in item.path.parents:
            return item.get_closest_marker("slow") is None
        return item.get_closest_marker("quick") is not None

    config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
    items[:] = [item for item in items if is_quick(item)]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real graphs: GCNMPI_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GCNMPI_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real graphs: there is no folder {folder} (GCNMPI_DATA names another)")
    return folder


@pytest.fixture(scope="session")
def schemes_folder(tmp_path_factory) -> Path:
    """The graphs and partitions of tests/mpi/test_schemes.py, for tests of other folders too."""
    return import_module("test_schemes").make_folder(tmp_path_factory.mktemp("schemes"))


@pytest.fixture(scope="session")
def mpirun() -> Callable[..., subprocess.CompletedProcess]:
    """``mpirun(nranks, *argv, timeout=60, env=None, cwd=None)`` → the completed process.

    ``argv`` starts with "gcnmpi", "gcn-partition" or the name of a file in tests/mpi/programs.
    Everything that is still alive after ``timeout`` seconds is killed and the test fails.
    """
    launcher = _launcher()

    def run(
        nranks: int,
        *argv: str | os.PathLike,
        timeout: float = 60,
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike | None = None,
    ) -> subprocess.CompletedProcess:
        first, *rest = (str(word) for word in argv)
        packages = {name: [*PYTHON[1:], package] for name, package in PACKAGES.items()}
        program = packages.get(first, [str(PROGRAMS / first)])
        command = [*launcher, "-n", str(nranks), sys.executable, *program, *rest]
        variables = {**os.environ, **MPI_ENVIRONMENT, **(env or {})}
        return run_group(command, timeout, variables, cwd)

    return run


@pytest.fixture
def launched(tmp_path_factory) -> Iterator[Callable[..., subprocess.Popen]]:
    """``launched(nranks, *words)`` → the process of a gcnmpi that runs on; killed with the test."""
    processes = []
    launcher = _launcher()

    def start(nranks: int, *words: str | os.PathLike) -> subprocess.Popen:
        command = [*launcher, "-n", str(nranks), *PYTHON, "gcnmpi", *map(str, words)]
        process = subprocess.Popen(
            command,
            env={**os.environ, **MPI_ENVIRONMENT, SESSIONS: str(tmp_path_factory.mktemp("mpi"))},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


SILENT = """#!/bin/sh
said=$(mktemp)
"$@" 2>"$said"
code=$?
cat "$said" >&2
[ $code = 0 ] && [ -s "$said" ] && echo "this is not silent: $*" >&2 && code=1
rm "$said"
exit $code
"""


@pytest.fixture
def shell(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """``shell(script, timeout=60)`` → the completed process of bash in ``tmp_path``.

    Each command is echoed to stderr, and the first that fails ends the script. ``mpirun``,
    ``gcnmpi``, ``gcn-partition`` and ``python`` are those of this environment. ``silent COMMAND``
    fails if the command writes anything to stderr.
    """
    commands = tmp_path / ".commands"
    commands.mkdir()
    programs = {
        "mpirun": _launcher(),
        **{name: [*PYTHON, package] for name, package in PACKAGES.items()},
        "python": [sys.executable],
    }
    for name, words in programs.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (commands / name).chmod(0o755)
    (commands / "silent").write_text(SILENT)
    (commands / "silent").chmod(0o755)
    path = os.pathsep.join([str(commands), os.environ.get("PATH", "")])

    def run(script: str, timeout: float = 60) -> subprocess.CompletedProcess:
        command = ["bash", "-exc", script]
        return run_group(
            command, timeout, {**os.environ, **MPI_ENVIRONMENT, "PATH": path}, tmp_path
        )

    return run


@pytest.fixture
def launching(monkeypatch, tmp_path_factory) -> Callable[[], list[str]]:
    """For tests that launch ranks from this process: gives those of them that there are now."""
    _launcher()
    place = str(tmp_path_factory.mktemp("ranks"))
    monkeypatch.setattr(tempfile, "tempdir", place)  # and so it is in their command lines
    for name in list(os.environ):
        if name.startswith(("OMPI_COMM_", "PMI_", "PMIX_")):
            monkeypatch.delenv(name)
    for name, value in MPI_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def ranks() -> list[str]:
        listed = subprocess.run(
            ["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True
        ).stdout
        return [line for line in listed.splitlines() if place in line]

    return ranks


# Root needs to say so twice; ranks that wait must not take the cores from those that compute, those
# of MPICH neither.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "^ofi",  # it sleeps a second in MPI_Init and slows ranks that share a core
    "OMPI_MCA_pml": "ob1",  # what it takes on one host; to look for others takes a rank 0.1 s
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
}
# Open MPI's launcher keeps a folder named after its process number, and one that was killed leaves
# it: the next launcher with that number cannot start. So each gets a place of its own for it.
SESSIONS = "PRTE_MCA_prte_tmpdir_base"


def run_group(
    command: list[str], timeout: float, env: dict[str, str], cwd: str | os.PathLike | None = None
) -> subprocess.CompletedProcess:
    """Run a command in a process group of its own, and end the whole group on a time-out."""
    with tempfile.TemporaryDirectory(prefix="mpi-", ignore_cleanup_errors=True) as sessions:
        process = subprocess.Popen(
            command,
            env={**env, SESSIONS: sessions},
            cwd=cwd,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"{' '.join(command)} did not end within {timeout} s\n{out}\n{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="session")
def open_mpi() -> bool:
    """Whether mpirun is that of Open MPI; else it is one of MPICH's kind."""
    return len(_launcher()) > 1


@functools.cache
def _launcher() -> list[str]:
    try:
        return local_launcher()
    except UserError as error:
        pytest.skip(f"{error.message}: {error.hint}")
