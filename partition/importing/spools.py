"""Arcs and their data in files, for graphs larger than memory: in the order in which they came."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.importing.arcs import Keys
from partition.importing.readers.arc_columns import ArcTable, text_places
from partition.importing.readers.source import Allocate
from partition.records import temporary_name


@contextlib.contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """A folder for large files beside a path, which is deleted in the end."""
    folder = temporary_name(beside)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder
    except OSError as error:
        raise UserError(
            f"cannot write to {folder.parent}: {error.strerror or error}",
            "with --memory, arcs are kept there meanwhile: some 40 bytes for each, 80 with weights",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def allocate_in(folder: Path) -> Allocate:
    """Arrays in files of a folder."""

    def allocate(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if 0 in shape:
            return np.empty(shape, dtype)
        # Into a file with holes that a full disk cannot fill, nobody could write and live.
        with open(folder / name, "wb") as file, contextlib.suppress(AttributeError):
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(dtype).itemsize)
        return np.memmap(folder / name, dtype, "r+", shape=shape)

    return allocate


class DataFiles:
    """Data of arcs in files, in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[str, int] = {}
        self._forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self._rows = 0

    def append(self, columns: Mapping[str, Any]) -> None:
        """Put the rows of some arcs behind those of others."""
        for name, column in columns.items():
            values = text_places(column, self._texts)
            self._forms[name] = values.dtype, values.shape[1:]
            with self._file(name).open("ab") as file:
                np.ascontiguousarray(values).tofile(file)
            self._rows += len(values) if name == next(iter(columns)) else 0

    def table(self) -> ArcTable:
        """The columns, mapped from the files."""
        columns = {
            name: np.memmap(self._file(name), dtype, "r", shape=(self._rows, *shape))
            for name, (dtype, shape) in self._forms.items()
            if self._rows
        }
        return ArcTable(columns, list(self._texts) or None)

    def _file(self, name: str) -> Path:
        return self._path.with_suffix(f".arc_{name}")


Pieces = Iterator[tuple[Any, ...]]


def counted_pieces(pieces: Pieces) -> Iterator[tuple[int, Any]]:
    """Each piece, after the number of rows up to its end."""
    done = 0
    for piece in pieces:
        done += len(piece[0])
        yield done, piece


class Columns:
    """Arcs in files in the order in which they came: ends or keys, weights and numbers."""

    def __init__(
        self, path: Path, *names: str, weighted: bool = False, numbered: bool = False
    ) -> None:
        self.weighted, self.numbered, self.rows = weighted, numbered, 0
        columns = (*names, "weights", "numbers")
        self.paths = {name: path.with_suffix(f".{name}") for name in columns}
        for file in self.paths.values():
            file.touch()

    def append(self, *columns: np.ndarray | None) -> None:
        """Put some arcs behind the others."""
        self.rows += 0 if columns[0] is None else len(columns[0])
        for path, column in zip(self.paths.values(), columns, strict=True):
            if column is not None:
                with path.open("ab") as file:
                    np.ascontiguousarray(column).tofile(file)

    def rows_from(self, start: int, count: int, *, weights: bool = True) -> tuple[Any, ...]:
        """The columns of so many rows; None in place of weights and numbers without any."""
        *ends, of_weights, of_numbers = self.paths.values()
        weighted, numbered = weights and self.weighted, weights and self.numbered
        return (
            *(np.fromfile(path, np.int64, count, offset=start * 8) for path in ends),
            np.fromfile(of_weights, count=count, offset=start * 8) if weighted else None,
            np.fromfile(of_numbers, np.int64, count, offset=start * 8) if numbered else None,
        )

    def pieces(self, at_once: int, *, weights: bool = True) -> Pieces:
        """The columns, so many rows at a time."""
        for start in range(0, self.rows, at_once):
            yield self.rows_from(start, min(at_once, self.rows - start), weights=weights)

    def keys(self, at_once: int) -> Iterator[Keys]:
        """The same, of a column of keys."""
        for columns in self.pieces(at_once):
            yield Keys(*columns)

    def whole(self) -> Keys:
        """All keys that were put here."""
        return next(self.keys(max(1, self.rows)), no_keys(self.weighted, self.numbered))

    def delete(self) -> None:
        """Delete the files of all columns."""
        for path in self.paths.values():
            path.unlink()


def mapped(path: Path, dtype: np.dtype, rows: int) -> np.ndarray:
    """A file of so many numbers as an array."""
    return np.memmap(path, dtype, "r", shape=(rows,)) if rows else np.empty(0, dtype)


def no_keys(weighted: bool, numbered: bool) -> Keys:
    """Keys of no arcs, with the columns of others."""
    none = np.empty(0, np.int64)
    return Keys(none, np.empty(0) if weighted else None, none if numbered else None)
