"""Opening the files of readers, and distrust of their announcements."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from partition.errors import UserError, shortened
from partition.records import DEFLATE_RATIO, open_regular
from partition.resident import check_memory

# Lists of arcs and tables of numbers shrink to a tenth or so in a gzip file, hardly further.
TEXT_RATIO = 100
FREE_CONTENT = 1 << 26


def open_plain_or_gzip(path: Path, *, ratio: int = TEXT_RATIO) -> IO[bytes]:
    """Open for reading bytes, through gzip where the file's first bytes say so.

    Content of more than ``FREE_CONTENT`` that is more than ``ratio`` times as long as the gzip file
    is refused while it is read; and so is a pipe, a device or a folder, from which nothing is read.
    """
    file = open_regular(path)
    magic = file.read(2)
    file.seek(0)
    return cast(IO[bytes], _Gzip(path, file, ratio)) if magic == b"\x1f\x8b" else file


def position_in(file: IO[bytes]) -> int:
    """How many bytes of the file on disk have been read, of one that the above has opened."""
    return file.below.tell() if isinstance(file, _Gzip) else file.tell()


def check_file(path: str | os.PathLike[str]) -> None:
    """A UserError if ``path`` does not exist or is not a regular file."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        raise UserError(f"there is no file {path}") from None
    if not stat.S_ISREG(mode):
        known = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        kind = known.get(stat.S_IFMT(mode), "a device")
        hint = None if stat.S_ISDIR(mode) else "write its content to a file first"
        raise UserError(f"{path} is {kind}, not a file", hint)


class _Gzip(gzip.GzipFile):
    """The content of a gzip file, refused where it is out of proportion to the file."""

    def __init__(self, path: Path, file: IO[bytes], ratio: int) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._path, self.below, self._ratio = path, file, ratio
        self._most = max(FREE_CONTENT, os.fstat(file.fileno()).st_size * ratio)

    def read(self, size: int | None = -1) -> bytes:
        return self._within(super().read(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._within(super().readline(size))

    def close(self) -> None:
        super().close()
        self.below.close()

    def _within(self, content: bytes) -> bytes:
        if self.tell() > self._most:
            raise UserError(
                f"{self._path} unpacks to more than {self._ratio} times its size",
                "if you trust it, unpack it with gunzip and give the unpacked file",
            )
        return content


def quoted(text: str, most: int = 60) -> str:
    """A piece of a file for a message: in quotes, shortened, and without control characters."""
    return repr(str(shortened(text, most)))


def content_limit(path: Path) -> int:
    """The most bytes that reading a plain or gzip'd file can yield."""
    with open(path, "rb") as file:
        ratio = DEFLATE_RATIO if file.read(2) == b"\x1f\x8b" else 1
    return path.stat().st_size * ratio


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading ``path`` into one UserError that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        message = f"{path} is truncated or damaged: {error}"
        raise UserError(message, "fetch or make the file again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"{path} does not fit into the memory of this machine") from error


def check_vertices(n: int, where: object) -> None:
    """Refuse a graph without vertices, or of more than memory holds."""
    if not n:
        raise UserError(f"{where} holds a graph without vertices")
    check_memory(16 * n, f"{where}: {n} vertices")


def check_inside(vertices: np.ndarray, n: int, where: object) -> None:
    """A UserError if one of the numbers is not that of a vertex."""
    if len(vertices) and (vertices.min() < 0 or vertices.max() >= n):
        raise UserError(f"{where} names a vertex outside 0..{n - 1}")


def finite_weights(values: np.ndarray, where: str, before: int = 0) -> np.ndarray:
    """``values``, after ``before`` others, as float64; a UserError names one that is not finite."""
    with np.errstate(over="ignore"):
        values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite))
        entry = before + at + 1
        raise UserError(
            f"{where}: weight of entry {entry} is {values[at]}, not a finite number",
            "no weight may be missing: fill it in, or leave the row out"
            if np.isnan(values[at])
            else None,
        )
    return values


def finite_features(
    features: np.ndarray, where: str, of: str = "vertex", columns: Sequence[str] = ()
) -> np.ndarray:
    """``features``, (n, d) numbers, as float32 in C order, unchanged where they are that already.

    Messages call rows ``of`` and columns by their names. A UserError if they are none, or an entry
    is not a finite float32.
    """
    if features.ndim != 2 or features.shape[1] < 1 or features.dtype.kind not in "biuf":
        raise UserError(
            f"{where}: features must be rows of numbers, not {features.dtype} {features.shape}"
        )
    with np.errstate(over="ignore"):
        features = np.asarray(features, np.float32, order="C")
    # In slices: a test of the whole would take another copy's worth of memory.
    step = max(1, (1 << 24) // features.shape[1])
    for start in range(0, len(features), step):
        finite = np.isfinite(features[start : start + step])
        if not finite.all():
            row, column = np.unravel_index(np.argmin(finite), finite.shape)
            called = quoted(columns[int(column)]) if columns else column
            value = features[start + row, column]
            raise UserError(
                f"{where}: features of {of} {start + row}, column {called} are not finite",
                "features may not be missing: fill them in, or leave the column out"
                if np.isnan(value)
                else "infinities and values beyond float32 are not accepted",
            )
    return features
