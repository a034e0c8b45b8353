"""Columns of Parquet files as arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partition.errors import UserError, shortened
from partition.importing.readers.files import quoted
from partition.records import ARCHIVE_RATIO, FREE_ARCHIVE

BUFFER = 1 << 20  # bytes of a column that are read at once


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file; a UserError if it is none."""
    with parquet_errors(path):
        # Arrow would keep all that it has read ahead until the file is closed: the whole of it.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)


@contextlib.contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading ``path`` into one UserError that names it."""
    try:
        yield
    except MemoryError:  # which is one of Arrow's, too
        raise
    # Names and texts are decoded late; an OSError may be of the system, or of a damaged file.
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path} is truncated or damaged: {_reason(error)}") from error


def column_names(path: Path) -> list[str]:
    """The names of the columns, of a file that does not announce more than it may."""
    file = open_parquet(path)
    with parquet_errors(path):
        names = list(file.schema_arrow.names)
    if len(set(names)) < len(names):
        raise UserError(f"{path} has two columns of one name")
    # Runs of one value take no room in the file.
    nbytes = 8 * file.metadata.num_rows * max(1, file.metadata.num_columns)
    if nbytes > max(FREE_ARCHIVE, ARCHIVE_RATIO * path.stat().st_size):
        raise UserError(
            f"{path} unpacks to more than {ARCHIVE_RATIO} times its size",
            "if you trust it, export it to .npy or .csv",
        )
    return names


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def array_of(column: pa.Array | pa.ChunkedArray, name: str, path: Path) -> np.ndarray:
    """A column as (n,) numbers, bool or texts, or of lists as (n, d) numbers."""
    where = f"{path}: the column {quoted(name)}"
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count and not pa.types.is_floating(column.type):
        row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise UserError(
            f"{where} lacks {column.null_count} of its values, the first in row {row}",
            "fill them in, or leave the rows or the column out; a label may be '' or -1",
        )
    kind = column.type
    if is_list(kind):
        values = array_of(column.flatten(), name, path)
        rows = len(column)
        lengths = np.asarray(column.value_lengths()) if rows else np.empty(0, np.int64)
        if values.dtype.kind not in "biuf" or (lengths != (lengths[0] if rows else 0)).any():
            raise UserError(f"{where} holds lists of different lengths, or not of numbers")
        return values.reshape(rows, -1 if rows else 0)
    if is_text(kind):
        return np.array(column.to_pylist(), str)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise UserError(f"{where} holds {kind}, not numbers or texts")
    return column.to_numpy(zero_copy_only=False)


def _reason(error: BaseException) -> str:
    return shortened((str(error).splitlines() or [type(error).__name__])[0], 100)
