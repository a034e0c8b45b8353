"""Writing arrays in parallel: all ranks write rows into one ``.npy`` at their offsets."""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gcnmpi.layout.loading import original_rows
from gcnmpi.mpi.comm import Comm, agreed, from_root, slice_of
from partition.errors import UserError
from partition.records import temporary_name


def write_rows(comm: Comm, path: Path, rows: np.ndarray, n: int) -> None:
    """Write an (n, …) ``.npy`` together: each rank its contiguous rows, then rank 0 renames it.

    A UserError is raised on all ranks if it cannot be written; nothing of it is left then.
    """
    with writing_together(comm, path, rows.dtype, (n, *rows.shape[1:])) as write:
        write(slice_of(n, comm.rank, comm.size).start, rows)


def write_picked(
    comm: Comm,
    path: Path,
    numbers: np.ndarray,
    places: np.ndarray,
    rows: np.ndarray,
    n: int,
    max_bytes: float,
) -> None:
    """Write an (n, …) ``.npy`` of rows that ranks hold in any order, a slice of it at a time.

    Parameters
    ----------
    numbers, places : (m,) integers
        Rows of the file that come from this rank, and their places in ``rows``; each row of the
        file comes from one rank.
    max_bytes : float
        Bound of what a rank gathers at a time.
    """
    row_bytes = max(1, rows.dtype.itemsize * math.prod(rows.shape[1:]))
    step = max(1, int(max_bytes // row_bytes)) * comm.size
    with writing_together(comm, path, rows.dtype, (n, *rows.shape[1:])) as write:
        for start in range(0, n, step):
            count = min(step, n - start)
            some = np.flatnonzero((numbers >= start) & (numbers < start + count))
            mine = rows[places[some]]
            piece = original_rows(comm, numbers[some] - start, mine, count, max_bytes)
            del mine
            write(start + slice_of(count, comm.rank, comm.size).start, piece)
            del piece  # else it would be there beside the next one


@contextlib.contextmanager
def writing_together(
    comm: Comm, path: Path, dtype: np.dtype, shape: tuple[int, ...], axes: int = 1
) -> Iterator[Callable[[int, np.ndarray], None]]:
    """Give ``write(row, rows)``, called by all ranks together; in the end rank 0 renames the file.

    Rows are numbered along the first axis, or so many. Nothing of the file is left if it cannot be
    written.
    """
    with writing_apart(comm, path, dtype, shape, axes) as put:

        def write(row: int, rows: np.ndarray) -> None:
            with agreed(comm):
                put(row, rows)

        yield write


@contextlib.contextmanager
def writing_apart(
    comm: Comm, path: Path, dtype: np.dtype, shape: tuple[int, ...], axes: int = 1
) -> Iterator[Callable[[int, np.ndarray], None]]:
    """The same with ``put(row, rows)``, which a rank calls as often as it likes.

    It does so in a block that all ranks leave together.
    """
    row_bytes = dtype.itemsize * math.prod(shape[axes:])
    temporary = from_root(comm, lambda: temporary_name(path))

    def put(row: int, rows: np.ndarray) -> None:
        with _writing(path):
            data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
            _write_at(temporary, first + row * row_bytes, data)

    try:
        first = from_root(comm, lambda: _write_header(path, temporary, dtype, shape))
        yield put
        from_root(comm, lambda: _rename(temporary, path))
    except UserError:
        if comm.rank == 0:
            temporary.unlink(missing_ok=True)
        raise


def _write_header(path: Path, temporary: Path, dtype: np.dtype, shape: tuple[int, ...]) -> int:
    """Make the file in its full size; returns the bytes of its header."""
    facts = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, facts)
    with _writing(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o666), "wb", buffering=0) as file:
            file.truncate(header.tell() + int(np.prod(shape)) * dtype.itemsize)
            file.write(header.getvalue())
    return header.tell()


def _write_at(path: Path, start: int, data: memoryview) -> None:
    """Write bytes into a file; without a buffer, which would be written once more on closing."""
    with open(path, "r+b", buffering=0) as file:
        file.seek(start)
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())


def _rename(temporary: Path, path: Path) -> None:
    with _writing(path):
        temporary.replace(path)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
