"""Fixtures that all tests share: real graphs, and programs under mpirun."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import getfullargspec
from pathlib import Path

import pytest
from axes import ALL
from stored_graphs import store_small_graphs
from words import latest

from gcnmpi.mpi.launch import local_launcher
from partition import PYTHON
from partition.errors import UserError

# Threads that wait for others of their process sleep too: tests of two files run at a time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

PROGRAMS = Path(__file__).parent / "mpi" / "programs"
PACKAGES = {"gcnmpi": "gcnmpi", "gcn-partition": "partition"}
UNIT = Path(__file__).parent / "unit"
KEPT = (1, 2, 3, 4, 7)  # ranks of launches that stay: several files ask for so many


def path_of(name: str) -> str:
    """The word that starts a program: that of a command, or the path of one of PROGRAMS."""
    return name if name in PACKAGES else str(PROGRAMS / name)


def as_usual(name: str) -> list[str]:
    """The words that start a program in a process that is to import everything itself."""
    if name in PACKAGES:
        return [*PYTHON, PACKAGES[name]]
    return [sys.executable, path_of(name)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="only tests/unit without its slow tests, and a few launches: those marked as quick",
    )
    parser.addoption(
        "--no-pool",
        action="store_true",
        help="each array of CuPy is an allocation of its own, whose end compute-sanitizer sees",
    )


# Seconds that the parts of ./scripts/test.sh may take, and the files of some of them: all others
# are of "unit" or, under mpirun, of "runs".
BUDGETS = {"unit": 90, "runs": 180, "commands": 90, "faults": 60, "pages": 60}
PARTS = {
    "pages": ("docs", "examples", "gpu_scripts", "reproduce"),
    "faults": ("checkpoint", "errors", "repeated", "stopped", "terminal"),
    "commands": ("api", "bench", "import_job", "partition_job", "propagate",
                 "score", "partition_cli", "submit", "links", "relations", "backends", "portfolio"),
}  # fmt: skip


def part_of(path: Path) -> str:
    """The part that a file of tests belongs to."""
    name = path.stem.removeprefix("test_")
    named = (part for part, names in PARTS.items() if name in names)
    return next(named, "unit" if UNIT in path.parents else "runs")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each part took, as if files took turns in the places that there are."""
    told = terminalreporter.stats.values()
    reports = [one for some in told for one in some if hasattr(one, "duration")]
    took = dict.fromkeys(BUDGETS, 0.0)
    places = terminalreporter.config.getoption("numprocesses", None) or 1
    for report in reports:
        took[part_of(Path(report.location[0]).resolve())] += report.duration / places
    if len(reports) > 1000:
        words = (f"{part} {took[part]:.0f} s (of {BUDGETS[part]})" for part in BUDGETS)
        terminalreporter.write_line(", ".join(words))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-pool"):
        import cupy

        cupy.cuda.set_allocator(None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the nightly tests run, and what --quick leaves out."""

    def is_run(item: pytest.Item) -> bool:
        if item.get_closest_marker("nightly") is not None and not ALL:
            return False
        if not config.getoption("--quick"):
            return True
        if UNIT in item.path.parents:
            return item.get_closest_marker("slow") is None
        return item.get_closest_marker("quick") is not None

    config.hook.pytest_deselected(items=[item for item in items if not is_run(item)])
    items[:] = [item for item in items if is_run(item)]


def pytest_collection_finish() -> None:
    gc.freeze()  # tests and what is imported stay: they are not searched for garbage again


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
    """Three kinds of small graphs with uneven partitions."""
    return store_small_graphs(tmp_path_factory.mktemp("schemes"))


@pytest.fixture(scope="session")
def mpirun(warm) -> Callable[..., subprocess.CompletedProcess]:
    """``mpirun(nranks, *argv, code=0, timeout=60, env=None, cwd=None, cold=False)`` → the process.

    ``argv`` starts with "gcnmpi", "gcn-partition" or the name of a file in tests/mpi/programs. A
    rank starts in a process that has imported it, unless it is to be ``cold``: see tests/warm.py.
    The test fails if the exit code is another than ``code`` (None: it may be any). Every process
    that is still alive after ``timeout`` seconds is killed, and the test fails.
    """
    launcher = _launcher()

    def run(
        nranks: int,
        *argv: str | os.PathLike,
        code: int | None = 0,
        timeout: float = 60,
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike | None = None,
        cold: bool = False,
    ) -> subprocess.CompletedProcess:
        first, *rest = (str(word) for word in argv)
        command = [*launcher, "-n", str(nranks), *(as_usual if cold else warm)(first), *rest]
        variables = {**os.environ, **MPI_ENVIRONMENT, **(env or {})}
        return run_group(command, code, timeout, variables, cwd)

    return run


class Ranks:
    """Ranks that wait for cases (tests/mpi/programs/cases.py), which they need not start for."""

    def __init__(self, nranks: int, folder: Path, env: dict[str, str], words: list[str]) -> None:
        self._folder, self._count = folder, 0
        *self._asked, self._found = map(self._pipe, (*map(str, range(nranks)), "found"))
        with open(folder / "output", "w") as output:
            self._process = subprocess.Popen(
                [*_launcher(), "-n", str(nranks), *words, str(folder)],
                env={**os.environ, **MPI_ENVIRONMENT, **env, SESSIONS: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._ended = os.pidfd_open(self._process.pid)

    def _pipe(self, name: str) -> int:
        os.mkfifo(self._folder / name)
        return os.open(self._folder / name, os.O_RDWR)  # which waits for nobody

    @property
    def live(self) -> bool:
        """Whether they take cases."""
        return self._process.poll() is None

    def run(self, asked: dict, timeout: float) -> list:
        """The results of the cases."""
        (self._folder / f"{self._count}.json").write_text(json.dumps(asked, default=str))
        self._count += 1
        for pipe in self._asked:
            os.write(pipe, b"?")
        ready, _, _ = select.select([self._found, self._ended], [], [], timeout)
        if self._found in ready:
            os.read(self._found, 1)
            return json.loads((self._folder / "found.json").read_text())
        end = "have ended without a result" if ready else f"do not end within {timeout} s"
        self.leave()
        self.end(0)
        pytest.fail((self._folder / "output").read_text() + f"\nthe ranks {end}")

    def leave(self) -> None:
        """Tell them that there are no more cases."""
        for pipe in (*self._asked, self._found):
            os.close(pipe)

    def end(self, timeout: float = 20) -> None:
        """Wait for the end of ranks that may leave, and end them after so many seconds."""
        select.select([self._ended], [], [], timeout)
        os.close(self._ended)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="session")
def run_cases(tmp_path_factory, warm) -> Iterator[Callable[..., list]]:
    """``run_cases(program, nranks, cases, timeout=240, env=None, cold=False)`` → their results.

    ``program`` is a module in tests/mpi/programs, the result what its ``of_case`` gives on rank 0.
    Some ranks stay for the cases of other tests, unless they are to have variables of their own.
    Those may be ``cold``, as in ``mpirun``.
    """
    kept: dict[int, Ranks] = {}

    def run(
        program: str,
        nranks: int,
        cases: list,
        timeout: float = 240,
        env: dict | None = None,
        cold: bool = False,
    ) -> list:
        ranks = kept.pop(nranks, None) if env is None else None
        if ranks is None or not ranks.live:
            words = (as_usual if cold else warm)("cases.py")
            ranks = Ranks(nranks, tmp_path_factory.mktemp("ranks"), env or {}, words)
        found = ranks.run({"program": program, "cases": cases, "timeout": timeout}, timeout)
        if env is None and nranks in KEPT:
            kept[nranks] = ranks
        else:
            ranks.leave()
            ranks.end()
        return found

    yield run
    for ranks in kept.values():
        ranks.leave()
    for ranks in kept.values():
        ranks.end()


@pytest.fixture(scope="session")
def gcnmpi_lines(run_cases) -> Callable[..., list[list[str | None]]]:
    """``gcnmpi_lines(nranks, lines, timeout=240)`` → the complaints of all ranks, for each line.

    A line is the words after "gcnmpi". Ranks that have nothing to complain of say None.
    """

    def run(nranks: int, lines: Iterable, **options) -> list[list[str | None]]:
        words = [[str(word) for word in line] for line in lines]
        return run_cases("commands", nranks, words, **options)

    return run


@pytest.fixture(scope="session")
def succeed(gcnmpi_lines) -> Callable[..., None]:
    """``succeed(nranks, *lines)``: no rank has to complain of one of the lines."""

    def run(nranks: int, *lines: list, **options) -> None:
        assert gcnmpi_lines(nranks, lines, **options) == [[None] * nranks] * len(lines)

    return run


@pytest.fixture(scope="session")
def hear_mistakes(gcnmpi_lines) -> Callable[..., None]:
    """``hear_mistakes(nranks, pairs)``: all ranks have the same complaint of each line.

    ``pairs`` has (line, text or texts that their complaint contains).
    """

    def hear(nranks: int, pairs: Iterable[tuple[Iterable, str | Sequence[str]]]) -> None:
        lines, says = zip(*pairs, strict=True)
        for heard, texts in zip(gcnmpi_lines(nranks, lines), says, strict=True):
            assert heard == heard[:1] * nranks
            for text in [texts] if isinstance(texts, str) else texts:
                assert text in (heard[0] or "")

    return hear


@pytest.fixture(scope="session")
def verified(run_cases) -> Callable[..., list[set[str]]]:
    """``verified(nranks, cases, *names, directions=0, **options)`` → names of checks of each case.

    A case is (graph, partition or None, settings), of which the last of each key counts. The test
    fails if a check misses, or if a case has not all those of these names.
    """

    def run(nranks: int, cases: list[tuple], *names: str, directions: int = 0, **options) -> list:
        asked = [
            {"graph": graph, "partition": partition, "settings": latest(*settings),
             "directions": directions}
            for graph, partition, settings in cases
        ]  # fmt: skip
        results = run_cases("verify_cases", nranks, asked, **options)
        for case, result in zip(cases, results, strict=True):
            assert (result["code"], result["missed"]) == (0, []), case
            assert {*names} <= {*result["checks"]}, case
        return [set(result["checks"]) for result in results]

    return run


@pytest.fixture(scope="session")
def trained(run_cases) -> Callable[..., dict[str, dict]]:
    """``trained(nranks, cases, **more)`` → name → a record of network_cases.py.

    ``cases`` is name → (graph, partition or None, settings), of which the last of each key counts,
    and perhaps a dictionary of further keys of the case; ``more`` are those of all cases.
    """

    def run(nranks: int, cases: dict[str, tuple], **more: object) -> dict[str, dict]:
        wanted = [
            {"graph": graph, "partition": partition, "settings": latest(*settings), **more}
            | (own[0] if own else {})
            for graph, partition, settings, *own in cases.values()
        ]
        found = run_cases("network_cases", nranks, wanted, timeout=400)
        return dict(zip(cases, found, strict=True))

    return run


@pytest.fixture(scope="module")
def results(request, trained) -> Callable[[int], dict]:
    """``results(nranks)`` → name of each case → its record, from one launch.

    A file says its cases as ``wanted(nranks, …)``, of which other arguments are fixtures, and as
    ``MORE`` what else ``trained`` gets.
    """
    wanted, more = request.module.wanted, getattr(request.module, "MORE", {})
    given = [request.getfixturevalue(name) for name in getfullargspec(wanted).args[1:]]
    return functools.cache(lambda nranks: trained(nranks, wanted(nranks, *given), **more))


@pytest.fixture
def launched(tmp_path_factory) -> Iterator[Callable[..., subprocess.Popen]]:
    """``launched(nranks, *words)`` → the process of a gcnmpi that runs on; killed with the test."""
    processes = []
    launcher = _launcher()

    def start(nranks: int, *words: str | os.PathLike) -> subprocess.Popen:
        command = [*launcher, "-n", str(nranks), *PYTHON, "gcnmpi", *map(str, words)]
        of_it = {**MPI_ENVIRONMENT, SESSIONS: str(tmp_path_factory.mktemp("mpi"))}
        process = subprocess.Popen(command, env={**os.environ, **of_it}, **APART)
        processes.append(process)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


SILENT = """said=$(mktemp)
"$@" 2>"$said"
code=$?
cat "$said" >&2
[ $code = 0 ] && [ -s "$said" ] && echo "this is not silent: $*" >&2 && code=1
rm "$said"
exit $code
"""


@pytest.fixture(scope="session")
def warm(open_mpi) -> Iterator[Callable[[str], list[str]]]:
    """Program → the words that start it in a process that has imported it: see tests/warm.py.

    Ranks of MPICH have open files of their launcher, and start as usual.
    """
    if not open_mpi:
        yield as_usual
        return
    program = str(Path(__file__).with_name("warm.py"))
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:  # a socket's path is short
        words = [program, f"{folder}/socket"]
        # Its own output is a pipe, as that of ranks: of a file, Python would note that it can seek.
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        server = subprocess.Popen([sys.executable, "-P", *words], **pipes)
        while not Path(folder, "socket").exists():
            assert server.poll() is None
            time.sleep(0.05)
        yield lambda name: [sys.executable, "-I", "-S", *words, path_of(name)]
        server.kill()
        server.wait()


@pytest.fixture
def shell(tmp_path, warm) -> Callable[..., subprocess.CompletedProcess]:
    """``shell(script, code=0, timeout=60)`` → the completed process of bash in ``tmp_path``.

    Each command is echoed to stderr, and the first that fails ends the script. ``mpirun``,
    ``gcnmpi``, ``gcn-partition`` and ``python`` are those of this environment; the last three warm
    but for ``python`` with options.
    ``silent COMMAND`` fails if the command writes anything to stderr. The exit code and the time
    are as in ``mpirun``.
    """
    commands = tmp_path / ".commands"
    commands.mkdir()
    programs = {"mpirun": _launcher(), **{name: warm(name) for name in PACKAGES}}
    scripts = {name: f'exec {shlex.join(words)} "$@"' for name, words in programs.items()}
    script, python = shlex.join(warm("a file")[:-1]), shlex.quote(sys.executable)
    scripts["python"] = f'case "$1" in *.py) exec {script} "$@" ;; esac\nexec {python} "$@"'
    for name, text in {**scripts, "silent": SILENT}.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    path = os.pathsep.join([str(commands), os.environ.get("PATH", "")])

    def run(script: str, code: int | None = 0, timeout: float = 60) -> subprocess.CompletedProcess:
        variables = {**os.environ, **MPI_ENVIRONMENT, "PATH": path}
        return run_group(["bash", "-exc", script], code, timeout, variables, tmp_path)

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


# Root needs to say so twice; ranks that wait sleep, as they would take the cores from those that
# compute, and those of MPICH give way to these.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
    "OMPI_MCA_threads_pthreads_nanosleep_time": "20000",
    "OMPI_MCA_btl": "^ofi",  # it sleeps a second in MPI_Init and slows ranks that share a core
    "OMPI_MCA_pml": "ob1",  # what it takes on one host; to look for others takes a rank 0.1 s
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
}
# Open MPI's launcher keeps a folder named after its process number, and one that was killed leaves
# it: the next launcher with that number cannot start. So each gets a place of its own for it.
SESSIONS = "PRTE_MCA_prte_tmpdir_base"

# A process group of its own, which can be ended as a whole, and what it prints.
APART = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
APART |= {"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True}


def run_group(
    command: list[str],
    code: int | None,
    timeout: float,
    env: dict[str, str],
    cwd: str | os.PathLike | None,
) -> subprocess.CompletedProcess:
    """Run a command in a process group of its own, and end the whole group on a time-out."""
    with tempfile.TemporaryDirectory(prefix="mpi-", ignore_cleanup_errors=True) as sessions:
        process = subprocess.Popen(command, env={**env, SESSIONS: sessions}, cwd=cwd, **APART)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"{' '.join(command)} did not end within {timeout} s\n{out}\n{err}")
    assert code is None or process.returncode == code, out + err
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
