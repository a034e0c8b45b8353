"""The state of a run, from its record, from the state of its Slurm jobs, and from its lock."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gcnmpi.cluster.submit import ENDED, JOB, SCRIPT, Job, ended, in_queue
from gcnmpi.run.checkpoint_files import FOLDER, place_of, stored
from gcnmpi.run.claims import STOP
from gcnmpi.run.record import RECORD, RunRecord, read_run
from partition.errors import UserError, shown, system_errors
from partition.locks import folder_lock, holders
from partition.records import atomic_file, open_regular
from partition.terminal import duration

# Seconds after its last record for which a run whose lock is not seen here may still be at work: at
# least so many, three epochs where their length is known, and longer during the first.
FRESH, _FIRST_EPOCH = 60.0, 600.0


def status(run: Path) -> dict[str, object]:
    """State, epoch, loss, seconds per epoch and seconds left of a run.

    ``state``: queued, loading, running, stopped (and may be resumed), finished, failed (as Slurm
    says), or interrupted (no process runs it any more). ``job``, ``slurm``: the newest job of the
    folder, and its state as Slurm reports it, None if Slurm has no such job. ``why``: the fate of a
    run that has failed. ``heard``: seconds since the record changed. ``log``: the newest job's
    output. A UserError if there is neither a record nor a job in the folder.
    """
    path = run / RECORD
    record = read_run(run) if path.exists() and path.stat().st_size else None
    jobs = _jobs(run, record)
    number, job = jobs.number, jobs.newest
    if record is None and not number and not (run / SCRIPT).exists() and not holders(run):
        raise UserError(f"{run} is not the folder of a run")
    state, why = _state(run, record, jobs)
    facts: dict[str, Any] = {
        "run": str(run), "state": state, "why": why, "job": number,
        "slurm": str(job) if job else None, "heard": None, "log": jobs.log,
        "epoch": 0, "epochs": None, "loss": None, "metric": None, "val": None,
        "seconds_per_epoch": None, "seconds_left": None, "resumes": 0,
    }  # fmt: skip
    if record is not None:
        facts |= _progress(record)
    if state in ("failed", "interrupted"):
        facts["seconds_left"] = None
    return facts


def ask_to_stop(run: Path) -> None:
    """Ask a run to write a checkpoint and end. A UserError if nobody runs it."""
    state = status(run)["state"]
    if state not in ("running", "loading") or not holders(run):
        hints = {"queued": "scancel takes its job out of the queue"}
        raise UserError(f"{run} is {state}: there is nothing to stop", hints.get(str(state)))
    for holder in holders(run):
        if holder.purpose.endswith("propagate"):
            hint = "its last checkpoint stays when it is ended"
            raise UserError(f"{run}: {holder} cannot be asked to stop", hint)
    with atomic_file(run / STOP, "w"):
        pass


def print_status(facts: dict[str, Any]) -> None:
    """Print it in a few lines."""
    where = f", job {facts['job']}" if facts["job"] is not None else ""
    where += f" {facts['slurm']}" if facts["slurm"] else ""
    times = "once" if facts["resumes"] == 1 else f"{facts['resumes']} times"
    again = f", resumed {times}" if facts["resumes"] else ""
    print(shown(f"{facts['run']}: {facts['state']}{where}{again}"))
    if facts["why"]:
        print(shown(facts["why"]))
    if facts["epoch"]:
        line = f"epoch {facts['epoch']} of {facts['epochs']}, loss {facts['loss']:.4f}"
        if facts["val"] is not None:
            named = "" if facts["metric"] == "accuracy" else f" {facts['metric']}"
            line += f", val{named} {facts['val']:.3f}"
        if facts["seconds_per_epoch"] is not None:
            line += f", {facts['seconds_per_epoch']:.4g} s per epoch"
        print(line)
    if facts["heard"] is not None and facts["state"] != "finished":
        print(f"last written to {_ago(facts['heard'])} ago", end="")
        running = facts["state"] == "running" and facts["seconds_left"] is not None
        print(f", left: {duration(facts['seconds_left'])}" if running else "")
    if facts["log"] is not None and facts["state"] in ("failed", "interrupted"):
        print(shown(f"see {facts['log']}"))


def _progress(record: RunRecord) -> dict[str, Any]:
    """How far it has come, how fast it goes, and when it was last heard of."""
    total = record.start.wanted_epochs
    facts: dict[str, Any] = {
        "epochs": total, "resumes": record.resumes, "seconds_per_epoch": record.pace,
        "heard": max(0.0, time.time() - record.last_written),
    }  # fmt: skip
    if record.epochs:
        last, metric = record.epochs[-1], record.start.metric
        facts |= {"epoch": last.epoch, "loss": last.loss, "metric": metric}
        facts["val"] = last.of("val", metric)
        if total is not None and record.pace is not None:
            facts["seconds_left"] = record.pace * (total - last.epoch)
    return facts


def _state(run: Path, record: RunRecord | None, jobs: _Jobs) -> tuple[str, str | None]:
    """The state, and what became of a run that is not well."""
    number, job, before = jobs.number, jobs.newest, jobs.before
    if before is not None and before.state in ENDED - {"COMPLETED"}:
        what = f"job {before.number}, which was to make the partition: {before}"
        return "failed", f"{what}; submit the run again"
    mine = record is not None and _job_of(record) == number
    if job is not None and not job.ended:
        if job.state == "PENDING":
            return ("stopped" if record is not None and record.stop else "queued"), None
        return ("running" if mine and record is not None and not record.stop else "loading"), None
    if record is not None and record.end is not None and (mine or job is None):
        return "finished", None
    again = f"sbatch {run / SCRIPT} {_since(run)}"
    if job is not None and job.state != "COMPLETED":
        stopped = mine and record is not None and record.stop is not None
        when = "" if mine else " before it wrote a record"
        return "stopped" if stopped else "failed", f"job {job.number}: {job}{when}; {again}"
    runner = _runner(run, record)
    if record is None and runner is not None:
        return "loading", runner or None
    if record is None:
        what = f"job {number} has ended without a record" if number else "no job was submitted"
        return "failed", f"{what}; {again}"
    if record.end is not None:
        return "finished", None
    if record.stop is not None:
        return "stopped", None
    if runner is not None:
        return "running", runner or None
    go_on = again if (run / SCRIPT).exists() else f"the same command {_since(run)}"
    return "interrupted", f"no process runs it any more; {go_on}"


def _since(run: Path) -> str:
    """Where a run begins when it is started again."""
    kept = stored(run / FOLDER)
    if not kept:
        return "starts over: there is no checkpoint"
    epoch, batch = place_of(kept[0])
    return f"goes on after epoch {epoch}" + (f" and {batch} batches" if batch else "")


def _runner(run: Path, record: RunRecord | None) -> str | None:
    """Who runs it, as far as its lock says; None: nobody."""
    who = holders(run)
    try:
        with folder_lock(run, "gcnmpi status", exclusive=False, patience=0):
            pass
    except UserError:
        return str(who[0]) if who else ""
    # Not every file system brings the locks of other hosts here.
    fresh = record is not None and time.time() - record.last_written < _silence(record)
    return str(who[0]) if who and fresh else None


def _silence(record: RunRecord) -> float:
    """Seconds for which a run that goes on may write nothing."""
    if record.pace is not None:
        return max(FRESH, 3 * record.pace)
    if record.epochs:
        return max(FRESH, 3 * record.epochs[-1].seconds)
    return _FIRST_EPOCH


class _Submitted(msgspec.Struct):
    """The jobs of a folder, as submit has written of them."""

    job: int | None = None
    partition_job: int | None = None


@dataclass(frozen=True)
class _Jobs:
    """The jobs of a folder."""

    number: int | None  # of the newest that trains, or is to
    newest: Job | None  # the same by Slurm's word; None: it knows no such job
    before: Job | None  # the one that makes the partition, which the newest waits for
    log: str | None  # output of the newest; of the one before where it has none yet


def _jobs(run: Path, record: RunRecord | None) -> _Jobs:
    """As submit, names of outputs, the record, and Slurm tell them."""
    known = _Submitted()
    if (run / JOB).exists():
        try:
            with system_errors(f"cannot read {run / JOB}"), open_regular(run / JOB) as file:
                known = msgspec.json.decode(file.read(), type=_Submitted)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{run / JOB} is damaged: {error}") from error
    try:
        waiting = in_queue(run) if (run / SCRIPT).exists() else []
    except UserError:  # no Slurm here, or it does not answer
        waiting = []
    trains = [job for job in waiting if job.script is not None and job.script.name == SCRIPT]
    makes = [job for job in waiting if job not in trains]
    outputs = (re.fullmatch(r"slurm-(\d+)\.out", path.name) for path in run.glob("slurm-*.out"))
    numbers = {int(match[1]) for match in outputs if match} | {known.job, _job_of(record)}
    number = max(numbers - {None, known.partition_job}, default=None)  # type: ignore[type-var]
    newest = trains[-1] if trains else ended(number) if number else None
    before = None
    waits = record is None and newest is not None and newest.number == known.job
    if waits and known.partition_job is not None:
        before = makes[-1] if makes else ended(known.partition_job)
    number = max(filter(None, (number, newest.number if newest else None)), default=None)
    logs = (run / f"slurm-{job}.out" for job in (number, known.partition_job))
    return _Jobs(number, newest, before, next((str(log) for log in logs if log.exists()), None))


def _job_of(record: RunRecord | None) -> int | None:
    """The job that wrote a record last."""
    number, _, _ = str(record.start.job if record else "").partition(".")
    return int(number) if number.isdecimal() else None


def _ago(seconds: float) -> str:
    """Seconds, minutes, hours or days, the largest of which there are two."""
    for unit, size in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
