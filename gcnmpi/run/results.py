"""Results of inference in files that are no plain ``.npy``, each written whole or not at all."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from partition.records import atomic_file

ROWS_AT_ONCE = 1 << 14
IN_QUOTES = re.compile(r'(?s)^(?:[#%\s].*|.*[,;\t"\r\n].*|.*\s)$')


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

    @property
    def columns(self) -> list[str]:
        """Names of the columns of ``values``."""
        one = self.values.ndim == 1
        return [self.column] if one else [str(column) for column in range(self.values.shape[1])]

    def slices(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Names of vertices and their rows, (m, width), some at a time."""
        for start in range(0, len(self.values), ROWS_AT_ONCE):
            rows = self.values[start : start + ROWS_AT_ONCE]
            numbers: np.ndarray = np.arange(start, start + len(rows))
            if self.picked is not None:
                numbers = self.picked[start : start + len(rows)]
            names = numbers if self.ids is None else np.asarray(self.ids[numbers])
            rows = rows.reshape(len(rows), -1)
            yield names, rows if self.names is None else np.array(self.names)[rows]


def write_npz(results: Results, path: Path) -> None:
    """The array ``values``, under its name, and what comes with it."""
    with atomic_file(path) as file:
        np.savez(file, **{results.name: results.values, **results.arrays})  # type: ignore[arg-type]


def write_csv(results: Results, path: Path) -> None:
    """A line for each vertex, numbers separated by commas, enough digits to recover them.

    Where vertices have ids, they are the first column, under a header.
    """
    number = {"f4": "%.9g", "f8": "%.17g"}.get(results.values.dtype.str[1:], "%d")
    with atomic_file(path, "w") as file:
        if results.ids is not None:
            _write_rows(file, [["id", *results.columns]])
        for names, rows in results.slices():
            if rows.dtype.kind == "U":
                first = [] if results.ids is None else [names.tolist()]
                _write_rows(file, zip(*first, *rows.T.tolist(), strict=True))
                continue
            if results.ids is None:
                np.savetxt(file, rows, number, ",")
                continue
            text = io.StringIO()
            np.savetxt(text, rows, number, ",")
            lines = zip(map(_field, names.tolist()), text.getvalue().splitlines(), strict=True)
            file.writelines(f"{name},{line}\n" for name, line in lines)


def _write_rows(file: IO[str], rows: Iterable[Iterable[object]]) -> None:
    for row in rows:
        file.write((",".join(map(_field, row)) or '""') + "\n")


def _field(value: object) -> str:
    """A word, in quotes where a reader might cut it or take it for a comment."""
    word = str(value)
    return '"' + word.replace('"', '""') + '"' if IN_QUOTES.search(word) else word


def write_parquet(results: Results, path: Path) -> None:
    """A column ``id``, of numbers where vertices have no ids, and one for each of the values."""
    import pyarrow as pa  # here, since every rank of every run would wait for it
    import pyarrow.parquet as pq

    text = results.ids is not None and results.ids.dtype.kind == "U"
    of_names = results.names is not None
    number = pa.string() if of_names else pa.from_numpy_dtype(results.values.dtype)
    names = ["id", *results.columns]
    kinds = [pa.string() if text else pa.int64(), *[number] * len(results.columns)]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    with atomic_file(path) as file, pq.ParquetWriter(file, schema) as out:
        for ids, rows in results.slices():
            first = pa.array(ids.tolist() if text else ids, kinds[0])
            columns = [pa.array(column.tolist() if of_names else column) for column in rows.T]
            out.write_table(pa.Table.from_arrays([first, *columns], schema=schema))


def write_table(columns: Mapping[str, np.ndarray], path: Path) -> None:
    """Columns of numbers or texts, all as long, as the suffix says: ``.npz``, ``.csv``, Parquet."""
    if path.suffix == ".npz":
        with atomic_file(path) as file:
            np.savez(file, **columns)  # type: ignore[arg-type]
        return
    if path.suffix == ".parquet":
        import pyarrow as pa  # here, since every rank of every run would wait for it
        import pyarrow.parquet as pq

        texts = {name: a.tolist() if a.dtype.kind == "U" else a for name, a in columns.items()}
        with atomic_file(path) as file:
            pq.write_table(pa.table(texts), file)
        return
    digits = {"f4": "{:.9g}", "f8": "{:.17g}"}
    count = len(next(iter(columns.values())))
    with atomic_file(path, "w") as file:
        _write_rows(file, [columns])
        for start in range(0, count, ROWS_AT_ONCE):
            words = []
            for column in columns.values():
                some, form = column[start : start + ROWS_AT_ONCE], digits.get(column.dtype.str[1:])
                words.append(some.tolist() if form is None else map(form.format, some.tolist()))
            _write_rows(file, zip(*words, strict=True))
