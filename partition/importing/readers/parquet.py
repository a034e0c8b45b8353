"""Parquet files as tables, whose columns have names and types."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partition.errors import UserError, shortened
from partition.importing.readers.files import quoted
from partition.importing.readers.source import Reading
from partition.importing.readers.text import Comments
from partition.records import ARCHIVE_RATIO, FREE_ARCHIVE, open_regular
from partition.resident import check_memory

BUFFER = 1 << 20  # bytes of a column that are read at once
AT_ONCE = 1 << 20  # rows


@dataclass(frozen=True)
class ParquetTable:
    """An open file, and which of its columns are read: those at the places in ``kinds``.

    In a column of the kind ``string``, texts may be missing, and are empty. As for a table in text,
    ``header`` says that columns have names, and there are no ``comments``.
    """

    path: Path
    file: pq.ParquetFile
    names: Sequence[str]
    kinds: Mapping[int, pa.DataType | None] = field(default_factory=dict)
    header: int = 1
    begins: int = 1
    comments: Comments = field(default_factory=Comments)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.file.metadata.num_rows

    def kind(self, place: int) -> pa.DataType:
        """The type of a column."""
        return self.file.schema_arrow.field(place).type

    def pieces(self, reading: Reading) -> Iterator[tuple[str, int, list[np.ndarray | pa.Array]]]:
        """The columns of ``kinds``, some rows at a time, the file, and the number of rows before.

        As of :func:`array_of`.
        """
        readers = reading.readers
        if reading.whole:
            check_memory(16 * self.rows, f"{self.path}: {self.rows} rows")
        chosen = [self.names[place] for place in self.kinds]

        def arrays(batch: pa.RecordBatch, done: int) -> list[np.ndarray | pa.Array]:
            found = []
            for name, kind in zip(chosen, self.kinds.values(), strict=True):
                column = batch.column(name)
                if kind == pa.string() and pa.types.is_string(column.type):
                    column = column.fill_null("")
                found.append(array_of(column, name, self.path, done))
            return found

        groups = range(self.file.metadata.num_row_groups)
        counts = [self.file.metadata.row_group(group).num_rows for group in groups]
        owners = np.cumsum([0, *counts])[:-1] * readers.size // max(1, self.rows)
        done = int(sum(np.compress(owners < readers.rank, counts)))
        own = np.flatnonzero(owners == readers.rank).tolist()
        with _parquet_errors(self.path):
            for batch in self.file.iter_batches(AT_ONCE, own, chosen):
                yield str(self.path), done, arrays(batch, done)
                done += len(batch)
                reading.tell("reading", done, self.rows)


def is_parquet(path: Path) -> bool:
    """Whether a file is one, by its first bytes."""
    with open_regular(path) as file:
        return file.read(4) == b"PAR1"


def open_parquet(path: Path) -> ParquetTable:
    """Open a file; a UserError if it is none, or announces more than it may."""
    with _parquet_errors(path):
        # Arrow would keep all that it has read ahead until the file is closed: the whole of it.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)
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
    return ParquetTable(path, file, names)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def array_of(
    column: pa.Array | pa.ChunkedArray, name: str, path: Path, before: int = 0
) -> np.ndarray | pa.Array:
    """A column, after so many rows, as (n,) numbers or bool, Arrow texts, or of lists (n, d)."""
    where = f"{path}: the column {quoted(name)}"
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count and not pa.types.is_floating(column.type):
        row = before + int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise UserError(
            f"{where} lacks {column.null_count} of its values, the first in row {row}",
            "fill them in, or leave the rows or the column out; a label may be '' or -1",
        )
    kind = column.type
    if is_list(kind):
        values = array_of(column.flatten(), name, path)
        rows = len(column)
        lengths = np.asarray(column.value_lengths()) if rows else np.empty(0, np.int64)
        if not isinstance(values, np.ndarray) or (lengths != (lengths[0] if rows else 0)).any():
            raise UserError(f"{where} holds lists of different lengths, or not of numbers")
        return values.reshape(rows, -1 if rows else 0)
    if is_text(kind):
        return column.cast(pa.string())
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise UserError(f"{where} holds {kind}, not numbers or texts")
    return column.to_numpy(zero_copy_only=False)


@contextlib.contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading ``path`` into one UserError that names it."""
    try:
        yield
    except MemoryError:  # which is one of Arrow's, too
        raise
    # Names and texts are decoded late; an OSError may be of the system, or of a damaged file.
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        reason = shortened((str(error).splitlines() or [type(error).__name__])[0], 100)
        raise UserError(f"{path} is truncated or damaged: {reason}") from error
