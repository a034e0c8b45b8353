"""The record of a run: what is written to ``run.jsonl``, and how it is read again.

A run that was interrupted and resumed has one record: what a "resume" says takes the place of the
"start", and of several records of one epoch the last one counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from partition.errors import UserError
from partition.records import append_record, atomic_file, read_records, to_json

RECORD = "run.jsonl"
PREVIOUS = "run.previous.jsonl"


@dataclass(frozen=True)
class Epoch:
    """What one epoch of training gave; accuracies are None where they were not evaluated.

    Attributes
    ----------
    epoch : int
        From 1.
    loss : float
        Mean cross-entropy over the training vertices, with this epoch's dropout, before its
        update, without the weight-decay term.
    seconds : float
        Forward, backward and update, of the slowest rank; no evaluation.
    """

    epoch: int
    loss: float
    train_accuracy: float | None
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class RunRecord:
    """What ``run.jsonl`` says, with what was superseded left out.

    Attributes
    ----------
    start : mapping
        The first record, with what the last "resume" says over it.
    epochs : list of mapping
        One for each epoch, the one that was recorded last, in order.
    end : mapping or None
        None unless the last launch finished.
    stop : mapping or None
        Of a run that was asked to stop and has not been resumed.
    resumes : int
        How often it was resumed.
    """

    start: dict[str, Any]
    epochs: list[dict[str, Any]]
    end: dict[str, Any] | None
    stop: dict[str, Any] | None
    resumes: int


def read_run(run: str | os.PathLike) -> RunRecord:
    """Read the record of a run, given its folder or the file itself.

    Raises
    ------
    UserError
        If there is none, or it is none of a run.
    """
    path = Path(run)
    path = path / RECORD if path.is_dir() else path
    start: dict[str, Any] | None = None
    epochs: dict[int, dict[str, Any]] = {}
    last: dict[str, Any] = {}
    resumes = 0
    for record in read_records(path):
        event = record.get("event") if isinstance(record, dict) else None
        if event == "epoch" and isinstance(record.get("epoch"), int):
            epochs[record["epoch"]] = record
            continue
        if event == "start":
            start = record
        elif event == "resume" and start is not None:
            resumes += 1
            start |= {name: record[name] for name in start.keys() & record.keys() - {"event"}}
        last = record if event is not None else last
    if start is None:
        raise UserError(f"{path} is not the record of a run")
    return RunRecord(
        start,
        [epochs[number] for number in sorted(epochs)],
        last if last.get("event") == "end" else None,
        last if last.get("event") == "stop" else None,
        resumes,
    )


def is_finished(out: Path) -> bool:
    """Whether the record in the folder of a run ends with the end of the run."""
    try:
        return read_run(out).end is not None
    except UserError:
        return False


def new_record(out: Path) -> Path:
    """An empty record in the folder of a run; the one of an earlier run is kept beside it.

    Raises
    ------
    UserError
        If the folder or the file cannot be written.
    """
    path = out / RECORD
    with _writing(path):
        out.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.replace(out / PREVIOUS)
        path.touch()
    return path


def continued_record(out: Path, start: dict[str, Any], epochs: Sequence[Epoch]) -> Path:
    """The record of the run in ``out``, to be continued after the last of ``epochs``.

    Epochs that it lacks are added: a checkpoint outlives a record that a crash has cut off, and
    may be resumed in another folder.
    """
    path = out / RECORD
    with _writing(path):
        out.mkdir(parents=True, exist_ok=True)
    kept: list[Any] = []
    try:
        if path.exists():
            kept = [record for record in read_records(path) if isinstance(record, dict)]
    except UserError:  # its own copy of the epochs is as good
        path.replace(out / PREVIOUS)
    if not kept:
        kept = [{"event": "start", **start}]
    there = {record.get("epoch") for record in kept if record.get("event") == "epoch"}
    kept += [{"event": "epoch", **asdict(e)} for e in epochs if e.epoch not in there]
    with atomic_file(path, "w") as file:
        file.writelines(json.dumps(record, default=to_json) + "\n" for record in kept)
    return path


@contextlib.contextmanager
def opened(path: str | os.PathLike | None) -> Iterator[Callable[..., None]]:
    """``write(event, **values)`` that appends to a record; without a path it does nothing.

    Raises
    ------
    UserError
        From ``write``, if the record cannot be written.
    """
    if path is None:
        yield lambda event, **values: None
        return
    with open(path, "a", encoding="utf-8") as file:

        def write(event: str, **values: Any) -> None:
            with _writing(path):
                append_record(file, event, **values)

        yield write


@contextlib.contextmanager
def _writing(path: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
