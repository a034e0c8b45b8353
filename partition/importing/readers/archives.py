"""Arrays of an ``.npz`` some rows at a time: what is too large to be in memory as a whole."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from partition.errors import UserError
from partition.records import ARCHIVE_RATIO, FREE_ARCHIVE, NPY_HEAD, open_regular, read_npy_header


@dataclass(frozen=True)
class Member:
    """The header of an array of an ``.npz``, which its bytes can hold."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def where(self) -> str:
        """The name of the array in messages."""
        return f"{self.path}: {self.name}"


def find_member(path: Path, name: str) -> Member:
    """The array ``name`` of the file, of numbers in C order.

    A UserError if there is none, it is damaged or out of proportion to the file, or in Fortran's
    order.
    """
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        entry = _entry(archive, path, name)
        most = max(FREE_ARCHIVE, ARCHIVE_RATIO * os.fstat(file.fileno()).st_size)
        if entry.file_size > most:
            raise UserError(
                f"{path} unpacks to more than {ARCHIVE_RATIO} times its size",
                "if you trust it, write it again with numpy.savez",
            )
        with archive.open(entry) as stream:
            head = stream.read(NPY_HEAD)
        where = f"{path}: {name}"
        _, shape, fortran, dtype = read_npy_header(head, entry.file_size, where, "biuf")
    if fortran and len(shape) > 1:
        raise UserError(
            f"{where} is in Fortran's order, which is not read in pieces",
            "write it again: numpy.savez(FILE, name=numpy.ascontiguousarray(array))",
        )
    return Member(path, name, shape, dtype)


def rows_of(member: Member, at_once: int, start: int = 0, stop: int | None = None) -> Iterator:
    """Rows ``start`` to ``stop`` − 1, ``at_once`` at a time: arrays of shape (m, …)."""
    row = math.prod(member.shape[1:])
    stop = member.shape[0] if stop is None else stop
    numbers = _numbers(member, at_once * row, start * row, stop * row)
    yield from (piece.reshape(-1, *member.shape[1:]) for piece in numbers)


def columns_of_pair(member: Member, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The two rows of a (2, E) array side by side, ``at_once`` columns at a time."""
    count = member.shape[1]
    first, second = (_numbers(member, at_once, row * count, (row + 1) * count) for row in (0, 1))
    yield from zip(first, second, strict=True)


def _numbers(member: Member, at_once: int, start: int, stop: int) -> Iterator[np.ndarray]:
    """The numbers of the flat array from ``start`` to ``stop`` − 1, some at a time."""
    size = member.dtype.itemsize
    try:
        with open_regular(member.path) as file, zipfile.ZipFile(file) as archive:
            entry = _entry(archive, member.path, member.name)
            with archive.open(entry) as stream:
                head = stream.read(NPY_HEAD)
                begin, *_ = read_npy_header(head, entry.file_size, member.where, "biuf")
                stream.seek(begin + start * size)  # what is passed over is unpacked, not kept
                for at in range(start, stop, at_once):
                    count = min(at_once, stop - at)
                    yield np.frombuffer(_exactly(stream, count * size, member), member.dtype)
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"{member.where} is truncated or damaged: {error}") from error


def _exactly(stream: IO[bytes], nbytes: int, member: Member) -> bytes:
    raw = stream.read(nbytes)
    if len(raw) < nbytes:
        raise UserError(f"{member.where} is truncated")
    return raw


def _entry(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(f"{name}.npy")
    except KeyError:
        raise UserError(f"{path} has no array {name}") from None
