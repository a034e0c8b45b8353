"""The ledger of a run: its epochs, record, checkpoints and best weights.

``gcnmpi train`` and a loop of the user's in PyTorch (:mod:`gcnmpi.torch.run`) write the same files
by the same rules. A :class:`Keeps` gives the state that checkpoints keep of the one or the other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from gcnmpi.mpi.comm import agreed, from_root, maxima
from gcnmpi.run.best import Best
from gcnmpi.run.checkpoint import Checkpoint
from gcnmpi.run.opening import Opened
from gcnmpi.run.record import End, Epoch, Start, Stop
from gcnmpi.run.run_record import PhaseSamples, check_there, open_record, recording
from partition.errors import UserError


class Keeps(Protocol):
    """The state of a run that checkpoints keep; all ranks call it together."""

    def save(self, folder: Path, facts: Mapping[str, object], epochs: Sequence[Epoch]) -> Path:
        """Write the checkpoint after the last of ``epochs``: its state now, and the facts."""

    def keep_best(self) -> None:
        """Remember the weights of now as the best ones."""


@dataclass(frozen=True)
class CheckpointRules:
    """When checkpoints are written: every so many epochs, and minutes; 0: not for that."""

    epochs: int
    minutes: float
    at_end: bool = False  # also where none was written before


class Ledger:
    """The epochs of a run, kept in its folder; all ranks call its methods together.

    Parameters
    ----------
    opened : Opened
    folder : path or None
        Of the run; None: neither a record nor checkpoints.
    keeps : Keeps
    rules : CheckpointRules
    found : Checkpoint or None
        The checkpoint that the run goes on from, and has restored.
    best : Best
        Its best epoch.
    stop : callable
        The signal that asks this rank for an end, or 0.

    Attributes
    ----------
    epochs : list of Epoch
        All that are complete, those before this launch too.
    before : int
        How many those are.
    kept : path or None
        The newest checkpoint.
    signal : int
        The signal that asked for an end, as all ranks agreed on it last; 0: none.
    """

    def __init__(
        self,
        opened: Opened,
        folder: Path | None,
        keeps: Keeps,
        rules: CheckpointRules,
        found: Checkpoint | None,
        best: Best,
        stop: Callable[[], int],
    ) -> None:
        self._opened, self._comm = opened, opened.runtime.everyone
        self.folder, self._keeps, self._rules, self._found = folder, keeps, rules, found
        self.epochs: list[Epoch] = [] if found is None else list(found.epochs)
        if found is not None and found.facts["best"]["epoch"]:
            best = replace(best, **found.facts["best"])
        self.best, self.before = best, len(self.epochs)
        self.kept = None if found is None else found.path
        self.signal, self._stop, self._minutes = 0, stop, 0.0

    @contextlib.contextmanager
    def open(self, start: Start, logs: Sequence[str] = (), over: bool = False) -> Iterator[None]:
        """The context of the epochs, in which the record is open.

        ``start`` is its first line; with ``over``, there are no epochs left to run. On all ranks a
        UserError if the record cannot be written, at the end as well.
        """
        comm, folder, found, file = self._comm, self.folder, self._found, None
        if folder is not None:
            file = from_root(comm, lambda: open_record(folder, start, found, over))
        with recording(comm, file, logs, self.before) as self._write:
            self._write(start if found is None else start.resumed(self.before, found.path))
            with agreed(comm):
                self._write.check()
            self._samples = PhaseSamples(self._opened.runtime, self.before)
            self._sampled = self.before
            self._saved = time.monotonic()
            self._stop()  # from here on it is asked in every epoch
            yield

    def agree(self, *numbers: float) -> list[float]:
        """The largest of numbers over ranks, in the reduction that ends an epoch, or a part of it.

        In it all ranks hear who is asked for an end, whether the record can be written, and how
        long ago the last checkpoint was written. A UserError on all ranks, if it cannot be.
        """
        minutes = (time.monotonic() - self._saved) / 60
        *found, signal, self._minutes, failed = maxima(
            self._comm, *numbers, self._stop(), minutes, self._write.failed
        )
        self.signal = int(signal)
        if failed:
            with agreed(self._comm):
                self._write.check()
        return found

    def interrupts(self) -> bool:
        """Whether this rank wants an epoch of many batches to be interrupted."""
        minutes, limit = (time.monotonic() - self._saved) / 60, self._rules.minutes
        return self.folder is not None and (self._stop() > 0 or 0 < limit <= minutes)

    def enter(self, epoch: Epoch) -> None:
        """Add an epoch to the run; its weights are kept if they are the best so far."""
        self.epochs.append(epoch)
        before, self.best = self.best, self.best.after(epoch)
        if self.best is not before:
            self._keeps.keep_best()

    def record(self) -> None:
        """Write the last epoch to the record."""
        self._write(msgspec.structs.replace(self.epochs[-1], time=round(time.time(), 3)))

    def sample(self, last: bool) -> None:
        """Take the seconds of phases until now, where it is time: always after the last epoch."""
        number = len(self.epochs)
        if self.folder is None or self._sampled == number:
            return
        if last or self.signal or self._samples.due(number):
            self._samples.take(number)
            self._sampled = number

    def leave(self, last: bool, part: bool = False) -> bool:
        """Write a checkpoint after an epoch, where one is due; whether the run stops as asked.

        A run that has written checkpoints leaves one of its end: it may be given more epochs. With
        ``part``, an epoch was interrupted for it between two batches.
        """
        rules, number = self._rules, len(self.epochs)
        by_number = rules.epochs > 0 and number % rules.epochs == 0
        due = by_number or 0 < rules.minutes <= self._minutes
        at_end = last and (rules.at_end or self.kept is not None)
        if self.folder is None or not (part or due or at_end or self.signal):
            return False
        self.kept = path = self.save()
        if last or not self.signal:
            return False
        taken = self._samples.taken
        self._write(
            Stop(epoch=number, signal=self.signal, checkpoint=path.name, phase_samples=taken)
        )
        return True

    def save(self) -> Path:
        """Write a checkpoint of now; a record that was moved meanwhile is written again."""
        runtime, folder = self._opened.runtime, self.folder
        assert folder is not None
        during = runtime.phases.as_one("checkpoint"), runtime.traffic.during("checkpoint")
        with during[0], during[1]:
            moved = from_root(self._comm, self._write.restore)
            path = self._keeps.save(folder, {"best": self.best.facts()}, self.epochs)
        check_there(self._comm, moved, folder, path)
        self._saved = time.monotonic()
        return path

    def end(self, end: End) -> None:
        """Write the last line of the record, with the samples of phases."""
        self._write(msgspec.structs.replace(end, phase_samples=self._samples.taken))
        with contextlib.suppress(UserError):  # it is complete, wherever it is
            self._write.restore()
