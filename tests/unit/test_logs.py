"""Logs of epochs for other programs."""

import csv
import struct
import sys

import pytest
from refusals import refuses

from gcnmpi.run.logs import LOGS, parse_logs
from gcnmpi.run.record import Epoch
from gcnmpi.run.run_record import Recorder


def line(number, **metrics):
    values = {"val_accuracy": 0.1 * number, "test_accuracy": None} | metrics
    return {**Epoch(number, 1 / number, values, 0.5).record(), "time": 100.0 + number}


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


def record_of(path, *numbers):
    write = Recorder(str(path), ("csv",), 0)
    write("start")
    for number in numbers:
        write("epoch", **line(number))
    write.close()
    write.check()


def test_a_run_that_goes_on_has_every_epoch_once(tmp_path):
    pytest.importorskip("tensorboardX")
    path = tmp_path / "run.jsonl"
    record_of(path, 1, 2, 3, 4)
    for until in (2, 3):  # from a checkpoint after the second epoch, then after the third
        write = Recorder(str(path), ("csv", "tensorboard"), until)
        write("resume", epoch=until)
        for number in range(until + 1, 6):
            write("epoch", **line(number, val_accuracy=until))
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
    assert parse_logs("") == ()
    assert parse_logs("csv") == ("csv",)
    if LOGS.available()["tensorboard"] is None:
        assert parse_logs(" csv, tensorboard ") == ("csv", "tensorboard")
    refuses("named twice", parse_logs, "csv,csv")
    refuses("csv", parse_logs, "cvs")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for name in [name for name in sys.modules if name.startswith("tensorboardX.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gcnmpi.run.logs.tensorboard", raising=False)
    caught = refuses("needs the Python package 'tensorboardX", parse_logs, "tensorboard")
    assert caught.hint == "pip install '.[tensorboard]' in a checkout"
