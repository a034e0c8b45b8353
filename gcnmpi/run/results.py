"""Rows of a result that ranks hold: written to a file, whole or not at all, or sent to rank 0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.layout.writing import write_picked
from gcnmpi.mpi.comm import Comm, agreed, from_root, redistribute
from gcnmpi.options.requests import RESULT_WRITERS
from gcnmpi.run.preflight import make_room
from partition.records import atomic_file, map_npy, temporary_name

ROWS_AT_ONCE = 1 << 14
# Texts that a reader might cut, or take for a comment or a missing value.
_IN_QUOTES = re.compile(r'(?s)^(?:|[#%\s].*|.*[,;\t"\r\n].*|.*\s)$')
Table = Mapping[str, np.ndarray]  # columns of numbers or texts, all as long


@dataclass(frozen=True)
class Rows:
    """Rows of a result, some of which this rank holds."""

    # (m,) integers: rows of the result that come from this rank; each comes from one rank
    numbers: np.ndarray
    places: np.ndarray  # (m,) integers: where they are in ``values``
    values: np.ndarray  # what this rank holds
    n: int  # rows of the result
    # (n,) int64 or None: the vertices or arcs of its rows; None: all of them, in their order
    picked: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole result."""
        return (self.n, *self.values.shape[1:])


@dataclass(frozen=True)
class Results:
    """A row for each vertex that was asked for."""

    values: np.ndarray  # (m, width) numbers, or (m,), such as int64 classes
    # (n,) integers or texts, or None: what the vertices of the graph are called, where that is not
    # their numbers
    ids: np.ndarray | None
    # (m,) int64 or None: the vertices of the rows; None: all of them, in their order
    picked: np.ndarray | None
    column: str = "class"  # what the one column is called of rows of one number
    name: str = "values"  # what an ``.npz`` calls the values
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # what else is in an ``.npz``
    # Names of classes, which tables have in place of the numbers in ``values``
    names: tuple[str, ...] | None = None

    def tables(self) -> Iterator[Table]:
        """Column ``id``, and one for each of the values, some rows at a time."""
        called = [self.column]
        if self.values.ndim > 1:
            called = [str(column) for column in range(self.values.shape[1])]
        for start in range(0, max(1, len(self.values)), ROWS_AT_ONCE):
            rows = self.values[start : start + ROWS_AT_ONCE]
            numbers: np.ndarray = np.arange(start, start + len(rows))
            if self.picked is not None:
                numbers = self.picked[start : start + len(rows)]
            ids = numbers if self.ids is None else np.asarray(self.ids[numbers])
            wide = rows.reshape(len(rows), len(called))
            wide = wide if self.names is None else np.array(self.names)[wide]
            yield {"id": ids, **dict(zip(called, wide.T, strict=True))}


def write_npz(results: Results, path: Path) -> None:
    """The array ``values``, under its name, and what comes with it."""
    with atomic_file(path) as file:
        np.savez(file, **{results.name: results.values, **results.arrays})  # type: ignore[arg-type]


def write_csv(results: Results, path: Path) -> None:
    """A line for each vertex, numbers separated by commas, enough digits to recover them.

    Where vertices have ids, they are the first column, under a header.
    """
    if results.ids is None:
        bare = ({name: of for name, of in table.items() if name != "id"}
                for table in results.tables())  # fmt: skip
        _write_csv(bare, path, header=False)
    else:
        _write_csv(results.tables(), path)


def write_parquet(results: Results, path: Path) -> None:
    """A column ``id``, of numbers where vertices have no ids, and one for each of the values."""
    _write_parquet(results.tables(), path)


def write_table(table: Table, path: Path) -> None:
    """Columns, as the suffix of the path says: ``.npz``, ``.csv`` or Parquet."""
    if path.suffix == ".npz":
        with atomic_file(path) as file:
            np.savez(file, **table)  # type: ignore[arg-type]
    elif path.suffix == ".parquet":
        _write_parquet([table], path)
    else:
        _write_csv([table], path)


def _write_csv(tables: Iterable[Table], path: Path, header: bool = True) -> None:
    from pyarrow import csv

    with atomic_file(path) as file:
        for table in tables:
            if header:
                file.write((",".join(table) + "\n").encode())
                header = False
            columns = (np.unique(of) for of in table.values() if of.dtype.kind == "U")
            texts = (text for column in columns for text in column)
            style = "needed" if any(map(_IN_QUOTES.search, texts)) else "none"
            options = csv.WriteOptions(include_header=False, quoting_style=style)
            csv.write_csv(_batch(table), file, options)


def _write_parquet(tables: Iterable[Table], path: Path) -> None:
    from pyarrow import parquet

    batches = map(_batch, tables)
    first = next(batches)
    with atomic_file(path) as file, parquet.ParquetWriter(file, first.schema) as out:
        for batch in (first, *batches):
            out.write_batch(batch)


def _batch(table: Table) -> Any:
    """Columns as a batch of Arrow."""
    import pyarrow  # here, since every rank of every run would wait for it

    return pyarrow.record_batch({
        name: pyarrow.array(of.tolist(), pyarrow.string()) if of.dtype.kind == "U"
        else pyarrow.array(of)
        for name, of in table.items()
    })  # fmt: skip


def on_root(comm: Comm, rows: Rows, max_bytes: float) -> np.ndarray | None:
    """All rows in their order on rank 0; None elsewhere."""
    destination = np.zeros(len(rows.numbers), np.int64)
    arrays = [rows.numbers, rows.values[rows.places]]
    (places, found), _ = redistribute(comm, destination, arrays, max_bytes)
    if comm.rank:
        return None
    whole = np.empty(rows.shape, rows.values.dtype)
    whole[places] = found
    return whole


def check_writable(comm: Comm, out: Path | None) -> None:
    """Raise a UserError on all ranks if results cannot be written, before the work."""
    if out is not None:
        with agreed(comm):  # a library that is missing
            if out.suffix in RESULT_WRITERS:
                RESULT_WRITERS.get(out.suffix)
        make_room(comm, out, "--out")


def deliver(
    comm: Comm, out: Path | None, rows: Rows, ids: np.ndarray | None, max_bytes: float, **named: Any
) -> np.ndarray | None:
    """:func:`write` to a file; or, where there is none, all rows on rank 0."""
    if out is None:
        return on_root(comm, rows, max_bytes)
    write(comm, out, rows, ids, max_bytes, **named)
    return None


def write(
    comm: Comm, path: Path, rows: Rows, ids: np.ndarray | None, max_bytes: float, **named: Any
) -> None:
    """Write rows in their order, in slices, as the suffix of the path says.

    Parameters
    ----------
    ids : (n,) integers or texts, or None
        What the vertices are called, where that is not their numbers.
    max_bytes : float
        Bound of what a rank gathers at a time.
    **named
        Of :class:`Results`: ``column``, ``name``, ``arrays``, ``names``.

    Raises
    ------
    UserError
        On all ranks, if the file cannot be written.
    """
    whole = path if path.suffix == ".npy" else from_root(comm, lambda: temporary_name(path))
    write_picked(comm, whole, rows.numbers, rows.places, rows.values, rows.n, max_bytes)
    if whole is path:
        return

    def convert() -> None:
        results = Results(map_npy(whole), ids, rows.picked, **named)
        RESULT_WRITERS.get(path.suffix)(results, path)

    try:
        from_root(comm, convert)
    finally:
        if comm.rank == 0:
            whole.unlink(missing_ok=True)
