"""The files of readers, and distrust of their announcements."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import stat
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from partition.errors import DataWarning, UserError, shortened
from partition.resident import check_memory

LARGEST_WHOLE = 1 << 24  # up to which float32 has every whole number
DAMAGED = (
    EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, lzma.LZMAError, tarfile.TarError,
)  # fmt: skip


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


def quoted(text: str, most: int = 60) -> str:
    """A piece of a file for a message: in quotes, shortened, and without control characters."""
    return repr(str(shortened(text, most)))


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading ``path`` into one UserError that names it."""
    try:
        yield
    except DAMAGED as error:
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


def narrowed(values: np.ndarray, dtype: DTypeLike, where: object) -> np.ndarray:
    """The values in C order as ``dtype``, with a warning if that rounds whole numbers."""
    if np.dtype(dtype) == np.float32 and values.dtype.itemsize > 2 and values.dtype != np.float32:
        step = max(1, (1 << 20) // max(1, values[:1].size))
        for piece in (values[at : at + step] for at in range(0, len(values), step)):
            large = piece[np.abs(piece) > LARGEST_WHOLE]
            whole = large[np.isfinite(large) & (large == np.floor(large))]
            with np.errstate(over="ignore"):
                exact = whole.astype(np.longdouble)
                if (whole.astype(np.float32) != exact).any():
                    warnings.warn(
                        f"{where}: whole numbers beyond {LARGEST_WHOLE:,} are rounded, as features "
                        "are float32",
                        DataWarning,
                        stacklevel=2,
                    )
                    break
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype, order="C")


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
    features = narrowed(features, np.float32, where)
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
