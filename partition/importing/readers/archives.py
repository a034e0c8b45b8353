"""Arrays of an ``.npz`` some rows at a time, where they are too large for memory as a whole."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.records import ARCHIVE_RATIO, FREE_ARCHIVE, NPY_HEAD, open_regular, read_npy_header


@dataclass(frozen=True)
class Member:
    """An array of an ``.npz``, by its header, which its bytes can hold."""

    path: Path
    name: str
    begin: int  # of the numbers, in bytes
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def where(self) -> str:
        """The name of the array in messages."""
        return f"{self.path}: {self.name}"

    def rows(self, at_once: int) -> Iterator[np.ndarray]:
        """All rows, ``at_once`` at a time: arrays of shape (m, …)."""
        for piece in self._numbers(at_once * math.prod(self.shape[1:]), 0, math.prod(self.shape)):
            yield piece.reshape(-1, *self.shape[1:])

    def pairs(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The two rows of a (2, E) array side by side, ``at_once`` columns at a time."""
        count = self.shape[1]
        first, second = (self._numbers(at_once, row * count, (row + 1) * count) for row in (0, 1))
        yield from zip(first, second, strict=True)

    def _numbers(self, at_once: int, start: int, stop: int) -> Iterator[np.ndarray]:
        """The numbers of the flat array from ``start`` to ``stop`` − 1, some at a time."""
        size = self.dtype.itemsize
        try:
            with (
                open_regular(self.path) as file,
                zipfile.ZipFile(file) as archive,
                archive.open(f"{self.name}.npy") as stream,
            ):
                stream.seek(self.begin + start * size)  # bytes before are unpacked, not kept
                for at in range(start, stop, at_once):
                    nbytes = min(at_once, stop - at) * size
                    raw = stream.read(nbytes)
                    if len(raw) < nbytes:
                        raise UserError(f"{self.where} is truncated")
                    yield np.frombuffer(raw, self.dtype)
        except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
            raise UserError(f"{self.where} is truncated or damaged: {error}") from error


def find_member(path: Path, name: str) -> Member:
    """The array ``name`` of the file, of numbers in C order.

    A UserError if there is none, it is damaged or out of proportion to the file, or in Fortran's
    order.
    """
    where = f"{path}: {name}"
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        try:
            entry = archive.getinfo(f"{name}.npy")
        except KeyError:
            raise UserError(f"{path} has no array {name}") from None
        most = max(FREE_ARCHIVE, ARCHIVE_RATIO * os.fstat(file.fileno()).st_size)
        if entry.file_size > most:
            raise UserError(
                f"{path} unpacks to more than {ARCHIVE_RATIO} times its size",
                "if you trust it, write it again with numpy.savez",
            )
        with archive.open(entry) as stream:
            head = stream.read(NPY_HEAD)
        begin, shape, fortran, dtype = read_npy_header(head, entry.file_size, where, "biuf")
    if fortran and len(shape) > 1:
        raise UserError(
            f"{where} is in Fortran's order, which is not read in pieces",
            "write it again: numpy.savez(FILE, name=numpy.ascontiguousarray(array))",
        )
    return Member(path, name, begin, shape, dtype)
