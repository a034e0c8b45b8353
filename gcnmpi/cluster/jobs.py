"""The state of jobs as Slurm reports it: in the queue, ended, or unknown."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from partition.errors import UserError

# Of jobs that will do nothing more; in all other states they wait, run, or come to their end.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
})  # fmt: skip
NEVER = "DependencyNeverSatisfied"


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
        return self.state in ENDED or (self.state == "PENDING" and self.reason == NEVER)

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
PLACES = frozenset({
    "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT",
    "SBATCH_ACCOUNT", "SBATCH_CLUSTERS", "SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_QOS",
    "SBATCH_RESERVATION", "SBATCH_WCKEY",
})  # fmt: skip


def environment_of_jobs() -> dict[str, str]:
    """The variables of this process, but for those that would change what a batch script says.

    sbatch puts ``SBATCH_TIMELIMIT`` before the script's own line, and hands on
    ``SLURM_MEM_PER_CPU`` and others of the job that this process may be part of.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in PLACES or not name.startswith(("SLURM_", "SBATCH_"))
    }


def slurm(program: str, *words: str) -> str:
    """The output of a program of Slurm; a UserError if it is not there or refuses."""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
            errors="replace", env=environment_of_jobs(),
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
