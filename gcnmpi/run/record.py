"""The record of a run: what is written to ``run.jsonl``, and how it is read again.

A run that was interrupted and resumed has one record: what a "resume" says takes the place of the
"start", and of several records of one epoch the last one counts.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gcnmpi.run.writer import put_aside
from partition.errors import UserError, system_errors
from partition.graph.store import StoredGraph
from partition.locks import check_outside_graphs
from partition.records import atomic_file, printable, read_records, to_json

RECORD = "run.jsonl"


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch of training.

    Attributes
    ----------
    epoch : int
        From 1.
    loss : float
        The loss of the training vertices, with this epoch's dropout, before its update, without
        the weight-decay term.
    metrics : mapping of str to float or None
        "val_accuracy": of each mask and metric; None where it was not evaluated.
    seconds : float
        Forward, backward and update, of the slowest rank; no evaluation.
    """

    epoch: int
    loss: float
    metrics: Mapping[str, float | None]
    seconds: float

    def record(self) -> dict[str, object]:
        """As files have it: metrics between the other fields."""
        return {
            "epoch": self.epoch, "loss": self.loss, **self.metrics, "seconds": self.seconds,
        }  # fmt: skip

    def of(self, mask: str, metric: str) -> float | None:
        """A metric of "train", "val" or "test"; None where it was not evaluated."""
        return self.metrics.get(f"{mask}_{metric}")


@dataclass(frozen=True)
class RunRecord:
    """The content of ``run.jsonl``, without records that later ones supersede.

    Attributes
    ----------
    start : mapping
        The first record, with what the last "resume" says over it.
    epochs : list of mapping
        One for each epoch, the one that was recorded last, in order. A run that went on from a
        checkpoint has none after that checkpoint but its own.
    end : mapping or None
        None unless the last launch finished.
    stop : mapping or None
        The "stop" record, if the run was asked to stop and has not been resumed.
    resumes : int
        How often it was resumed.
    ranks : mapping
        What the ranks of the last launch hold and send, ``of_ranks`` of its first record; empty in
        records of earlier versions.
    samples : list of mapping
        Those of launches that ended or stopped, in order: what each rank spent in the phases in
        the epochs after ``after`` up to ``epoch``.
    pace : float or None
        Seconds from epoch to epoch in the last launch, with evaluations and checkpoints; None
        before its second epoch.
    heard : float
        When the record was last written to, in seconds since 1970.
    """

    start: dict[str, Any]
    epochs: list[dict[str, Any]]
    end: dict[str, Any] | None
    stop: dict[str, Any] | None
    resumes: int
    pace: float | None
    heard: float
    ranks: dict[str, Any] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)


def ids_of(stored: StoredGraph) -> dict[str, str | None]:
    """The ids of graph, data, pairs and samples, as records and checkpoints have them."""
    parts = {"pairs_id": stored.pairs, "samples_id": stored.samples}
    ids = {name: None if part is None else part.id for name, part in parts.items()}
    return {"graph_id": stored.manifest.id, "data_id": stored.manifest.data_id, **ids}


def read_run(run: str | os.PathLike) -> RunRecord:
    """Read the record of a run, given its folder or the file itself.

    A UserError if there is none, it is none of a run, or a field of it is not what it should be.
    """
    path = Path(run)
    path = path / RECORD if path.is_dir() else path
    start: dict[str, Any] | None = None
    epochs: dict[int, dict[str, Any]] = {}
    times: list[tuple[int, float]] = []
    last: dict[str, Any] = {}
    resumes = 0
    ranks: dict[str, Any] = {}
    samples: list[dict[str, Any]] = []
    for record in (_checked(path, record) for record in read_records(path)):
        event = record.get("event")
        if event == "epoch":
            epochs[record["epoch"]] = record
            if "time" in record:
                times.append((record["epoch"], record["time"]))
            continue
        if event in ("start", "resume"):
            times, ranks = [], record.get("of_ranks", {})
        if event == "start":
            start = record
        elif event == "resume" and start is not None:
            resumes += 1
            start |= {name: record[name] for name in start.keys() & record.keys() - {"event"}}
            epochs = _until(epochs, record)
            samples = [sample for sample in samples if sample["epoch"] in epochs]
        samples += record.get("samples", [])
        last = record if event is not None else last
    if start is None:
        raise UserError(f"{path} is not the record of a run")
    return RunRecord(
        start,
        [epochs[number] for number in sorted(epochs)],
        last if last.get("event") == "end" else None,
        last if last.get("event") == "stop" else None,
        resumes,
        _pace(times),
        path.stat().st_mtime,
        ranks,
        samples,
    )


def epochs_until(path: str | os.PathLike, last: int) -> list[dict[str, object]]:
    """The epochs of a record up to one of them, as the record has them, with their times."""
    found: dict[int, dict[str, object]] = {}
    for record in read_records(path):
        if record.get("event") == "epoch" and record["epoch"] <= last:
            found[record["epoch"]] = record
    return [found[number] for number in sorted(found)]


def to_epoch(record: Any) -> Epoch:
    """The epoch that a record tells of.

    A ValueError if a field is missing, or not what it should be.
    """
    facts: dict[str, Any] = record if isinstance(record, dict) else {}
    values: list[Any] = [facts.get(name) for name in ("epoch", "loss", "seconds")]
    number, loss, seconds = values
    if type(number) is not int or number < 1 or not _is_number(loss) or not _is_number(seconds):
        raise ValueError(f"no epoch: {str(record)[:80]}")
    metrics = {name: value for name, value in facts.items() if is_metric(name)}
    if not all(value is None or _is_number(value) for value in metrics.values()):
        raise ValueError(f"no metrics: {str(record)[:80]}")
    return Epoch(number, loss, metrics, seconds)


def is_metric(name: str) -> bool:
    """Whether a name is one that epochs have metrics under."""
    return _METRIC.fullmatch(name) is not None


_METRIC = re.compile("(train|val|test)_[a-z0-9_]+")


def metric_of(start: Mapping[str, Any]) -> str:
    """The metric that chose a run's best weights; records of earlier versions do not say it."""
    return start.get("metric", "accuracy")


# Of records of a start, a resume, a stop and an end, where they have them.
_KINDS: dict[str, tuple[type, ...]] = {
        "metric": (str,), "graph": (str,), "graph_id": (str,), "data_id": (str,), "scheme": (str,),
    "partition": (str, type(None)), "kernel": (str,), "ranks": (int,),
    "config": (dict,), "hosts": (list,), "warnings": (list,),
    "epoch": (int,), "epochs": (int,), "epochs_run": (int,), "signal": (int,),
    "checkpoint": (str,), "seconds_per_epoch": (int, float), "bytes_sent": (list,),
    "messages_sent": (list,), "rounding": (list,), "phases": (dict,),
    "of_ranks": (dict,), "samples": (list,),
}  # fmt: skip


def _checked(path: Path, record: Any) -> dict[str, Any]:
    """A record whose fields are what those who read them expect."""
    try:
        if not isinstance(record, dict) or not isinstance(record.get("event"), str | None):
            raise ValueError(f"no record: {str(record)[:80]}")
        if record.get("event") == "epoch":
            if not _is_number(record.get("time", 0.0)):
                raise ValueError(f"time is {record['time']!r}")
            return record | to_epoch(record).record()
        if record.get("event") in ("start", "resume", "stop", "end"):
            for name, kinds in _KINDS.items():
                if name in record and type(record[name]) not in kinds:
                    raise ValueError(f"{name} is {str(record[name])[:80]!r}")
            for one in record.get("samples", []):
                facts = one if isinstance(one, dict) else {}
                whole = type(facts.get("after")) is int and type(facts.get("epoch")) is int
                if not whole or type(facts.get("seconds")) is not dict:
                    raise ValueError(f"samples has {str(one)[:80]!r}")
            for one in record.get("rounding", []):
                if not isinstance(one, dict) or not _is_number(one.get("error")):
                    raise ValueError(f"rounding has {str(one)[:80]!r}")
            train = record.get("config", {}).get("train", {})
            if not isinstance(train, dict) or type(train.get("epochs", 1)) is not int:
                raise ValueError(f"config has train {str(train)[:80]!r}")
            return printable(record)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    return record


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _until(epochs: dict[int, Any], resume: dict[str, Any]) -> dict[int, Any]:
    """The epochs that a run had when it was resumed."""
    last = resume.get("epoch", max(epochs, default=0))
    return {number: record for number, record in epochs.items() if number <= last}


def _pace(times: list[tuple[int, float]]) -> float | None:
    if len(times) < 2 or times[-1][0] <= times[0][0]:
        return None
    return max(0.0, times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])


def is_finished(out: Path) -> bool:
    """Whether the record in the folder of a run ends with the end of the run."""
    try:
        return read_run(out).end is not None
    except UserError:
        return False


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder that nobody else has: ``parent/name``, or ``parent/name-2``, and so on.

    A UserError if no folder can be made there.
    """
    with system_errors(f"cannot write {parent / name}"):
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = parent / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise AssertionError


def make_folder(out: Path) -> None:
    """Make the folder of a run, if need be.

    A UserError if no record could be written there.
    """
    check_outside_graphs(out / RECORD)
    with system_errors(f"cannot write {out / RECORD}"):
        out.mkdir(parents=True, exist_ok=True)


def new_record(out: Path) -> Path:
    """An empty record in the folder of a run; those of earlier runs are kept beside it.

    A UserError if the folder or the file cannot be written.
    """
    path = out / RECORD
    make_folder(out)
    with system_errors(f"cannot write {path}"):
        if path.exists():
            kept = put_aside(path)
            print(
                f"note: the record of the run before in {out} is now {kept.name}", file=sys.stderr
            )
        path.touch()
    return path


def continued_record(out: Path, start: dict[str, Any], epochs: Sequence[Epoch]) -> Path:
    """The record of the run in ``out``, to be continued after the last of ``epochs``.

    Epochs that it lacks, or has otherwise, are added: a checkpoint outlives a record that a crash
    has cut off, and may be resumed in another folder. A UserError if it cannot be read or written;
    one that is damaged is put aside.
    """
    path = out / RECORD
    kept: list[Any] = []
    make_folder(out)
    with system_errors(f"cannot write {path}"):
        if path.exists():
            with open(path, "rb"):  # what cannot be read now may be whole
                pass
            try:
                kept = [_checked(path, record) for record in read_records(path)]
            except UserError:  # the checkpoint's copy of the epochs is as good
                put_aside(path)
    if not any(record.get("event") == "start" for record in kept):
        kept = [{"event": "start", **start}, *kept]
    there: dict[int, Epoch] = {}
    for record in kept:
        if record.get("event") == "epoch":
            there[record["epoch"]] = to_epoch(record)
        elif record.get("event") == "resume":
            there = _until(there, record)
    kept += [{"event": "epoch", **e.record()} for e in epochs if there.get(e.epoch) != e]
    with atomic_file(path, "w") as file:
        file.writelines(json.dumps(record, default=to_json) + "\n" for record in kept)
    return path
