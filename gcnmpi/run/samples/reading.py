"""Own rows of samples, read from disk step by step, as features and labels of a network."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.nn.tasks.samples import Scales
from gcnmpi.options.frames import Frames
from partition.errors import UserError, system_errors
from partition.graph.samples import SampleSet

_AT_ONCE = 1 << 16  # numbers that are scaled at once: they stay in the cache
PAGE = 4096  # bytes; what lies between rows of one page is read along with them


class OwnSteps:
    """Some rows of an array (steps, n, columns) on disk.

    Rows that are near each other in the file are read at once, with what lies between them.

    Parameters
    ----------
    file : path
    array : memmap
        What the file holds, in C order.
    rows : (rows,) integers
        Which of the n, in the order in which they are wanted.

    Attributes
    ----------
    bytes : int
        How many have been read.
    """

    def __init__(self, file: Path, array: np.ndarray, rows: np.ndarray) -> None:
        assert isinstance(array, np.memmap)
        self._path, self._offset = file, array.offset
        _, self._n, columns = array.shape
        self._row = columns * array.dtype.itemsize
        with self._reading():
            self._file = os.open(self._path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        order = np.argsort(rows, kind="stable")
        increasing = rows[order].astype(np.int64)
        far = (np.diff(increasing) - 1) * self._row > PAGE
        first = np.flatnonzero(np.append(True, far)) if len(rows) else np.zeros(0, np.int64)
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        starts, lengths = increasing[first], increasing[last] - increasing[first] + 1
        places = np.append(0, np.cumsum(lengths))
        self._runs = list(zip(starts.tolist(), lengths.tolist(), places.tolist(), strict=False))
        self._buffer = np.empty((int(places[-1]), columns), array.dtype)
        run = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rows))))
        self._rows = np.empty(len(rows), np.int64)
        self._rows[order] = places[run] + increasing - starts[run]
        self.bytes = 0

    def read(self, step: int) -> np.ndarray:
        """The rows of a step, (rows, columns), in the order in which they are wanted."""
        raw = self._buffer.view(np.uint8).reshape(-1)
        for start, length, place in self._runs:
            at = self._offset + (step * self._n + start) * self._row
            self._fill(raw[place * self._row : (place + length) * self._row], at)
        self.bytes += len(raw)
        return self._buffer[self._rows]

    def _fill(self, piece: np.ndarray, at: int) -> None:
        done = 0
        while done < len(piece):
            with self._reading():
                count = os.preadv(self._file, [piece[done:].data], at + done)
            if not count:
                step = (at - self._offset) // (self._n * self._row)
                raise UserError(f"{self._path} ends within step {step}")
            done += count

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        return system_errors(f"cannot read {self._path}")


class ScaledSteps:
    """Some rows of the states or targets of samples, less a mean and over a deviation.

    Parameters
    ----------
    samples : SampleSet
    kind : str
        "states" or "targets".
    rows : (rows,) integers
        Vertices, in the order in which they are wanted.
    dtype : dtype
        Of what is read.
    scales : Scales

    Attributes
    ----------
    mean, deviation : (columns,) float64
    """

    def __init__(
        self, samples: SampleSet, kind: str, rows: np.ndarray, dtype: np.dtype, scales: Scales
    ) -> None:
        array = samples.states if kind == "states" else samples.targets
        assert array is not None
        some = slice(0, samples.columns) if kind == "states" else slice(samples.columns, None)
        self.mean, self.deviation = scales.mean[some], scales.deviation[some]
        self._steps, self._dtype = OwnSteps(samples.folder / f"{kind}.npy", array, rows), dtype

    @property
    def bytes(self) -> int:
        """How many bytes have been read from disk, or from what the system keeps of it."""
        return self._steps.bytes

    def read(self, step: int) -> np.ndarray:
        """The rows of a step, (rows, columns); NaN where unknown."""
        rows = self._steps.read(step)
        scaled = np.empty(rows.shape, self._dtype)
        count = max(1, _AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, len(rows), count):  # in float64, whatever the type
            some = slice(start, start + count)
            scaled[some] = (rows[some] - self.mean) / self.deviation
        return scaled


@dataclass(frozen=True)
class Read:
    """Samples as a network takes them: own rows, of all samples beside each other.

    Attributes
    ----------
    features : (rows · samples, features) array
        The columns of :class:`~gcnmpi.options.frames.Frames`, without static ones.
    labels : (rows · samples, outputs) array
        NaN where unknown, and of samples that there are not.
    """

    features: np.ndarray
    labels: np.ndarray


class SampleReader:
    """Reads samples by their last known step.

    Parameters
    ----------
    samples : SampleSet
    frames : Frames
    rows : (rows,) integers
        Vertices, in the order of the rank's rows.
    dtype : dtype
        Of what is read.
    scales : Scales
        Numbers are less their mean and over their deviation.
    """

    def __init__(
        self,
        samples: SampleSet,
        frames: Frames,
        rows: np.ndarray,
        dtype: np.dtype,
        scales: Scales,
    ) -> None:
        self._samples, self._frames, self._dtype = samples, frames, dtype
        how = rows, dtype, scales
        self._states, self._targets = ScaledSteps(samples, "states", *how), None
        if samples.targets is not None:
            self._targets = ScaledSteps(samples, "targets", *how)
        self._count = len(rows)
        self._kept: dict[int, np.ndarray] = {}

    @property
    def bytes(self) -> int:
        """How many bytes have been read from disk, or from what the system keeps of it."""
        return self._states.bytes + (0 if self._targets is None else self._targets.bytes)

    @property
    def deviations(self) -> np.ndarray:
        """The deviation that each column of the output was divided by, (outputs,) float64."""
        return self._of_outputs("deviation")

    @property
    def means(self) -> np.ndarray:
        """The mean that was taken off each column of the output, (outputs,) float64."""
        return self._of_outputs("mean")

    def known(self, anchors: np.ndarray) -> int:
        """How many numbers of the labels of some samples are known, on all ranks together."""
        frames, counts = self._frames, self._samples.moments[0]
        if self._targets is not None:
            return int(counts[anchors, self._samples.columns :].sum())
        leads = anchors[:, np.newaxis] + np.arange(1, frames.leads + 1)
        return int(counts[leads, : frames.predicted].sum())

    def read(self, anchors: Sequence[int | None], labels_too: bool = True) -> Read:
        """Samples that end with some steps; in place of None, one that does not count.

        Without labels, these may be of steps that there are not.
        """
        frames, count = self._frames, len(anchors)
        first = frames.static
        features = np.zeros((self._count, count, frames.features - first), self._dtype)
        outputs = self._samples.target_columns or frames.outputs
        labels = np.full((self._count, count, outputs), np.nan, self._dtype)
        before, self._kept = self._kept, {}
        for place, anchor in enumerate(anchors):
            if anchor is not None:
                of_one = labels[:, place] if labels_too else None
                self._take(anchor, before, features[:, place], of_one)
        np.nan_to_num(features, copy=False, nan=0.0)  # what is unknown counts as the mean
        rows = self._count * count  # perhaps none
        return Read(features.reshape(rows, features.shape[2]), labels.reshape(rows, outputs))

    def _take(
        self,
        anchor: int,
        before: dict[int, np.ndarray],
        features: np.ndarray,
        labels: np.ndarray | None,
    ) -> None:
        """Fill the rows of one sample."""
        frames, width = self._frames, self._frames.columns
        for number in range(frames.history):
            step = anchor - frames.history + 1 + number
            features[:, number * width : (number + 1) * width] = self._frame(step, before)
        if self._targets is not None:
            if labels is not None:
                labels[:] = self._targets.read(anchor)
            return
        at, given = frames.history * width, range(frames.rollout - 1 if frames.given else 0)
        for number in range(frames.leads) if labels is not None else given:
            frame = self._frame(anchor + 1 + number, before)
            if labels is not None:
                some = slice(number * frames.predicted, (number + 1) * frames.predicted)
                labels[:, some] = frame[:, : frames.predicted]
            if number in given:
                features[:, at : at + frames.given] = frame[:, frames.predicted :]
                at += frames.given

    def _frame(self, step: int, before: dict[int, np.ndarray]) -> np.ndarray:
        """The rows of a step, which samples that overlap share."""
        if step not in self._kept:
            found = before.get(step)
            self._kept[step] = self._states.read(step) if found is None else found
        return self._kept[step]

    def _of_outputs(self, scale: str) -> np.ndarray:
        if self._targets is not None:
            found: np.ndarray = getattr(self._targets, scale)
            return found
        return np.tile(getattr(self._states, scale)[: self._frames.predicted], self._frames.leads)
