"""The record of a run, ``run.jsonl``: its lines, how they are written, and how they are read again.

Each field of a line stands here once, with its type and its meaning: what is written, checked when
it is read, shown by reports and explained by ``gcnmpi report --fields`` are these classes. A run
that was interrupted and resumed has one record: the fields of "resume" take the place of those of
"start", and of several records of one epoch the last one counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import ItemsView, Iterator, KeysView
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated as A
from typing import Any, Self, get_type_hints

import msgspec
from msgspec import Meta, Struct

from partition.errors import UserError
from partition.graph.store import StoredGraph
from partition.records import printable, read_records, to_json

RECORD = "run.jsonl"
METRIC = re.compile("(train|val|test)_[a-z0-9_@]+")  # names that epochs have metrics under
Number = int | float
Each = list[Number]  # one for each rank
MASKS = ("train", "val", "test")


def _is(meaning: str, **limits: Any) -> Meta:
    return Meta(description=meaning, **limits)


class Fields(Struct, frozen=True):
    """Named facts: attributes, and the mapping of JSON that programs of users read.

    A field that is missing in a file has the default; unknown fields are ignored.
    """

    def json(self) -> dict[str, Any]:
        """The object of JSON in the file."""
        return self.record()

    def record(self) -> dict[str, Any]:
        """Its fields, but for the event."""
        found: dict[str, Any] = msgspec.to_builtins(self, enc_hook=to_json)
        found.pop("event", None)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.json()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.json())

    def keys(self) -> KeysView[str]:
        """The names of the fields, as of a dict."""
        return self.json().keys()

    def items(self) -> ItemsView[str, Any]:
        """The fields, as of a dict."""
        return self.json().items()

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or ``default``."""
        return self.json().get(name, default)


class Line(Fields, frozen=True, tag_field="event", tag=str.lower):
    """A line of the record, whose event is the name of its class."""

    @classmethod
    def parse(cls, facts: Any) -> Self:
        """A line as it was read; a ValueError names the field that is not what it should be."""
        if not isinstance(facts, dict):
            raise ValueError(f"no record: {str(facts)[:80]}")
        try:
            return msgspec.convert(facts, cls)
        except msgspec.ValidationError as error:
            what, _, field = str(error).partition(" - at `$.")
            raise ValueError(f"{field.rstrip('`')}: {what}" if field else what) from error

    def json(self) -> dict[str, Any]:
        """The object of JSON in the file, with its event."""
        return {"event": type(self).__name__.lower(), **self.record()}

    def text(self) -> str:
        """The line as it is written."""
        return json.dumps(self.json()) + "\n"


class RanksRecord(Fields, frozen=True, kw_only=True):
    """Rows, memory and messages of single ranks."""

    rows: A[Each | None, _is("vertices owned; of grids without a plan: as forecast")] = None
    entries: A[Each | None, _is("entries of M multiplied in one product")] = None
    memory_forecast_bytes: A[Number | None, _is(
        "memory of the rank that needs most, as gcnmpi plan forecasts it; of mini-batches, from "
        "the first two")] = None  # fmt: skip
    peers: A[list[list[int]] | None, _is(
        "for each rank those that it sends to in an expand; p2p only, not for mini-batches or "
        "more than 256 ranks")] = None  # fmt: skip
    peer_rows: A[list[list[int]] | None, _is("how many rows each of them gets")] = None
    expand_row_bytes: A[Number, _is("bytes of such a row in all expands of an epoch")] = 0
    fold_row_bytes: A[Number, _is("likewise in all folds, which go the other way")] = 0


class PhaseSample(Fields, frozen=True):
    """The seconds that every rank spent in each phase in the epochs behind ``after``."""

    epoch: int  # up to which
    after: int
    seconds: dict[str, Each]

    def __post_init__(self) -> None:
        if self.epoch <= self.after:
            raise ValueError(f"a sample of phases after epoch {self.after}, in {self.epoch}")


class ExchangeError(Struct, frozen=True, kw_only=True):
    """The error of an exchange that was rounded to comm.precision."""

    epoch: int = 0
    exchange: int = 0
    width: int = 0
    error: Number


class _Train(Struct):
    epochs: int | None = None


class _Task(Struct):
    metrics: list[str] = []


class _Config(Struct):
    """The keys that reports read of a configuration, whatever version wrote it."""

    train: _Train | None = None
    task: _Task | None = None
    model: dict[str, Any] | None = None
    kernel: str | None = None


class Start(Line, frozen=True, kw_only=True):
    """start, the first record."""

    time: A[str, _is("when the run began, in UTC")] = ""
    graph: A[str, _is("name of the graph")] = ""
    n: A[int | None, _is("number of its vertices")] = None
    nnz: A[int | None, _is("number of its arcs")] = None
    graph_id: A[str | None, _is("hash of the arcs")] = None
    data_id: A[str | None, _is("hash of features, labels and masks, or null")] = None
    pairs_id: A[str | None, _is("hash of the pairs, or null")] = None
    samples_id: A[str | None, _is("hash of the samples, or null")] = None
    pairs: A[dict[str, Any] | None, _is(
        "of link prediction: name, made, directed, numbers of positives (train, val, test), and "
        "of negatives and candidates of each")] = None  # fmt: skip
    sample_set: A[dict[str, Any] | None, _is(
        "of samples: name, made, columns, target_columns, and numbers of steps (train, val, test)"
    )] = None  # fmt: skip
    partition: A[str | None, _is("name of the partition that was taken")] = None
    partition_id: A[str | None, _is("hash of this partition")] = None
    direction: A[str | None, _is("direction of M, in or out")] = None
    scheme: A[str, _is("the distributed algorithm")] = ""
    scheme_options: A[dict[str, Any], _is("values of its options that were used")] = {}
    kernel: A[str, _is("what computes on each rank")] = ""
    ranks: A[int, _is("number of ranks", ge=1)] = 1
    groups: A[int, _is("number of groups of ranks (docs/samples.md)")] = 1
    threads: A[int | None, _is("threads per rank")] = None
    hosts: A[list[str], _is("host of each rank")] = []
    devices: A[list[str | None], _is("GPU of each rank")] = []
    job: A[str | None, _is('number of the Slurm job, and how often requeued: "4711.0"')] = None
    reduction: A[str | None, _is("what summed the gradients: mpi or nccl")] = None
    versions: A[dict[str, Any], _is("versions of gcnmpi, Python, libraries, MPI, CUDA")] = {}
    metric: A[str, _is("the metric that chooses the best weights")] = "accuracy"
    config: A[dict[str, Any], _is("the whole configuration")] = {}
    script: A[dict[str, Any] | None, _is("of a run of PyTorch: the file that ran")] = None
    warnings: A[list[str], _is("the warnings that were printed")] = []
    of_ranks: A[RanksRecord, _is("what the ranks hold and send, see below")] = RanksRecord()

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _Config)

    def record(self) -> dict[str, Any]:
        """See :meth:`Fields.record`: without a script, unless there is one."""
        found = super().record()
        return found if found["script"] else {k: v for k, v in found.items() if k != "script"}

    def section(self, name: str) -> dict[str, Any]:
        """A section of the configuration; empty where there is none of the name."""
        return self.config.get(name) or {}

    @property
    def wanted_epochs(self) -> int | None:
        """How many epochs the run was to have."""
        return self.section("train").get("epochs")

    def resumed(self, epoch: int, checkpoint: Path) -> Resume:
        """The first line of a launch that goes on after an epoch."""
        fields = {name: getattr(self, name) for name in Start.__struct_fields__}
        return Resume(**fields, epoch=epoch, checkpoint=str(checkpoint))


class Resume(Start, frozen=True, kw_only=True):
    """resume, where a run goes on: the fields of start, and."""

    checkpoint: A[str, _is("the checkpoint that it goes on from")] = ""
    epoch: A[int | None, _is("the epoch of the checkpoint")] = None


class Epoch(Line, frozen=True):
    """epoch, the result of one epoch of training."""

    epoch: A[int, _is("from 1", ge=1)]
    loss: A[Number, _is("loss of the training pass: with this epoch's dropout, before its update")]
    metrics: A[dict[str, Number | None], _is(
        "fractions, without dropout, after the update, or null; other metrics "
        "(docs/tasks.md#metrics) likewise: val_roc_auc",
        extra={"names": [f"{mask}_accuracy" for mask in MASKS]})]  # fmt: skip
    seconds: A[Number, _is("of forward pass, backward pass and update on the slowest rank")]
    time: A[Number | None, _is("when the epoch ended, in seconds since 1970")] = None

    @classmethod
    def parse(cls, facts: Any) -> Self:
        """As :meth:`Line.parse`; metrics stand between the other fields."""
        return super().parse(_gathered(facts, "metrics", METRIC))

    def record(self) -> dict[str, Any]:
        """See :meth:`Fields.record`: metrics stand between the other fields."""
        found = {"epoch": self.epoch, "loss": self.loss, **self.metrics, "seconds": self.seconds}
        return found if self.time is None else found | {"time": self.time}

    def of(self, mask: str, metric: str) -> float | None:
        """A metric of "train", "val" or "test"; None where it was not evaluated."""
        return self.metrics.get(f"{mask}_{metric}")

    def same_result(self, other: Epoch | None) -> bool:
        """Whether another record of the epoch tells the same, whenever it was written."""
        return other is not None and self.record() | {"time": 0} == other.record() | {"time": 0}


_PHASES = "the seconds that each rank spent in each phase in the epochs behind the number after up "
_PHASES += "to epoch; the later the epochs, the fewer are sampled. A killed launch leaves none"


class Stop(Line, frozen=True, kw_only=True):
    """stop, of a run that was asked to."""

    epoch: A[int, _is("the last epoch")] = 0
    signal: A[int, _is("the signal")] = 0
    checkpoint: A[str, _is("the checkpoint that was written")] = ""
    phase_samples: A[list[PhaseSample], _is("as in end")] = msgspec.field(
        default=[], name="samples"
    )


class End(Line, frozen=True, kw_only=True):
    """end, the last record; lists have a number for each rank."""

    finished: A[bool, _is("true")] = True
    epochs: A[int, _is("the number of epochs")] = 0
    epochs_run: A[int, _is("number of epochs since the last start or resumption", ge=0)] = 0
    stopped_early: A[bool, _is("whether train.patience ended the run")] = False
    best_epoch: A[int | None, _is("the first epoch with the best validation metric")] = None
    best: A[dict[str, Number | None], _is(
        "the metrics in this epoch, by the name of task.metric",
        extra={"names": ["best_val_accuracy", "best_test_accuracy"]})] = {}  # fmt: skip
    seconds_per_epoch: A[Number | None, _is("median of the seconds of the epochs")] = None
    orders: A[list[str] | None, _is(
        "order of the products in each layer that multiplies with M: combine, aggregate, or given "
        "(computed once)")] = None  # fmt: skip
    bytes_sent: A[Each | None, _is(
        "bytes that exchanges of training sent, counted at the calls of MPI")] = None  # fmt: skip
    bytes_predicted: A[Each | None, _is("these bytes as predicted from the partition")] = None
    bytes_received: A[Each | None, _is(
        "bytes received in them; for collectives the payload that arrives")] = None  # fmt: skip
    received_predicted: A[Each | None, _is("bytes received, as predicted")] = None
    messages_sent: A[Each | None, _is("messages sent in them")] = None
    messages_predicted: A[Each | None, _is("messages sent, as predicted")] = None
    shared_bytes: A[Each | None, _is(
        "bytes read from the memory of other ranks of a node (scheme.transport), which are not in "
        "those sent or received")] = None  # fmt: skip
    shared_predicted: A[Each | None, _is("these bytes as predicted")] = None
    hidden: A[list[Number | None] | None, _is(
        "fraction of the time of exchanges that overlapped with computing "
        "(docs/schemes.md#transports)")] = None  # fmt: skip
    setup_bytes_sent: A[Each | None, _is(
        "bytes of exchanges before the first epoch, for degrees and M·H⁰")] = None  # fmt: skip
    eval_bytes_sent: A[Each | None, _is("the same numbers for the evaluations")] = None
    eval_bytes_predicted: A[Each | None, _is("likewise")] = None
    eval_bytes_received: A[Each | None, _is("likewise")] = None
    eval_received_predicted: A[Each | None, _is("likewise")] = None
    eval_messages_sent: A[Each | None, _is("likewise")] = None
    eval_messages_predicted: A[Each | None, _is("likewise")] = None
    eval_shared_bytes: A[Each | None, _is("likewise")] = None
    eval_shared_predicted: A[Each | None, _is("likewise")] = None
    batches: A[Each | None, _is("of mini-batches: how many each rank computed")] = None
    batch_rows_sent: A[Each | None, _is(
        "of mini-batches: rows sent in one expand of each layer; p2p only")] = None  # fmt: skip
    batch_messages_sent: A[Each | None, _is("messages likewise")] = None
    kept_rows: A[Each | None, _is("rows of others that a rank keeps (train.cache_mb)")] = None
    kept_bytes: A[Each | None, _is("bytes of these rows")] = None
    kept_rows_read: A[Each | None, _is("how many of them batches read")] = None
    steps: A[Each | None, _is("of samples: steps that each rank computed")] = None
    samples_here: A[Each | None, _is("samples that each rank computed")] = None
    sample_bytes: A[Each | None, _is("bytes of samples that it read")] = None
    leads: A[dict[str, dict[str, list[Number | None]]] | None, _is(
        "of samples: the metrics of each predicted state")] = None  # fmt: skip
    rounding: A[list[ExchangeError] | None, _is(
        "what comm.precision changed: for each exchange of the first and the last epoch its "
        "epoch, number (exchange), width and relative error (Frobenius norm); empty if messages "
        "are exact")] = None  # fmt: skip
    reduce_bytes: A[Each | None, _is(
        "bytes of the gradient reductions: the payload that a rank receives, 2(P−1)/P × buffer"
    )] = None  # fmt: skip
    peak_memory_bytes: A[Each | None, _is("largest memory of the process")] = None
    phases: A[dict[str, dict[str, Number]], _is(
        "seconds of the whole run in each phase: minimum, mean and maximum over ranks"
    )] = {}  # fmt: skip
    rank_phases: A[dict[str, Each] | None, _is("seconds of every rank in each phase")] = None
    phase_samples: A[list[PhaseSample], _is(_PHASES)] = msgspec.field(default=[], name="samples")

    @classmethod
    def parse(cls, facts: Any) -> Self:
        """See :meth:`Line.parse`; the best metrics stand between the other fields."""
        return super().parse(_gathered(facts, "best", re.compile("best_(val|test)_.+")))

    def record(self) -> dict[str, Any]:
        """See :meth:`Fields.record`: without fields that are not known of the run."""
        found = super().record()
        best = {"best_epoch": found.pop("best_epoch"), **found.pop("best")}
        return {name: value for name, value in found.items() if value is not None} | best


PHASES = {
    "load": "reading, distributing, planning",
    "sample": "drawing mini-batches",
    "spmm": "sparse products, attention, maxima",
    "gemm": "dense products",
    "pack": "copying rows to be sent",
    "wait": "waiting for messages",
    "loss": "the loss and its gradient",
    "reduce": "sums of gradients, with waiting for the slowest rank",
    "scratch": "waiting for values written or read, docs/memory.md#values-in-a-file",
    "update": "the optimizer",
    "eval": "evaluations",
    "checkpoint": "writing checkpoints",
    "other": "all else; bias, activation, dropout and their backward pass count in the product "
    "that they follow",
}
_LINES: dict[str, type[Line]] = {
    "start": Start,
    "resume": Resume,
    "epoch": Epoch,
    "stop": Stop,
    "end": End,
}


def field_tables() -> dict[str, dict[str, str]]:
    """The names of all fields, and what each means, by the title of the line."""
    event = {"event": "start, resume, epoch, stop or end: the kind of the record"}
    ranks = {"of_ranks, in start and resume": _meanings(RanksRecord)}
    found: dict[str, dict[str, str]] = {}
    for kind in _LINES.values():
        title = str(kind.__doc__).rstrip(".")
        found[title] = _meanings(kind) if found else event | _meanings(kind)
        found |= ranks if kind is Start else {}
    return found | {"phases": PHASES}


def _meanings(kind: type[Fields]) -> dict[str, str]:
    """The names that the own fields of a class have in the file, and what they mean."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in kind.__annotations__:
            (meta,) = get_type_hints(kind, include_extras=True)[field.name].__metadata__
            first, *others = (meta.extra or {}).get("names", [field.encode_name])
            found |= {first: meta.description, **dict.fromkeys(others, "likewise")}
    return found


def _gathered(facts: Any, name: str, pattern: re.Pattern[str]) -> Any:
    """The fields of a line, of which those whose names match lie in a mapping of their own."""
    if not isinstance(facts, dict):
        return facts
    inner = {key: value for key, value in facts.items() if pattern.fullmatch(key)}
    return {key: value for key, value in facts.items() if key not in inner} | {name: inner}


@dataclass(frozen=True)
class RunRecord:
    """The content of ``run.jsonl``, without records that later ones supersede.

    Attributes
    ----------
    start : Start
        The first record, with what the last "resume" says over it.
    epochs : list of Epoch
        The record of each epoch that was written last, in order. A run that went on from a
        checkpoint has none after that checkpoint but its own.
    end : End or None
        None unless the last launch finished.
    stop : Stop or None
        The "stop" record, if the run was asked to stop and has not been resumed.
    resumes : int
        How often it was resumed.
    pace : float or None
        Seconds from epoch to epoch in the last launch, with evaluations and checkpoints; None
        before its second epoch.
    last_written : float
        When the record was last written to, in seconds since 1970.
    phase_samples : list of PhaseSample
        Those of launches that ended or stopped, in order.
    """

    start: Start
    epochs: list[Epoch]
    end: End | None
    stop: Stop | None
    resumes: int
    pace: float | None
    last_written: float
    phase_samples: list[PhaseSample]

    @property
    def best(self) -> Epoch | None:
        """The epoch of the best validation metric; None before the end, or without one."""
        number = self.end.best_epoch if self.end is not None else None
        return next((epoch for epoch in self.epochs if epoch.epoch == number), None)


def read_run(run: str | os.PathLike) -> RunRecord:
    """Read the record of a run, given its folder or the file itself.

    A UserError if there is none, it is none of a run, or a field of it is not what it should be.
    """
    path = Path(run)
    path = path / RECORD if path.is_dir() else path
    start: dict[str, Any] | None = None
    epochs: dict[int, Epoch] = {}
    launched: list[Epoch] = []  # those of the last launch
    samples: list[PhaseSample] = []
    last: Line | None = None
    resumes = 0
    for facts, line in read_lines(path):
        if isinstance(line, Epoch):
            epochs[line.epoch] = line
            launched.append(line)
            continue
        last = line
        if isinstance(line, Stop | End):
            samples += line.phase_samples
        if not isinstance(line, Start):
            continue
        launched = []
        if not isinstance(line, Resume):
            start = facts
        elif start is not None:
            resumes += 1
            start = start | {"of_ranks": {}} | facts | {"event": "start"}
            epochs = epochs_until_resume(epochs, line)
            samples = [sample for sample in samples if sample.epoch in epochs]
    if start is None:
        raise UserError(f"{path} is not the record of a run")
    return RunRecord(
        Start.parse(start),
        [epochs[number] for number in sorted(epochs)],
        last if isinstance(last, End) else None,
        last if isinstance(last, Stop) else None,
        resumes,
        _pace([(epoch.epoch, epoch.time) for epoch in launched if epoch.time is not None]),
        path.stat().st_mtime,
        samples,
    )


def epochs_until(path: str | os.PathLike, last: int) -> list[Epoch]:
    """The epochs of a record up to one of them."""
    lines = (line for _, line in read_lines(Path(path)) if isinstance(line, Epoch))
    found = {line.epoch: line for line in lines if line.epoch <= last}
    return [found[number] for number in sorted(found)]


def ids_of(stored: StoredGraph) -> dict[str, Any]:
    """The ids of graph, data, pairs and samples, as records and checkpoints have them."""
    parts = {"pairs_id": stored.pairs, "samples_id": stored.samples}
    ids = {name: None if part is None else part.id for name, part in parts.items()}
    return {"graph_id": stored.manifest.id, "data_id": stored.manifest.data_id, **ids}


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], Line | None]]:
    """The lines of a record as they are, and what they say; None of an event that is not known."""
    for facts in read_records(path):
        try:
            event = facts.get("event") if isinstance(facts, dict) else Line
            if not isinstance(event, str | None):
                raise ValueError(f"no record: {str(facts)[:80]}")
            kind = _LINES.get(event or "")
            if kind is not None and kind is not Epoch:
                facts = printable(facts)
            yield facts, kind.parse(facts) if kind is not None else None
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}") from error


def epochs_until_resume(epochs: dict[int, Epoch], resume: Resume) -> dict[int, Epoch]:
    """The epochs that a run had when it was resumed."""
    last = max(epochs, default=0) if resume.epoch is None else resume.epoch
    return {number: epoch for number, epoch in epochs.items() if number <= last}


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
