"""How a run is doing: what its record says, and what Slurm says of its job."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from gcnmpi.record import RECORD, read_run
from gcnmpi.submit import JOB, slurm
from partition.errors import UserError

RECENT = 20  # epochs that the time left is estimated from


def status(run: Path) -> dict[str, Any]:
    """State, epoch, loss, seconds per epoch and seconds left of a run.

    Returns
    -------
    dict
        ``state``: finished, stopped (and may be resumed), started, or queued; ``slurm``: the state
        of its job there, None without one or once Slurm has forgotten it.

    Raises
    ------
    UserError
        If there is neither a record nor a job in the folder.
    """
    job = _job(run)
    facts: dict[str, Any] = {
        "run": str(run), "state": "queued", "job": job, "slurm": _slurm_state(job), "epoch": 0,
        "epochs": None, "loss": None, "val_accuracy": None, "seconds_per_epoch": None,
        "seconds_left": None, "resumes": 0,
    }  # fmt: skip
    if not (run / RECORD).exists():
        if job is None:
            raise UserError(f"{run} is not the folder of a run")
        return facts
    record = read_run(run)
    total = record.start.get("config", {}).get("train", {}).get("epochs")
    state = "finished" if record.end else "stopped" if record.stop else "started"
    facts |= {"state": state, "epochs": total, "resumes": record.resumes}
    if record.epochs:
        last = record.epochs[-1]
        seconds = statistics.median(epoch["seconds"] for epoch in record.epochs[-RECENT:])
        facts |= {name: last[name] for name in ("epoch", "loss", "val_accuracy")}
        facts["seconds_per_epoch"] = seconds
        if total is not None:
            facts["seconds_left"] = seconds * (total - last["epoch"])
    return facts


def print_status(facts: dict[str, Any]) -> None:
    """Print it in a few lines."""
    where = f", job {facts['job']}" if facts["job"] is not None else ""
    where += f" {facts['slurm']}" if facts["slurm"] else ""
    again = f", resumed {facts['resumes']} times" if facts["resumes"] else ""
    print(f"{facts['run']}: {facts['state']}{where}{again}")
    if facts["seconds_per_epoch"] is None:
        return
    line = f"epoch {facts['epoch']} of {facts['epochs']}, loss {facts['loss']:.4f}"
    if facts["val_accuracy"] is not None:
        line += f", val {facts['val_accuracy']:.3f}"
    print(f"{line}, {facts['seconds_per_epoch']:.4g} s per epoch")
    if facts["state"] != "finished":
        print(f"left: {_duration(facts['seconds_left'])} of computing, without evaluations")


def _job(run: Path) -> int | None:
    try:
        return int(json.loads((run / JOB).read_text(encoding="utf-8"))["job"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run / JOB} is damaged: {error!r}") from error


def _slurm_state(job: int | None) -> str | None:
    """In Slurm's words: "PENDING (Dependency)", "RUNNING"; None where it knows nothing."""
    if job is None:
        return None
    try:
        answer = slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T|%r").strip()
    except UserError:  # it forgets jobs some minutes after their end
        return None
    state, _, reason = answer.partition("|")
    return f"{state} ({reason})" if state == "PENDING" else state or None


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
