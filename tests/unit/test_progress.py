"""Progress, and logs of epochs: lines by time, what is left, files for other programs."""

import csv
import struct
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
from refusals import refuses

from gcnmpi.options.config import from_table
from gcnmpi.options.requests import LOGS, parse_logs
from gcnmpi.report.progress import Progress, shown_metrics
from gcnmpi.run.record import Epoch, Resume, Start
from gcnmpi.run.writer import Writer


def progress(capsys, epochs, seconds):
    """The lines, without the heading, of a run whose epochs take so many seconds each."""
    now, one = [0.0], SimpleNamespace
    source = one(stored=one(manifest=one(name="g\x1b[2J")), partition=None)
    runtime = one(everyone=one(size=2), kernel=one(name="scipy", threads=1))
    facts = {"config": from_table({"train": {"epochs": epochs}}), "warnings": (), "machine": ()}
    problem = one(source=source, runtime=runtime, **facts)
    with Progress(problem, quiet=False, clock=lambda: now[0]) as shown:
        for epoch in range(1, epochs + 1):
            now[0] += seconds
            shown.epoch(Epoch(epoch, 1.5, {"val_accuracy": 0.5}, seconds))
    err = capsys.readouterr().err
    assert "\x1b" not in err  # whatever the graph is called
    return err.splitlines()[1:]


def test_a_short_run_shows_its_first_and_last_epoch(capsys):
    lines = progress(capsys, 200, 0.001)
    assert [line.split()[1] for line in lines] == ["1/200", "200/200"]


def test_lines_come_at_growing_intervals_with_what_is_left(capsys):
    lines = progress(capsys, 100_000, 0.5)
    assert 100 < len(lines) < 200
    epochs = [int(line.split()[1].partition("/")[0]) for line in lines]
    pauses = [later - earlier for earlier, later in pairwise(epochs)][:-1]
    assert (pauses[0], pauses[-1], pauses) == (10, 600, sorted(pauses))
    assert lines[1].endswith("loss 1.5000  val 0.500  0.5000 s  13:53:14 left")


def test_the_metric_that_chooses_is_shown_and_no_other(capsys):
    values = {"train_rmse": 1234.56, "val_rmse": 0.5, "test_rmse": None, "val_r2": 0.9}
    assert shown_metrics(Epoch(1, 1.0, values, 0.1)) == ["train rmse 1235", "val rmse 0.500"]
    assert shown_metrics(Epoch(1, 1.0, {"val_accuracy": 0.5}, 0.1)) == ["val 0.500"]
    assert shown_metrics(Epoch(1, 1.0, {}, 0.1)) == []


# Logs of epochs for other programs.


def line(number, **metrics):
    values = {"val_accuracy": 0.1 * number, "test_accuracy": None} | metrics
    return Epoch(number, 1 / number, values, 0.5, time=100.0 + number)


def scalars(folder):
    """(step, tag) → value, in the order of an event file, with how often each was written."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("tensorboard/events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        found += [(event.step, v.tag, v.simple_value, event.wall_time) for v in event.summary.value]
        data = data[16 + size :]
    return found


def test_a_run_that_goes_on_has_every_epoch_once(tmp_path):
    pytest.importorskip("tensorboardX")
    # From a checkpoint after the second epoch, then after the third.
    for until, first, logs in (
        (0, Start(), ["csv"]),
        *((k, Resume(epoch=k), LOGS) for k in (2, 3)),
    ):
        write = Writer(tmp_path / "run.jsonl", None, tuple(logs), until)
        write(first)
        for number in range(until + 1, 6):
            write(line(number, **({"val_accuracy": until} if until else {})))
        write.close()
        write.check()
    rows = list(csv.DictReader((tmp_path / "epochs.csv").open()))
    assert [(row["epoch"], float(row["val_accuracy"])) for row in rows] == [
        ("1", 0.1), ("2", 0.2), ("3", 2.0), ("4", 3.0), ("5", 3.0),
    ]  # fmt: skip
    found = scalars(tmp_path)
    losses = [(step, time) for step, tag, _, time in found if tag == "loss/train"]
    assert losses == [(number, 100.0 + number) for number in range(1, 6)]
    assert {tag for _, tag, _, _ in found} == {"loss/train", "accuracy/val", "epoch/seconds"}


def test_names_of_logs(monkeypatch):
    assert [parse_logs(text) for text in ("", "csv")] == [(), ("csv",)]
    if LOGS.available()["tensorboard"] is None:
        assert parse_logs(" csv, tensorboard ") == ("csv", "tensorboard")
    refuses("named twice", parse_logs, "csv,csv")
    refuses("csv", parse_logs, "cvs")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for name in [name for name in sys.modules if name.startswith("tensorboardX.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gcnmpi.run.logs.tensorboard", raising=False)
    refuses("needs the Python package 'tensorboardX", parse_logs, "tensorboard")
