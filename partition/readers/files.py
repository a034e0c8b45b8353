"""What the readers share: opening files, and distrust of what they announce."""

from __future__ import annotations

import contextlib
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError
from partition.records import DEFLATE_RATIO

MAX_CLASSES = 1 << 20
# Sparse features may have so many columns without an entry for each.
SPARSE_WIDTH = 1 << 16


def open_plain_or_gzip(path: Path) -> IO[bytes]:
    """Open for reading bytes, through gzip where the file's first bytes say so."""
    file = open(path, "rb")  # noqa: SIM115
    magic = file.read(2)
    file.seek(0)
    if magic != b"\x1f\x8b":
        return file
    file.close()
    return cast(IO[bytes], gzip.open(path, "rb"))


def content_limit(path: Path) -> int:
    """The most bytes that reading a plain or gzip'd file can yield."""
    with open(path, "rb") as file:
        ratio = DEFLATE_RATIO if file.read(2) == b"\x1f\x8b" else 1
    return path.stat().st_size * ratio


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn what goes wrong in reading ``path`` into one UserError that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        message = f"{path} is truncated or damaged: {error}"
        raise UserError(message, "fetch or make the file again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"{path} does not fit into the memory of this machine") from error


def check_memory(nbytes: int, what: str) -> None:
    """Refuse an array larger than this machine's memory, before it is allocated.

    Raises
    ------
    UserError
        Naming ``what``, what it would take and what there is.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > memory:
        need, have = nbytes / 2**30, memory / 2**30
        raise UserError(f"{what} would take {need:.3g} GiB of memory, this machine has {have:.3g}")


def check_csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int], where: str
) -> None:
    """Check that three arrays are a CSR matrix of the given shape.

    Raises
    ------
    UserError
        Naming ``where`` and the first thing that is wrong.
    """
    for name, array, kinds in (("indptr", indptr, "iu"), ("indices", indices, "iu")):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise UserError(f"{where}: {name} is not a vector of integers")
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise UserError(f"{where}: data is not a vector of numbers")
    rows, columns = shape
    if rows < 0 or columns < 0 or len(indptr) != rows + 1:
        raise UserError(f"{where}: {len(indptr)} row pointers do not fit the shape {shape}")
    if len(indices) != len(data):
        raise UserError(f"{where}: {len(indices)} indices but {len(data)} values")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise UserError(f"{where}: row pointers do not rise from 0 to {len(indices)}")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise UserError(f"{where}: a column index is outside 0..{columns - 1}")


def finite_weights(values: np.ndarray, where: str) -> np.ndarray:
    """``values`` as float64; a UserError that names the first that is not finite."""
    with np.errstate(over="ignore"):
        values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite))
        raise UserError(f"{where}: weight of entry {at + 1} is {values[at]}, not a finite number")
    return values


def finite_features(features: np.ndarray, where: str) -> np.ndarray:
    """``features`` as float32 in C order, unchanged where they are that already.

    Raises
    ------
    UserError
        If it is no (n, d) array of numbers, or an entry is not a finite float32.
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
            raise UserError(
                f"{where}: features of vertex {start + row}, column {column} are not finite",
                "NaN, infinities and values beyond float32 are not accepted",
            )
    return features


def class_labels(labels: np.ndarray, where: str) -> np.ndarray:
    """``labels`` as int32.

    Raises
    ------
    UserError
        If it is no vector of integers, or a label is outside −1..MAX_CLASSES−1.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(
            f"{where}: labels must be a vector of integers, not {labels.dtype} {labels.shape}",
            "one class 0, 1, 2 … per vertex, -1 where it has none",
        )
    wrong = (labels < -1) | (labels >= MAX_CLASSES)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UserError(
            f"{where}: label {labels[at]} of vertex {at} is outside -1..{MAX_CLASSES - 1}",
            "classes are 0, 1, 2 …; -1 marks a vertex without a label",
        )
    return labels.astype(np.int32)


def dense_features(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int], where: str
) -> np.ndarray:
    """A checked CSR matrix as (n, d) float32; a UserError if that is too large or not finite."""
    if shape[1] > max(SPARSE_WIDTH, len(data)):
        raise UserError(f"{where}: {shape[1]} columns for only {len(data)} entries")
    check_memory(4 * shape[0] * shape[1], f"{where}: {shape[0]} x {shape[1]} features")
    with np.errstate(over="ignore"):
        data = data.astype(np.float32)
    index = np.int32 if max(len(data), *shape) < 2**31 else np.int64
    matrix = sp.csr_array((data, indices.astype(index), indptr.astype(index)), shape=shape)
    return finite_features(matrix.toarray(), where)
