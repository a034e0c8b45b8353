"""Rows of a pattern in pieces, and kernels that go through them: see ``cuda.text.pieces``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cupy import ndarray as Array

from gcnmpi.kernels.cuda.copies import upload
from gcnmpi.kernels.cuda.launches import CupyLaunches, Given
from gcnmpi.kernels.cuda.text.pieces import PIECE

ALIGNED = 16  # bytes that a thread reads at once, where rows begin at multiples of it
WINDOW = 1024  # rows that follow each other, among which those of about a length come together
_PIECE = np.dtype([("start", "i8"), ("length", "i4"), ("row", "i4")])


@dataclass(frozen=True)
class Level:
    """Pieces that a launch goes through.

    Attributes
    ----------
    pieces : (pieces, 2) int64 array
    open : int
        How many pieces, the first ones, are of longer rows.
    base : int
        Where their states go in scratch memory.
    """

    pieces: Array
    open: int
    base: int


class Pieces:
    """The rows of a pattern in pieces, on the device."""

    def __init__(self, starts: np.ndarray) -> None:
        self.levels = [
            Level(upload(pieces.view(np.int64).reshape(-1, 2)), open_, base)
            for pieces, open_, base in cut(starts)
        ]

    @property
    def scratch_rows(self) -> int:
        """Places of scratch memory for all levels."""
        return self.levels[-1].base


def cut(starts: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
    """Cut rows into pieces of at most ``PIECE`` entries, level by level.

    Pieces of longer rows come first; the others are in the order of their lengths, within windows.

    Parameters
    ----------
    starts : (rows + 1,) integers

    Yields
    ------
    pieces : structured array
        Where each piece starts, its length and its row.
    open, base : int
        See :class:`Level`.
    """
    starts = np.asarray(starts, np.int64)
    rows, first, lengths, base = np.arange(len(starts) - 1), starts[:-1], np.diff(starts), 0
    while True:
        long = np.flatnonzero(lengths > PIECE)
        counts = -(-lengths[long] // PIECE)
        places = np.cumsum(counts) - counts
        of_long = np.repeat(long, counts)
        before = PIECE * (np.arange(len(of_long)) - np.repeat(places, counts))
        whole = _by_length(lengths)
        pieces = np.empty(len(of_long) + len(whole), _PIECE)
        some = np.concatenate((of_long, whole))
        pieces["start"], pieces["length"], pieces["row"] = first[some], lengths[some], rows[some]
        pieces["start"][: len(before)] += before
        pieces["length"][: len(before)] = np.minimum(PIECE, lengths[of_long] - before)
        yield pieces, len(of_long), base
        if not len(long):
            return
        rows, first, lengths = rows[long], base + places, counts
        base += len(of_long)


def _by_length(lengths: np.ndarray) -> np.ndarray:
    """Rows of one piece, the longest first in each window."""
    whole = np.flatnonzero(lengths <= PIECE)
    keys = np.full(
        -(-len(whole) // WINDOW) * WINDOW, PIECE + 1, np.uint8
    )  # what is short: by radix
    keys[: len(whole)] = PIECE - lengths[whole]
    order = np.argsort(keys.reshape(-1, WINDOW), axis=1, kind="stable")
    order += np.arange(0, len(keys), WINDOW)[:, None]
    return whole[order.reshape(-1)[: len(whole)]]


class CupyPieces(CupyLaunches):
    """Starts kernels that go through pieces."""

    def _fold(self, name: str, of: Pieces, columns: int, numbers: int, *given: Given) -> None:
        """A launch a level; the state of a thread is so many numbers."""
        scratch = self.empty(of.scratch_rows, columns * numbers)
        for number, level in enumerate(of.levels):
            self._go(name, level, number, len(level.pieces), columns, scratch, given)

    def _fold_back(
        self, name: str, of: Pieces, rows: int, columns: int, numbers: int, *given: Given
    ) -> None:
        """The same, and one more launch where there are longer rows."""
        first, places = of.levels[0], of.scratch_rows
        scratch = self.empty(places + (rows if first.open else 0), columns * numbers)
        for number, level in enumerate(of.levels):
            self._go(name, level, number, len(level.pieces), columns, scratch, (places, *given))
        self._go(name, first, -1, first.open, columns, scratch, (places, *given))

    def _go(
        self, name: str, level: Level, number: int, pieces: int, columns: int, scratch: Array,
        given: tuple[Given, ...],
    ) -> None:  # fmt: skip
        of = level.pieces, number, level.open, level.base, scratch
        self._launch(name, pieces, columns, *of, *given)

    def _sum(self, name: str, of: Pieces, width: int, x: Array, out: Array, *given: Given) -> None:
        """By 16 bytes a thread, if so many of x are together and begin where that is possible."""
        together = ALIGNED // self.dtype.itemsize
        if width % together or not all(map(_aligned, (x, out))):
            together = 1
        suffix = "_16" if together > 1 else ""
        self._fold(name + suffix, of, out.shape[1] // together, together, *given)


def per_head(x: Array, heads: Array) -> int:
    """Columns of a head, of x (m, heads · c) and an array with a number for each head."""
    return x.shape[1] // heads.shape[1]


def _aligned(x: Array) -> bool:
    """Whether all rows of a matrix, and their ends, are at multiples of ``ALIGNED`` bytes."""
    return not (x.data.ptr | x.strides[0] | x.shape[1] * x.itemsize) % ALIGNED
