"""``gcnmpi submit``: a run on a Slurm cluster, as a batch script in its folder; and its jobs.

It is one of ``gcnmpi train``, or of a program of the user's, which learns its folder from the
variable ``GCNMPI_RUN``.

The script is written from the templates in ``gcnmpi/slurm``. Nothing that a user gives is ever read
by a shell as anything but a word.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.options.config import load_config
from gcnmpi.options.requests import RUN_VARIABLE
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.train import ranks_of_group
from partition import PYTHON
from partition.backends.catalogue import AUTO, check_model
from partition.errors import UserError, installing, system_errors
from partition.graph.store import has_partition, member, open_graph, read_partition
from partition.locks import check_outside_graphs, folder_lock
from partition.records import atomic_file

SCRIPT, PARTITION_SCRIPT, CONFIG, JOB = "job.sbatch", "partition.sbatch", "config.toml", "job.json"
_SUBMITTING = ".submitting"
LAUNCHERS = ("mpirun", "srun")


@dataclass(frozen=True)
class Request:
    """A run for the cluster, and its share of the cluster."""

    graph: Path | None  # None: of a script whose arguments do not tell
    partition: str | None  # MODEL-K; if the graph has none of that name, a job before makes it
    config_file: Path | None  # copied into the folder of the run
    settings: tuple[str, ...]  # ``key=value`` over the file
    run: Path  # folder of the run
    ranks: int | None  # None: the parts of the partition, or one a GPU
    nodes: int
    cpus: int  # a rank
    gpus: int  # a node; 0: none
    time: str  # limits as Slurm takes them
    partition_time: str
    notice: int  # seconds before the limit at which the run is asked to stop
    launcher: str  # one of LAUNCHERS
    setup: Path | None  # shell commands that the job runs first, such as ``module load``
    options: tuple[str, ...]  # more options of sbatch, such as ``--account=X``
    # A program in Python, and its arguments, in place of ``gcnmpi train``
    script: tuple[str, ...] = ()


def named_by_script(path: Path, arguments: Sequence[str]) -> tuple[Path | None, str | None] | None:
    """Graph and partition of a script, if its arguments are a folder and ``--partition NAME``.

    None of a path that is not that of a program, but of a graph, which is a folder.
    """
    if path.suffix != ".py" and not path.is_file():
        return None
    words = [part for word in arguments for part in word.split("=", 1)]
    after = words[words.index("--partition") + 1 :] if "--partition" in words else []
    graph = next((Path(word) for word in arguments if _is_graph(word)), None)
    return (graph, after[0]) if graph and after else (None, None)


def check(request: Request) -> int:
    """How many ranks a request starts.

    A UserError if something does not fit: here, and not after an hour in the queue.
    """
    _check_words(request)
    if request.script:
        _check_script(request)
    config = load_config(request.config_file, request.settings)
    stored = None if request.graph is None else open_graph(request.graph, check=False)
    k, groups = _parts(request), config.train.groups
    ranks = request.ranks or request.nodes * request.gpus or (k and k * groups)
    if ranks is None:
        raise _unknown_ranks(request)
    if stored is None:  # the script opens it
        return ranks
    each = ranks_of_group(ranks, config.train)
    needed = SCHEMES.get(config.scheme.name).parts(config.scheme, each)
    if k != needed and (k is not None or needed > 1):
        where = f"{ranks} ranks" + (f" in {groups} groups" if groups > 1 else "")
        raise UserError(
            f"scheme {config.scheme.name!r} on {where} needs a partition into {needed} "
            f"parts, not {k or 'none'}",
            f"--partition hp-{needed}; it is made if the graph has none of that name",
        )
    if each > stored.manifest.n:
        raise UserError(f"{each} ranks for {stored.manifest.n} vertices: use fewer")
    if _is_missing(request):
        check_model(_model(request.partition)[0])
    return ranks


def scripts(request: Request, ranks: int) -> dict[str, str]:
    """The files of a run's folder: name → text."""
    made = {SCRIPT: _job(request, ranks)}
    if _is_missing(request):
        made = {PARTITION_SCRIPT: _partition_job(request), **made}
    if request.config_file is not None:
        made[CONFIG] = request.config_file.read_text(encoding="utf-8")
    return made


def submit(request: Request, made: Mapping[str, str]) -> dict[str, object]:
    """Write the files of :func:`scripts` and give the jobs to Slurm.

    The numbers ``job`` and ``partition_job`` (or None) are also in ``job.json`` in the folder. A
    UserError if the folder has a run that is going on, or a job in the queue; or if Slurm refuses.
    """
    folder = request.run.resolve()
    check_outside_graphs(folder)
    with system_errors(f"cannot make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, "gcnmpi submit", name=_SUBMITTING, patience=60):
        _check_idle(folder)
        for name, text in made.items():
            with atomic_file(folder / name, "w") as file:
                file.write(text)
        before, wait = None, []
        if PARTITION_SCRIPT in made:
            # Which keeps its name: by that, jobs for one partition wait for each other.
            options = [o for o in request.options if not o.startswith(("--job-name", "-J"))]
            before = _sbatch([*options, str(folder / PARTITION_SCRIPT)])
            wait = [f"--dependency=afterok:{before}", "--kill-on-invalid-dep=yes"]
        try:
            job = _sbatch([*request.options, *wait, str(folder / SCRIPT)])
        except UserError:
            if before is not None:
                slurm("scancel", str(before))
            raise
        facts = {"run": str(folder), "job": job, "partition_job": before}
        with atomic_file(folder / JOB, "w") as file:
            json.dump(facts, file)
    return facts


def _check_idle(folder: Path) -> None:
    """Refuse a folder that somebody works in, or will."""
    if (folder / SCRIPT).exists():
        for job in in_queue(folder):
            if not job.ended:
                raise UserError(
                    f"{folder} has a job already: {job.number} {job}",
                    f"gcnmpi status {folder}; scancel {job.number}; or another --out",
                )
    with folder_lock(folder, "gcnmpi submit"):  # which a run holds that was started by hand
        pass


def _sbatch(words: Sequence[str]) -> int:
    """Number of the job that sbatch makes; some sites have it print more than that."""
    answer = slurm("sbatch", "--parsable", *words)
    for line in reversed(answer.splitlines()):
        if found := re.fullmatch(r"(\d+)(;\S*)?|Submitted batch job (\d+).*", line.strip()):
            return int(found[1] or found[3])
    raise UserError(
        f"sbatch does not say which job it made: {answer.strip()[:200]!r}",
        "if it made one, squeue --me shows it and scancel ends it",
    )


def _check_words(request: Request) -> None:
    limit = _seconds("--time", request.time)
    if request.notice >= limit:
        raise UserError(
            f"--notice {request.notice}: the limit of a job is {limit} seconds, so it would be "
            "asked to stop at once",
            "a shorter --notice, or a longer --time",
        )
    _seconds("--partition-time", request.partition_time)
    if not re.fullmatch(r"[\w./+=,@-]+", str(request.run.resolve())):
        raise UserError(
            f"{request.run.resolve()} cannot be the folder of a job",
            "Slurm takes letters, digits and . / + = , @ - _ in it",
        )
    for option in request.options:
        if not re.fullmatch(r"-[-A-Za-z]+(=.*)?", option):
            raise UserError(
                f"--sbatch {option!r} is not an option of sbatch", "such as --account=X"
            )
    for file in (request.setup, request.config_file):
        if file is not None and not file.is_file():
            raise UserError(f"there is no file {file}")
    if request.gpus and request.launcher != "srun":
        raise UserError("GPUs are bound to ranks by srun", "--launcher srun")


def _is_graph(word: str) -> bool:
    return word.endswith(".graph") or os.path.isfile(f"{word}/indptr.npy")


def _unknown_ranks(request: Request) -> UserError:
    said = "without --partition it takes --ranks to know how many to start"
    if not request.script:
        return UserError(said)
    return UserError(
        f"{said}: the arguments of {request.script[0]} name no graph folder and --partition",
        f"--ranks P before the script; or {request.script[0]} my.graph --partition hp-4",
    )


def _check_script(request: Request) -> None:
    """Find what would end the program at its start, as far as that is known without running it."""
    path = Path(request.script[0])
    with system_errors(f"cannot read {path}"):
        text = path.read_bytes()
    try:
        compile(text, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise UserError(
            f"{path} is not a program in Python{where}: {getattr(error, 'msg', error)}",
            "submit takes the folder of a graph, or a script that trains in g.run",
        ) from error
    imports = re.search(rb"^\s*(import|from)\b.*\btorch\b", text, re.M)
    if request.setup is None and imports and find_spec("torch") is None:  # a setup may bring it
        raise UserError(f"{path} needs PyTorch, which is not installed", installing("torch"))


def _seconds(option: str, text: str) -> int:
    """A limit as Slurm takes it: MINUTES[:SECONDS], HOURS:MINUTES:SECONDS, DAYS-HOURS and so on."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d{1,4})(?::(\d{1,2}))?(?::(\d{1,2}))?", text)
    if found is None:
        raise UserError(f"{option} {text!r} is not a time", "such as 90 (minutes) or 01:30:00")
    days, *rest = (int(number or 0) for number in found.groups())
    from_minutes = found[1] is None and found[4] is None
    first, second, third = [0, *rest[:2]] if from_minutes else rest
    return ((days * 24 + first) * 60 + second) * 60 + third


def _parts(request: Request) -> int | None:
    """Parts of the partition, which may have to be made; None without one."""
    name = request.partition
    if name is None or request.graph is None:
        return None
    if not _is_missing(request):
        return read_partition(request.graph, member(request.graph, name), parts=False).k
    return int(_model(name)[1])


def _is_missing(request: Request) -> bool:
    """Whether there is a partition to be made."""
    graph, name = request.graph, request.partition
    if graph is None or name is None:
        return False
    return not has_partition(graph, member(graph, name))


def _model(name: str | None) -> tuple[str, str, list[str]]:
    """Model, number of parts and more options of a partition that is to be made, by its name."""
    pattern = r"([a-z]+)-([1-9]\d*)(?:-s(\d+))?(?:-e(\d+(?:\.\d+)?))?(?:-(rows|mixed))?"
    match = re.fullmatch(pattern, name or "")
    if match is None or (match[5] and match[1] != AUTO):
        raise UserError(
            f"the graph has no partition {name!r}, and the name does not say how to make it",
            "make it with gcn-partition add, or name it as that would: hp-16, hp-16-s1-e0.03",
        )
    numbers = {"--seed": match[3], "--imbalance": match[4], "--exchange": match[5]}
    more = [word for option, value in numbers.items() if value for word in (option, value)]
    return match[1], match[2], more


def _program(request: Request) -> list[str]:
    """The words that start a rank."""
    folder = request.run.resolve()
    if request.script:
        path, *words = request.script
        return ["env", f"{RUN_VARIABLE}={folder}", PYTHON[0], str(Path(path).resolve()), *words]
    assert request.graph is not None
    words = [*PYTHON, "gcnmpi", "train", str(request.graph.resolve())]
    if request.partition is not None:
        words += ["--partition", request.partition]
    if request.config_file is not None:
        words += ["--config", str(folder / CONFIG)]
    words += [word for setting in request.settings for word in ("--set", setting)]
    return [*words, "--out", str(folder), "--save-weights", str(folder / "weights.npz")]


def _job(request: Request, ranks: int) -> str:
    folder = request.run.resolve()
    launch = "gpu.sh" if request.gpus else f"{request.launcher}.sh"
    return _filled(
        "job.sbatch",
        JOB_NAME=f"gcn-{request.run.resolve().name}"[:60],
        NODES=request.nodes,
        RANKS=ranks,
        CPUS=request.cpus,
        TIME=request.time,
        NOTICE=request.notice,
        RUN=folder,
        RUN_WORD=shlex.quote(str(folder)),
        MORE=f"#SBATCH --gpus-per-node={request.gpus}\n" if request.gpus else "",
        PROGRAM=shlex.join(_program(request)),
        START=shlex.quote(os.getcwd()),
        UNFINISHED=_NO_RUN if request.script else "",
        PATH=_path(),
        SETUP=_setup(request),
        LAUNCH=_template(launch),
        REQUEUE=EXIT_REQUEUE,
    )


def _partition_job(request: Request) -> str:
    assert request.graph is not None
    assert request.partition is not None
    model, k, more = _model(request.partition)
    words = [*PYTHON, "partition", "add", str(request.graph.resolve())]
    words += ["--model", model, "-k", k, *more, "--name", request.partition, "--if-missing"]
    graph = hashlib.blake2b(os.fsencode(request.graph.resolve()), digest_size=4).hexdigest()
    return _filled(
        "partition.sbatch",
        JOB_NAME=f"gcn-{request.partition}"[:50] + f"-{graph}",
        CPUS=request.cpus,
        TIME=request.partition_time,
        RUN=request.run.resolve(),
        MORE="",
        PROGRAM=shlex.join(words),
        PATH=_path(),
        SETUP=_setup(request),
    )


_NO_RUN = "; a script has to train in g.run(None, …)"


def _path() -> str:
    """Bring the programs beside this Python into reach, the mpirun of its environment among them.

    A folder that is there already, such as /usr/bin, keeps its place: a module may come before it.
    """
    folder = shlex.quote(str(Path(PYTHON[0]).parent))
    return f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac'


def _setup(request: Request) -> str:
    return "" if request.setup is None else f". {shlex.quote(str(request.setup.resolve()))}\n"


def _template(name: str) -> str:
    return files("gcnmpi").joinpath("slurm", name).read_text(encoding="utf-8")


def _filled(name: str, **values: object) -> str:
    """A template with its @NAMES@ replaced, all at once: a value is never looked into."""
    return re.sub(r"@([A-Z_]+)@", lambda found: str(values[found[1]]), _template(name))


# Of jobs that will do nothing more; in all other states they wait, run, or come to their end.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
})  # fmt: skip
_NEVER = "DependencyNeverSatisfied"


@dataclass(frozen=True)
class Job:
    """A job in Slurm's words."""

    number: int
    state: str  # "PENDING", "RUNNING", "FAILED" and so on
    reason: str = ""  # of that state: "Resources", "exit code 127"; empty where there is none
    script: Path | None = None  # the batch script, of a job in the queue

    @property
    def ended(self) -> bool:
        """Whether it neither runs nor will: also one that waits for a job that has failed."""
        return self.state in ENDED or (self.state == "PENDING" and self.reason == _NEVER)

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state


def in_queue(folder: Path) -> list[Job]:
    """This user's jobs that wait or run and whose script lies in a folder, oldest first.

    A UserError if Slurm cannot be asked.
    """
    answer = slurm("squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r|%o")
    found = []
    for line in answer.splitlines():
        number, state, reason, script = [*line.strip().split("|", 3), "", "", ""][:4]
        if number.isdecimal() and Path(script).parent == folder.resolve():
            reason = reason if state == "PENDING" else ""
            found.append(Job(int(number), state, reason, Path(script)))
    return sorted(found, key=lambda job: job.number)


def ended(number: int) -> Job | None:
    """A job that has left the queue: of the accounting, or of what Slurm still remembers.

    None where it remembers nothing, which without accounting is the case after some minutes, or
    where there is no Slurm.
    """
    return _accounted(number) or _remembered(number)


# Variables of Slurm that say where jobs go, not what a job is.
_PLACES = frozenset({
    "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT",
    "SBATCH_ACCOUNT", "SBATCH_CLUSTERS", "SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_QOS",
    "SBATCH_RESERVATION", "SBATCH_WCKEY",
})  # fmt: skip


def _environment_of_jobs() -> dict[str, str]:
    """The variables of this process, but for those that would change what a batch script says.

    sbatch puts ``SBATCH_TIMELIMIT`` before the script's own line, and hands on
    ``SLURM_MEM_PER_CPU`` and others of the job that this process may be part of.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PLACES or not name.startswith(("SLURM_", "SBATCH_"))
    }


def slurm(program: str, *words: str) -> str:
    """The output of a program of Slurm; a UserError if it is not there or refuses."""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
            errors="replace", env=_environment_of_jobs(),
        )  # fmt: skip
    except FileNotFoundError as error:
        raise UserError(f"there is no {program} here", "is this a login node of Slurm?") from error
    except OSError as error:
        raise UserError(f"{program} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{program} does not answer") from error
    if done.returncode:
        raise UserError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _accounted(number: int) -> Job | None:
    try:
        answer = slurm(
            "sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}",
            "--format=State,ExitCode",
        )  # fmt: skip
    except UserError:  # not every site keeps accounts
        return None
    for line in reversed(answer.splitlines()):
        state, _, code = line.strip().partition("|")
        words = state.split()  # "CANCELLED by 1000"
        if words and words[0].isupper():
            return Job(number, words[0], " ".join(words[1:]) or _exit_code(code))
    return None


def _remembered(number: int) -> Job | None:
    try:
        answer = slurm("scontrol", "show", "job", "--oneliner", str(number))
    except UserError:
        return None
    facts = dict(re.findall(r"\b(JobState|Reason|ExitCode)=(\S+)", answer))
    if "JobState" not in facts:
        return None
    reason = facts.get("Reason", "")
    known = "" if reason in ("None", "NonZeroExitCode") else reason
    return Job(number, facts["JobState"], known or _exit_code(facts.get("ExitCode", "")))


def _exit_code(text: str) -> str:
    """Slurm's CODE:SIGNAL, in words."""
    code, _, signal = text.partition(":")
    if signal not in ("", "0"):
        return f"signal {signal}"
    return "" if code in ("", "0") else f"exit code {code}"
