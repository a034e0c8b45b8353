"""Event files of TensorBoard, by tensorboardX, which needs neither TensorFlow nor PyTorch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from gcnmpi.run.record import Epoch

FOLDER = "tensorboard"
_FLUSH_SECONDS = 2.0


class EventLog:
    """Loss, metrics and seconds of the epochs as scalars, in a folder of its own.

    The library's own queue and thread are not used: what cannot be written has to be an error here.
    """

    def __init__(self, folder: Path, before: Sequence[Epoch]) -> None:
        place = folder / FOLDER
        place.mkdir(exist_ok=True)
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer, self._flushed = EventsWriter(str(place / "events")), time.monotonic()
        # A TensorBoard that has shown the files before forgets what it has of these epochs.
        start = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=0, session_log=start))
        for epoch in before:
            self.add(epoch)

    def add(self, epoch: Epoch) -> None:
        """Write the scalars of an epoch; they reach the file every other second."""
        for name, value in epoch.record().items():
            if name not in ("epoch", "time") and value is not None:
                event = Event(wall_time=epoch.time or 0.0, step=epoch.epoch)
                event.summary.CopyFrom(scalar(_tag(name), value))
                self._writer.write_event(event)
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._writer.close()


def _tag(name: str) -> str:
    """The curves of one metric, for every mask, lie in one group: "accuracy/val"."""
    mask, _, metric = name.partition("_")
    return f"{metric}/{mask}" if metric else {"loss": "loss/train"}.get(name, f"epoch/{name}")
